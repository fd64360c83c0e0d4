-- name: scopes
select distinct tenant, project from reflection;

-- name: scopes_waiting
select distinct tenant, project from episode where state = 'waiting'
union select distinct tenant, project from trace where state = 'open';

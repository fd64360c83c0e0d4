-- name: scopes
select tenant, project from scopes_there(false);

-- name: scopes_waiting
select tenant, project from scopes_there(true);

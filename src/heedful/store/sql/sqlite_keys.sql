-- name: find_key
select id, tenant, name, hash, projects, may, by, at, expires, used, revoked from key where id = :id;

-- name: any_key
select exists (select 1 from key) as n;

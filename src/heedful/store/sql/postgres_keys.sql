-- name: find_key
select id, tenant, name, hash, projects, may, by, at, expires, used, revoked from key_of(:id);

-- name: any_key
select keys_there() as n;

-- name: insert_key
insert into key (id, tenant, name, hash, projects, may, by, at, expires)
values (:id, :tenant, :name, :hash, :projects, :may, :by, :now, :expires);

-- name: list_keys
select id, tenant, name, hash, projects, may, by, at, expires, used, revoked from key
where tenant = :tenant and (at, id) < (:at, :id)
order by at desc, id desc limit :limit;

-- name: revoke_key
update key set revoked = coalesce(revoked, :now) where tenant = :tenant and id = :id
returning id, tenant, name, hash, projects, may, by, at, expires, used, revoked;

-- name: use_key
update key set used = :now where tenant = :tenant and id = :id and coalesce(used, 0) < :now - 60;

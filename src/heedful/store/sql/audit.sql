-- name: next_audit
insert into audit_head (tenant, n, hash) values (:tenant, 1, '')
on conflict (tenant) do update set n = audit_head.n + 1
returning n, hash;

-- name: insert_audit
insert into audit (tenant, n, at, by, action, subject, detail, previous, hash)
values (:tenant, :n, :at, :by, :action, :subject, :detail, :previous, :hash);

-- name: set_audit_head
update audit_head set hash = :hash where tenant = :tenant;

-- name: audit_head
select n, hash from audit_head where tenant = :tenant;

-- name: newest_audit
select n, at, by, action, subject, detail, hash from audit
where tenant = :tenant and (:before = 0 or n < :before)
order by n desc limit :limit;

-- name: all_audit
select tenant, n, at, by, action, subject, detail, previous, hash from audit where tenant = :tenant order by n;

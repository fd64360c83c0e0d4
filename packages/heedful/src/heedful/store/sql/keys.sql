-- part: in_projects
-- With projects, only rows that concern no other project.
(:projects = '[]' or projects <> '[]' and not exists (
  select 1 from json_each(projects) where value not in (select value from json_each(:projects))))

-- name: list_keys
select * from key
where tenant = :tenant and {in_projects}
  and (:cursor = '' or (at, id) < (select at, id from key where tenant = :tenant and id = :cursor))
order by at desc, id desc limit :limit;

-- name: find_key
select * from /*sqlite key where id = :id *//*postgres key_of(:id) */;

-- name: any_key
select /*sqlite exists (select 1 from key) *//*postgres keys_there() */ as n;

-- name: revoke_key
update key set revoked = coalesce(revoked, :now) where tenant = :tenant and id = :id
returning *;

-- name: newest_audit
select n, projects, at, by, action, subject, detail from audit
where tenant = :tenant and (:before = 0 or n < :before) and {in_projects}
order by n desc limit :limit;

-- name: lock
-- Until the end of the transaction, nobody else gets the lock of this name. In SQLite one transaction writes.
select /*postgres pg_advisory_xact_lock(hashtextextended(:name, 0)) *//*sqlite :name */;

-- name: append_audit
insert into audit (tenant, projects, n, at, by, action, subject, detail)
select :tenant, :projects, coalesce(max(n), 0) + 1, :at, :by, :action, :subject, :detail from audit where tenant = :tenant;

-- name: read_answer
select n, digest, record from answer
where tenant = :tenant and caller = :caller and once = :once and at > :after
order by n;

-- name: insert_answer
-- An expired answer is replaced. Nothing is stored beside what another request with the same key has stored.
insert into answer (tenant, caller, once, n, digest, record, at)
select :tenant, :caller, :once, :n, :digest, :record, :now
where not exists (select 1 from answer where tenant = :tenant and caller = :caller and once = :once
                  and at > :before and digest <> :digest)
on conflict (tenant, caller, once, n) do update set digest = :digest, record = :record, at = :now
where answer.at <= :before;

-- name: remove_answers
-- A call that has not finished keeps its effects, and continues after them.
update answer set record = :removed
where tenant = :tenant and exists (
  select 1 from answer as finished
  where finished.tenant = answer.tenant and finished.caller = answer.caller and finished.once = answer.once
    and finished.n = -1);

-- name: forget_answers
delete from answer where tenant = :tenant and at <= :before;

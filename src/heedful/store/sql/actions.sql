-- name: actions_worked
update action set worked = :now
where tenant = :tenant and project = :project and digest in (select value from json_each(:digests)) and worked < failed;

-- name: insert_action
insert into action (tenant, project, digest, reflection, source, record, failed, worked)
values (:tenant, :project, :digest, :reflection, :source, :record, :failed, :worked)
on conflict (tenant, project, digest, reflection, source) do update
set record = excluded.record, failed = excluded.failed, worked = excluded.worked;

-- name: failed_actions
select digest, reflection, source, record, failed from action
where tenant = :tenant and project = :project and digest in (select value from json_each(:digests)) and worked < failed
order by failed desc, reflection desc limit :limit;

-- name: lesson_and_rules
-- The lesson, or else the lesson that it became, and the rules of both; the newest rule is last.
with named (name) as (
  select kind || '/' || signature from reflection where id = :id
  union select k.parent from link k join reflection l on k.child = l.kind || '/' || l.signature
  where l.id = :id and k.tenant = :tenant and k.project = :project and k.relation = 'became'
)
select id, kind || '/' || signature in (select name from named) as own, text, state, trust, author from reflection
where tenant = :tenant and project = :project and state not in ('retired', 'superseded') and signature in (
  select substr(name, instr(name, '/') + 1) from named
  union select substr(k.child, length('strategy/') + 1) from link k
  where k.tenant = :tenant and k.project = :project and k.relation = 'strategy' and k.parent in (select name from named)
)
order by own, id;

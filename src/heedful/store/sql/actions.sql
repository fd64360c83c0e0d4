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
-- The newest rule is last.
select id, kind, text, state, trust, author from reflection
where tenant = :tenant and project = :project and state not in ('retired', 'superseded') and (
  id = :id or kind = 'strategy' and signature in (
    select substr(k.child, length('strategy/') + 1) from link k join reflection l on k.parent = l.kind || '/' || l.signature
    where l.id = :id and k.tenant = :tenant and k.project = :project and k.relation = 'strategy'
  )
)
order by id;

-- name: upsert_reflection
insert into reflection (tenant, project, kind, signature, pattern, error_type, text, tags, state, trust,
                    importance, source, pinned, first_seen, last_seen)
values (:tenant, :project, :kind, :signature, :pattern, :error_type, :text, :tags, :state, :trust,
        :importance, :source, :pinned, :now, :now)
on conflict (tenant, project, kind, signature) do update
set seen = seen + 1, last_seen = max(last_seen, excluded.last_seen),
    -- Only an operator or a measured outcome raises what is known already.
    state = case when excluded.trust not in ('operator', 'measured') then reflection.state
                 when reflection.state = 'quarantined' then excluded.state
                 when reflection.state = 'candidate' and excluded.state = 'verified' then 'verified'
                 else reflection.state end,
    trust = iif(reflection.trust not in ('operator', 'measured')
                and excluded.trust in ('operator', 'measured'), excluded.trust, reflection.trust),
    text = iif(reflection.trust not in ('operator', 'measured')
               and excluded.trust in ('operator', 'measured'), excluded.text, reflection.text),
    source = iif(reflection.trust not in ('operator', 'measured')
                 and excluded.trust in ('operator', 'measured'), excluded.source, reflection.source),
    pinned = max(reflection.pinned, excluded.pinned)
returning id, seen, text;

-- name: insert_occurrence
insert into occurrence (reflection, loop, text, source, at)
values (:reflection, :loop, :text, :source, :now);

-- name: insert_example
insert into example (reflection, scope, task, record, digest, state, trust, at, words)
values (:reflection, :scope, :task, :record, :digest, :state, :trust, :now, :words)
on conflict (reflection, digest) do update
set state = excluded.state, trust = excluded.trust, task = excluded.task, record = excluded.record, words = excluded.words
where example.state = 'quarantined' and excluded.state <> 'quarantined'
   or example.state = 'candidate' and excluded.state = 'verified'
   -- The row of the lesson itself, whose text was replaced by one of more trust.
   or example.task <> excluded.task;

-- name: top_reflections
select id, kind, signature, pattern, error_type, text, tags, state, trust, importance, seen, source, pinned, apart,
       useful, helped, hurt, first_seen, last_seen, last_shown, (select count(*) from example where reflection = reflection.id and digest <> 'lesson') as examples
from reflection where tenant = :tenant and project = :project
order by seen desc, last_seen desc, id limit :limit;

-- name: count_reflections
select coalesce(sum(lessons), 0) as n from tally where tenant = :tenant and project = :project;

-- name: clear_reflections
delete from reflection where tenant = :tenant and project = :project;

-- name: find_loop
select n, owner, epoch, lease from loop where tenant = :tenant and project = :project and id = :id;

-- name: insert_loop
insert into loop (tenant, project, id, task, goals, policy, owner, lease, created, updated)
values (:tenant, :project, :id, :task, :goals, :policy, :owner, :lease, :now, :now)
returning n;

-- name: take_over
update loop set epoch = epoch + 1, owner = :owner, lease = :lease, updated = :now where n = :n;

-- name: fence
update loop set owner = :owner, lease = :lease, updated = :now
where tenant = :tenant and project = :project and id = :id and epoch = :epoch
returning n;

-- name: beat
update loop set lease = :lease
where tenant = :tenant and project = :project and id = :id and epoch = :epoch
returning n;

-- name: read_loop
select n, id, task, goals, policy, extra, cancelled, epoch, created, updated
from loop where tenant = :tenant and project = :project and id = :id;

-- name: newest_loops
select n, id, task, goals, policy, extra, cancelled, epoch, created, updated
from loop
where tenant = :tenant and project = :project and substr(id, 1, length(:prefix)) = :prefix
order by created desc, n desc limit :limit;

-- name: read_attempts
select number, record, value from attempt where loop = :n order by number;

-- name: read_decisions
select attempt, record, created from decision where loop = :n order by seq;

-- name: read_overrides
select rule, by, why, decisions, used, until from override where loop = :n order by seq;

-- name: read_steps
select key, record from step where loop = :n;

-- name: end_loop
update loop set state = :state, lease = 0 where n = :n;

-- name: reopen_loop
update loop set state = 'open' where n = :n and state <> 'open';

-- name: end_lease
update loop set lease = 0 where n = :n;

-- name: set_extra
update loop set extra = :extra where n = :n;

-- name: set_head
update loop set goals = :goals, policy = :policy where n = :n;

-- name: set_cancelled
update loop set cancelled = :cancelled where n = :n;

-- name: find_attempt
select record, value from attempt where loop = :n and number = :number;

-- name: insert_attempt
insert into attempt (loop, number, record, value, created)
values (:n, :number, :record, :value, :now);

-- name: insert_decision
insert into decision (loop, seq, attempt, record, created)
select :n, coalesce(max(seq), 0) + 1, :attempt, :record, :now from decision where loop = :n;

-- name: insert_override
insert into override (loop, seq, rule, by, why, decisions, until, created)
select :n, coalesce(max(seq), 0) + 1, :rule, :by, :why, :decisions, :until, :now from override where loop = :n;

-- name: use_override
update override set used = used + 1
where loop = :n and used < decisions
  and seq = (select seq from override where loop = :n order by seq limit 1 offset :index)
returning used;

-- name: insert_step
insert into step (loop, key, record, created) values (:n, :key, :record, :now)
on conflict (loop, key) do nothing;

-- name: clear_steps
delete from step where loop = :n;

-- name: upsert_reflection
insert into reflection (tenant, project, kind, signature, pattern, error_type, text, tags, state, trust,
                    importance, first_seen, last_seen)
values (:tenant, :project, :kind, :signature, :pattern, :error_type, :text, :tags, :state, :trust,
        :importance, :now, :now)
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
               and excluded.trust in ('operator', 'measured'), excluded.text, reflection.text)
returning id, seen, text;

-- name: insert_occurrence
insert into occurrence (reflection, loop, text, at) values (:reflection, :loop, :text, :now);

-- name: insert_example
insert into example (reflection, scope, task, record, digest, state, at, words)
values (:reflection, :scope, :task, :record, :digest, :state, :now, :words)
on conflict (reflection, digest) do update
set state = excluded.state, task = excluded.task, record = excluded.record, words = excluded.words
where example.state = 'quarantined' and excluded.state <> 'quarantined'
   or example.state = 'candidate' and excluded.state = 'verified'
   -- The row of the lesson itself, whose text was replaced by one of more trust.
   or example.task <> excluded.task;

-- name: insert_vector
insert into vector (example, tenant, project, space, data)
select id, :tenant, :project, :space, :data from example
where reflection = :reflection and digest = :digest
on conflict (example) do update set space = excluded.space, data = excluded.data
where vector.space <> excluded.space or vector.data <> excluded.data;

-- name: insert_exposure
insert or ignore into exposure (loop, example, shown, at)
select :n, id, 1, :now from example where id = :example;

-- name: top_reflections
select id, kind, signature, pattern, error_type, text, tags, state, trust, importance, seen,
       first_seen, last_seen, (select count(*) from example where reflection = reflection.id and digest <> 'lesson') as examples
from reflection where tenant = :tenant and project = :project
order by seen desc, last_seen desc, id limit :limit;

-- name: seen
select id, kind, signature, pattern, error_type, text, tags, state, trust, importance, seen,
       first_seen, last_seen, (select count(*) from example where reflection = reflection.id and digest <> 'lesson') as examples
from reflection where tenant = :tenant and project = :project and signature = :signature
order by seen desc, id;

-- name: count_terms
select value as term, (select count(*) from example_fts where example_fts match :scope || value || '"') as n
from json_each(:terms);

-- name: count_recallable
select count(*) as n from example_fts where example_fts match :scope;

-- name: match_examples
select e.id, bm25(example_fts, 0, 1) as score
from example_fts join example e on e.id = example_fts.rowid join reflection l on l.id = e.reflection
where example_fts match :query and l.state in ('candidate', 'verified')
  and (:kind = '' or l.kind = :kind) and (:error_type = '' or l.error_type = :error_type)
  and l.importance >= :importance and e.at >= :since
  and (:tags = '[]' or :least <= (select count(distinct value) from json_each(l.tags)
                                  where value in (select value from json_each(:tags))))
order by score, e.id limit :limit;

-- name: scope_vectors
select v.example, v.data
from vector v join example e on e.id = v.example join reflection l on l.id = e.reflection
where v.tenant = :tenant and v.project = :project and v.space = :space
  and l.state in ('candidate', 'verified') and e.state in ('candidate', 'verified')
  and (:kind = '' or l.kind = :kind) and (:error_type = '' or l.error_type = :error_type)
  and l.importance >= :importance and e.at >= :since
  and (:tags = '[]' or :least <= (select count(distinct value) from json_each(l.tags)
                                  where value in (select value from json_each(:tags))))
order by v.example;

-- name: read_example
select e.id, e.reflection, e.record, e.words, e.at, l.kind, e.state, l.seen, l.importance,
       l.error_type, l.text, l.tags
from example e join reflection l on l.id = e.reflection
where e.id = :id and l.tenant = :tenant and l.project = :project
  and l.state in ('candidate', 'verified') and e.state in ('candidate', 'verified');

-- name: count_reflections
select count(*) as n from reflection where tenant = :tenant and project = :project;

-- name: clear_reflections
delete from reflection where tenant = :tenant and project = :project;

-- name: echoing
select n, id, task, goals, policy, extra, cancelled, epoch, created, updated
from loop where tenant = :tenant and project = :project and id <> :id
order by created desc, n desc limit :window;

-- Leases are set and compared by the clock of the store, which all drivers share.

-- name: insert_loop
-- Here and in `change_head`, `store.statements` puts the columns of the head, which are those of `store.head`.
insert into loop (tenant, project, id, {head}, via, state, owner, unanswered, lease, created, updated)
values (:tenant, :project, :id, {:head}, :via, :state, :owner, :unanswered, store_clock() + :lease, :now, :now)
on conflict do nothing returning n;

-- name: fence
-- Renew the lease, if the driver still has its epoch. Without a :state, it is kept.
update loop set owner = :owner, lease = store_clock() + :lease, updated = :now, unanswered = :unanswered, state = case when :state = '' then state else :state end
where tenant = :tenant and project = :project and id = :id and epoch = :epoch
returning n, exists (select 1 from step where step.loop = n) as steps;

-- name: change_head
-- A resumed loop keeps its task and context. Without a :model, it keeps the one that an attempt may have named.
update loop set {head = :head}, model = case when :model = '' then model else :model end where n = :n;

-- name: claim_loop
update loop set owner = :owner, lease = store_clock() + :lease, updated = :now, epoch = epoch + 1, unanswered = unanswered + 1 where n = :n;

-- name: renew_lease
update loop set lease = store_clock() + :lease
where tenant = :tenant and project = :project and id = :id and epoch = :epoch;

-- name: advance
-- Raise the epoch of a loop without a driver, if nobody has changed it since it was read. Without a :state, it is kept.
update loop set epoch = epoch + 1, owner = '', lease = 0, updated = :now, state = case when :state = '' then state else :state end
where tenant = :tenant and project = :project and n = :n and epoch = :epoch and updated = :seen;

-- name: read_loop
select *, lease - store_clock() as held_for from loop where tenant = :tenant and project = :project and id = :id;

-- name: read_parts
-- Everything that a loop has more than one of, in one statement. An override has its rule in `record`, its author in `text`.
with asked as (select n from loop where tenant = :tenant and project = :project and id = :id)
select 'attempt' as part, number as seq, record, case when :whole > 0 then text else '' end as text,
       case when :whole > 0 then value else '' end as value, number, 0 as used, 0 as rung, created as at
from attempt where loop = (select n from asked)
union all select 'decision', seq, record, '', '', attempt, 0, 0, created from decision where loop = (select n from asked)
union all select 'override', seq, rule, by, why, decisions, used, rung, until from override where loop = (select n from asked)
union all select 'step', 0, record, key, '', 0, 0, 0, 0.0 from step where loop = (select n from asked) and (:whole > 0 or key = 'failure')
order by 1, 2;

-- name: newest_loops
-- The loops older than :cursor whose id has the prefix, each with the size of its JSON.
-- They have the :state, which no record of them has to be read for; '' is any.
select id, length(task) + length(goals) + length(policy) + length(context) + length(briefing)
  + (select coalesce(sum(length(record)), 0) from attempt where loop = loop.n)
  + (select coalesce(sum(length(record)), 0) from decision where loop = loop.n) as size
from loop
where tenant = :tenant and project = :project and substr(id, 1, length(:prefix)) = :prefix
  and (:state = '' or state = :state)
  and (:cursor = '' or n < (select n from loop where tenant = :tenant and project = :project and id = :cursor))
order by n desc limit :limit;

-- name: needed_attempts
-- How many attempts the newest loops with the memory key had that passed.
select (select count(*) from attempt where loop = passed.n) as attempts
from loop as passed
where tenant = :tenant and project = :project and memory_key = :memory_key and state = 'passed' and id <> :id
order by n desc limit :window;

-- name: ids_of_loops
-- The newest loops whose id begins with :prefix, which none after :last does, without the stages of a run that does, too;
-- or else those whose id has a hyphen and the ending, as UUIDs have. Sorted, because few loops are in this part of the index.
select id from loop
where tenant = :tenant and project = :project and id between :prefix and :last
  and case when :ending = '' then run = '' or run not between :prefix and :last else id like '%-%' || :ending end
order by n + 0 desc limit :limit;

-- name: loops_of_stages
-- The loops of the stages of a run, oldest first: a stage has another one for each time that its input changed.
select id, stage from loop
where tenant = :tenant and project = :project and run = :run and id between :run || '/' and :run || '0'
order by n;

-- name: insert_attempt
insert into attempt (loop, number, record, text, value, via, created)
values (:loop, :number, :record, :text, :value, :via, :created) on conflict do nothing;

-- name: insert_step
insert into step (loop, key, record) values (:n, :key, :record) on conflict do nothing;

-- name: replace_step
insert into step (loop, key, record) values (:n, :key, :record) on conflict (loop, key) do update set record = excluded.record;

-- name: name_model
-- Unless somebody named one before.
update loop set model = :model where n = :n and model = '';

-- name: insert_decision
-- The next decision of a loop, about this attempt or about the newest one.
insert into decision (loop, seq, attempt, record, created)
select :n, coalesce(max(seq), 0) + 1,
       coalesce(cast(:attempt as bigint), (select coalesce(max(number), 0) from attempt where loop = :n)), :record, :now
from decision where loop = :n;

-- name: insert_override
insert into override (loop, seq, rule, by, why, decisions, until, rung)
select :n, coalesce(max(seq), 0) + 1, :rule, :by, :why, :decisions, :until, :rung from override where loop = :n;

-- name: use_override
-- Use up one decision of an override, if it has any left.
update override set used = used + 1
where loop = :n and used < decisions
  and seq = (select seq from override where loop = :n order by seq limit 1 offset :index);

-- name: loop_notes
select key, record, created as at from note
where tenant = :tenant and project = :project and name = '' and loop = :id
  and key between 'on ' || :id || '/' and 'on ' || :id || '0'
order by key;

-- name: noted_tags
-- The notes with this prefix about the newest attempts that have any.
select name, key, loop from note
where tenant = :tenant and project = :project and substr(key, 1, length(:prefix)) = :prefix and name in (
  select name from note where tenant = :tenant and project = :project and substr(key, 1, length(:prefix)) = :prefix
  group by name order by max(created) desc, name limit :window
);

-- name: recent_loops
-- The newest loops below one, perhaps some of them only, with the size of their records: that of each, and of all up to it.
select n, id, kind, state, memory_key, created, updated, extra, stops, failure, size, sum(size) over (order by n desc) as total
from (
  select n, id, kind, state, memory_key, created, updated, extra,
         (select coalesce(sum(length(record)), 0) from attempt where loop = loop.n) as size,
         case when state = 'stopped' then (
           select /*sqlite json_extract(record, '$.stopped_by') *//*postgres record::json ->> 'stopped_by' */
           from decision where loop = loop.n order by seq desc limit 1) end as stops,
         case when state = 'open' then (select record from step where loop = loop.n and key = 'failure') end as failure
  from loop where tenant = :tenant and project = :project and kind <> 'run' and n < :before and n >= :least
    and (:numbers = '' or n in (select atom from json_each(case :numbers when '' then '[]' else :numbers end)))
  order by n desc limit :limit
) as loop order by n desc;

-- name: attempts_of_loops
select loop.n, attempt.record from loop join attempt on attempt.loop = loop.n
where loop.tenant = :tenant and loop.project = :project and loop.n in (select atom from json_each(:numbers))
order by loop.n, attempt.number;

-- name: loops_through_key
-- The loops that a key began or reported to, with the first attempt to remove, and their last one.
select n, id, case when via = :source then 1
  else (select min(number) from attempt where loop = n and via = :source) end as first,
  coalesce((select max(number) from attempt where loop = n), 0) as last
from loop where tenant = :tenant and project = :project and (
  via = :source or 0 < (select count(*) from attempt where loop = n and via = :source));

-- name: practice_tasks
-- The tasks of a memory key whose loops ended without passing and that no later loop of a user solved, oldest first. A
-- task that was tried too often rests until there is an example newer than it saw.
with ended as (
  select n, task, state, max(case when state = 'passed' then n else 0 end) over (partition by task) as solved
  from loop where tenant = :tenant and project = :project and memory_key = :memory_key and kind = 'loop' and practises = ''
    and cancelled = '' and state in ('stopped', 'passed')
)
select l.id, coalesce(p.loop, '') as loop, coalesce(p.state, '') as state, coalesce(p.tries, 0) as tries,
       case when p.tries >= :tries and p.example >= :example then 1 else 0 end as rests
from (select min(n) as n from ended where state = 'stopped' and n > solved group by task) oldest
join loop l on l.n = oldest.n
left join practice p on p.tenant = l.tenant and p.project = l.project and p.task = l.id
where coalesce(p.state, '') <> 'passed' order by l.n limit :limit;

-- name: unsettled_practices
-- The practices whose loop has ended, but not the work after it.
select p.task as id, p.loop, p.state, p.tries, 0 as rests from practice p
join loop l on l.tenant = p.tenant and l.project = p.project and l.id = p.loop
where p.tenant = :tenant and p.project = :project and p.memory_key = :memory_key
  and (p.state = 'open' and l.state <> 'open' or p.untold)
order by l.n limit :limit;

-- name: read_practice
select p.loop, p.state, p.tries, p.owner, p.lease - store_clock() as held_for,
       coalesce(l.ladder, '') as ladder, coalesce(l.owner, '') as driver, coalesce(l.lease, 0) - store_clock() as driven_for
from practice p
left join loop l on l.tenant = p.tenant and l.project = p.project and l.id = p.loop
where p.tenant = :tenant and p.project = :project and p.task = :task;

-- name: claim_practice
insert into practice (tenant, project, task, memory_key, loop, tries, untold, owner, lease)
values (:tenant, :project, :task, :memory_key, :loop, :tries, :untold, :owner, store_clock() + :lease)
on conflict (tenant, project, task) do update set
  loop = excluded.loop, state = case when :begins = 1 then 'open' else practice.state end, tries = excluded.tries,
  untold = practice.untold or excluded.untold, owner = excluded.owner, lease = excluded.lease;

-- name: newest_accepted
-- The newest example of a memory key that a loop may be shown.
select coalesce(max(id), 0) as id from example
where scope = :scope and memory_key = :memory_key and indexed and not record like '%"accepted": ""%';

-- name: count_asked
select count(*) as loops from loop
where tenant = :tenant and project = :project and memory_key = :memory_key and kind = 'loop' and practises = '';

-- name: count_learnt
select count(*) as examples from origin where scope = :scope and source = :source;

-- name: most_calls
-- The most calls of an attempt of a loop.
select coalesce(max(cast(/*sqlite json_extract(record, '$.usage.calls') *//*postgres record::json -> 'usage' ->> 'calls' */ as bigint)), 1) as calls
from attempt where loop in (select n from loop where tenant = :tenant and project = :project and id in (:task, :loop));

-- name: reserve_practice
-- Count the calls of an attempt before they are made, unless they or another limit of the practice are reached.
insert into spending (tenant, project, rung, day, calls)
select :tenant, :project, :rung, :day, cast(:reserved as bigint) where cast(:reserved as bigint) <= :calls
  and cast(:tokens as bigint) > 0 and cast(:cost as double precision) > 0
on conflict (tenant, project, rung, day) do update set calls = spending.calls + :reserved
where spending.calls + :reserved <= :calls and spending.tokens < :tokens and spending.cost < :cost
returning calls;

-- name: practices_of
select id from loop where tenant = :tenant and project = :project and practises = :id and practises <> '' order by n;

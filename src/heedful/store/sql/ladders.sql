-- name: reserve_call
-- Count a call of a rung before it is made, unless a limit of the day is reached.
insert into spending (tenant, project, rung, day, calls)
values (:tenant, :project, :rung, :day, 1)
on conflict (tenant, project, rung, day) do update set calls = spending.calls + 1
where spending.calls < :calls and spending.tokens < :tokens and spending.cost < :cost
returning calls;

-- name: settle_call
-- Add what an attempt has spent besides the call that was counted before it.
insert into spending (tenant, project, rung, day, calls, tokens, cost)
values (:tenant, :project, :rung, :day, :calls, :tokens, :cost)
on conflict (tenant, project, rung, day) do update set
  calls = spending.calls + :calls, tokens = spending.tokens + :tokens, cost = spending.cost + :cost;

-- name: record_climb
-- A loop that ends again, after an override, has more attempts; the record stays.
insert into climb (tenant, project, memory_key, n, loop, names, attempts, record, at)
select :tenant, :project, :memory_key, 1 + coalesce(max(n), 0), :loop, :names, :attempts, :record, :at
from climb where tenant = :tenant and project = :project and memory_key = :memory_key
on conflict (tenant, project, loop) do update set names = excluded.names, attempts = excluded.attempts;

-- name: newest_climbs
select loop, names, attempts, at from climb
where tenant = :tenant and project = :project and memory_key = :memory_key
order by n desc limit :limit;

-- name: last_climbs
-- Of all memory keys together.
select loop, names, attempts, at from climb
where tenant = :tenant and project = :project
order by at desc limit :limit;

-- name: climb_record
select record from climb
where tenant = :tenant and project = :project and memory_key = :memory_key
order by n desc limit 1;

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
-- A loop that ends again, after an override, has more attempts.
insert into climb (tenant, project, loop, record, at) values (:tenant, :project, :id, :record, :now)
on conflict (tenant, project, loop) do update set record = excluded.record;

-- name: insert_outcome
-- The outcome gets the next number of its scope. A key with :most outcomes in a day gets none; those in the future, of a
-- wrong clock, do not count. A loop without exposures has no outcome.
insert into outcome (tenant, project, loop, n, right_at_once, calls, signatures, model, rung, climbed, cost, via, at)
select :tenant, :project, :loop,
       case when :via = '' or :most > (
         select count(*) from outcome where tenant = :tenant and via = :via and at > :now - :day and at < :now + :day and n is not null
       ) then (select coalesce(max(n), 0) + 1 from outcome where tenant = :tenant and project = :project) end,
       :right_at_once, :calls, :signatures, :model, :rung, :climbed, :cost, :via, :now
where exists (select 1 from exposure where tenant = :tenant and project = :project and loop = :loop)
on conflict do nothing
returning n;

-- name: count_outcome
-- Count the outcome for each lesson that the loop was shown: it helped if the first attempt passed, and hurt if its error
-- came again.
update lesson
set helped = helped + case when :right_at_once then :times else 0 end,
    hurt = hurt + case when instr(:signatures, '"' || lesson.signature || '"') > 0 then :times else 0 end
from exposure x
where x.tenant = :tenant and x.project = :project and x.loop = :loop and x.shown and x.at > lesson.judged_from
  and lesson.tenant = :tenant and lesson.project = :project and lesson.kind = x.kind and lesson.signature = x.signature;

-- name: count_outcomes
-- The newest number in the scope, and the number of this loop; 0 if there is none. The newest verdict on memory as a whole
-- is '' if there is none, or if it was withdrawn because later loops leave it open.
select coalesce((select max(n) from outcome where tenant = :tenant and project = :project), 0) as ended,
       coalesce((select n from outcome where tenant = :tenant and project = :project and loop = :loop), 0) as number,
       coalesce((
         select nullif(action, 'insufficient data') from ruling
         where tenant = :tenant and project = :project and subject = 'memory as a whole' and by = 'proof'
           and action in ('helps', 'hurts', 'no difference shown', 'insufficient data')
         order by id desc limit 1
       ), '') as verdict;

-- name: keep_rules
-- A loop of the key has ended. It was shown a rule, or the rule rests and waits for its turn.
update cause set quiet = quiet + 1
where tenant = :tenant and project = :project and memory_key = :memory_key
  and (quiet >= :quiet or exists (
    select 1 from exposure x
    where x.tenant = :tenant and x.project = :project and x.loop = :loop
      and x.kind = cause.kind and x.signature = cause.signature and x.shown));

-- name: recent_since
-- When the last lesson was taken out of prompts or got other words, or when the newest :loops loops began to end.
select max(
  coalesce((
    select max(at) from ruling
    where tenant = :tenant and project = :project and action in ('retire', 'withhold', 'edit', 'revoke')
  ), 0.0),
  coalesce((
    select at from outcome where tenant = :tenant and project = :project and n = (
      select max(n) from outcome where tenant = :tenant and project = :project
    ) - :loops
  ), 0.0)
) as at;

-- name: read_evidence
with given_up as materialized (
  -- A key ran these loops and left them. With the loops that it ended on the same day, at most `most` count. A loop
  -- without an attempt does not count, because a key can recall for a loop that it never runs.
  select loop from (
    select loop, most, row_number() over (partition by via, round(at / :day) order by most > 0, at, loop) as place from (
      select loop, via, at, 0 as most from outcome where tenant = :tenant and project = :project and via > '' and n > 0
      union all
      select x.loop, x.via, min(x.at), max(x.most) from exposure x left join outcome o using (tenant, project, loop)
      cross join loop l cross join attempt a
      where x.tenant = :tenant and x.project = :project and x.via <> '' and x.share > 0 and o.loop is null
        and x.at + :day < :now and l.tenant = :tenant and l.project = :project and l.id = x.loop and a.loop = l.n and a.number = 1
      group by x.loop, x.via) as loops
  ) as places where place <= most
), opportunity as not materialized (
  select x.kind || '/' || x.signature as lesson, x.loop, x.share, x.shown, coalesce(x.at <= r.judged_from, false) as before,
         x.among > 1 and x.together as shared, x.among > 1 and not x.together and x.share > 0 as apart,
         -- A loop that did not end within a day counts as given up.
         case when o.at <= x.at + :day then o.right_at_once else false end as right_at_once,
         case when o.at <= x.at + :day and instr(o.signatures, '"' || x.signature || '"') = 0 then 0 else 1 end as recurred,
         case when o.at <= x.at + :day then min(o.calls, :most) else :most end as calls,
         -- A loop with a ladder that was given up counts as one that climbed; what it cost is unknown.
         case when o.at <= x.at + :day then o.climbed else (
           select true from loop l where l.tenant = :tenant and l.project = :project and l.id = x.loop and l.ladder <> ''
         ) end as climbed,
         case when o.at <= x.at + :day then o.cost end as cost,
         -- Without an outcome, it is the model that the stored loop names.
         coalesce(o.model, (
           select l.model from loop l where l.tenant = :tenant and l.project = :project and l.id = x.loop
         ), '') as model
  from exposure x left join outcome o using (tenant, project, loop)
  left join lesson r using (tenant, project, kind, signature)
  -- A loop that began on a higher rung says nothing about the first one.
  where x.tenant = :tenant and x.project = :project and x.at >= :since and (o.n is not null and o.rung = 1 or o.loop is null
    and x.share > 0 and x.at + :day < :now and (x.via = '' or x.loop in (select loop from given_up)))
)
select model, lesson, share, shown, right_at_once, recurred, calls, climbed, count(*) as n, 0 as priced, 0.0 as cost
from opportunity where not shared and not before
group by 1, 2, 3, 4, 5, 6, 7, 8
union all
select model, null, share, shown, right_at_once, recurred, calls, climbed, count(*), count(cost), coalesce(sum(cost), 0.0)
from (
  -- One row for each loop, because its lessons were shown or withheld together.
  select model, share, shown, right_at_once, max(recurred) as recurred, calls, climbed, cost
  from opportunity where not apart group by loop, model, share, shown, right_at_once, calls, climbed, cost
) as pooled group by 1, 3, 4, 5, 6, 7, 8;

-- name: count_pending
-- The loops with exposures that may still end, for each model.
select model, count(distinct loop) as n from (
  select x.loop, coalesce(o.model, (
      select l.model from loop l where l.tenant = :tenant and l.project = :project and l.id = x.loop
    ), '') as model
  from exposure x left join outcome o using (tenant, project, loop)
  where x.tenant = :tenant and x.project = :project and o.loop is null and x.at + :day >= :now
) as pending group by model;

-- name: newest_rulings
-- Without dreams, which have a log of their own.
select action, subject, by, why, record, at from ruling
where tenant = :tenant and project = :project and action <> 'dream'
order by at desc, id desc limit :limit;

-- name: reset_useful
update lesson set useful = 1 where tenant = :tenant and project = :project and useful <> 1;

-- name: set_useful
-- A proof never ranks down what an operator wrote or pinned.
update lesson set useful = case when pinned or trust = 'user' then max(1, :useful) else :useful end
where tenant = :tenant and project = :project and kind = :kind and signature = :signature;

-- name: set_unfit
-- What an operator wrote or pinned is shown to all models.
update lesson set unfit_for = :unfit_for
where tenant = :tenant and project = :project and kind = :kind and signature = :signature
  and (:unfit_for = '[]' or not pinned and trust <> 'user')
returning id;

-- name: retire
-- A person decides about what an operator wrote or pinned: by unpinning it.
update lesson set state = case when pinned or trust = 'user' and not exists (
  select 1 from ruling
  where tenant = :tenant and project = :project and subject = :kind || '/' || :signature and action = 'unpin'
) then state else 'retired' end
where tenant = :tenant and project = :project and kind = :kind and signature = :signature
  and state in ('unverified', 'verified')
returning text, state;

-- name: restore
-- Only what a proof retired last, and nobody restored since, or what it keeps from a model. Its proof begins again.
update lesson
set useful = 1, unfit_for = '[]', judged_from = max(:now, last_shown), state = case when state <> 'retired' then state
    when exists (select 1 from example e where e.lesson_id = lesson.id and e.state = 'verified')
    then 'verified' else 'unverified' end
where tenant = :tenant and project = :project and id = :id and (unfit_for <> '[]' or state = 'retired' and 'retire' = (
  select action from ruling
  where tenant = :tenant and project = :project and subject = lesson.kind || '/' || lesson.signature
    and action in ('retire', 'restore')
  order by id desc limit 1
))
returning kind, signature;

-- name: tally_shown
-- How the loops and sessions ended that were shown the present words of lessons; of all lessons if `names` is [].
select x.kind || '/' || x.signature as lesson, count(*) as shown,
       sum(case when o.n is not null and o.rung = 1 and o.right_at_once then 1 else 0 end) as right,
       sum(case when o.n is not null and o.rung = 1 and not o.right_at_once
                and instr(o.signatures, '"' || x.signature || '"') > 0 then 1 else 0 end) as again
from exposure x left join outcome o using (tenant, project, loop)
join lesson r on r.tenant = x.tenant and r.project = x.project and r.kind = x.kind and r.signature = x.signature
where x.tenant = :tenant and x.project = :project and x.shown and x.at > r.judged_from
  and (:names = '[]' or x.kind || '/' || x.signature in (select value from json_each(:names)))
group by 1;

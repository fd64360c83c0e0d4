-- Statements that only PostgreSQL understands.

-- name: scopes
select tenant, project from scopes_there(:having);

-- name: count_terms
select term, n from count_words(:mark, :terms);

-- name: match_terms
select term, ids from match_words(:mark, :terms, :limit);

-- name: nearest
-- Compare every vector of the scope: an approximate index would filter too late and return too few. `asked` is
-- materialized, so that a generic plan reads it once. Vectors of other lengths are skipped. `among` limits the examples.
with asked as materialized (select cast(cast(:near as text) as halfvec) as near),
among as materialized (
  select example, case when vector_dims(near) = :width then near <#> (select near from asked) end as far from vector
  where tenant = :tenant and project = :project and space = :space and indexed
    and (:among = '' or example in (select atom from json_each(case :among when '' then '[]' else :among end)))
)
select example from among where far is not null order by far, example limit :limit;

-- name: failed_jobs
-- The jobs of a tenant that were given up, newest first. The worker has added to the arguments of a job why and when.
select id, args ->> 'project' as project, replace(task_name, 'heedful.', '') as task,
  cast(args -> 'arguments' as text) as arguments, coalesce(args -> 'failed' ->> 'error', '') as error,
  coalesce(cast(args -> 'failed' ->> 'at' as float8), 0) as at
from procrastinate_jobs where status = 'failed' and args ->> 'tenant' = :tenant order by id desc limit :limit;

-- name: end_failed_job
-- Put a failed job back on the queue, or remove it without :again or if an equal job waits there. The episode on which it
-- should reflect waits again, or counts as reflected on and keeps its error.
with job as (
  select id, args, task_name, :again and not exists (
    select 1 from procrastinate_jobs waiting where waiting.queueing_lock = failed.queueing_lock and waiting.status = 'todo'
  ) as runs
  from procrastinate_jobs failed where id = :id and status = 'failed' and args ->> 'tenant' = :tenant
), queued as (
  update procrastinate_jobs set status = 'todo', attempts = 0, scheduled_at = null, args = args - 'failed'
  where id in (select id from job where runs)
), removed as (
  delete from procrastinate_jobs where id in (select id from job where not runs)
)
update episode set state = case when :again then 'waiting' else 'reflected' end,
  error = case when :again then '' else error end, taken = 0
from job where job.task_name = 'heedful.reflect' and tenant = :tenant and project = job.args ->> 'project'
  and digest = job.args -> 'arguments' ->> 'digest' and state = 'failed';

-- The queue of procrastinate. Every migration applies this, because a new version of procrastinate may bring new objects.
--
-- A service sees the jobs of the tenant that it has set. A worker, which has set `heedful.worker`, sees the jobs of all
-- tenants. The functions that queue a job, or queue it again, run as the owner: under row-level security PostgreSQL does
-- not say which key exists already, but procrastinate must know. The others, which take, end or cancel jobs, run as who
-- calls them.
do $$
declare
  one text;
  rights text;
begin
  for one in
    select oid::regclass from pg_class
    where relnamespace = current_schema()::regnamespace and relkind = 'r' and relname like 'procrastinate%'
  loop
    execute format('alter table %s enable row level security', one);
    execute format('drop policy if exists of_worker on %s', one);
    execute format('create policy of_worker on %s using (current_setting(''heedful.worker'', true) = ''on'')', one);
  end loop;
  for one, rights in
    select oid::regprocedure, case when proname ~ '_(defer|retry)_' then 'definer' else 'invoker' end
    from pg_proc
    where pronamespace = current_schema()::regnamespace and proname like 'procrastinate%' and prorettype <> 'trigger'::regtype
  loop
    execute format('alter function %s security %s set search_path = heedful, pg_temp', one, rights);
  end loop;
end $$;
drop policy if exists of_tenant on procrastinate_jobs;
create policy of_tenant on procrastinate_jobs using (args ->> 'tenant' = (select current_setting('heedful.tenant', true)));
drop policy if exists of_tenant on procrastinate_events;
create policy of_tenant on procrastinate_events using (job_id in (select id from procrastinate_jobs));

-- What runs as the owner for another role changes no job that this role does not see.
create or replace function own_job() returns trigger language plpgsql set search_path = heedful, pg_temp as $$
begin
  if current_user <> session_user and coalesce(current_setting('heedful.worker', true), '') <> 'on'
    and old.args ->> 'tenant' is distinct from current_setting('heedful.tenant', true) then
    return null;
  end if;
  return new;
end $$;
create or replace trigger own_job before update on procrastinate_jobs for each row execute function own_job();

-- The number of jobs of all tenants by queue and state, and the age of the oldest of them in seconds: since it could
-- have begun, for a job that waits.
create or replace function queue_depth(silent double precision)
returns table (queue text, state text, number bigint, oldest double precision)
language sql stable security definer set search_path = heedful, pg_temp as $$
  with jobs as (
    select j.queue_name as queue, case
        when j.status = 'todo' then 'waiting' when j.status <> 'doing' then 'failed'
        when w.last_heartbeat >= now() - make_interval(secs => silent) then 'running'
        else 'stalled' end as state,
      greatest(j.scheduled_at, (select max(e.at) from procrastinate_events e where e.job_id = j.id)) as at
    from procrastinate_jobs j left join procrastinate_workers w on w.id = j.worker_id
    where j.status in ('todo', 'doing', 'failed')
  )
  select queue, state, count(*), greatest(0, extract(epoch from now() - min(at)))::float8
  from jobs group by queue, state order by queue, state
$$;

-- The number of workers that have sent a heartbeat in the last `silent` seconds.
create or replace function live_workers(silent double precision) returns bigint
language sql stable security definer set search_path = heedful, pg_temp as $$
  select count(*) from procrastinate_workers where last_heartbeat >= now() - make_interval(secs => silent)
$$;

-- The queue of procrastinate. Every migration applies this, because a new version of procrastinate may bring new objects.
--
-- A service sees and writes the jobs of the tenant that it has set. A worker, which has set `heedful.worker`, sees and
-- writes the jobs of all tenants.

-- Under row-level security PostgreSQL does not say which key exists already, but procrastinate must know. Its functions
-- therefore run as the owner, and a trigger checks the tenant of what they write.
do $$
declare
  one text;
begin
  for one in
    select oid::regclass from pg_class
    where relnamespace = current_schema()::regnamespace and relkind = 'r' and relname like 'procrastinate%'
  loop
    execute format('alter table %s enable row level security', one);
    execute format('drop policy if exists of_worker on %s', one);
    execute format('create policy of_worker on %s using (current_setting(''heedful.worker'', true) = ''on'')', one);
  end loop;
  for one in
    select oid::regprocedure from pg_proc
    where pronamespace = current_schema()::regnamespace and proname like 'procrastinate%' and prorettype <> 'trigger'::regtype
  loop
    execute format('alter function %s security definer set search_path = heedful, pg_temp', one);
  end loop;
end $$;
drop policy if exists of_tenant on procrastinate_jobs;
create policy of_tenant on procrastinate_jobs using (args ->> 'tenant' = (select current_setting('heedful.tenant', true)));
drop policy if exists of_tenant on procrastinate_events;
create policy of_tenant on procrastinate_events using (job_id in (select id from procrastinate_jobs));

create or replace function check_job() returns trigger language plpgsql as $$
declare
  mine jsonb := to_jsonb(current_setting('heedful.tenant', true));
begin
  if current_setting('heedful.worker', true) is distinct from 'on'
     and (tg_op <> 'INSERT' and old.args -> 'tenant' is distinct from mine
          or tg_op <> 'DELETE' and new.args -> 'tenant' is distinct from mine) then
    raise insufficient_privilege using message = 'the job belongs to another tenant';
  end if;
  return coalesce(new, old);
end $$;
create or replace trigger job_checked before insert or update or delete on procrastinate_jobs
for each row execute function check_job();

-- The number of jobs of all tenants by queue and state, and the age of the oldest of them in seconds.
create or replace function queue_depth(silent double precision)
returns table (queue text, state text, number bigint, oldest double precision)
language sql stable security definer set search_path = heedful, pg_temp as $$
  with jobs as (
    select j.queue_name as queue, case
        when j.status = 'todo' then 'waiting' when j.status <> 'doing' then 'failed'
        when w.last_heartbeat >= now() - make_interval(secs => silent) then 'running'
        else 'stalled' end as state,
      (select max(e.at) from procrastinate_events e where e.job_id = j.id) as at
    from procrastinate_jobs j left join procrastinate_workers w on w.id = j.worker_id
    where j.status in ('todo', 'doing', 'failed')
  )
  select queue, state, count(*), greatest(0, extract(epoch from now() - min(at)))::float8
  from jobs group by queue, state order by queue, state
$$;

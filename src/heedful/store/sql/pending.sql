-- name: read_trace
select state, spans, bytes from trace where tenant = :tenant and project = :project and id = :trace;

-- name: count_traces
select count(*) as traces, coalesce(sum(bytes), 0) as bytes, coalesce(min(last), 0) as oldest
from trace where tenant = :tenant and project = :project and state = 'open';

-- name: insert_span
insert into span (tenant, project, trace, id, parent, root, record)
values (:tenant, :project, :trace, :id, :parent, :root, :record)
on conflict (tenant, project, trace, id) do nothing;

-- name: upsert_trace
insert into trace (tenant, project, id, trust, spans, bytes, rooted, last)
values (:tenant, :project, :trace, :trust, :spans, :bytes, :root, :now)
on conflict (tenant, project, id) do update
set trust = case when trace.trust = excluded.trust then trace.trust else 'external' end,
    spans = trace.spans + excluded.spans, bytes = trace.bytes + excluded.bytes,
    rooted = trace.rooted or excluded.rooted, last = excluded.last;

-- name: ended_traces
-- Without a root a span whose parent is in another process stands for it, after a longer time.
select t.id, t.spans, t.trust, t.last from trace t
where t.tenant = :tenant and t.project = :project and t.state = 'open' and t.last <= :settled and case
  when t.rooted then t.last <= :missing or not exists (
    select 1 from span s
    where s.tenant = :tenant and s.project = :project and s.trace = t.id and s.parent <> '' and not exists (
      select 1 from span p
      where p.tenant = :tenant and p.project = :project and p.trace = t.id and p.id = s.parent
    )
  )
  else t.last <= :elsewhere and exists (
    select 1 from span s where s.tenant = :tenant and s.project = :project and s.trace = t.id and s.root
  )
end
order by t.last, t.id limit 100;

-- name: read_spans
select trace, id, parent, root, record from span
where tenant = :tenant and project = :project and trace = :trace order by n;

-- name: finish_trace
update trace set state = 'done', bytes = 0
where tenant = :tenant and project = :project and id = :trace and state = 'open' and spans = :spans
returning id;

-- name: give_up_traces
update trace set state = 'done', bytes = 0
where tenant = :tenant and project = :project and state = 'open' and not rooted and last < :before
returning id;

-- name: delete_spans
delete from span where tenant = :tenant and project = :project and trace = :trace;

-- name: forget_traces
delete from trace where tenant = :tenant and project = :project and state = 'done' and last < :known;

-- name: clear_spans
delete from span where tenant = :tenant and project = :project;

-- name: clear_traces
delete from trace where tenant = :tenant and project = :project;

-- name: place
insert into vector (example, tenant, project, space, data)
select e.id, :tenant, :project, :space, :data from example e join reflection l on l.id = e.reflection
where e.id = :id and e.task = :task and l.tenant = :tenant and l.project = :project
on conflict (example) do update set space = excluded.space, data = excluded.data;

-- name: import_vector
insert into vector (example, tenant, project, space, data, near)
values (:example, :tenant, :project, :space, :data, cast(cast(:near as text) as halfvec))
on conflict do nothing;

-- name: next_gone
select nextval(pg_get_serial_sequence('example', 'id')) as id;

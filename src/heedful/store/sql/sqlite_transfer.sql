-- name: import_vector
insert or ignore into vector (example, tenant, project, space, data)
values (:example, :tenant, :project, :space, :data);

-- name: next_gone
update gone set example = 1 + max(example, (select coalesce(max(id), 0) from example)) returning example as id;

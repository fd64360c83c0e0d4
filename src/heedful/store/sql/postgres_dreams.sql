-- name: copy_example
insert into example (reflection, scope, task, record, digest, state, trust, lesson, at, words)
select :successor, scope, task, record, digest, state, trust, lesson, at, words from example where id = :example
returning id;

-- name: copy_vector
insert into vector (example, tenant, project, space, data, near)
select :copy, tenant, project, space, data, near from vector where example = :example;

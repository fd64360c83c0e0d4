-- name: copy_example
insert into example (id, reflection, scope, task, record, digest, state, trust, lesson, at, words)
select 1 + max((select example from gone), (select coalesce(max(id), 0) from example)),
       :successor, scope, task, record, digest, state, trust, lesson, at, words
from example where id = :example
returning id;

-- name: copy_vector
insert into vector (example, tenant, project, space, data)
select :copy, tenant, project, space, data from vector where example = :example;

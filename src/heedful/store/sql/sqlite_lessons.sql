-- name: insert_example
insert into example (id, reflection, scope, task, record, digest, state, trust, lesson, at, words)
values (1 + max((select example from gone), (select coalesce(max(id), 0) from example)),
        :reflection, :scope, :task, :record, :digest, :state, :trust, :lesson, :now, :words)
on conflict (reflection, digest) do update
set state = excluded.state, trust = excluded.trust, lesson = excluded.lesson,
    task = excluded.task, record = excluded.record, words = excluded.words
where example.trust not in ('operator', 'measured') and excluded.trust in ('operator', 'measured')
returning id;

-- name: insert_example
insert into example (reflection, scope, task, record, digest, state, trust, lesson, at, words)
values (:reflection, :scope, :task, :record, :digest, :state, :trust, :lesson, :now, :words)
on conflict (reflection, digest) do update
set state = excluded.state, trust = excluded.trust, lesson = excluded.lesson,
    task = excluded.task, record = excluded.record, words = excluded.words
where example.trust not in ('operator', 'measured') and excluded.trust in ('operator', 'measured')
returning id;

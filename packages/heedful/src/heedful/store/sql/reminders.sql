-- name: open_reminders
-- The reminders of a session without an outcome, each with the mistake of its lesson.
select r.subject, r.at, l.mistake from reminder r left join lesson l
on l.tenant = r.tenant and l.project = r.project and l.kind = substr(r.subject, 1, instr(r.subject, '/') - 1)
  and l.signature = substr(r.subject, instr(r.subject, '/') + 1)
where r.tenant = :tenant and r.project = :project and r.session = :session and not r.settled;

-- name: told_lessons
-- How the lessons with these ids are known, and who taught them.
select id, kind, signature, source, seen, trust, released_by, author from lesson
where tenant = :tenant and project = :project and id in (select cast(value as bigint) from json_each(:ids));

-- name: count_reminders
select coalesce(sum(case when told then 1 else 0 end), 0) as told,
       coalesce(sum(case when told and not repeated then 1 else 0 end), 0) as kept,
       coalesce(sum(case when told and repeated then 1 else 0 end), 0) as repeated,
       coalesce(sum(case when not told and repeated is not null then 1 else 0 end), 0) as withheld,
       coalesce(sum(case when not told and repeated then 1 else 0 end), 0) as withheld_repeated,
       cast(coalesce(sum(calls), 0) as bigint) as calls_lost
from reminder where tenant = :tenant and project = :project and settled;

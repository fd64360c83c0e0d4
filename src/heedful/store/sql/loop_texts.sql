-- name: loops_without_text
-- The loops that changed since their text was written, or that have none, last changed first, by the index loop_updated;
-- no runs of pipelines.
select n from loop
where tenant = :tenant and project = :project and updated >= :since and kind <> 'run'
  and not exists (select 1 from loop_text where loop_text.loop = loop.n and loop_text.updated = loop.updated)
order by updated desc limit :limit;

-- name: tasks_of_loops
select n, id, updated, substr(task, 1, cast(:chars as integer)) as task from loop
where tenant = :tenant and project = :project and n in (select atom from json_each(:loops))
order by n desc;

-- name: outputs_of_loops
-- The newest attempts of each loop; long records are left out.
select loop.n, substr(attempt.value, 1, cast(:chars as integer)) as value,
       case when length(attempt.record) <= :record_chars then /*sqlite json_extract(attempt.record, '$.evaluation.findings') *//*postgres attempt.record::json -> 'evaluation' ->> 'findings' */ end as findings
from loop join attempt on attempt.loop = loop.n
where loop.tenant = :tenant and loop.project = :project and loop.n in (select atom from json_each(:loops))
  and attempt.number > (select max(number) from attempt as newest where newest.loop = loop.n) - :attempts
order by loop.n desc, attempt.number desc;

-- name: texts_that_match
-- Look at the newest texts: how many, the oldest one, and the loops of those that match.
select count(*) as looked_at, coalesce(min(n), 0) as oldest,
       coalesce(group_concat(cast(n as text), ',') filter (where matches), '') as matches
from (
  select loop as n, instr(text, :id) > 0 or instr(text, :text) > 0 as matches
  from loop_text where tenant = :tenant and project = :project and loop < :before
  order by loop desc limit :limit
) as newest;

-- name: loops_there
select n from loop where tenant = :tenant and project = :project and n in (select atom from json_each(:loops));

-- name: delete_texts
delete from loop_text where tenant = :tenant and project = :project and loop in (select atom from json_each(:loops));

-- name: newest_loop_numbers
-- No runs of pipelines.
select n from loop where tenant = :tenant and project = :project and kind <> 'run' and n < :before
order by n desc limit :limit;

-- name: tasks_of_loops
select n, id, substr(task, 1, cast(:chars as integer)) as task from loop
where tenant = :tenant and project = :project and n in (select atom from json_each(:loops))
order by n desc;

-- name: outputs_of_loops
-- The newest attempts of each loop; long records are left out.
select loop.n, substr(attempt.value, 1, cast(:chars as integer)) as value,
       case when length(attempt.record) <= :chars then /*sqlite json_extract(attempt.record, '$.evaluation.findings') *//*postgres attempt.record::json -> 'evaluation' ->> 'findings' */ end as findings
from loop join attempt on attempt.loop = loop.n
where loop.tenant = :tenant and loop.project = :project and loop.n in (select atom from json_each(:loops))
  and attempt.number > (select max(number) from attempt as newest where newest.loop = loop.n) - :attempts
order by loop.n desc, attempt.number desc;

-- Statements that only SQLite understands.

-- name: scopes
select tenant, project from tally where :having = 'lessons' and lessons > 0
union select tenant, project from loop where :having = 'loops'
union select tenant, project from episode where :having = 'work' and state <> 'reflected'
union select tenant, project from trace where :having = 'work' and state = 'open';

-- name: count_terms
select value as term,
       (select count(*) from example_fts where example_fts match '"' || :mark || value || '"') as n
from json_each(:terms);

-- name: match_terms
-- Newest first, as one list: it takes half the time of one row for each id.
select value as term, (
  select json_group_array(rowid) from (
    select rowid from example_fts where example_fts match '"' || :mark || value || '"' order by rowid desc limit :limit
  )
) as ids
from json_each(:terms);

-- name: new_vectors
select example, data from vector
where tenant = :tenant and project = :project and space = :space and changed > :since
order by changed;

-- name: failed_jobs
-- The queue is in a process: of a job that was given up, only an episode is left on which nobody could reflect.
select id, project, 'reflect' as task, json_object('digest', digest) as arguments, error, taken as at
from episode where tenant = :tenant and state = 'failed' order by id desc limit :limit;

-- name: end_failed_job
-- Let the episode wait again, or count as reflected on and keep its error.
update episode set state = case when :again then 'waiting' else 'reflected' end,
  error = case when :again then '' else error end, taken = 0
where tenant = :tenant and id = :id and state = 'failed';

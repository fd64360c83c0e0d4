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

-- name: may_speak
-- Whether memory may have something to say about a call with these words, and this text in
-- lower case. What can never be told is left out: what the
-- reader was told or met, a name or a path that ever worked, and a call that has worked since, but for one that needs a
-- step before it. The words of a rule that was edited are not known.
select 1 where exists (
  select 1 from call_failure f
  where f.tenant = :tenant and f.project = :project and f.word <> '' and f.word in (select value from json_each(:words))
    and not exists (
      select 1 from session_mark m where m.tenant = :tenant and m.project = :project and m.session = :reader
        and m.mark in ('told ' || f.digest, 'met ' || f.digest)
    ) and not exists (
      select 1 from call_success s where s.tenant = :tenant and s.project = :project and s.digest = f.digest
        and (f.kind in ('name', 'path') or f.kind <> 'contract' and f.failed <= s.at and not exists (
          select 1 from lesson l where l.id = f.lesson_id and l.mistake like '%"step"%'
        ))
    )
) or exists (
  select 1 from hardened h join lesson l on l.id = h.lesson_id
  where h.tenant = :tenant and h.project = :project and h.state = 'accepted' and h.kind = 'call'
    and lower(trim(l.error_type)) in (select value from json_each(:words))
) or exists (
  select 1 from lesson l where l.tenant = :tenant and l.project = :project and l.error_type = 'user rule'
    and not l.unreviewed and l.kind = 'reflection' and l.state in ('unverified', 'verified')
    and (json_extract(l.data, '$.said') is not l.text or exists (
      select 1 from json_each(l.data, '$.triggers') t where t.value in (select value from json_each(:words))
        or t.value glob '*[^a-z0-9_]*' and instr(:text, t.value)
    ))
);

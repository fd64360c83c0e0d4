-- Statements that SQLite says its own way.

-- name: copy_example
insert into example (id, reflection, scope, task, record, digest, state, trust, lesson, at, words)
select 1 + max((select example from gone), (select coalesce(max(id), 0) from example)),
       :successor, scope, task, record, digest, state, trust, lesson, at, words
from example where id = :example
returning id;

-- name: scopes
select distinct tenant, project from reflection;

-- name: scopes_waiting
select distinct tenant, project from episode where state = 'waiting'
union select distinct tenant, project from trace where state = 'open';

-- name: learnt_state
select group_concat(signature || apart, '') as state from (
  select signature, apart from reflection indexed by reflection_type
  where tenant = :tenant and project = :project and error_type = :error_type and trust not in ('tool', 'external')
  order by id limit :most
);

-- name: learnt_patterns
select signature, pattern, apart from reflection indexed by reflection_type
where tenant = :tenant and project = :project and error_type = :error_type and trust not in ('tool', 'external')
order by id limit :most;

-- name: find_key
select id, tenant, name, hash, projects, may, by, at, expires, used, revoked from key where id = :id;

-- name: any_key
select exists (select 1 from key) as n;

-- name: insert_example
insert into example (id, reflection, scope, task, record, digest, state, trust, lesson, at, words)
values (1 + max((select example from gone), (select coalesce(max(id), 0) from example)),
        :reflection, :scope, :task, :record, :digest, :state, :trust, :lesson, :now, :words)
on conflict (reflection, digest) do update
set state = excluded.state, trust = excluded.trust, lesson = excluded.lesson,
    task = excluded.task, record = excluded.record, words = excluded.words
where example.trust not in ('operator', 'measured') and excluded.trust in ('operator', 'measured')
returning id;

-- name: read_corpus
-- `mark` is what the words of the scope begin with in the index.
select 's' || id || 'x' as mark, scope, texts, length, changed from corpus where scope = :scope;

-- name: count_terms
select value as term,
       (select count(*) from example_fts where example_fts match '"' || :mark || value || '"') as n
from json_each(:terms);

-- name: match_terms
-- The newest first. One text for all of them costs half of what a row for each does.
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

-- name: next_gone
update gone set example = 1 + max(example, (select coalesce(max(id), 0) from example)) returning example as id;

-- name: delete_lineage
delete from lineage
where child in (select atom from json_each(:ids))
   or parent in (select atom from json_each(:ids));

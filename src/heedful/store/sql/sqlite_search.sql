-- name: insert_vector
insert into vector (example, tenant, project, space, data)
select id, :tenant, :project, :space, :data from example
where reflection = :reflection and digest = :digest
on conflict (example) do update set space = excluded.space, data = excluded.data
where vector.space <> excluded.space or vector.data <> excluded.data;

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

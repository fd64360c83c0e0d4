-- name: insert_vector
insert into vector (example, tenant, project, space, data)
select id, :tenant, :project, :space, :data from example
where reflection = :reflection and digest = :digest
on conflict (example) do update set space = excluded.space, data = excluded.data
where vector.space <> excluded.space or vector.data <> excluded.data;

-- name: read_corpus
select id, scope, texts, length, changed from corpus where scope = :scope;

-- name: count_terms
select value as term,
       (select count(*) from example_fts where example_fts match '"s' || :corpus || 'x' || value || '"') as n
from json_each(:terms);

-- name: match_term
-- The newest first. One text for all of them costs half of what a row for each does.
select json_group_array(rowid) as ids from (
  select rowid from example_fts where example_fts match '"s' || :corpus || 'x' || :term || '"'
  order by rowid desc limit :limit
);

-- name: new_vectors
select example, data from vector
where tenant = :tenant and project = :project and space = :space and changed > :since
order by changed;

-- name: filtered
select e.id
from reflection l join example e on e.reflection = l.id
where l.tenant = :tenant and l.project = :project and e.indexed
  and (:kind = '' or l.kind = :kind) and (:error_type = '' or l.error_type = :error_type)
  and l.importance >= :importance and e.at >= :since
  and (:tags = '[]' or :least <= (select count(distinct value) from json_each(l.tags)
                                  where value in (select value from json_each(:tags))));

-- name: read_examples
-- Of a lesson whose words are held back only what came with the example is told.
select e.id, e.reflection, e.record, e.words, e.at, l.kind, e.state, l.seen, l.signature, l.useful, l.error_type,
       iif(l.trust in ('tool', 'external'), e.lesson, l.text) as text,
       iif(l.trust in ('tool', 'external'), '[]', l.tags) as tags,
       iif(l.trust in ('tool', 'external'), 0.5, l.importance) as importance, v.data,
       (:kind = '' or l.kind = :kind) and (:error_type = '' or l.error_type = :error_type)
       and l.importance >= :importance and e.at >= :since
       and (:tags = '[]' or :least <= (select count(distinct value) from json_each(l.tags)
                                       where value in (select value from json_each(:tags)))) as passes
from json_each(:ids) i cross join example e on e.id = i.value cross join reflection l on l.id = e.reflection
     left join vector v on v.example = e.id and v.space = :space
where l.tenant = :tenant and l.project = :project and e.indexed;

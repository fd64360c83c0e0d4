-- name: insert_vector
insert into vector (example, tenant, project, space, data)
select id, :tenant, :project, :space, :data from example
where reflection = :reflection and digest = :digest
on conflict (example) do update set space = excluded.space, data = excluded.data
where vector.space <> excluded.space or vector.data <> excluded.data;

-- name: count_terms
select value as term, (select count(*) from example_fts where example_fts match :scope || value || '"') as n
from json_each(:terms);

-- name: count_recallable
select count(*) as n from example_fts where example_fts match :scope;

-- name: match_examples
select e.id, bm25(example_fts, 0, 1) as score
from example_fts join example e on e.id = example_fts.rowid join reflection l on l.id = e.reflection
where example_fts match :query and l.state in ('candidate', 'verified')
  and (:kind = '' or l.kind = :kind) and (:error_type = '' or l.error_type = :error_type)
  and l.importance >= :importance and e.at >= :since
  and (:tags = '[]' or :least <= (select count(distinct value) from json_each(l.tags)
                                  where value in (select value from json_each(:tags))))
order by score, e.id limit :limit;

-- name: scope_vectors
select v.example, v.data
from vector v join example e on e.id = v.example join reflection l on l.id = e.reflection
where v.tenant = :tenant and v.project = :project and v.space = :space
  and l.state in ('candidate', 'verified') and e.state in ('candidate', 'verified')
  and (:kind = '' or l.kind = :kind) and (:error_type = '' or l.error_type = :error_type)
  and l.importance >= :importance and e.at >= :since
  and (:tags = '[]' or :least <= (select count(distinct value) from json_each(l.tags)
                                  where value in (select value from json_each(:tags))))
order by v.example;

-- name: read_example
select e.id, e.reflection, e.record, e.words, e.at, l.kind, e.state, l.seen, l.importance,
       l.error_type, l.text, l.tags, l.signature, l.useful
from example e join reflection l on l.id = e.reflection
where e.id = :id and l.tenant = :tenant and l.project = :project
  and l.state in ('candidate', 'verified') and e.state in ('candidate', 'verified');

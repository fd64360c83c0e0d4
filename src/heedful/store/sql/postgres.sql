-- Statements that PostgreSQL says its own way.

-- name: copy_example
insert into example (reflection, scope, task, record, digest, state, trust, lesson, at, words)
select :successor, scope, task, record, digest, state, trust, lesson, at, words from example where id = :example
returning id;

-- name: scopes
select tenant, project from scopes_there(false);

-- name: scopes_waiting
select tenant, project from scopes_there(true);

-- name: learnt_state
select string_agg(signature || case when apart then '1' else '0' end, '' order by id) as state from (
  select id, signature, apart from reflection
  where tenant = :tenant and project = :project and error_type = :error_type and trust not in ('tool', 'external')
  order by id limit :most
) as learnt;

-- name: learnt_patterns
select signature, pattern, apart from reflection
where tenant = :tenant and project = :project and error_type = :error_type and trust not in ('tool', 'external')
order by id limit :most;

-- name: find_key
select id, tenant, name, hash, projects, may, by, at, expires, used, revoked from key_of(:id);

-- name: any_key
select keys_there() as n;

-- name: insert_example
insert into example (reflection, scope, task, record, digest, state, trust, lesson, at, words)
values (:reflection, :scope, :task, :record, :digest, :state, :trust, :lesson, :now, :words)
on conflict (reflection, digest) do update
set state = excluded.state, trust = excluded.trust, lesson = excluded.lesson,
    task = excluded.task, record = excluded.record, words = excluded.words
where example.trust not in ('operator', 'measured') and excluded.trust in ('operator', 'measured')
returning id;

-- name: read_corpus
select scope as mark, scope, texts, length from corpus where scope = :scope;

-- name: count_terms
select term, n from count_words(:mark, :terms);

-- name: match_terms
select term, ids from match_words(:mark, :terms, :limit);

-- name: nearest
-- Each of them is looked at: what an index left out before the filter would be missing after it. And `asked` is read
-- once, also by a plan that is made for any question. Of other lengths nothing is compared.
with asked as materialized (select cast(cast(:near as text) as halfvec) as near),
among as materialized (
  select example, case when vector_dims(near) = :width then near <#> (select near from asked) end as far from vector
  where tenant = :tenant and project = :project and space = :space and indexed
)
select example from among where far is not null order by far, example limit :limit;

-- name: nearest_of
with asked as materialized (select cast(cast(:near as text) as halfvec) as near),
among as materialized (
  select v.example, case when vector_dims(v.near) = :width then v.near <#> (select near from asked) end as far
  from vector v join example e on e.id = v.example join reflection l on l.id = e.reflection
  where v.tenant = :tenant and v.project = :project and v.space = :space and v.indexed
    and (:kind = '' or l.kind = :kind) and (:error_type = '' or l.error_type = :error_type)
    and l.importance >= :importance and e.at >= :since
    and (:tags = '[]' or :least <= (select count(distinct value) from json_each(l.tags)
                                    where value in (select value from json_each(:tags))))
)
select example from among where far is not null order by far, example limit :limit;

-- name: next_gone
select nextval(pg_get_serial_sequence('example', 'id')) as id;

-- name: delete_lineage
-- Each half asks an index of its own, which both together with `or` would not.
delete from lineage where (child, parent) in (
  select child, parent from lineage where child in (select atom from json_each(:ids))
  union select child, parent from lineage where parent in (select atom from json_each(:ids))
);

-- Statements that only PostgreSQL understands.

-- name: scopes
select tenant, project from scopes_there(:waiting);

-- name: scopes_with_loops
select tenant, project from loop_scopes();

-- name: find_key
select id, tenant, name, hash, projects, may, by, at, expires, revoked from key_of(:id);

-- name: any_key
select keys_there() as n;

-- name: read_corpus
select scope as mark, scope, texts, length from corpus where scope = :scope;

-- name: count_terms
select term, n from count_words(:mark, :terms);

-- name: match_terms
select term, ids from match_words(:mark, :terms, :limit);

-- name: nearest
-- Compare every vector of the scope: an approximate index would filter too late and return too few. `asked` is
-- materialized, so that a generic plan reads it once. Vectors of other lengths are skipped. `among` limits the examples.
with asked as materialized (select cast(cast(:near as text) as halfvec) as near),
among as materialized (
  select example, case when vector_dims(near) = :width then near <#> (select near from asked) end as far from vector
  where tenant = :tenant and project = :project and space = :space and indexed
    and (:among = '' or example in (select atom from json_each(case :among when '' then '[]' else :among end)))
)
select example from among where far is not null order by far, example limit :limit;

-- name: next_audit
select n, hash from next_audit(:tenant);

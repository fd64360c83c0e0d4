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

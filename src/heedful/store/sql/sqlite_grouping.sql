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

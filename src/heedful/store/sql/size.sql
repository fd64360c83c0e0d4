-- The same order as in the index reflection_useful: what cannot be recalled goes first, and of that what is
-- quarantined; then what helps least as far as it is proven, matters least, and was longest of no use.

-- name: evict
delete from reflection where id in (
  select id from reflection
  where tenant = :tenant and project = :project and pinned = false
    and (state = 'quarantined' or id not in (select atom from json_each(:kept)))
  order by case state when 'quarantined' then 0 when 'candidate' then 2 when 'verified' then 2 else 1 end,
           useful, importance, max(last_seen, last_shown), id
  limit :excess
)
returning id;

-- name: evict_examples
delete from example where id in (
  select e.id from example e join reflection l on l.id = e.reflection
  where e.scope = :scope and e.indexed and e.digest not like 'lesson%' and not l.pinned
  order by e.at, e.id limit :excess
);

-- name: prunable
select id, kind, signature, error_type, text, state, trust, importance, seen, useful, last_seen, last_shown
from reflection
where tenant = :tenant and project = :project and pinned = false and useful <= 1
  and max(last_seen, last_shown) >= :since and max(last_seen, last_shown) < :before
order by case state when 'quarantined' then 0 when 'candidate' then 2 when 'verified' then 2 else 1 end,
         useful, importance, max(last_seen, last_shown), id
limit :limit;

-- name: delete_reflections
delete from reflection where tenant = :tenant and project = :project and id in (select atom from json_each(:ids));

-- name: set_pinned
update reflection set pinned = :pinned where tenant = :tenant and project = :project and id = :id
returning kind, signature;

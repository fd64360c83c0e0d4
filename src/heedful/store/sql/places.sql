-- name: count_spaces
select coalesce(v.space, '') as space, count(*) as n
from reflection l cross join example e left join vector v on v.example = e.id
where e.reflection = l.id and l.tenant = :tenant and l.project = :project
  and l.state in ('candidate', 'verified') and e.state in ('candidate', 'verified')
  and trim(e.task, :blank) <> ''
group by 1;

-- name: unplaced
-- In the order of the ids, so that each is looked at once however many batches there are.
select e.id, e.task
from example e cross join reflection l left join vector v on v.example = e.id
where l.id = e.reflection and e.id > :after and l.tenant = :tenant and l.project = :project
  and l.state in ('candidate', 'verified') and e.state in ('candidate', 'verified')
  and trim(e.task, :blank) <> '' and (v.example is null or v.space <> :space)
order by e.id limit :limit;

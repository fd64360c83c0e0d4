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
       case when l.trust in ('tool', 'external') then e.lesson else l.text end as text,
       case when l.trust in ('tool', 'external') then '[]' else l.tags end as tags,
       case when l.trust in ('tool', 'external') then 0.5 else l.importance end as importance, v.data,
       (:kind = '' or l.kind = :kind) and (:error_type = '' or l.error_type = :error_type)
       and l.importance >= :importance and e.at >= :since
       and (:tags = '[]' or :least <= (select count(distinct value) from json_each(l.tags)
                                       where value in (select value from json_each(:tags)))) as passes
from json_each(:ids) i cross join example e cross join reflection l
     left join vector v on v.example = e.id and v.space = :space
where e.id = i.atom and l.id = e.reflection
  and l.tenant = :tenant and l.project = :project and e.indexed;

-- name: seen
with mine as (
  select id, signature, state, seen from lesson
  where tenant = :tenant and project = :project and signature in (select value from json_each(:members))
    and (not unreviewed or signature = :signature)
)
select *, (
         select count(*) from example e where e.lesson_id = lesson.id and not (e.digest like 'lesson%' and e.lesson = lesson.text)
       ) as examples,
       case when state = 'quarantined' then author else 0 end as entry,
       (select cast(sum(seen) as bigint) from mine) as total
from lesson where id in (
  select id from mine order by state = 'superseded', signature <> :signature, seen desc, id limit :limit
)
order by state = 'superseded', signature <> :signature, seen desc, id;

-- name: rules_of
-- The rules for the next time that belong to these reflections.
select distinct substr(child, length('strategy/') + 1) as signature from link
where tenant = :tenant and project = :project and relation = 'strategy'
  and parent in (select 'reflection/' || value from json_each(:members));

-- name: find_words
select id, words as words_digest, signature, pattern, error_type from lesson
where tenant = :tenant and project = :project and words in (select value from json_each(:digests))
limit :limit;

-- name: find_finding
-- The lessons that may be recalled of checks that said these words.
select distinct l.id, l.signature, l.seen from occurrence o cross join lesson l
where l.id = o.lesson_id and o.finding = :finding and o.finding <> '' and l.tenant = :tenant and l.project = :project
  and exists (select 1 from example e where e.lesson_id = l.id and e.indexed)
order by l.seen desc, l.id limit :limit;

-- name: learnt_patterns
-- The oldest patterns of an error type, from which its templates are learnt.
select signature, pattern from lesson /*sqlite indexed by lesson_type */
where tenant = :tenant and project = :project and error_type = :error_type and not unreviewed
order by id limit :most;

-- name: reviewed_lessons
-- The lessons that a person wrote or released, or evidence verified, with the words that their check forbids in calls.
select l.id, l.kind, l.text, l.error_type, l.pattern, l.signature, l.trust, l.released_by, l.source, l.mistake,
       coalesce((select h.rule from hardened h where h.lesson_id = l.id and h.kind = 'call' and h.state = 'accepted'), '') as rule
from lesson l
where l.tenant = :tenant and l.project = :project and l.kind in ('reflection', 'strategy', 'error')
  and l.state in ('unverified', 'verified')
  and (l.trust = 'user' or l.released_by <> '' or l.state = 'verified' and not l.unreviewed)
order by l.id;

-- name: shared_sources
-- The rules of the file that are followed: their names as sources.
select distinct o.source from origin o join example e on e.id = o.example
where o.scope = :scope and o.source like 'shared:%' order by o.source;

-- name: opening_rules
-- The rules of the file for a session that begins: those that are about no error, which would call for them.
select id, text from lesson
where tenant = :tenant and project = :project and source like 'shared:%' and state in ('unverified', 'verified')
  and not unreviewed and is_correction
order by importance desc, id limit :limit;

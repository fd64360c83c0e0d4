-- name: chosen_sightings
-- The sightings to forget: those of a :lesson or of loops, those in which one of these sources had a part, and those
-- :before a time.
select o.id from occurrence o join lesson r on r.id = o.lesson_id
where r.tenant = :tenant and r.project = :project and (
  o.lesson_id = :lesson or o.at < :before
  or o.loop in (select value from json_each(:loops)) or o.source in (select value from json_each(:named))
  or o.sources <> '[]' and exists (
    select 1 from json_each(o.sources) where value in (select value from json_each(:named)))
);

-- name: chosen_examples
-- The examples to forget, and all that derive from them, without those that are :spared. What was learnt since a time is
-- not older than its sources.
with recursive rests (id) as (
  select example from origin where scope = :scope and source in (select value from json_each(:named))
    and example not in (select atom from json_each(:spared))
  union select id from example
  where scope = :scope and (lesson_id = :lesson or at < :before) and id not in (select atom from json_each(:spared))
  union select l.child from lineage l join rests r on l.parent = r.id
  where :descends = 1 and l.child not in (select atom from json_each(:spared))
)
select id from rests;

-- name: said_by_others
-- The other sightings that came with one of these examples, the most believed last.
select o.id, o.example, o.record, o.lesson, o.text, o.mistake, o.lesson_trust as trust, o.source, o.sources, o.parents, o.at
from occurrence o join lesson r on r.id = o.lesson_id
where r.tenant = :tenant and r.project = :project and o.example in (select atom from json_each(:ids))
  and o.id not in (select atom from json_each(:sightings))
order by case o.lesson_trust when 'outside' then 0 when 'local' then 1 else 2 end, o.id;

-- name: best_sighting
-- The most believed words of a sighting of a lesson, the newest of these.
select id, lesson, text, mistake, lesson_trust as trust, source, sources, parents, at
from occurrence where lesson_id = :lesson_id and (lesson <> '' or text <> '')
order by case lesson_trust when 'outside' then 0 when 'local' then 1 else 2 end desc, id desc limit 1;

-- name: delete_sightings
-- The chosen sightings, and those that derive from a deleted example.
delete from occurrence where id in (
  select o.id from occurrence o join lesson r on r.id = o.lesson_id
  where r.tenant = :tenant and r.project = :project and (
    o.id in (select atom from json_each(:sightings))
    or :descends = 1 and o.parents <> '[]' and exists (
      select 1 from json_each(o.parents) where value in (select value from json_each(:ids))
    )
  )
)
returning lesson_id;

-- name: delete_examples
delete from example where id in (select atom from json_each(:ids)) returning lesson_id, memory_key;

-- name: delete_origins
delete from origin where example in (select atom from json_each(:ids));

-- name: delete_lineage
-- Each half uses an index. A condition with `or` would use none.
delete from lineage where (child, parent) in (
  select child, parent from lineage where child in (select atom from json_each(:ids))
  union select child, parent from lineage where parent in (select atom from json_each(:ids))
);

-- name: forget_lesson_briefings
-- Empty the briefings that have words of these lessons. Their examples may have been evicted.
update loop set briefing = '' where tenant = :tenant and project = :project and briefing <> '' and id in (
  select loop from exposure where tenant = :tenant and project = :project
    and kind || '/' || signature in (select value from json_each(:names)));

-- name: unsee
-- Take back sightings of a lesson. Its tags came with the first one, and go with it.
update lesson
set seen = max(1, seen - :n),
    tags = case when first_seen < (select min(at) from occurrence where lesson_id = :lesson_id) then '[]' else tags end,
    first_seen = coalesce((select min(at) from occurrence where lesson_id = :lesson_id), first_seen),
    last_seen = coalesce((select max(at) from occurrence where lesson_id = :lesson_id), last_seen)
where id = :lesson_id;

-- name: forget_reasons
-- Empty the decisions about lessons and examples that went. That a proof retired a lesson is remembered by a digest.
update ruling set why = '', record = case when action in ('retire', 'restore') then record else '{}' end
where tenant = :tenant and project = :project and (
  subject in (select value from json_each(:names))
  or action in ('release', 'reject', 'undo', 'edit') and cast(json_extract(record, '$.example') as text) in (
    select cast(value as text) from json_each(:ids)));

-- name: clear_reasons
-- Empty the decisions about the lessons of a scope.
update ruling set why = '', record = case when action in ('retire', 'restore') then record else '{}' end
where tenant = :tenant and project = :project and subject in (
  select kind || '/' || signature from lesson where tenant = :tenant and project = :project);

-- name: forget_reasons_of
-- Empty the reasons that these persons gave; who decided, and what, stays.
update ruling set why = '' where tenant = :tenant and project = :project and why <> ''
  and by in (select value from json_each(:actors));

-- name: forget_subjects
-- Earlier decisions about these sources, and what was decided because they wrote a known text again, name no source.
update ruling
set subject = case when subject in (select value from json_each(:named)) then :subject else subject end,
    by = case when by like '%:%' and by in (select value from json_each(:named)) then :subject else by end,
    record = case when json_extract(record, '$.source') in (select value from json_each(:named)) then '{}' else record end
where tenant = :tenant and project = :project and (
  subject in (select value from json_each(:named)) or by in (select value from json_each(:named))
  or json_extract(record, '$.source') in (select value from json_each(:named)));

-- name: forget_reasons_of_overrides
update override set why = '' where why <> '' and by in (select value from json_each(:actors))
  and loop in (select n from loop where tenant = :tenant and project = :project);

-- name: forget_reasons_of_checks
update hardened set why = '' where why <> '' and by in (select value from json_each(:actors))
  and lesson_id in (select id from lesson where tenant = :tenant and project = :project);

-- name: delete_notes_of
-- What these persons wrote about loops.
delete from note
where tenant = :tenant and project = :project and name = ''
  and json_extract(record, '$.by') in (select value from json_each(:actors));

-- name: keys_of_person
select id from key where tenant = :tenant and name = :person;

-- name: loops_of
-- A loop, with its stages if it is a run.
select n, id from loop where tenant = :tenant and project = :project and (id = :id or run = :id);

-- name: old_loops
-- The loops that did not change since a time. A run goes with its stages, which never go alone.
select n, id from loop where tenant = :tenant and project = :project and (
  run = '' and updated < :before
  or run in (select id from loop where tenant = :tenant and project = :project and updated < :before));

-- name: count_parts
select (select count(*) from attempt where loop in (select atom from json_each(:numbers))) as attempts,
       (select count(*) from note where tenant = :tenant and project = :project
          and loop in (select value from json_each(:loops))) as notes;

-- name: delete_notes
delete from note where tenant = :tenant and project = :project and loop in (select value from json_each(:loops));

-- name: delete_loops
delete from loop where tenant = :tenant and project = :project and n in (select atom from json_each(:numbers));

-- name: delete_exposures
delete from exposure where tenant = :tenant and project = :project and loop in (select value from json_each(:loops));

-- name: delete_trials
delete from trial where tenant = :tenant and project = :project and loop in (select value from json_each(:loops));

-- name: delete_climbs
delete from climb where tenant = :tenant and project = :project and loop in (select value from json_each(:loops));

-- name: unlink_causes
-- The last loop that broke a rule.
update cause set loop = '' where tenant = :tenant and project = :project and loop in (select value from json_each(:loops));

-- name: unlearn_loops
-- What these loops taught is told again if a loop has the same id. What a person corrected has the id of the loop first.
delete from learnt where tenant = :tenant and project = :project and exists (
  select 1 from json_each(:named) where source = value or substr(source, 1, length(value) + 11) = value || ' corrected ');

-- name: outcomes_of_loops
select loop, right_at_once, signatures, n from outcome
where tenant = :tenant and project = :project and loop in (select value from json_each(:loops));

-- name: empty_episodes
-- Old runs. Their digests stay, so that nobody learns from them again.
update episode set record = '{}', name = '', session = '', error = '', task = '', tools = '', state = 'reflected'
where tenant = :tenant and project = :project and at < :before and record <> '{}';

-- name: old_spans
delete from span where tenant = :tenant and project = :project and trace in (
  select id from trace where tenant = :tenant and project = :project and last < :before);

-- name: old_sessions
select distinct session, via from event where tenant = :tenant and project = :project and at < :before;

-- name: forget_old_reasons
update ruling set why = '' where tenant = :tenant and project = :project and at < :before and why <> '';

-- name: delete_key_notes
-- What a key wrote about loops: its id ends the name of the author.
delete from note
where tenant = :tenant and project = :project and name = '' and json_extract(record, '$.by') like '% (' || substr(:source, 5) || ')';

-- name: outcomes_of
-- The outcomes that a key reported, and those of loops whose prompts it recalled.
select loop, right_at_once, signatures, n from outcome
where tenant = :tenant and project = :project and (via = :source or loop in (
  select loop from exposure where tenant = :tenant and project = :project and via = :source));

-- name: delete_sent
-- The episodes that came through a key; via lists keys, separated by blanks.
delete from episode
where tenant = :tenant and project = :project and instr(' ' || via || ' ', ' ' || :source || ' ') > 0
returning digest, record;

-- name: delete_traces
-- The open traces with spans that came through a key.
delete from trace
where tenant = :tenant and project = :project and instr(' ' || via || ' ', ' ' || :source || ' ') > 0
returning id;

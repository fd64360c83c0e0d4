-- part: before
with recursive before (id) as (
  select atom from json_each(:parents)
  union select l.parent from lineage l join before b on l.child = b.id
)

-- part: check
-- A check that a lesson became, with its lesson, and the checks that taught it.
h.lesson_id as lesson, h.*, l.text, l.error_type, l.trust, l.released_by, l.state as lesson_state, coalesce((
         select c.checks from cause c
         where c.tenant = h.tenant and c.project = h.project and c.memory_key = h.memory_key
           and c.kind = l.kind and c.signature = l.signature
         order by c.loops desc limit 1
       ), '[]') as taught_by

-- name: replace_words
-- Words that newer ones replace are kept, and no longer recalled.
update example set state = 'superseded'
where lesson_id = :id and lesson = :text and digest like 'lesson%' and state in ('unverified', 'verified');

-- name: ended_or_restored
-- The last time that a lesson was retired or restored, with the digest of its text then.
select action, at, json_extract(record, '$.digest') as digest from ruling
where tenant = :tenant and project = :project and subject = :subject and action in ('retire', 'restore')
order by id desc limit 1;

-- name: upsert_lesson
-- Insert a lesson, or replace it by itself after one more sighting: `heedful.lessons.merging` says how.
insert into lesson (id, tenant, project, kind, signature, signature_version, pattern, words, error_type, text, tags, state, trust, released_by, released_at,
                    importance, source, pinned, author, useful, evidence, is_correction, run, data, mistake, first_seen, last_seen, judged_from)
values (coalesce((select lesson from tally where tenant = :tenant and project = :project),
                 /*postgres new_base() */ /*sqlite (select base from new_scope) */) + 1,
        :tenant, :project, :kind, :signature, :signature_version, :pattern, :words, :error_type, :text, :tags, :state, :trust, :released_by, :released_at,
        :importance, :source, :pinned, cast(:author as bigint), :useful, :evidence, :is_correction, :run, :data, :mistake, :now, :now, :judged_from)
on conflict (tenant, project, kind, signature) do update
set seen = lesson.seen + 1, last_seen = max(lesson.last_seen, excluded.last_seen),
    (text, tags, state, trust, released_by, released_at, importance, source, pinned, author, useful, evidence, is_correction, run, data, mistake, judged_from)
    = (select excluded.text, excluded.tags, excluded.state, excluded.trust, excluded.released_by, excluded.released_at, excluded.importance, excluded.source,
              excluded.pinned, excluded.author, excluded.useful, excluded.evidence, excluded.is_correction, excluded.run, excluded.data, excluded.mistake, excluded.judged_from)
returning id, seen, text, trust, released_by, author, state, tags;

-- name: upsert_cause
-- A loop counts once. The rule keeps the lesson that it has, which exists: a trigger deletes the rules of deleted lessons.
insert into cause (tenant, project, memory_key, rule, kind, signature, checks, check_id, severity, fix, mended, loop, at)
values (:tenant, :project, :memory_key, :rule, :kind, :signature, :checks, :check_id, :severity, :fix, :mended, :loop, :now)
on conflict (tenant, project, memory_key, rule) do update
set loops = cause.loops + case when cause.loop = excluded.loop then 0 else 1 end,
    mended = cause.mended + case when cause.loop = excluded.loop then 0 else excluded.mended end,
    loop = excluded.loop, quiet = 0,
    checks = excluded.checks, check_id = excluded.check_id, severity = max(cause.severity, excluded.severity), fix = max(cause.fix, excluded.fix),
    at = max(cause.at, excluded.at);

-- name: read_failure
-- The lesson about a failure, and the strategies that are linked to it.
select id, kind, signature, error_type, text, tags, state, trust, unreviewed, importance, evidence, run, mistake from lesson
where tenant = :tenant and project = :project and state not in ('retired', 'superseded') and signature in (
  select :signature
  union select substr(child, length('strategy/') + 1) from link
  where tenant = :tenant and project = :project and parent = :name and relation = 'strategy'
) and kind in ('reflection', 'strategy')
order by id;

-- name: verify_example
-- A stored example is verified when trusted text says the same.
update example set state = 'verified'
where lesson_id = :lesson_id and digest = :digest and state = 'unverified'
  and :state = 'verified' and :trust <> 'outside';

-- name: top_lessons
-- The lessons seen most often, each with the number of its worked examples; failures of sessions that nothing put right
-- come last. A rule is that of the reflection on the same failure, `rule_of`.
select *, (
  select count(*) from example e where e.lesson_id = lesson.id and not (e.digest like 'lesson%' and e.lesson = lesson.text)
) as examples, coalesce((
  select max(r.id) from link k join lesson r on r.tenant = k.tenant and r.project = k.project and k.parent = r.kind || '/' || r.signature
  where k.tenant = lesson.tenant and k.project = lesson.project and k.relation = 'strategy' and k.child = lesson.kind || '/' || lesson.signature
), 0) as rule_of
from lesson where tenant = :tenant and project = :project
order by evidence in ('once', 'failed run'), seen desc, last_seen desc, id limit :limit;

-- name: newest_example
-- The newest example of a lesson that a person may be shown outside quarantine.
select record from example where lesson_id = :lesson and scope = :token
  and state in ('unverified', 'verified') and not unreviewed
  and not (digest like 'lesson%' and lesson = (select text from lesson where id = :lesson))
order by at desc, id desc limit 1;

-- name: list_lessons
-- The lessons that pass the filters; an empty filter passes all.
select * from lesson
where tenant = :tenant and project = :project and id < :before
  and (:kind = '' or kind = :kind)
  and (:error_type = '' or error_type = :error_type
       and (:reviews or state <> 'quarantined' and not unreviewed))
  and (:state = '' or state = :state or :state = 'used' and state in ('unverified', 'verified'))
  and (:tag = '' or not unreviewed and (:reviews or state <> 'quarantined') and exists (select 1 from json_each(tags) where value = :tag))
order by id desc limit :limit;

-- name: lessons_of
select * from lesson where tenant = :tenant and project = :project and id in (select atom from json_each(:ids));

-- name: listed_lessons
-- Lessons as `lessons_of`; a rule is that of the reflection on the same failure, `rule_of`.
select *, coalesce((
  select max(r.id) from link k join lesson r on r.tenant = k.tenant and r.project = k.project and k.parent = r.kind || '/' || r.signature
  where k.tenant = lesson.tenant and k.project = lesson.project and k.relation = 'strategy' and k.child = lesson.kind || '/' || lesson.signature
), 0) as rule_of
from lesson where tenant = :tenant and project = :project and id in (select atom from json_each(:ids));

-- name: projects
-- The projects in which anything is stored, each found in the indexes after the one before.
with recursive stored (project) as (
  select '' /*postgres collate "C" */
  union all
  select (select min(project) from (
    select min(project) as project from loop where tenant = :tenant and project > stored.project
    union all select min(project) from lesson where tenant = :tenant and project > stored.project
    union all select min(project) from exposure where tenant = :tenant and project > stored.project
    union all select min(project) from trial where tenant = :tenant and project > stored.project
    union all select min(project) from episode where tenant = :tenant and project > stored.project
    union all select min(project) from trace where tenant = :tenant and project > stored.project
  ) as following) from stored where project is not null
)
select project from stored where project <> '';

-- name: newest_linked
-- The words of the newest lessons in use that somebody trusts, newest first.
select l.id, substr(l.text, 1, cast(:chars as integer)) as text, l.mistake,
       (select substr(o.text, 1, cast(:chars as integer)) from occurrence o
        where o.lesson_id = l.id and o.trust <> 'outside' order by o.at desc limit 1) as error
from lesson l
where l.tenant = :tenant and l.project = :project and l.state in ('unverified', 'verified') and not l.unreviewed
order by l.id desc limit :limit;

-- name: some_examples
select id, lesson_id, trust, released_by from example where scope = :scope and id in (select atom from json_each(:ids));

-- name: count_traced
-- How many of these examples still have an origin.
select count(distinct o.example) as n from json_each(:ids) i cross join origin o
where o.example = i.atom and /*sqlite + */ o.scope = :scope;

-- name: shown_to_loop
-- The examples in the prompt of a loop.
select distinct e.atom as id from exposure x, json_each(x.examples) e
where x.tenant = :tenant and x.project = :project and x.loop = :loop and x.shown;

-- name: is_own_ancestor
-- Whether the example is among its new parents, or among what these derive from.
{before}
select 1 from before where id = :example;

-- name: held_of
-- What one source wrote that waits in quarantine.
select e.id from origin o join example e on e.id = o.example
where o.scope = :scope and o.source = :source and e.state = 'quarantined' order by e.id;

-- name: own_sources
-- The sources of those examples that were derived from no other one.
select example, source from origin
where scope = :scope and example in (select cast(value as bigint) from json_each(:ids))
  and not exists (select 1 from lineage where child = example)
order by example;

-- name: is_refused
-- Whether a person has refused one of these words.
select 1 from refused
where tenant = :tenant and project = :project and words in (select value from json_each(:words)) limit 1;

-- name: allow_words
delete from refused
where tenant = :tenant and project = :project and words in (select value from json_each(:words));

-- name: waiting_ids
-- What waits in quarantine, newest first.
select id from example where scope = :scope and state = 'quarantined' and id < :before order by id desc limit :most;

-- name: quarantine_entries
select e.id, l.kind, l.error_type, l.signature, l.pattern, e.lesson, e.record, e.mistake, e.words, e.memory_key, e.state, e.trust, e.released_by, e.released_at,
       case when l.author = e.id then l.tags else '[]' end as tags,
       case when l.author = e.id then l.run else '' end as run,
       case when l.author = e.id then l.data else '{}' end as data,
       case when l.author = e.id then l.importance else 0.5 end as importance, l.seen, e.at, coalesce((
         select /*postgres string_agg *//*sqlite group_concat */ (source, ', ') from (select source from origin where example = e.id order by source) as named
       ), '') as source
from example e join lesson l on l.id = e.lesson_id
where e.scope = :scope and e.id in (select atom from json_each(:ids))
order by e.id desc;

-- name: rests_on
-- All sources of these examples, and of all from which they derive.
{before}
select distinct source from origin where example in (select id from before) and source <> '' order by source;

-- name: rulings_on
-- The decisions about one example of a lesson, newest first.
select action, subject, by, why, record, at from ruling
where tenant = :tenant and project = :project and subject = :subject and action in ('release', 'reject', 'undo')
  and cast(json_extract(record, '$.example') as text) = cast(cast(:example as bigint) as text)
order by at desc, id desc;

-- name: best_example
-- The best next author of a lesson: by trust, the oldest first. What a person released is trusted as far as that person.
select id from example where lesson_id = :lesson_id
order by state = 'retired', (select key from json_each(:order) where value = case when released_by <> '' then 'user' else trust end), id limit 1;

-- name: bring_back
update example set state = case when unreviewed then 'quarantined' else 'unverified' end
where id = :example and state = 'superseded';

-- name: set_voice
-- Give a lesson the words of an example, and its state unless the lesson has one that is :kept. What belonged to the old author goes, and with other words the proof begins again.
update lesson
set tags = case when author = :example then tags else '[]' end,
    importance = case when author = :example then importance else 0.5 end,
    is_correction = case when author = :example then is_correction else false end,
    run = case when author = :example then run else '' end,
    data = case when author = :example then data else '{}' end,
    judged_from = case when text = (select lesson from example where id = :example) then judged_from else max(:now, last_shown) end,
    (text, mistake, trust, released_by, released_at, state, author, source) = (
  select lesson, mistake, trust, released_by, released_at, case when :kept <> '' then :kept else e.state end, id,
         coalesce((select min(source) from origin where example = e.id), '')
  from example e where id = :example
)
where id = :lesson_id;

-- name: forget_briefings
-- Empty the briefings that have words of these examples, or that a key :named caused. The rows of the examples
-- and of their lessons may be gone.
update loop set briefing = '' where tenant = :tenant and project = :project and briefing <> '' and id in (
  select x.loop from exposure x where x.tenant = :tenant and x.project = :project and (
    x.via <> '' and x.via in (select value from json_each(:named))
    or exists (select 1 from json_each(x.examples) e where e.atom in (select atom from json_each(:ids)))));

-- name: merge_counts
-- An import may know of more sightings.
update lesson
set seen = max(seen, :seen), last_seen = max(last_seen, :last_seen),
    first_seen = min(first_seen, :first_seen)
where id = :id;

-- name: evict_examples
-- The oldest examples, but neither the words of a lesson nor what belongs to a pinned one.
delete from example where id in (
  select e.id from example e join lesson l on l.id = e.lesson_id
  where e.scope = :scope and e.indexed and not (e.digest like 'lesson%' and e.lesson = l.text) and not l.pinned
  order by e.at, e.id limit :excess
);

-- name: prunable
-- In the order of the index lesson_useful: quarantined lessons, other lessons that cannot be recalled, and then the
-- least useful, the least important and the longest unused.
select id, kind, signature, error_type, text, state, trust, importance, seen, useful, last_seen, last_shown
from lesson
where tenant = :tenant and project = :project and pinned = false and useful <= :most_useful
  and max(last_seen, last_shown) >= :since and max(last_seen, last_shown) < :before
  and (state = 'quarantined' or id not in (select atom from json_each(:kept)))
order by case state when 'quarantined' then 0 when 'unverified' then 2 when 'verified' then 2 else 1 end,
         useful, importance, max(last_seen, last_shown), id
limit :limit;

-- name: insert_example
-- Insert an example, or replace it by the same one of higher trust.
insert into example (id, lesson_id, scope, task, record, digest, state, trust, released_by, released_at, lesson, mistake, at, words, memory_key)
values (coalesce((select example from corpus where scope = :scope),
                 cast(:lesson_id as bigint) / 100000000 * 100000000) + 1,
        :lesson_id, :scope, :task, :record, :digest, :state, :trust, :released_by, :released_at, :lesson, :mistake, :now, :words, :memory_key)
on conflict (lesson_id, digest) do update
set state = excluded.state, trust = excluded.trust, released_by = excluded.released_by,
    released_at = excluded.released_at, lesson = excluded.lesson, mistake = excluded.mistake,
    task = excluded.task, record = excluded.record, words = excluded.words, indexed = false
where (example.unreviewed and (excluded.trust <> 'outside' or excluded.released_by <> ''))
  or (example.state = 'superseded' and :renews = 1)
returning id, state, trust;

-- name: clear_lineage
delete from lineage where child in (select example from origin where scope = :scope);

-- name: count_examples
-- The examples of these lessons that recall can find.
select count(*) as n from lesson l join example e on e.lesson_id = l.id and e.indexed
where l.tenant = :tenant and l.project = :project and l.kind = :kind and l.error_type = :error_type;

-- name: lesson_checks
-- The checks that lessons became, newest decision first; with a `lesson` above 0, that of this lesson.
select {check}
from hardened h cross join lesson l
where l.id = h.lesson_id and h.tenant = :tenant and h.project = :project and (:lesson = 0 or h.lesson_id = :lesson)
order by h.decided desc, h.lesson_id desc limit :limit;

-- name: active_checks
-- The accepted checks of a memory key; with an `id`, of the key of this loop. With `calls`, those of calls.
select {check}
from hardened h join lesson l on l.id = h.lesson_id
where h.tenant = :tenant and h.project = :project and h.state = 'accepted' and h.memory_key = coalesce(
    (select memory_key from loop where tenant = :tenant and project = :project and id = :id), :memory_key
  ) and (h.kind = 'call') = :calls and l.state in ('unverified', 'verified') and not l.unreviewed
order by h.lesson_id;

-- name: hardenable
-- A lesson, and the memory key of its newest example.
select l.*, coalesce((
         select e.memory_key from example e where e.lesson_id = l.id and e.memory_key <> '' order by e.id desc limit 1
       ), '') as memory_key
from lesson l where l.tenant = :tenant and l.project = :project and l.id = :id;

-- name: trusted_examples
-- The examples of a memory key, or with "" of the scope: first those of one lesson, then the newest of the others.
select e.record, e.lesson_id, l.kind, l.error_type
from example e join lesson l on l.id = e.lesson_id
where e.scope = :scope and (:memory_key = '' or e.memory_key = :memory_key)
  and e.state in ('unverified', 'verified') and not e.unreviewed
order by case when e.lesson_id = :id then 0 else 1 end, e.id desc limit :limit;

-- name: trusted_rules
-- What runs showed as rules: first the sightings of one lesson, then the newest of the others.
select o.lesson_id, o.mistake from occurrence o join lesson l on l.id = o.lesson_id
where l.tenant = :tenant and l.project = :project and l.kind = 'strategy' and l.state in ('unverified', 'verified')
  and o.trust <> 'outside'
order by case when o.lesson_id = :id then 0 else 1 end, o.at desc, o.id desc limit :limit;

-- name: count_alarm
update hardened set hits = hits + 1, false_alarms = false_alarms + :wrong, last_hit = :now
where tenant = :tenant and project = :project and lesson_id = :id and state = 'accepted';

-- name: failures
-- What failed in runs, what came most often first.
select id, mistake, seen, last_seen, state from lesson
where tenant = :tenant and project = :project and kind = 'reflection' and mistake <> ''
order by seen desc, last_seen desc, id limit :limit;

-- What the pages count. Statements are written for both engines, as `store.statements` says.

-- part: shown_state
-- The state of a loop, as `StoredLoop.shown_state` says: what passed may be doubtful by its last attempt, as `Attempt.doubt_state` has it.
case when state <> 'passed' or kind = 'run' then state
     else coalesce((
       select case
         when instr(record, ': not validated"') > 0 then 'not_validated'
         when instr(record, '"judged_by":["') > 0 then state
         when coalesce(/*sqlite json_extract(record, '$.evaluation.findings') *//*postgres record::json -> 'evaluation' ->> 'findings' */, '[]') = '[]'
          and coalesce(/*sqlite json_extract(record, '$.evaluation.scores') *//*postgres record::json -> 'evaluation' ->> 'scores' */, '{}') = '{}'
          and /*sqlite json_extract(record, '$.evaluation.met') *//*postgres record::json -> 'evaluation' ->> 'met' */ is null then 'unchecked'
         else state end
       from attempt where attempt.loop = loop.n order by number desc limit 1), state) end

-- name: latest
-- Figures that change whenever a loop, note, lesson or episode does.
-- Persons wrote the notes, so there are few.
select coalesce((select max(updated) from loop where tenant = :tenant and project = :project), 0) as loops,
       coalesce((select max(id) from lesson where tenant = :tenant and project = :project), 0) as lessons,
       coalesce((select max(id) from episode where tenant = :tenant and project = :project), 0) as episodes,
       coalesce((select max(id) from ruling where tenant = :tenant and project = :project), 0) as rulings,
       (select count(*) from note where tenant = :tenant and project = :project and name = '') as notes;

-- name: summaries
select n, id, kind, run, stage, ladder, substr(task, 1, cast(:chars as integer)) as task, length(task) as task_chars,
       case when lease > store_clock() then 1 else 0 end as driven
from loop where tenant = :tenant and project = :project and n in (select atom from json_each(:numbers))
order by n desc;

-- name: newest_loop_numbers
-- No runs of pipelines.
select n from loop where tenant = :tenant and project = :project and kind <> 'run' and n < :before
order by n desc limit :limit;

-- name: outputs_of_loops
-- The newest attempts of each loop; long records are left out.
select loop.n, substr(attempt.value, 1, cast(:chars as integer)) as value,
       case when length(attempt.record) <= :chars then /*sqlite json_extract(attempt.record, '$.evaluation.findings') *//*postgres attempt.record::json -> 'evaluation' ->> 'findings' */ end as findings
from loop join attempt on attempt.loop = loop.n
where loop.tenant = :tenant and loop.project = :project and loop.n in (select atom from json_each(:numbers))
  and attempt.number > (select max(number) from attempt as newest where newest.loop = loop.n) - :attempts
order by loop.n desc, attempt.number desc;

-- name: head
select n, substr(task, 1, cast(:chars as integer)) as task, length(task) as task_chars, {head}, briefing, {shown_state} as state, run, stage,
       ladder, created, updated, cancelled,
       (select count(*) from attempt where loop = loop.n) as attempts,
       (select coalesce(sum(length(record)), 0) from attempt where loop = loop.n)
       + (select coalesce(sum(length(record)), 0) from decision where loop = loop.n) as size,
       (select sum(coalesce(cast(/*sqlite json_extract(record, '$.usage.calls') *//*postgres record::json -> 'usage' ->> 'calls' */ as integer), 0))
        from attempt where loop = loop.n) as calls,
       (select record from decision where loop = loop.n order by seq desc limit 1) as decision
from loop where tenant = :tenant and project = :project and id = :id;

-- name: sizes_of
select number, length(record) as size from attempt where loop = :n and number in (select cast(value as bigint) from json_each(:numbers));

-- name: attempt_of
-- An attempt with its output, or with the beginning of a long one.
select record, length(value) as value_chars,
       case when length(value) <= :whole_chars then value else substr(value, 1, cast(:chars as integer)) end as value
from attempt where loop = :n and number = :number;

-- name: decided
select attempt, record from decision where loop = :n and attempt in (select cast(value as bigint) from json_each(:numbers)) order by seq;

-- name: lesson_order
-- What the newest lessons in a state are sorted by; without a state, those that a prompt may show.
select id, kind || '/' || signature as name, last_shown from lesson
where tenant = :tenant and project = :project and (state = :state or :state = '' and state in ('unverified', 'verified'))
order by id desc limit :limit;

-- name: lesson_states
-- How many of the newest lessons are in each state.
select state, count(*) as lessons from (
  select state from lesson where tenant = :tenant and project = :project and (:reviews or state <> 'quarantined')
  order by id desc limit :limit
) as newest group by state;

-- name: runs
select n, id, /*sqlite json_extract(task, '$.pipeline') *//*postgres task::json ->> 'pipeline' */ as pipeline,
       state, created, updated from loop
where tenant = :tenant and project = :project and kind = 'run' and (:before = 0 or n < :before)
order by n desc limit :limit;

-- name: near_ids
-- Loops, or runs of pipelines, with an id like the one of the address of a page: it begins alike, or has it as a part.
select id from (
  select id, n, substr(:path, case when kind = 'run' then 7 else 8 end) as sought from loop
  where tenant = :tenant and project = :project
    and substr(:path, 1, 6) = case when kind = 'run' then '/runs/' else '/loops' end
) as loop
where length(sought) > 3 and (replace(id, sought, '') <> id or substr(id, 1, length(sought) - 1) = substr(sought, 1, length(sought) - 1))
order by n desc limit 3;

-- name: failures
-- The errors of reflections, those of the most episodes first.
select error, count(*) as number, min(digest) as digest, max(at) as last from episode
where tenant = :tenant and project = :project and state = 'failed'
group by error order by count(*) desc, error limit :limit;

-- name: broken
-- The open loops whose driver failed in the current attempt, as `StoredLoop.failure` says. Steps are of such attempts only.
select loop.n from step cross join loop
where step.key = 'failure' and loop.n = step.loop and loop.tenant = :tenant and loop.project = :project
  and loop.state = 'open'
order by loop.updated desc limit :limit;

-- name: overrides
select loop.id, override.rule, override.by, override.why, override.until, override.used, override.decisions
from override cross join loop
where loop.n = override.loop and loop.tenant = :tenant and loop.project = :project and override.until > :now and override.until < :soon and override.used < override.decisions
order by override.until limit :limit;

-- name: words_at
-- The words that operators replaced in lessons after a time, the oldest first; without words of tools and documents.
select l.id, case when e.unreviewed then '' else e.lesson end as text
from lesson l join ruling r on r.tenant = l.tenant and r.project = l.project and r.subject = l.kind || '/' || l.signature
left join example e on e.scope = :token and e.id = cast(json_extract(r.record, '$.was') as bigint)
where l.tenant = :tenant and l.project = :project and l.id in (select cast(value as bigint) from json_each(:ids))
  and r.action = 'edit' and r.at > :at
order by r.id;

-- name: sources_of
-- Loops are no such sources. Without reviews, texts that nobody has reviewed are left out.
select distinct o.source from example e join origin o on o.example = e.id
where e.scope = :token and e.lesson_id = :id and o.source <> '' and o.source not like 'loop:%'
  and (:reviews or e.state <> 'quarantined' and not e.unreviewed) order by o.source limit :places;

-- name: sessions_of
-- The sources of a lesson that are stored sessions.
select distinct o.source from example e join origin o on o.example = e.id
join episode on episode.tenant = :tenant and episode.project = :project and episode.session <> '' and o.source = 'episode:' || episode.session
where e.scope = :token and e.lesson_id = :id limit :places;

-- name: unheeded
-- Lessons whose mistake came again after most sessions that were told them, and that nobody has ruled on since.
select l.id, case when l.unreviewed then '' else l.text end as text, r.told, r.again, r.at from (
  select subject, count(*) as told, sum(case when repeated then 1 else 0 end) as again, max(at) as at from reminder
  where tenant = :tenant and project = :project and settled and told group by subject
) as r cross join lesson l
where l.tenant = :tenant and l.project = :project
  and l.kind = substr(r.subject, 1, instr(r.subject, '/') - 1) and l.signature = substr(r.subject, instr(r.subject, '/') + 1)
  and r.again >= :least and 2 * r.again > r.told and l.state in ('unverified', 'verified')
  and not exists (select 1 from ruling n where n.tenant = :tenant and n.project = :project and n.subject = r.subject and n.at > r.at)
order by r.again desc, l.id limit :limit;

-- name: loops_of
-- The last loops in which the error of a lesson was seen, with the beginnings of their tasks; no task if a loop is gone.
select seen.loop, seen.at, {shown_state} as state, substr(loop.task, 1, cast(:chars as integer)) as task, length(loop.task) as task_chars
from (
  select loop, max(at) as at, max(id) as last from occurrence where lesson_id = :id and loop <> ''
  group by loop order by max(at) desc, max(id) desc limit :places
) as seen
left join loop on loop.tenant = :tenant and loop.project = :project and loop.id = seen.loop order by seen.at desc, seen.last desc;

-- name: learnt_from
-- The lessons with a text from one of these sources.
select distinct l.id, case when l.unreviewed then '' else l.text end as text, l.state, l.trust
from origin o join example e on e.id = o.example join lesson l on l.id = e.lesson_id
where o.scope = :token and o.source in (select value from json_each(:sources)) order by l.id limit :limit;

-- name: told_in
-- The lessons that a session was told; `repeated` says whether the error of each came again, if a later call shows it.
select l.id, case when l.unreviewed then '' else l.text end as text, r.repeated from reminder r
join lesson l on l.tenant = r.tenant and l.project = r.project and l.kind || '/' || l.signature = r.subject
where r.tenant = :tenant and r.project = :project and r.session = :session and r.told order by l.id limit :limit;

-- name: links_of
-- The lesson that has replaced this one, or in other rows, without an heir, each lesson that a dream made this one of.
select case when relation = 'became' and child = :name then parent else '' end as heir, dream from link
where tenant = :tenant and project = :project
  and (relation = 'became' and :name in (child, parent) or relation = 'cites' and child = :name) limit :limit;

-- name: rulings_of
select action, by, why, at from ruling
where tenant = :tenant and project = :project and subject in (:name, :digest) order by id desc limit :limit;

-- name: reviews
-- Lessons of an operator that a proof found to hurt, and that nobody has ruled on since.
select l.id, l.text, r.at from (
  select r.subject, r.at from ruling r
  where r.tenant = :tenant and r.project = :project and r.action = 'review'
    and not exists (select 1 from ruling n where n.tenant = r.tenant and n.project = r.project and n.subject = r.subject
                    and n.id > r.id and n.action in ('pin', 'unpin', 'edit', 'retire'))
  order by r.id desc limit :limit
) as r cross join lesson l
where l.tenant = :tenant and l.project = :project and l.kind = substr(r.subject, 1, instr(r.subject, '/') - 1)
  and l.signature = substr(r.subject, instr(r.subject, '/') + 1) and l.state in ('unverified', 'verified');

-- name: versions_of
-- The words that operators replaced, newest first; without words of tools and documents, and those of revoked sources.
select r.by, r.why, r.at, json_extract(r.record, '$.trust') as trust,
       case when :reviews or json_extract(r.record, '$.trust') <> 'outside'
            then json_extract(r.record, '$.source') else '' end as source,
       e.id, case when e.unreviewed then '' else e.lesson end as text
from ruling r left join example e on e.scope = :token and e.id = cast(json_extract(r.record, '$.was') as bigint)
where r.tenant = :tenant and r.project = :project and r.subject = :name and r.action = 'edit'
order by r.id desc limit :limit;

-- name: episodes
select digest, case when length(record) < :most then record else '{}' end as record from episode
where tenant = :tenant and project = :project and digest in (select value from json_each(:digests));

-- name: agent_runs
-- Of the newest runs of agents, those with a text in their task or name, or in their digest: a few characters are no id. A session is its last part.
select id, digest, name, session, outcome, state, error, at, task, parts from (
  select *, row_number() over own as part, count(*) over (partition by run) as parts from (
    select id, digest, name, session, outcome, state, error, at, case when session = '' then digest else session end as run,
           case when task <> '' or :spellings = '[]' then task
                else coalesce(/*sqlite json_extract(record, '$.episode.task') *//*postgres record::json -> 'episode' ->> 'task' */, '') end as task
    from episode where tenant = :tenant and project = :project and (:before = 0 or id < :before) order by id desc limit :window
  ) as newest window own as (partition by run order by id desc)
) as episode
where part = 1 and (:state = '' or state = :state)
  and (:spellings = '[]' or exists (
    select 1 from json_each(:spellings) as spelling
    where instr(lower(task), spelling.value) > 0 or instr(lower(name), spelling.value) > 0
      or length(spelling.value) >= 6 and (instr(digest, spelling.value) > 0 or session = spelling.value)))
order by id desc limit :limit;

-- name: episode_of
select digest, name, session, task, outcome, state, tries, error, at, length(record) as chars,
       case when length(record) <= :most then record else '{}' end as record from episode
where tenant = :tenant and project = :project and digest between :digest and :digest || 'g' order by digest limit 1;

-- name: check_names
-- Under which name a check reports in loops of a memory key, as the rules have it that this check alone may find.
select own.value as own, min(l.error_type) as reported
from cause c join lesson l on l.tenant = c.tenant and l.project = c.project and l.kind = c.kind and l.signature = c.signature
cross join json_each(c.checks) as own
where c.tenant = :tenant and c.project = :project and c.memory_key = :key and c.memory_key <> '' and c.checks not like '%,%'
group by own.value having count(distinct l.error_type) = 1 limit :limit;

-- name: passed_of_key
-- The newest loop with a memory key that passed, as a check judged it, of the newest loops.
select id, briefing from (select n, id, kind, state, memory_key, briefing from loop where tenant = :tenant and project = :project
                order by n desc limit :window) as loop
where memory_key = :key and kind <> 'run' and {shown_state} = 'passed' order by n desc limit 1;

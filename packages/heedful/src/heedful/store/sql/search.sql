-- part: passes
(:kind = '[]' or l.kind in (select value from json_each(:kind))) and (:error_type = '' or l.error_type = :error_type)
and l.importance >= :importance and e.at >= :since
and (:tags = '[]' or :least <= (select count(distinct value) from json_each(l.tags)
                                where value in (select value from json_each(:tags))))

-- part: ended
-- Whether what a lesson is about has worked since it failed: the names that its errors say, or else every call; if something
-- put it right, in a later run. What a step put right works because of the step.
l.evidence in ('once', 'failed run', 'put right') and l.mistake not like '%"kind": "step"%' and 0 < coalesce((
  select coalesce(min(case when w.kind = 'name' then w.worked end), min(w.worked)) from (
    select f.kind, coalesce(s.at, 0) - case when l.mistake like '%"fix": {%' then max(f.failed, coalesce(r.at, f.failed)) else f.failed end as worked
    from call_failure f
    left join call_success s on s.tenant = f.tenant and s.project = f.project and s.digest = f.digest
    left join learnt r on r.tenant = f.tenant and r.project = f.project and r.source = f.source
    where f.kind in ('name', 'call', 'command') and f.lesson_id in (
      select l.id union select r.id from link k join lesson r on r.tenant = k.tenant and r.project = k.project
        and k.parent = r.kind || '/' || r.signature
      where k.tenant = l.tenant and k.project = l.project and k.child = l.kind || '/' || l.signature and k.relation = 'strategy')
  ) w
), 0)

-- name: read_corpus
-- In the index, the words of the scope begin with `mark`.
select /*sqlite 's' || place || 'x' *//*postgres scope */ as mark, scope, texts, length /*sqlite , changed */
from corpus where scope = :scope;

-- name: filtered
select e.id
from lesson l join example e on e.lesson_id = l.id
where l.tenant = :tenant and l.project = :project and e.indexed and {passes};

-- name: read_examples
-- If the text of a lesson is withheld, `text` is the text that came with the example. The example `author` wrote `text`. Tags, importance and what was drawn from a run are those
-- of the lesson if the example speaks for it. `waiting` is "quarantined" to read examples in quarantine, too, and "retired"
-- to read those of retired lessons.
select e.id, e.lesson_id, e.record, e.words, e.at, e.memory_key, l.kind, e.state, l.seen, l.last_seen, l.signature, l.useful, l.error_type,
       case when l.pinned or l.trust = 'user' then '[]' else l.unfit_for end as unfit_for,
       e.trust, e.released_by, e.released_at, case when (l.author = e.id or not l.unreviewed and e.state <> 'quarantined') then l.text else e.lesson end as text,
       case when (l.author = e.id or not l.unreviewed and e.state <> 'quarantined') then l.tags else '[]' end as tags,
       case when (l.author = e.id or not l.unreviewed and e.state <> 'quarantined') then l.importance else 0.5 end as importance,
       l.evidence, {ended} as has_ended, (l.author = e.id or not l.unreviewed and e.state <> 'quarantined') and l.is_correction as is_correction,
       case when (l.author = e.id or not l.unreviewed and e.state <> 'quarantined') then l.run else '' end as run,
       case when (l.author = e.id or not l.unreviewed and e.state <> 'quarantined') then l.data else '{}' end as data, v.data as vector,
       case when (l.author = e.id or not l.unreviewed and e.state <> 'quarantined') then l.author else e.id end as author,
       {passes} as passes,
       e.memory_key = :memory_key and exists (select 1 from cause where tenant = :tenant and project = :project and memory_key = :memory_key) as own
from json_each(:ids) i cross join example e cross join lesson l
     left join vector v on v.example = e.id and v.space = :space
where e.id = i.atom and l.id = e.lesson_id
  and l.tenant = :tenant and l.project = :project and (e.indexed or e.state = :waiting or :waiting = 'retired' and l.state = 'retired');

-- name: retired
-- The newest examples of retired lessons, by the index lesson_useful: `state = 'retired'` would keep SQLite from its expression.
select e.id from lesson l join example e on e.lesson_id = l.id
where l.tenant = :tenant and l.project = :project and l.pinned = false and l.state <> 'superseded'
  and case l.state when 'quarantined' then 0 when 'unverified' then 2 when 'verified' then 2 else 1 end = 1
  and e.state in ('unverified', 'verified')
order by e.id desc limit :most;

-- name: brief_errors
-- The errors of so many :sessions since, those first that cost most calls, each with the lesson about it.
select g.sessions, g.calls, g.failed, l.id, l.text, l.state, l.trust, l.pattern, l.mistake, {ended} as has_ended
from (
  select tenant, project, digest as signature, count(*) as sessions, cast(sum(calls) as bigint) as calls, max(failed) as failed
  from call_failure where tenant = :tenant and project = :project and at >= :since and kind = 'error'
  group by tenant, project, digest having count(*) >= :sessions) as g
join lesson l on l.tenant = g.tenant and l.project = g.project and l.signature = g.signature and l.kind = 'reflection'
order by g.calls desc, g.sessions desc, l.id limit :limit;

-- name: memory_keys
select memory_key from cause where tenant = :tenant and project = :project
union
select memory_key from loop where tenant = :tenant and project = :project and memory_key <> ''
union
select memory_key from example where scope = :scope and memory_key <> '';

-- name: by_cause
-- The rules of a memory key, then those that other keys broke under the checks :check_ids, each with the lesson that has
-- its words: its own, or the one that superseded it. How long loops of another key have kept a rule says nothing here.
with recursive line (memory_key, rule, kind, signature) as (
  select memory_key, rule, kind, signature from cause
  where tenant = :tenant and project = :project and memory_key = :memory_key
  union
  select c.memory_key, c.rule, c.kind, c.signature from json_each(:check_ids) i cross join cause c /*sqlite indexed by cause_check */
  where c.tenant = :tenant and c.project = :project and c.check_id = i.value and c.check_id <> ''
  union
  select memory_key, rule, substr(parent, 1, instr(parent, '/') - 1), substr(parent, instr(parent, '/') + 1)
  from line join link k on k.child = kind || '/' || signature
  where k.tenant = :tenant and k.project = :project and k.relation = 'became'
)
select c.memory_key, c.rule, c.checks, c.check_id, c.severity, c.fix, c.loops, c.mended,
       case when c.memory_key = :memory_key then c.quiet else 0 end as quiet, e.memory_key as example_key, e.id, l.id as lesson_id, e.record, l.kind,
       l.state, l.seen, l.last_seen, l.importance, c.at, l.error_type, case when l.unreviewed then e.lesson else l.text end as text,
       case when l.unreviewed then e.id else l.author end as author, l.tags, l.signature, l.useful, l.trust, l.released_by, l.released_at, l.evidence, false as has_ended, l.is_correction, l.run, l.data,
       case when l.pinned or l.trust = 'user' then '[]' else l.unfit_for end as unfit_for
from line p cross join cause c cross join lesson l cross join example e
where c.tenant = :tenant and c.project = :project and c.memory_key = p.memory_key and c.rule = p.rule
and l.tenant = :tenant and l.project = :project and l.kind = p.kind and l.signature = p.signature
and l.state in ('unverified', 'verified') and e.id = coalesce(
  (select min(id) from example where lesson_id = l.id and indexed and state = l.state and memory_key = :memory_key),
  (select min(id) from example where lesson_id = l.id and indexed and state = l.state),
  (select min(id) from example where lesson_id = l.id and indexed))
order by case when c.memory_key = :memory_key then 0 else 1 end, c.loops * c.severity desc, c.at desc, c.rule limit 50;

-- name: sightings_of_rules
-- The newest examples of each lesson, the one that has its words, and the newest of the key: the same mistake may have
-- other words. Examples that are not searched wait or were taken out.
select e.id, e.lesson_id, e.record, e.lesson, l.error_type
from example e join lesson l on l.id = e.lesson_id
where e.id in (
  select x.id from json_each(:ids) i join example x on x.id in (
    select id from example where lesson_id = cast(i.value as bigint) and indexed order by id desc limit :most)
  union select author from lesson where id in (select cast(value as bigint) from json_each(:ids))
  union select newest.id from (
    select id, memory_key from example where scope = :scope and indexed order by at desc, id desc limit :recent
  ) newest where newest.memory_key = :memory_key)
order by e.id desc;

-- name: count_spaces
select coalesce(v.space, '') as space, count(*) as n
from example e left join vector v on v.example = e.id
where e.scope = :scope and e.indexed and trim(e.task, :blank) <> ''
group by 1;

-- name: unplaced
-- Ordered by id, so that batches read each example once.
select e.id, e.task
from example e left join vector v on v.example = e.id
where e.scope = :scope and e.indexed and e.at >= :since and e.id > :after
  and trim(e.task, :blank) <> '' and (v.example is null or v.space <> :space)
order by e.id limit :limit;

-- PostgreSQL also stores each vector as a halfvec. The text of a comment that begins with `postgres` runs there only.

-- name: place
insert into vector (example, tenant, project, space, data /*postgres , near, indexed */)
select e.id, :tenant, :project, :space, :data /*postgres , cast(cast(:near as text) as halfvec), e.indexed */
from example e join lesson l on l.id = e.lesson_id
where e.id = :id and e.task = :task and l.tenant = :tenant and l.project = :project
on conflict (example) do update set space = excluded.space, data = excluded.data /*postgres , near = excluded.near */
where vector.space <> excluded.space or vector.data <> excluded.data;

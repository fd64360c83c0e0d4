-- name: material
-- The lessons that may be recalled. `held` is true if an example is in quarantine. The failure that a strategy is about is that of the reflection to which it is linked.
select l.id, l.kind, l.signature, l.text, l.state, l.trust, l.pinned, l.mistake,
       l.first_seen, l.last_seen, l.evidence = 'put right' as mended, l.run,
       coalesce((select max(substr(k.parent, length('reflection/') + 1)) from link k
                 where k.tenant = l.tenant and k.project = l.project and k.child = l.kind || '/' || l.signature
                   and k.relation = 'strategy'), '') as failure,
       exists (select 1 from example where lesson_id = l.id and state = 'quarantined') as held
from lesson l
where l.tenant = :tenant and l.project = :project and l.state in ('unverified', 'verified')
order by l.kind, l.signature;

-- name: runs_of_lessons
-- The runs in which lessons in use were seen: a loop or an episode, or else the sighting itself.
select distinct o.lesson_id as lesson_id,
       case when o.loop <> '' then 'loop:' || o.loop when o.source like 'episode:%' then o.source
            else 'sighting:' || o.id end as run
from (
  select x.id, x.lesson_id, x.loop, x.source from occurrence x join lesson l on l.id = x.lesson_id
  where l.tenant = :tenant and l.project = :project and l.state in ('unverified', 'verified')
  order by x.id desc limit :limit
) as o;

-- name: unchanged
-- The lesson, if it has not changed since the dream began.
select 1 from lesson l
where l.tenant = :tenant and l.project = :project and l.kind = :kind and l.signature = :signature and l.id = :id
  and l.text = :text and l.trust = :trust and l.state in ('unverified', 'verified')
  and (not :member or not l.pinned)
  and not exists (select 1 from example where lesson_id = l.id and state = 'quarantined');

-- name: read_dreams
-- The dream :dream, or all dreams older than :before; null means any. A ruling says when one was `undone`.
select id, record as report, by, at, (
  select at from ruling
  where tenant = :tenant and project = :project and subject = 'dream/' || dream.id and action = 'rollback'
) as undone
from ruling as dream
where tenant = :tenant and project = :project and subject = 'dream' and action = 'dream'
  and (cast(:dream as bigint) is null or id = :dream)
  and (cast(:before as bigint) is null or id < :before)
order by id desc limit :limit;

-- name: superseded_later
-- The last dream that superseded a lesson of this dream, or a reflection that it wrote.
select later.dream, later.child from link k join link later
  on later.tenant = k.tenant and later.project = k.project
  and (later.child = k.child or later.child = k.parent and k.relation = 'became')
where k.tenant = :tenant and k.project = :project and k.relation in ('became', 'cites') and k.dream = :dream
  and later.relation = 'became' and later.dream > :dream
order by later.dream desc limit 1;

-- name: undo_dream
-- A trigger restores each lesson that still exists.
delete from link where tenant = :tenant and project = :project and relation = 'became' and dream = :dream
returning exists (
  select 1 from lesson r where r.tenant = :tenant and r.project = :project
    and r.kind = substr(child, 1, instr(child, '/') - 1) and r.signature = substr(child, instr(child, '/') + 1)
) as back;

-- name: became_one
-- The signatures of the lessons that superseded these lessons, and of all lessons that they superseded.
with recursive above (name) as (
  select k.value || '/' || s.value from json_each(:kinds) k, json_each(:members) s
  union
  select k.parent from link k join above on k.child = above.name
  where k.tenant = :tenant and k.project = :project and k.relation = 'became'
),
below (name) as (
  select name from above
  union
  select k.child from link k join below on k.parent = below.name
  where k.tenant = :tenant and k.project = :project and k.relation = 'became'
)
select distinct substr(name, instr(name, '/') + 1) as signature from below
where substr(name, instr(name, '/') + 1) not in (select value from json_each(:members));

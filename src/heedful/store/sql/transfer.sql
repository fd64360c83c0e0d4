-- name: export_spaces
select space, count(*) as n from vector where tenant = :tenant and project = :project group by space order by space;

-- name: export_lessons
select id, kind, signature, error_type, pattern, text, tags, state, trust, importance, source, pinned, apart, useful,
       seen, helped, hurt, first_seen, last_seen, last_shown, author, meta,
       (select count(*) from occurrence where reflection = l.id) as listed
from reflection l where tenant = :tenant and project = :project
order by kind, signature;

-- name: export_examples
select e.id, e.digest, e.lesson, e.state, e.trust, e.at, e.task, e.record, e.words, v.space, v.data
from example e left join vector v on v.example = e.id
where e.reflection = :reflection
order by e.digest;

-- name: export_origins
select source from origin where example = :example order by source;

-- name: export_sightings
select at, loop, text, source, trust, parents from occurrence where reflection = :reflection order by at;

-- name: export_lineage
select e.id, l.kind, l.signature, e.digest, e.lesson
from example e join reflection l on l.id = e.reflection
where l.tenant = :tenant and l.project = :project and e.id in (select child from lineage)
order by l.kind, l.signature, e.digest;

-- name: rested_on
-- What an example that is gone came from, through others that are gone.
with recursive before (id) as (
  select cast(:example as bigint)
  union select x.parent from lineage x join before b on x.child = b.id
  where not exists (select 1 from example where id = b.id)
)
select b.id, e.id as there, o.source
from before b left join example e on e.id = b.id left join origin o on o.example = b.id and e.id is null;

-- name: example_name
select l.kind, l.signature, e.digest, e.lesson
from example e join reflection l on l.id = e.reflection
where e.id = :example and l.tenant = :tenant and l.project = :project;

-- name: export_loops
select loop, min(at) as at from exposure where tenant = :tenant and project = :project
group by loop;

-- name: export_exposures
select kind, signature, shown, share, together, examples, at from exposure
where tenant = :tenant and project = :project and loop = :loop
order by kind, signature;

-- name: export_outcome
select right_at_once, calls, signatures, at from outcome
where tenant = :tenant and project = :project and loop = :loop;

-- name: export_rulings
select distinct at, action, subject, by, why, record from ruling
where tenant = :tenant and project = :project and action <> 'import';

-- name: find_lesson
select id, text, state, trust, seen, first_seen, last_seen, last_shown, pinned, apart,
       (select count(*) from occurrence where reflection = l.id) as listed
from reflection l
where tenant = :tenant and project = :project and kind = :kind and signature = :signature;

-- name: import_lesson
insert into reflection (tenant, project, kind, signature, error_type, pattern, text, tags, state, trust, importance,
                        source, pinned, apart, useful, seen, helped, hurt, first_seen, last_seen, last_shown, author, meta)
values (:tenant, :project, :kind, :signature, :error_type, :pattern, :text, :tags, :state, :trust, :importance,
        :source, :pinned, :apart, :useful, :seen, :helped, :hurt, :first_seen, :last_seen, :last_shown, 0, :meta);

-- name: merge_lesson
update reflection
set seen = :seen, first_seen = :first_seen, last_seen = :last_seen, last_shown = :last_shown,
    pinned = :pinned, apart = :apart, state = :state
where id = :reflection;

-- name: raise_lesson
update reflection
set text = :text, trust = :trust, state = :state, source = :source, tags = :tags, importance = :importance, author = 0,
    meta = :meta,
    useful = case when text <> :text then 1 else useful end
where id = :reflection;

-- name: find_examples
select e.id, e.digest, e.lesson, e.state, e.trust
from example e join reflection l on l.id = e.reflection
where l.tenant = :tenant and l.project = :project and l.kind = :kind and l.signature = :signature
  and e.digest in ('lesson', :digest);

-- name: make_author
update reflection set author = :example where id = :reflection and coalesce(author, 0) = 0;

-- name: count_same_sightings
select count(*) as n from occurrence
where reflection = :reflection and at = :at and loop = :loop and text = :text;

-- name: count_imported
update reflection set seen = seen + :n where id = :reflection;

-- name: is_of
select 1 from origin where example = :example and source = :source;

-- name: derive
insert into lineage (child, parent) select :example, :parent where cast(:example as bigint) <> :parent
on conflict do nothing;

-- name: find_gone
-- The examples that are gone, and rest on that source or derive from that example.
select distinct o.example as id from origin o
where o.scope = :scope and (o.source = :source or o.example in (select child from lineage where parent = :parent))
  and not exists (select 1 from example where id = o.example);

-- name: find_told
select min(at) as at from exposure
where tenant = :tenant and project = :project and loop = :loop
group by loop;

-- name: find_ruling
select record from ruling
where tenant = :tenant and project = :project and subject = :subject and action = :action and by = :by and why = :why
  and (at = :now or action = 'import');

-- name: export_links
-- What took the place of a lesson is told of lessons that are gone, too.
with there (name) as (
  select kind || '/' || signature from reflection where tenant = :tenant and project = :project
)
select child, relation, parent, at from link
where tenant = :tenant and project = :project and relation in ('became', 'strategy')
  and (relation = 'became' or child in (select name from there) and parent in (select name from there));

-- name: import_link
-- Nothing takes the place of what is not superseded here, nor of what another lesson took.
insert into link (tenant, project, child, relation, parent, at)
select :tenant, :project, :child, :relation, :parent, :now
where (:source = '' or 2 = (
        select count(*) from reflection
        where tenant = :tenant and project = :project and source = :source
          and kind || '/' || signature in (:child, :parent)))
  and (:relation <> 'became' or not exists (
        select 1 from reflection
        where tenant = :tenant and project = :project and kind || '/' || signature = :child and state <> 'superseded')
      and not exists (
        select 1 from link
        where tenant = :tenant and project = :project and child = :child and relation = 'became'))
on conflict do nothing;

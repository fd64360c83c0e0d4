-- name: export_lessons
select id, kind, signature, error_type, pattern, text, tags, state, trust, importance, source, pinned, apart, useful,
       seen, first_seen, last_seen, last_shown, author, meta
from reflection where tenant = :tenant and project = :project
order by kind, signature;

-- name: export_examples
select e.id, case when e.digest like 'lesson%' then 'lesson' else e.digest end as digest, e.id = :author as author,
       e.lesson as text, e.state, e.trust, e.at, e.record as example, e.words
from example e where e.reflection = :reflection;

-- name: export_rulings
select at, action, subject, by, why, record from ruling
where tenant = :tenant and project = :project and action <> 'import';

-- name: export_links
-- A link to a successor is exported even if the lesson itself is deleted.
with there (name) as (
  select kind || '/' || signature from reflection where tenant = :tenant and project = :project
)
select child, relation, parent, at from link
where tenant = :tenant and project = :project and relation in ('became', 'strategy')
  and (relation = 'became' or child in (select name from there) and parent in (select name from there));

-- name: merge_lesson
-- A new lesson has no author yet.
update reflection
set seen = max(seen, :seen), first_seen = min(first_seen, :first_seen), last_seen = max(last_seen, :last_seen),
    last_shown = max(last_shown, :last_shown), pinned = pinned or :pinned, apart = apart or :apart,
    useful = case when :new then :useful else useful end,
    author = coalesce(author, 0)
where id = :reflection;

-- name: make_author
update reflection set author = :example where id = :reflection and coalesce(author, 0) = 0;

-- name: count_imported
update reflection set seen = max(seen, (select count(*) from occurrence where reflection = :reflection))
where id = :reflection;

-- name: find_rulings
select record from ruling
where tenant = :tenant and project = :project and subject = :subject and action = :action and by = :by and why = :why
  and (at = :at or action = 'import');

-- name: import_link
-- A lesson gets a successor only if it is superseded in this store and has no successor.
insert into link (tenant, project, child, relation, parent, at)
select :tenant, :project, :child, :relation, :parent, :at
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

-- name: begin_anew
-- What a proof found was about the words that were there: of other ones by an operator, and of those that a measured
-- outcome gives to what is not retired, it says nothing. Of words that are gone the ruling has the digest.
with newest (action, digest, at) as (
  select action, json_extract(record, '$.digest'), at from ruling
  where tenant = :tenant and project = :project and subject = :kind || '/' || :signature
    and action in ('retire', 'restore')
  order by at desc, id desc limit 1
),
known (replaced, shown) as (
  select trust not in ('operator', 'measured') and text <> :text, last_shown from reflection
  where tenant = :tenant and project = :project and kind = :kind and signature = :signature
)
insert into ruling (tenant, project, action, subject, by, why, at)
select :tenant, :project, 'restore', :kind || '/' || :signature,
       case when :source <> '' then :source else :trust end, 'other words took its place',
       -- Later than all that, though a clock was set back.
       max(:now, max(coalesce((select at + 0.000001 from newest), 0), coalesce((select shown from known), 0)))
where case
  when not exists (select 1 from newest where action = 'retire') then (select replaced and shown > 0 from known)
  when :trust = 'operator' then coalesce((select replaced from known), (select digest <> :mark from newest))
end;

-- name: upsert_reflection
insert into reflection (tenant, project, kind, signature, pattern, error_type, text, tags, state, trust,
                    importance, source, pinned, apart, meta, first_seen, last_seen)
values (:tenant, :project, :kind, :signature, :pattern, :error_type, :text, :tags,
        -- What a proof retired stays so where the lesson was evicted or pruned meanwhile, or is raised.
        case when :state in ('candidate', 'verified') and 'retire' = (
               select action from ruling
               where tenant = :tenant and project = :project and subject = :kind || '/' || :signature
                 and action in ('retire', 'restore')
               order by at desc, id desc limit 1) then 'retired' else :state end,
        :trust, :importance, :source, :pinned,
        -- A pattern that was kept apart stays so where its lesson was evicted or pruned meanwhile.
        coalesce((select action = 'unmerge' from ruling
                  where tenant = :tenant and project = :project and subject = :signature
                    and action in ('unmerge', 'remerge')
                  order by at desc, id desc limit 1), false),
        :meta, :now, :now)
on conflict (tenant, project, kind, signature) do update
set seen = reflection.seen + 1, last_seen = max(reflection.last_seen, excluded.last_seen),
    -- Only an operator or a measured outcome raises it (heedful.memory.trust), and then all of it is theirs.
    state = case when reflection.trust not in ('operator', 'measured') and excluded.trust in ('operator', 'measured')
                 then excluded.state
                 when reflection.state = 'candidate' and excluded.state = 'verified' and excluded.trust in ('operator', 'measured')
                 then 'verified' else reflection.state end,
    useful = case when reflection.trust not in ('operator', 'measured') and excluded.trust in ('operator', 'measured')
                  and reflection.text <> excluded.text then 1 else reflection.useful end,
    (trust, text, source, tags, importance, meta, author) = (
      select excluded.trust, excluded.text, excluded.source, excluded.tags, excluded.importance, excluded.meta, null
      where reflection.trust not in ('operator', 'measured') and excluded.trust in ('operator', 'measured')
      union all
      select reflection.trust, reflection.text, reflection.source, reflection.tags, reflection.importance, reflection.meta, reflection.author
      where not (reflection.trust not in ('operator', 'measured') and excluded.trust in ('operator', 'measured'))
    ),
    pinned = reflection.pinned or excluded.pinned
returning id, seen, text, trust, author, state, tags;

-- name: set_tags
update reflection set tags = :tags where id = :reflection;

-- name: insert_occurrence
insert into occurrence (reflection, loop, text, source, trust, parents, at)
values (:reflection, :loop, :text, :source, :trust, :parents, :now);

-- name: verify_example
update example set state = 'verified'
where reflection = :reflection and digest = :digest and state = 'candidate'
  and :state = 'verified' and :trust in ('operator', 'measured');

-- name: top_reflections
select id, kind, signature, case when trust in ('tool', 'external') then '' else pattern end as pattern, error_type,
       case when trust in ('tool', 'external') then '' else text end as text,
       case when trust in ('tool', 'external') then '[]' else tags end as tags,
       state, trust, importance, seen, source, pinned, apart, useful, helped, hurt, first_seen, last_seen, last_shown,
       (select count(*) from example e where e.reflection = reflection.id and e.digest <> 'lesson') as examples
from reflection where tenant = :tenant and project = :project
order by seen desc, last_seen desc, id limit :limit;

-- name: list_reflections
with visible as (
  select id, kind, signature, error_type, state, trust, importance, seen, source, pinned, apart, useful, helped, hurt,
         first_seen, last_seen, last_shown,
         case when trust in ('tool', 'external') then '' else pattern end as pattern,
         case when trust in ('tool', 'external') then '' else text end as text,
         case when trust in ('tool', 'external') then '[]' else tags end as tags,
         case when trust in ('tool', 'external') then '{}' else meta end as meta
  from reflection where tenant = :tenant and project = :project and id < :before
)
select * from visible
where (:kind = '' or kind = :kind) and (:error_type = '' or error_type = :error_type)
  and (:state = '' or state = :state)
  and (:tag = '' or exists (select 1 from json_each(tags) where value = :tag))
order by id desc limit :limit;

-- name: count_reflections
select coalesce(sum(lessons), 0) as n from tally where tenant = :tenant and project = :project;

-- name: clear_reflections
delete from reflection where tenant = :tenant and project = :project;

-- name: expired_loops
-- The loops that ended before a time, and changed last from :after to :until: how many, when the first and the last of
-- them did, and with :lists the numbers of their rows. A run goes with its stages, once
-- all of them ended; a stage never goes alone. A loop stays whose row a proof reads: it was shown lessons, or they were
-- withheld, and it has no outcome, or it has a ladder and its outcome is more than a :day late.
with witness as not materialized (
  select x.loop, o.loop is not null as ended from exposure x left join outcome o using (tenant, project, loop)
  where x.tenant = :tenant and x.project = :project and (o.loop is null and x.share > 0 or o.at > x.at + :day)
), first as (
  select l.n, l.id, l.kind, l.updated from loop l
  where l.tenant = :tenant and l.project = :project
    and l.updated < :before and l.updated between :after and :until and l.state <> 'open' and l.kind <> 'stage'
    and not exists (select 1 from witness w where w.loop = l.id and (not w.ended or l.ladder <> ''))
    and (l.kind <> 'run' or not exists (
      select 1 from loop s
      where s.tenant = :tenant and s.project = :project and s.id > l.id || '/' and s.id < l.id || '0' and s.run = l.id
        and (s.state = 'open' or s.updated >= :before or exists (
          select 1 from witness w where w.loop = s.id and (not w.ended or s.ladder <> '')))
    ))
  order by l.updated limit :limit
), expired as (
  select n, updated from first
  union all
  select s.n, s.updated from first r join loop s
    on s.tenant = :tenant and s.project = :project and s.id > r.id || '/' and s.id < r.id || '0' and s.run = r.id
  where r.kind = 'run'
)
select count(*) as loops, (select min(updated) from first) as earliest, (select max(updated) from first) as latest, coalesce(/*postgres string_agg *//*sqlite group_concat */ (cast(n as text), ',') filter (where :lists = 1), '') as numbers from expired;

-- name: remove_notes
-- What hosts noted about attempts of these loops.
delete from note where tenant = :tenant and project = :project and loop in (
  select id from loop /*sqlite not indexed */ where tenant = :tenant and project = :project and n in (select atom from json_each(:numbers))
);

-- name: remove_loops
-- All else that belongs to a loop goes with its row.
delete from loop /*sqlite not indexed */ where tenant = :tenant and project = :project and n in (select atom from json_each(:numbers))
  and state <> 'open' and updated < :before;

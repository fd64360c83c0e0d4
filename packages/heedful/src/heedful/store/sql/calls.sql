-- name: fail_call
-- A later failure of the same run replaces what it said.
insert into call_failure (tenant, project, digest, source, kind, name, tool, word, error, origin, lesson_id, calls, failed, at)
values (:tenant, :project, :digest, :source, :kind, :name, :tool, :word, :error, :origin, :lesson_id, :calls, :failed, :at)
on conflict (tenant, project, digest, source) do update set error = excluded.error, origin = excluded.origin,
  lesson_id = coalesce(excluded.lesson_id, call_failure.lesson_id), calls = max(excluded.calls, call_failure.calls),
  failed = max(excluded.failed, call_failure.failed), at = excluded.at;

-- name: pass_calls
insert into call_success (tenant, project, digest, at)
select :tenant, :project, value, :at from json_each(:digests) where true
on conflict (tenant, project, digest) do update set at = max(excluded.at, call_success.at);

-- name: failures_of_call
-- The runs in which calls with these marks failed, the newest first; a name or a path that ever worked has none. They
-- have worked `since`: 1 in the run that failed, until it was last learnt, and 2 in a later one.
select f.digest, f.source, f.kind, f.name, f.tool, f.error, f.origin, f.lesson_id, f.failed,
       case when s.at is null or f.failed > s.at then 0 when s.at <= r.at then 1 else 2 end as since, r.at as learnt
from call_failure f left join call_success s on s.tenant = f.tenant and s.project = f.project and s.digest = f.digest
left join learnt r on r.tenant = f.tenant and r.project = f.project and r.source = f.source
where f.tenant = :tenant and f.project = :project and f.digest in (select value from json_each(:digests))
  and (s.at is null or f.kind not in ('name', 'path'))
order by f.failed desc, f.source desc;

-- name: may_speak
-- Whether memory may have something to say about a call with these words, and this text in lower case. What can never be
-- told is left out: what the reader was told or met, a name or a path that ever worked, and a call that has worked
-- since, but for one that needs a step before it. The words of a rule that was edited are not known. Only a hook on
-- SQLite asks: PostgreSQL says yes if there is a rule.
select 1 as n where exists (
  select 1 from call_failure f
  where f.tenant = :tenant and f.project = :project and f.word <> '' and f.word in (select value from json_each(:words))
    and not exists (
      select 1 from session_mark m where m.tenant = :tenant and m.project = :project and m.session = :reader
        and m.mark in ('told ' || f.digest, 'met ' || f.digest)
    ) and not exists (
      select 1 from call_success s where s.tenant = :tenant and s.project = :project and s.digest = f.digest
        and (f.kind in ('name', 'path') or f.kind <> 'contract' and f.failed <= s.at and not exists (
          select 1 from lesson l where l.id = f.lesson_id and l.mistake like '%"step"%'
        ))
    )
) or exists (
  select 1 from hardened h join lesson l on l.id = h.lesson_id
  where h.tenant = :tenant and h.project = :project and h.state = 'accepted' and h.kind = 'call'
    and lower(trim(l.error_type)) in (select value from json_each(:words))
) or exists (
  select 1 from lesson l where l.tenant = :tenant and l.project = :project and l.error_type = 'user rule'
    and not l.unreviewed and l.kind = 'reflection' and l.state in ('unverified', 'verified')
    and (/*sqlite json_extract(l.data, '$.said') is not l.text or exists ( *//*postgres :text <> '' or exists ( */
      select 1 from /*sqlite json_each(l.data, '$.triggers') *//*postgres json_each('[]') */ t
      where t.value in (select value from json_each(:words))
        /*sqlite or t.value glob '*[^a-z0-9_]*' and instr(:text, t.value) */
    ))
);

-- name: brief_calls
-- What failed in several runs since and has not worked since, what cost most calls first, each with the newest error. A
-- contract is broken again and again although it was kept in between.
select g.kind, g.name, g.tool, g.sessions, g.calls, g.failed, n.error, n.origin, n.lesson_id
from (
  select digest, kind, name, tool, count(*) as sessions, cast(sum(calls) as bigint) as calls, max(failed) as failed
  from call_failure where tenant = :tenant and project = :project and at >= :since and kind <> 'error'
  group by digest, kind, name, tool having count(*) > 1) as g
join call_failure n on n.tenant = :tenant and n.project = :project and n.digest = g.digest and n.failed = g.failed
left join call_success s on s.tenant = :tenant and s.project = :project and s.digest = g.digest
where g.kind = 'contract' or s.at is null or g.kind in ('call', 'command') and g.failed > s.at
order by g.calls desc, g.sessions desc, g.digest, n.source limit :limit;

-- name: take_episode
-- Claim the oldest unclaimed episode that was not tried since :before. A try in the future, of a wrong clock, does not count.
update episode set state = 'waiting', tries = tries + 1, taken = :now
where id = (
  select id from episode
  where tenant = :tenant and project = :project and state <> 'reflected' and (:digest = '' or digest = :digest)
    and not taken between :before and :now + :lease and (:digest <> '' or record <> '{}')
    and not (state = 'waiting' and taken between :now - :lease and :now + :lease)
  order by at, id limit 1
)
returning digest, name, session, outcome, state, tries, error, record, via, at;

-- name: episodes_left
-- The waiting episodes that nobody claimed, and with :failed the failed ones, oldest first.
select digest from episode
where tenant = :tenant and project = :project and state <> 'reflected' and (:failed or state = 'waiting') and record <> '{}'
  and not (state = 'waiting' and taken between :now - :lease and :now + :lease)
order by at, id limit :limit;

-- name: forget_record
-- Empty an episode whose lessons were revoked. Its state stays, so that no worker reflects on it again.
update episode set record = '{}', name = '', session = '', error = '', task = ''
where tenant = :tenant and project = :project and state = 'reflected' and 'episode:' || substr(digest, 1, 16) = :source;

-- name: settle_episode
-- Give an episode its state after reflecting. One that has its lessons stays as it is.
update episode set state = :state, error = :error, taken = case when :state = 'waiting' then 0 else taken end
where tenant = :tenant and project = :project and digest = :digest and state <> 'reflected'
returning id;

-- name: list_episodes
-- The episodes in one state, or in any if it is empty, that are older than the episode :cursor.
select digest, name, session, outcome, state, tries, error, case when :whole then record else '{}' end as record, via, at
from episode
where tenant = :tenant and project = :project and (:state = '' or state = :state)
  and (:cursor = '' or id < (select id from episode where tenant = :tenant and project = :project and digest = :cursor))
order by id desc limit :limit;

-- name: known_examples
select digest from example where scope = :scope and digest in (select value from json_each(:digests));

-- name: upsert_trace
-- Add the new spans to the row of their trace. Spans of different trust make it external; via lists the keys once each.
insert into trace (tenant, project, id, trust, spans, known, bytes, rooted, via, last)
values (:tenant, :project, :trace, :trust, :spans, :known, :bytes, :root, :via, :now)
on conflict (tenant, project, id) do update
set trust = case when trace.trust = excluded.trust then trace.trust else 'outside' end,
    spans = trace.spans + excluded.spans, known = trace.known + excluded.known, bytes = trace.bytes + excluded.bytes,
    rooted = trace.rooted or excluded.rooted, last = excluded.last,
    via = case when instr(' ' || trace.via || ' ', ' ' || excluded.via || ' ') > 0 then trace.via
               else trim(trace.via || ' ' || excluded.via) end;

-- name: ended_traces
-- A trace has ended some time after its root span, or after a longer time without a root span.
select id, spans, trust, via, last from trace
where tenant = :tenant and project = :project and state = 'open' and (last <= :ending or rooted and last <= :settled)
order by last, id limit 100;

-- name: forget_traces
-- After this, late spans begin a new trace.
delete from trace where tenant = :tenant and project = :project and state = 'done' and last < :known;

-- name: raise_importance
update lesson set importance = max(importance, :least) where id = :id;

-- name: brief_since
-- When the newest of the last :sessions sessions were stored, and how many there are.
select min(at) as since, count(*) as sessions from (
  select at from learnt where tenant = :tenant and project = :project and steps > 0
  order by at desc limit :sessions) as newest;

-- name: read_marks
select mark from session_mark
where tenant = :tenant and project = :project and session = :session and mark in (select value from json_each(:marks));

-- name: forget_readers
delete from session_mark
where tenant = :tenant and project = :project and (session = :session or substr(session, 1, length(:agents)) = :agents);

-- name: forget_marks
delete from session_mark
where tenant = :tenant and project = :project and session = :session and not (mark >= 'past ' and mark < 'past!');

-- name: forget_pasts
-- The marks of sessions with a past older than the mark :oldest, unless the session goes on.
delete from session_mark
where tenant = :tenant and project = :project and mark >= 'past ' and mark < :oldest
  and not exists (select 1 from event e where e.tenant = :tenant and e.project = :project and e.session = session_mark.session);

-- name: pasts_of
-- The sessions with a past that belong to a key.
select distinct session from session_mark
where tenant = :tenant and project = :project and mark >= 'past ' and mark < 'past!' and substr(mark, 17) = :key;

-- name: lesson_and_rules
-- The lesson, or else the lesson that it became, and the rules of both; the newest rule is last.
with named (name) as (
  select kind || '/' || signature from lesson where id = :id
  union select k.parent from link k join lesson l on k.child = l.kind || '/' || l.signature
  where l.id = :id and k.tenant = :tenant and k.project = :project and k.relation = 'became'
)
select id, kind || '/' || signature in (select name from named) as own, text, mistake, state, trust,
       case when state = 'quarantined' or unreviewed then author else 0 end as entry
from lesson
where tenant = :tenant and project = :project and state not in ('retired', 'superseded') and signature in (
  select substr(name, instr(name, '/') + 1) from named
  union select substr(k.child, length('strategy/') + 1) from link k
  where k.tenant = :tenant and k.project = :project and k.relation = 'strategy' and k.parent in (select name from named)
)
order by own, id;

-- name: trim_events
-- Sessions give way as a whole, the one used longest ago first; of :session itself, the oldest events.
delete from event where n in (select n from (
  select n, count(*) over (order by last desc, case when session = :session then -n else 0 end) as place from (
    select n, session, max(n) over (partition by session) as last from event where tenant = :tenant and project = :project
  ) as used) as placed where place > :most)
returning session, via;

-- name: keep_calls
-- The calls of a session up to a time, before its events go, and what its agents were told of rules.
insert into past_call (tenant, project, session, type, call, ended, record, via, at)
select e.tenant, e.project, e.session, e.type, e.call, e.call <> '' and exists (
    select 1 from event r where r.tenant = :tenant and r.project = :project and r.session = :session
      and r.call = e.call and r.type = 'tool_response'), e.record, e.via, e.at
from event e where e.tenant = :tenant and e.project = :project and e.session = :session and e.at <= :until
  and e.type in ('tool_call', 'system_event')
order by e.n;

-- name: trim_past_calls
delete from past_call where tenant = :tenant and project = :project and n <= (
  select n from past_call where tenant = :tenant and project = :project order by n desc limit 1 offset :most);

-- name: recorded_calls
-- The calls of sessions, those that have ended first, and what agents were told of rules.
select session, type, call, ended, record, at from past_call where tenant = :tenant and project = :project
union all
select e.session, e.type, e.call, e.call <> '' and exists (
    select 1 from event r where r.tenant = :tenant and r.project = :project and r.session = e.session
      and r.call = e.call and r.type = 'tool_response'), e.record, e.at
from event e where e.tenant = :tenant and e.project = :project and e.type in ('tool_call', 'system_event')
order by at;

-- name: forget_events
-- What came later is of a session that was resumed.
delete from event where tenant = :tenant and project = :project and session = :session and at <= :until;

-- name: kept_calls
select type, call from event where tenant = :tenant and project = :project and session = :session
  and call in (select value from json_each(:calls));

-- name: course_of
-- Whether a call is kept: the one with its id, or without one, a call of the tool that has no result yet. And whether
-- the tool, or the action, failed when its last result came.
with had as not materialized (select * from event where tenant = :tenant and project = :project and session = :session)
select (select coalesce(sum(case when type = 'tool_call' then 1 when :call = '' and type = 'tool_response' then -1 else 0 end), 0) > 0
        from had where call = :call and (:call <> '' or tool = :tool)) as known,
       coalesce((select failed from had where tool = :tool and type = 'tool_response' order by n desc limit 1), false)
       or coalesce((select r.failed from had c join had r on r.call = c.call and r.type = 'tool_response'
                    where c.action = :action and c.call <> '' order by c.n desc limit 1), false) as failed;

-- name: tasks_done
-- The tools, in their order, and the task of the newest other runs that succeeded.
select tools, task from episode
where tenant = :tenant and project = :project and tools <> '' and outcome = 'success' and digest <> :digest and task <> ''
order by id desc limit 200;

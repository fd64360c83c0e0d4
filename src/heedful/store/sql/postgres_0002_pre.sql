-- From schema 1 to 2 for PostgreSQL: the table `reflection` is called `lesson`, a column that refers to a lesson is called
-- `lesson_id`, and the state 'candidate' of lessons and examples is called 'unverified'. Code of schema 1 cannot run on
-- it: stop the services before, and start the new ones after.

drop function reflection_added() cascade;
drop function reflection_gone() cascade;
drop function exposure_shown() cascade;
drop function reflection_changed() cascade;
drop function member_back() cascade;
drop function member_returned() cascade;

alter table reflection rename to lesson;
alter sequence reflection_id_seq rename to lesson_id_seq;
alter table occurrence rename column reflection to lesson_id;
alter table example rename column reflection to lesson_id;
alter table moved rename column lesson to lesson_id;

alter table lesson drop constraint reflection_state_check;
alter table example drop constraint example_state_check;
drop index reflection_useful;
drop trigger example_indexed on example;
drop trigger example_recounted on example;
update lesson set state = 'unverified' where state = 'candidate';
update example set state = 'unverified' where state = 'candidate';
update link set before = 'unverified' where before = 'candidate';
alter table link alter column before set default 'unverified';
-- The stored results of calls that may be repeated; -1 is an answer over HTTP, which keeps the old word.
update answer set record = replace(record, '"state": "candidate"', '"state": "unverified"') where n >= 0;
alter table lesson add constraint lesson_state_check check (state in ('unverified', 'verified', 'quarantined', 'retired', 'superseded'));
alter table example add constraint example_state_check check (state in ('unverified', 'verified', 'quarantined', 'retired', 'superseded'));
create index lesson_useful on lesson (
  tenant, project, pinned,
  (case state when 'quarantined' then 0 when 'unverified' then 2 when 'verified' then 2 else 1 end),
  useful, importance, max(last_seen, last_shown), id
);

-- A check that a lesson became: its `rule` (JSON), and `about` in words. It was executed on `failed` rejected, on
-- `passed` accepted and on `harmless` other outputs. It judges loops of its `memory_key`, or the calls of an agent. Since
-- it was `decided`, it found something `hits` times; `false_alarms` of these were wrong.
create table hardened (
  lesson_id bigint not null references lesson (id) on delete cascade,
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  project text collate "C" not null,
  memory_key text collate "C" not null default '',
  kind text collate "C" not null check (kind in ('object', 'form', 'bound', 'word', 'call')),
  rule text collate "C" not null,
  about text collate "C" not null,
  failed bigint not null default 0,
  passed bigint not null default 0,
  harmless bigint not null default 0,
  state text collate "C" not null default 'proposed' check (state in ('proposed', 'accepted', 'rejected')),
  hits bigint not null default 0,
  false_alarms bigint not null default 0,
  last_hit double precision not null default 0,
  decided double precision not null default 0,
  by text collate "C" not null default '',
  why text collate "C" not null default '',
  primary key (lesson_id)
);
create index hardened_key on hardened (tenant, project, memory_key) where state = 'accepted';

alter table hardened enable row level security;
create policy of_tenant on hardened using (tenant = (select current_setting('heedful.tenant')))
with check (tenant = (select current_setting('heedful.tenant')));

-- The texts that another memory (`source`) offered to a loop: shown, or withheld with the probability `share`. `texts` is a
-- JSON list of their digests, or of the texts if the trial keeps them; a loop that was offered none is no evidence. `score`
-- is the result of the loop in thousandths, null until it `ended`.
create table trial (
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  project text collate "C" not null,
  source text collate "C" not null,
  loop text collate "C" not null,
  shown boolean not null check (shown or share > 0),
  share double precision not null check (share >= 0 and share < 1),
  texts text collate "C" not null,
  score bigint check (score between 0 and 1000),
  via text collate "C" not null default '',
  at double precision not null,
  ended double precision,
  primary key (tenant, project, source, loop)
);
alter table trial enable row level security;
create policy of_tenant on trial using (tenant = (select current_setting('heedful.tenant')))
with check (tenant = (select current_setting('heedful.tenant')));

-- What calls take for granted has another digest: it is learnt anew.
drop table action;

-- What calls of agents take for granted, by `digest`: how many calls `passed`, and how many `since` one failed because of
-- it. If one did, its `template` and its `words` (JSON) are known.
create table precondition (
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  project text collate "C" not null,
  digest text collate "C" not null,
  template text collate "C" not null default '',
  words text collate "C" not null default '[]',
  passed bigint not null default 0,
  since bigint not null default 0,
  primary key (tenant, project, digest)
);
alter table precondition enable row level security;
create policy of_tenant on precondition using (tenant = (select current_setting('heedful.tenant')))
with check (tenant = (select current_setting('heedful.tenant')));

-- A run in which a call failed because of what it took for granted: the last `error`, the lesson about it, if any, and the
-- `state` in which it failed. `source` names the run. The run lost so many `calls`; `at` is the time of storing.
create table blame (
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  project text collate "C" not null,
  digest text collate "C" not null,
  source text collate "C" not null,
  lesson_id bigint references lesson (id) on delete cascade,
  error text collate "C" not null,
  state text collate "C" not null,
  failed double precision not null,
  calls bigint not null,
  at double precision not null,
  primary key (tenant, project, digest, source)
);
create index blame_lesson on blame (lesson_id);
create index blame_source on blame (tenant, project, source);
create index blame_at on blame (tenant, project, at);
alter table blame enable row level security;
create policy of_tenant on blame using (tenant = (select current_setting('heedful.tenant')))
with check (tenant = (select current_setting('heedful.tenant')));

-- How many calls an error, by the `signature` of its line, cost a run: those that failed, and those until such a call
-- passed. `failed` is the time of the last failure, and `at` that at which it was stored.
create table loss (
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  project text collate "C" not null,
  signature text collate "C" not null,
  source text collate "C" not null,
  calls bigint not null,
  failed double precision not null,
  at double precision not null,
  primary key (tenant, project, signature, source)
);
create index loss_at on loss (tenant, project, at);
create index loss_source on loss (tenant, project, source);
alter table loss enable row level security;
create policy of_tenant on loss using (tenant = (select current_setting('heedful.tenant')))
with check (tenant = (select current_setting('heedful.tenant')));

-- What worked in the place of what a call took for granted: in an `argument`, the words `old` gave way to the words `new`
-- (JSON), last at the time `passed`. `source` names the run, `sources` (JSON) are those of the words, and the lesson is
-- about the failure. Without an argument, the digest is that of a contract of tools that the run broke.
create table substitution (
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  project text collate "C" not null,
  digest text collate "C" not null,
  source text collate "C" not null,
  lesson_id bigint references lesson (id) on delete cascade,
  argument text collate "C" not null,
  old text collate "C" not null,
  new text collate "C" not null,
  sources text collate "C" not null,
  passed double precision not null,
  primary key (tenant, project, digest, source)
);
create index substitution_lesson on substitution (lesson_id);
create index substitution_source on substitution (tenant, project, source);
alter table substitution enable row level security;
create policy of_tenant on substitution using (tenant = (select current_setting('heedful.tenant')))
with check (tenant = (select current_setting('heedful.tenant')));

-- How often calls failed again whose preconditions had a like record, a `form` (JSON): of so many that were `tested` by
-- sessions that had ended, so many `held`.
create table precondition_test (
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  project text collate "C" not null,
  form text collate "C" not null,
  held double precision not null,
  tested double precision not null,
  primary key (tenant, project, form)
);
alter table precondition_test enable row level security;
create policy of_tenant on precondition_test using (tenant = (select current_setting('heedful.tenant')))
with check (tenant = (select current_setting('heedful.tenant')));

-- How many steps of a run are counted in these tables, first at the time `at`.
create table replayed (
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  project text collate "C" not null,
  source text collate "C" not null,
  steps bigint not null,
  at double precision not null,
  primary key (tenant, project, source)
);
create index replayed_at on replayed (tenant, project, at);
alter table replayed enable row level security;
create policy of_tenant on replayed using (tenant = (select current_setting('heedful.tenant')))
with check (tenant = (select current_setting('heedful.tenant')));

-- What has happened in the session of an agent that has not ended: 'read …', a file; 'passed …' and 'told …', a
-- precondition. All of them are digests.
create table session_mark (
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  project text collate "C" not null,
  session text collate "C" not null,
  mark text collate "C" not null,
  primary key (tenant, project, session, mark)
);
alter table session_mark enable row level security;
create policy of_tenant on session_mark using (tenant = (select current_setting('heedful.tenant')))
with check (tenant = (select current_setting('heedful.tenant')));

-- What a review or a run of CI said about a `change`, by the digest of its signature. Once it was said about another change,
-- too, it is a lesson. `record` (JSON) has its words.
create table remark (
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  project text collate "C" not null,
  digest text collate "C" not null,
  change text collate "C" not null,
  source text collate "C" not null,
  record text collate "C" not null,
  at double precision not null,
  primary key (tenant, project, digest, change)
);
alter table remark enable row level security;
create policy of_tenant on remark using (tenant = (select current_setting('heedful.tenant')))
with check (tenant = (select current_setting('heedful.tenant')));

-- What a session of an agent was reminded of, or what was withheld from it with the probability `share`: a lesson, or a
-- `precondition` (a digest) without one. When the session has ended, it is `settled`, and `repeated` says whether
-- a later call failed for it. A person knows how it ended if it `is_known`.
create table reminder (
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  project text collate "C" not null,
  session text collate "C" not null,
  subject text collate "C" not null,
  signature text collate "C" not null,
  precondition text collate "C" not null,
  told boolean not null check (told or share > 0),
  share double precision not null check (share >= 0 and share < 1),
  at double precision not null,
  repeated boolean,
  settled boolean not null default false,
  is_known boolean not null default false,
  primary key (tenant, project, session, subject)
);
create index reminder_settled on reminder (tenant, project, settled, is_known);
alter table reminder enable row level security;
create policy of_tenant on reminder using (tenant = (select current_setting('heedful.tenant')))
with check (tenant = (select current_setting('heedful.tenant')));

-- What the attempts of a rung have spent on a `day`, in days since 1970. A call is counted before it is made.
create table spending (
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  project text collate "C" not null,
  rung text collate "C" not null,
  day bigint not null,
  calls bigint not null default 0,
  tokens bigint not null default 0,
  cost double precision not null default 0,
  primary key (tenant, project, rung, day)
);
alter table spending enable row level security;
create policy of_tenant on spending using (tenant = (select current_setting('heedful.tenant')))
with check (tenant = (select current_setting('heedful.tenant')));

-- The loops with a ladder that have ended. `names` are those of the rungs, and `attempts` has for each attempt its rung,
-- whether it passed, and its usage; both are JSON. `record` is what the loops of the memory key did up to this one. `n`
-- numbers them from 1.
create table climb (
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  project text collate "C" not null,
  memory_key text collate "C" not null,
  n bigint not null,
  loop text collate "C" not null,
  names text collate "C" not null,
  attempts text collate "C" not null,
  record text collate "C" not null,
  at double precision not null,
  primary key (tenant, project, memory_key, n)
);
create unique index climb_loop on climb (tenant, project, loop);
create index climb_newest on climb (tenant, project, at);
alter table climb enable row level security;
create policy of_tenant on climb using (tenant = (select current_setting('heedful.tenant')))
with check (tenant = (select current_setting('heedful.tenant')));

-- Names that PostgreSQL made of the old words.
do $$
declare
  one record;
begin
  for one in
    select conrelid::regclass as place, conname as name from pg_constraint
    where connamespace = current_schema()::regnamespace and (conname like '%reflection%' or conname like 'moved_lesson_%')
  loop
    execute format('alter table %s rename constraint %I to %I', one.place, one.name, case
      when one.place = 'lesson'::regclass then replace(one.name, 'reflection', 'lesson')
      when one.place = 'moved'::regclass then replace(one.name, 'moved_lesson_', 'moved_lesson_id_')
      else replace(one.name, 'reflection', 'lesson_id') end);
  end loop;
  for one in
    select c.oid::regclass as place, c.relname as name from pg_class c
    where c.relnamespace = current_schema()::regnamespace and c.relkind = 'i' and c.relname like '%reflection%'
  loop
    execute format('alter index %s rename to %I', one.place, replace(one.name, 'reflection', 'lesson'));
  end loop;
end $$;

create function lesson_added() returns trigger language plpgsql as $$ begin
  insert into tally (tenant, project, lessons, lesson) values (new.tenant, new.project, 1, new.id)
  on conflict (tenant, project) do update set lessons = tally.lessons + 1, lesson = new.id;
  -- It was superseded and deleted before: that is over.
  delete from link where tenant = new.tenant and project = new.project
    and child = new.kind || '/' || new.signature and relation = 'became';
  return null;
end $$;
create trigger lesson_added after insert on lesson for each row execute function lesson_added();
create function lesson_gone() returns trigger language plpgsql as $$ begin
  update tally set lessons = lessons - 1 where tenant = old.tenant and project = old.project;
  -- Lessons that it superseded return and get their examples back, before the others are deleted.
  delete from link where tenant = old.tenant and project = old.project
    and parent = old.kind || '/' || old.signature and relation = 'became';
  delete from link where tenant = old.tenant and project = old.project
    and child = old.kind || '/' || old.signature and relation = 'cites';
  delete from example where lesson_id = old.id;
  delete from cause
  where tenant = old.tenant and project = old.project and kind = old.kind and signature = old.signature;
  return null;
end $$;
create trigger lesson_gone after delete on lesson for each row execute function lesson_gone();
create function exposure_shown() returns trigger language plpgsql as $$ begin
  update lesson set last_shown = max(last_shown, new.at)
  where tenant = new.tenant and project = new.project and kind = new.kind and signature = new.signature;
  return null;
end $$;
create trigger exposure_shown after insert on exposure for each row when (new.shown) execute function exposure_shown();
create function lesson_changed() returns trigger language plpgsql as $$ begin
  update example set indexed = not indexed where lesson_id = new.id and indexed <> (
    state in ('unverified', 'verified')
    and (new.state in ('unverified', 'verified') or new.trust in ('tool', 'external'))
  );
  return null;
end $$;
create trigger lesson_changed after update of state, trust on lesson for each row when ((old.state in ('unverified', 'verified') or old.trust in ('tool', 'external'))
  <> (new.state in ('unverified', 'verified') or new.trust in ('tool', 'external'))) execute function lesson_changed();
create function cited_gone() returns trigger language plpgsql as $$ begin
  delete from lesson where tenant = old.tenant and project = old.project and kind = 'reflection' and signature in (
    select substr(child, 12) from link where tenant = old.tenant and project = old.project
      and parent = old.kind || '/' || old.signature and relation = 'cites');
  return null;
end $$;
create trigger cited_gone after delete on lesson for each row execute function cited_gone();
create function cited_changed() returns trigger language plpgsql as $$ begin
  delete from lesson where tenant = old.tenant and project = old.project and kind = 'reflection' and signature in (
    select substr(child, 12) from link where tenant = old.tenant and project = old.project
      and parent = old.kind || '/' || old.signature and relation = 'cites');
  return null;
end $$;
create trigger cited_changed after update of text, state on lesson for each row when (new.text <> old.text or new.state in ('quarantined', 'retired') and old.state <> new.state) execute function cited_changed();
create function member_back() returns trigger language plpgsql as $$ begin
  update lesson set state = old.before
  where tenant = old.tenant and project = old.project and kind = substr(old.child, 1, instr(old.child, '/') - 1)
    and signature = substr(old.child, instr(old.child, '/') + 1) and state = 'superseded';
  return null;
end $$;
create trigger member_back after delete on link for each row when (old.relation = 'became') execute function member_back();
create function member_returned() returns trigger language plpgsql as $$ begin
  update example set lesson_id = new.id
  where id in (select example from moved where lesson_id = new.id)
    and digest not in (select digest from example where lesson_id = new.id);
  -- A later move of these examples, to the successor of the successor, is undone with it.
  delete from moved where example in (select example from moved where lesson_id = new.id)
    and n >= (select min(n) from moved where lesson_id = new.id);
  delete from link where tenant = new.tenant and project = new.project
    and child = new.kind || '/' || new.signature and relation = 'became';
  return null;
end $$;
create trigger member_returned after update of state on lesson for each row when (old.state = 'superseded' and new.state <> 'superseded') execute function member_returned();
create or replace function set_indexed() returns trigger language plpgsql as $$
begin
  new.indexed := new.state in ('unverified', 'verified') and exists (
    select 1 from lesson l where l.id = new.lesson_id
      and (l.state in ('unverified', 'verified') or l.trust in ('tool', 'external'))
  );
  return new;
end $$;
create trigger example_indexed before insert or update of state, lesson_id on example for each row execute function set_indexed();
create trigger example_recounted after update on example for each row
when (old.indexed <> new.indexed or old.words <> new.words) execute function count_text();
-- Fails with the number of an expectation that is not met, so that a transaction whose statements and commit are one
-- message is rolled back. `PostgresSession.expect` knows the error code.
create function must(met boolean, expectation bigint) returns boolean language plpgsql as $$
begin
  if not met then
    raise exception 'an expectation is not met' using errcode = 'HF001', detail = expectation;
  end if;
  return met;
end $$;
-- The model that makes the attempts of a loop.
alter table loop add column model text collate "C" not null default '';
alter table outcome add column model text collate "C" not null default '';
-- The rungs of a loop, and who made its first attempt.
alter table loop add column ladder text collate "C" not null default '';
create index loop_created on loop (tenant, project, created);
create index loop_stopped on loop (tenant, project, updated) where state = 'stopped';

-- The figures of the loops that began on a `day`, in days since 1970, once the day has ended. A trigger deletes them when a
-- loop of the day changes; a page then counts the day again.
create table day_figure (
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  project text collate "C" not null,
  day bigint not null,
  loops bigint not null,
  ended bigint not null,
  right_at_once bigint not null,
  retried bigint not null,
  solved bigint not null,
  stopped bigint not null,
  calls bigint not null,
  tokens bigint not null,
  cost double precision not null,
  primary key (tenant, project, day)
);
alter table day_figure enable row level security;
create policy of_tenant on day_figure using (tenant = (select current_setting('heedful.tenant')))
with check (tenant = (select current_setting('heedful.tenant')));
-- The figures of a day are counted again after one of its loops has changed. Who counts a day takes the lock for itself
-- alone, so that no change which it does not see commits later. A day that has not ended has figures only if a clock was fast.
create function day_changed() returns trigger language plpgsql as $$
declare
  today bigint := floor(store_clock() / 86400);
  changed record;
begin
  for changed in
    select old.tenant as tenant, old.project as project, floor(old.created / 86400)::bigint as day where tg_op <> 'INSERT'
    union
    select new.tenant, new.project, floor(new.created / 86400)::bigint where tg_op <> 'DELETE'
  loop
    if changed.day < today or exists (
      select 1 from day_figure f
      where f.tenant = changed.tenant and f.project = changed.project and f.day = changed.day
    ) then
      perform pg_advisory_xact_lock_shared(hashtextextended('days ' || changed.tenant || ' ' || changed.project, 0));
      delete from day_figure f
      where f.tenant = changed.tenant and f.project = changed.project and f.day = changed.day;
    end if;
  end loop;
  return null;
end $$;
create trigger day_changed after insert or delete or update of created, updated, state, extra on loop
for each row execute function day_changed();
alter table override add column rung bigint not null default 1;
alter table outcome add column rung bigint not null default 1;
alter table outcome add column climbed boolean;
alter table outcome add column cost double precision not null default 0;
-- The models (JSON) whose loops a proof says a lesson hurts: these are not shown it.
alter table lesson add column unfit_for text collate "C" not null default '[]';
-- Episodes whose lessons a model rewords.
alter table episode add column awaits_model boolean not null default false;
create index episode_awaiting on episode (tenant, project, at) where awaits_model;
create or replace function scopes_there(waiting boolean) returns table (tenant text, project text)
language sql stable security definer set search_path = heedful, pg_temp as $$
  select distinct r.tenant, r.project from lesson r where not waiting
  union
  select distinct e.tenant, e.project from episode e where waiting and e.state <> 'reflected'
  union
  select distinct d.tenant, d.project from episode d where waiting and d.awaits_model
  union
  select distinct t.tenant, t.project from trace t where waiting and t.state = 'open'
$$;

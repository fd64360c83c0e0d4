-- From schema 1 to 2 for SQLite: the table `reflection` is called `lesson`, a column that refers to a lesson is called
-- `lesson_id`, and the state 'candidate' of lessons and examples is called 'unverified'. A check of a column cannot be
-- changed, so tables are written again. Foreign keys are off meanwhile: dropping a table would delete what refers to its rows.

drop trigger reflection_added;
drop trigger reflection_gone;
drop trigger exposure_shown;
drop trigger reflection_changed;
drop trigger held_gone;
drop trigger survivor_changed;
drop trigger member_back;
drop trigger member_returned;
drop trigger example_added;
drop trigger example_changed;
drop trigger example_shown;
drop trigger example_hidden;
drop trigger example_gone;
drop trigger vector_added;
drop trigger vector_changed;
drop view recallable;

-- Episodes whose lessons a model rewords.
alter table episode add column awaits_model boolean not null default false;
create index episode_awaiting on episode (tenant, project, at) where awaits_model;

-- The model that makes the attempts of a loop.
alter table loop add column model text not null default '';
alter table outcome add column model text not null default '';
-- The rungs of a loop, and who made its first attempt.
alter table loop add column ladder text not null default '';
create index loop_created on loop (tenant, project, created);
create index loop_stopped on loop (tenant, project, updated) where state = 'stopped';

-- The figures of the loops that began on a `day`, in days since 1970, once the day has ended. A trigger deletes them when a
-- loop of the day changes; a page then counts the day again.
create table day_figure (
  tenant text not null,
  project text not null,
  day integer not null,
  loops integer not null,
  ended integer not null,
  right_at_once integer not null,
  retried integer not null,
  solved integer not null,
  stopped integer not null,
  calls integer not null,
  tokens integer not null,
  cost real not null,
  primary key (tenant, project, day)
) without rowid;
alter table override add column rung integer not null default 1;
alter table outcome add column rung integer not null default 1;
alter table outcome add column climbed boolean;
alter table outcome add column cost real not null default 0;

-- The name of this file, which nobody can guess. Hooks know a user's own database by it, even if git or another program
-- has put another file in its place.
create table identity (id text not null);
insert into identity values (lower(hex(randomblob(16))));

create table lesson (
  id integer primary key,
  tenant text not null,
  project text not null,
  kind text not null,
  signature text not null,
  pattern text not null,
  words text not null,
  error_type text not null,
  text text not null,
  tags text not null default '[]',
  state text not null check (state in ('unverified', 'verified', 'quarantined', 'retired', 'superseded')),
  trust text not null check (trust in ('operator', 'measured', 'model', 'tool', 'external')),
  importance real not null default 0.5 check (importance between 0 and 1),
  seen integer not null default 1,
  source text not null default '',
  pinned boolean not null default false,
  apart boolean not null default false,
  useful real not null default 1,
  helped integer not null default 0,
  hurt integer not null default 0,
  -- The models (JSON) whose loops a proof says it hurts: these are not shown it.
  unfit_for text not null default '[]',
  first_seen real not null,
  last_seen real not null,
  last_shown real not null default 0,
  -- Loops after this time are evidence about the lesson: its text was replaced then, or the lesson was restored.
  judged_from real not null default 0,
  author integer,
  meta text not null default '{}',
  unique (tenant, project, kind, signature)
);
insert into lesson (id, tenant, project, kind, signature, pattern, words, error_type, text, tags, state, trust, importance, seen, source, pinned, apart, useful, helped, hurt, first_seen, last_seen, last_shown, judged_from, author, meta)
select id, tenant, project, kind, signature, pattern, words, error_type, text, tags, case state when 'candidate' then 'unverified' else state end, trust, importance, seen, source, pinned, apart, useful, helped, hurt, first_seen, last_seen, last_shown, judged_from, author, meta from reflection;
drop table reflection;
create index lesson_signature on lesson (tenant, project, signature);
create index lesson_words on lesson (tenant, project, words);
create index lesson_listed on lesson (tenant, project, id);
create index lesson_type on lesson (tenant, project, error_type, id, signature, apart, trust)
where trust not in ('tool', 'external');
create index lesson_useful on lesson (
  tenant, project, pinned,
  (case state when 'quarantined' then 0 when 'unverified' then 2 when 'verified' then 2 else 1 end),
  useful, importance, max(last_seen, last_shown), id
);

create table new_occurrence (
  id integer primary key,
  lesson_id integer not null references lesson (id) on delete cascade,
  loop text not null,
  text text not null,
  source text not null default '',
  via text not null default '',
  trust text not null default 'external',
  parents text not null default '[]',
  at real not null
);
insert into new_occurrence (id, lesson_id, loop, text, source, via, trust, parents, at)
select id, reflection, loop, text, source, via, trust, parents, at from occurrence;
drop table occurrence;
alter table new_occurrence rename to occurrence;
create index occurrence_at on occurrence (lesson_id, at);

create table new_example (
  id integer primary key,
  lesson_id integer not null references lesson (id) deferrable initially deferred,
  scope text not null,
  task text not null,
  record text not null,
  digest text not null,
  state text not null check (state in ('unverified', 'verified', 'quarantined', 'retired', 'superseded')),
  trust text not null default 'external',
  lesson text not null default '',
  words text not null default '',
  memory_key text not null default '',
  indexed boolean not null default false,
  at real not null,
  unique (lesson_id, digest)
);
insert into new_example (id, lesson_id, scope, task, record, digest, state, trust, lesson, words, memory_key, indexed, at)
select id, reflection, scope, task, record, digest, case state when 'candidate' then 'unverified' else state end, trust, lesson, words, memory_key, indexed, at from example;
drop table example;
alter table new_example rename to example;
create index example_held on example (scope) where state = 'quarantined';
create index example_oldest on example (scope, at, id) where indexed;

-- What calls take for granted has another digest: it is learnt anew.
drop table action;

-- What calls of agents take for granted, by `digest`: how many calls `passed`, and how many `since` one failed because of
-- it. If one did, its `template` and its `words` (JSON) are known.
create table precondition (
  tenant text not null,
  project text not null,
  digest text not null,
  template text not null default '',
  words text not null default '[]',
  passed integer not null default 0,
  since integer not null default 0,
  primary key (tenant, project, digest)
) without rowid;

-- A run in which a call failed because of what it took for granted: the last `error`, the lesson about it, if any, and the
-- `state` in which it failed. `source` names the run. The run lost so many `calls`; `at` is the time of storing.
create table blame (
  tenant text not null,
  project text not null,
  digest text not null,
  source text not null,
  lesson_id integer references lesson (id) on delete cascade,
  error text not null,
  state text not null,
  failed real not null,
  calls integer not null,
  at real not null,
  primary key (tenant, project, digest, source)
) without rowid;
create index blame_lesson on blame (lesson_id);
create index blame_source on blame (tenant, project, source);
create index blame_at on blame (tenant, project, at);

-- How many calls an error, by the `signature` of its line, cost a run: those that failed, and those until such a call
-- passed. `failed` is the time of the last failure, and `at` that at which it was stored.
create table loss (
  tenant text not null,
  project text not null,
  signature text not null,
  source text not null,
  calls integer not null,
  failed real not null,
  at real not null,
  primary key (tenant, project, signature, source)
) without rowid;
create index loss_at on loss (tenant, project, at);
create index loss_source on loss (tenant, project, source);

-- What worked in the place of what a call took for granted: in an `argument`, the words `old` gave way to the words `new`
-- (JSON), last at the time `passed`. `source` names the run, `sources` (JSON) are those of the words, and the lesson is
-- about the failure. Without an argument, the digest is that of a contract of tools that the run broke.
create table substitution (
  tenant text not null,
  project text not null,
  digest text not null,
  source text not null,
  lesson_id integer references lesson (id) on delete cascade,
  argument text not null,
  old text not null,
  new text not null,
  sources text not null,
  passed real not null,
  primary key (tenant, project, digest, source)
) without rowid;
create index substitution_lesson on substitution (lesson_id);
create index substitution_source on substitution (tenant, project, source);

-- How often calls failed again whose preconditions had a like record, a `form` (JSON): of so many that were `tested` by
-- sessions that had ended, so many `held`.
create table precondition_test (
  tenant text not null,
  project text not null,
  form text not null,
  held real not null,
  tested real not null,
  primary key (tenant, project, form)
) without rowid;

-- How many steps of a run are counted in these tables, first at the time `at`.
create table replayed (
  tenant text not null,
  project text not null,
  source text not null,
  steps integer not null,
  at real not null,
  primary key (tenant, project, source)
) without rowid;
create index replayed_at on replayed (tenant, project, at);

-- What has happened in the session of an agent that has not ended: 'read …', a file; 'passed …' and 'told …', a
-- precondition. All of them are digests.
create table session_mark (
  tenant text not null,
  project text not null,
  session text not null,
  mark text not null,
  primary key (tenant, project, session, mark)
) without rowid;

-- What a review or a run of CI said about a `change`, by the digest of its signature. Once it was said about another change,
-- too, it is a lesson. `record` (JSON) has its words.
create table remark (
  tenant text not null,
  project text not null,
  digest text not null,
  change text not null,
  source text not null,
  record text not null,
  at real not null,
  primary key (tenant, project, digest, change)
) without rowid;

-- What a session of an agent was reminded of, or what was withheld from it with the probability `share`: a lesson, or a
-- `precondition` (a digest) without one. When the session has ended, it is `settled`, and `repeated` says whether
-- a later call failed for it. A person knows how it ended if it `is_known`.
create table reminder (
  tenant text not null,
  project text not null,
  session text not null,
  subject text not null,
  signature text not null,
  precondition text not null,
  told boolean not null check (told or share > 0),
  share real not null check (share >= 0 and share < 1),
  at real not null,
  repeated boolean,
  settled boolean not null default false,
  is_known boolean not null default false,
  primary key (tenant, project, session, subject)
) without rowid;
create index reminder_settled on reminder (tenant, project, settled, is_known);

create table new_moved (
  n integer primary key,
  example integer not null references example (id) on delete cascade,
  lesson_id integer not null references lesson (id) on delete cascade
);
insert into new_moved (n, example, lesson_id)
select n, example, lesson from moved;
drop table moved;
alter table new_moved rename to moved;
create index moved_example on moved (example);
create index moved_lesson on moved (lesson_id, n);

create table new_link (
  tenant text not null,
  project text not null,
  child text not null,
  relation text not null,
  parent text not null,
  dream integer not null default 0,
  before text not null default 'unverified',
  primary key (tenant, project, child, relation, parent)
) without rowid;
insert into new_link (tenant, project, child, relation, parent, dream, before)
select tenant, project, child, relation, parent, dream, case before when 'candidate' then 'unverified' else before end from link;
drop table link;
alter table new_link rename to link;
create index link_parent on link (tenant, project, parent, relation);
create index link_became on link (tenant, project, dream) where relation = 'became';

-- The stored results of calls that may be repeated; -1 is an answer over HTTP, which keeps the old word.
update answer set record = replace(record, '"state": "candidate"', '"state": "unverified"') where n >= 0;

-- A check that a lesson became: its `rule` (JSON), and `about` in words. It was executed on `failed` rejected, on
-- `passed` accepted and on `harmless` other outputs. It judges loops of its `memory_key`, or the calls of an agent. Since
-- it was `decided`, it found something `hits` times; `false_alarms` of these were wrong.
create table hardened (
  lesson_id integer not null references lesson (id) on delete cascade,
  tenant text not null,
  project text not null,
  memory_key text not null default '',
  kind text not null check (kind in ('object', 'form', 'bound', 'word', 'call')),
  rule text not null,
  about text not null,
  failed integer not null default 0,
  passed integer not null default 0,
  harmless integer not null default 0,
  state text not null default 'proposed' check (state in ('proposed', 'accepted', 'rejected')),
  hits integer not null default 0,
  false_alarms integer not null default 0,
  last_hit real not null default 0,
  decided real not null default 0,
  by text not null default '',
  why text not null default '',
  primary key (lesson_id)
) without rowid;
create index hardened_key on hardened (tenant, project, memory_key) where state = 'accepted';

-- The texts that another memory (`source`) offered to a loop: shown, or withheld with the probability `share`. `texts` is a
-- JSON list of their digests, or of the texts if the trial keeps them; a loop that was offered none is no evidence. `score`
-- is the result of the loop in thousandths, null until it `ended`.
create table trial (
  tenant text not null,
  project text not null,
  source text not null,
  loop text not null,
  shown boolean not null check (shown or share > 0),
  share real not null check (share >= 0 and share < 1),
  texts text not null,
  score integer check (score between 0 and 1000),
  via text not null default '',
  at real not null,
  ended real,
  primary key (tenant, project, source, loop)
) without rowid;

-- What the attempts of a rung have spent on a `day`, in days since 1970. A call is counted before it is made.
create table spending (
  tenant text not null,
  project text not null,
  rung text not null,
  day integer not null,
  calls integer not null default 0,
  tokens integer not null default 0,
  cost real not null default 0,
  primary key (tenant, project, rung, day)
) without rowid;

-- The loops with a ladder that have ended. `names` are those of the rungs, and `attempts` has for each attempt its rung,
-- whether it passed, and its usage; both are JSON. `record` is what the loops of the memory key did up to this one. `n`
-- numbers them from 1.
create table climb (
  tenant text not null,
  project text not null,
  memory_key text not null,
  n integer not null,
  loop text not null,
  names text not null,
  attempts text not null,
  record text not null,
  at real not null,
  primary key (tenant, project, memory_key, n)
) without rowid;
create unique index climb_loop on climb (tenant, project, loop);
create index climb_newest on climb (tenant, project, at);

create view recallable as
select e.id, replace(' ' || e.words, ' ', ' s' || c.place || 'x') as words
from example e join corpus c on c.scope = e.scope where e.indexed;

create trigger lesson_added after insert on lesson begin
  insert into tally (tenant, project, lessons, lesson) values (new.tenant, new.project, 1, new.id)
  on conflict (tenant, project) do update set lessons = tally.lessons + 1, lesson = new.id;
  -- It was superseded and deleted before: that is over.
  delete from link where tenant = new.tenant and project = new.project
    and child = new.kind || '/' || new.signature and relation = 'became';
end;
create trigger lesson_gone after delete on lesson begin
  update tally set lessons = lessons - 1 where tenant = old.tenant and project = old.project;
  -- Lessons that it superseded return and get their examples back, before the others are deleted.
  delete from link where tenant = old.tenant and project = old.project
    and parent = old.kind || '/' || old.signature and relation = 'became';
  delete from link where tenant = old.tenant and project = old.project
    and child = old.kind || '/' || old.signature and relation = 'cites';
  delete from example where lesson_id = old.id;
  delete from cause
  where tenant = old.tenant and project = old.project and kind = old.kind and signature = old.signature;
end;
create trigger exposure_shown after insert on exposure when new.shown begin
  update lesson set last_shown = max(last_shown, new.at)
  where tenant = new.tenant and project = new.project and kind = new.kind and signature = new.signature;
end;
create trigger lesson_changed after update of state, trust on lesson
when (old.state in ('unverified', 'verified') or old.trust in ('tool', 'external'))
  <> (new.state in ('unverified', 'verified') or new.trust in ('tool', 'external')) begin
  update example set indexed = not indexed where lesson_id = new.id and indexed <> (
    state in ('unverified', 'verified')
    and (new.state in ('unverified', 'verified') or new.trust in ('tool', 'external'))
  );
end;
create trigger held_gone after delete on example
when old.state = 'quarantined' begin
  delete from origin where example = old.id and not exists (select 1 from lineage where parent = old.id);
  delete from lineage where child = old.id and not exists (select 1 from lineage l where l.parent = old.id);
end;
create trigger survivor_changed after update of text, state on lesson
when new.text <> old.text or new.state = 'quarantined' and old.state <> 'quarantined' begin
  delete from link where tenant = old.tenant and project = old.project
    and parent = old.kind || '/' || old.signature and relation = 'became';
end;
create trigger cited_gone after delete on lesson begin
  delete from lesson where tenant = old.tenant and project = old.project and kind = 'reflection' and signature in (
    select substr(child, 12) from link where tenant = old.tenant and project = old.project
      and parent = old.kind || '/' || old.signature and relation = 'cites');
end;
create trigger cited_changed after update of text, state on lesson
when new.text <> old.text or new.state in ('quarantined', 'retired') and old.state <> new.state begin
  delete from lesson where tenant = old.tenant and project = old.project and kind = 'reflection' and signature in (
    select substr(child, 12) from link where tenant = old.tenant and project = old.project
      and parent = old.kind || '/' || old.signature and relation = 'cites');
end;
create trigger member_back after delete on link when old.relation = 'became' begin
  update lesson set state = old.before
  where tenant = old.tenant and project = old.project and kind = substr(old.child, 1, instr(old.child, '/') - 1)
    and signature = substr(old.child, instr(old.child, '/') + 1) and state = 'superseded';
end;
create trigger member_returned after update of state on lesson
when old.state = 'superseded' and new.state <> 'superseded' begin
  update example set lesson_id = new.id
  where id in (select example from moved where lesson_id = new.id)
    and digest not in (select digest from example where lesson_id = new.id);
  -- A later move of these examples, to the successor of the successor, is undone with it.
  delete from moved where example in (select example from moved where lesson_id = new.id)
    and n >= (select min(n) from moved where lesson_id = new.id);
  delete from link where tenant = new.tenant and project = new.project
    and child = new.kind || '/' || new.signature and relation = 'became';
end;
create trigger example_added after insert on example begin
  insert into corpus (scope, example) values (new.scope, new.id)
  on conflict (scope) do update set example = new.id;
  update example set indexed = 1 where id = new.id and state in ('unverified', 'verified')
    and (select state in ('unverified', 'verified') or trust in ('tool', 'external') from lesson where id = new.lesson_id);
end;
create trigger example_changed after update of state, words, lesson_id on example begin
  update example set indexed = not indexed where id = old.id and indexed <> (
    state in ('unverified', 'verified')
    and (select state in ('unverified', 'verified') or trust in ('tool', 'external') from lesson where id = new.lesson_id)
  );
end;
create trigger example_shown after update of indexed on example when new.indexed and not old.indexed begin
  insert into example_fts (rowid, words) select id, words from recallable where id = new.id;
  update corpus set texts = texts + 1, length = length + length(new.words), changed = changed + 1
  where scope = new.scope;
  update vector set changed = (select changed from corpus where scope = new.scope) where example = new.id;
end;
create trigger example_hidden before update of indexed on example when old.indexed and not new.indexed begin
  insert into example_fts (example_fts, rowid, words) select 'delete', id, words from recallable where id = old.id;
  update corpus set texts = texts - 1, length = length - length(old.words) where scope = old.scope;
  update vector set changed = 0 where example = old.id;
end;
create trigger example_gone before delete on example when old.indexed begin
  insert into example_fts (example_fts, rowid, words) select 'delete', id, words from recallable where id = old.id;
  update corpus set texts = texts - 1, length = length - length(old.words) where scope = old.scope;
end;
create trigger vector_added after insert on vector
when (select indexed from example where id = new.example) begin
  update corpus set changed = changed + 1 where scope = (select scope from example where id = new.example);
  update vector set changed = (select c.changed from corpus c join example e using (scope) where e.id = new.example)
  where example = new.example;
end;
create trigger vector_changed after update of space, data on vector
when (select indexed from example where id = new.example) begin
  update corpus set changed = changed + 1 where scope = (select scope from example where id = new.example);
  update vector set changed = (select c.changed from corpus c join example e using (scope) where e.id = new.example)
  where example = new.example;
end;
-- The figures of a day are counted again after one of its loops has changed.
create trigger day_added after insert on loop begin
  delete from day_figure where tenant = new.tenant and project = new.project and day = cast(new.created / 86400 as integer);
end;
create trigger day_changed after update of created, updated, state, extra on loop begin
  delete from day_figure where tenant = old.tenant and project = old.project
    and day in (cast(old.created / 86400 as integer), cast(new.created / 86400 as integer));
end;
create trigger day_gone after delete on loop begin
  delete from day_figure where tenant = old.tenant and project = old.project and day = cast(old.created / 86400 as integer);
end;

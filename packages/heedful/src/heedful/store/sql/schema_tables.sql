-- Schema 12. Raise the number with each change of a schema, so that heedful refuses files with the old one.
-- The tables, indexes and triggers of both engines, written for SQLite. `store.statements` translates them.
-- Times are seconds since 1970. JSON is stored as text. `via` names the keys of a service through which a row came, such
-- as `key:0cb7fbdbffce`, separated by blanks; it is empty for what a program wrote in process.

-- A loop: its task, goals and policy as JSON. `context` is the data of its checks. `owner` drives the loop until `lease`;
-- each new owner increases `epoch`. `unanswered` counts the calls that owners have begun since the last entry: one when they
-- claim the loop, or with an entry that another call follows at once. A stage has the id of its `run`, its name as `stage`, and its record as `settings` (JSON). Loops
-- of one `memory_key` show each other the rules that they broke. `model` makes its attempts, or made the first. `ladder` is
-- the record of its rungs, as JSON, '' if it has one rung.
create table loop (
  n integer primary key,
  tenant text not null,
  project text not null,
  id text not null,
  kind text not null default 'loop' check (kind in ('loop', 'run', 'stage')),
  run text not null default '',
  stage text not null default '',
  memory_key text not null default '',
  model text not null default '',
  ladder text not null default '',
  via text not null default '',
  briefing text not null default '',
  settings text not null default '',
  task text not null,
  goals text not null,
  policy text not null,
  context text not null default 'null',
  state text not null default 'open' check (state in ('open', 'passed', 'stopped')),
  extra text not null default '{}',
  cancelled text not null default '',
  owner text not null default '',
  epoch integer not null default 1,
  unanswered integer not null default 0,
  lease real not null default 0,
  created real not null,
  updated real not null,
  unique (tenant, project, id)
);
create index loop_updated on loop (tenant, project, updated);
create index loop_newest on loop (tenant, project, n);
create index loop_runs on loop (tenant, project, n) where kind = 'run';

-- An attempt of a loop, the text of its candidate, and the value that it produced, all as JSON. The record has no text, so
-- that lists need not read it. `text` is '' if it equals the value.
create table attempt (
  /*postgres tenant text not null, */
  loop integer not null references loop (n) on delete cascade,
  number integer not null check (number > 0),
  record text not null,
  text text not null,
  value text not null,
  via text not null default '',
  created real not null,
  primary key (loop, number)
) without rowid;

-- The verdicts of a loop, in order.
create table decision (
  /*postgres tenant text not null, */
  loop integer not null references loop (n) on delete cascade,
  seq integer not null,
  attempt integer not null,
  record text not null,
  created real not null,
  primary key (loop, seq)
) without rowid;

-- Permissions to continue past a stop rule, until they expire or are used up.
create table override (
  /*postgres tenant text not null, */
  loop integer not null references loop (n) on delete cascade,
  seq integer not null,
  rule text not null,
  by text not null,
  why text not null,
  decisions integer not null check (decisions > 0),
  used integer not null default 0 check (used between 0 and decisions),
  until real,
  rung integer not null default 1,
  primary key (loop, seq)
) without rowid;

-- The journal: the finished steps of the current attempt. They are deleted when the attempt is recorded.
create table step (
  /*postgres tenant text not null, */
  loop integer not null references loop (n) on delete cascade,
  key text not null,
  record text not null,
  primary key (loop, key)
) without rowid;

-- What a host noted about the attempt `name` of a loop, which may be reported later or never. A key that begins with
-- 'bias: ' is a bias tag; 'reasoning' is why the loop runs again. Without a name, what a person wrote about the loop: the
-- key is then 'on LOOP/' with the number of the note.
create table note (
  tenant text not null,
  project text not null,
  name text not null,
  key text not null,
  loop text not null,
  record text not null,
  created real not null,
  primary key (tenant, project, name, key)
) without rowid;

-- A lesson. `source` names the origin of its text: a page, a tool, a file or a loop. `author` is the example that has the
-- text of the lesson. `useful` is a factor of its rank, from the proof. Of the loops that were shown the lesson, `helped`
-- counts those whose first attempt passed, `hurt` those that repeated its error.
-- `signature` is the finer key of a failure, by which it is counted, and comparable with others of one `signature_version`;
-- `words`, the digest of the message without its type and tool, is the coarser one, which only finds. `mistake` is the record of what went wrong
-- (JSON), '' without one; then `text` has its words, or those of a person. `evidence` is what shows that it holds, `run` the record
-- of the run that it was drawn from (JSON), '' without one, and `data` is JSON of the caller. A text from outside stays so if a person releases
-- it: `released_by` says who did, '' if nobody, and `released_at` when. An `unreviewed` text is told to nobody.
create table lesson (
  id integer primary key,
  tenant text not null,
  project text not null,
  kind text not null,
  signature text not null,
  signature_version integer not null default 1,
  pattern text not null,
  words text not null,
  error_type text not null,
  text text not null,
  tags text not null default '[]',
  state text not null check (state in ('unverified', 'verified', 'quarantined', 'retired', 'superseded')),
  trust text not null check (trust in ('user', 'local', 'outside')),
  released_by text not null default '',
  released_at real not null default 0,
  unreviewed boolean not null generated always as (trust = 'outside' and released_by = '') stored,
  importance real not null default 0.5 check (importance between 0 and 1),
  seen integer not null default 1,
  source text not null default '',
  pinned boolean not null default false,
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
  evidence text not null default 'said' check (evidence in ('nothing failed', 'once', 'failed run', 'put right', 'said')),
  is_correction boolean not null default false,
  run text not null default '',
  data text not null default '{}',
  mistake text not null default '',
  unique (tenant, project, kind, signature)
);
create index lesson_signature on lesson (tenant, project, signature);
create index lesson_words on lesson (tenant, project, words);
create index lesson_listed on lesson (tenant, project, id);
-- The patterns of an error type from which templates are learnt, oldest first.
create index lesson_type on lesson (tenant, project, error_type, id, signature, trust)
where not unreviewed;
-- The least useful lessons first. A query that orders by the same expressions needs no sort.
create index lesson_useful on lesson (
  tenant, project, pinned,
  (case state when 'quarantined' then 0 when 'unverified' then 2 when 'verified' then 2 else 1 end),
  useful, importance, max(last_seen, last_shown), id
);

-- The number of lessons of a scope, `lesson`, the last id, and how often the `trust` of one changed: while all three stay, so
-- do the trusted lessons. The ids of a scope, of lessons and of examples, follow each other from a random one: they tell nothing about other tenants.
create table tally (
  tenant text not null,
  project text not null,
  lessons integer not null,
  lesson integer not null default 0,
  trust integer not null default 0,
  primary key (tenant, project)
) without rowid;

-- A sighting of a lesson: its loop, its words and their source, and the record of what went wrong in it; `finding` is the digest of a check's words.
-- `lesson` is the text of the lesson that came with it, '' if that is its own, and `lesson_trust` the origin of that text. If
-- the same example had been stored before, that is the `example`, and `record` is the example of the sighting: what several
-- sources said stays when one of them goes. `sources` (JSON) had a part in it besides `source`.
create table occurrence (
  /*postgres tenant text not null, */
  id integer primary key,
  lesson_id integer not null references lesson (id) on delete cascade,
  loop text not null,
  text text not null,
  finding text not null default '',
  mistake text not null default '',
  source text not null default '',
  via text not null default '',
  trust text not null default 'outside',
  lesson text not null default '',
  lesson_trust text not null default 'outside',
  example integer,
  record text not null default '',
  sources text not null default '[]',
  parents text not null default '[]',
  at real not null
);
create index occurrence_at on occurrence (lesson_id, at);
create index occurrence_source on occurrence (lesson_id, source);
create index occurrence_finding on occurrence (finding) where finding <> '';

-- An example of a lesson. A row whose digest begins with 'lesson' holds the text of a lesson without an example. Each row
-- has its own state and trust: a text of a tool about a verified lesson is not verified. `lesson` is the text of the
-- lesson that came with the example, and `mistake` its record. `released_by`, `released_at` and `unreviewed` are as in a lesson. A search compares `words`. An `indexed` row may be recalled. No id is used twice:
-- a loop that was shown a deleted example must not seem to have been shown another one. `corpus` has the last id.
create table example (
  /*postgres tenant text not null, */
  id integer primary key,
  lesson_id integer not null references lesson (id) deferrable initially deferred,
  scope text not null,
  task text not null,
  record text not null,
  digest text not null,
  state text not null check (state in ('unverified', 'verified', 'quarantined', 'retired', 'superseded')),
  trust text not null default 'outside',
  released_by text not null default '',
  released_at real not null default 0,
  unreviewed boolean not null generated always as (trust = 'outside' and released_by = '') stored,
  lesson text not null default '',
  mistake text not null default '',
  words text not null default '',
  memory_key text not null default '',
  indexed boolean not null default false,
  at real not null,
  unique (lesson_id, digest)
);
create index example_held on example (scope) where state = 'quarantined';
create index example_oldest on example (scope, at, id) where indexed;

-- The sources of an example, and in `lineage` its parents, from which it derives. Revoking a source deletes all examples
-- that derive from it. Both tables keep the rows of evicted examples, so that the chain stays complete. Storing all
-- earlier sources with each example would need about n ** (5/3) rows for n examples.
create table origin (
  /*postgres tenant text not null, */
  example integer not null,
  source text not null,
  scope text not null,
  primary key (example, source)
) without rowid;
create index origin_source on origin (scope, source);

create table lineage (
  /*postgres tenant text not null, */
  child integer not null,
  parent integer not null,
  primary key (child, parent)
) without rowid;
create index lineage_parent on lineage (parent);

-- What loops of a memory key got wrong: the lesson of the rule that they broke, how many `loops` broke it, `loop` the last
-- of them, and how many `mended` it. `checks` (JSON) may find the mistake. `check_id` is the name of the check that found it
-- in all functions that it guards, '' if it guards one. `fix` is 1 if a finding said what to do.
-- `quiet` counts the loops that were shown the rule and have kept it since.
create table cause (
  tenant text not null,
  project text not null,
  memory_key text not null,
  rule text not null,
  kind text not null,
  signature text not null,
  checks text not null default '[]',
  check_id text not null default '',
  severity real not null,
  fix integer not null default 0,
  loops integer not null default 1,
  mended integer not null default 0,
  loop text not null,
  quiet integer not null default 0,
  at real not null,
  primary key (tenant, project, memory_key, rule)
) without rowid;
create index cause_lesson on cause (tenant, project, kind, signature);
create index cause_check on cause (tenant, project, check_id) where check_id <> '';

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

-- A decision of a person or a proof about lessons, and its reason. A dream is one, too: its `record` is the report.
create table ruling (
  id integer primary key,
  tenant text not null,
  project text not null,
  action text not null,
  subject text not null,
  by text not null,
  why text not null,
  record text not null default '{}',
  at real not null
);
create index ruling_subject on ruling (tenant, project, subject);

-- The digests of the words that operators rejected. Only an operator can make them a lesson again, of any kind.
create table refused (
  tenant text not null,
  project text not null,
  words text not null,
  primary key (tenant, project, words)
) without rowid;

-- A lesson that was ranked into the prompt of a loop, and then shown, or withheld with the probability `share`. The row
-- has the name of the lesson, so that it outlives the lesson. `among` is the number of lessons ranked into the prompt. Of
-- the loops of the key `via`, `most` count in a day.
create table exposure (
  tenant text not null,
  project text not null,
  loop text not null,
  kind text not null,
  signature text not null,
  shown boolean not null check (shown or share > 0),
  share real not null default 0 check (share >= 0 and share < 1),
  together boolean not null default false,
  among integer not null,
  examples text not null default '[]',
  via text not null default '',
  most integer not null default 0,
  at real not null,
  primary key (tenant, project, loop, kind, signature)
) without rowid;

-- The outcome of a loop that had exposures. `n` numbers the outcomes of the scope from 1; it is null for an outcome that
-- does not count, because its key had reported enough of them that day. `model` made the attempts of the first rung, '' if it
-- is unknown. `rung` made the first attempt; `climbed` says whether a higher one was needed, null without a ladder.
create table outcome (
  tenant text not null,
  project text not null,
  loop text not null,
  n integer,
  right_at_once boolean not null,
  calls integer not null,
  signatures text not null,
  model text not null default '',
  rung integer not null default 1,
  climbed boolean,
  cost real not null default 0,
  via text not null default '',
  at real not null,
  primary key (tenant, project, loop)
) without rowid;
create unique index outcome_n on outcome (tenant, project, n);
create index outcome_via on outcome (tenant, via, at);

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

-- The loops with a ladder that have ended: `record` is a `Climb` as JSON.
create table climb (
  tenant text not null,
  project text not null,
  loop text not null,
  record text not null,
  at real not null,
  primary key (tenant, project, loop)
) without rowid;
create index climb_newest on climb (tenant, project, at);

-- A run of an agent, stored once. `error` says why reflecting on it failed. A worker claimed a waiting episode at `taken`.
create table episode (
  id integer primary key,
  tenant text not null,
  project text not null,
  digest text not null,
  name text not null default '',
  session text not null default '',
  outcome text not null,
  state text not null default 'waiting' check (state in ('waiting', 'reflected', 'failed')),
  tries integer not null default 0,
  error text not null default '',
  taken real not null default 0,
  record text not null,
  via text not null default '',
  at real not null,
  -- The tools that it called, in their order, and its task, for procedures.
  tools text not null default '',
  task text not null default '',
  unique (tenant, project, digest)
);
create index episode_done on episode (tenant, project, id) where tools <> '' and outcome = 'success';
create index episode_newest on episode (tenant, project, id);
create index episode_waiting on episode (tenant, project, at) where state <> 'reflected';

-- A run in which a call failed that has a mark, by its `digest`: a `kind`, a `name` and a `tool`. `source` names the run,
-- `error` is what its last such call said, of this `origin`, at the time `failed`, and the lesson is about it, if there
-- is one. The run lost so many `calls` until such a call passed; `at` is the time of storing. Of the `kind` error, the
-- digest is the signature of an error's line.
create table call_failure (
  tenant text not null,
  project text not null,
  digest text not null,
  source text not null,
  kind text not null,
  name text not null,
  tool text not null,
  -- The trigger: a word of each call that has the mark, "" if none is asked about.
  word text not null,
  error text not null,
  origin text not null,
  lesson_id integer references lesson (id) on delete set null,
  calls integer not null,
  failed real not null,
  at real not null,
  primary key (tenant, project, digest, source)
) without rowid;
create index call_failure_lesson on call_failure (lesson_id);
create index call_failure_source on call_failure (tenant, project, source);
create index call_failure_word on call_failure (tenant, project, word) where word <> '';
create index call_failure_at on call_failure (tenant, project, at);

-- When a call with a mark last worked.
create table call_success (
  tenant text not null,
  project text not null,
  digest text not null,
  at real not null,
  primary key (tenant, project, digest)
) without rowid;

-- What lessons were learnt from, since the time `at`: a run with so many `steps`, or with none, a loop (`loop:ID`), whose
-- lessons are written once, so that a deleted lesson does not return.
create table learnt (
  tenant text not null,
  project text not null,
  source text not null,
  steps integer not null,
  at real not null,
  primary key (tenant, project, source)
) without rowid;
create index learnt_at on learnt (tenant, project, at) where steps > 0;

-- What has happened in the session of an agent that has not ended: 'read …', a file; 'told …', a mark of a call. Both are
-- digests. 'past DAY KEY': events of the session went, and KEY sent them; this stays.
create table session_mark (
  tenant text not null,
  project text not null,
  session text not null,
  mark text not null,
  primary key (tenant, project, session, mark)
) without rowid;

-- What a session of an agent was reminded of, or what was withheld from it with the probability `share`: the `subject` is
-- the name of a lesson, or without one 'mark/' and the digest of a mark of a call. When the session has ended, it is `settled`, and `repeated` says whether
-- a later call failed for it. A person knows how it ended if it `is_known`.
create table reminder (
  tenant text not null,
  project text not null,
  session text not null,
  subject text not null,
  told boolean not null check (told or share > 0),
  share real not null check (share >= 0 and share < 1),
  at real not null,
  repeated boolean,
  calls integer not null default 0,
  settled boolean not null default false,
  primary key (tenant, project, session, subject)
) without rowid;

-- A link between two lessons, by kind and signature, so that the link outlives the lessons: from a strategy to its
-- reflection, from a lesson to the lesson that it `became` in a dream, or from a reflection of a dream to a lesson that
-- it `cites`. `before` is the former state of what became another lesson.
create table link (
  tenant text not null,
  project text not null,
  child text not null,
  relation text not null,
  parent text not null,
  dream integer not null default 0,
  before text not null default 'unverified',
  primary key (tenant, project, child, relation, parent)
) without rowid;
create index link_parent on link (tenant, project, parent, relation);
create index link_became on link (tenant, project, dream) where relation = 'became';

-- An API key. `hash` is the SHA-256 of its secret. `projects` is a JSON list; an empty one allows all projects of the
-- tenant. `may` is a JSON list of permissions.
create table key (
  id text not null primary key,
  tenant text not null,
  name text not null,
  hash text not null,
  projects text not null,
  may text not null,
  by text not null,
  at real not null,
  expires real,
  revoked real,
  outside boolean not null default false
) without rowid;
create index key_newest on key (tenant, at desc, id desc);

-- An action through a service, written in the transaction of the action. `projects` is a JSON list as in `key`.
create table audit (
  tenant text not null,
  projects text not null,
  n integer not null,
  at real not null,
  by text not null,
  action text not null,
  subject text not null,
  detail text not null,
  primary key (tenant, n)
) without rowid;
-- A call with an Idempotency-Key. `n` numbers its effects from 0; row -1 is the answer. A row is written in the
-- transaction of the effect and has the result of the effect. `digest` covers the request, `once` the Idempotency-Key.
create table answer (
  tenant text not null,
  caller text not null,
  once text not null,
  n integer not null,
  digest text not null,
  record text not null,
  at real not null,
  primary key (tenant, caller, once, n)
) without rowid;
create index answer_oldest on answer (tenant, at);

-- A trace whose last span arrived at `last`; `known` of its spans follow a convention. It is `rooted` if the span without a
-- parent has arrived, which ends last. A finished trace stays for some time, so that a late span does not start it again.
create table trace (
  tenant text not null,
  project text not null,
  id text not null,
  trust text not null,
  state text not null default 'open' check (state in ('open', 'done')),
  spans integer not null,
  known integer not null,
  bytes integer not null,
  rooted boolean not null,
  via text not null default '',
  last real not null,
  primary key (tenant, project, id)
) without rowid;
create index trace_state on trace (tenant, project, state, last);

create table span (
  n integer primary key,
  tenant text not null,
  project text not null,
  trace text not null,
  id text not null,
  parent text not null,
  root boolean not null,
  record text not null,
  known boolean not null,
  unique (tenant, project, trace, id)
);

-- What happened in the sessions of agents that have not ended; `record` is an event as JSON, `action` that of a call.
create table event (
  n integer primary key,
  tenant text not null,
  project text not null,
  session text not null,
  type text not null default '',
  tool text not null default '',
  call text not null default '',
  action text not null default '',
  failed boolean not null default false,
  record text not null,
  via text not null default '',
  at real not null
);
create index event_of on event (tenant, project, session, n);
create index event_call on event (tenant, project, session, call, tool, type);
create index event_tool on event (tenant, project, session, tool, type, n);
create index event_action on event (tenant, project, session, action, n);

-- The calls of sessions that have ended, and what agents were told of the rules of the user, as in `event`. A call `ended`
-- if its result is known.
create table past_call (
  n integer primary key,
  tenant text not null,
  project text not null,
  session text not null,
  type text not null,
  call text not null,
  ended boolean not null,
  record text not null,
  via text not null default '',
  at real not null
);
create index past_call_of on past_call (tenant, project, n);
create index past_call_session on past_call (tenant, project, session);

-- Triggers that update the counts of lessons, and the time at which a lesson was last shown.
create trigger lesson_added after insert on lesson begin
  insert into tally (tenant, project, lessons, lesson) values (new.tenant, new.project, 1, new.id)
  on conflict (tenant, project) do update set lessons = tally.lessons + 1, lesson = new.id;
  -- It was superseded and deleted before: that is over.
  delete from link where tenant = new.tenant and project = new.project
    and child = new.kind || '/' || new.signature and relation = 'became';
end;
create trigger lesson_gone after delete on lesson begin
  update tally set lessons = lessons - 1 where tenant = old.tenant and project = old.project;
  -- Lessons that it superseded return.
  delete from link where tenant = old.tenant and project = old.project
    and parent = old.kind || '/' || old.signature and relation = 'became';
  delete from link where tenant = old.tenant and project = old.project
    and child = old.kind || '/' || old.signature and relation = 'cites';
  delete from example where lesson_id = old.id;
  delete from cause
  where tenant = old.tenant and project = old.project and kind = old.kind and signature = old.signature;
end;
create trigger lesson_trusted after update of trust, released_by on lesson when new.unreviewed <> old.unreviewed or new.trust <> old.trust begin
  update tally set trust = trust + 1 where tenant = new.tenant and project = new.project;
end;
create trigger exposure_shown after insert on exposure when new.shown begin
  update lesson set last_shown = max(last_shown, new.at)
  where tenant = new.tenant and project = new.project and kind = new.kind and signature = new.signature;
end;

-- An example may be recalled if its own state and the state of its lesson allow it. A lesson whose text is withheld does
-- not hide examples from other sources.
create trigger lesson_changed after update of state, trust, released_by on lesson
when (old.state in ('unverified', 'verified') or old.unreviewed)
  <> (new.state in ('unverified', 'verified') or new.unreviewed) begin
  update example set indexed = not indexed where lesson_id = new.id and indexed <> (
    state in ('unverified', 'verified')
    and (new.state in ('unverified', 'verified') or new.unreviewed)
  );
end;
-- The origins of a deleted example are deleted too if it was never shown and nothing derives from it.
create trigger held_gone after delete on example
when old.state = 'quarantined' begin
  delete from origin where example = old.id and not exists (select 1 from lineage where parent = old.id);
  delete from lineage where child = old.id and not exists (select 1 from lineage l where l.parent = old.id);
end;

-- A lesson supersedes others only while it exists with the same text. Otherwise the links to it are deleted.
create trigger survivor_changed after update of text, state on lesson
when new.text <> old.text or new.state = 'quarantined' and old.state <> 'quarantined' begin
  delete from link where tenant = old.tenant and project = old.project
    and parent = old.kind || '/' || old.signature and relation = 'became';
end;
-- A reflection of a dream is deleted with a lesson that it cites, or when that lesson gets other words or is not
-- recalled any more.
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
-- When such a link is deleted, the superseded lesson returns in its former state.
create trigger member_back after delete on link when old.relation = 'became' begin
  update lesson set state = old.before
  where tenant = old.tenant and project = old.project and kind = substr(old.child, 1, instr(old.child, '/') - 1)
    and signature = substr(old.child, instr(old.child, '/') + 1) and state = 'superseded';
end;
create trigger member_returned after update of state on lesson
when old.state = 'superseded' and new.state <> 'superseded' begin
  delete from link where tenant = new.tenant and project = new.project
    and child = new.kind || '/' || new.signature and relation = 'became';
end;

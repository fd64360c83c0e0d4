-- Schema 1: the tables that both engines have, in SQLite's types. Times are seconds since 1970, JSON is text.
-- For PostgreSQL `database.in_postgres` turns the types into its own and gives every table its tenant.

-- A loop: its task, goals and policy as they were given (JSON), `context` what its checks find besides the task, and
-- who drives it until when: `epoch` grows with every driver. `kind`: a loop of its own, the run of a pipeline, or a
-- `stage` of the `run` of that id; `settings` are those of the stage (JSON).
create table loop (
  n integer primary key,
  tenant text not null,
  project text not null,
  id text not null,
  kind text not null default 'loop' check (kind in ('loop', 'run', 'stage')),
  run text not null default '',
  stage text not null default '',
  settings text not null default 'null',
  task text not null,
  goals text not null,
  policy text not null,
  context text not null default 'null',
  state text not null default 'open' check (state in ('open', 'passed', 'stopped')),
  extra text not null default '{}',
  cancelled text not null default '',
  owner text not null default '',
  epoch integer not null default 1,
  lease real not null default 0,
  created real not null,
  updated real not null,
  unique (tenant, project, id)
);

-- An attempt of a loop (JSON), and the value that it produced (JSON).
create table attempt (
  loop integer not null references loop (n) on delete cascade,
  number integer not null check (number > 0),
  record text not null,
  value text not null,
  created real not null,
  primary key (loop, number)
) without rowid;

-- The verdicts, in order.
create table decision (
  loop integer not null references loop (n) on delete cascade,
  seq integer not null,
  attempt integer not null,
  record text not null,
  created real not null,
  primary key (loop, seq)
) without rowid;

-- Permissions to go on past a rule; `until` is when one expires.
create table override (
  loop integer not null references loop (n) on delete cascade,
  seq integer not null,
  rule text not null,
  by text not null,
  why text not null,
  decisions integer not null check (decisions > 0),
  used integer not null default 0 check (used between 0 and decisions),
  until real,
  created real not null,
  primary key (loop, seq)
) without rowid;

-- The journal: finished steps of the attempt that is under way, gone once it is recorded.
create table step (
  loop integer not null references loop (n) on delete cascade,
  key text not null,
  record text not null,
  created real not null,
  primary key (loop, key)
) without rowid;

-- A lesson. `source` names where its text came from: a page, a tool, a file, a loop. `useful` is the factor that the proof
-- gave its rank; `helped` counts the loops that it was shown in and that were right at once, `hurt` those in which its own
-- error came again. `apart`: never grouped with other patterns. `author` is the example whose words the lesson has;
-- `last_seen` and `last_shown` together say when it was last of use. `meta` is what else is known of it (JSON).
create table reflection (
  id integer primary key,
  tenant text not null,
  project text not null,
  kind text not null,
  signature text not null,
  pattern text not null,
  error_type text not null,
  text text not null,
  tags text not null default '[]',
  state text not null check (state in ('candidate', 'verified', 'quarantined', 'retired', 'superseded')),
  trust text not null check (trust in ('operator', 'measured', 'model', 'tool', 'external')),
  importance real not null default 0.5 check (importance between 0 and 1),
  seen integer not null default 1,
  source text not null default '',
  pinned boolean not null default false,
  apart boolean not null default false,
  useful real not null default 1,
  helped integer not null default 0,
  hurt integer not null default 0,
  first_seen real not null,
  last_seen real not null,
  last_shown real not null default 0,
  author integer,
  meta text not null default '{}',
  unique (tenant, project, kind, signature)
);
create index reflection_signature on reflection (tenant, project, signature);
-- How many lessons a scope has, so that nobody counts them.
create table tally (
  tenant text not null,
  project text not null,
  lessons integer not null,
  primary key (tenant, project)
) without rowid;

-- A sighting of a lesson: in which loop, in which words, and who said so.
create table occurrence (
  id integer primary key,
  reflection integer not null references reflection (id) on delete cascade,
  loop text not null,
  text text not null,
  source text not null default '',
  trust text not null default 'external',
  parents text not null default '[]',
  at real not null
);
create index occurrence_at on occurrence (reflection, at);

-- No id is given twice, or a loop that was shown an example that is gone would learn from another.
-- An example of a lesson, or the lesson itself where it has none. Its state is its own: what a tool says about a verified
-- lesson is not verified by it. `lesson` is what the lesson said as it came with this example; `words` are those that a
-- search compares. `indexed`: it is one of the texts of its scope, to be recalled.
create table example (
  id integer primary key autoincrement,
  reflection integer not null references reflection (id) on delete cascade,
  scope text not null,
  task text not null,
  record text not null,
  digest text not null,
  state text not null check (state in ('candidate', 'verified', 'quarantined', 'retired', 'superseded')),
  trust text not null default 'external',
  lesson text not null default '',
  words text not null default '',
  indexed boolean not null default false,
  at real not null,
  unique (reflection, digest)
);
create index example_held on example (scope) where state = 'quarantined';

-- What an example comes from: the sources of its own and, in `lineage`, the examples that it derives from. Both outlive
-- an example that is evicted, so that a chain holds; a source is revoked with all that is reached from it. Kept for
-- each example, the sources of all that lies before it would be as many as there are examples to the power of 5/3.
create table origin (
  example integer not null,
  source text not null,
  scope text not null,
  primary key (example, source)
) without rowid;
create index origin_source on origin (scope, source);

create table lineage (
  child integer not null,
  parent integer not null,
  primary key (child, parent)
) without rowid;
create index lineage_parent on lineage (parent);

-- What a person or a proof decided about lessons, and why.
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

-- A lesson ranked into the prompt of a loop: shown, or withheld with the probability `share`. It is
-- named by kind and signature, so that the record outlives the lesson and the loop. `among` is how many
-- lessons were ranked into that prompt.
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
  at real not null,
  primary key (tenant, project, loop, kind, signature)
) without rowid;

-- How a loop that had exposures ended; `n` counts those of the scope, from 1.
create table outcome (
  tenant text not null,
  project text not null,
  loop text not null,
  n integer not null,
  right_at_once boolean not null,
  calls integer not null,
  signatures text not null,
  at real not null,
  primary key (tenant, project, loop)
) without rowid;
create unique index outcome_n on outcome (tenant, project, n);

-- Loops of a journal elsewhere whose lessons are written: they are counted once, and what was removed stays away.
create table taught (
  tenant text not null,
  project text not null,
  loop text not null,
  primary key (tenant, project, loop)
) without rowid;

-- A run of an agent, kept once however often it is read. `state`: it waits to be reflected on, was, or
-- could not be: then `error` says why, after so many `tries`.
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
  -- When a worker took it last, in seconds since 1970; while it waits, for so long it is at work on it.
  taken real not null default 0,
  record text not null,
  at real not null,
  unique (tenant, project, digest)
);
create index episode_newest on episode (tenant, project, at desc);
create index episode_waiting on episode (tenant, project, at) where state <> 'reflected';

-- Lessons that belong together, by kind and signature, so that the record outlives them: the strategy that
-- came with a reflection, what a lesson was made of, what it is about.
create table link (
  tenant text not null,
  project text not null,
  child text not null,
  relation text not null,
  parent text not null,
  at real not null,
  primary key (tenant, project, child, relation, parent)
) without rowid;
create index link_parent on link (tenant, project, parent, relation);

-- A consolidation: what it proposed and did, or why it did nothing; `undone` is when it was rolled back.
create table dream (
  id integer primary key,
  tenant text not null,
  project text not null,
  report text not null,
  by text not null,
  at real not null,
  undone real
);
create index dream_newest on dream (tenant, project, at desc);
-- What it changed of lessons and examples: how they were, and what took their place.
create table supersession (
  dream integer not null references dream (id) on delete cascade,
  what text not null check (what in ('reflection', 'example')),
  subject integer not null,
  before text not null,
  successor integer,
  why text not null,
  primary key (dream, what, subject)
) without rowid;
create index supersession_subject on supersession (what, subject);

-- Who may call. Of the secret only its SHA-256 is here. `projects`: a JSON list, empty for all of the tenant's;
-- `may`: a JSON list of read, write, approve, admin. Times are seconds since 1970; `used` is at most a minute late.
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
  used real,
  revoked real
) without rowid;

-- What was done through a service, by whom, in the transaction in which it was done. `hash` is over the row and
-- over that of the row before, so that one which is changed or removed is found.
create table audit (
  tenant text not null,
  n integer not null,
  at real not null,
  by text not null,
  action text not null,
  subject text not null,
  detail text not null,
  previous text not null,
  hash text not null,
  primary key (tenant, n)
) without rowid;
-- How many rows there are, and the hash of the last, so that its removal is found, too.
create table audit_head (
  tenant text not null primary key,
  n integer not null,
  hash text not null
) without rowid;

-- A call with an Idempotency-Key: `n` counts its effects from 0, each written with what it came to in the
-- transaction of the effect itself; the row -1 is the answer. `digest` is over what was asked.
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

-- A trace, `last` being when its last span came, in seconds since 1970. `rooted`: a span without a parent is there, which ends
-- after all below it. A trace that is done is kept for some time, so that a late span does not begin it again.
create table trace (
  tenant text not null,
  project text not null,
  id text not null,
  trust text not null,
  state text not null default 'open' check (state in ('open', 'done')),
  spans integer not null,
  bytes integer not null,
  rooted boolean not null,
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
  unique (tenant, project, trace, id)
);

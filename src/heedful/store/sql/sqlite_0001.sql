-- Schema 1: all that heedful keeps in one file.
--
-- Times are seconds since 1970, flags are 0 or 1, JSON is text.

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
create index loop_newest on loop (tenant, project, created desc);

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
  pinned integer not null default 0,
  apart integer not null default 0,
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
-- The newest first, by their ids, which every index ends with.
create index reflection_listed on reflection (tenant, project);
-- The patterns of an error type that teach the templates, in the order learnt.
create index reflection_type on reflection (tenant, project, error_type, id, signature, apart, trust)
where trust not in ('tool', 'external');
-- The least useful first; what orders by these very expressions needs no sort.
create index reflection_useful on reflection (
  tenant, project, pinned,
  case state when 'quarantined' then 0 when 'candidate' then 2 when 'verified' then 2 else 1 end,
  useful, importance, max(last_seen, last_shown)
);
-- How many lessons a scope has, so that nobody counts them.
create table tally (
  tenant text not null,
  project text not null,
  lessons integer not null,
  primary key (tenant, project)
) without rowid;
create trigger reflection_added after insert on reflection begin
  insert into tally (tenant, project, lessons) values (new.tenant, new.project, 1)
  on conflict (tenant, project) do update set lessons = lessons + 1;
end;
create trigger reflection_gone after delete on reflection begin
  update tally set lessons = lessons - 1 where tenant = old.tenant and project = old.project;
end;

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
-- Those that have a quota.
create index occurrence_source on occurrence (source, trust, reflection) where trust in ('tool', 'external');

-- An example of a lesson, or the lesson itself where it has none. Its state is its own: what a tool says about a verified
-- lesson is not verified by it. `lesson` is what the lesson said as it came with this example; `words` are those that a
-- search compares. `indexed`: it is one of the texts of its scope, to be recalled.
create table example (
  id integer primary key,
  reflection integer not null references reflection (id) on delete cascade,
  scope text not null,
  task text not null,
  record text not null,
  digest text not null,
  state text not null check (state in ('candidate', 'verified', 'quarantined', 'retired', 'superseded')),
  trust text not null default 'external',
  lesson text not null default '',
  words text not null default '',
  indexed integer not null default 0,
  at real not null,
  unique (reflection, digest)
);
create index example_held on example (scope) where state = 'quarantined';
create index example_oldest on example (scope, at) where indexed;

-- Where an example lies in the space of an embedder: 32-bit floats, the least byte first. A space is named by embedder and
-- length of its vectors; `changed` is the number that `corpus` gave it.
create table vector (
  example integer primary key references example (id) on delete cascade,
  tenant text not null,
  project text not null,
  space text not null,
  data blob not null,
  changed integer not null default 0
);
create index vector_changed on vector (tenant, project, space, changed);

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

-- The largest id of an example that is gone: none is given twice, or a loop that was shown one would learn from another.
create table gone (example integer not null);
insert into gone (example) values (0);
create trigger example_not_again after delete on example when old.id > (select example from gone) begin
  update gone set example = old.id;
end;
-- Of what nobody was shown and nothing derives from, no trace stays.
create trigger held_gone after delete on example
when old.state = 'quarantined' and not exists (select 1 from lineage where parent = old.id) begin
  delete from origin where example = old.id;
  delete from lineage where child = old.id;
end;

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
  shown integer not null check (shown or share > 0),
  share real not null default 0 check (share >= 0 and share < 1),
  together integer not null default 0,
  among integer not null,
  examples text not null default '[]',
  at real not null,
  primary key (tenant, project, loop, kind, signature)
) without rowid;
create trigger exposure_shown after insert on exposure when new.shown begin
  update reflection set last_shown = max(last_shown, new.at)
  where tenant = new.tenant and project = new.project and kind = new.kind and signature = new.signature;
end;

-- How a loop that had exposures ended; `n` counts those of the scope, from 1.
create table outcome (
  tenant text not null,
  project text not null,
  loop text not null,
  n integer not null,
  right_at_once integer not null,
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

-- What a search looks through. A scope has `texts`, of `length` characters of words in all; a text is one of them,
-- `indexed`, while it may be recalled and its lesson, too; one whose words are held back silences no other words. In the index each word carries the number of its scope,
-- so that counting and matching in one scope read nothing of another. `changed` grows with every vector that
-- may be looked through from then on, and such a vector has its number: who knows all up to some number reads on from it.
create table corpus (
  id integer primary key,
  scope text not null unique,
  texts integer not null default 0,
  length integer not null default 0,
  changed integer not null default 0
);

create view recallable as
select e.id, replace(' ' || e.words, ' ', ' s' || c.id || 'x') as words
from example e join corpus c on c.scope = e.scope where e.indexed;
create virtual table example_fts using fts5 (
  words, content = 'recallable', content_rowid = 'id', detail = none, columnsize = 0, tokenize = 'ascii'
);

create trigger example_added after insert on example begin
  insert into corpus (scope) select new.scope where not exists (select 1 from corpus where scope = new.scope);
  update example set indexed = 1 where id = new.id and state in ('candidate', 'verified')
    and (select state in ('candidate', 'verified') or trust in ('tool', 'external') from reflection where id = new.reflection);
end;
create trigger example_changed after update of state, words on example begin
  insert into example_fts (example_fts, rowid, words)
  select 'delete', old.id, replace(' ' || old.words, ' ', ' s' || id || 'x')
  from corpus where scope = old.scope and old.indexed and new.words <> old.words;
  insert into example_fts (rowid, words)
  select id, words from recallable where id = old.id and new.words <> old.words;
  update corpus set length = length + length(new.words) - length(old.words)
  where scope = old.scope and old.indexed and new.words <> old.words;
  update example set indexed = not indexed where id = old.id and indexed <> (
    state in ('candidate', 'verified')
    and (select state in ('candidate', 'verified') or trust in ('tool', 'external') from reflection where id = new.reflection)
  );
end;
create trigger reflection_changed after update of state, trust on reflection
when (old.state in ('candidate', 'verified') or old.trust in ('tool', 'external'))
  <> (new.state in ('candidate', 'verified') or new.trust in ('tool', 'external')) begin
  update example set indexed = not indexed where reflection = new.id and indexed <> (
    state in ('candidate', 'verified')
    and (new.state in ('candidate', 'verified') or new.trust in ('tool', 'external'))
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

-- What took the place of others holds as long as it says what it said: then it is no longer linked to them.
create trigger survivor_gone after delete on reflection begin
  delete from link where tenant = old.tenant and project = old.project
    and parent = old.kind || '/' || old.signature and relation = 'became';
end;
create trigger survivor_changed after update of text, state on reflection
when new.text <> old.text or new.state = 'quarantined' and old.state <> 'quarantined' begin
  delete from link where tenant = old.tenant and project = old.project
    and parent = old.kind || '/' || old.signature and relation = 'became';
end;
-- And they come back, as they were, in place of the copies of their examples. What is known of those stays, as of
-- all that is gone; one that was confirmed since stays, too.
create trigger member_back after delete on link when old.relation = 'became' begin
  delete from example where id in (
    select s.successor
    from reflection l join example e on e.reflection = l.id
         join supersession s on s.what = 'example' and s.subject = e.id join dream d on d.id = s.dream
         join example c on c.id = s.successor
    where l.tenant = old.tenant and l.project = old.project and l.kind = substr(old.child, 1, instr(old.child, '/') - 1)
      and l.signature = substr(old.child, instr(old.child, '/') + 1)
      and d.undone is null and c.state = json_extract(s.before, '$.state')
  );
  update reflection set state = coalesce((
    select json_extract(s.before, '$.state') from supersession s join dream d on d.id = s.dream
    where s.what = 'reflection' and s.subject = reflection.id and d.undone is null
      and json_extract(s.before, '$.lesson') = old.child
    order by s.dream desc limit 1
  ), 'candidate')
  where tenant = old.tenant and project = old.project and kind = substr(old.child, 1, instr(old.child, '/') - 1)
    and signature = substr(old.child, instr(old.child, '/') + 1) and state = 'superseded';
end;

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
create index key_newest on key (tenant, at desc);

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
  rooted integer not null,
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
  root integer not null,
  record text not null,
  unique (tenant, project, trace, id)
);

-- Schema 1. Loops, what was decided about them, and what was learnt.

create table loop (
  n integer primary key,
  tenant text not null,
  project text not null,
  id text not null,
  task text not null,
  goals text not null,
  policy text not null,
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

create table attempt (
  loop integer not null references loop (n) on delete cascade,
  number integer not null check (number > 0),
  record text not null,
  value text not null,
  created real not null,
  primary key (loop, number)
) without rowid;

create table decision (
  loop integer not null references loop (n) on delete cascade,
  seq integer not null,
  attempt integer not null,
  record text not null,
  created real not null,
  primary key (loop, seq)
) without rowid;

create table override (
  loop integer not null references loop (n) on delete cascade,
  seq integer not null,
  rule text not null,
  by text not null,
  why text not null,
  decisions integer not null check (decisions > 0),
  used integer not null default 0 check (used between 0 and decisions),
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
  first_seen real not null,
  last_seen real not null,
  unique (tenant, project, kind, signature)
);
create index reflection_signature on reflection (tenant, project, signature);

create table occurrence (
  id integer primary key,
  reflection integer not null references reflection (id) on delete cascade,
  loop text not null,
  text text not null,
  at real not null
);
create index occurrence_reflection on occurrence (reflection);

create table example (
  id integer primary key,
  reflection integer not null references reflection (id) on delete cascade,
  scope text not null,
  task text not null,
  record text not null,
  digest text not null,
  -- Its own: what a tool says about a verified lesson is not verified by it.
  state text not null check (state in ('candidate', 'verified', 'quarantined', 'retired', 'superseded')),
  at real not null,
  unique (reflection, digest)
);

create table vector (
  example integer primary key references example (id) on delete cascade,
  tenant text not null,
  project text not null,
  space text not null,
  data blob not null
);
create index vector_scope on vector (tenant, project, space);

-- The scope is a token of the row, so a search never reads another scope's matches.
create virtual table example_fts using fts5 (
  scope, task, content = 'example', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
);
create trigger example_added after insert on example begin
  insert into example_fts (rowid, scope, task) values (new.id, new.scope, new.task);
end;
create trigger example_gone after delete on example begin
  insert into example_fts (example_fts, rowid, scope, task) values ('delete', old.id, old.scope, old.task);
end;

create table exposure (
  loop integer not null references loop (n) on delete cascade,
  example integer not null references example (id) on delete cascade,
  shown integer not null,
  at real not null,
  primary key (loop, example)
) without rowid;

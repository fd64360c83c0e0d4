-- Schema 5. Episodes of agents, what came of reflecting on them, links between lessons, and dreams.

-- What else is known of a lesson, as JSON: of a reflection its confidence, outcome and events.
alter table reflection add column meta text not null default '{}';

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

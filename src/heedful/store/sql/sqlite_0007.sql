-- Schema 7. Traces that come in pieces, until they have ended; lessons page by page.

-- A trace, `last` being when its last span came, in seconds since 1970. `rooted`: a span without a parent is there, which ends
-- after all below it. One that is done is known for some time, lest what comes late
-- begin it anew.
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

-- The newest first, by their ids, which every index ends with.
create index reflection_listed on reflection (tenant, project);

-- What checks of a loop that is reported from outside are given besides its task: JSON data.
alter table loop add column context text not null default 'null';

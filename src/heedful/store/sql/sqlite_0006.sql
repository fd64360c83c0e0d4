-- Schema 6. What a service needs: keys, what was done with them, and answers to calls that may come again.

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

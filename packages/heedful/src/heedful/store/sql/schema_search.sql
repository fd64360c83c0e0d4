-- The tables of searches: each engine has columns of its own there.

-- The vector of an example as little-endian 32-bit floats. The name of a space has its embedder and its length. In
-- SQLite, `changed` is the value of `corpus.changed` when the vector became searchable. In PostgreSQL, `near` is a
-- halfvec, null if that is impossible, and `indexed` is a copy of the example's.
create table vector (
  example integer not null references example (id) on delete cascade,
  tenant text not null,
  project text not null,
  space text not null,
  data blob not null,
  /*sqlite changed integer not null default 0, */
  /*postgres near halfvec, */
  /*postgres indexed boolean not null default false, */
  primary key (example)
);
create index vector_scope on vector (tenant, project, space, /*sqlite changed *//*postgres indexed */);

-- For each scope the last id of an example, the number of searchable texts, and the characters of their words. In the
-- index of SQLite, each word begins with the number of its scope, so that a search reads no other scope. `changed`
-- numbers the vectors in the order in which they became searchable, so that a reader can continue after the last
-- number that it read.
create table corpus (
  /*sqlite place integer primary key, */
  /*postgres tenant text not null, */
  scope text not null,
  example integer not null,
  texts integer not null default 0,
  length integer not null default 0,
  /*sqlite changed integer not null default 0, */
  unique (scope)
);

-- From schema 2 to 3 for SQLite.

-- What persons wrote about a loop, in order: each note with its author, for the next reader.
create table loop_note (
  loop integer not null references loop (n) on delete cascade,
  seq integer not null,
  text text not null,
  by text not null,
  created real not null,
  primary key (loop, seq)
) without rowid;

-- From schema 2 to 3 for PostgreSQL. Code of schema 2 can run on it.

-- What persons wrote about a loop, in order: each note with its author, for the next reader.
create table loop_note (
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  loop bigint not null references loop (n) on delete cascade,
  seq bigint not null,
  text text collate "C" not null,
  by text collate "C" not null,
  created double precision not null,
  primary key (loop, seq)
);
alter table loop_note enable row level security;
create policy of_tenant on loop_note using (tenant = (select current_setting('heedful.tenant')))
with check (tenant = (select current_setting('heedful.tenant')));

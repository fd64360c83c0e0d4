-- From schema 2 to 3 for PostgreSQL. Code of schema 2 can run on it.

-- What a search of loops looks at: the beginnings of the task, of outputs and of findings, folded for comparison. A search
-- writes it for loops whose `updated` differs; a report never does.
create table loop_text (
  loop bigint not null references loop (n) on delete cascade,
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  project text collate "C" not null,
  updated double precision not null,
  text text collate "C" not null,
  primary key (loop)
);
create index loop_text_newest on loop_text (tenant, project, loop);
create index loop_updated on loop (tenant, project, updated);
create index loop_runs on loop (tenant, project, n) where kind = 'run';
-- A search reads all texts, and compressed ones take several times as long.
alter table loop_text alter text set storage external;
alter table loop_text enable row level security;
create policy of_tenant on loop_text using (tenant = (select current_setting('heedful.tenant')))
with check (tenant = (select current_setting('heedful.tenant')));

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

-- The calls that the owners of a loop have begun since its last entry.
alter table loop add column unanswered bigint not null default 0;

-- The check that found the mistake of a rule, in all functions that it guards.
alter table cause add column check_id text collate "C" not null default '';
create index cause_check on cause (tenant, project, check_id) where check_id <> '';

-- What a run saw of a lesson.
create index occurrence_source on occurrence (lesson_id, source);

-- A loop that nothing judged is not right at the first try any more: the days are counted anew.
delete from day_figure;

-- What went wrong, as a record.
alter table lesson add column mistake text collate "C" not null default '';

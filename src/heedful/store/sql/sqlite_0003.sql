-- From schema 2 to 3 for SQLite.

-- What a search of loops looks at: the beginnings of the task, of outputs and of findings, folded for comparison. A search
-- writes it for loops whose `updated` differs; a report never does.
create table loop_text (
  loop integer not null references loop (n) on delete cascade,
  tenant text not null,
  project text not null,
  updated real not null,
  text text not null,
  primary key (loop)
);
create index loop_text_newest on loop_text (tenant, project, loop);
create index loop_updated on loop (tenant, project, updated);
create index loop_runs on loop (tenant, project, n) where kind = 'run';

-- The three-letter parts of the texts of loops. A text is deleted and inserted, never updated.
create virtual table loop_fts using fts5 (
  text, content = 'loop_text', content_rowid = 'loop', detail = none, columnsize = 0, tokenize = 'trigram case_sensitive 1'
);
create trigger loop_text_added after insert on loop_text begin
  insert into loop_fts (rowid, text) values (new.loop, new.text);
end;
create trigger loop_text_gone after delete on loop_text begin
  insert into loop_fts (loop_fts, rowid, text) values ('delete', old.loop, old.text);
end;

-- What persons wrote about a loop, in order: each note with its author, for the next reader.
create table loop_note (
  loop integer not null references loop (n) on delete cascade,
  seq integer not null,
  text text not null,
  by text not null,
  created real not null,
  primary key (loop, seq)
) without rowid;

-- The calls that the owners of a loop have begun since its last entry.
alter table loop add column unanswered integer not null default 0;

-- The check that found the mistake of a rule, in all functions that it guards.
alter table cause add column check_id text not null default '';
create index cause_check on cause (tenant, project, check_id) where check_id <> '';

-- What a run saw of a lesson.
create index occurrence_source on occurrence (lesson_id, source);

-- A loop that nothing judged is not right at the first try any more: the days are counted anew.
delete from day_figure;

-- What went wrong, as a record.
alter table lesson add column mistake text not null default '';

-- The schema of SQLite. Every index of SQLite ends with the number of the row.
-- include the tables

create view recallable as
select e.id, replace(' ' || e.words, ' ', ' s' || c.place || 'x') as words
from example e join corpus c on c.scope = e.scope where e.indexed;
create virtual table example_fts using fts5 (
  words, content = 'recallable', content_rowid = 'id', detail = none, columnsize = 0, tokenize = 'ascii'
);

create trigger example_added after insert on example begin
  insert into corpus (scope, example) values (new.scope, new.id)
  on conflict (scope) do update set example = new.id;
  update example set indexed = 1 where id = new.id and state in ('unverified', 'verified')
    and (select state in ('unverified', 'verified') or unreviewed from lesson where id = new.lesson_id);
end;
-- A statement that changes words also sets `indexed` to false, so that the old words leave the index first.
create trigger example_changed after update of state, words, lesson_id on example begin
  update example set indexed = not indexed where id = old.id and indexed <> (
    state in ('unverified', 'verified')
    and (select state in ('unverified', 'verified') or unreviewed from lesson where id = new.lesson_id)
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

-- The ids of a new scope begin after `base`: 0 in the first scope, and elsewhere a random number with room for 10**8 ids.
create view new_scope as
with recursive pick (base) as (
  select case when exists (select 1 from tally) then (1 + abs(random() % 90000000)) * 100000000 else 0 end
  union all select (1 + abs(random() % 90000000)) * 100000000 from pick
  where base in (select lesson / 100000000 * 100000000 from tally)
)
select base from pick where base not in (select lesson / 100000000 * 100000000 from tally) limit 1;

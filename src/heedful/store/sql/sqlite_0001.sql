-- Schema 1: what SQLite alone has beside the tables: indexes, which all end with the number of the row, and triggers.
-- include tables_0001.sql

create index loop_newest on loop (tenant, project, created desc);
-- The newest first, by their ids, which every index ends with.
create index reflection_listed on reflection (tenant, project);
-- The patterns of an error type that teach the templates, in the order learnt.
create index reflection_type on reflection (tenant, project, error_type, id, signature, apart, trust)
where trust not in ('tool', 'external');
-- The least useful first; what orders by these very expressions needs no sort.
create index reflection_useful on reflection (
  tenant, project, pinned,
  case state when 'quarantined' then 0 when 'candidate' then 2 when 'verified' then 2 else 1 end,
  useful, importance, max(last_seen, last_shown)
);
create trigger reflection_added after insert on reflection begin
  insert into tally (tenant, project, lessons) values (new.tenant, new.project, 1)
  on conflict (tenant, project) do update set lessons = lessons + 1;
end;
create trigger reflection_gone after delete on reflection begin
  update tally set lessons = lessons - 1 where tenant = old.tenant and project = old.project;
end;
-- Those that have a quota.
create index occurrence_source on occurrence (source, trust, reflection) where trust in ('tool', 'external');
create index example_oldest on example (scope, at) where indexed;

-- Where an example lies in the space of an embedder: 32-bit floats, the least byte first. A space is named by embedder and
-- length of its vectors; `changed` is the number that `corpus` gave it.
create table vector (
  example integer primary key references example (id) on delete cascade,
  tenant text not null,
  project text not null,
  space text not null,
  data blob not null,
  changed integer not null default 0
);
create index vector_changed on vector (tenant, project, space, changed);

insert into sqlite_sequence (name, seq) values ('example', 0);
-- Of what nobody was shown and nothing derives from, no trace stays.
create trigger held_gone after delete on example
when old.state = 'quarantined' and not exists (select 1 from lineage where parent = old.id) begin
  delete from origin where example = old.id;
  delete from lineage where child = old.id;
end;
create trigger exposure_shown after insert on exposure when new.shown begin
  update reflection set last_shown = max(last_shown, new.at)
  where tenant = new.tenant and project = new.project and kind = new.kind and signature = new.signature;
end;

-- What a search looks through. A scope has `texts`, of `length` characters of words in all; a text is one of them,
-- `indexed`, while it may be recalled and its lesson, too; one whose words are held back silences no other words. In the index each word carries the number of its scope,
-- so that counting and matching in one scope read nothing of another. `changed` grows with every vector that
-- may be looked through from then on, and such a vector has its number: who knows all up to some number reads on from it.
create table corpus (
  id integer primary key,
  scope text not null unique,
  texts integer not null default 0,
  length integer not null default 0,
  changed integer not null default 0
);

create view recallable as
select e.id, replace(' ' || e.words, ' ', ' s' || c.id || 'x') as words
from example e join corpus c on c.scope = e.scope where e.indexed;
create virtual table example_fts using fts5 (
  words, content = 'recallable', content_rowid = 'id', detail = none, columnsize = 0, tokenize = 'ascii'
);

create trigger example_added after insert on example begin
  insert into corpus (scope) select new.scope where not exists (select 1 from corpus where scope = new.scope);
  update example set indexed = 1 where id = new.id and state in ('candidate', 'verified')
    and (select state in ('candidate', 'verified') or trust in ('tool', 'external') from reflection where id = new.reflection);
end;
create trigger example_changed after update of state, words on example begin
  insert into example_fts (example_fts, rowid, words)
  select 'delete', old.id, replace(' ' || old.words, ' ', ' s' || id || 'x')
  from corpus where scope = old.scope and old.indexed and new.words <> old.words;
  insert into example_fts (rowid, words)
  select id, words from recallable where id = old.id and new.words <> old.words;
  update corpus set length = length + length(new.words) - length(old.words)
  where scope = old.scope and old.indexed and new.words <> old.words;
  update example set indexed = not indexed where id = old.id and indexed <> (
    state in ('candidate', 'verified')
    and (select state in ('candidate', 'verified') or trust in ('tool', 'external') from reflection where id = new.reflection)
  );
end;
create trigger reflection_changed after update of state, trust on reflection
when (old.state in ('candidate', 'verified') or old.trust in ('tool', 'external'))
  <> (new.state in ('candidate', 'verified') or new.trust in ('tool', 'external')) begin
  update example set indexed = not indexed where reflection = new.id and indexed <> (
    state in ('candidate', 'verified')
    and (new.state in ('candidate', 'verified') or new.trust in ('tool', 'external'))
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
create index key_newest on key (tenant, at desc);

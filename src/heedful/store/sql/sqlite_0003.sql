-- Full text over prepared words, of what may be recalled only; a lesson without an example is a row of its own.
-- `words` and `token` are functions of heedful that exist while a database is migrated.

drop trigger example_added;
drop trigger example_gone;
drop table example_fts;

alter table example add column words text not null default '';
update example set words = words(task);
insert into example (reflection, scope, task, record, digest, state, at, words)
select id, token(tenant, project), text, json_object('task', text, 'accepted', ''), 'lesson', state, last_seen, words(text)
from reflection l where not exists (select 1 from example where reflection = l.id);

create view recallable as select id, scope, words from example where state in ('candidate', 'verified');
create virtual table example_fts using fts5 (
  scope, words, content = 'recallable', content_rowid = 'id',
  tokenize = "unicode61 remove_diacritics 2 categories 'L* M* N* Co So'"
);
insert into example_fts (example_fts) values ('rebuild');

create trigger example_added after insert on example when new.state in ('candidate', 'verified') begin
  insert into example_fts (rowid, scope, words) values (new.id, new.scope, new.words);
end;
create trigger example_gone before delete on example when old.state in ('candidate', 'verified') begin
  insert into example_fts (example_fts, rowid, scope, words) values ('delete', old.id, old.scope, old.words);
end;
create trigger example_changes before update on example when old.state in ('candidate', 'verified') begin
  insert into example_fts (example_fts, rowid, scope, words) values ('delete', old.id, old.scope, old.words);
end;
create trigger example_changed after update on example when new.state in ('candidate', 'verified') begin
  insert into example_fts (rowid, scope, words) values (new.id, new.scope, new.words);
end;

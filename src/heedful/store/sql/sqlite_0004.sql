-- Schema 4. Where a text came from and what derives from it; what exposures came to; what was ruled.

-- Made anew below; until then no row is told to them.
drop trigger example_added;
drop trigger example_gone;
drop trigger example_changes;
drop trigger example_changed;
drop table example_fts;
drop view recallable;

-- `source` names where the text came from: a page, a tool, a file, a loop. `useful` is the factor that
-- the proof gave its rank; `helped` counts the loops that it was shown in and that were right at once,
-- `hurt` those in which its own error came again. `apart`: never grouped with other patterns.
alter table reflection add column source text not null default '';
alter table reflection add column pinned integer not null default 0;
alter table reflection add column useful real not null default 1;
alter table reflection add column helped integer not null default 0;
alter table reflection add column hurt integer not null default 0;
alter table reflection add column apart integer not null default 0;
-- When it was last shown in a prompt: with `last_seen`, when it was last of use.
alter table reflection add column last_shown real not null default 0;
-- The patterns of an error type that teach the templates, in the order learnt.
create index reflection_type on reflection (tenant, project, error_type, id, signature, apart, trust)
where trust not in ('tool', 'external');
-- The least useful first; what orders by these very expressions needs no sort.
create index reflection_useful on reflection (
  tenant, project, pinned,
  case state when 'quarantined' then 0 when 'candidate' then 2 when 'verified' then 2 else 1 end,
  useful, importance, max(last_seen, last_shown)
);
-- How many lessons a scope has, so that nobody counts them.
create table tally (
  tenant text not null,
  project text not null,
  lessons integer not null,
  primary key (tenant, project)
) without rowid;
insert into tally (tenant, project, lessons) select tenant, project, count(*) from reflection group by tenant, project;
create trigger reflection_added after insert on reflection begin
  insert into tally (tenant, project, lessons) values (new.tenant, new.project, 1)
  on conflict (tenant, project) do update set lessons = lessons + 1;
end;
create trigger reflection_gone after delete on reflection begin
  update tally set lessons = lessons - 1 where tenant = old.tenant and project = old.project;
end;
drop index occurrence_reflection;
create index occurrence_at on occurrence (reflection, at);
alter table occurrence add column source text not null default '';
alter table occurrence add column trust text not null default 'external';
alter table occurrence add column parents text not null default '[]';
update occurrence set trust = (select trust from reflection where id = occurrence.reflection);
-- Those that have a quota.
create index occurrence_source on occurrence (source, trust, reflection) where trust in ('tool', 'external');

alter table example add column trust text not null default 'external';
update example set trust = (select trust from reflection where id = example.reflection) where state <> 'quarantined';
-- What the lesson said as it came with this example; `author` is the one whose words the lesson has now.
alter table example add column lesson text not null default '';
update example set lesson = (select text from reflection where id = example.reflection);
alter table reflection add column author integer;
update reflection set author = coalesce((select min(id) from example where reflection = reflection.id), 0);
create index example_held on example (scope) where state = 'quarantined';

-- What an example comes from: the sources of its own and, in `lineage`, the examples that it derives from. Both outlive
-- an example that is evicted, so that a chain holds; a source is revoked with all that is reached from it. Kept for
-- each example, the sources of all that lies before it would be as many as there are examples to the power of 5/3.
create table origin (
  example integer not null,
  source text not null,
  scope text not null,
  primary key (example, source)
) without rowid;
create index origin_source on origin (scope, source);
insert into origin (example, source, scope) select id, '', scope from example;

-- A space is named by embedder and length of its vectors.
update vector set space = space || '/' || (length(data) / 4);

create table lineage (
  child integer not null,
  parent integer not null,
  primary key (child, parent)
) without rowid;
create index lineage_parent on lineage (parent);

-- The largest id of an example that is gone: none is given twice, or a loop that was shown one would learn from another.
create table gone (example integer not null);
insert into gone (example) values (0);
create trigger example_not_again after delete on example when old.id > (select example from gone) begin
  update gone set example = old.id;
end;
-- Of what nobody was shown and nothing derives from, no trace stays.
create trigger held_gone after delete on example
when old.state = 'quarantined' and not exists (select 1 from lineage where parent = old.id) begin
  delete from origin where example = old.id;
  delete from lineage where child = old.id;
end;

-- What a person or a proof decided about lessons, and why.
create table ruling (
  id integer primary key,
  tenant text not null,
  project text not null,
  action text not null,
  subject text not null,
  by text not null,
  why text not null,
  record text not null default '{}',
  at real not null
);
create index ruling_subject on ruling (tenant, project, subject);

-- A lesson ranked into the prompt of a loop: shown, or withheld with the probability `share`. It is
-- named by kind and signature, so that the record outlives the lesson and the loop. `among` is how many
-- lessons were ranked into that prompt.
create table seen_exposure (
  tenant text not null,
  project text not null,
  loop text not null,
  kind text not null,
  signature text not null,
  shown integer not null check (shown or share > 0),
  share real not null default 0 check (share >= 0 and share < 1),
  together integer not null default 0,
  among integer not null,
  examples text not null default '[]',
  at real not null,
  primary key (tenant, project, loop, kind, signature)
) without rowid;
insert into seen_exposure (tenant, project, loop, kind, signature, shown, among, examples, at)
select p.tenant, p.project, p.id, l.kind, l.signature, max(x.shown), count(*) over (partition by p.n),
       json_group_array(e.id), min(x.at)
from exposure x join loop p on p.n = x.loop join example e on e.id = x.example join reflection l on l.id = e.reflection
group by p.n, l.id;
drop table exposure;
alter table seen_exposure rename to exposure;
update reflection set last_shown = x.at from (
  select tenant, project, kind, signature, max(at) as at from exposure where shown group by tenant, project, kind, signature
) x
where reflection.tenant = x.tenant and reflection.project = x.project
  and reflection.kind = x.kind and reflection.signature = x.signature;
create trigger exposure_shown after insert on exposure when new.shown begin
  update reflection set last_shown = max(last_shown, new.at)
  where tenant = new.tenant and project = new.project and kind = new.kind and signature = new.signature;
end;

-- How a loop that had exposures ended; `n` counts those of the scope, from 1.
create table outcome (
  tenant text not null,
  project text not null,
  loop text not null,
  n integer not null,
  right_at_once integer not null,
  calls integer not null,
  signatures text not null,
  at real not null,
  primary key (tenant, project, loop)
) without rowid;
create unique index outcome_n on outcome (tenant, project, n);

-- Loops of a journal elsewhere whose lessons are written: they are counted once, and what was removed stays away.
create table taught (
  tenant text not null,
  project text not null,
  loop text not null,
  primary key (tenant, project, loop)
) without rowid;
insert into taught (tenant, project, loop)
select distinct l.tenant, l.project, o.loop from occurrence o join reflection l on l.id = o.reflection where o.loop <> '';

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
insert into corpus (scope) select distinct scope from example;
alter table example add column indexed integer not null default 0;
create index example_oldest on example (scope, at) where indexed;
alter table vector add column changed integer not null default 0;
drop index vector_scope;
create index vector_changed on vector (tenant, project, space, changed);

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
update example set indexed = 1 where state in ('candidate', 'verified')
  and (select state in ('candidate', 'verified') or trust in ('tool', 'external') from reflection where id = example.reflection);

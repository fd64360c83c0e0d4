-- Schema 1: what SQLite's has, in a schema of its own that comes first in search_path.
--
-- Every table has its tenant, and row-level security lets nobody see another's who does not own the tables. Text is
-- ordered by its bytes, as SQLite does; times are seconds since 1970; flags are boolean; JSON is text, as it was written.

-- What SQLite has by these names, so that one statement does for both.

create function max(one double precision, other double precision) returns double precision
language sql immutable parallel safe return greatest(one, other);
create function max(one bigint, other bigint) returns bigint
language sql immutable parallel safe return greatest(one, other);
create function min(one double precision, other double precision) returns double precision
language sql immutable parallel safe return least(one, other);
create function min(one bigint, other bigint) returns bigint
language sql immutable parallel safe return least(one, other);
create function instr(text, text) returns integer
language sql immutable parallel safe return strpos($1, $2);
create domain bytewise as text collate "C";
-- `atom` is a value that is a whole number. No SQL that a statement could take in: a cast in a join is no operation that
-- row-level security lets come before it, and no index would be asked.
create function json_each(list text) returns table (key bigint, value bytewise, atom bigint)
language plpgsql immutable parallel safe rows 10 as $$
begin
  return query
    select ordinality - 1, one::bytewise, case when one ~ '^-?[0-9]{1,18}$' then one::bigint end
    from json_array_elements_text(list::json) with ordinality as each (one, ordinality);
end $$;
create function joined(text, text, text) returns text
language sql immutable parallel safe return coalesce($1 || $3, '') || $2;
create aggregate group_concat(text, text) (sfunc = joined, stype = text);
-- Null where a text says what PostgreSQL has no text for: the character 0, half of a surrogate pair.
create function json_extract(plain text, path text) returns text
language plpgsql immutable parallel safe as $$
begin
  return case path when '$' then plain::json #>> '{}' else plain::json ->> substr(path, 3) end;
exception when untranslatable_character or invalid_text_representation then
  return null;
end $$;

-- include tables_0001.sql
create index loop_newest on loop (tenant, project, created desc, n desc);
create index reflection_listed on reflection (tenant, project, id);
-- The patterns of an error type that teach the templates, in the order learnt.
create index reflection_type on reflection (tenant, project, error_type, id) where trust not in ('tool', 'external');
-- The least useful first; what orders by these very expressions needs no sort.
create index reflection_useful on reflection (
  tenant, project, pinned,
  (case state when 'quarantined' then 0 when 'candidate' then 2 when 'verified' then 2 else 1 end),
  useful, importance, (greatest(last_seen, last_shown)), id
);
-- Those that have a quota.
create index occurrence_source on occurrence (tenant, source, trust, reflection) where trust in ('tool', 'external');
create index example_oldest on example (scope, at, id) where indexed;
create index example_digest on example (scope, digest);

-- `data`: 32-bit floats, the least byte first; out of the row, so that who looks for the nearest reads the short form,
-- `near`, alone: null of a vector that has none. `indexed` as its example is.
create table vector (
  example bigint primary key references example (id) on delete cascade,
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  project text collate "C" not null,
  space text collate "C" not null,
  data bytea not null,
  near halfvec,
  indexed boolean not null default false
);
alter table vector alter data set storage external, alter near set storage plain;
create index vector_scope on vector (tenant, project, space, indexed);
create index ruling_newest on ruling (tenant, project, at desc, id desc);

-- What a search looks through: a scope has `texts`, of `length` characters of words in all.
create table corpus (
  scope text collate "C" primary key,
  tenant text collate "C" not null default current_setting('heedful.tenant'),
  texts bigint not null default 0,
  length bigint not null default 0
);
create index key_newest on key (tenant, at desc, id desc);

-- The second lock, behind the tenant that every statement names.
do $$
declare
  one regclass;
begin
  for one in
    select c.oid from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = current_schema()::regnamespace and c.relkind = 'r' and a.attname = 'tenant'
  loop
    execute format('alter table %s enable row level security', one);
    execute format(
      'create policy of_tenant on %s using (tenant = (select current_setting(''heedful.tenant''))) '
      'with check (tenant = (select current_setting(''heedful.tenant'')))', one);
  end loop;
end $$;

-- Tallies, and what was last shown.

create function count_lesson() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    insert into tally (tenant, project, lessons) values (new.tenant, new.project, 1)
    on conflict (tenant, project) do update set lessons = tally.lessons + 1;
  else
    update tally set lessons = lessons - 1 where tenant = old.tenant and project = old.project;
  end if;
  return null;
end $$;
create trigger reflection_counted after insert or delete on reflection for each row execute function count_lesson();

create function was_shown() returns trigger language plpgsql as $$
begin
  update reflection set last_shown = greatest(last_shown, new.at)
  where tenant = new.tenant and project = new.project and kind = new.kind and signature = new.signature;
  return null;
end $$;
create trigger exposure_shown after insert on exposure for each row when (new.shown) execute function was_shown();

-- What may be recalled: an example that may be, of a lesson that may be, too; a lesson whose words are held back
-- silences no other words.

create function may_be_recalled(example text, reflection bigint) returns boolean language sql stable
begin atomic
  select example in ('candidate', 'verified') and exists (
    select 1 from reflection l where l.id = reflection
      and (l.state in ('candidate', 'verified') or l.trust in ('tool', 'external'))
  );
end;

create function set_indexed() returns trigger language plpgsql as $$
begin
  new.indexed := may_be_recalled(new.state, new.reflection);
  return new;
end $$;
create trigger example_indexed before insert or update of state on example for each row execute function set_indexed();

create function index_examples() returns trigger language plpgsql as $$
begin
  update example set indexed = not indexed where reflection = new.id and indexed <> (
    state in ('candidate', 'verified') and (new.state in ('candidate', 'verified') or new.trust in ('tool', 'external'))
  );
  return null;
end $$;
create trigger reflection_changed after update of state, trust on reflection for each row when (
  (old.state in ('candidate', 'verified') or old.trust in ('tool', 'external'))
  <> (new.state in ('candidate', 'verified') or new.trust in ('tool', 'external'))
) execute function index_examples();

create function count_text() returns trigger language plpgsql as $$
declare
  many bigint := 0;
  longer bigint := 0;
begin
  if tg_op <> 'DELETE' then
    insert into corpus (scope, tenant) values (new.scope, new.tenant) on conflict do nothing;
    if new.indexed then
      many := 1;
      longer := length(new.words);
    end if;
  end if;
  if tg_op <> 'INSERT' and old.indexed then
    many := many - 1;
    longer := longer - length(old.words);
  end if;
  if many <> 0 or longer <> 0 then
    update corpus set texts = texts + many, length = corpus.length + longer where scope = coalesce(new.scope, old.scope);
  end if;
  if tg_op = 'UPDATE' then
    update vector set indexed = new.indexed where example = new.id and indexed <> new.indexed;
  end if;
  return null;
end $$;
create trigger example_counted after insert or delete on example for each row execute function count_text();
create trigger example_recounted after update on example for each row
when (old.indexed <> new.indexed or old.words <> new.words) execute function count_text();

create function set_vector_indexed() returns trigger language plpgsql as $$
begin
  new.indexed := (select indexed from example where id = new.example);
  return new;
end $$;
create trigger vector_indexed before insert on vector for each row execute function set_vector_indexed();

-- Of what nobody was shown and nothing derives from, no trace stays.
create function forget_held() returns trigger language plpgsql as $$
begin
  if not exists (select 1 from lineage where parent = old.id) then
    delete from origin where example = old.id;
    delete from lineage where child = old.id;
  end if;
  return null;
end $$;
create trigger held_gone after delete on example for each row when (old.state = 'quarantined') execute function forget_held();

-- What took the place of others holds as long as it says what it said: then it is no longer linked to them.
create function let_go() returns trigger language plpgsql as $$
begin
  delete from link where tenant = old.tenant and project = old.project
    and parent = old.kind || '/' || old.signature and relation = 'became';
  return null;
end $$;
create trigger survivor_gone after delete on reflection for each row execute function let_go();
create trigger survivor_changed after update of text, state on reflection for each row
when (new.text <> old.text or new.state = 'quarantined' and old.state <> 'quarantined') execute function let_go();

-- And they come back, as they were, in place of the copies of their examples. What is known of those stays, as of all
-- that is gone; one that was confirmed since stays, too.
create function bring_back() returns trigger language plpgsql as $$
begin
  delete from example where id in (
    select s.successor
    from reflection l join example e on e.reflection = l.id
         join supersession s on s.what = 'example' and s.subject = e.id join dream d on d.id = s.dream
         join example c on c.id = s.successor
    where l.tenant = old.tenant and l.project = old.project and l.kind = split_part(old.child, '/', 1)
      and l.signature = split_part(old.child, '/', 2)
      and d.undone is null and c.state = json_extract(s.before, '$.state')
  );
  update reflection l set state = coalesce((
    select json_extract(s.before, '$.state') from supersession s join dream d on d.id = s.dream
    where s.what = 'reflection' and s.subject = l.id and d.undone is null
      and json_extract(s.before, '$.lesson') = old.child
    order by s.dream desc limit 1
  ), 'candidate')
  where l.tenant = old.tenant and l.project = old.project and l.kind = split_part(old.child, '/', 1)
    and l.signature = split_part(old.child, '/', 2) and l.state = 'superseded';
  return null;
end $$;
create trigger member_back after delete on link for each row when (old.relation = 'became') execute function bring_back();

-- Full text: each prepared word carries the token of its scope, so that what counts or matches in one scope reads
-- nothing of another. Words that are contained in a list are no operation that row-level security lets come before it,
-- so the functions that search belong to the owner of the tables and ask for the tenant themselves. Temporary tables
-- come last in their search_path: one that the service's role makes is not taken for ours.

create function scoped_words(scope text, words text) returns text[]
language sql immutable parallel safe return string_to_array(scope || replace(words, ' ', ' ' || scope), ' ');
create index example_words on example using gin (scoped_words(scope, words)) with (fastupdate = off) where indexed;

create function count_words(mark text, terms text) returns table (term text, n bigint)
language plpgsql stable security definer set search_path = heedful, pg_temp as $$
begin
  return query select each.value::text, (
    select count(*) from example e
    where e.indexed and scoped_words(e.scope, e.words) @> array[mark || each.value]
      and e.tenant = current_setting('heedful.tenant')
  ) from json_each(terms) each;
end $$;

-- The newest first; the ids as a JSON list.
create function match_words(mark text, terms text, most bigint) returns table (term text, ids text)
language plpgsql stable security definer set search_path = heedful, pg_temp as $$
begin
  return query select each.value::text, (
    select coalesce(array_to_json((array_agg(e.id order by e.id desc))[1:most])::text, '[]') from example e
    where e.indexed and scoped_words(e.scope, e.words) @> array[mark || each.value]
      and e.tenant = current_setting('heedful.tenant')
  ) from json_each(terms) each;
end $$;

-- A caller has a key before it has a tenant: whose key it is tells its own number alone.
create function key_of(number text) returns setof key
language sql stable security definer set search_path = heedful, pg_temp as $$ select * from key where id = number $$;
create function keys_there() returns boolean
language sql stable security definer set search_path = heedful, pg_temp
as $$ select exists (select 1 from key) $$;

-- Who keeps all scopes in order has to know which there are: their names alone.
create function scopes_there(waiting boolean) returns table (tenant text, project text)
language sql stable security definer set search_path = heedful, pg_temp as $$
  select distinct r.tenant, r.project from reflection r where not waiting
  union
  select distinct e.tenant, e.project from episode e where waiting and e.state = 'waiting'
  union
  select distinct t.tenant, t.project from trace t where waiting and t.state = 'open'
$$;

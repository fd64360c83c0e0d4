-- The schema of PostgreSQL, in a schema that comes first in search_path.
--
-- Every table has a tenant, and row-level security hides the rows of other tenants from all but the owner. Text is ordered
-- by its bytes, as in SQLite.

-- Functions of SQLite, so that both engines run the same statements.

create function max(anycompatible, anycompatible) returns anycompatible
language sql immutable parallel safe as 'select greatest($1, $2)';
create function min(anycompatible, anycompatible) returns anycompatible
language sql immutable parallel safe as 'select least($1, $2)';
create function instr(text, text) returns integer
language sql immutable parallel safe return strpos($1, $2);
create function store_clock() returns double precision
language sql volatile as $$ select extract(epoch from clock_timestamp())::double precision $$;
-- Fails with the number of an expectation that is not met, so that a transaction whose statements and commit are one
-- message is rolled back. `PostgresSession.expect` knows the error code.
create function must(met boolean, expectation bigint) returns boolean language plpgsql as $$
begin
  if not met then
    raise exception 'an expectation is not met' using errcode = 'HF001', detail = expectation;
  end if;
  return met;
end $$;
create domain bytewise as text collate "C";
-- `atom` is the value if it is a whole number. The function is not inlined: row-level security would check a cast in a
-- join first, and no index would be used.
create function json_each(list text) returns table (key bigint, value bytewise, atom bigint)
language plpgsql immutable parallel safe rows 10 as $$
begin
  return query
    select ordinality - 1, one::bytewise, case when one ~ '^-?[0-9]{1,18}$' then one::bigint end
    from json_array_elements_text(list::json) with ordinality as each (one, ordinality);
end $$;
-- Returns null if PostgreSQL cannot hold the text, which has a NUL character or half of a surrogate pair.
create function json_extract(plain text, path text) returns text
language plpgsql immutable parallel safe as $$
begin
  return case path when '$' then plain::json #>> '{}' else plain::json ->> substr(path, 3) end;
exception when untranslatable_character or invalid_text_representation then
  return null;
end $$;

-- include the tables
create index example_digest on example (scope, digest);

-- `data` is stored outside of the row, so that a search reads only `near`.
alter table vector alter data set storage external, alter near set storage plain;

-- The second layer of isolation, behind the tenant in every statement.
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

create function set_indexed() returns trigger language plpgsql as $$
begin
  new.indexed := new.state in ('unverified', 'verified') and exists (
    select 1 from lesson l where l.id = new.lesson_id
      and (l.state in ('unverified', 'verified') or l.unreviewed)
  );
  return new;
end $$;
create trigger example_indexed before insert or update of state, lesson_id on example for each row execute function set_indexed();

create function count_text() returns trigger language plpgsql as $$
begin
  if tg_op <> 'DELETE' then
    insert into corpus (scope, tenant, example, texts, length)
    values (new.scope, new.tenant, new.id, new.indexed::int, case when new.indexed then length(new.words) else 0 end)
    on conflict (scope) do update set example = max(corpus.example, excluded.example),
      texts = corpus.texts + excluded.texts, length = corpus.length + excluded.length;
  end if;
  if tg_op <> 'INSERT' then
    update vector set indexed = new.indexed where example = new.id and indexed <> new.indexed;
    update corpus set texts = texts - 1, length = corpus.length - length(old.words)
    where scope = old.scope and old.indexed;
  end if;
  return null;
end $$;
create trigger example_counted after insert or delete on example for each row execute function count_text();
create trigger example_recounted after update on example for each row
when (old.indexed <> new.indexed or old.words <> new.words) execute function count_text();

-- Full text: each word begins with the token of its scope, so that a search reads no other scope. With row-level security,
-- PostgreSQL would check each row before the array operator and use no index. The search functions therefore run as the
-- owner of the tables and check the tenant themselves. Temporary tables come last in their search_path, so that no table
-- created by the role of the service can hide a table of heedful.

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

-- Return the ids as a JSON list, newest first.
create function match_words(mark text, terms text, most bigint) returns table (term text, ids text)
language plpgsql stable security definer set search_path = heedful, pg_temp as $$
begin
  return query select each.value::text, (
    select coalesce(array_to_json((array_agg(e.id order by e.id desc))[1:most])::text, '[]') from example e
    where e.indexed and scoped_words(e.scope, e.words) @> array[mark || each.value]
      and e.tenant = current_setting('heedful.tenant')
  ) from json_each(terms) each;
end $$;

-- The key tells the tenant of a caller, so this looks for the id in all tenants.
create function key_of(number text) returns setof key
language sql stable security definer set search_path = heedful, pg_temp as $$ select * from key where id = number $$;
create function keys_there() returns boolean
language sql stable security definer set search_path = heedful, pg_temp
as $$ select exists (select 1 from key) $$;

-- The ids of a new scope begin after this number: 0 in the first scope, and elsewhere a random number with room for 10**8
-- ids. This looks at the scopes of all tenants, one new scope at a time.
create function new_base() returns bigint language plpgsql security definer set search_path = heedful, pg_temp as $$
declare
  base bigint := 0;
begin
  perform pg_advisory_xact_lock(hashtextextended('new scope', 0));
  while exists (select 1 from tally) and (base = 0 or base / 100000000 in (select lesson / 100000000 from tally)) loop
    base := ceil(random() * 90000000)::bigint * 100000000;
  end loop;
  return base;
end $$;

-- Maintenance needs the names of the scopes of all tenants.
create function scopes_there(what text) returns table (tenant text, project text)
language sql stable security definer set search_path = heedful, pg_temp as $$
  select t.tenant, t.project from tally t where what = 'lessons' and t.lessons > 0
  union select l.tenant, l.project from loop l where what = 'loops'
  union select e.tenant, e.project from episode e where what = 'work' and e.state <> 'reflected'
  union select t.tenant, t.project from trace t where what = 'work' and t.state = 'open'
$$;

-- The two roles of a database, run by a superuser with psql: heedful_owner owns the tables and
-- migrates, heedful serves. Passwords come from the environment, and so does the name of another
-- database than heedful: HEEDFUL_DATABASE. Roles and a database that exist stay as they are. The first error ends
-- it, with the exit code 3.
\set ON_ERROR_STOP on
do $$ begin
  if current_setting('server_version_num')::int < 160000 then
    raise exception 'this server is PostgreSQL %; heedful needs 16 or newer', current_setting('server_version');
  end if;
  if not exists (select from pg_available_extensions where name = 'vector') then
    raise exception 'this server has no pgvector: install it first, for example Debian''s postgresql-17-pgvector';
  end if;
end $$;
select not exists (select from pg_roles where rolname = 'heedful_owner') as is_new \gset
\if :is_new
  \getenv owner HEEDFUL_OWNER_PASSWORD
  \if :{?owner} \else
    do $$ begin raise exception 'set HEEDFUL_OWNER_PASSWORD, the password of heedful_owner'; end $$;
  \endif
  create role heedful_owner login password :'owner';
\endif
select not exists (select from pg_roles where rolname = 'heedful') as is_new \gset
\if :is_new
  \getenv service HEEDFUL_PASSWORD
  \if :{?service} \else
    do $$ begin raise exception 'set HEEDFUL_PASSWORD, the password of heedful'; end $$;
  \endif
  create role heedful login nosuperuser nocreatedb nocreaterole nobypassrls password :'service';
\endif
\set database heedful
\getenv database HEEDFUL_DATABASE
select not exists (select from pg_database where datname = :'database') as is_new \gset
\if :is_new
  create database :"database" owner heedful_owner;
\endif
revoke all on database :"database" from public;
grant connect on database :"database" to heedful;
\connect :"database"
create extension if not exists vector;

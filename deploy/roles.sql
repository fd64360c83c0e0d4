-- The two roles of a database, run by a superuser with psql: heedful_owner owns the tables and
-- migrates, heedful serves. Passwords come from the environment.
\getenv owner HEEDFUL_OWNER_PASSWORD
\getenv service HEEDFUL_PASSWORD
create role heedful_owner login password :'owner';
create role heedful login nosuperuser nocreatedb nocreaterole nobypassrls password :'service';
create database heedful owner heedful_owner;
revoke all on database heedful from public;
grant connect on database heedful to heedful;
\connect heedful
create extension vector;

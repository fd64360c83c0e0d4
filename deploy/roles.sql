-- The two roles of a database, run by a superuser with psql: errata_owner owns the tables and
-- migrates, errata serves. Passwords come from the environment.
\getenv owner ERRATA_OWNER_PASSWORD
\getenv service ERRATA_PASSWORD
create role errata_owner login password :'owner';
create role errata login nosuperuser nocreatedb nocreaterole nobypassrls password :'service';
create database errata owner errata_owner;
revoke all on database errata from public;
grant connect on database errata to errata;
\connect errata
create extension vector;

-- An override may expire, at a time in seconds since 1970.
alter table override add column until real;

"""Databases of earlier schemas, with rows, and what a test compares after an upgrade.

`schema_1/` has the first schema as each engine had it, and rows of every table that the
second schema changed.
"""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from heedful.store import sqlite as engine
from heedful.store.postgres_session import parse_url
from heedful.store.sqlite_schema import split_statements
from heedful.store.statements import read_sql
from tests.postgres import Urls
from tests.postgres import rows as server_rows
from tests.store.support import rows

OLD = Path(__file__).parent / "schema_1"
OLD_ROWS = (OLD / "rows.sql").read_text("utf-8")
# What stands in a new schema, by name; row numbers and quotes aside.
SERVER_SCHEMA = (
    """select table_name::text, column_name::text, data_type::text, column_default::text
       from information_schema.columns where table_schema = 'heedful'""",
    """select indexname::text, indexdef::text from pg_indexes
       where schemaname = 'heedful'""",
    """select conrelid::regclass::text, conname::text, pg_get_constraintdef(oid)
       from pg_constraint where connamespace = 'heedful'::regnamespace""",
    """select proname::text, prosrc from pg_proc
       where pronamespace = 'heedful'::regnamespace""",
    """select tgname::text, pg_get_triggerdef(t.oid) from pg_trigger t
       join pg_class c on c.oid = t.tgrelid
       where c.relnamespace = 'heedful'::regnamespace and not tgisinternal""",
    """select tablename::text, policyname::text, qual, with_check from pg_policies
       where schemaname = 'heedful'""",
)
SERVER_TABLES = """
select relname::text from pg_class
where relnamespace = to_regnamespace('heedful') and relkind = 'r'
"""
SCHEMA_BOOK = """
create table schema_version (
  number integer not null,
  part text not null check (part in ('pre', 'post')),
  at double precision not null,
  primary key (number, part)
);
insert into schema_version values (1, 'pre', 1)
"""


def make_old_file(path: Path, version: int = 1) -> None:
    """Make a file of an earlier schema, with the rows of the first."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma journal_mode = wal")
        db.create_function("store_clock", 0, time.time)
        db.executescript((OLD / "sqlite.sql").read_text("utf-8"))
        db.executescript(OLD_ROWS)
        for number in range(2, version + 1):
            for statement in split_statements(f"sqlite_{number:04}.sql"):
                db.execute(statement)
        db.execute(f"pragma application_id = {engine.APPLICATION_ID}")
        db.execute(f"pragma user_version = {version}")
        db.commit()


def make_old_server(urls: Urls, version: int = 1) -> None:
    """Fill an empty database with an earlier schema and the rows of the first."""
    schema = (OLD / "postgres.sql").read_text("utf-8")
    begin = "set search_path = heedful, public; set heedful.tenant = 'default'"
    server_rows(
        urls.owner,
        f"create schema heedful; {begin}; {schema}; {OLD_ROWS}; {SCHEMA_BOOK}",
    )
    for number in range(2, version + 1):
        step = read_sql(f"postgres_{number:04}_pre.sql")
        applied = f"insert into schema_version values ({number}, 'pre', 1)"
        server_rows(urls.owner, f"{begin}; {step}; {applied}")


def file_schema(path: Path) -> list[Any]:
    """What SQLite says of its schema, without the quotes that a renaming leaves."""
    schema = []
    for kind, name, sql in rows(path, "select type, name, sql from sqlite_schema"):
        text = " ".join(re.sub(r'["\s]+', " ", sql or "").split())
        schema.append((kind, name, parts_of(text) if kind == "table" else text))
    return sorted(schema)


def parts_of(table: str) -> list[str]:
    """The columns and constraints of a table, in order of the alphabet.

    A step adds a column after the constraints; a new table has it among the others.
    """
    body = table.partition("(")[2].rpartition(")")[0]
    return sorted(part.strip() for part in re.split(r",(?![^()]*\))", body))


def server_schema(urls: Urls) -> list[list[Any]]:
    """What PostgreSQL says of heedful's schema."""
    with psycopg.connect(parse_url(urls.owner).conninfo) as db:
        return [sorted(db.execute(sql).fetchall(), key=repr) for sql in SERVER_SCHEMA]


def file_rows(path: Path) -> list[tuple[str, str]]:
    """Each row of each table of a file, but for the random name of the file."""
    rows = []
    with closing(sqlite3.connect(path)) as db:
        tables = db.execute("select name from sqlite_schema where type = 'table'")
        for (table,) in tables.fetchall():
            if table != "identity":
                rows += [
                    (table, repr(row)) for row in db.execute(f"select * from {table}")
                ]
    return sorted(rows)


def every_server_row(urls: Urls) -> list[tuple[str, str]]:
    """Each row of each table of a database, but for when a step was applied."""
    rows = []
    conninfo = parse_url(urls.superuser).conninfo
    with psycopg.connect(conninfo) as db:
        for (table,) in db.execute(SERVER_TABLES).fetchall():
            columns = "t::text"
            if table == "schema_version":
                columns = "number || part"
            elif table == "queue_version":
                columns = "name"
            texts = db.execute(f"select {columns} from heedful.{table} t")
            rows += [(table, text) for (text,) in texts]
    return sorted(rows)

"""The schema of a SQLite file: its statements, and the check that it is heedful's own.

SQLite runs the views, triggers and expressions of a file's schema in the statements of
every program that opens the file. In a file made by somebody else, a view with an
endless query may take the place of a table. So a file may have only the views and
triggers, and only the columns of our tables, that heedful makes. Other tables, such as
those of a program for backups, are never read.
"""

import re
import sqlite3
from functools import cache
from itertools import dropwhile

from heedful.errors import StoreCorrupt
from heedful.store.connection import Rows
from heedful.store.statements import read_sql

SCHEMA_FILE = "sqlite_schema.sql"
# What FTS5 keeps its index in. Its own tables have no expressions.
SHADOW_PREFIX = "example_fts_"
# A column or a check of a table may call functions.
_EXPRESSION_PATTERN = re.compile(
    r"\b(?:as|check|default|generated|collate|references)\b", re.IGNORECASE
)
# What another program may add: a table, or an index of its table. No comment hides the
# name of the table.
_FOREIGN_PATTERN = re.compile(
    r"create (?:table |(?P<index>(?:unique )?index) [\"'`\[]?\w+[\"'`\]]? on )"
    r"[\"'`\[]?(?P<table>\w+)[\"'`\]]? ?\("
)
_OWN_NAME_PATTERN = re.compile(r"create (?:virtual )?table (\w+)")


def split_statements(name: str) -> list[str]:
    """Split the SQL file `name` into statements; a whole trigger is one statement."""
    statements = []
    statement = ""
    for line in read_sql(name).splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            statements.append(statement)
            statement = ""

    return statements


def check_objects(rows: Rows, path: str) -> None:
    """Check the `rows` of the table `sqlite_schema`: type, name and SQL.

    Raises StoreCorrupt for what heedful has not made, and for what is missing.
    """
    missing = set(_own_sql())
    for row in rows:
        if row["sql"] is None:
            continue  # an index that belongs to a constraint
        sql = _plain_sql(row["sql"])
        missing.discard(sql)
        if not _is_allowed(sql):
            raise StoreCorrupt(
                f"{path} has the {row['type']} {row['name'][:100]!r}, which this "
                "version of heedful did not make; drop it if it is yours, export with "
                "the version that made it, or restore a copy of the file"
            )

    if missing:
        raise StoreCorrupt(
            f"{path} lacks a part of its schema: {min(missing)[:60]}…; restore a copy "
            "of the file"
        )


def _is_allowed(sql: str) -> bool:
    """Return whether heedful made an object, or never uses it.

    SQLite makes what the SQL says, whatever type and name its row has.
    """
    if sql in _own_sql():
        return True
    foreign = _FOREIGN_PATTERN.match(sql)
    if foreign is None or foreign["table"] in _own_tables():
        return False
    if foreign["table"].startswith(SHADOW_PREFIX):
        return foreign["index"] is None and not _EXPRESSION_PATTERN.search(sql)
    return True


def _plain_sql(sql: str) -> str:
    """Return an SQL text in small letters, with single blanks."""
    return " ".join(sql.lower().split()).rstrip("; ")


@cache
def _own_sql() -> frozenset[str]:
    """Return what heedful runs in a new file, as SQLite keeps it."""
    statements = map(_plain_sql, map(_without_head, split_statements(SCHEMA_FILE)))
    return frozenset(statements)


def _without_head(statement: str) -> str:
    """Return a statement without the lines of comments before it."""
    lines = statement.splitlines(keepends=True)
    code = dropwhile(lambda line: line.startswith(("--", "\n")), lines)
    return "".join(code)


@cache
def _own_tables() -> frozenset[str]:
    """Return the names of the tables that heedful makes."""
    matches = map(_OWN_NAME_PATTERN.match, _own_sql())
    return frozenset(match[1] for match in matches if match is not None)

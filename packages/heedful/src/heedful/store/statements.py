"""The SQL of the store: statements by name, and the schema in both dialects.

A statement begins after a line `-- name: NAME` in a file of `sql/`. Above the first
one, a part of statements begins after a line `-- part: NAME`; where `{NAME}` stands in
the statements of the file, this part stands. SQL between
`/*sqlite` and `*/`, or `/*postgres` and `*/`, is for this dialect only. Tables and
triggers are written once, in SQLite's dialect; PostgreSQL gets its own types, a tenant
in every row, and triggers that call functions.
"""

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Final, Literal

from heedful.errors import StoreNewer, StoreOlder
from heedful.store.head import HEAD_COLUMNS

Dialect = Literal["sqlite", "postgres"]
SQL_FOLDER = os.path.join(os.path.dirname(__file__), "sql")
_OTHER_FILE: dict[Dialect, str] = {"sqlite": "postgres.sql", "postgres": "sqlite.sql"}
# The first line of the schema begins with its number, `-- Schema 1.`
with open(os.path.join(SQL_FOLDER, "schema_tables.sql"), encoding="utf-8") as _schema:
    SCHEMA_VERSION: Final = int(_schema.readline().split(".")[0].split()[-1])
# Parts of all files: the columns of a head and their parameters. Of those that a
# resumed loop may change, the model has a condition of its own.
HEAD_PARTS = {
    "head": ", ".join(HEAD_COLUMNS),
    ":head": ", ".join(f":{column}" for column in HEAD_COLUMNS),
    "head = :head": ", ".join(
        f"{column} = :{column}"
        for column in HEAD_COLUMNS
        if column not in ("task", "context", "model")
    ),
}


@cache
def statements(dialect: Dialect) -> dict[str, str]:
    """Return the SQL of all statements for `dialect`, by their names.

    Reads the files only once in a process.
    """
    by_name = {}
    # The schema, and the statements of the other database only, are no part of it.
    for file in os.listdir(SQL_FOLDER):
        if file.startswith("schema_") or file == _OTHER_FILE[dialect]:
            continue
        by_name.update(statements_in(read_sql(file, dialect), HEAD_PARTS))
    return by_name


def statements_in(text: str, parts: Mapping[str, str]) -> dict[str, str]:
    """Return the SQL of the statements in a text, by their names.

    A statement follows a line `-- name: NAME`. Parts of statements stand above the
    first one, each after a line `-- part: NAME`; these and `parts` replace `{NAME}` in
    the statements.
    """
    top, mark, rest = text.partition("-- name: ")
    for part, sql in {**parts, **_sections(top, "-- part: ")}.items():
        rest = rest.replace(f"{{{part}}}", sql)
    return _sections(mark + rest, mark)


def _sections(text: str, mark: str) -> dict[str, str]:
    """Return the sections of a text by their names, which follow a mark."""
    sections = [section.partition("\n") for section in text.split(mark)[1:]]
    return {name: sql.strip() for name, _, sql in sections}


def schema(dialect: Dialect) -> str:
    """Return the SQL of all tables, indexes and triggers in `dialect`."""
    shared_files = ("schema_tables.sql", "schema_search.sql")
    tables = "\n".join(read_sql(file, dialect) for file in shared_files)
    if dialect == "postgres":
        tables = tables_in_postgres(tables)
    text = read_sql(f"schema_{dialect}.sql", dialect)
    return text.replace("-- include the tables\n", tables)


def read_sql(file: str, dialect: Dialect = "postgres") -> str:
    """Return the text of a file in `sql/` for `dialect`."""
    # Importing pathlib or importlib.resources would slow the start.
    with open(os.path.join(SQL_FOLDER, file), encoding="utf-8") as source:
        return of_dialect(source.read(), dialect)


def of_dialect(text: str, dialect: str) -> str:
    """Return SQL for one database: what is in comments with its name is uncommented.

    `/*sqlite indexed by lesson_type */` becomes `indexed by lesson_type`.
    """
    return re.sub(rf"/\*{dialect} (.*?) \*/", r"\1", text)


def check_version(where: str, version: int | None, place: str = "file") -> None:
    """Check that the schema of a store has the version that this heedful needs.

    `version` is that of the store; None means that it has no schema. `where` names the
    store, and `place` says what it is, for the text of the error. Raises StoreOlder,
    StoreNewer.
    """
    if version is None:
        raise StoreOlder(
            f"{where} has no schema; run heedful db migrate as the role that owns, or "
            "will own, its tables"
        )
    if version > SCHEMA_VERSION:
        raise StoreNewer(
            f"{where} has schema {version}, this heedful knows {SCHEMA_VERSION}; "
            "upgrade heedful to open it"
        )
    if version < SCHEMA_VERSION:
        raise StoreOlder(
            f"{where} has schema {version} of a heedful before its first release, this "
            f"one needs {SCHEMA_VERSION}; export it with the heedful that made it, and "
            f"import that into a new {place}"
        )


# Row-level security compares the tenant of every row.
_TENANT_COLUMN_SQL = "tenant text not null default current_setting('heedful.tenant')"
# A longer type comes before its first word.
POSTGRES_COLUMN_TYPES = {
    "integer primary key": "bigint generated by default as identity primary key",
    "integer": "bigint",
    "real": "double precision",
    "text": 'text collate "C"',
    "blob": "bytea",
}
# A trigger, from `create trigger NAME after insert on lesson when CONDITION begin` to a
# line `end;`: its name, its event with its condition, and its statements.
_TRIGGER_PATTERN = (
    r"(?ms)^create trigger (\w+) (after [^;]*? on \w+)\s+"
    r"(?:when ([^;]*?) )?begin\n(.*?)^end;"
)


def tables_in_postgres(tables: str) -> str:
    """Translate the SQL of tables and triggers from SQLite to PostgreSQL.

    Columns get other types, tables a tenant that is that of the connection, and each
    trigger becomes a function and a trigger that calls it.
    """
    text = tables.replace(") without rowid;", ");")
    text = text.replace("tenant text not null", _TENANT_COLUMN_SQL)
    for sqlite_type, postgres_type in POSTGRES_COLUMN_TYPES.items():
        # A column, such as `  seen integer`: two blanks, its name, and its type.
        column = re.compile(rf"^(  \w+) {sqlite_type}\b", re.MULTILINE)
        text = column.sub(rf"\1 {postgres_type}", text)
    return re.sub(_TRIGGER_PATTERN, _trigger_in_postgres, text)


def _trigger_in_postgres(trigger: re.Match[str]) -> str:
    """Return a trigger of SQLite as PostgreSQL has it: a function, and a call of it.

    `trigger` is a match of `_TRIGGER_PATTERN`.
    """
    name, event, condition, body = trigger.groups()
    when = f" when ({condition})" if condition else ""
    return (
        f"create function {name}() returns trigger language plpgsql as $$ begin\n{body}"
        f"  return null;\nend $$;\n"
        f"create trigger {name} {event} for each row{when} execute function {name}();"
    )

"""Copies of a database: as a file, or from SQLite to PostgreSQL.

A copy has every row of every scope.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from typing import Any, NamedTuple

from heedful.errors import Conflict, InvalidInput, NotFound, RoleRefused
from heedful.lessons.scope import Scope
from heedful.store import POSTGRES_PREFIXES, needs_psycopg, shown
from heedful.store.connection import Db, token
from heedful.store.search import short
from heedful.store.sqlite import (
    BUSY_TIMEOUT_SECONDS,
    Connection,
    connect,
    translate_error,
)

# The tables to which other tables refer are written first.
REFERENCED_TABLES = ("loop", "lesson", "example")
# Columns of SQLite that are not copied. The tenant is, but by an expression of its own.
OMITTED_COLUMNS = ("tenant", "changed", "place")
# SQL for the tenant of a row `t` whose table in SQLite has neither the column `tenant`
# nor a foreign key. `tenant_of` is a function that `_copy_rows` defines.
_TENANT_EXPRESSIONS = {
    "corpus": "tenant_of(t.scope)",
    "origin": "tenant_of(t.scope)",
    "lineage": "(select tenant_of(scope) from origin where example = t.child limit 1)",
}
# No trigger runs during the copy; this writes at once what SQLite has no column for.
_INDEXED_UPDATE_SQL = (
    "update vector set indexed = e.indexed from example e where e.id = vector.example"
)

_NUMBERED_COLUMNS_SQL = """
select table_name::text as owner, column_name::text as number
from information_schema.columns
where table_schema = current_schema() and is_identity = 'YES'
  and table_name not like 'procrastinate%'
"""


class StoreTable(NamedTuple):
    """A table that both engines have; the last of its `columns` is the tenant.

    `tenant` is the SQL expression for the tenant of a row `t` in SQLite.
    """

    name: str
    columns: tuple[str, ...]
    tenant: str


@cache
def tables() -> tuple[StoreTable, ...]:
    """Return the tables of both engines, each after the tables that it refers to.

    They are read from an empty SQLite database in memory.
    """
    with closing(connect(":memory:", BUSY_TIMEOUT_SECONDS)) as db:
        names = db.execute(
            "select name from sqlite_schema where type = 'table' "
            "and name not like '%_fts%' order by name"
        ).fetchall()
        by_name = {row["name"]: _describe_table(db, row["name"]) for row in names}

    ordered_names = dict.fromkeys((*REFERENCED_TABLES, *by_name))
    return tuple(by_name[name] for name in ordered_names)


def _describe_table(db: Db, name: str) -> StoreTable:
    """Return the columns of a table of SQLite, and how to read the tenant of its rows.

    The tenant of a row stands in its column `tenant`, or else in that of the row to
    which its foreign key refers. Other tables have an expression of their own.
    """
    columns = db.execute(f"select name from pragma_table_info('{name}')").fetchall()
    names = [column["name"] for column in columns]

    tenant = _TENANT_EXPRESSIONS.get(name, "t.tenant")
    sql = f"select * from pragma_foreign_key_list('{name}')"
    key = db.execute(sql).fetchone()
    if "tenant" not in names and key is not None:
        referenced_row = f"{key['to']} = t.{key['from']}"
        tenant = f"(select tenant from {key['table']} where {referenced_row})"

    copied_names = [column for column in names if column not in OMITTED_COLUMNS]
    return StoreTable(name, columns=(*copied_names, "tenant"), tenant=tenant)


def copy(source: str, target: str) -> dict[str, int]:
    """Copy the SQLite file `source` as of one moment; count the rows of each table.

    Returns these numbers by the names of the tables. `target` is a new file, or an
    empty PostgreSQL database: connect as the role that owns the tables, because only
    this role sees all rows. Then the copy is one transaction. Raises NotFound,
    Conflict, InvalidInput, StoreError.
    """
    if source.startswith(POSTGRES_PREFIXES):
        allowed = "a SQLite file; pg_dump copies PostgreSQL"
        raise InvalidInput("source", shown(source), allowed)
    if not os.path.exists(source):
        raise NotFound("database", source, "this folder; check the path")
    if os.path.exists(target):
        raise Conflict(f"{target} exists; copy into a new file")

    try:
        with closing(connect(source, BUSY_TIMEOUT_SECONDS)) as db:
            if target.startswith(POSTGRES_PREFIXES):
                # All tables are read as of this moment.
                db.execute("begin")
                return _copy_rows(db, target)
            return _copy_file(db, target)
    except (sqlite3.Error, OSError) as error:
        raise translate_error(error, source) from error


def _copy_file(db: Connection, target: str) -> dict[str, int]:
    """Copy a whole SQLite file into a new one that only its owner may read.

    Returns the number of rows of each table.
    """
    # SQLite itself might create it with wider permissions.
    os.close(os.open(target, os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(target)) as new:
        db.backup(new)
        return {
            table.name: new.execute(f"select count(*) from {table.name}").fetchone()[0]
            for table in tables()
        }


def _copy_rows(db: Connection, target: str) -> dict[str, int]:
    """Copy the rows of all tenants to an empty PostgreSQL database, in one transaction.

    Returns the number of rows of each table. Raises InvalidInput, RoleRefused, Conflict
    and StoreError.
    """
    needs_psycopg()
    from heedful.store import postgres_session

    # Some tables of SQLite have only a digest of tenant and project: `tenant_of` finds
    # the tenant by it.
    tenants = {}
    for row in db.execute("select tenant, project from tally").fetchall():
        scope = Scope(row["tenant"], row["project"])
        tenants[token(scope)] = scope.tenant
    db.create_function("tenant_of", 1, tenants.get)

    try:
        address = postgres_session.parse_url(target)
        session = postgres_session.PostgresSession(address)
        with closing(session) as new_db:
            _begin_copy(new_db, target)
            counts = {table.name: _copy_table(db, new_db, table) for table in tables()}

            new_db.script(_INDEXED_UPDATE_SQL)
            _set_next_numbers(new_db)
            new_db.commit()
            return counts
    except postgres_session.PSYCOPG_ERRORS as error:
        raise postgres_session.translate_error(error) from error


def _begin_copy(new_db: Any, target: str) -> None:
    """Begin the transaction of a copy in the database `new_db`, which `target` names.

    Before, checks the schema, and that the role owns the tables; then, that no table
    has a row. Raises RoleRefused, Conflict, StoreError.
    """
    from heedful.store import postgres, postgres_session

    # Another role does not see the rows of all tenants.
    role = postgres.describe_role(new_db)
    postgres.check_schema(new_db, role)
    if not role["owner"]:
        raise RoleRefused(
            f"role {role['role']} sees only one tenant at a time, but a copy needs "
            "all tenants; connect as the role that owns heedful's tables"
        )
    new_db.script(
        "begin; set constraints all immediate; "
        f"{postgres_session.PATIENT_TRANSACTION_SQL}"
    )

    for table in tables():
        if new_db.execute(f"select 1 from {table.name} limit 1").fetchone():
            raise Conflict(
                f"{shown(target)} holds rows already (in {table.name}); copy into an "
                "empty database, or add lessons to it with heedful export and heedful "
                "import"
            )


def _copy_table(db: Connection, new_db: Any, table: StoreTable) -> int:
    """Copy the rows of a table from SQLite to PostgreSQL; return their number.

    No trigger of the table runs meanwhile: at the end, `_INDEXED_UPDATE_SQL` writes
    what SQLite has no column for.
    """
    columns = table.columns
    # The column `near` of a vector exists only in PostgreSQL.
    if table.name == "vector":
        columns = (*columns, "near")

    new_db.script(f"alter table {table.name} disable trigger user")
    written: int = new_db.load(table.name, columns, _read_rows(db, table))
    new_db.script(f"alter table {table.name} enable trigger user")
    return written


def _read_rows(db: Connection, table: StoreTable) -> Iterator[list[Any]]:
    """Yield the rows of a table of SQLite with their tenant, as PostgreSQL gets them.

    The row of a vector also has a shorter form of it, for the search by vectors.
    """
    columns = ", ".join(table.columns[:-1])
    for row in db.execute(f"select {columns}, {table.tenant} from {table.name} t"):
        # PostgreSQL cannot hold the character NUL.
        cells = [
            cell.replace("\0", "?") if isinstance(cell, str) else cell for cell in row
        ]
        if table.name == "vector":
            cells.append(short(row["data"]))
        yield cells


def _set_next_numbers(new_db: Any) -> None:
    """Let PostgreSQL number new rows from the last number of the copied rows on.

    This concerns each column whose numbers PostgreSQL gives. A table without rows keeps
    its first number.
    """
    for row in new_db.execute(_NUMBERED_COLUMNS_SQL).fetchall():
        last = f"max({row['number']})"
        sequence = f"pg_get_serial_sequence('{row['owner']}', '{row['number']}')"
        new_db.script(
            f"select setval({sequence}, {last}) from {row['owner']} having {last} > 0"
        )

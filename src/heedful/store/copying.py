"""Copy one database into another: every row of every scope, all or nothing, then compare them.

Either side may be a SQLite file or a PostgreSQL database. For PostgreSQL, connect as the role that
owns the tables, because that role sees all rows. The tables and columns to copy are read from the
schema of SQLite.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.errors import (
    Conflict,
    HeedfulError,
    InvalidInput,
    NotFound,
    RoleRefused,
    StoreCorrupt,
    StoreError,
)
from heedful.lessons.lesson import Scope
from heedful.store import POSTGRES, needs_psycopg, shown
from heedful.store.sqlite import BUSY_SECONDS, Connection, connected, typed
from heedful.store.store import short, token

if TYPE_CHECKING:
    from heedful.store.postgres import Session

Cells = Sequence[Any]
CopyProgress = Callable[[str, int], None]  # called with a table and how many of its rows are done
EVERY = 10_000  # rows between two calls
# Only a file has these, because SQLite would reuse the number of a removed row.
OWN_TABLES = ("gone",)
OWN_COLUMNS = {"corpus": {"id", "changed"}, "vector": {"changed"}}
# Kept by triggers: compared, but not copied.
DERIVED = ("corpus",)
# Exposures come before lessons, because they change `last_shown`; then tables that others refer to.
FIRST = ("exposure", "loop", "reflection", "example", "dream")
# A row of a file without a tenant column belongs to the tenant of its owner, or of its scope token.
_OWNERS = {
    **dict.fromkeys(("attempt", "decision", "override", "step"), "join loop o on o.n = t.loop"),
    **dict.fromkeys(("occurrence", "example"), "join reflection o on o.id = t.reflection"),
    "supersession": "join dream o on o.id = t.dream",
    "vector": "join example o on o.id = t.example",
}
_SCOPES = {
    "origin": "t.scope",
    "corpus": "t.scope",
    "lineage": """coalesce(
      (select scope from origin where example = t.child),
      (select scope from example where id = t.child),
      (select scope from origin where example = t.parent),
      (select scope from example where id = t.parent)
    )""",
}
_TYPES = """
select column_name::text, udt_name::text from information_schema.columns
where table_schema = current_schema() and table_name = :table
"""
_CORPUS = """
insert into corpus (scope, tenant, texts, length)
select scope, tenant, count(*) filter (where indexed),
  coalesce(sum(length(words)) filter (where indexed), 0)
from example group by scope, tenant
"""
_HOLDS = (
    "holds other rows already (in {}); copy into an empty database, or bring lessons together by "
    "heedful export and heedful import"
)


class Table(NamedTuple):
    """A table as both engines have it: `key` orders its rows, the last of `columns` is the tenant.

    `numbered` is True if the database assigns the numbers in its key.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    numbered: bool


@cache
def tables() -> tuple[Table, ...]:
    """Return the tables that both engines have, ordered so that foreign keys hold while writing."""
    sql = "select name from sqlite_schema where type = 'table' and name not like 'example_fts%'"
    db = connected(":memory:", BUSY_SECONDS)
    found = {name: _table(db, name) for (name,) in db.execute(sql) if name not in OWN_TABLES}
    db.close()
    return tuple(found[name] for name in dict.fromkeys((*FIRST, *sorted(found))))


def _table(db: Connection, name: str) -> Table:
    info = db.execute(f"select name, type, pk from pragma_table_info('{name}')").fetchall()
    shared = [row["name"] for row in info if row["name"] not in OWN_COLUMNS.get(name, ())]
    columns = [column for column in shared if column != "tenant"]
    columns += ["indexed"] if name == "vector" else []
    keys = sorted((row for row in info if row["pk"]), key=lambda row: int(row["pk"]))
    key = tuple(row["name"] for row in keys) if name not in DERIVED else ("scope",)
    numbered = key in {("n",), ("id",)} and keys[0]["type"].upper() == "INTEGER"
    return Table(name, (*columns, "tenant"), key, numbered)


class _File:
    """A SQLite file, within a transaction."""

    def __init__(self, name: str, db: Connection) -> None:
        self.name: str = name
        self._db = db
        self._tenants: dict[str, str] = {}  # by the token of a scope
        db.create_function("tenant_of", 1, self._tenants.get)

    def rows(self, table: Table) -> Iterator[Cells]:
        """Yield all rows of a table, of every tenant, in the order of its key."""
        if table.name in _SCOPES:
            names = [other.name for other in tables() if "project" in other.columns]
            sql = " union ".join(f"select tenant, project from {name}" for name in names)
            self._tenants |= {token(Scope(*row)): row["tenant"] for row in self._db.execute(sql)}
        tenant = f"tenant_of({_SCOPES[table.name]})" if table.name in _SCOPES else "o.tenant"
        elsewhere = {"tenant": tenant, "indexed": "o.indexed"}
        has = self._columns(table)
        cells = ", ".join(
            f"t.{column}" if column in has else elsewhere[column] for column in table.columns
        )
        key = ", ".join(f"t.{column}" for column in table.key)
        owner = _OWNERS.get(table.name, "")
        for row in self._db.execute(f"select {cells} from {table.name} t {owner} order by {key}"):
            if row[-1] is None:
                raise StoreCorrupt(f"a row of {table.name} in {self.name} belongs to no scope")
            yield tuple(row)

    def write(self, table: Table, rows: Iterable[Cells]) -> None:
        """Add rows. Triggers update the search index and the counts of lessons."""
        has = self._columns(table) - {"indexed"}
        places = [place for place, column in enumerate(table.columns) if column in has]
        names = ", ".join(table.columns[place] for place in places)
        marks = ", ".join("?" * len(places))
        self._db.executemany(
            f"insert or replace into {table.name} ({names}) values ({marks})",
            ([row[place] for place in places] for row in rows),
        )

    def numbers(self) -> Mapping[str, int]:
        """Return the highest number ever assigned in each numbered table."""
        found = {
            table.name: self._number(f"select coalesce(max({table.key[0]}), 0) from {table.name}")
            for table in tables()
            if table.numbered
        }
        removed = self._number("select example from gone")
        return {**found, "example": max(found["example"], removed)}

    def finish(self, numbers: Mapping[str, int]) -> None:
        """Write what triggers maintain, and make sure that no number is assigned twice."""
        self._db.execute("update gone set example = max(example, ?)", (numbers["example"],))

    def _columns(self, table: Table) -> set[str]:
        sql = f"select name from pragma_table_info('{table.name}')"
        return {row[0] for row in self._db.execute(sql)}

    def _number(self, sql: str) -> int:
        return int(self._db.execute(sql).fetchone()[0])


class _Server:
    """A PostgreSQL database, within a transaction; it has the methods of `_File`."""

    def __init__(self, name: str, session: Session) -> None:
        self.name: str = name
        self._session = session

    def rows(self, table: Table) -> Iterator[Cells]:
        names, key = ", ".join(table.columns), ", ".join(table.key)
        return self._session.stream(f"select {names} from {table.name} order by {key}")

    def write(self, table: Table, rows: Iterable[Cells]) -> None:
        types = dict(self._session.execute(_TYPES, {"table": table.name}).fetchall())
        flags = [place for place, column in enumerate(table.columns) if types[column] == "bool"]
        data = table.columns.index("data") if table.name == "vector" else -1
        columns = (*table.columns, "near") if data >= 0 else table.columns

        def typed_rows() -> Iterator[Cells]:
            for row in rows:
                cells = list(row)
                for place in flags:
                    cells[place] = bool(cells[place])
                yield [*cells, short(cells[data])] if data >= 0 else cells

        self._session.script(f"alter table {table.name} disable trigger user")
        self._session.load(table.name, columns, typed_rows())
        self._session.script(f"alter table {table.name} enable trigger user")

    def numbers(self) -> Mapping[str, int]:
        found = {}
        for table in tables():
            if table.numbered:
                # After a restart of the server this is above any number in use.
                last = f"pg_sequence_last_value({_sequence(table)}::regclass)"
                row = self._session.execute(f"select coalesce({last}, 0)").fetchone()
                found[table.name] = int(row[0])
        return found

    def finish(self, numbers: Mapping[str, int]) -> None:
        self._session.script(_CORPUS)
        for table in tables():
            if table.numbered and numbers[table.name]:
                self._session.script(f"select setval({_sequence(table)}, {numbers[table.name]})")


def _sequence(table: Table) -> str:
    return f"pg_get_serial_sequence('{table.name}', '{table.key[0]}')"


Side = _File | _Server


class Content(NamedTuple):
    """The content of a table: its number of rows, and a digest over them in key order."""

    table: str
    rows: int
    digest: str


class Copied(NamedTuple):
    """The content of the target; `again` is True if an earlier copy wrote all of it."""

    contents: tuple[Content, ...]
    again: bool

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return sum(content.rows for content in self.contents)


def copy(source: str, target: str, progress: CopyProgress = lambda table, rows: None) -> Copied:
    """Copy everything in one database into an empty one, in one transaction.

    Reads back what was written and compares it before the commit. Copying the same database again
    finds the copy and changes nothing. Queued jobs are not copied, because workers find their work
    again. Raises NotFound, Conflict, InvalidInput, StoreError.
    """
    if source == target or os.path.realpath(source) == os.path.realpath(target):
        raise InvalidInput("target", shown(target), "another database than the source")
    with _open(source, writes=False) as origin, _open(target, writes=True) as copied:
        holds = next((table.name for table in tables() if any(copied.rows(table))), "")
        if holds:
            contents = [_content(origin, table, progress) for table in tables()]
            differs: HeedfulError = Conflict(f"{copied.name} {_HOLDS.format(holds)}")
        else:
            contents = [_content(origin, table, progress, copied) for table in tables()]
            copied.finish(origin.numbers())
            what = f"{copied.name} does not hold what {origin.name} does; nothing was written"
            differs = StoreError(what)
        for content, table in zip(contents, tables(), strict=True):
            if _content(copied, table) != content:
                differs.add_note(f"they differ in {table.name}")
                raise differs
    return Copied(tuple(contents), bool(holds))


def _content(
    side: Side,
    table: Table,
    progress: CopyProgress = lambda table, rows: None,
    target: Side | None = None,
) -> Content:
    """Read a table and return its content; write its rows to `target` if there is one."""
    count, digest = 0, blake2b(digest_size=16)
    derived = table.name in DERIVED
    texts = table.columns.index("texts") if derived else 0

    def rows() -> Iterator[Cells]:
        nonlocal count
        for row in side.rows(table):
            if derived and not row[texts]:
                continue  # a scope without texts may have a row here or none
            cells = tuple(map(_plain, row))
            digest.update(repr(cells).encode())
            count += 1
            if count % EVERY == 0:
                progress(table.name, count)
            yield cells

    if target is not None and not derived:
        target.write(table, rows())
    else:
        for _ in rows():
            pass
    progress(table.name, count)
    return Content(table.name, count, digest.hexdigest())


def _plain(cell: object) -> object:
    """Return a cell that every database can hold: booleans as integers, no NUL."""
    if isinstance(cell, str):
        return cell.replace("\0", "?")
    return int(cell) if isinstance(cell, bool) else cell


@contextmanager
def _open(url: str, *, writes: bool) -> Iterator[Side]:
    """Yield a database in a transaction, and commit it at the end."""
    if url.startswith(POSTGRES):
        with _server(url, writes=writes) as side:
            yield side
        return
    if not writes and not os.path.exists(url):
        raise NotFound("database", url, "this folder; check the path")
    try:
        with closing(connected(url, BUSY_SECONDS)) as db:
            db.execute("begin immediate" if writes else "begin")
            yield _File(url, db)
            db.execute("commit")
    except sqlite3.Error as error:
        raise typed(error) from error


@contextmanager
def _server(url: str, *, writes: bool) -> Iterator[Side]:
    needs_psycopg()
    from heedful.store import postgres

    try:
        with closing(postgres.Session(postgres.addressed(url).conninfo)) as session:
            role = postgres.who(session)
            postgres.of_schema(session, role)
            if not role["owner"]:
                raise RoleRefused(
                    f"role {role['role']} sees one tenant at a time; a copy is of all of them: "
                    "name the role that owns heedful's tables in the URL"
                )
            kind = "" if writes else " read only"
            session.script(f"begin isolation level repeatable read{kind}; {postgres.PATIENT}")
            yield _Server(shown(url), session)
            session.end("commit")
    except postgres.MISHAPS as error:
        raise postgres.mishap(error).told from error

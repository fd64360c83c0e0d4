"""Copy one database into another: every row of every scope, all or nothing, then compared.

Either may be a file of SQLite or a database of PostgreSQL, there as the role that owns its tables
and so sees all rows.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from heedful.errors import Conflict, InvalidInput, NotFound, RoleRefused, StoreCorrupt, StoreError
from heedful.lessons.lesson import Scope
from heedful.store import POSTGRES, needs_psycopg, shown
from heedful.store.lessons import short, token
from heedful.store.sqlite import BUSY_SECONDS, Connection, connected, typed

if TYPE_CHECKING:  # needs psycopg, which a copy of files can do without
    from heedful.store.postgres import Session

Cells = Sequence[Any]
# A table of files alone: without it, SQLite would give the number of a deleted row again.
OWN_TABLES = ("gone",)
OWN_COLUMNS = {"corpus": {"id", "changed"}, "vector": {"changed"}}
# What triggers keep is compared, and not copied.
KEPT = ("corpus",)
# Exposures come before the lessons, whose `last_shown` they move; what is pointed at comes first.
FIRST = ("exposure", "loop", "reflection", "example", "dream")
# A row of a file that has no tenant has the one of its owner.
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


class Table(NamedTuple):
    """A table as both kinds have it: `key` orders its rows, the last of `columns` is the tenant.

    `numbered`: its key is a number that the database gives.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    numbered: bool


class Side(Protocol):
    """One database, within a transaction."""

    name: str

    def rows(self, table: Table) -> Iterator[Cells]:
        """All rows of a table, of every tenant, in the order of its key."""
        ...

    def write(self, table: Table, rows: Iterable[Cells]) -> None:
        """Add rows."""
        ...

    def numbers(self) -> Mapping[str, int]:
        """By table, the highest number that was ever given to a row of it."""
        ...

    def settle(self, numbers: Mapping[str, int]) -> None:
        """Make up what is kept by triggers; no number up to these is given again."""
        ...


@cache
def tables() -> tuple[Table, ...]:
    """What two databases share, in an order in which it can be written."""
    sql = "select name from sqlite_schema where type = 'table' and name not like 'example_fts%'"
    db = connected(":memory:", BUSY_SECONDS)
    found = {name: _table(db, name) for (name,) in db.execute(sql) if name not in OWN_TABLES}
    db.close()
    return tuple(found[name] for name in dict.fromkeys((*FIRST, *sorted(found))))


def _table(db: Connection, name: str) -> Table:
    info = db.execute(f"select name, type, pk from pragma_table_info('{name}')").fetchall()
    mine = [row["name"] for row in info if row["name"] not in OWN_COLUMNS.get(name, ())]
    columns = [one for one in mine if one != "tenant"] + (["indexed"] if name == "vector" else [])
    keys = sorted((row for row in info if row["pk"]), key=lambda row: int(row["pk"]))
    key = tuple(row["name"] for row in keys) if name not in KEPT else ("scope",)
    numbered = key in {("n",), ("id",)} and keys[0]["type"].upper() == "INTEGER"
    return Table(name, (*columns, "tenant"), key, numbered)


class InFile:
    """A file of SQLite."""

    def __init__(self, name: str, db: Connection) -> None:
        self.name: str = name
        self._db = db
        self._tenants: dict[str, str] = {}
        db.create_function("tenant_of", 1, self._tenants.get)

    def rows(self, table: Table) -> Iterator[Cells]:
        """All rows of a table, in the order of its key."""
        if table.name in _SCOPES:
            self._find_tenants()
        tenant = f"tenant_of({_SCOPES[table.name]})" if table.name in _SCOPES else "o.tenant"
        theirs = {"tenant": tenant, "indexed": "o.indexed"}
        has = self._columns(table)
        cells = ", ".join(f"t.{one}" if one in has else theirs[one] for one in table.columns)
        key = ", ".join(f"t.{one}" for one in table.key)
        owner = _OWNERS.get(table.name, "")
        for row in self._db.execute(f"select {cells} from {table.name} t {owner} order by {key}"):
            if row[-1] is None:
                raise StoreCorrupt(f"a row of {table.name} in {self.name} belongs to no scope")
            yield tuple(row)

    def write(self, table: Table, rows: Iterable[Cells]) -> None:
        """Add rows; triggers find out which may be recalled, and have counted the lessons."""
        has = self._columns(table) - {"indexed"}
        places = [place for place, column in enumerate(table.columns) if column in has]
        names = ", ".join(table.columns[place] for place in places)
        marks = ", ".join("?" * len(places))
        self._db.executemany(
            f"insert or replace into {table.name} ({names}) values ({marks})",
            ([row[place] for place in places] for row in rows),
        )

    def numbers(self) -> Mapping[str, int]:
        """The highest numbers; of examples also of those that are gone."""
        found = {
            table.name: self._one(f"select coalesce(max({table.key[0]}), 0) from {table.name}")
            for table in tables()
            if table.numbered
        }
        return {**found, "example": max(found["example"], self._one("select example from gone"))}

    def settle(self, numbers: Mapping[str, int]) -> None:
        """No example gets the number of one that is gone."""
        self._db.execute("update gone set example = max(example, ?)", (numbers["example"],))

    def _columns(self, table: Table) -> set[str]:
        sql = f"select name from pragma_table_info('{table.name}')"
        return {row[0] for row in self._db.execute(sql)}

    def _one(self, sql: str) -> int:
        return int(self._db.execute(sql).fetchone()[0])

    def _find_tenants(self) -> None:
        names = [table.name for table in tables() if "project" in table.columns]
        sql = " union ".join(f"select tenant, project from {name}" for name in names)
        self._tenants |= {token(Scope(*row)): row["tenant"] for row in self._db.execute(sql)}


_KINDS = """
select column_name::text, udt_name::text from information_schema.columns
where table_schema = current_schema() and table_name = :table
"""
_SEQUENCE = "pg_get_serial_sequence('{0}', '{1}')"
_CORPUS = """
insert into corpus (scope, tenant, texts, length)
select scope, tenant, count(*) filter (where indexed),
  coalesce(sum(length(words)) filter (where indexed), 0)
from example group by scope, tenant
"""


class InServer:
    """A database of PostgreSQL."""

    def __init__(self, name: str, session: Session) -> None:
        self.name: str = name
        self._session = session

    def rows(self, table: Table) -> Iterator[Cells]:
        """All rows of a table, in the order of its key."""
        names, key = ", ".join(table.columns), ", ".join(table.key)
        return self._session.stream(f"select {names} from {table.name} order by {key}")

    def write(self, table: Table, rows: Iterable[Cells]) -> None:
        """Add rows as they are: the triggers rest until the end."""
        self._session.script(f"alter table {table.name} disable trigger user")
        kinds = dict(self._session.execute(_KINDS, {"table": table.name}).fetchall())
        flags = [place for place, one in enumerate(table.columns) if kinds[one] == "bool"]
        data = table.columns.index("data") if table.name == "vector" else -1
        columns = (*table.columns, "near") if table.name == "vector" else table.columns

        def told() -> Iterator[Cells]:
            for row in rows:
                cells = list(row)
                for place in flags:
                    cells[place] = bool(cells[place])
                yield [*cells, short(cells[data])] if data >= 0 else cells

        self._session.load(table.name, columns, told())
        self._session.script(f"alter table {table.name} enable trigger user")

    def numbers(self) -> Mapping[str, int]:
        """The last numbers that were given."""
        return {
            table.name: int(self._session.execute(_given(table)).fetchone()[0])
            for table in tables()
            if table.numbered
        }

    def settle(self, numbers: Mapping[str, int]) -> None:
        """Count the texts of each scope, and go on with the numbers."""
        self._session.script(_CORPUS)
        for table in tables():
            if table.numbered and numbers[table.name]:
                sequence = _SEQUENCE.format(table.name, table.key[0])
                self._session.script(f"select setval({sequence}, {numbers[table.name]})")


def _given(table: Table) -> str:
    """The last number of a sequence; what it says after a restart is above any that was given."""
    sequence = _SEQUENCE.format(table.name, table.key[0])
    return f"select coalesce(pg_sequence_last_value({sequence}::regclass), 0)"


Told = Callable[[str, int], None]  # a table, and how many of its rows are copied
_HOLDS = (
    "holds other rows already (in {}); copy into an empty database, or bring lessons together by "
    "heedful export and heedful import"
)
EVERY = 10_000  # rows between two words of progress


class Content(NamedTuple):
    """What a table holds: how many rows, and a digest over them in the order of their key."""

    table: str
    rows: int
    digest: str


class Copied(NamedTuple):
    """What the target holds now; `again`: all of it was there before."""

    contents: tuple[Content, ...]
    again: bool

    @property
    def rows(self) -> int:
        """How many rows that is."""
        return sum(one.rows for one in self.contents)


def copy(source: str, target: str, told: Told = lambda table, rows: None) -> Copied:
    """Copy all that a store holds into one that holds nothing, in one transaction.

    Before it is committed, what was written is read again and compared. The same once more finds
    that it is there. Jobs that wait in a queue are not copied: what they were to do is found again.
    Raises NotFound, Conflict, InvalidInput, StoreError.
    """
    if source == target or os.path.realpath(source) == os.path.realpath(target):
        raise InvalidInput("target", shown(target), "another database than the source")
    with _opened(source, writes=False) as one, _opened(target, writes=True) as other:
        holds = next((table.name for table in tables() if any(other.rows(table))), "")
        if holds:
            contents = tuple(_content(one, table, told) for table in tables())
            _compare(contents, other, Conflict(f"{other.name} {_HOLDS.format(holds)}"))
        else:
            contents = tuple(_carry(one, other, told))
            other.settle(one.numbers())
            what = f"{other.name} does not hold what {one.name} does; nothing was written"
            _compare(contents, other, StoreError(what))
    return Copied(contents, bool(holds))


def _carry(source: Side, target: Side, told: Told) -> Iterator[Content]:
    for table in tables():
        seen = _Seen(table, told)
        rows = seen.passed(source.rows(table))
        if table.name in KEPT:
            for _ in rows:
                pass
        else:
            target.write(table, rows)
        yield seen.content()


def _compare(contents: Iterable[Content], target: Side, differs: Exception) -> None:
    for content, table in zip(contents, tables(), strict=True):
        if _content(target, table) != content:
            differs.add_note(f"they differ in {table.name}")
            raise differs


def _content(side: Side, table: Table, told: Told = lambda table, rows: None) -> Content:
    seen = _Seen(table, told)
    for _ in seen.passed(side.rows(table)):
        pass
    return seen.content()


class _Seen:
    """Counts rows and digests them while they pass."""

    def __init__(self, table: Table, told: Told) -> None:
        self._table, self._told = table, told
        self._rows, self._digest = 0, blake2b(digest_size=16)

    def passed(self, rows: Iterable[Cells]) -> Iterator[Cells]:
        """The same rows, as every kind of database can hold them: no flags, no character 0."""
        counted = self._table.columns.index("texts") if self._table.name in KEPT else 0
        for row in rows:
            if self._table.name in KEPT and not row[counted]:
                continue  # of a scope that has no text any more there may be a row or none
            cells = tuple(_plain(cell) for cell in row)
            self._digest.update(repr(cells).encode())
            self._rows += 1
            if self._rows % EVERY == 0:
                self._told(self._table.name, self._rows)
            yield cells

    def content(self) -> Content:
        """What has passed."""
        self._told(self._table.name, self._rows)
        return Content(self._table.name, self._rows, self._digest.hexdigest())


def _plain(cell: object) -> object:
    if isinstance(cell, str):
        return cell.replace("\0", "?")
    return int(cell) if isinstance(cell, bool) else cell


@contextmanager
def _opened(url: str, *, writes: bool) -> Iterator[Side]:
    """A database in a transaction, which is committed at the end where it was written to."""
    if url.startswith(POSTGRES):
        with _server(url, writes=writes) as side:
            yield side
        return
    if not writes and not os.path.exists(url):
        raise NotFound("database", url, "this folder; check the path")
    try:
        with closing(connected(url, BUSY_SECONDS)) as db:
            db.execute("begin immediate" if writes else "begin")
            yield InFile(url, db)
            db.execute("commit")
    except sqlite3.Error as error:
        raise typed(error) from error


@contextmanager
def _server(url: str, *, writes: bool) -> Iterator[Side]:
    needs_psycopg()
    from heedful.store import postgres as admission
    from heedful.store.postgres import MISHAPS, PATIENT, Session, addressed, mishap

    try:
        with closing(Session(addressed(url).conninfo)) as session:
            found = admission.who(session)
            admission.of_schema(session, found)
            if not found["owner"]:
                raise RoleRefused(
                    f"role {found['role']} sees one tenant at a time; a copy is of all of them: "
                    "name the role that owns heedful's tables in the URL"
                )
            kind = "" if writes else " read only"
            session.script(f"begin isolation level repeatable read{kind}; {PATIENT}")
            yield InServer(shown(url), session)
            session.end("commit")
    except MISHAPS as error:
        raise mishap(error).told from error

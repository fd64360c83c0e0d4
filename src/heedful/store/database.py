"""The interface between the modules of a store and a database: statements, rows, transactions.

Each module has plain functions `work(db, scope, ...)` that run the named statements of `sql/`. Each
module has its own SQL file there; another file holds what differs between the dialects.
`Store.read` and `Store.write` run such a function in a transaction. Decorate a function that
changes rows with `holds` if it needs other locks than the memory lock of its scope.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

from heedful.lessons.lesson import Scope

T = TypeVar("T")
K = TypeVar("K")
P = ParamSpec("P")
Dialect = Literal["sqlite", "postgres"]
# The lock that serialises writers of the lessons of a scope until the transaction ends.
MEMORY = ("memory",)
Locks = Callable[..., Sequence[str]]
_locks: dict[Callable[..., Any], Locks] = {}
# The limit for a statement without a limit.
ALL = 2**31 - 1


class Row(Protocol):
    """A row; its columns are reached by position and by name."""

    def __getitem__(self, key: int | str, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def keys(self) -> Any:
        """Return the names of the columns."""
        ...


class Rows(Protocol):
    """The result of a statement; empty for a statement that returns no rows."""

    @property
    def rowcount(self) -> int:
        """Return the number of rows written."""
        ...

    def __iter__(self) -> Iterator[Any]: ...
    def fetchone(self) -> Any:
        """Return the next row, or None after the last."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all remaining rows."""
        ...

    def fetchmany(self, size: int = ..., /) -> list[Any]:
        """Return at most `size` of the remaining rows."""
        ...


class Db(Protocol):
    """A connection within a transaction; it belongs to one thread at a time."""

    @property
    def dialect(self) -> Dialect:
        """Return the SQL dialect of the database."""
        ...

    @property
    def url(self) -> str:
        """Return the URL with which a user opened the store, without the password."""
        ...

    def named(self, name: str, values: Mapping[str, Any] = ..., /) -> Rows:
        """Run a named statement."""
        ...

    def execute(self, sql: str, values: Any = ..., /) -> Any:
        """Run SQL that has no name, such as `savepoint x`."""
        ...

    def kept(self, kind: Callable[[], K], /) -> K:
        """Return the object of this class that the connection keeps between transactions."""
        ...


Work = Callable[[Db], T]


def holds(*names: str, given: Locks | None = None) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Declare the locks that a function holds until its transaction ends, instead of `MEMORY`.

    `given` returns their names within the scope, from the arguments that follow `db` and `scope`.
    """

    def decorate(work: Callable[P, T]) -> Callable[P, T]:
        _locks[work] = given or (lambda *_, **__: names)
        return work

    return decorate


def locks_of(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Sequence[str]:
    """Return the locks that a function holds when it is called with these arguments."""
    return _locks.get(work, lambda *_, **__: MEMORY)(*args, **kwargs)


class Access(Protocol):
    """Access of a store to its database. All methods raise StoreError and what `work` raises."""

    async def read(self, scope: Scope, work: Work[T]) -> T:
        """Run `work` on one consistent state of the database and return its result."""
        ...

    async def write(self, scope: Scope, work: Work[T], holds: Sequence[str] = MEMORY) -> T:
        """Run `work`, commit and return its result; run it again if the database asks for a retry.

        No other writer has the locks in `holds` at the same time. They are names within the scope,
        always taken in the same order.
        """
        ...

    async def apart(self, scope: Scope, work: Work[T]) -> T:
        """Run slow work as `read` does, on a connection of its own."""
        ...

    async def close(self) -> None:
        """Finish running work and close every connection. A later call opens the database again."""
        ...


class Kept:
    """Objects that a connection keeps, at most one of each class, created at the first request."""

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}

    def one(self, kind: Callable[[], K]) -> K:
        """Return the object of this class, creating it if needed."""
        if kind not in self._kept:
            self._kept[kind] = kind()
        found: K = self._kept[kind]
        return found


FOLDER = os.path.join(os.path.dirname(__file__), "sql")
ROOMS = (
    "loops", "lessons", "exposures", "patterns", "search", "transfer", "dreams", "episodes", "keys",
    "idempotency",
)  # fmt: skip


@cache
def statements(dialect: Dialect) -> dict[str, str]:
    """Return the SQL of each named statement; the files are read once."""
    text = "\n".join(read_sql(f"{name}.sql") for name in (*ROOMS, dialect))
    if dialect == "postgres":
        text = re.sub(r"/\*postgres (.*?) \*/", r"\1", text)
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return {name: sql.strip() for name, sql in zip(parts[1::2], parts[2::2], strict=True)}


def read_sql(name: str) -> str:
    """Return the text of a file of `sql/`, with the file that it includes in place of that line."""
    # Without pathlib or importlib.resources: both cost a start.
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        text = file.read()
    if found := re.search(r"^-- include (\S+)$", text, re.MULTILINE):
        tables = read_sql(found[1])
        tables = in_postgres(tables) if name.startswith("postgres") else tables
        text = text[: found.start()] + tables + text[found.end() :]
    return text


TENANT = "tenant text collate \"C\" not null default current_setting('heedful.tenant')"
TYPES = {
    "integer primary key": "bigint generated by default as identity primary key",
    "integer": "bigint",
    "real": "double precision",
    "text": 'text collate "C"',
}


def in_postgres(tables: str) -> str:
    """Return PostgreSQL's form of tables that are written in SQLite's types, one column a line."""
    text = tables.replace(") without rowid;", ");")
    column = re.compile(rf"^(  \w+) ({'|'.join(TYPES)})\b", re.MULTILINE)
    text = column.sub(lambda found: f"{found[1]} {TYPES[found[2]]}", text)
    text = text.replace('tenant text collate "C" not null', TENANT)
    # SQLite needs no tenant in a row whose owner has one; row-level security needs it in every row.
    without = re.compile(r"^(create table \w+ \(\n)(?!(?:  .*\n)*?  tenant )", re.MULTILINE)
    return without.sub(rf"\1  {TENANT},\n", text)

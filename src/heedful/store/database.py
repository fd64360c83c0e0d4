"""What the rooms of a store ask of a database: named statements, their rows, and transactions.

A room is a module of plain functions `work(db, scope, ...)` over the statements of `sql/`, which
has a file a room and one for what each dialect says its own way. `Store.read` and
`Store.write` run such a function in a transaction. A function that changes rows is decorated with
`holds` where it needs other locks than those of the memory of its scope.
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
# The limit of a statement that is to have none.
ALL = 2**31 - 1


class Row(Protocol):
    """A row: its columns by position and by name."""

    def __getitem__(self, key: int | str, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def keys(self) -> Any:
        """The names of the columns."""
        ...


class Rows(Protocol):
    """What a statement answered; without rows it is empty."""

    @property
    def rowcount(self) -> int:
        """How many rows were written."""
        ...

    def __iter__(self) -> Iterator[Any]: ...
    def fetchone(self) -> Any:
        """The next row, None after the last."""
        ...

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        ...

    def fetchmany(self, size: int = ..., /) -> list[Any]:
        """At most `size` of the rows that are left."""
        ...


class Db(Protocol):
    """A connection within a transaction; it belongs to one thread at a time."""

    @property
    def dialect(self) -> Dialect:
        """Whose SQL it speaks."""
        ...

    @property
    def url(self) -> str:
        """The name under which a user opened the store, without a password."""
        ...

    def named(self, name: str, values: Mapping[str, Any] = ..., /) -> Rows:
        """Run the statement of that name."""
        ...

    def execute(self, sql: str, values: Any = ..., /) -> Any:
        """Run SQL that has no name, as `savepoint x`."""
        ...

    def kept(self, kind: Callable[[], K], /) -> K:
        """The one of that kind that this connection keeps from transaction to transaction."""
        ...


Work = Callable[[Db], T]


def holds(*names: str, given: Locks | None = None) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Say which locks a function holds until its transaction ends, in place of `MEMORY`.

    They are names within the scope. `given` makes them of the arguments after `db` and `scope`.
    """

    def decorate(work: Callable[P, T]) -> Callable[P, T]:
        _locks[work] = given or (lambda *_, **__: names)
        return work

    return decorate


def locks_of(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Sequence[str]:
    """The locks that a function holds when it is called with these arguments."""
    return _locks.get(work, lambda *_, **__: MEMORY)(*args, **kwargs)


class Access(Protocol):
    """How a store reaches its database; all of it raises StoreError and what the work raises."""

    async def read(self, scope: Scope, work: Work[T]) -> T:
        """What `work` returns, which reads one state of the database."""
        ...

    async def write(self, scope: Scope, work: Work[T], holds: Sequence[str] = MEMORY) -> T:
        """What `work` returns, once it is committed; run again where the database asks for it.

        No other writer is at what it `holds`: names within the scope, always in the same order.
        """
        ...

    async def apart(self, scope: Scope, work: Work[T]) -> T:
        """As `read`, on a connection of its own: what takes long holds nobody up."""
        ...

    async def close(self) -> None:
        """Finish what is under way and let go of every connection; used again, it opens again."""
        ...


class Kept:
    """What a connection keeps: one of a kind, made when it is first asked for."""

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}

    def one(self, kind: Callable[[], K]) -> K:
        """The one of that kind."""
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
    """Name -> SQL, read once."""
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
    # A row of SQLite's whose owner has a tenant needs none; row-level security asks every row.
    without = re.compile(r"^(create table \w+ \(\n)(?!(?:  .*\n)*?  tenant )", re.MULTILINE)
    return without.sub(rf"\1  {TENANT},\n", text)

"""One connection to PostgreSQL that speaks the named statements, a transaction at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.numeric import Int8BinaryDumper

from heedful.errors import StoreError
from heedful.store.database import Dialect, Kept, Work
from heedful.store.statements import statements

T = TypeVar("T")
K = TypeVar("K")

STREAMED = 1_000  # rows that the server sends at a time
PREPARED_MAX = 1_000  # more than there are statements: none has to make room for another
# What holds no parameter (strings, quoted names, comments, casts), or one: `:name`.
_PARTS = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|--[^\n]*|/\*.*?\*/|::|:([A-Za-z_]\w*)""", re.DOTALL)


class Row(tuple[Any, ...]):
    """A row: its columns by position and by name."""

    __slots__ = ()
    _at: Mapping[str, int]

    def __getitem__(self, key: Any) -> Any:
        return tuple.__getitem__(self, self._at[key] if isinstance(key, str) else key)

    def keys(self) -> Sequence[str]:
        """The names of the columns."""
        return tuple(self._at)


class Rows:
    """What a statement answered, all of it; empty where it has no rows."""

    def __init__(self, rows: list[Any], rowcount: int) -> None:
        self._rows = rows
        self._next = 0
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Any]:
        while (row := self.fetchone()) is not None:
            yield row

    def fetchone(self) -> Any:
        """The next row, None after the last."""
        found = self.fetchmany(1)
        return found[0] if found else None

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        return self.fetchmany(len(self._rows))

    def fetchmany(self, size: int = 1) -> list[Any]:
        """At most `size` of the rows that are left."""
        found = self._rows[self._next : self._next + size]
        self._next += len(found)
        return found


class Session:
    """A connection; it belongs to one thread at a time. psycopg's errors come through as they are.

    Parameters are written `:name`, as SQLite has them. A whole number is sent as bigint, whatever
    its size, so that a statement is prepared once; text has the type that its place asks for.
    """

    dialect: Final[Dialect] = "postgres"

    def __init__(self, conninfo: str) -> None:
        self._connection = psycopg.connect(
            conninfo,
            autocommit=True,  # a transaction begins in words of its own, together with its tenant
            prepare_threshold=1,
            cursor_factory=psycopg.RawCursor,
            row_factory=_named,
        )
        self._connection.prepared_max = PREPARED_MAX
        self._connection.adapters.register_dumper(int, Int8BinaryDumper)
        self._cursor = self._connection.cursor(binary=True)
        self._kept = Kept()
        self._status = ""

    def named(self, name: str, values: Mapping[str, Any] = {}) -> Rows:
        """Run the statement of that name."""
        return self.execute(statements("postgres")[name], values)

    def execute(self, sql: str, values: Mapping[str, Any] = {}) -> Rows:
        """Run SQL that has no name."""
        text, names = _sent(sql)
        cursor = self._cursor
        cursor.execute(text, [values[name] for name in names])
        return Rows(cursor.fetchall() if cursor.description else [], cursor.rowcount)

    def script(self, sql: str) -> None:
        """Run statements without parameters, one message to the server for all of them."""
        self._status = self._connection.execute(sql.encode(), prepare=False).statusmessage or ""

    def stream(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, some at a time; within a transaction, one stream at a time."""
        with self._connection.cursor("stream", row_factory=tuple_row) as cursor:
            cursor.itersize = STREAMED
            cursor.execute(sql.encode(), binary=True)
            yield from cursor

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Add rows to a table as fast as the server takes them."""
        copy = f"copy {table} ({', '.join(columns)}) from stdin"
        with self._connection.cursor().copy(copy.encode()) as copied:
            for row in rows:
                copied.write_row(row)

    def kept(self, kind: Callable[[], K]) -> K:
        """The one of that kind that this connection keeps."""
        return self._kept.one(kind)

    def within(self, begin: str, work: Work[T], end: str) -> T:
        """What `work` returns, which runs between `begin` and `end` (commit, rollback).

        Raises InDoubt where the connection was lost while it was committed.
        """
        try:
            self.script(begin)
            value = work(self)
            self.end(end)
        except psycopg.errors.FeatureNotSupported:
            self.close()  # what it has prepared is from before the schema was changed
            raise
        finally:
            self.undo()
        return value

    def end(self, end: str) -> None:
        """Commit, or roll back. Raises InDoubt where nobody knows whether it was committed."""
        try:
            self.script(end)
        except psycopg.OperationalError as error:
            if end == "commit" and self.lost:
                raise InDoubt(str(error)) from error
            raise
        if self._status.lower() != end:
            raise StoreError(
                "a statement failed in a transaction that went on; nothing was written"
            )

    def undo(self) -> None:
        """Leave no transaction open; a connection that cannot do that is closed."""
        try:
            if self._connection.info.transaction_status != TransactionStatus.IDLE:
                self._connection.execute("rollback")
        except psycopg.Error:
            self.close()

    @property
    def lost(self) -> bool:
        """Whether it is of no more use."""
        return self._connection.closed

    def close(self) -> None:
        """Let go of the server; harmless when called twice."""
        self._connection.close()


class InDoubt(psycopg.OperationalError):
    """The connection was lost while a transaction was being committed."""


@cache
def _sent(sql: str) -> tuple[bytes, tuple[str, ...]]:
    text, names = numbered(sql)
    return text.encode(), names


def numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """SQL with `$1` for the first of its parameters, and their names in that order.

    >>> numbered("select :a::text, ':b', :c + :a")
    ("select $1::text, ':b', $2 + $1", ('a', 'c'))
    """
    names: list[str] = []

    def place(part: re.Match[str]) -> str:
        name = part[1]
        if name is None:
            return part[0]
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _PARTS.sub(place, sql), tuple(names)


def _named(cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], Any]:
    columns = cursor.description
    return _row_of(tuple(column.name for column in columns)) if columns else Row


@cache
def _row_of(names: tuple[str, ...]) -> type[Row]:
    at = {name: index for index, name in enumerate(names)}
    return type("Row", (Row,), {"__slots__": (), "_at": at})

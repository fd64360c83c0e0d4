"""A database connection inside a transaction, and the functions that use one.

Each module of this package has plain functions `work(db, scope, ...)`, which run named
SQL statements. The SQL file of a module has the same name, in `sql/`. Statements that
differ between the dialects are in `sqlite.sql` and `postgres.sql`. `Store.read` and
`Store.write` run such a function in a transaction.

A function that changes rows holds the memory lock of its scope, unless the decorator
`holds` names other locks. If its result may stand for a repeated call, the decorator
`resumable` declares the type of the result.

Secrets are removed here, at the edge of the store: a text becomes a column through
`storable`, and data become one through `storable_json`, or through `loops.dump`. Only
episodes and spans come without secrets, because removing those of a long trace takes a
second, which no transaction should wait for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from types import FunctionType
from typing import (
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    get_origin,
    get_type_hints,
)

from heedful.lessons.lesson import Scope
from heedful.redact import redact, redact_data
from heedful.store.statements import Dialect, statements

T = TypeVar("T")
K = TypeVar("K")
P = ParamSpec("P")
Function = Callable[Concatenate["Db", Scope, P], T]
Work = Callable[["Db"], T]
# The `limit` of a statement that returns all rows; no id is above it.
MAX_ROWS = 2**53
Row = Any  # a row; its columns are reached by position and by name
# The result of a statement: `rowcount`, `fetchone`, `fetchall`, and iteration over the
# rows.
Rows = Any
# The end of an `insert` that does nothing if the row exists.
CONFLICT_SKIP_SQL = "on conflict do nothing"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who writes: `via` is the source `key:ID` of a service's key, or "" in process.

    At most `outcomes` outcomes of the key count on one day.
    """

    via: str = ""
    outcomes: int = 0


LOCAL_ACTOR = Actor()


class Db:
    """A database connection inside a transaction; one thread at a time may use it.

    `url` is the name of the store, without a password.
    """

    dialect: Dialect
    url: str
    actor: Actor = LOCAL_ACTOR
    lost: bool = False  # True if the connection can no longer be used

    def execute(self, sql: str, values: Any = (), /) -> Rows:
        """Run SQL with the values of its named parameters; return the result."""
        raise NotImplementedError

    def check(self) -> None:
        """Check that the database accepts writes. Raises StoreError."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection; closing it twice does no harm."""
        raise NotImplementedError

    def run(self, name: str, values: Mapping[str, Any] = {}, /) -> Rows:
        """Run the statement `name` of `sql/` and return the result."""
        return self.execute(statements(self.dialect)[name], values)

    def first(self, name: str, values: Mapping[str, Any] = {}) -> Row | None:
        """Run the statement `name`; return the first of its rows, or None."""
        rows = self.run(name, values).fetchall()
        return rows[0] if rows else None

    def all(self, name: str, scope: Scope, /, **values: Any) -> list[Row]:
        """Run the statement `name` on the rows of `scope`; return all its rows."""
        rows: list[Row] = self.run(name, {**key_of(scope), **values}).fetchall()
        return rows

    def one(self, name: str, scope: Scope, /, **values: Any) -> Row | None:
        """Run the statement `name` on the rows of `scope`; return a row, or None."""
        return self.first(name, {**key_of(scope), **values})

    def select(
        self, columns: str, table: str, key: Mapping[str, Any], end: str = ""
    ) -> list[Row]:
        """Return `columns` of the rows of `table` that match `key`.

        `end` completes the statement, such as with `order by`.
        """
        sql = f"select {columns} from {table} where {_matches(key)} {end}"
        rows: list[Row] = self.execute(sql, key).fetchall()
        return rows

    def insert(self, table: str, values: Mapping[str, Any], end: str = "") -> Rows:
        """Insert `values` as a row of `table`.

        `end` completes the statement, such as `CONFLICT_SKIP_SQL`.
        """
        marks = ", ".join(f":{name}" for name in values)
        sql = f"insert into {table} ({', '.join(values)}) values ({marks}) {end}"
        return self.execute(sql, values)

    def update(
        self, table: str, key: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> int:
        """Set `changes` in the rows that match `key`; return the number of rows."""
        assignments = ", ".join(f"{name} = :new_{name}" for name in changes)
        new = {f"new_{name}": value for name, value in changes.items()}
        sql = f"update {table} set {assignments} where {_matches(key)}"
        return int(self.execute(sql, {**key, **new}).rowcount)

    def delete(self, table: str, key: Mapping[str, Any]) -> int:
        """Delete the rows of `table` that match `key`; return their number."""
        sql = f"delete from {table} where {_matches(key)}"
        return int(self.execute(sql, key).rowcount)

    def local(self, kind: Callable[[], K], /) -> K:
        """Return the connection's own instance of `kind`, such as a cache.

        The first call makes it.
        """
        objects: dict[Any, K] = self.__dict__.setdefault("_local", {})
        if kind not in objects:
            objects[kind] = kind()
        return objects[kind]


def _matches(columns: Iterable[str]) -> str:
    return " and ".join(f"{name} = :{name}" for name in columns)


class Access(Protocol):
    """Access to the database of a store, in SQLite or in PostgreSQL.

    All methods raise StoreError and the errors of `work`.
    """

    async def read(self, scope: Scope, work: Work[T]) -> T:
        """Run `work` on one consistent snapshot of the database; return its result."""
        ...

    async def write(self, scope: Scope, work: Work[T], locks: Sequence[str]) -> T:
        """Run `work`, commit, and return its result.

        Repeats if the database asks for a retry. Meanwhile no other writer has one of
        the `locks`, which are names within `scope`. All callers must list them in the
        same order.
        """
        ...

    async def close(self) -> None:
        """Finish running work and close every connection.

        A later call opens the database again.
        """
        ...


# The lock that serialises writers of the lessons of a scope until the transaction ends.
MEMORY_LOCKS = ("memory",)
Locks = Callable[..., Sequence[str]]
_locks: dict[Callable[..., Any], Locks] = {}


def holds(
    *names: str, by: Locks | None = None
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Declare that a function locks `names` until the commit, not `MEMORY_LOCKS`.

    Alternatively, `by` computes the names from the function's arguments after `db` and
    `scope`.
    """

    def decorate(work: Callable[P, T]) -> Callable[P, T]:
        _locks[work] = by or (lambda *_, **__: names)
        return work

    return decorate


def locks_of(
    work: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]
) -> Sequence[str]:
    """Return the locks that `work` holds when it is called with these arguments."""
    locks = _locks.get(work)
    return MEMORY_LOCKS if locks is None else locks(*arguments, **options)


_results: dict[Callable[..., Any], Any] = {}


def resumable(*, result: Any) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Declare that a repeated call gets the stored result of this write.

    `result` is the type of the result, or a function that imports the type and returns
    it. A write without this declaration is done again when its call is repeated: a
    driver that comes back must claim its loop again.
    """

    def decorate(work: Callable[P, T]) -> Callable[P, T]:
        _results[work] = result
        return work

    return decorate


def is_resumable(work: Callable[..., Any]) -> bool:
    """Return True if `resumable` declares the result of `work`."""
    return work in _results


@cache
def result_adapter(work: Callable[..., Any]) -> Any:
    """Return pydantic's adapter for the declared result of `work`."""
    from pydantic import TypeAdapter

    result = _results[work]
    if isinstance(result, FunctionType):
        result = result()
    return TypeAdapter(result)


@holds()
@resumable(result=None)
def check_writes(db: Db, scope: Scope) -> None:
    """Check that the database accepts writes. Raises StoreError."""
    db.check()


def from_row(kind: type[T], row: Row, **values: Any) -> T:
    """Make a record of the dataclass `kind` from the columns of `row`.

    `values` overrides columns. JSON text becomes a tuple or a mapping, and a number
    becomes a bool, if the field needs that.
    """
    for name, read in _readers(cast("Any", kind)):
        if name not in values:
            values[name] = row[name] if read is None else read(row[name])
    return kind(**values)


@cache
def _readers(kind: Any) -> tuple[tuple[str, Callable[[Any], Any] | None], ...]:
    hints = get_type_hints(kind)
    readers = []
    for column in fields(kind):
        hint = hints[column.name]
        readers.append((column.name, _reader(get_origin(hint) or hint)))
    return tuple(readers)


def _reader(hint: Any) -> Callable[[Any], Any] | None:
    if hint is tuple:
        return lambda text: tuple(json.loads(text)) if text != "[]" else ()
    if hint is Mapping:
        return lambda text: json.loads(text) if text != "{}" else {}
    return bool if hint is bool else None


def token(scope: Scope) -> str:
    """Return the word that marks the rows of `scope` in the full-text index."""
    name = f"{scope.tenant}\0{scope.project}"
    return "s" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def key_of(scope: Scope) -> dict[str, Any]:
    """Return the parameters of a statement that select the rows of `scope`."""
    return {"tenant": scope.tenant, "project": scope.project}


def storable(text: str) -> str:
    """Return `text` without secrets and without characters that no database can store.

    Lone surrogates (invalid in UTF-8) and NUL (invalid in PostgreSQL) become question
    marks.
    """
    text = redact(text).replace("\0", "?")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def storable_json(data: Mapping[str, Any]) -> str:
    """Return `data` as JSON without secrets."""
    return json.dumps(redact_data(dict(data)))

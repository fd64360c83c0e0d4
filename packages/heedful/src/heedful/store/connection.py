"""A database connection inside a transaction, and the functions that use one.

Each module of this package has plain functions `work(db, scope, ...)`, which run named
SQL statements. The SQL file of a module has the same name, in `sql/`. Statements that
differ between the dialects are in `sqlite.sql` and `postgres.sql`. `Store.read` and
`Store.write` run such a function in a transaction.

A function that changes rows holds the memory lock of its scope, unless the decorator
`holds` names other locks. If its result may stand for a repeated call, the decorator
`resumable` declares the type of the result.

Secrets are removed here, at the edge of the store: a text becomes a column through
`storable`, and data become one through `storable_json`, or through `loop_columns.dump`.
Only episodes and spans come without secrets, because removing those of a long trace
takes a second, which no transaction should wait for.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache, cached_property
from typing import (
    Any,
    Concatenate,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    get_origin,
    get_type_hints,
)

from heedful.errors import HeedfulError
from heedful.lessons.scope import Scope
from heedful.redact import redact, redact_data
from heedful.store.statements import Dialect, statements
from heedful.validation import Document, Fields, hex_digest

T = TypeVar("T")
K = TypeVar("K")
P = ParamSpec("P")
# A function of a module of this package: `work(db, scope, ...)`.
Function = Callable[Concatenate["Db", Scope, P], T]
# The same with its arguments bound, so that only the connection is missing.
Work = Callable[["Db"], T]
# A row of a result; its columns are reached by name.
Row = Any
# The result of a statement: `rowcount`, `fetchone`, `fetchall`, and iteration over the
# rows.
Rows = Any

# The `limit` of a statement that returns all rows; no id is above it.
MAX_ROWS = 2**53
# The newest rows of one kind that a search without an index goes through.
MAX_READ_ROWS = 2_000
# The end of an `insert` that does nothing if the row exists.
CONFLICT_SKIP_SQL = "on conflict do nothing"


class Actor(NamedTuple):
    """Who writes to a store.

    `via` is `key:ID` if the write came through a key of a service, and "" if it came
    from code in this process. At most `outcomes` outcomes of the key count on one day.
    """

    via: str = ""
    outcomes: int = 0


LOCAL_ACTOR = Actor()


# Bytes of JSON that a short read may parse, and those of a read without a turn.
MAX_SHORT_READ_BYTES = 256 * 1024


class LargeRead(Exception):
    """A read would parse more than it may."""


class Db(ABC):
    """A database connection inside a transaction; one thread at a time may use it.

    `url` is the name of the store, without a password.
    """

    dialect: Dialect
    url: str
    actor: Actor = LOCAL_ACTOR
    # True if the connection can no longer be used.
    lost: bool = False
    # The bytes that a read may still parse; None if it may parse all.
    free_bytes: int | None = None

    @abstractmethod
    def execute(self, sql: str, values: Any = (), /) -> Rows:
        """Run SQL text and return the result.

        `values` maps the named parameters of the SQL text, such as `:id`, to values.
        """

    @abstractmethod
    def check(self) -> None:
        """Check that the database accepts writes. Raises StoreError."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; closing it twice does no harm."""

    def spend(self, size: int) -> None:
        """Count bytes that are about to be parsed. Raises LargeRead."""
        if self.free_bytes is None:
            return
        self.free_bytes -= size
        if self.free_bytes < 0:
            raise LargeRead

    def undo(self, savepoint: str, /) -> None:
        """Undo the work since a savepoint of this transaction."""
        self.execute(f"rollback to {savepoint}")

    def run(self, name: str, values: Mapping[str, Any] = {}, /) -> Rows:
        """Run the statement `name` of `sql/` and return the result."""
        return self.execute(statements(self.dialect)[name], values)

    def execute_later(self, sql: str, values: Fields, /) -> None:
        """Run SQL text when it suits the database, without its result.

        On PostgreSQL, it waits for the next statement that has a result, or for the
        commit: all of them are one round trip.
        """
        self.execute(sql, values)

    def send(self, name: str, values: Fields, /) -> None:
        """Run the statement `name` of `sql/` as `execute_later` does."""
        self.execute_later(statements(self.dialect)[name], values)

    def expect(self, name: str, values: Fields, error: HeedfulError, /) -> None:
        """Run the statement `name` of `sql/`; raise `error` if it changes no row.

        The statement must not return rows. On PostgreSQL, the error may come later in
        the transaction: the work goes on before the answer has arrived.
        """
        if not self.run(name, values).rowcount:
            raise error

    def each(self, *calls: tuple[str, Fields]) -> list[Rows]:
        """Run statements, by their names with their values; return their results."""
        return [self.run(name, values) for name, values in calls]

    def last(self, *calls: tuple[str, Fields]) -> list[Rows]:
        """Run the last statements of a transaction as `each` does.

        Each call has the name of a statement and its values. On PostgreSQL, they are
        one round trip, together with the end of a transaction that only reads. After
        it, another statement raises LookupError.
        """
        return self.each(*calls)

    def first(self, name: str, values: Mapping[str, Any] = {}) -> Row | None:
        """Run the statement `name`; return the first of its rows, or None."""
        rows = self.run(name, values).fetchall()
        return rows[0] if rows else None

    def all(self, name: str, scope: Scope, /, **values: Any) -> list[Row]:
        """Run the statement `name` on the rows of `scope`; return all its rows.

        The statement gets the `values`, the columns that select the rows of the scope,
        and the token of the scope under the name `scope`.
        """
        of_scope = {**key_of(scope), "scope": token(scope)}
        rows: list[Row] = self.run(name, {**of_scope, **values}).fetchall()
        return rows

    def one(self, name: str, scope: Scope, /, **values: Any) -> Row | None:
        """Run a statement as `all` does; return the first of its rows, or None."""
        rows = self.all(name, scope, **values)
        return rows[0] if rows else None

    def select(self, columns: str, table: str, key: Fields, end: str = "") -> list[Row]:
        """Return `columns` of the rows of `table` that match `key`.

        `key` maps columns to values. `end` completes the statement, such as with `order
        by`. All but the values is SQL text, which must come from code, not from users.
        """
        sql = f"select {columns} from {table} where {_condition(key)} {end}"
        rows: list[Row] = self.execute(sql, key).fetchall()
        return rows

    def insert(self, table: str, values: Fields, end: str = "") -> None:
        """Insert `values` as a row of `table`, as `execute_later` does.

        `end` completes the statement, such as `CONFLICT_SKIP_SQL`.
        """
        self.execute_later(_insert_sql(table, values, end), values)

    def insert_now(self, table: str, values: Fields, end: str) -> Rows:
        """Insert `values` as a row of `table`, and return the result."""
        return self.execute(_insert_sql(table, values, end), values)

    def update(self, table: str, key: Fields, changes: Fields) -> int:
        """Set `changes` in the rows of `table` that match `key`; return their number.

        Both map columns to values. Names of tables and columns must come from code.
        """
        # A column may be in both `key` and `changes`, so the new values have own names.
        new_values = {f"new_{column}": value for column, value in changes.items()}
        assignments = ", ".join(f"{column} = :new_{column}" for column in changes)
        sql = f"update {table} set {assignments} where {_condition(key)}"
        return int(self.execute(sql, {**key, **new_values}).rowcount)

    def delete(self, table: str, key: Fields) -> int:
        """Delete the rows of `table` that match `key`; return their number."""
        sql = f"delete from {table} where {_condition(key)}"
        return int(self.execute(sql, key).rowcount)

    def local(self, kind: Callable[[], K], /) -> K:
        """Return the one object of type `kind` that belongs to this connection.

        The first call makes it, as `kind()`, and later calls return the same object. So
        a module can have a cache for each connection.
        """
        if kind not in self._local_objects:
            self._local_objects[kind] = kind()
        return cast("K", self._local_objects[kind])

    @cached_property
    def _local_objects(self) -> dict[Callable[[], Any], Any]:
        return {}


def _insert_sql(table: str, columns: Iterable[str], end: str) -> str:
    """Return the SQL that inserts a row with these columns."""
    names = ", ".join(columns)
    parameters = ", ".join(f":{column}" for column in columns)
    return f"insert into {table} ({names}) values ({parameters}) {end}"


def _condition(columns: Iterable[str]) -> str:
    """Return the SQL condition for `columns`, such as `kind = :kind and id = :id`."""
    return " and ".join(f"{column} = :{column}" for column in columns)


# "bulk" for a read that is declared as bulk, "long" for any other large one.
ReadLane = Literal["short", "long", "bulk"]


class Access(Protocol):
    """Access to the database of a store, in SQLite or in PostgreSQL.

    All methods raise StoreError and the errors of `work`. A database `in_doubt` is
    behind a connection, so that the answer to a commit may be lost.
    """

    in_doubt: bool

    async def read(self, scope: Scope, work: Work[T], lane: ReadLane = "short") -> T:
        """Run `work` on one consistent snapshot of the database; return its result.

        In each of the lanes "long" and "bulk", one read runs at a time; no read waits
        for one in another lane.
        """

    async def write(self, scope: Scope, work: Work[T], locks: Sequence[str]) -> T:
        """Run `work`, commit, and return its result.

        Repeats if the database asks for a retry. Meanwhile no other writer has one of
        the `locks`, which are names within `scope`. All callers must list them in the
        same order. Raises StoreInDoubt if the answer to the commit was lost.
        """

    async def clean(self) -> str:
        """Remove deleted texts from the files of the database.

        Returns what may remain there and what to do, "" if nothing does.
        """

    def close(self, seconds: float | None = None) -> None:
        """Finish running work and close every connection.

        Waits for each thread for at most `seconds`. A later call opens the database
        again.
        """


# The lock that serialises writers of the lessons of a scope until the transaction ends.
MEMORY_LOCKS = ("memory",)
# A function that computes the names of locks from the arguments of a write.
Locks = Callable[..., Sequence[str]]
# What `holds` declared for each function: the names of its locks, or the function that
# computes them.
declared_locks: dict[Callable[..., Any], Sequence[str] | Locks] = {}


def holds(
    *names: str, by: Locks | None = None
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator: it declares which locks a write holds until its commit.

    Without it, a write holds `MEMORY_LOCKS`. With it, it holds those with these
    `names`, and none with `@holds()`. With `by`, they depend on the call: `by` gets the
    arguments after `db` and `scope`, and returns the names.
    """

    def declare(work: Callable[P, T]) -> Callable[P, T]:
        declared_locks[work] = names if by is None else by
        return work

    return declare


# The reads that `bulk` decorates.
bulk_reads: set[Callable[..., Any]] = set()


def bulk(work: Callable[P, T]) -> Callable[P, T]:
    """Declare that a function may read many bytes; returned unchanged.

    Then it runs apart from short reads, which do not wait for it.
    """
    bulk_reads.add(work)
    return work


# The type of the result of each function that `resumable` decorates.
result_types: dict[Callable[..., Any], Any] = {}
# The resumable functions that count what they get: to run one again counts again.
counting_writes: set[Callable[..., Any]] = set()
# Says for the arguments of a write whether it may run again as it is.
MayRunAgain = Callable[..., bool]
may_run_again: dict[Callable[..., Any], MayRunAgain] = {}


def resumable(
    *, result: Any, counts: bool = False, again: MayRunAgain | None = None
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator: a repeated call of a write gets the result that was stored.

    A call is repeated if its answer was lost. `result` is the type of the result. A
    write without this declaration is done again then: a program that comes back to a
    loop must claim it again. A write `counts` if the same call, made once more on
    purpose, has its effect once more. `again` gets the arguments after `db` and
    `scope`; it returns True if the write may run again, without a stored result.
    """

    def declare(work: Callable[P, T]) -> Callable[P, T]:
        result_types[work] = result
        if counts:
            counting_writes.add(work)
        if again is not None:
            may_run_again[work] = again
        return work

    return declare


@cache
def result_adapter(work: Callable[..., Any]) -> Any:
    """Return pydantic's adapter for the declared result of `work`."""
    from pydantic import TypeAdapter

    return TypeAdapter(result_types[work])


@holds()
@resumable(result=None)
def check_writes(db: Db, scope: Scope) -> None:
    """Check that the database accepts writes. Raises StoreError."""
    db.check()


def from_row(kind: type[T], row: Row, **values: Any) -> T:
    """Make a record of the dataclass `kind` from the columns of `row`.

    Each field is the column of its name, unless `values` has the field. JSON text
    becomes a tuple or a mapping, and a number becomes a bool, if the field needs that.
    """
    for name, convert in _field_converters(cast("Any", kind)).items():
        if name not in values:
            values[name] = row[name] if convert is None else convert(row[name])

    return kind(**values)


@cache
def _field_converters(kind: Any) -> Mapping[str, Callable[[Any], Any] | None]:
    """Map each field of the dataclass `kind` to the function that converts its column.

    It is None if the column has the value of the field already.
    """
    hints = get_type_hints(kind)
    # Only the `tuple` of a generic type such as `tuple[str, ...]` matters.
    types = {
        field.name: get_origin(hints[field.name]) or hints[field.name]
        for field in fields(kind)
    }
    return {name: _COLUMN_CONVERTERS.get(type) for name, type in types.items()}


# The types of fields that no column has: SQLite has neither lists nor truth values.
_COLUMN_CONVERTERS: Mapping[Any, Callable[[Any], Any]] = {
    tuple: lambda text: tuple(json.loads(text)) if text != "[]" else (),
    Mapping: json.loads,
    bool: bool,
}


def token(scope: Scope) -> str:
    """Return the word that marks the rows of `scope` in the full-text index."""
    return f"s{hex_digest(scope.seed)[:24]}"


def key_of(scope: Scope) -> Document:
    """Return the parameters of a statement that select the rows of `scope`."""
    return {"tenant": scope.tenant, "project": scope.project}


def storable(text: str) -> str:
    """Return `text` without secrets and without characters that no database can store.

    Lone surrogates (invalid in UTF-8) and NUL (invalid in PostgreSQL) become question
    marks.
    """
    if not text:
        return ""
    text = redact(text).replace("\0", "?")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def storable_json(data: Fields) -> str:
    """Return `data` as JSON text without secrets."""
    return json.dumps(redact_data(dict(data)))

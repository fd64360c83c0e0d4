"""PostgreSQL: a pool of connections, each transaction on a thread of its own.

A connection is refused if row-level security would not restrict its role. A transaction that the
database rolled back, or that lost its connection before the commit, runs again. Tasks of this
process that need the same lock wait here, without a thread or a connection. Otherwise 64 writers of
one scope kept a reader of another scope waiting for 1.3 s, at two thirds of the rate.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakSet, finalize

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.numeric import Int8BinaryDumper

from heedful.errors import (
    HeedfulError,
    InvalidInput,
    RoleRefused,
    StoreError,
    StoreInDoubt,
    StoreNewer,
    StoreOlder,
    StoreUnavailable,
)
from heedful.lessons.lesson import Scope
from heedful.store import shown
from heedful.store.sqlite import TOO_LARGE
from heedful.store.store import MEMORY, Dialect, Kept, Store, Work, statements


class Turns:
    """Locks for the tasks of all event loops: one holder for each key, the others wait in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[Future[None]]] = {}

    async def take(self, keys: Sequence[Hashable]) -> None:
        """Wait for all keys, one after the other; every caller gives them in the same order."""
        for number, key in enumerate(keys):
            turn = self._enter(key)
            if turn is None:
                continue
            try:
                await asyncio.wrap_future(turn)
            except asyncio.CancelledError:
                had = not turn.cancel()  # the turn came at the same moment
                self.give(keys[: number + had])
                raise

    def give(self, keys: Sequence[Hashable]) -> None:
        """Release the keys, each to the next task that waits for it."""
        with self._lock:
            for key in keys:
                while waiting := self._waiting[key]:
                    turn = waiting.popleft()
                    if turn.set_running_or_notify_cancel():
                        turn.set_result(None)
                        break
                else:
                    del self._waiting[key]

    def _enter(self, key: Hashable) -> Future[None] | None:
        with self._lock:
            if key not in self._waiting:
                self._waiting[key] = deque()
                return None
            turn: Future[None] = Future()
            self._waiting[key].append(turn)
            return turn


class Step(NamedTuple):
    """One part of one migration, `pre` or `post`."""

    number: int
    part: str

    @property
    def file(self) -> str:
        """Return the name of its file in `sql/`."""
        return f"postgres_{self.number:04}_{self.part}.sql"


@cache
def known() -> tuple[Step, ...]:
    """Return all steps, in order."""
    folder = os.path.join(os.path.dirname(__file__), "sql")
    names = (re.fullmatch(r"postgres_(\d{4})_(pre|post)\.sql", name) for name in os.listdir(folder))
    steps = [Step(int(name[1]), name[2]) for name in names if name]
    return tuple(sorted(steps, key=lambda one: (one.number, one.part == "post")))


def newest() -> int:
    """Return the schema that this version needs: the number of its newest `pre` part."""
    return max((one.number for one in known() if one.part == "pre"), default=0)


T = TypeVar("T")
K = TypeVar("K")
STREAMED = 1_000  # rows that the server sends at a time
PREPARED_MAX = 1_000  # more than there are statements, so none is ever evicted
# Text without parameters (strings, quoted names, comments, casts), or a parameter: `:name`.
_PARTS = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|--[^\n]*|/\*.*?\*/|::|:([A-Za-z_]\w*)""", re.DOTALL)


class Row(tuple[Any, ...]):
    """A row; its columns are reached by position and by name."""

    __slots__ = ()
    _at: Mapping[str, int]

    def __getitem__(self, key: Any) -> Any:
        return tuple.__getitem__(self, self._at[key] if isinstance(key, str) else key)

    def keys(self) -> Sequence[str]:
        """Return the names of the columns."""
        return tuple(self._at)


class Rows:
    """The complete result of a statement; empty for a statement that returns no rows."""

    def __init__(self, rows: list[Any], rowcount: int) -> None:
        self._rows = rows
        self._next = 0
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Any]:
        while (row := self.fetchone()) is not None:
            yield row

    def fetchone(self) -> Any:
        """Return the next row, or None after the last."""
        found = self.fetchmany(1)
        return found[0] if found else None

    def fetchall(self) -> list[Any]:
        """Return all remaining rows."""
        return self.fetchmany(len(self._rows))

    def fetchmany(self, size: int = 1) -> list[Any]:
        """Return at most `size` of the remaining rows."""
        found = self._rows[self._next : self._next + size]
        self._next += len(found)
        return found


class Session:
    """A connection, used by one thread at a time; it raises the errors of psycopg unchanged.

    Parameters are written `:name`, as in SQLite. Every integer is sent as bigint, so that a
    statement is prepared only once. Text gets the type that its place in the statement needs.
    """

    dialect: Final[Dialect] = "postgres"

    def __init__(self, conninfo: str, url: str = "") -> None:
        self.url = url
        self._connection = psycopg.connect(
            conninfo,
            autocommit=True,  # transactions are begun explicitly, together with their tenant
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
        """Run a named statement."""
        return self.execute(statements("postgres")[name], values)

    def execute(self, sql: str, values: Mapping[str, Any] = {}) -> Rows:
        """Run SQL that has no name."""
        text, names = _sent(sql)
        cursor = self._cursor
        cursor.execute(text, [values[name] for name in names])
        return Rows(cursor.fetchall() if cursor.description else [], cursor.rowcount)

    def script(self, sql: str) -> None:
        """Run several statements without parameters, in one message to the server."""
        self._status = self._connection.execute(sql.encode(), prepare=False).statusmessage or ""

    def stream(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query in batches; a transaction can have one stream at a time."""
        with self._connection.cursor("stream", row_factory=tuple_row) as cursor:
            cursor.itersize = STREAMED
            cursor.execute(sql.encode(), binary=True)
            yield from cursor

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Add rows to a table in bulk."""
        copy = f"copy {table} ({', '.join(columns)}) from stdin"
        with self._connection.cursor().copy(copy.encode()) as copied:
            for row in rows:
                copied.write_row(row)

    def kept(self, kind: Callable[[], K]) -> K:
        """Return the object of this class that the connection keeps."""
        return self._kept.one(kind)

    def within(self, begin: str, work: Work[T], end: str) -> T:
        """Run `work` between `begin` and `end` (commit or rollback) and return its result.

        Raises InDoubt if the connection was lost during the commit.
        """
        try:
            self.script(begin)
            value = work(self)
            self.end(end)
        except psycopg.errors.FeatureNotSupported:
            self.close()  # its prepared statements are older than the change of the schema
            raise
        finally:
            self.undo()
        return value

    def end(self, end: str) -> None:
        """Commit or roll back. Raises InDoubt if it is unknown whether the commit happened."""
        try:
            self.script(end)
        except psycopg.OperationalError as error:
            if end == "commit" and self.lost:
                raise InDoubt(str(error)) from error
            raise
        if self._status.lower() != end:
            raise StoreError(
                "a statement failed and the transaction continued; nothing was written"
            )

    def undo(self) -> None:
        """End an open transaction; close the connection if that fails."""
        try:
            if self._connection.info.transaction_status != TransactionStatus.IDLE:
                self._connection.execute("rollback")
        except psycopg.Error:
            self.close()

    @property
    def lost(self) -> bool:
        """Return True if the connection can no longer be used."""
        return self._connection.closed

    def close(self) -> None:
        """Close the connection; closing it twice does no harm."""
        self._connection.close()


class InDoubt(psycopg.OperationalError):
    """The connection was lost during a commit."""


@cache
def _sent(sql: str) -> tuple[bytes, tuple[str, ...]]:
    text, names = numbered(sql)
    return text.encode(), names


def numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return SQL with `$1`, `$2` … for its named parameters, and their names in that order.

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


# Connections of one process: two services and three workers stay below a server's usual 100.
POOL_SIZE = 12
# The schema of heedful's tables; the types of pgvector are in the second one.
SCHEMA = "heedful"
# The time-outs limit the cost of a hanging server. The URL's own `options` come later and win.
OPTIONS = (
    f"-c search_path={SCHEMA},public -c statement_timeout=30s -c lock_timeout=10s "
    "-c idle_in_transaction_session_timeout=60s"
)
# For a slow transaction, which may also wait for work elsewhere.
PATIENT = "set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0"
# libpq's parameters unless the URL has its own: in seconds, the last one in milliseconds.
DEFAULTS = {
    "fallback_application_name": "heedful",
    "connect_timeout": "5",
    "keepalives_idle": "30",
    "tcp_user_timeout": "20000",
}
_ALLOWED = "postgresql://user@host:5432/database"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a database; `conninfo` contains the password, `shown` does not."""

    conninfo: str
    shown: str
    size: int

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"


def addressed(url: str) -> Address:
    """Parse a URL; `pool_size` (1..500) is a parameter of heedful. Raises InvalidInput."""
    place, _, query = url.partition("?")
    parts = [one.partition("=") for one in query.split("&") if one]
    sizes = [value for name, _, value in parts if name == "pool_size"]
    # As in `options=-c statement_timeout=60s`; libpq wants the second one escaped.
    kept = [f"{n}{is_}{value.replace('=', '%3D')}" for n, is_, value in parts if n != "pool_size"]
    rest = "&".join(kept)
    parameters = _parse(f"{place}?{rest}" if rest else place)
    options = " ".join(filter(None, (OPTIONS, str(parameters.get("options") or ""))))
    conninfo = make_conninfo("", **{**DEFAULTS, **parameters, "options": options})
    return Address(conninfo, shown(url), _size(sizes[-1]) if sizes else POOL_SIZE)


def _parse(url: str) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(url))
    except psycopg.Error as error:
        what = re.split('[:"]', str(error))[0]  # what follows may be a part of the password
    raise InvalidInput("store", shown(url), f"like {_ALLOWED} ({what.strip()})")


def _size(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 500):
        raise InvalidInput("pool_size", text, "a whole number from 1 to 500")
    return int(text)


# The errors that `mishap` translates; errors of the work itself pass unchanged.
MISHAPS = (psycopg.Error, UnicodeEncodeError, OverflowError)
# What a user can do about an error, by its class or the first letters of its SQLSTATE
# (postgresql.org/docs/current/errcodes-appendix.html).
_WAITS: dict[type[psycopg.Error], str] = {
    errors.LockNotAvailable: "another transaction holds what this one needs; try again",
    errors.QueryCanceled: "it took longer than statement_timeout; try again, or raise it in the "
    "URL: ?options=-c%20statement_timeout=60s",
    errors.ReadOnlySqlTransaction: "this server is a standby; name the primary in the URL",
    errors.DiskFull: "the server's disk is full; make room and run again, nothing was lost",
}
_GONE = "the server does not answer any more; see that it runs, then try again"
_AWAY = (
    "see that the server runs, has room (max_connections), and that host, database, user and "
    "password in the URL are right; then try again"
)


class Mishap(NamedTuple):
    """A database error as one of heedful, and whether the same work may run again at once."""

    told: HeedfulError
    again: bool


def mishap(error: psycopg.Error | UnicodeEncodeError | OverflowError, lost: bool = False) -> Mishap:
    """Translate a database error; `lost` is True if the connection is gone."""
    match error:
        case UnicodeEncodeError():
            allowed = "text that UTF-8 can hold, without a lone surrogate"
            told = Mishap(InvalidInput("text", error.object, allowed), again=False)
        case OverflowError():
            told = Mishap(InvalidInput("number", *TOO_LARGE), again=False)
        case InDoubt():
            told = Mishap(StoreInDoubt(_line(error)), again=False)
        case errors.SerializationFailure() | errors.DeadlockDetected():
            why = "other transactions keep changing the same rows; try again later"
            told = Mishap(StoreUnavailable(f"{_line(error)}: {why}"), again=True)
        case _:
            told = Mishap(_translate(error, lost), again=lost)
    told.told.__cause__ = error
    return told


def _translate(error: psycopg.Error, lost: bool) -> HeedfulError:
    line = _line(error)
    for kind, remedy in _WAITS.items():
        if isinstance(error, kind):
            return StoreUnavailable(f"{line}: {remedy}")
    if isinstance(error, errors.InsufficientPrivilege):
        return RoleRefused(f"{line}: run heedful migrate --role with the name of this role")
    if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn | errors.UndefinedFunction):
        return StoreOlder(f"{line}: run heedful migrate as the role that owns the tables")
    if isinstance(error, psycopg.DataError) and "NUL" in line:
        allowed = "text without the character NUL, which PostgreSQL cannot hold"
        return InvalidInput("text", "\0", allowed)
    if lost or isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreUnavailable(f"{line}: {_GONE if lost else _AWAY}")
    return StoreError(line)


def _line(error: Exception) -> str:
    """Return the first line of a message; the lines after it quote the statement."""
    return (str(error) or type(error).__name__).splitlines()[0]


SERVER = 160_000
_WHO = f"""
select current_user::text as role, current_database()::text as database,
  current_setting('server_version_num')::int as server,
  r.rolsuper as super, r.rolbypassrls as bypass, count(c.oid) > 0 as made,
  coalesce(bool_or(pg_has_role(c.relowner, 'member')), false) as owner
from pg_roles r left join (
  pg_class c join pg_namespace n on n.oid = c.relnamespace and n.nspname = '{SCHEMA}'
) on c.relkind = 'r'
where r.rolname = current_user group by r.rolsuper, r.rolbypassrls
"""
_VERSIONS = f"select part, max(number)::int from {SCHEMA}.schema_version group by part"
_MIGRATE = "run heedful migrate as the role that owns its tables"


def admit(session: Session) -> None:
    """Check a new connection. Raises RoleRefused, StoreOlder, StoreNewer, StoreUnavailable."""
    found = who(session)
    if found["server"] < SERVER:
        raise StoreUnavailable(
            f"this server is PostgreSQL {found['server'] // 10_000}; heedful needs 16 or newer"
        )
    of_role(found)
    of_schema(session, found)


def who(session: Session) -> Row:
    """Return the role, its rights and the schema, as the server reports them."""
    found: Row = session.execute(_WHO).fetchone()
    return found


def of_role(found: Row) -> str:
    """Return the role. Raises RoleRefused if row-level security would not restrict it."""
    for flag, what in (
        ("super", "is a superuser"),
        ("bypass", "has BYPASSRLS"),
        ("owner", "owns heedful's tables"),
    ):
        if found[flag]:
            raise RoleRefused(
                f"role {found['role']} {what}, so row-level security would not hold it; "
                "heedful migrate --role heedful makes a role for the service: name it in the URL"
            )
    return str(found["role"])


def of_schema(session: Session, found: Row) -> int:
    """Return the number of the schema. Raises StoreOlder, StoreNewer."""
    where = f"database {found['database']}"
    if not found["made"]:
        raise StoreOlder(f"{where} has no schema; {_MIGRATE}")
    parts = {row[0]: row[1] for row in session.execute(_VERSIONS)}
    has = int(parts.get("pre", 0))
    if parts.get("post", 0) > newest():
        raise StoreNewer(
            f"{where} has schema {has}, this heedful knows {newest()}; upgrade heedful to open it"
        )
    if has < newest():
        raise StoreOlder(f"{where} has schema {has}, this heedful needs {newest()}; {_MIGRATE}")
    return has


# Seconds before work that the database rolled back runs again; a random share of each.
PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
# Retries after a lost connection: a restarted server has lost all connections of the pool.
RECONNECTIONS: Final = 2
NAME: Final = "heedful-postgres"  # of the threads
READS: Final = "begin isolation level repeatable read read only"
_open: dict[str, Store] = {}
_guard = threading.Lock()


def in_database(url: str) -> Store:
    """Return a store in the database at this URL, with its own connections. Raises InvalidInput."""
    address = addressed(url)
    return Store(address.shown, Database(address))


def shared(url: str) -> Store:
    """Return the store that this process shares for this URL. Raises InvalidInput."""
    with _guard:
        store = _open.get(url) or in_database(url)
        _open[url] = store
        return store


class Database:
    """Access to one database. A transaction that has begun runs to its end, awaited or not."""

    def __init__(self, address: Address) -> None:
        self._pool = _Pool(address)
        # The pool does not refer to the store, so that an unused store is closed.
        finalize(self, self._pool.close)

    async def read(self, scope: Scope, work: Work[T]) -> T:
        """Run `work` on one consistent state of the database and return its result."""
        return await self._pool.run(partial(self._pool.transact, _begin(READS, scope), work))

    async def write(self, scope: Scope, work: Work[T], holds: Sequence[str] = MEMORY) -> T:
        """Run `work`, commit and return its result; run it again if the database asks for a retry.

        Raises StoreInDoubt if the server was lost before it acknowledged the commit. Then the work
        is not run again. The caller repeats the call, and finds what was written under its own
        number, id or idempotency key.
        """
        locks = [_key(scope, name) for name in dict.fromkeys(holds)]
        job = partial(self._pool.transact, _begin("begin", scope, locks), work, "commit")
        return await self._pool.run(job, locks)

    async def apart(self, scope: Scope, work: Work[T]) -> T:
        """Run `work` as `read` does, on its own connection and thread, without a time-out."""
        begin = f"{_begin(READS, scope)}; {PATIENT}"
        return await asyncio.to_thread(self._pool.alone, begin, work)

    async def close(self) -> None:
        """Finish running work and close every connection. A later call opens the database again."""
        self._pool.close()


class _Pool:
    """At most `size` threads and as many connections; the one used last is used first.

    psycopg_pool connects on threads of its own and retries until a time-out. There a refused role
    or an older schema would appear as a time-out, not as an error that says what to do.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self.forked()
        _pools.add(self)

    def forked(self) -> None:
        """Reset a child process: it has no threads, and the connections belong to its parent."""
        self._lock = threading.Lock()
        self._idle: list[Session] = []
        self._threads: ThreadPoolExecutor | None = None
        self._turns = Turns()

    async def run(self, job: Callable[[], T], locks: Sequence[int] = ()) -> T:
        """Run a job on a thread and return its result; no other job has its `locks` meanwhile."""
        turns = self._turns
        await turns.take(locks)
        try:
            answer = self._submit(job)
        except RuntimeError:  # the interpreter ends
            turns.give(locks)
            raise
        answer.add_done_callback(lambda _: turns.give(locks))
        return await asyncio.wrap_future(answer)

    def _submit(self, job: Callable[[], T]) -> Future[T]:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._address.size, NAME)
            return self._threads.submit(job)

    def transact(self, begin: str, work: Work[T], end: str = "rollback") -> T:
        """Run `work` in a transaction and return its result; retry as the database asks."""
        lost = 0
        for pause in (*PAUSES, None):
            session: Session | None = None
            try:
                session = self._take()
                value = session.within(begin, work, end)
            except MISHAPS as error:
                gone = session is not None and session.lost
                what = mishap(error, gone)
                lost += gone
                if pause is None or lost > RECONNECTIONS or not what.again:
                    raise what.told from error
            else:
                return value
            finally:
                if session is not None:
                    self._give(session)
            time.sleep(random.uniform(0, pause))
        raise AssertionError  # the last round returns or raises

    def alone(self, begin: str, work: Work[T]) -> T:
        """Run `work` once, as `transact` does, on a connection that is closed afterwards."""
        try:
            with closing(self._connect()) as session:
                return session.within(begin, work, "rollback")
        except MISHAPS as error:
            raise mishap(error).told from error

    def close(self) -> None:
        """Finish the queued jobs and close the connections; closing twice does no harm."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:  # a store may be forgotten on a thread of its own
            threads.shutdown(wait=threading.current_thread().name.rpartition("_")[0] != NAME)
        self._drop()

    def _take(self) -> Session:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _connect(self) -> Session:
        session = Session(self._address.conninfo, self._address.shown)
        with ExitStack() as refused:
            refused.callback(session.close)
            admit(session)
            refused.pop_all()
        return session

    def _give(self, session: Session) -> None:
        """Return a connection to the pool; if it was lost, close all idle connections too."""
        if session.lost:
            self._drop()
        with self._lock:
            if self._threads is not None and not session.lost:
                self._idle.append(session)
                return
        session.close()

    def _drop(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()


def _begin(begin: str, scope: Scope, locks: Sequence[int] = ()) -> str:
    """Begin a transaction, set its tenant and take its locks, in one message to the server."""
    taken = "".join(f", pg_advisory_xact_lock({lock})" for lock in locks)
    tenant = sql.quote(scope.tenant)
    return f"{begin}; select set_config('heedful.tenant', {tenant}, true){taken}"


def _key(scope: Scope, name: str) -> int:
    """Return the number of a lock. Two names with the same number only wait for each other."""
    text = f"{scope.tenant}\0{scope.project}\0{name}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), signed=True)


_pools: WeakSet[_Pool] = WeakSet()
# Connections of a parent process: to close one here would end it there.
_of_parent: list[object] = []


def _forked() -> None:
    for pool in list(_pools):
        _of_parent.append(pool.__dict__.copy())
        pool.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

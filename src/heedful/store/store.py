"""A store: the database of loops and lessons, and the transactions that read and change
it.

Each module of this package has plain functions `work(db, scope, ...)`, which run named
SQL statements. The SQL file of a module has the same name, in `sql/`. Statements that
differ between the dialects are in `sqlite.sql` and `postgres.sql`. `Store.read` and
`Store.write` run such a function in a transaction. A function that changes rows holds
the memory lock of its scope, unless the decorator `holds` names other locks.

Within `Effects`, each write of a call also stores its audit entry and its result, in
one transaction. A call that is repeated with its idempotency key does not write again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields
from functools import cache, partial
from queue import SimpleQueue
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    get_origin,
    get_type_hints,
)
from weakref import WeakKeyDictionary, WeakSet

from heedful.errors import LeaseLost
from heedful.lessons.lesson import Scope
from heedful.redact import redact

T = TypeVar("T")
K = TypeVar("K")
P = ParamSpec("P")
Function = Callable[Concatenate["Db", Scope, P], T]
Dialect = Literal["sqlite", "postgres"]
# The lock that serialises writers of the lessons of a scope until the transaction ends.
MEMORY_LOCKS = ("memory",)
Locks = Callable[..., Sequence[str]]
_locks: dict[Callable[..., Any], Locks] = {}
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
        """Run a SQL statement with the values of its named parameters; return the
        result.
        """
        raise NotImplementedError

    def check(self) -> None:
        """Check that the database accepts writes. Raises StoreUnavailable,
        StoreCorrupt.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection; closing it twice does no harm."""
        raise NotImplementedError

    def run(self, name: str, values: Mapping[str, Any] = {}, /) -> Rows:
        """Run the statement `name` of `sql/` and return the result."""
        return self.execute(statements(self.dialect)[name], values)

    def first(self, name: str, values: Mapping[str, Any] = {}) -> Row | None:
        """Run the statement `name`, fetch all rows, and return the first row, or
        None.
        """
        rows = self.run(name, values).fetchall()
        return rows[0] if rows else None

    def all(self, name: str, scope: Scope, /, **values: Any) -> list[Row]:
        """Run the statement `name` on the rows of `scope` and return all resulting
        rows.
        """
        rows: list[Row] = self.run(name, {**key_of(scope), **values}).fetchall()
        return rows

    def one(self, name: str, scope: Scope, /, **values: Any) -> Row | None:
        """Run the statement `name` on the rows of `scope`; return the first row, or
        None.
        """
        return self.first(name, {**key_of(scope), **values})

    def select(
        self, columns: str, table: str, key: Mapping[str, Any], end: str = ""
    ) -> list[Row]:
        """Return `columns` of the rows of `table` that match `key`; `end` may add
        `order by`.
        """
        sql = f"select {columns} from {table} where {_is(key)} {end}"
        rows: list[Row] = self.execute(sql, key).fetchall()
        return rows

    def insert(self, table: str, values: Mapping[str, Any], end: str = "") -> Rows:
        """Insert `values` as a row of `table`; `end` completes the statement, such as
        `CONFLICT_SKIP_SQL`.
        """
        marks = ", ".join(f":{name}" for name in values)
        sql = f"insert into {table} ({', '.join(values)}) values ({marks}) {end}"
        return self.execute(sql, values)

    def update(
        self, table: str, key: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> int:
        """Set the columns in `changes` in the rows that match `key`; return the number
        of rows.
        """
        changed = ", ".join(f"{name} = :new_{name}" for name in changes)
        new = {f"new_{name}": value for name, value in changes.items()}
        sql = f"update {table} set {changed} where {_is(key)}"
        return int(self.execute(sql, {**key, **new}).rowcount)

    def delete(self, table: str, key: Mapping[str, Any]) -> int:
        """Delete the rows of `table` that match `key`; return the number of rows."""
        return int(self.execute(f"delete from {table} where {_is(key)}", key).rowcount)

    def local(self, kind: Callable[[], K], /) -> K:
        """Return the connection's own instance of `kind`, such as a cache, made at
        first use.
        """
        objects: dict[Any, K] = self.__dict__.setdefault("_local", {})
        if kind not in objects:
            objects[kind] = kind()
        return objects[kind]


def _is(names: Iterable[str]) -> str:
    return " and ".join(f"{name} = :{name}" for name in names)


Work = Callable[[Db], T]


def holds(
    *names: str, by: Locks | None = None
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function that writes: it locks `names`, instead of `MEMORY_LOCKS`, until the
    commit.

    Alternatively, `by` computes the names from the function's arguments after `db` and
    `scope`.
    """

    def decorate(work: Callable[P, T]) -> Callable[P, T]:
        _locks[work] = by or (lambda *_, **__: names)
        return work

    return decorate


class Access(Protocol):
    """Access to the database of a store. All methods raise StoreError and the errors of
    `work`.
    """

    async def read(self, scope: Scope, work: Work[T]) -> T:
        """Run `work` on one consistent snapshot of the database and return its
        result.
        """
        ...

    async def write(
        self, scope: Scope, work: Work[T], holds: Sequence[str] = MEMORY_LOCKS
    ) -> T:
        """Run `work`, commit, and return its result; repeat if the database asks for a
        retry.

        Meanwhile no other writer has a lock in `holds`. The locks are names within
        `scope`, and all callers must list them in the same order.
        """
        ...

    async def close(self) -> None:
        """Finish running work and close every connection. A later call opens the
        database again.
        """
        ...


C = TypeVar("C", bound=Db)
STORE_THREAD_NAME = "heedful-store"  # the name of every thread
_every: WeakSet[Threads[Any]] = WeakSet()
# The parent's connections in a forked child. Closing them here would end them in the
# parent.
_of_parent: list[object] = []


_own = threading.local()  # `results`: for each event loop, the jobs that have a result


class WorkItem:
    """A function `work` that waits for a free thread, and the `future` of its result.

    One thread sets the results. An event loop is woken once for all that it has not yet
    seen.
    """

    __slots__ = ("done", "error", "future", "value", "work")

    def __init__(self, work: Callable[..., Any]) -> None:
        self.work: Callable[..., Any] = work
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.done: bool = False
        self.value: Any = None
        self.error: BaseException | None = None

    def end(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the result of the job: the `error` if there is one, else the `value`."""
        self.done = True
        self.value = value
        self.error = error
        if (loop := self.future.get_loop()) is asyncio._get_running_loop():
            _tell(deque((self,)))
            return
        results = _own.__dict__.setdefault("results", _Results())
        ended = results.setdefault(loop, deque())
        ended.append(self)
        if len(ended) == 1:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(_tell, ended)


_Results = WeakKeyDictionary[asyncio.AbstractEventLoop, deque[WorkItem]]


def _tell(ended: deque[WorkItem]) -> None:
    while ended:
        job = ended.popleft()
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.value)


class JobGuard:
    """A `with` block; an error in the block becomes the result of all jobs without a
    result.
    """

    __slots__ = ("_jobs", "_translate")

    def __init__(
        self,
        jobs: Sequence[WorkItem],
        translate: Callable[[BaseException], BaseException] | None = None,
    ) -> None:
        self._jobs = jobs
        self._translate = translate

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if error is not None:
            error = self._translate(error) if self._translate else error
            for job in self._jobs:
                if not job.done:
                    job.end(error=error)
        return True


class Threads(Generic[C]):
    """At most `size` threads, each with its own connection; they end with `close`.

    A new job starts a thread if none is idle. A thread takes up to `group` waiting jobs
    at a time. A forked child process starts new threads with new connections.
    """

    # Seconds to wait for running work when the interpreter ends or an unused store is
    # freed.
    GRACE = 0.5

    def __init__(self, connect: Callable[..., C], size: int, group: int = 1) -> None:
        self._connect = connect
        self._size = size
        self._group = group
        self.forked()
        _every.add(self)

    def forked(self) -> None:
        """Forget all threads, connections and jobs; a forked child must not use its
        parent's.
        """
        self._lock = (
            threading.RLock()
        )  # its holder may free an unused store, which closes it
        self._own = threading.local()
        self._jobs: SimpleQueue[WorkItem | None] = SimpleQueue()
        self._idle: list[None] = []  # an item for each thread that waits for a job
        self._threads: list[threading.Thread] = []

    def submit(self, work: Callable[..., Any] | WorkItem) -> asyncio.Future[Any]:
        """Queue `work` for a thread; return its future. Raises RuntimeError at
        interpreter exit.
        """
        job = work if isinstance(work, WorkItem) else WorkItem(work)
        with self._lock:
            if self._idle:
                self._idle.pop()
            elif len(self._threads) < self._size:
                # A daemon, so that Ctrl-C does not wait for a database that another
                # process holds.
                main = partial(self._main, self._jobs, self._idle)
                thread = threading.Thread(
                    target=main, name=STORE_THREAD_NAME, daemon=True
                )
                thread.start()
                self._threads.append(thread)
            self._jobs.put(job)
        return job.future

    def perform(self, jobs: Sequence[WorkItem]) -> None:
        """Run the jobs on this thread and set their results. Raises the first error of
        a job.
        """
        for job in jobs:
            job.end(job.work())

    def connection(self) -> C:
        """Return the connection of the current thread; open a connection if
        necessary.
        """
        found: C | None = getattr(self._own, "connection", None)
        if found is None or found.lost:
            found = self._own.connection = self._connect()
        return found

    def close(self, seconds: float | None = None) -> None:
        """Finish the jobs and close the connections; closing twice does no harm.

        Waits until each thread has ended, at most `seconds` per thread.
        """
        with self._lock:
            threads = self._threads
            self._threads = []
            jobs = self._jobs
            self._jobs = SimpleQueue()
            self._idle = []
        for _ in threads:
            jobs.put(None)
        for thread in threads:
            if (
                thread is not threading.current_thread()
            ):  # this thread may free an unused store
                thread.join(seconds)

    def _main(self, waiting: SimpleQueue[WorkItem | None], idle: list[None]) -> None:
        job: WorkItem | None
        while (job := waiting.get()) is not None:
            jobs = [job]
            while len(jobs) < self._group and not waiting.empty():
                if (job := waiting.get()) is None:
                    waiting.put(None)
                    break
                jobs.append(job)
            with JobGuard(jobs):
                self.perform([job for job in jobs if not job.future.cancelled()])
            if len(idle) < self._size:
                idle.append(None)
            del job, jobs  # a waiting thread keeps no object of a caller alive
        if (connection := getattr(self._own, "connection", None)) is not None:
            connection.close()


def _forked() -> None:
    for threads in list(_every):
        _of_parent.append(threads.__dict__.copy())
        threads.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


SQL_FOLDER = os.path.join(os.path.dirname(__file__), "sql")
SQL_ROOMS = (
    "loops",
    "lessons",
    "exposures",
    "patterns",
    "search",
    "dreams",
    "episodes",
    "keys",
)


@cache
def statements(dialect: Dialect) -> dict[str, str]:
    """Return a mapping from statement names to SQL for `dialect`; read the files only
    once.
    """
    text = "\n".join(read_sql(f"{name}.sql") for name in (*SQL_ROOMS, dialect))
    text = re.sub(rf"/\*{dialect} (.*?) \*/", r"\1", text)  # SQL for this dialect only
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return {
        name: sql.strip() for name, sql in zip(parts[1::2], parts[2::2], strict=True)
    }


def read_sql(name: str) -> str:
    """Return the text of the file `name` in `sql/`; an include line becomes the
    included file.
    """
    # Importing pathlib or importlib.resources would slow the start.
    with open(os.path.join(SQL_FOLDER, name), encoding="utf-8") as file:
        text = file.read()
    if found := re.search(r"^-- include (\S+)$", text, re.MULTILINE):
        tables = read_sql(found[1])
        tables = in_postgres(tables) if name.startswith("postgres") else tables
        text = text[: found.start()] + tables + text[found.end() :]
    return text


TENANT_COLUMN_SQL = (
    "tenant text collate \"C\" not null default current_setting('heedful.tenant')"
)
POSTGRES_COLUMN_TYPES = {
    "integer primary key autoincrement": "bigint generated by default as identity primary key",
    "integer primary key": "bigint generated by default as identity primary key",
    "integer": "bigint",
    "real": "double precision",
    "text": 'text collate "C"',
}


def in_postgres(tables: str) -> str:
    """Translate the SQL of tables and triggers from SQLite to PostgreSQL."""
    text = tables.replace(") without rowid;", ");")
    column = re.compile(
        rf"^(  \w+) ({'|'.join(POSTGRES_COLUMN_TYPES)})\b", re.MULTILINE
    )
    text = column.sub(
        lambda found: f"{found[1]} {POSTGRES_COLUMN_TYPES[found[2]]}", text
    )
    text = text.replace('tenant text collate "C" not null', TENANT_COLUMN_SQL)
    # Row-level security needs a tenant in every row, also in tables without this column
    # in SQLite.
    without = re.compile(
        r"^(create table \w+ \(\n)(?!(?:  .*\n)*?  tenant )", re.MULTILINE
    )
    text = without.sub(rf"\1  {TENANT_COLUMN_SQL},\n", text)
    return TRIGGER_PATTERN.sub(_trigger, text)


TRIGGER_PATTERN = re.compile(
    r"^create trigger (\w+) (after [^;]*? on \w+)\s+(?:when ([^;]*?) )?begin\n(.*?)^end;",
    re.MULTILINE | re.DOTALL,
)


def _trigger(found: re.Match[str]) -> str:
    name, event, condition, body = found.groups()
    when = f" when ({condition})" if condition else ""
    return (
        f"create function {name}() returns trigger language plpgsql as $$ begin\n{body}"
        f"  return null;\nend $$;\n"
        f"create trigger {name} {event} for each row{when} execute function {name}();"
    )


def from_row(kind: type[T], row: Row, **values: Any) -> T:
    """Make a record of the class `kind` from the columns of `row`; `values` overrides
    columns.

    JSON text becomes a tuple or a mapping, and a number becomes a bool, if the field
    needs that.
    """
    for name, read in _readers(cast("Any", kind)):
        if name not in values:
            values[name] = read(row[name]) if read is not None else row[name]
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
    """Return `text` without secrets and without characters that a database cannot
    store.

    Lone surrogates (invalid in UTF-8) and NUL (invalid in PostgreSQL) become question
    marks.
    """
    text = redact(text).replace("\0", "?")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def blob(vector: Sequence[float]) -> bytes:
    """Return the vector as little-endian 32-bit floats."""
    import numpy as np

    return np.asarray(vector, dtype="<f4").tobytes()


def placed(db: Db, space: str, data: bytes) -> dict[str, Any]:
    """Return the columns of a vector. The column `near` is for pgvector; it is None on
    SQLite.
    """
    return {
        "space": space,
        "data": data,
        "near": short(data) if db.dialect == "postgres" else None,
    }


def short(data: bytes) -> str:
    """Return a vector as text for pgvector's halfvec, which stores 11 bits of each
    number.
    """
    import numpy as np

    return (
        f"[{','.join([f'{one:.4g}' for one in np.frombuffer(data, '<f4').tolist()])}]"
    )


Extra = Callable[[Db], None]
Commit = Callable[[Work[T]], Awaitable[T]]


class Effects:
    """The writes (effects) of one call, in order; `with Effects():` begins the call.

    Every write is an effect, except one that returns a StoredLoop: a loop may be
    claimed again. `record` is called to store the number and the result of an effect.
    `known` holds the effects that an earlier run of the same call stored. They are not
    written again: the call continues with their stored results. Rows that the call
    writes have the key of `actor` as a source.
    """

    def __init__(
        self,
        record: Callable[[Db, int, Mapping[str, Any]], None] | None = None,
        known: Sequence[Mapping[str, Any]] = (),
        actor: Actor = LOCAL_ACTOR,
    ) -> None:
        self._actor = actor
        self._record = record
        self._known = list(known)
        self._next = len(known)
        self._extras: list[Extra] = []
        self.task: asyncio.Task[Any] | None = None

    def __enter__(self) -> Effects:
        self.task = asyncio.current_task()
        self._token = _effects.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _effects.reset(self._token)

    async def write(self, of: Callable[..., T], work: Work[T], commit: Commit[T]) -> T:
        """Return the stored result of the function `of`; the first time, run and commit
        `work`.
        """

        def acting(db: Db) -> T:
            db.actor = self._actor
            try:
                return work(db)
            finally:
                db.actor = LOCAL_ACTOR

        if "StoredLoop" in of.__annotations__.get("return", ""):
            return await commit(acting)
        name = f"{of.__module__.rpartition('.')[2]}.{of.__qualname__}"
        if self._known and self._known[0]["name"] == name:
            self._extras.clear()
            known: T = _adapter(of).validate_python(self._known.pop(0)["value"])
            return known
        n = self._next
        extras = tuple(self._extras)
        self._next += 1

        def whole(db: Db) -> T:
            value = acting(db)
            for extra in extras:
                extra(db)
            if self._record is not None:
                plain = _adapter(of).dump_python(value, mode="json")
                self._record(db, n, {"name": name, "value": plain})
            return value

        value = await commit(whole)
        self._extras = [extra for extra in self._extras if extra not in extras]
        return value


_effects: ContextVar[Effects | None] = ContextVar("heedful_effects", default=None)


def also(extra: Extra) -> None:
    """Run `extra` in the same transaction as the next write of the current call."""
    current = _effects.get()
    if current is None:
        raise LookupError("no call runs here; use `also` within `with Effects()`")
    current._extras.append(extra)


@cache
def _adapter(work: Callable[..., Any]) -> Any:
    from pydantic import TypeAdapter

    from heedful.lessons import consolidate  # modules of works import these late
    from heedful.store import records

    returned = {"__annotations__": {"value": work.__annotations__.get("return", Any)}}
    names = {**vars(consolidate), **vars(records), **work.__globals__}
    return TypeAdapter(get_type_hints(type("Work", (), returned), names)["value"])


ANSWER_LIFE_SECONDS = 86_400.0  # seconds
ANSWER_EFFECT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentCall:
    """A call that may be repeated: its caller, digest `once` of its idempotency key,
    request.
    """

    tenant: str
    caller: str
    once: str
    digest: str


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """The stored effects and the stored answer of a call; `digest` is "" if nothing is
    stored.
    """

    digest: str = ""
    effects: tuple[Mapping[str, Any], ...] = ()
    answer: Mapping[str, Any] | None = None


def read_call(db: Db, scope: Scope, call: IdempotentCall) -> RecordedCall:
    """Return the effects and the answer that an earlier run of `call` stored."""
    rows = db.run(
        "read_answer", {**asdict(call), "after": time.time() - ANSWER_LIFE_SECONDS}
    ).fetchall()
    if not rows:
        return RecordedCall()
    plain = {int(row["n"]): json.loads(row["record"]) for row in rows}
    answer = plain.pop(ANSWER_EFFECT, None)
    return RecordedCall(rows[0]["digest"], tuple(plain.values()), answer)


@holds("answers")
def keep_answer(
    db: Db, scope: Scope, call: IdempotentCall, answer: Mapping[str, Any]
) -> None:
    """Store the answer of `call`, and delete answers that are older than a day."""
    db.run(
        "forget_answers",
        {"tenant": call.tenant, "before": time.time() - ANSWER_LIFE_SECONDS},
    )
    write_effect(db, call, ANSWER_EFFECT, answer)


def write_effect(
    db: Db, call: IdempotentCall, n: int, record: Mapping[str, Any]
) -> None:
    """Store `record` as effect number `n` of `call`.

    Raises LeaseLost if another process, which answers the same call, has stored this
    effect.
    """
    values = {**asdict(call), "n": n, "record": json.dumps(record), "now": time.time()}
    if not db.run(
        "insert_answer", {**values, "before": values["now"] - ANSWER_LIFE_SECONDS}
    ).fetchall():
        raise LeaseLost("the same call is being answered right now; try again")


@holds()
def check_writes(db: Db, scope: Scope) -> None:
    """Check that the database accepts writes. Raises StoreError."""
    db.check()


class Store:
    """A store of loops and lessons; `heedful.open_store` opens one.

    The modules of this package have plain functions that take a connection. `read` and
    `write` run such a function in a transaction: `await store.write(scope, loops.claim,
    id, head, owner)`.

    A store may be used from any event loop. All methods raise StoreError and the errors
    of the function.
    """

    def __init__(self, url: str, access: Access) -> None:
        self.url = url
        self._access = access

    async def read(
        self, scope: Scope, work: Function[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work(db, scope, ...)` on one consistent snapshot and return its
        result.
        """
        return await self._access.read(
            scope, lambda db: work(db, scope, *args, **kwargs)
        )

    async def write(
        self, scope: Scope, work: Function[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work(db, scope, ...)`, commit, and return its result.

        Repeats if the database asks for a retry. Meanwhile no other writer has the
        locks of `work`. Within an idempotent call, the same transaction stores the
        records of the call.
        """
        locks = _locks[work](*args, **kwargs) if work in _locks else MEMORY_LOCKS
        effects = _effects.get()
        job = lambda db: work(db, scope, *args, **kwargs)
        # The heartbeat of a call, and other tasks that it begins, are no part of it.
        if effects is None or effects.task is not asyncio.current_task():
            return await self._access.write(scope, job, locks)
        return await effects.write(
            work, job, partial(self._access.write, scope, holds=locks)
        )

    async def close(self) -> None:
        """Finish running work and close every connection. A later call opens the
        database again.
        """
        await self._access.close()

"""A store: the database in which loops and lessons are kept, reached through its transactions.

A room is a module of plain functions `work(db, scope, ...)` over the statements of `sql/`, which
has a file a room and one for what each dialect says its own way. `Store.read` and
`Store.write` run such a function in a transaction. A function that changes rows is decorated with
`holds` where it needs other locks than those of the memory of its scope.

Within `beside` every write of a call also writes its entry of the audit and its effect, in one
transaction. A call that comes again with its idempotency key has no effect twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from heedful.errors import LeaseLost, StoreCorrupt
from heedful.lessons.lesson import Scope
from heedful.redact import redact
from heedful.store.records import StoredLoop

T = TypeVar("T")
K = TypeVar("K")
P = ParamSpec("P")
Function = Callable[Concatenate["Db", Scope, P], T]
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


# How many numbers a halfvec of pgvector may have, and what each is below; it keeps 11 bits of them.
HALVES, LARGEST_HALF = 16_000, 65_504


def token(scope: Scope) -> str:
    """Return the scope as one word of the full-text index."""
    name = f"{scope.tenant}\0{scope.project}"
    return "s" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def key_of(scope: Scope) -> dict[str, Any]:
    """Return the values by which statements find the rows of a scope."""
    return {"tenant": scope.tenant, "project": scope.project}


def storable(text: str) -> str:
    """Text without secrets that every database can hold.

    A lone surrogate, which UTF-8 cannot hold, becomes a question mark, and so does the character 0,
    which PostgreSQL cannot hold.
    """
    text = redact(text).replace("\0", "?")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def blob(vector: Sequence[float]) -> bytes:
    """The vector as 32-bit floats, the least byte first."""
    import numpy as np

    return np.asarray(vector, dtype="<f4").tobytes()


def placed(db: Db, space: str, data: bytes) -> dict[str, Any]:
    """Return the values that the statements take for a vector; PostgreSQL's short form, too."""
    return {"space": space, "data": data, "near": short(data) if db.dialect == "postgres" else None}


def short(data: bytes) -> str | None:
    """A vector as pgvector reads it as halfvec; None where that has no room for it."""
    import numpy as np

    numbers = np.frombuffer(data, "<f4")
    fits = 0 < len(numbers) <= HALVES and bool((np.abs(numbers) < LARGEST_HALF).all())
    return f"[{','.join([f'{one:.4g}' for one in numbers.tolist()])}]" if fits else None


Extra = Callable[[Db], None]
Record = Callable[[Db, int, Mapping[str, Any]], None]
Commit = Callable[[Work[T]], Awaitable[T]]


class Beside:
    """What goes with the effects of one call, in order; made in the task that makes the call.

    Every write is an effect, except taking a loop over, which may be done again. `record` writes
    down the number of an effect and its value, as plain data. `known` are those of the same call
    when it was made before: they are not done again, the call goes on with their values.
    """

    def __init__(
        self, record: Record | None = None, known: Sequence[Mapping[str, Any]] = (), first: int = 0
    ) -> None:
        self._record = record
        self._known = list(known)
        self._next = first
        self._extras: list[Extra] = []
        self._task = asyncio.current_task()

    @property
    def made_now(self) -> bool:
        """Whether the call itself runs: not a heartbeat of it, nor work that it handed over."""
        return asyncio.current_task() is self._task

    def also(self, extra: Extra) -> None:
        """Have this done in the transaction of the next effect."""
        self._extras.append(extra)

    async def write(self, name: str, work: Work[T], commit: Commit[T]) -> T:
        """Commit the effect of that name, with what is to be done beside it."""
        if self._known and self._known[0]["name"] == name:
            self._extras.clear()
            known: T = _value(self._known.pop(0)["value"])
            return known
        n, extras = self._next, tuple(self._extras)
        self._next += 1

        def whole(db: Db) -> T:
            value = work(db)
            if not isinstance(value, StoredLoop):
                for extra in extras:
                    extra(db)
                if self._record is not None:
                    self._record(db, n, {"name": name, "value": _plain(value)})
            return value

        value = await commit(whole)
        if not isinstance(value, StoredLoop):
            self._extras = [extra for extra in self._extras if extra not in extras]
        return value


_now: ContextVar[Beside | None] = ContextVar("heedful_beside", default=None)


@contextmanager
def beside(one: Beside) -> Iterator[Beside]:
    """Within it, every effect of this call is accompanied by that."""
    token = _now.set(one)
    try:
        yield one
    finally:
        _now.reset(token)


def also(extra: Extra) -> None:
    """Have this done in the transaction of the next effect of this call; there must be a call."""
    current = _now.get()
    if current is None:
        raise LookupError("nothing is done beside an effect outside of `beside`")
    current.also(extra)


def current_call() -> Beside | None:
    """What goes with the writes of the call that is made now; None outside of a call."""
    current = _now.get()
    return current if current is not None and current.made_now else None


def _plain(value: Any) -> Any:
    """A value that a write came to, as plain data. Raises TypeError where it is no value."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case tuple():
            return {"@": "tuple", "of": [_plain(one) for one in value]}
        case list():
            return [_plain(one) for one in value]
        case Mapping():
            return {"@": "dict", "of": [[str(key), _plain(one)] for key, one in value.items()]}
        case _ if is_dataclass(value) and not isinstance(value, type):
            kind = type(value)
            held = {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
            return {"@": f"{kind.__module__}:{kind.__qualname__}", "of": held}
        case _:
            raise TypeError(f"what a write came to is no plain value: {type(value).__name__}")


def _value(plain: Any) -> Any:
    """The value that `_plain` was given."""
    match plain:
        case list():
            return [_value(one) for one in plain]
        case {"@": "tuple", "of": parts}:
            return tuple(_value(one) for one in parts)
        case {"@": "dict", "of": pairs}:
            return {key: _value(one) for key, one in pairs}
        case {"@": str(kind), "of": held}:
            return _kind(kind)(**{k: _value(v) for k, v in held.items()})
        case _:
            return plain


def _kind(name: str) -> Any:
    """Return the value class of that name. Raises StoreCorrupt if heedful has no such class."""
    module, _, inner = name.partition(":")
    kind = None
    if module.startswith("heedful."):
        with suppress(ImportError):
            kind = getattr(import_module(module), inner, None)
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise StoreCorrupt(f"what a call came to is written down as {name!r}; that is no value")
    return kind


KEPT = 86_400.0  # seconds
ANSWER = -1


@dataclass(frozen=True, slots=True)
class Call:
    """A call that may come again: whose it is, its idempotency key, a digest of what it asks."""

    tenant: str
    caller: str
    once: str
    digest: str


@dataclass(frozen=True, slots=True)
class Before:
    """What is known of a call that was made before: its effects, in order, and its answer.

    `digest` is "" where it is new. `next` is the number of its next effect.
    """

    digest: str = ""
    effects: tuple[Mapping[str, Any], ...] = ()
    answer: Mapping[str, Any] | None = None
    next: int = 0


def read_call(db: Db, scope: Scope, call: Call) -> Before:
    """What is known of the call."""
    rows = db.named("read_answer", {**asdict(call), "after": time.time() - KEPT}).fetchall()
    if not rows:
        return Before()
    plain = {int(row["n"]): json.loads(row["record"]) for row in rows}
    answer = plain.pop(ANSWER, None)
    return Before(rows[0]["digest"], tuple(plain.values()), answer, max(plain, default=-1) + 1)


@holds("answers")
def keep_answer(db: Db, scope: Scope, call: Call, answer: Mapping[str, Any]) -> None:
    """Keep what the call was answered, and forget what is older than a day."""
    db.named("forget_answers", {"tenant": call.tenant, "before": time.time() - KEPT})
    write_effect(db, call, ANSWER, answer)


def write_effect(db: Db, call: Call, n: int, record: Mapping[str, Any]) -> None:
    """Write down an effect of the call, in its transaction.

    Raises LeaseLost where the same call is being answered elsewhere, which then did it already.
    """
    values = {**asdict(call), "n": n, "record": json.dumps(record), "now": time.time()}
    if not db.named("insert_answer", {**values, "before": values["now"] - KEPT}).fetchall():
        raise LeaseLost("the same call is being answered just now; ask again")


class Store:
    """A store of loops and lessons; `heedful.open_store` opens one.

    The rooms beside this module are plain functions of a connection. Each call below runs one of
    them in a transaction of its own:

        await store.write(scope, loops.claim, id, head, owner)

    May be used from any event loop. Raises StoreError, and what the function raises.
    """

    def __init__(self, url: str, access: Access) -> None:
        self.url = url
        self._access = access

    async def read(
        self, scope: Scope, work: Function[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return `work(db, scope, ...)`, which sees one state of the database."""
        return await self._access.read(scope, lambda db: work(db, scope, *args, **kwargs))

    async def write(
        self, scope: Scope, work: Function[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return `work(db, scope, ...)` once what it wrote is committed.

        It runs again where the database asks for it. No other writer has the locks that it holds.
        Within an idempotent call, what goes with the call is written in the same transaction.
        """
        locks = locks_of(work, *args, **kwargs)
        commit = partial(self._access.write, scope, holds=locks)
        call = current_call()
        if call is None:
            return await commit(lambda db: work(db, scope, *args, **kwargs))
        name = f"{work.__module__.rpartition('.')[2]}.{work.__qualname__}"
        return await call.write(name, lambda db: work(db, scope, *args, **kwargs), commit)

    async def apart(
        self, scope: Scope, work: Function[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return what `read` does, on a connection of its own: work that takes long."""
        return await self._access.apart(scope, lambda db: work(db, scope, *args, **kwargs))

    async def close(self) -> None:
        """Finish what is under way and close every connection; used again, it opens again."""
        await self._access.close()

"""What is written with the effects of a call, and answers to calls that come again.

Within `beside` every write of the call also writes its entry of the audit and its effect, in one
transaction. A call that comes again with its idempotency key has no effect twice.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields, is_dataclass
from importlib import import_module
from typing import Any, TypeVar

from heedful.errors import LeaseLost, StoreCorrupt
from heedful.lessons.lesson import Scope
from heedful.store.database import Db, Work, holds
from heedful.store.records import StoredLoop

T = TypeVar("T")
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


def before(db: Db, scope: Scope, call: Call) -> Before:
    """What is known of the call."""
    rows = db.named("read_answer", {**asdict(call), "after": time.time() - KEPT}).fetchall()
    if not rows:
        return Before()
    plain = {int(row["n"]): json.loads(row["record"]) for row in rows}
    answer = plain.pop(ANSWER, None)
    return Before(rows[0]["digest"], tuple(plain.values()), answer, max(plain, default=-1) + 1)


@holds("answers")
def keep(db: Db, scope: Scope, call: Call, answer: Mapping[str, Any]) -> None:
    """Keep what the call was answered, and forget what is older than a day."""
    db.named("forget_answers", {"tenant": call.tenant, "before": time.time() - KEPT})
    write(db, call, ANSWER, answer)


def write(db: Db, call: Call, n: int, record: Mapping[str, Any]) -> None:
    """Write down an effect of the call, in its transaction.

    Raises LeaseLost where the same call is being answered elsewhere, which then did it already.
    """
    values = {**asdict(call), "n": n, "record": json.dumps(record), "now": time.time()}
    if not db.named("insert_answer", {**values, "before": values["now"] - KEPT}).fetchall():
        raise LeaseLost("the same call is being answered just now; ask again")

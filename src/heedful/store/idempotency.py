"""Answers to repeated calls, and the records that are written along with a call's effects.

Within `beside`, each write of a call also writes its audit entry and a record of its effect, in one
transaction. A call repeated with its idempotency key has no second effect.
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
    """The records that accompany the effects of one call, in order.

    Create it in the task that makes the call. Every write is an effect, except claiming a loop,
    which may be repeated. `record` stores the number of an effect and its value as plain data.
    `known` holds the effects of an earlier run of the same call: they are not repeated, and the
    call continues with their values.
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
        """Return True in the call itself, False in its heartbeat or in work that it handed over."""
        return asyncio.current_task() is self._task

    def also(self, extra: Extra) -> None:
        """Run `extra` in the transaction of the next effect."""
        self._extras.append(extra)

    async def write(self, name: str, work: Work[T], commit: Commit[T]) -> T:
        """Commit a named effect together with its records."""
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
    """Write the records of `one` with every effect inside the block."""
    token = _now.set(one)
    try:
        yield one
    finally:
        _now.reset(token)


def also(extra: Extra) -> None:
    """Run `extra` in the transaction of the next effect of this call; there must be a call."""
    current = _now.get()
    if current is None:
        raise LookupError("no call runs here: this is used outside of `beside`")
    current.also(extra)


def current_call() -> Beside | None:
    """Return the records of the current call, or None outside of a call."""
    current = _now.get()
    return current if current is not None and current.made_now else None


def _plain(value: Any) -> Any:
    """Return the result of a write as plain data. Raises TypeError if that is impossible."""
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
            raise TypeError(f"the result of a write is no plain value: {type(value).__name__}")


def _value(plain: Any) -> Any:
    """Return the value that was given to `_plain`."""
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
        raise StoreCorrupt(f"the stored result of a call has the unknown kind {name!r}")
    return kind


KEPT = 86_400.0  # seconds
ANSWER = -1


@dataclass(frozen=True, slots=True)
class Call:
    """A call that may be repeated: its caller, its idempotency key, and a digest of its request."""

    tenant: str
    caller: str
    once: str
    digest: str


@dataclass(frozen=True, slots=True)
class Before:
    """The stored effects and the answer of a repeated call.

    `digest` is "" for a new call. `next` is the number of its next effect.
    """

    digest: str = ""
    effects: tuple[Mapping[str, Any], ...] = ()
    answer: Mapping[str, Any] | None = None
    next: int = 0


def before(db: Db, scope: Scope, call: Call) -> Before:
    """Return what an earlier run of the call left."""
    rows = db.named("read_answer", {**asdict(call), "after": time.time() - KEPT}).fetchall()
    if not rows:
        return Before()
    plain = {int(row["n"]): json.loads(row["record"]) for row in rows}
    answer = plain.pop(ANSWER, None)
    return Before(rows[0]["digest"], tuple(plain.values()), answer, max(plain, default=-1) + 1)


@holds("answers")
def keep(db: Db, scope: Scope, call: Call, answer: Mapping[str, Any]) -> None:
    """Store the answer of the call, and delete answers older than a day."""
    db.named("forget_answers", {"tenant": call.tenant, "before": time.time() - KEPT})
    write(db, call, ANSWER, answer)


def write(db: Db, call: Call, n: int, record: Mapping[str, Any]) -> None:
    """Store an effect of the call, in its transaction.

    Raises LeaseLost if another process answers the same call and stored this effect first.
    """
    values = {**asdict(call), "n": n, "record": json.dumps(record), "now": time.time()}
    if not db.named("insert_answer", {**values, "before": values["now"] - KEPT}).fetchall():
        raise LeaseLost("the same call is being answered right now; try again")

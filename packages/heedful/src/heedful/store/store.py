"""A store: reads and writes in transactions, and calls whose writes happen once.

Within `Effects`, each write of a call also stores its audit entry and its result, in
one transaction. A call that is repeated with its idempotency key does not write again.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import finalize

from heedful.errors import InvalidInput
from heedful.lessons.scope import Scope
from heedful.store.connection import (
    LOCAL_ACTOR,
    MAX_SHORT_READ_BYTES,
    MEMORY_LOCKS,
    Access,
    Actor,
    Db,
    Function,
    LargeRead,
    ReadLane,
    Work,
    bulk_reads,
    declared_locks,
    result_adapter,
    result_types,
)
from heedful.validation import MAX_READ_BYTES

if TYPE_CHECKING:  # threads for long computations are slow to import
    from heedful.store.offload import TurnKind

# Seconds to wait for running work at the end of the interpreter or of an unused store.
CLOSE_GRACE = 0.5
T = TypeVar("T")
P = ParamSpec("P")
Extra = Callable[[Db], None]  # work that joins the transaction of another write
Commit = Callable[[Work[T]], Awaitable[T]]  # runs work in a transaction of its own


class Effects:
    """The writes (effects) of one call, in order; `with Effects():` begins the call.

    Every write that is declared `resumable` is an effect. `record` is called to store
    the number of an effect, its name and its result; with None nothing is stored.
    `known` holds the effects that an earlier run of the same call stored. They are not
    written again: the call continues with their stored results. `stored_count` is the
    number of effects that are stored. Rows that the call writes have the key of `actor`
    as a source.
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
        self.stored_count: int = len(known)
        self._extras: list[Extra] = []
        self.task: asyncio.Task[Any] | None = None

    def __enter__(self) -> "Effects":
        self.task = asyncio.current_task()
        self._token = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)

    def add(self, extra: Extra) -> None:
        """Run `extra` in the same transaction as the next effect."""
        self._extras.append(extra)

    async def write(
        self, function: Callable[..., T], work: Work[T], commit: Commit[T]
    ) -> T:
        """Run and commit `work`, a call of `function`, and return its result.

        An effect that an earlier run stored is not run: its stored result is returned.
        """
        if function not in result_types:
            return await commit(partial(self._run_as_actor, work))

        module = function.__module__.rpartition(".")[2]
        name = f"{module}.{function.__qualname__}"
        if self._known and self._known[0]["name"] == name:
            self._extras.clear()
            effect = self._known.pop(0)
            result: T = result_adapter(function).validate_python(effect["value"])
            return result

        # An effect has its number only once it is stored. If the write fails and the
        # caller tries it again, it meets the effect that another process, which answers
        # the same call, has stored under this number.
        number = self.stored_count
        extras = tuple(self._extras)

        def run_and_record(db: Db) -> T:
            value = self._run_as_actor(work, db)
            for extra in extras:
                extra(db)

            if self._record is not None:
                document = result_adapter(function).dump_python(value, mode="json")
                self._record(db, number, {"name": name, "value": document})
            return value

        value = await commit(run_and_record)
        self.stored_count += 1
        # An extra that came during the commit waits for the next effect.
        self._extras = [extra for extra in self._extras if extra not in extras]
        return value

    def _run_as_actor(self, work: Work[T], db: Db) -> T:
        db.actor = self._actor
        try:
            return work(db)
        finally:
            db.actor = LOCAL_ACTOR


_current: ContextVar[Effects | None] = ContextVar("heedful_effects", default=None)


def also(extra: Extra) -> None:
    """Run `extra` in the same transaction as the next write of the current call."""
    effects = _current.get()
    if effects is None:
        raise LookupError("no call runs here; use `also` within `with Effects()`")
    effects.add(extra)


class Store:
    """A store of loops and lessons; `heedful.open_store` opens one.

    The modules of this package have plain functions that take a connection. `read` and
    `write` run such a function in a transaction: `await store.write(scope, loops.claim,
    id, head, owner)`.

    A store may be used from any event loop. All methods raise StoreError and the errors
    of the function.
    """

    def __init__(
        self,
        url: str,
        access: Access,
        reopen: "Callable[[str], Store] | None" = None,
    ) -> None:
        """Make a store; a copy in another process is one that `reopen` opens."""
        self.url = url
        self._access = access
        # Its threads do not refer to the store, so that an unused store is closed.
        finalize(self, access.close, CLOSE_GRACE)
        self._reopen = reopen

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how another process opens the same file.

        Raises InvalidInput for a store without a file of its own.
        """
        if self._reopen is None or self.url == ":memory:":
            allowed = (
                "a SQLite file to be copied or pickled; open this store by its name "
                "where it is used"
            )
            raise InvalidInput("store", self.url, allowed)
        return self._reopen, (os.path.realpath(self.url),)

    async def read(
        self, scope: Scope, work: Function[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work(db, scope, ...)` on one consistent snapshot; return its result.

        A read has three tiers: up to `MAX_SHORT_READ_BYTES` it uses the lane "short";
        a larger one is done again in the lane "long", and above `MAX_READ_BYTES`
        once more, after it has waited for the turn of its call. The `bulk_reads` wait
        for a turn of short reads at once, and use the lane "bulk".
        """

        def job(db: Db) -> T:
            return work(db, scope, *args, **kwargs)

        def bounded_job(most: int, db: Db) -> T | LargeRead:
            db.free_bytes = most
            try:
                return job(db)
            except LargeRead as large_read:
                # Drop the traceback: its frames still hold the rows already read.
                return large_read.with_traceback(None)
            finally:
                db.free_bytes = None

        turn: TurnKind = "read"
        lane: ReadLane = "bulk"
        if work not in bulk_reads:
            turn = "call"
            lane = "long"
            short_job = partial(bounded_job, MAX_SHORT_READ_BYTES)
            value = await self._access.read(scope, short_job)
            if isinstance(value, LargeRead):
                longer_job = partial(bounded_job, MAX_READ_BYTES)
                value = await self._access.read(scope, longer_job, lane)
            if not isinstance(value, LargeRead):
                return value

        from heedful.store.offload import take_turn  # most reads are short

        await take_turn(turn)
        return await self._access.read(scope, job, lane)

    async def write(
        self, scope: Scope, work: Function[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work(db, scope, ...)`, commit, and return its result.

        Repeats if the database asks for a retry. Meanwhile no other writer has the
        locks of `work`. Within an idempotent call, the same transaction stores the
        records of the call.
        """

        def job(db: Db) -> T:
            return work(db, scope, *args, **kwargs)

        locks = declared_locks.get(work, MEMORY_LOCKS)
        if callable(locks):
            locks = locks(*args, **kwargs)
        commit = partial(self._access.write, scope, locks=locks)
        effects = _current.get()
        # The heartbeat of a call, and other tasks that it begins, are not part of it.
        if effects is None or effects.task is not asyncio.current_task():
            return await commit(job)
        return await effects.write(work, job, commit)

    async def close(self) -> None:
        """Finish running work and close every connection.

        A later call opens the database again.
        """
        self._access.close()

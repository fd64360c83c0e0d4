"""A store: reads and writes in transactions, and calls whose writes happen once.

Within `Effects`, each write of a call also stores its audit entry and its result, in
one transaction. A call that is repeated with its idempotency key does not write again.

A write whose commit was not acknowledged is run again, once: its stored result says
whether it was written. Only if that fails, too, its caller gets StoreInDoubt, with the
key under which the result is stored.
"""

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import finalize

from heedful.errors import InvalidInput, StoreInDoubt, StoreUnavailable
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
    counting_writes,
    declared_locks,
    may_run_again,
    result_adapter,
    result_types,
)
from heedful.store.idempotency import (
    ANSWER_EFFECT,
    MAX_KEY_CHARS,
    IdempotentCall,
    new_key,
    read_effect,
    read_record,
    write_effect,
)
from heedful.validation import MAX_READ_BYTES, Fields, require, typed_frozen

if TYPE_CHECKING:  # asyncio and threads for long computations are slow to import
    import asyncio

    from heedful.store.offload import TurnKind

# Seconds to wait for running work at the end of the interpreter or of an unused store.
CLOSE_GRACE = 0.5
T = TypeVar("T")
P = ParamSpec("P")
Extra = Callable[[Db], None]  # work that joins the transaction of another write
Commit = Callable[[Work[T]], Awaitable[T]]  # runs work in a transaction of its own


@typed_frozen(slots=True, kw_only=True)
class ResultKey:
    """Where the result of a write is stored: as effect `n` of `call`.

    `text` is the key with which its caller may repeat the call, "" if it cannot. If the
    result `may_exist`, an earlier run of the call may have stored it.
    """

    call: IdempotentCall
    n: int
    text: str = ""
    may_exist: bool = False


class Effects:
    """The writes (effects) of one call, in order; `with Effects():` begins the call.

    Every write that is declared `resumable` is an effect. With a `call`, whose key is
    `key`, each effect is stored with its name and its result. `known` holds the effects
    that an earlier run of the same call stored. They are not written again: the call
    continues with their stored results. `stored_count` is the number of effects that
    are stored. Rows that the call writes have the key of `actor` as a source.
    """

    def __init__(
        self,
        call: IdempotentCall | None = None,
        known: Sequence[Fields] = (),
        actor: Actor = LOCAL_ACTOR,
        key: str = "",
    ) -> None:
        """Begin with the `known` writes of a call; the class explains the options."""
        self._actor = actor
        self.call = call
        self._key = key
        self._known = list(known)
        self.stored_count: int = len(known)
        self._extras: list[Extra] = []
        # The function whose next write has a key of its own, and this key.
        self._keyed: tuple[Callable[..., Any], ResultKey] | None = None
        self.task: asyncio.Task[Any] | None = None

    def __enter__(self) -> "Effects":
        import asyncio

        self.task = asyncio.current_task()
        self._token = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)

    def add(self, extra: Extra) -> None:
        """Run `extra` in the same transaction as the next effect, that is a write."""
        self._extras.append(extra)

    @contextmanager
    def keyed(self, function: Callable[..., Any], key: ResultKey) -> Iterator[None]:
        """In this `with` block, store the result of a write of `function` under `key`.

        Writes of other functions in the block have no key of their own.
        """
        self._keyed = function, key
        try:
            yield
        finally:
            self._keyed = None

    def key_of(self, function: Callable[..., Any]) -> ResultKey | None:
        """Return the key for the result of the next write, a call of `function`.

        It is that of the block of `keyed`, or else the next number of the idempotent
        call. Return None if the result is not to be stored.
        """
        if self._keyed is not None and self._keyed[0] is function:
            return self._keyed[1]
        if self.call is None:
            return None
        # An effect has its number only once it is stored. If the write fails and the
        # caller tries it again, it meets the effect that another process, which answers
        # the same call, has stored under this number.
        return ResultKey(call=self.call, n=self.stored_count, text=self._key)

    def take_known(self, function: Callable[..., T]) -> tuple[T] | None:
        """Return the result of `function`, if an earlier run stored it as the next.

        It stands in a tuple of its own, because None may be a result. Return None if
        the next stored write is of another function, or none is left. What `add` queued
        was written by the earlier run, and is dropped.
        """
        if not self._known or self._known[0]["name"] != _name_of(function):
            return None

        self._extras.clear()
        return (_result_of(function, self._known.pop(0)),)

    async def write(
        self,
        scope: Scope,
        function: Callable[..., T],
        work: Work[T],
        commit: Commit[T],
        key: ResultKey | None,
    ) -> T:
        """Run and commit `work`, a call of `function`, and return its result.

        `commit` runs a function in a transaction. The result is stored under `key`, if
        there is one. If an earlier run of the call stored this write, it is not run
        again: its stored result is returned. Raises StoreInDoubt if it is unknown
        whether `work` was committed, and could not be found out.
        """
        earlier = self.take_known(function)
        if earlier is not None:
            return earlier[0]

        is_effect = function in result_types
        extras = tuple(self._extras) if is_effect else ()

        def run(db: Db) -> T:
            # The rows that `work` writes name the actor as a source; those of the
            # extras, such as its entry in the audit, do not.
            db.actor = self._actor
            try:
                value = work(db)
            finally:
                db.actor = LOCAL_ACTOR
            for extra in extras:
                extra(db)
            return value

        value = await _commit_once(run, commit, scope=scope, function=function, key=key)
        if is_effect:
            self.stored_count += 1
        # An extra that came during the commit waits for the next effect.
        self._extras = [extra for extra in self._extras if extra not in extras]
        return value


async def _commit_once(
    work: Work[T],
    commit: Commit[T],
    scope: Scope,
    function: Callable[..., T],
    key: ResultKey | None,
) -> T:
    """Commit `work`, a call of `function`, and return its result.

    `commit` runs a function in a transaction, which also stores the result under `key`,
    if there is one. If the commit was not acknowledged, run it once more, unless the
    stored result shows that it was committed. Raises StoreInDoubt if that fails, too.
    """

    def run(db: Db) -> T:
        value = work(db)
        if key is not None:
            document = {"name": _name_of(function), "value": value}
            write_effect(db, key.call, key.n, document)
        return value

    def run_unless_stored(db: Db) -> T:
        if key is not None:
            document = read_effect(db, scope, key.call, key.n)
            if document is not None:
                return _result_of(function, document)
        return run(db)

    may_exist = key is not None and key.may_exist
    try:
        return await commit(run_unless_stored if may_exist else run)
    except StoreInDoubt as error:
        doubt = error  # Python forgets `error` at the end of this clause

    try:
        return await commit(run_unless_stored)
    except (StoreInDoubt, StoreUnavailable) as error:
        # With the key, the caller may repeat the call without a second effect.
        text = "" if key is None else key.text
        counts = function in counting_writes
        raise StoreInDoubt(doubt.what, key=text, counts=counts) from error


def _name_of(function: Callable[..., Any]) -> str:
    """Return the name under which the effects of a function are stored."""
    module = function.__module__.rpartition(".")[2]
    return f"{module}.{function.__qualname__}"


def _result_of(function: Callable[..., T], effect: Fields) -> T:
    """Return the result of a function from its stored effect."""
    result: T = result_adapter(function).validate_python(effect["value"])
    return result


_current: ContextVar[Effects | None] = ContextVar("heedful_effects", default=None)


def _effects_of_task() -> Effects | None:
    """Return the effects, that is the writes, of the call that runs in this task.

    Return None if no call runs here. Tasks that a call begins, such as its heartbeat,
    are not part of it, although they inherit its context.
    """
    effects = _current.get()
    if effects is None:
        return None
    import asyncio

    return effects if effects.task is asyncio.current_task() else None


def also(extra: Extra) -> None:
    """Run `extra` in the same transaction as the next write of the current call.

    Raises LookupError outside of `with Effects()`.
    """
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
        """Make a store at `url`, the name under which it was opened.

        `access` reads and writes its database. A copy of the store in another process
        is what `reopen` returns for the name; without it, no copy can be made.
        """
        self.url = url
        self._access = access
        # Close a store that is no longer used: its threads do not refer to it.
        finalize(self, access.close, CLOSE_GRACE)
        self._reopen = reopen

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how a copy, as by pickle in another process, opens the same file.

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

        So that large reads do not delay small ones, each size has a lane, that is a
        queue of its own. A read begins in the lane "short". If it parses more than
        `MAX_SHORT_READ_BYTES`, it begins again in the lane "long"; if it parses more
        than `MAX_READ_BYTES` there, it waits for the turn of its call and begins once
        more, without a limit. A function that is declared as `bulk` waits for a turn of
        reads at once, and uses the lane "bulk".
        """

        def job(db: Db) -> T:
            return work(db, scope, *args, **kwargs)

        def bounded_job(max_bytes: int, db: Db) -> T | LargeRead:
            db.free_bytes = max_bytes
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

        Repeats if the database asks for a retry, and once if the commit was not
        acknowledged: what was written is not written twice. Until the commit, no other
        writer has the locks that `work` declares. Within an idempotent call, the same
        transaction stores the records of the call, and a write that an earlier run of
        the call made is not made again: its stored result is returned.
        """

        def job(db: Db) -> T:
            return work(db, scope, *args, **kwargs)

        locks = declared_locks.get(work, MEMORY_LOCKS)
        if callable(locks):
            locks = locks(*args, **kwargs)
        commit = partial(self._access.write, scope, locks=locks)
        effects = _effects_of_task()
        if effects is None:
            if not self._access.in_doubt:
                return await commit(job)
            effects = Effects()  # this write is a call by itself

        key = None
        if work in result_types:
            key = effects.key_of(work)
            # The answer to a commit may be lost on the way from the database. Only a
            # stored result then says whether it was made, unless `work` sees it itself.
            if key is None and self._access.in_doubt:
                may_run = may_run_again.get(work)
                if may_run is None or not may_run(*args, **kwargs):
                    call = IdempotentCall.of_one_write(scope)
                    key = ResultKey(call=call, n=ANSWER_EFFECT)
        return await effects.write(
            scope, function=work, work=job, commit=commit, key=key
        )

    async def once(
        self,
        scope: Scope,
        work: Callable[..., T],
        call: Callable[[], Awaitable[T]],
        *,
        key: str,
        request: object,
    ) -> T:
        """Return the result of `call`, which makes one write, a call of `work`.

        If an earlier call with this `key` and the same `request` has made the write
        within a day, return its stored result instead. `request` is all that makes it
        the same call. Without a `key`, the result gets a key of its own if the answer
        to a commit may be lost: StoreInDoubt names it. Within an idempotent call, the
        key of that call counts. Raises InvalidInput for a malformed key, and Conflict
        if the key belongs to another call.
        """
        is_key = isinstance(key, str) and len(key) <= MAX_KEY_CHARS
        allowed = f"1 to {MAX_KEY_CHARS} printable characters, or left out"
        require(is_key and key.isprintable(), "key", key, allowed)

        effects = _effects_of_task()
        if effects is not None:
            # An earlier run of the call around this one may have made the write.
            earlier = effects.take_known(work)
            if earlier is not None:
                return earlier[0]
            if effects.call is not None:
                return await call()
        if not key and not self._access.in_doubt:
            return await call()

        text = key or new_key()
        result_key = ResultKey(
            call=IdempotentCall.in_process(scope, text, request),
            n=ANSWER_EFFECT,
            text=text,
            may_exist=bool(key),
        )
        if key:
            record = await self.read(scope, read_record, result_key.call, ANSWER_EFFECT)
            if record is not None:
                return _result_of(work, record)

        if effects is not None:
            with effects.keyed(work, result_key):
                return await call()
        with Effects() as effects, effects.keyed(work, result_key):
            return await call()

    async def write_once(
        self,
        key: str,
        scope: Scope,
        work: Function[P, T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Write as `write` does, once for all calls with this `key` and arguments.

        A repeated call within a day gets the stored result. Without a `key`, each call
        writes. Raises Conflict if the key belongs to a call with other arguments.
        """
        return await self.once(
            scope,
            work,
            partial(self.write, scope, work, *args, **kwargs),
            key=key,
            request=(_name_of(work), args, sorted(kwargs.items())),
        )

    async def clean(self) -> str:
        """Remove deleted texts from the files of the database.

        Returns what may remain there and what to do, "" if nothing does. On SQLite, the
        file is written again, which takes room for a copy; writers wait.
        """
        return await self._access.clean()

    async def close(self) -> None:
        """Finish running work and close every connection.

        A later call opens the database again.
        """
        self._access.close()

"""Where a driven loop is written down: nowhere, or in a store under a lease that is kept alive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any, Protocol

from heedful.codec import goal_to, policy_to
from heedful.errors import InvalidInput, LeaseLost, StoreError
from heedful.loop.decide import Policy
from heedful.loop.record import Goal
from heedful.protocols import Entry, Head, Scope, Store, Stored
from heedful.store import open_store
from heedful.store.lease import LEASE_SECONDS, enter, leave, new_owner

ECHO_WINDOW = 20


class Written(Protocol):
    """Where what becomes of a loop is written."""

    async def commit(self, entry: Entry) -> None:
        """Write down all of `entry` or nothing."""
        ...

    def shares(self, store: Store, scope: Scope) -> bool:
        """Whether what is committed here lands in that scope of `store`, in one transaction."""
        ...


class Journal(Written, Protocol):
    """What a driver asks of its journal."""

    durable: bool

    def at_work(self) -> AbstractAsyncContextManager[None]:
        """Hold the loop while an attempt is under way."""
        ...

    async def open(self, task: Any, goals: Sequence[Goal], policy: Policy) -> Stored | None:
        """What is stored of the loop; None where it begins."""
        ...

    async def echoes(self) -> Mapping[str, int]:
        """Finding key -> attempts of other loops of the scope that had it."""
        ...

    def reread(self) -> bool:
        """After a failure: whether the state has to be read again from here."""
        ...


class Volatile:
    """No journal: the trace lives in the result alone."""

    durable = False

    def at_work(self) -> AbstractAsyncContextManager[None]:
        """Nothing to hold."""
        return nullcontext()

    async def open(self, task: Any, goals: Sequence[Goal], policy: Policy) -> Stored | None:
        """Nothing is stored."""
        return None

    async def echoes(self) -> Mapping[str, int]:
        """No other loop is known."""
        return {}

    async def commit(self, entry: Entry) -> None:
        """Nothing is written."""

    def reread(self) -> bool:
        """There is nothing to read."""
        return False

    def shares(self, store: Store, scope: Scope) -> bool:
        """Memory has to write for itself."""
        return False


class Durable:
    """A journal in a store. `known` says that the caller named the loop, so it may exist already.

    A loop that only this process can know of is created by its first commit; one that was named is
    claimed first. While an attempt is under way the lease is renewed.
    """

    durable = True

    def __init__(self, store: Store, scope: Scope, id: str, known: bool) -> None:
        self._store, self._scope, self._id, self._known = store, scope, id, known
        self._owner = new_owner()
        self._head: Head | None = None  # what the store does not hold yet
        self._claimed = False
        self._epoch = 1

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Hold the loop; LeaseLost ends the attempt where another process took it over."""
        enter(self._owner)
        task = asyncio.current_task()
        beat = asyncio.create_task(self._beat(task))
        try:
            yield
        except asyncio.CancelledError:
            lost = beat.exception() if beat.done() and not beat.cancelled() else None
            if lost is not None and task is not None and task.uncancel() == 0:
                raise LeaseLost(str(lost)) from None
            raise  # somebody else cancelled, too
        finally:
            beat.cancel()
            if beat.done() and not beat.cancelled():
                beat.exception()  # told above, or too late to matter
            leave(self._owner)

    async def open(self, task: Any, goals: Sequence[Goal], policy: Policy) -> Stored | None:
        """Claim a loop that was named; remember the head of one that is new. Raises LeaseLost."""
        _storable(task)
        head = Head(task, [goal_to(g) for g in goals], policy_to(policy))
        stored = await self.claim(head) if self._known else None
        same = stored is not None and _same(stored.head, head)
        self._head = None if same else head
        return stored

    async def claim(self, head: Head) -> Stored:
        """Claim a loop, which is created where it is new. Raises LeaseLost."""
        stored = await self._store.claim(self._scope, self._id, head, self._owner)
        self._epoch, self._claimed = stored.epoch, True
        return stored

    async def echoes(self) -> Mapping[str, int]:
        """Counted over the newest other loops of the scope."""
        return await self._store.echoes(self._scope, self._id, ECHO_WINDOW)

    async def commit(self, entry: Entry) -> None:
        """Raises LeaseLost, Conflict and the other kinds of StoreError.

        Other goals or another policy than are stored are written with the first decision on them.
        """
        head = None if self._claimed and entry.verdict is None else self._head
        await self._store.commit(
            self._scope, replace(entry, epoch=self._epoch, head=head), self._owner
        )
        self._claimed = True
        self._head = None if head is not None else self._head

    def reread(self) -> bool:
        """The store knows what landed; from now on the loop is one that may exist."""
        self._known = True
        return True

    def shares(self, store: Store, scope: Scope) -> bool:
        """Whether it is the same store and the same scope of it."""
        return store is self._store and scope == self._scope

    async def _beat(self, driven: asyncio.Task[Any] | None) -> None:
        """Renew the lease as long as the attempt lasts; stop the attempt where it is lost."""
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            if not self._claimed:
                continue
            try:
                await self._store.beat(self._scope, self._id, self._epoch)
            except LeaseLost:
                if driven is not None:
                    driven.cancel()
                raise
            except StoreError:
                continue  # the next one may get through; until then the epoch fences


def journal(store: Store | str | None, scope: Scope | None, id: str, known: bool) -> Journal:
    """No journal for None; else one on the store, or on the store of that name."""
    if store is None:
        return Volatile()
    opened = open_store(store) if isinstance(store, str) else store
    if not hasattr(opened, "commit"):
        raise InvalidInput("store", store, "a path, :memory:, a Store or None")
    return Durable(opened, scope or Scope(), id, known)


def _same(one: Head, other: Head) -> bool:
    """Whether goals and policy are the same."""
    return (list(one.goals), dict(one.policy)) == (list(other.goals), dict(other.policy))


def _storable(task: Any) -> None:
    """Raises InvalidInput before anything is spent on a task that cannot be written down."""
    try:
        json.dumps(task)
    except (TypeError, ValueError) as error:
        allowed = "text or JSON data; or run with store=None"
        raise InvalidInput("task", task, allowed) from error

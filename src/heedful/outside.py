"""A loop that nobody drives: read it, work out what comes of it, write that, once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from heedful.decisions import Known
from heedful.errors import LeaseLost
from heedful.journal import ECHO_WINDOW
from heedful.protocols import Entry, Scope, Store

T = TypeVar("T")

# Of those who write to one loop at once, one gets through at each turn; the others try again within
# so many seconds, at random, so that 64 of them are done within a second.
TURNS = 100
LONGEST = 0.02


@dataclass(frozen=True, slots=True)
class Turn:
    """A loop as it is, and a journal for the one entry that comes of that."""

    store: Store
    scope: Scope
    known: Known

    async def commit(self, entry: Entry) -> None:
        """Write all of `entry`, or nothing where the loop has changed meanwhile."""
        try:
            stored = self.known.stored
            upon = replace(entry, epoch=stored.epoch, seen=stored.updated)
            await self.store.commit(self.scope, upon, owner="")
        except LeaseLost as error:
            raise _Overtaken from error

    def shares(self, store: Store, scope: Scope) -> bool:
        """Whether it is the same store and the same scope of it."""
        return store is self.store and scope == self.scope

    def free(self) -> None:
        """Raises LeaseLost where a process drives the loop just now."""
        if self.known.driver:
            raise LeaseLost(
                f"loop {self.known.stored.id!r} is being driven by another process "
                f"({self.known.driver}); wait for it, or stop it"
            )


async def settled(store: Store, scope: Scope, id: str, work: Callable[[Turn], Awaitable[T]]) -> T:
    """What `work` answers to the loop as it is, once what it has committed has landed.

    Where another was quicker, `work` is called again with what that one has left. Raises NotFound,
    LeaseLost where others are always quicker, and what `work` raises.
    """
    for _ in range(TURNS):
        turn = Turn(store, scope, await store.known(scope, id, ECHO_WINDOW))
        try:
            return await work(turn)
        except _Overtaken:
            await asyncio.sleep(random.random() * LONGEST)
    raise LeaseLost(f"others write to loop {id!r} all the time; try again later")


class _Overtaken(Exception):
    """The loop is not as it was read."""

"""A store: the database in which loops and lessons are kept, reached through its transactions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from heedful.lessons.lesson import Scope
from heedful.store.database import Access, Db, locks_of
from heedful.store.idempotency import current_call

T = TypeVar("T")
P = ParamSpec("P")
Function = Callable[Concatenate[Db, Scope, P], T]


class Store:
    """A store of loops and lessons; `heedful.open_store` opens one.

    The modules of this package have plain functions that take a connection. Each call below runs
    such a function in its own transaction, for example `await store.write(scope, loops.claim, id,
    head, owner)`.

    May be used from any event loop. Raises StoreError, and what the function raises.
    """

    def __init__(self, url: str, access: Access) -> None:
        self.url = url
        self._access = access

    async def read(
        self, scope: Scope, work: Function[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work(db, scope, ...)` on one state of the database and return its result."""
        return await self._access.read(scope, lambda db: work(db, scope, *args, **kwargs))

    async def write(
        self, scope: Scope, work: Function[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work(db, scope, ...)`, commit and return its result.

        Runs it again if the database asks for a retry. No other writer has its locks at the same
        time. Within an idempotent call, the records of the call are written in the same
        transaction.
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
        """Run slow work as `read` does, on a connection of its own."""
        return await self._access.apart(scope, lambda db: work(db, scope, *args, **kwargs))

    async def close(self) -> None:
        """Finish running work and close every connection. A later call opens the database again."""
        await self._access.close()

"""PostgreSQL: a pool of connections, each transaction on a thread of its own."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from hashlib import blake2b
from typing import Final, TypeVar
from weakref import WeakSet, finalize

from psycopg import sql

from heedful.protocols import Scope
from heedful.store.address import PATIENT, Address, addressed
from heedful.store.admission import admit
from heedful.store.database import MEMORY, Work
from heedful.store.mishaps import MISHAPS, mishap
from heedful.store.session import Session
from heedful.store.sqlstore import SqlStore
from heedful.store.turns import Turns

T = TypeVar("T")

# Seconds before work that the database turned back runs again; each drawn between nothing and that.
PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
# Times that work runs again because its connection was lost: a restarted server has lost them all.
RECONNECTIONS: Final = 2
NAME: Final = "heedful-postgres"  # of the threads
READS: Final = "begin isolation level repeatable read read only"
_open: dict[str, SqlStore] = {}
_guard = threading.Lock()


def in_database(url: str) -> SqlStore:
    """A store in the database of that URL, with connections of its own. Raises InvalidInput."""
    address = addressed(url)
    return SqlStore(address.shown, Database(address))


def shared(url: str) -> SqlStore:
    """The store of this URL in this process. Raises InvalidInput."""
    with _guard:
        store = _open.get(url) or in_database(url)
        _open[url] = store
        return store


class Database:
    """Access to one database. A transaction that was begun runs to its end, awaited or not."""

    def __init__(self, address: Address) -> None:
        self._pool = _Pool(address)
        # The pool knows nothing of the store, so that one that nobody uses any more is closed.
        finalize(self, self._pool.close)

    async def read(self, scope: Scope, work: Work[T]) -> T:
        """What `work` returns, which reads one state of the database."""
        return await self._pool.run(partial(self._pool.transact, _begin(READS, scope), work))

    async def write(self, scope: Scope, work: Work[T], holds: Sequence[str] = MEMORY) -> T:
        """What `work` returns, once it is committed; run again where the database asks for it.

        Raises StoreInDoubt where the server was lost before it acknowledged the commit. It is not
        run again then: the caller asks again, and finds what was written under its own number, id
        or idempotency key.
        """
        locks = [_key(scope, name) for name in dict.fromkeys(holds)]
        job = partial(self._pool.transact, _begin("begin", scope, locks), work, "commit")
        return await self._pool.run(job, locks)

    async def apart(self, scope: Scope, work: Work[T]) -> T:
        """As `read`, on a connection and a thread of its own, and a statement may take its time."""
        begin = f"{_begin(READS, scope)}; {PATIENT}"
        return await asyncio.to_thread(self._pool.alone, begin, work)

    async def close(self) -> None:
        """Finish what is under way and let go of every connection; used again, it opens again."""
        self._pool.close()


class _Pool:
    """At most `size` threads, and as many connections: the one used last is used first."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.forked()
        _pools.add(self)

    def forked(self) -> None:
        """In a child process the threads are gone, and the connections are the parent's."""
        self._lock = threading.Lock()
        self._idle: list[Session] = []
        self._threads: ThreadPoolExecutor | None = None
        self._turns = Turns()

    async def run(self, job: Callable[[], T], locks: Sequence[int] = ()) -> T:
        """What the job returns, on a thread; none of this process that has one of its `locks`."""
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
        """What `work` returns; run again where the database asks for it."""
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
        """As `transact`, once, on a connection that is closed at the end."""
        try:
            with closing(self._connected()) as session:
                return session.within(begin, work, "rollback")
        except MISHAPS as error:
            raise mishap(error).told from error

    def close(self) -> None:
        """Finish what was handed over and close the connections; harmless when called twice."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:  # a store may be forgotten on a thread of its own
            threads.shutdown(wait=threading.current_thread().name.rpartition("_")[0] != NAME)
        self._drop()

    def _take(self) -> Session:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._connected()

    def _connected(self) -> Session:
        session = Session(self._address.conninfo)
        with ExitStack() as refused:
            refused.callback(session.close)
            admit(session)
            refused.pop_all()
        return session

    def _give(self, session: Session) -> None:
        """Put it back; one that was lost takes along those that have waited, as old as it is."""
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
    """Begin a transaction, name its tenant and take its locks: one message to the server."""
    taken = "".join(f", pg_advisory_xact_lock({lock})" for lock in locks)
    tenant = sql.quote(scope.tenant)
    return f"{begin}; select set_config('heedful.tenant', {tenant}, true){taken}"


def _key(scope: Scope, name: str) -> int:
    """A lock's number. Two names with one number wait for each other, and no more than that."""
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

"""The threads that run the work of a store, each with its own connection.

A caller waits in its event loop for the future of a `WorkItem`. A loop is woken once
for all results of the items that a thread has run together.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from weakref import WeakSet

from heedful.store.connection import Db

if TYPE_CHECKING:  # an inline run has no event loop
    import asyncio

C = TypeVar("C", bound=Db)
T = TypeVar("T")
STORE_THREAD_NAME = "heedful-store"  # the name of every thread
# A fork waits for at most this time, in seconds, until no thread uses a connection.
FORK_WAIT_SECONDS = 10.0
_pools: WeakSet[Threads[Any]] = WeakSet()
# A forked child keeps its parent's connections here: if they were freed, they would be
# closed for the parent, too.
_parent_connections: list[object] = []


class WorkItem(NamedTuple):
    """A function `work` that waits for a thread, and the `future` of its result."""

    work: Callable[..., Any]
    future: asyncio.Future[Any]


# The value that a work returned, and None; or None, and the error that it raised.
Result = tuple[Any, BaseException | None]


class Caught:
    """A `with` block that ends with its error, which is None if there was none."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> Caught:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        """Keep the error of the block, without its cursors, and do not raise it."""
        if error is not None:
            # Code that keeps the error would also keep the cursors of the work. On
            # SQLite a cursor that was not read to its end holds the connection at the
            # state that it read.
            clear_frames(error.__traceback__)
        self.error = error
        return True


def _answer(items: Iterable[WorkItem], results: Iterable[Result]) -> None:
    """Set the results of items, in their order, in the futures of the callers.

    A future belongs to an event loop, which may run on another thread. Each loop is
    woken only once, for all of its results.
    """
    answers: dict[
        asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Result]]
    ] = defaultdict(list)
    for item, result in zip(items, results, strict=True):
        answers[item.future.get_loop()].append((item.future, result))
    for loop, results_of_loop in answers.items():
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(_set_results, results_of_loop)


def _set_results(results: Iterable[tuple[asyncio.Future[Any], Result]]) -> None:
    """Set results in their futures, on the thread of their event loop.

    Futures that were cancelled meanwhile are left alone.
    """
    for future, (value, error) in results:
        if future.done():
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)


class Threads(Generic[C]):
    """At most `size` threads, each with its own connection; they end with `close`.

    New work starts a thread if none is idle. A thread takes up to `group` waiting items
    at a time. A forked child process starts new threads with new connections.
    """

    def __init__(self, connect: Callable[..., C], size: int, group: int = 1) -> None:
        """Start no thread yet; each will open its connection with `connect`."""
        self._connect = connect
        self._size = size
        self._group = group
        self.reset()
        _pools.add(self)

    def reset(self) -> None:
        """Forget all threads, connections and waiting items, without closing them.

        A new object has none yet, and a forked child must not use its parent's.
        """
        # Reentrant: its holder may free an unused store, which closes it.
        self._lock = threading.RLock()
        self._connections: dict[int, C] = {}  # by the number of their thread
        self._queue: SimpleQueue[WorkItem | None] = SimpleQueue()
        self._idle: list[None] = []  # an entry for each thread that waits for work
        self._threads: list[threading.Thread] = []

    def pause(self, seconds: float) -> bool:
        """Let no thread use a connection, as before a fork; wait at most `seconds`.

        Returns False if a thread still uses one.
        """
        return True

    def resume(self) -> None:
        """End a pause."""

    def begin_in_child(self, paused: bool) -> None:
        """Start again in a forked child; `paused` is what `pause` returned."""
        _parent_connections.append(self.__dict__.copy())
        self.reset()

    def submit(self, work: Callable[..., T]) -> asyncio.Future[T]:
        """Queue `work` for a thread; return the future of its result.

        Starts a thread if none is idle and fewer than `size` run. Raises RuntimeError
        outside of an event loop, and at the exit of the interpreter.
        """
        import asyncio

        item = WorkItem(work, asyncio.get_running_loop().create_future())
        with self._lock:
            if self._idle:  # the thread that takes the item is idle no more
                self._idle.pop()
            elif len(self._threads) < self._size:
                # A daemon, so that Ctrl-C does not wait for a database that another
                # process holds. It has the present queue and list, because `close`
                # and `reset` replace those of the object.
                thread = threading.Thread(
                    target=partial(self._serve, self._queue, self._idle),
                    name=STORE_THREAD_NAME,
                    daemon=True,
                )
                thread.start()
                self._threads.append(thread)
            self._queue.put(item)

        return item.future

    def perform(self, works: Sequence[Callable[..., Any]]) -> Sequence[Result]:
        """Run all of the works on this thread and return their results, each with None.

        If one of them raises an error, that is the error of all.
        """
        return [(work(), None) for work in works]

    def connection(self) -> C:
        """Return the connection of the current thread.

        Opens one if the thread has none, or lost it.
        """
        thread = threading.get_ident()
        connection = self._connections.get(thread)
        if connection is None or connection.lost:
            connection = self._connect()
            self._connections[thread] = connection
        return connection

    def close(self, seconds: float | None = None) -> None:
        """Finish the queue and close the connections; closing twice does no harm.

        Waits until each thread has ended, at most `seconds` per thread. Later work
        starts new threads.
        """
        with self._lock:
            threads = self._threads
            queue = self._queue
            self._threads = []
            self._queue = SimpleQueue()
            self._idle = []

        for _ in threads:  # each thread ends at one None, behind all items
            queue.put(None)
        for thread in threads:
            # This thread may be the one that frees an unused store.
            if thread is not threading.current_thread():
                thread.join(seconds)
        # This thread has a connection if it has run work inline.
        self._end_own()

    def _serve(self, queue: SimpleQueue[WorkItem | None], idle: list[None]) -> None:
        """Run the work in `queue` until None comes, which `close` puts there.

        This is the life of one thread. Waiting items are run together, up to `group`;
        if that raises an error, it is the result of each. An entry in `idle` tells
        `submit` that a thread waits. At its end, the thread closes its connection.
        """
        item = queue.get()
        while item is not None:
            # Take more items, up to `group`, as long as there are any.
            items = [item]
            while len(items) < self._group and not queue.empty():
                item = queue.get()
                if item is None:
                    # Put it back, to end when these items are done.
                    queue.put(None)
                    break
                items.append(item)

            items = [item for item in items if not item.future.cancelled()]
            results: Sequence[Result] = []
            with Caught() as caught:
                results = self.perform([item.work for item in items])
            if caught.error is not None:
                results = [(None, caught.error)] * len(items)
            _answer(items, results)

            # An item that came while no thread was idle has removed no entry: without
            # the limit, there could be more entries than threads.
            if len(idle) < self._size:
                idle.append(None)
            # A waiting thread keeps no object of a caller alive.
            del item, items, results, caught
            item = queue.get()

        self._end_own()

    def _end_own(self) -> None:
        """Close the connection of the current thread, if it has one."""
        connection = self._connections.pop(threading.get_ident(), None)
        if connection is not None:
            self.end(connection)

    def end(self, connection: C) -> None:
        """Close the connection of a thread that ends."""
        connection.close()


# The pools that are paused while a process forks, and the lock of a thread that forks.
_paused_pools: list[Threads[Any]] = []
_fork_lock = threading.Lock()


def _pause_pools() -> None:
    """Pause the pools before a fork, so that no thread is in the midst of a database.

    Waits at most `FORK_WAIT_SECONDS` in all. A pool that does not pause in time goes
    on; its child then begins without the pause. The lock is held until the fork is
    over, so that two forks do not mix their paused pools.
    """
    _fork_lock.acquire()
    deadline = time.monotonic() + FORK_WAIT_SECONDS
    for pool in list(_pools):
        remaining_seconds = max(0.0, deadline - time.monotonic())
        if pool.pause(remaining_seconds):
            _paused_pools.append(pool)


def _resume_pools() -> None:
    """Let the pools of the parent go on after a fork."""
    for pool in _paused_pools:
        pool.resume()
    _paused_pools.clear()
    _fork_lock.release()


def _reset_pools() -> None:
    """Let the pools of a forked child start again, without the parent's connections."""
    for pool in list(_pools):
        pool.begin_in_child(paused=pool in _paused_pools)
    _paused_pools.clear()
    _fork_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_pause_pools,
        after_in_parent=_resume_pools,
        after_in_child=_reset_pools,
    )

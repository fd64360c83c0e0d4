"""The threads that run the work of a store, each with its own connection.

A caller waits in its event loop for the future of a `WorkItem`. Threads set results
without a lock of the loop: an event loop is woken once for all results that it has not
yet seen.
"""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from traceback import clear_frames
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from heedful.store.connection import Db

C = TypeVar("C", bound=Db)
STORE_THREAD_NAME = "heedful-store"  # the name of every thread
# A fork waits for at most this time, in seconds, until no thread uses a connection.
FORK_WAIT_SECONDS = 10.0
_pools: "WeakSet[Threads[Any]]" = WeakSet()
# A forked child keeps its parent's connections here: if they were freed, they would be
# closed for the parent, too.
_parent_connections: list[object] = []


class WorkItem:
    """A function `work` that waits for a thread, and the `future` of its result."""

    __slots__ = ("done", "error", "future", "value", "work")

    def __init__(self, work: Callable[..., Any]) -> None:
        self.work: Callable[..., Any] = work
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.done: bool = False
        self.value: Any = None
        self.error: BaseException | None = None

    def end(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the result of the work: the `error` if there is one, else the `value`."""
        self.done = True
        self.value = value
        self.error = error
        loop = self.future.get_loop()
        if loop is asyncio._get_running_loop():
            _set_results(deque((self,)))
            return

        unseen_items = _unseen.items.setdefault(loop, deque())
        unseen_items.append(self)
        # With more items, the loop has been woken already.
        if len(unseen_items) == 1:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(_set_results, unseen_items)


class _UnseenResults(threading.local):
    """What a thread has ended: for each event loop, the items that it has not seen."""

    def __init__(self) -> None:
        self.items = WeakKeyDictionary[asyncio.AbstractEventLoop, deque[WorkItem]]()


_unseen = _UnseenResults()


def _set_results(unseen_items: deque[WorkItem]) -> None:
    """Set the results of all items in their futures, and empty `unseen_items`."""
    while unseen_items:
        item = unseen_items.popleft()
        if item.future.done():
            continue
        if item.error is not None:
            item.future.set_exception(item.error)
        else:
            item.future.set_result(item.value)


class WorkGuard:
    """A `with` block; its error becomes the result of all items without a result.

    `translate` may first turn the error into another one.
    """

    __slots__ = ("_items", "_translate")

    def __init__(
        self,
        items: Sequence[WorkItem],
        translate: Callable[[BaseException], BaseException] | None = None,
    ) -> None:
        self._items = items
        self._translate = translate

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if error is None:
            return True

        # Code that keeps the error would also keep the cursors of the work. On SQLite a
        # cursor that was not read to its end holds the connection at the state that it
        # read.
        clear_frames(error.__traceback__)
        if self._translate is not None:
            error = self._translate(error)
        for item in self._items:
            if not item.done:
                item.end(error=error)
        return True


class Threads(Generic[C]):
    """At most `size` threads, each with its own connection; they end with `close`.

    New work starts a thread if none is idle. A thread takes up to `group` waiting items
    at a time. A forked child process starts new threads with new connections.
    """

    # Seconds to wait for running work when the interpreter ends or an unused store is
    # freed.
    GRACE = 0.5

    def __init__(self, connect: Callable[..., C], size: int, group: int = 1) -> None:
        self._connect = connect
        self._size = size
        self._group = group
        self.reset()
        _pools.add(self)

    def reset(self) -> None:
        """Forget all threads, connections and items.

        A new object has none, and a forked child must not use its parent's.
        """
        # Reentrant: its holder may free an unused store, which closes it.
        self._lock = threading.RLock()
        self._of_thread = threading.local()
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

    def submit(self, work: Callable[..., Any] | WorkItem) -> asyncio.Future[Any]:
        """Queue `work` for a thread; return its future.

        Raises RuntimeError at the exit of the interpreter.
        """
        item = work if isinstance(work, WorkItem) else WorkItem(work)

        with self._lock:
            if self._idle:
                self._idle.pop()
            elif len(self._threads) < self._size:
                # A daemon, so that Ctrl-C does not wait for a database that another
                # process holds.
                thread = threading.Thread(
                    target=partial(self._serve, self._queue, self._idle),
                    name=STORE_THREAD_NAME,
                    daemon=True,
                )
                thread.start()
                self._threads.append(thread)
            self._queue.put(item)

        return item.future

    def perform(self, items: Sequence[WorkItem]) -> None:
        """Run the items on this thread and set their results.

        Raises the first error.
        """
        for item in items:
            item.end(item.work())

    def connection(self) -> C:
        """Return the connection of the current thread; open it if necessary."""
        connection: C | None = getattr(self._of_thread, "connection", None)
        if connection is None or connection.lost:
            connection = self.open()
            self._of_thread.connection = connection
        return connection

    def open(self) -> C:
        """Open a connection."""
        return self._connect()

    def close(self, seconds: float | None = None) -> None:
        """Finish the queue and close the connections; closing twice does no harm.

        Waits until each thread has ended, at most `seconds` per thread.
        """
        with self._lock:
            threads = self._threads
            queue = self._queue
            self._threads = []
            self._queue = SimpleQueue()
            self._idle = []

        for _ in threads:
            queue.put(None)
        for thread in threads:
            # This thread may be the one that frees an unused store.
            if thread is not threading.current_thread():
                thread.join(seconds)

    def _serve(self, queue: SimpleQueue[WorkItem | None], idle: list[None]) -> None:
        """Run the work in `queue` until None comes, which `close` puts there."""
        item = queue.get()
        while item is not None:
            # Take more items, up to `group`, as long as there are any.
            items = [item]
            while len(items) < self._group and not queue.empty():
                item = queue.get()
                if item is None:
                    queue.put(None)
                    break
                items.append(item)

            with WorkGuard(items):
                self.perform([item for item in items if not item.future.cancelled()])

            if len(idle) < self._size:
                idle.append(None)
            del item, items  # a waiting thread keeps no object of a caller alive
            item = queue.get()

        connection: C | None = getattr(self._of_thread, "connection", None)
        if connection is not None:
            self.end(connection)

    def end(self, connection: C) -> None:
        """Close the connection of a thread that ends."""
        connection.close()


# The pools that are paused while a process forks, and the lock of a thread that forks.
_paused_pools: list[Threads[Any]] = []
_fork_lock = threading.Lock()


def _pause_pools() -> None:
    """Pause the pools before a fork."""
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

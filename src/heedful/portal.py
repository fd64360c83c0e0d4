"""For callers without an event loop: one background loop for the whole process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from typing import Any, TypeVar

from heedful.errors import UsageError

T = TypeVar("T")

# Plain functions run in threads, and one that calls `run_sync` keeps its thread while it waits for
# another: too few of them would wait for each other. Threads are started as they are needed.
THREADS = 512


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS, "heedful-call"))
    threading.Thread(target=_forever, args=(loop,), name="heedful-portal", daemon=True).start()
    return loop


def _forever(loop: asyncio.AbstractEventLoop) -> None:
    while not loop.is_closed():
        try:
            loop.run_forever()
        except (KeyboardInterrupt, SystemExit):
            continue  # the task holds it, and its caller raises it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loop.cache_clear)


def _must_be_run(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Nothing, where a coroutine can be run here. Raises UsageError."""
    if not asyncio.iscoroutine(coroutine):
        raise UsageError(
            f"run_sync was given a {type(coroutine).__name__}, which is no coroutine; what is read "
            "by `async for` is read in an async function, whose call is given"
        )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    coroutine.close()
    raise UsageError("run_sync was called inside an event loop; write `await` there instead")


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns, for callers that have no event loop.

    An interrupt (Ctrl-C) cancels the coroutine, waits until it has cleaned up, and is raised; a
    second one does not wait. Raises UsageError when called from a running event loop, which would
    wait for itself, and for what is no coroutine, as an async iterator.
    """
    _must_be_run(coroutine)
    loop, ended = _loop(), threading.Event()
    tasks: list[asyncio.Task[T]] = []

    def begin() -> None:
        tasks.append(loop.create_task(coroutine))
        tasks[0].add_done_callback(over)

    def over(task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # asked for, so that nobody reports it as forgotten
        ended.set()

    def give_up() -> None:
        if tasks:
            tasks[0].cancel()
        else:  # interrupted before it began
            coroutine.close()
            ended.set()

    with ExitStack() as interrupted:
        interrupted.callback(ended.wait)
        interrupted.callback(loop.call_soon_threadsafe, give_up)
        loop.call_soon_threadsafe(begin)
        ended.wait()
        interrupted.pop_all()
    return tasks[0].result()

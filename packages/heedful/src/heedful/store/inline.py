"""Run a coroutine inline: to its end, on this thread, without an event loop.

A process that answers one event, such as a hook, has nothing else to do while it waits:
an event loop and the threads of stores take longer to start than the whole answer. In
an inline run, a store works on the thread of its caller, so nothing suspends.
"""

import time
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from math import inf
from typing import Any, TypeVar, cast

T = TypeVar("T")
# Until when an inline run waits for locks of other programs, on the monotonic clock.
_deadline: ContextVar[float] = ContextVar("heedful_inline", default=inf)


def run_inline(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Run a coroutine to its end on this thread, and return its result.

    Its stores wait for locks of other programs for at most `seconds` in all. Raises
    RuntimeError if the coroutine waits for anything that needs an event loop.
    """
    token = _deadline.set(time.monotonic() + seconds)
    try:
        work.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    finally:
        _deadline.reset(token)
        work.close()
    raise RuntimeError(f"{work!r} waits for an event loop; run it with asyncio.run")


def is_inline() -> bool:
    """Return whether the current work runs inline, so that no event loop runs it."""
    return _deadline.get() < inf


def lock_seconds(most: float) -> float:
    """Return how long the current work may wait for a lock: `most`, or less inline."""
    return max(0.0, min(most, _deadline.get() - time.monotonic()))


async def in_thread(compute: Callable[[], T]) -> T:
    """Return the result of a long computation in a thread, so other tasks can go on.

    An inline run has no other tasks, so it computes on its own thread.
    """
    if is_inline():
        return compute()
    import asyncio

    return await asyncio.to_thread(compute)

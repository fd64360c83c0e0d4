"""For callers without an event loop: one background loop for the whole process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

from errata.errors import UsageError

T = TypeVar("T")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="errata-portal", daemon=True)
    thread.start()
    return loop


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns, for callers that have no event loop.

    An interrupt (Ctrl-C) cancels the coroutine and is raised. Raises UsageError when called from a
    running event loop, which would wait for itself.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        coroutine.close()
        raise UsageError("run_sync was called inside an event loop; write `await` there instead")
    loop = _loop()
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except BaseException:
        if not future.done():
            future.cancel()
        raise

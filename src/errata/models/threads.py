"""Blocking work beside the event loop, in threads that nobody has to wait for."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[[], T], *, daemon: bool = True) -> T:
    """What `call()` returns or raises, from a thread of its own; cancelling returns at once.

    Not asyncio's own executor: `asyncio.run` waits for that one, so a call that hangs would hold up
    Ctrl-C. A daemon thread dies with the process; with `daemon=False` the process waits for it.
    """
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # raised again where the result is awaited
            future.set_exception(error)

    threading.Thread(target=work, name="errata-model-call", daemon=daemon).start()
    return await asyncio.wrap_future(future)

"""Ctrl-C: the first cancels what runs and waits for nobody, the second ends the process at once."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from errata.cli.failure import INTERRUPTED, Interrupted
from errata.cli.output import say

T = TypeVar("T")

# How long what was cancelled may take to clean up. A check of the user's may block for ever.
GRACE_SECONDS = 1.0


def drive(work: Coroutine[Any, Any, T], last_words: Callable[[], str] | str = "interrupted") -> T:
    """What the coroutine returns. Ctrl-C cancels it and raises Interrupted(last_words).

    `last_words` are asked for when they are needed. Where it does not end within a second, they are
    printed and the process exits with 130: what was committed is safe, all else begins anew.
    """
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(work)
    press = _Press(last_words)
    before = signal.signal(signal.SIGINT, press)
    try:
        return asyncio.run(press.watch(work))
    except asyncio.CancelledError:
        if not press.pressed:
            raise
        raise Interrupted(press.words()) from None
    finally:
        press.ended.set()
        signal.signal(signal.SIGINT, before)


class _Press:
    """The signal's receiver for the time of one coroutine."""

    def __init__(self, last_words: Callable[[], str] | str) -> None:
        self.pressed = False
        self.ended = threading.Event()
        self._last_words = last_words
        self._target: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def words(self) -> str:
        """What to say at the end."""
        return self._last_words if isinstance(self._last_words, str) else self._last_words()

    async def watch(self, work: Coroutine[Any, Any, T]) -> T:
        """Await the coroutine in a task that the signal cancels."""
        task = asyncio.current_task()
        if task is not None:
            self._target = asyncio.get_running_loop(), task
        if self.pressed:
            work.close()
            raise asyncio.CancelledError
        return await work

    def __call__(self, signum: int, frame: object) -> None:
        if self.pressed:
            os._exit(INTERRUPTED)
        self.pressed = True
        threading.Thread(target=self._leave, name="errata-leave", daemon=True).start()
        if self._target is not None:
            loop, task = self._target
            loop.call_soon_threadsafe(task.cancel)

    def _leave(self) -> None:
        if not self.ended.wait(GRACE_SECONDS):
            say(f"errata: {self.words()}")
            os._exit(INTERRUPTED)


def leave(code: int) -> NoReturn:
    """Exit, also where a call that nobody waits for any more still runs in a thread.

    Python's own end would tear down C++ libraries under such a thread, which aborts the process.
    """
    others = [t for t in threading.enumerate() if t is not threading.current_thread()]
    deadline = time.monotonic() + GRACE_SECONDS
    for thread in others:
        if not thread.daemon or thread.name == "errata-leave":
            thread.join(max(0.0, deadline - time.monotonic()))
    if not any(thread.is_alive() for thread in others):
        sys.exit(code)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

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

from heedful.cli.output import INTERRUPTED, Interrupted, drop_unwritten, say
from heedful.errors import UserCodeError

T = TypeVar("T")

# How long what was cancelled may take to clean up. A check of the user's may block for ever.
GRACE_SECONDS = 1.0


def drive(work: Coroutine[Any, Any, T], last_words: Callable[[], str] = lambda: "interrupted") -> T:
    """What the coroutine returns. Ctrl-C cancels it and raises Interrupted(last_words()).

    Where it does not end within a second, they are printed and the process exits with 130: what
    was committed is safe, all else begins anew.
    """
    press = _Press(last_words)
    before = signal.signal(signal.SIGINT, press)
    try:
        return asyncio.run(press.watch(work))
    except asyncio.CancelledError:
        raise Interrupted(last_words()) from None
    except SystemExit as error:
        raise UserCodeError(f"a model or a check called sys.exit({error.code!r})") from error
    finally:
        press.ended.set()
        signal.signal(signal.SIGINT, before)


class _Press:
    """The signal's receiver for the time of one coroutine."""

    def __init__(self, last_words: Callable[[], str]) -> None:
        self.ended = threading.Event()
        self._pressed = False
        self._last_words = last_words
        self._cancel: Callable[[], object] | None = None

    async def watch(self, work: Coroutine[Any, Any, T]) -> T:
        """Await the coroutine in a task that the signal cancels."""
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if self._pressed:
            task.cancel()
        return await task

    def __call__(self, signum: int, frame: object) -> None:
        if self._pressed:
            os._exit(INTERRUPTED)
        self._pressed = True
        threading.Thread(target=self._leave, name="heedful-leave", daemon=True).start()
        if self._cancel is not None:
            self._cancel()

    def _leave(self) -> None:
        if not self.ended.wait(GRACE_SECONDS):
            say(f"heedful: {self._last_words()}")
            os._exit(INTERRUPTED)


def leave(code: int) -> NoReturn:
    """Exit, also where a call that nobody waits for any more still runs in a thread.

    Python's own end would tear down C++ libraries under such a thread, which aborts the process.
    """
    drop_unwritten()
    others = [t for t in threading.enumerate() if t is not threading.current_thread()]
    deadline = time.monotonic() + GRACE_SECONDS
    for thread in others:
        if not thread.daemon or thread.name == "heedful-leave":
            thread.join(max(0.0, deadline - time.monotonic()))
    if not any(thread.is_alive() for thread in others):
        sys.exit(code)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

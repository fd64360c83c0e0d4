"""Long work: its progress on stderr, and Ctrl-C.

The first Ctrl-C cancels the work and waits at most a second. The second ends the process at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from heedful.cli.output import GRACE_SECONDS, INTERRUPTED, Interrupted, say
from heedful.errors import UserCodeError

T = TypeVar("T")
MANY = 5_000  # loops or lessons; fewer take only a few seconds


class Progress:
    """Lines on stderr, and on a terminal bars below them. Use it as a context manager."""

    def __init__(self) -> None:
        from rich import progress
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        words = progress.TextColumn("{task.description:<14}", markup=False)
        count = progress.TextColumn("{task.fields[count]}", markup=False)
        columns = (words, progress.BarColumn(bar_width=24), progress.TimeElapsedColumn(), count)
        self._bars = progress.Progress(*columns, console=self._console, transient=True)
        self._lines: dict[str, Any] = {}  # the bar of each name
        self._last: dict[str, object] = {}  # what was last shown of each name
        self._lock = threading.Lock()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._lines:
            self._bars.stop()

    @property
    def live(self) -> bool:
        """Return True if bars are drawn."""
        return self._console.is_terminal

    def say(self, text: Any) -> None:
        """Print a line, text or rich's Text, above the bars; a terminal cuts it at its width."""
        cut: Any = {"no_wrap": True, "overflow": "ellipsis", "crop": True}
        how = cut if self.live else {"soft_wrap": True}
        self._console.print(text, markup=False, **how)

    def bar(self, name: str, done: int, total: int, count: str, words: str = "") -> None:
        """Move the bar `name`; `count` stands behind it, `words` before it."""
        if not self.live:
            return
        if name not in self._lines:
            self._bars.start()
            self._lines[name] = self._bars.add_task(name, count=count)
        line, words = self._lines[name], words or name
        self._bars.update(line, description=words, completed=done, total=total or None, count=count)

    def fetched(self, name: str, done: int, total: int, what: str) -> None:
        """Show how many bytes of the weights `name` were processed. Any thread may call it."""
        with self._lock:
            size = f"{total / 1e6:.0f} MB"
            self.bar(name, done, total, f"{done / 1e6:.0f} of {size}", f"{name}: {what}")
            if not self.live and self._last.get(name) != what:
                self.say(f"{name}: {what} ({size})")
            self._last[name] = what

    def counted(self, what: str, done: int, total: int, noun: str = "loops") -> None:
        """Show `done` of `total`: a bar on a terminal, else at most ten lines for large totals."""
        step = done // (100 if self.live else max(MANY, total // 10))
        if step == self._last.get(what, -1 if self.live else 0):
            return
        self._last[what] = step
        self.bar(what, done, total, f"{done}/{total} {noun}")
        if not self.live:
            self.say(f"{what}: {done} of {total} {noun}")


def drive(work: Coroutine[Any, Any, T], last_words: Callable[[], str] = lambda: "interrupted") -> T:
    """Run a coroutine and return its result. Ctrl-C cancels it: Interrupted(last_words()).

    If it does not end within a second, or Ctrl-C is pressed again, the process exits with 130.
    Committed data is safe.
    """
    pressed, ended = threading.Event(), threading.Event()
    cancels: list[Callable[[], object]] = []

    async def watch() -> T:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        cancels.append(lambda: loop.call_soon_threadsafe(task.cancel))
        if pressed.is_set():
            task.cancel()
        return await task

    def leave() -> None:
        if not ended.wait(GRACE_SECONDS):
            say(f"heedful: {last_words()}")
            os._exit(INTERRUPTED)

    def press(signum: int, frame: object) -> None:
        if pressed.is_set():
            os._exit(INTERRUPTED)
        pressed.set()
        threading.Thread(target=leave, name="heedful-leave", daemon=True).start()
        for cancel in cancels:
            cancel()

    before = signal.signal(signal.SIGINT, press)
    try:
        return asyncio.run(watch())
    except asyncio.CancelledError:
        raise Interrupted(last_words()) from None
    except SystemExit as error:
        raise UserCodeError(f"a model or a check called sys.exit({error.code!r})") from error
    finally:
        ended.set()
        signal.signal(signal.SIGINT, before)

"""Progress on stderr: live where it is a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from heedful.cli.batch import Row
from heedful.loop.feedback import clean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID
    from rich.text import Text


MANY = 5_000  # loops or lessons; with fewer it takes but a few seconds


class Progress:
    """Lines, and on a terminal bars below them. Use it as a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        from rich import progress
        from rich.console import Console

        self._console = console or Console(stderr=True, highlight=False)
        words = progress.TextColumn("{task.description:<14}", markup=False)
        count = progress.TextColumn("{task.fields[count]}", markup=False)
        columns = (words, progress.BarColumn(bar_width=24), progress.TimeElapsedColumn(), count)
        self._bars = progress.Progress(*columns, console=self._console, transient=True)
        self._lines: dict[str, TaskID] = {}
        self._said: dict[str, str] = {}
        self._counted: dict[str, int] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._lines:
            self._bars.stop()

    def say(self, text: str | Text) -> None:
        """One line, above the bars; on a terminal it is cut where the line ends."""
        from rich.text import Text

        line = text if isinstance(text, Text) else Text(text)
        if self._console.is_terminal:
            self._console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
        else:
            self._console.print(line, soft_wrap=True)

    def bar(self, name: str, done: int, total: int, count: str, words: str = "") -> None:
        """How far `name` is; `count` stands behind the bar, `words` before it."""
        if not self._console.is_terminal:
            return
        if name not in self._lines:
            self._bars.start()
            self._lines[name] = self._bars.add_task(name, count=count)
        line, words = self._lines[name], words or name
        self._bars.update(line, description=words, completed=done, total=total or None, count=count)

    def fetched(self, name: str, done: int, total: int, what: str) -> None:
        """`done` of `total` bytes of the weights `name`; `what` goes on. Called from any thread."""
        with self._lock:
            size = f"{total / 1e6:.0f} MB"
            self.bar(name, done, total, f"{done / 1e6:.0f} of {size}", f"{name}: {what}")
            if not self._console.is_terminal and self._said.get(name) != what:
                self.say(f"{name}: {what} ({size})")
            self._said[name] = what

    def counted(self, what: str, done: int, total: int, noun: str = "loops") -> None:
        """So many of `total`: a bar; elsewhere, where they are many, ten lines at most."""
        live = self._console.is_terminal
        step = 100 if live else max(MANY, total // 10)
        if done // step == self._counted.get(what, -1 if live else 0):
            return
        self._counted[what] = done // step
        self.bar(what, done, total, f"{done}/{total} {noun}")
        if not live:
            self.say(f"{what}: {done} of {total} {noun}")

    def tasks(self, total: int, ended: list[Row]) -> None:
        """So many tasks of `total` have ended; the last one is told of."""
        count = f"{len(ended)}/{total}"
        for row in ended[-1:]:
            self.say(f"{'' if self._console.is_terminal else f'{count} '}{_told(row)}")
        self.bar("running", len(ended), total, count)


def _told(row: Row) -> str:
    mark = "✓" if row.passed else "✗"
    how = "at once" if row.at_once else f"{row.attempts} attempts"
    why = f", stopped by {row.stopped_by}" if row.stopped_by else ""
    return f"{mark} {clean(row.id, 60)}  {how}, calls: {row.calls}, {row.seconds:.1f} s{why}"

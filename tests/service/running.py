"""A running service: `heedful serve` in a process of its own, on any free port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WAITING = 60.0  # seconds until a process that should have ended is given up


@contextmanager
def running(folder: Path, *options: str) -> Iterator[str]:
    """The URL of a service that works in that folder, on `heedful.db`; it has to end well.

    It has no weights, so that a program words what runs teach, and recall compares words.
    """
    command = [sys.executable, "-m", "heedful.cli", "serve", "--port", "0", *options]
    env = {**os.environ, "HEEDFUL_CACHE": str(folder / "cache"), "HEEDFUL_SETTLED": "0.2"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        said = process.stdout.readline().decode()
        found = re.search(r"http://\S+", said)
        assert found, said + (folder / "log").read_text()
        yield found.group()
    finally:
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=WAITING)[0].decode()
    assert process.returncode == 0, said + (folder / "log").read_text()

"""Hook processes and commands at a terminal, as an agent and a user start them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from heedful.errors import UsageError
from heedful.integrations.hook import read_settings
from heedful.store.ownership import approve as record_approval

SECONDS = 60


def environment(home: Path, more: Mapping[str, str] = {}) -> dict[str, str]:
    """Return the environment of a user with this home, without settings of heedful."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HEEDFUL_", "CLAUDE_", "GIT_"))
    }
    settings = {
        "HOME": str(home),
        "PYTHONWARNINGS": "error",
        "HEEDFUL_CACHE": str(home / "cache"),
    }
    return {**inherited, **settings, **more}


def approve_all(folder: Path, home: Path) -> None:
    """Approve the settings of a folder, as a user does who agrees to every question."""
    with pytest.MonkeyPatch.context() as patch, suppress(UsageError):
        patch.setenv("HOME", str(home))
        for item in read_settings(folder)["ignored"]:
            if item.part:
                record_approval("files", {item.name: item.digest})


def run_event(
    folder: Path,
    home: Path,
    event: str,
    data: Mapping[str, Any],
    more: Mapping[str, str] = {},
) -> subprocess.CompletedProcess[str]:
    """Run the hook process for an event in a folder."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "heedful.integrations.hook", event],
        cwd=folder,
        env=environment(home, more),
        input=json.dumps({"session_id": "s1", "cwd": str(folder), **data}),
        capture_output=True,
        check=False,
        timeout=SECONDS,
        encoding="utf-8",
    )


def answer_at_terminal(
    folder: Path,
    home: Path,
    line: str,
    answers: Sequence[str],
    meanwhile: Callable[[], object] | None = None,
) -> tuple[int, str]:
    """Run `heedful` at a terminal and answer its questions in turn.

    `meanwhile` is called while the first question is open. Returns the exit code and
    all that the user sees.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "heedful.cli", *line.split()],
        cwd=folder,
        env=environment(home, {"COLUMNS": "500"}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)

    screen = b""
    while meanwhile is not None and b"[y/N]" not in screen:
        screen += os.read(ours, 65_536)
    if meanwhile is not None:
        meanwhile()
    os.write(ours, "".join(f"{answer}\n" for answer in answers).encode())

    # The end of a terminal is an error when its last process ends.
    with suppress(OSError):
        while True:
            part = os.read(ours, 65_536)
            if not part:
                break
            screen += part
    os.close(ours)
    return process.wait(SECONDS), screen.decode("utf-8", "replace")

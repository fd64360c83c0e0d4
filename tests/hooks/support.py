"""Hook processes and commands at a terminal, as an agent and a user start them."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from heedful.cli.app import app
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
    """Run `heedful` within this process at a terminal; answer its questions in turn.

    `meanwhile` is called while the first question is open. Returns the exit code and
    all that the user sees.
    """
    ours, theirs = pty.openpty()
    typed = "".join(f"{answer}\n" for answer in answers).encode()
    screen = bytearray()

    def user() -> None:
        """Read the screen; answer once the first question is open."""
        has_answered = False
        # The end of a terminal is an error when its other side is closed.
        with suppress(OSError):
            while part := os.read(ours, 65_536):
                screen.extend(part)
                if not has_answered and b"]: " in screen:
                    if meanwhile is not None:
                        meanwhile()
                    os.write(ours, typed)
                    has_answered = True

    reader = threading.Thread(target=user)
    reader.start()
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - environment(home).keys():
            patch.delenv(name)
        for name, value in environment(home, {"COLUMNS": "500"}).items():
            patch.setenv(name, value)
        patch.chdir(folder)
        with open(theirs, "r+b", buffering=0) as terminal:
            for stream in ("stdin", "stdout", "stderr"):
                patch.setattr(
                    sys, stream, io.TextIOWrapper(terminal, write_through=True)
                )
            code = app(line.split(), prog_name="heedful", standalone_mode=False)
            for stream in ("stdin", "stdout", "stderr"):
                getattr(sys, stream).detach()
    reader.join(SECONDS)
    os.close(ours)
    return code, screen.decode("utf-8", "replace")

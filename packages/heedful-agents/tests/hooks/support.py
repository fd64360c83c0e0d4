"""Hooks and commands as an agent and a user start them, within this process."""

from __future__ import annotations

import io
import json
import os
import pty
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    contextmanager,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from pathlib import Path
from typing import Any

import pytest

from conftest import close_stores
from heedful.cli import main
from heedful_agents import hook, session_hooks
from tests.cli.support import Done
from tests.hosts import LOOKUP_SECONDS

SECONDS = 60


def patient_hook(lookup_seconds: float = LOOKUP_SECONDS) -> tuple[str, str]:
    """Return how Python starts a hook that gives up no answer on a busy machine."""
    program = f"""
from heedful_agents import hook, session_hooks

session_hooks.LOOKUP_SECONDS = {lookup_seconds}
hook.HOOK_TIMEOUT_SECONDS = hook.IDLE_TIMEOUT_SECONDS = 600.0
hook.run()
"""
    return "-c", program


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


def settle(home: Path, text: str) -> None:
    """Write the settings of the user with this home."""
    folder = home / ".heedful"
    folder.mkdir(exist_ok=True)
    (folder / "heedful.toml").write_text(text)


@contextmanager
def as_user(
    folder: Path, home: Path, more: Mapping[str, str] = {}
) -> Iterator[pytest.MonkeyPatch]:
    """Work in a folder as a user with this home, without settings of heedful.

    What is opened in the block is closed at its end, as by the end of a process.
    """
    variables = environment(home, more)
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - variables.keys():
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        yield patch
        close_stores()


def call_hook(
    folder: Path,
    home: Path,
    words: Sequence[str],
    data: bytes,
    more: Mapping[str, str] = {},
    start_work: Callable[[str, str, Path], object] | None = None,
) -> Done:
    """Answer an event as a hook process does that is started with these words.

    The work that the event leaves is done at once, or given to `start_work`. A look-up
    takes as long as a busy machine needs.
    """
    typed = io.TextIOWrapper(io.BytesIO(data))
    out = io.StringIO()
    err = io.StringIO()
    works: list[tuple[str, str, Path]] = []
    with as_user(folder, home, more) as patch:
        patch.setattr(session_hooks, "LOOKUP_SECONDS", LOOKUP_SECONDS)
        patch.setattr(sys, "stdin", typed)
        with redirect_stdout(out), redirect_stderr(err):
            code = hook.main(
                words, start_work=start_work or (lambda *work: works.append(work))
            )
        for work, session, place in works:
            patch.chdir(place)
            assert hook.main([work, "--work", session]) == 0
    return Done(code, out.getvalue(), err.getvalue())


def run_event(
    folder: Path,
    home: Path,
    event: str,
    data: Mapping[str, Any],
    more: Mapping[str, str] = {},
) -> Done:
    """Answer an event of a session in a folder, and do the work that it leaves."""
    content = {"session_id": "s1", "cwd": str(folder), **data}
    return call_hook(folder, home, [event], json.dumps(content).encode(), more)


def answer_at_terminal(
    folder: Path, home: Path, line: str, answers: Sequence[str]
) -> tuple[int, str]:
    """Run `heedful` within this process at a terminal; answer its questions in turn.

    Returns the exit code and all that the user sees.
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
                    os.write(ours, typed)
                    has_answered = True

    reader = threading.Thread(target=user)
    reader.start()
    with (
        as_user(folder, home, {"COLUMNS": "500"}) as patch,
        open(theirs, "r+b", buffering=0) as terminal,
    ):
        for stream in ("stdin", "stdout", "stderr"):
            patch.setattr(sys, stream, io.TextIOWrapper(terminal, write_through=True))
        code = main(line.split())
        for stream in ("stdin", "stdout", "stderr"):
            getattr(sys, stream).detach()
    reader.join(SECONDS)
    os.close(ours)
    return code, screen.decode("utf-8", "replace")

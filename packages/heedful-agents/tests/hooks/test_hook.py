"""The process of hooks, what it follows in a project, and its installation."""

from __future__ import annotations

import errno
import io
import json
import os
import shlex
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from heedful.errors import UsageError
from heedful.store.projects import find_project
from heedful_agents import hook, install
from tests.engines import rows as stored_rows, url_of
from tests.hooks.support import (
    SECONDS,
    as_user,
    call_hook,
    environment,
    patient_hook,
    settle,
)
from tests.tables import cases

ERROR = 'Exit code 1\nError: Cannot find module "pads"'
CALL: Any = {
    "tool_name": "Bash",
    "tool_input": {"command": "npx jest --ci pads"},
    "tool_use_id": "t1",
}
# How an agent starts the hook, with its time limits.
HOOK = ("-m", "heedful_agents.hook")
# What a hook process before a call does without, because it starts for each event.
HEAVY = [
    "asyncio",
    "typer",
    "pydantic",
    "rich",
    "numpy",
    "ssl",
    "email",
    "difflib",
    "heedful.drive",
    "heedful.integrations.host",
    "heedful_agents.turns",
    "heedful.lessons.lesson",
    "heedful.lessons.proof",
    "heedful.loop",
    "heedful.memory.memory",
    "heedful.memory.quarantine",
    "heedful.memory.sessions",
    "heedful.memory.transfer",
    "heedful.memory.user_rules",
    "heedful.store.loops",
    "heedful.episodes.failures",
    "heedful.episodes.reading",
]
MODULES = f"""import sys
from heedful_agents import hook
hook.main()
print([name for name in {HEAVY!r} if name in sys.modules])
ours = [name for name in sys.modules if name.startswith("heedful")]
print(len(ours) <= 60 or sorted(ours))"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app" / ".git").mkdir(parents=True)
    return tmp_path / "app"


def start_hook(
    folder: Path, event: str, program: tuple[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start the process of a hook, or of a program; its home is above the folder."""
    return subprocess.Popen(
        [sys.executable, "-P", *(program or patient_hook()), event],
        cwd=folder,
        env=environment(folder.parent),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run_hook(
    folder: Path, event: str, data: bytes, program: tuple[str, str] | None = None
) -> tuple[int, str, str]:
    """Send an event to a hook process; return its exit code, output and errors."""
    with start_hook(folder, event, program) as process:
        out, err = process.communicate(data, timeout=SECONDS)
    return process.returncode, out.decode(), err.decode()


def answer(
    folder: Path, data: bytes, *words: str, **variables: str
) -> tuple[int, str, str]:
    """Answer an event within this process, as `run_hook` does in one of its own."""
    done = call_hook(folder, folder.parent, words, data, variables)
    return done.code, done.out, done.err


def call_event(folder: Path, session: str = "one", **more: Any) -> bytes:
    return json.dumps(
        {"session_id": session, "cwd": str(folder), **CALL, **more}
    ).encode()


def log(folder: Path) -> list[str]:
    place = folder.parent / ".heedful" / "hook.log"
    return place.read_text().splitlines() if place.exists() else []


def memory_of(folder: Path) -> Path:
    """Return the memory of a folder, whose user has the folder above as home."""
    with as_user(folder, folder.parent):
        return find_project(folder).db


def rows(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(memory_of(folder))) as db:
        return db.execute(query).fetchall()


def await_gone(pid: int) -> None:
    """Wait until there is no process of this id; a killed one stays for a moment."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    pytest.fail(f"process {pid} runs on")


def await_learning(folder: Path) -> None:
    """Wait until the detached process has learnt from a session."""
    until = time.monotonic() + SECONDS
    learnt: list[Any] = []
    while not learnt:
        assert log(folder) == []
        assert time.monotonic() < until
        time.sleep(0.05)
        learnt = rows(folder, "select * from learnt where steps > 0")


def test_what_one_session_learns_another_is_shown(folder: Path) -> None:
    modules = run_hook(folder, "PreToolUse", call_event(folder), ("-c", MODULES))
    assert modules == (0, "[]\nTrue\n", "")
    failed = call_event(folder, error=ERROR)
    assert run_hook(folder, "PostToolUseFailure", failed) == (0, "", "")
    await_learning(folder)
    code, out, err = run_hook(folder, "PreToolUse", call_event(folder, "two"))
    assert code == 0
    assert err == ""
    assert log(folder) == []
    assert (
        "Cannot find module"
        in json.loads(out)["hookSpecificOutput"]["additionalContext"]
    )


# Which of them is imported: an event loop, and what a passing call teaches nothing of.
SLOW = """import sys
from heedful_agents import hook
hook.main()
print([name for name in ("asyncio", "heedful.lessons.lesson") if name in sys.modules])
"""
LESSONS = "['heedful.lessons.lesson']\n"


@pytest.mark.parametrize(
    ("event", "more", "imported"),
    [
        pytest.param("SessionStart", {"source": "startup"}, LESSONS, id="start"),
        pytest.param("UserPromptSubmit", {"prompt": "Run it."}, LESSONS, id="prompt"),
        pytest.param("PostToolUse", {"tool_response": "3 passed"}, "[]\n", id="result"),
        pytest.param("PostToolUseFailure", {"error": ERROR}, LESSONS, id="failed call"),
        pytest.param("Stop", {}, "[]\n", id="stop"),
        pytest.param("SessionEnd", {}, "[]\n", id="end"),
    ],
)
def test_an_event_needs_no_event_loop(
    folder: Path, event: str, more: Mapping[str, str], imported: str
) -> None:
    answered = run_hook(folder, event, call_event(folder, **more), ("-c", SLOW))
    assert answered == (0, imported, "")


@pytest.mark.both
def test_a_hook_keeps_events_in_either_database(folder: Path) -> None:
    database = url_of(folder / "a.db")
    done = answer(folder, call_event(folder), "PreToolUse", HEEDFUL_DB=database)
    assert done == (0, "", "")
    assert log(folder) == []
    assert [row[0] for row in stored_rows(database, "select type from event")] == [
        "tool_call"
    ]


SESSION = b'{"session_id": "a"}'


@dataclass(frozen=True)
class Failure:
    """An event that cannot be answered, and a part of the reason."""

    event: str
    data: bytes
    why: str
    env: Mapping[str, str] = field(default_factory=dict)


FAILURES = {
    "no event": Failure("PreToolUse", b"", "is not JSON"),
    "a list": Failure("PreToolUse", b"[1]", "is not an object"),
    "too deep": Failure("PreToolUse", b"[" * 200_000, "is not JSON"),
    "too long": Failure("PreToolUse", b'{"a": "' + b"x" * 2**23, "more than"),
    "an unknown event": Failure("Nothing", SESSION, "Nothing"),
    "no session": Failure("Stop", b"{}", "session_id"),
    "a wrong stop": Failure(
        "Stop", SESSION, "hook.stop", env={"HEEDFUL_HOOK": '{"stop": "make"}'}
    ),
    "a wrong deny": Failure(
        "SessionStart", SESSION, "hook.deny", env={"HEEDFUL_HOOK": '{"deny": 1}'}
    ),
    "no place for a database": Failure(
        "PreToolUse", SESSION, "", env={"HEEDFUL_DB": "/dev/null/a.db"}
    ),
    "not JSON": Failure("Stop", SESSION, "'off'; it", env={"HEEDFUL_HOOK": "off"}),
    "not a table": Failure("Stop", SESSION, "is 0; it", env={"HEEDFUL_HOOK": "0"}),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_goes_wrong_is_a_line_in_the_log(case: str, folder: Path) -> None:
    failure = FAILURES[case]
    name = failure.event
    data = failure.data
    why = failure.why
    settle(folder.parent, "")
    code, out, err = answer(folder, data, name, **failure.env)
    assert code == 0
    assert err == ""
    assert len(log(folder)) == 1
    # The user hears that nothing guards the turn.
    is_shown = name in ("Stop", "SessionStart")
    assert bool(out) == is_shown
    assert not is_shown or why in json.loads(out)["systemMessage"]
    code, out, err = answer(folder, data, name, "--strict", **failure.env)
    assert code == 0
    assert bool(out) == is_shown
    assert "Traceback" not in err
    assert why in err
    code, out, _ = answer(folder, data, name, "two", "words")
    assert code == 1  # 2 would block the agent
    assert out == ""


def test_an_event_that_is_too_long_is_read_to_its_end() -> None:
    stream = io.BytesIO(b"x" * (hook.MAX_HOOK_EVENT_BYTES + 2**21))
    with pytest.raises(UsageError, match="has more than"):
        hook.read_event(stream)
    assert stream.read() == b""


def test_a_command_ends_with_the_hook(folder: Path) -> None:
    # It waits a second: then the hook waits for its end.
    settle(
        folder.parent, '[hook]\nstop = ["sleep 1; echo $$ > new; mv new pid; sleep 60"]'
    )
    with start_hook(folder, "Stop") as process:
        assert process.stdin
        process.stdin.write(call_event(folder))
        process.stdin.close()
        while not (folder / "pid").exists():
            assert process.poll() is None, log(folder)
            time.sleep(0.05)
        process.terminate()
        assert process.wait() == 0
    await_gone(int((folder / "pid").read_text()))


def test_no_file_of_the_folder_is_taken_for_a_module(folder: Path) -> None:
    for name in ("json", "queue", "sqlite3", "sitecustomize", "heedful"):
        (folder / f"{name}.py").write_text("open('ran', 'w').close()")
    options = shlex.split(install.command())[1:]
    assert options == ["-P", *HOOK]
    failed = call_event(folder, error=ERROR)
    assert run_hook(folder, "PostToolUseFailure", failed) == (0, "", "")
    await_learning(folder)
    assert not (folder / "ran").exists()


class FullDisk(io.StringIO):
    """A stream to a disk without space."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def closed_stream() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@cases(
    "stdout", {"the disk is full": FullDisk(), "the stream is closed": closed_stream()}
)
def test_a_failure_that_cannot_be_told_is_logged_and_nothing_else(
    stdout: io.StringIO, folder: Path
) -> None:
    stderr = io.StringIO()
    typed = io.TextIOWrapper(io.BytesIO(b"no event"))
    with as_user(folder, folder.parent) as patch:
        patch.setattr(sys, "stdin", typed)
        with redirect_stdout(stdout), redirect_stderr(stderr):
            code = hook.main(["SessionStart"])
    assert code == 0
    assert stderr.getvalue() == ""
    assert len(log(folder)) == 1


def test_a_locked_database_says_nothing(folder: Path) -> None:
    run_hook(folder, "PreToolUse", call_event(folder))
    settle(folder.parent, '[hook]\nstop = ["false"]')
    database = memory_of(folder)
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("begin exclusive")
        for event in ("PreToolUse", "PostToolUse"):
            call = call_event(folder, "two")
            assert run_hook(folder, event, call, HOOK) == (0, "", "")
            assert f" {event}: " in log(folder)[-1]
        # The commands alone decide, once a turn.
        program = patient_hook(lookup_seconds=0.1)
        stop = run_hook(folder, "Stop", call_event(folder), program)
        assert "block" in stop[1]
        again = call_event(folder, stop_hook_active=True)
        stop_again = run_hook(folder, "Stop", again, program)
        assert stop_again == (0, "", "")


def test_an_event_that_does_not_end_is_given_up(folder: Path) -> None:
    with start_hook(folder, "PreToolUse", HOOK) as process:
        assert process.stdin
        process.stdin.write(call_event(folder)[:-1])
        process.stdin.flush()
        assert process.wait(SECONDS) == 0
        assert process.stdout
        assert process.stdout.read() == b""
    [line] = log(folder)
    assert "PreToolUse: no answer within its time limit" in line

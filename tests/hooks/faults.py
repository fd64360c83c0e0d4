"""Faults of heedful under an agent that runs its hooks, and what becomes of a call.

The agent is stricter than any: a call is denied by a denial, by an exit code other than
0 and by an answer that is not JSON, and it waits as long as its settings say.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from heedful.integrations import install
from heedful.integrations.agents import Kind
from heedful.integrations.file_changes import apply_all
from heedful.integrations.install import HOOK_LIMIT_SECONDS
from heedful.store.projects import find_project
from tests.hooks.spoken import is_denial, spoken_by
from tests.hooks.support import as_user, environment, settle

CALL: Mapping[str, Any] = {
    "session_id": "s1",
    "tool_name": "Bash",
    "tool_use_id": "c1",
    "tool_input": {"command": "npm ci"},
    "tool_response": {"output": "ok", "exit_code": 0},
}
_PLUGIN_DRIVER = """
import {{ Heedful }} from {path}
const hooks = await Heedful({{ directory: process.cwd() }})
const call = {{ tool: "bash", sessionID: "s1", callID: "c1" }}
await hooks["tool.execute.before"](call, {{ args: {{ command: "npm ci" }} }})
"""


@dataclass(frozen=True)
class Place:
    """A home and a project in which an agent runs the hooks of heedful."""

    root: Path

    @property
    def folder(self) -> Path:
        """The project."""
        return self.root / "shop"

    @property
    def home(self) -> Path:
        """The home of the user."""
        return self.root / "home"

    @property
    def programs(self) -> Path:
        """A folder of programs, with that of the hooks."""
        return self.root / "programs"

    @property
    def database(self) -> Path:
        with as_user(self.folder, self.home):
            return find_project(self.folder).db


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is wrong with heedful: its program, its variables, its event or its time.

    `script` takes the place of the program; without one it is the real program.
    """

    script: str = ""
    is_absent: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    event: bytes | None = None
    keeps_open: bool = False
    signal: int = 0
    spoil: Callable[[Place], None] = lambda place: None
    locks: bool = False


def _corrupt(place: Place) -> None:
    place.database.write_bytes(b"no database" * 500)


def _break_settings(place: Place) -> None:
    settle(place.home, "[broken")


def _lose_home(place: Place) -> None:
    shutil.rmtree(place.home)
    place.home.write_text("no folder")


FAULTS: Mapping[str, Fault] = {
    "none": Fault(),
    "the program is gone": Fault(is_absent=True),
    "the program fails": Fault(script="echo Traceback >&2; exit 1"),
    "the program exits with 2": Fault(script="echo usage >&2; exit 2"),
    "the program is killed": Fault(script="kill -9 $$"),
    "half an answer": Fault(script="printf '{\"hookSpec'; exit 1"),
    "the program hangs": Fault(script="exec sleep 30"),
    "it hangs after an answer": Fault(script="cat > /dev/null; echo; exec sleep 30"),
    "a broken Python": Fault(variables={"PYTHONHOME": "/nowhere"}),
    "the input does not end": Fault(keeps_open=True),
    "no event": Fault(event=b""),
    "an event that is not JSON": Fault(event=b'{"session_id"'),
    "an event that is a list": Fault(event=b"[1]"),
    "an event without a session": Fault(event=b"{}"),
    "the database is locked": Fault(locks=True),
    "the database is damaged": Fault(spoil=_corrupt),
    "wrong settings": Fault(variables={"HEEDFUL_HOOK": '{"second": 3}'}),
    "settings that are not TOML": Fault(spoil=_break_settings),
    "the home is no folder": Fault(spoil=_lose_home),
    "killed in the middle": Fault(signal=signal.SIGKILL),
    "ended in the middle": Fault(signal=signal.SIGTERM),
}


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a call, and how long it waited."""

    is_denied: bool
    seconds: float
    output: str


@dataclass(frozen=True, kw_only=True)
class Stage:
    """An agent with hooks of heedful in a place, and what it runs before a call and
    after it.
    """

    name: str
    place: Place
    lines: Mapping[Kind, str]
    events: Mapping[Kind, Mapping[str, Any]]


def make_stage(folder: Path, name: str) -> Stage:
    """Install the hooks of an agent in a new home and project."""
    place = Place(folder)
    (place.folder / ".git").mkdir(parents=True)
    place.home.mkdir()
    place.programs.mkdir()
    module = f"exec {sys.executable} -P -m heedful.integrations.hook"
    _write_program(place, f'{module} "$@"')

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place.folder)
        patch.setenv("HOME", str(place.home))
        apply_all([install.plan(name, user=False, run="heedful-hook")])
        commands = install.installed(name, user=False)

    lines: dict[Kind, str] = {}
    events: dict[Kind, Mapping[str, Any]] = {}
    kinds: tuple[Kind, ...] = ("before", "after")
    for kind in kinds:
        event, events[kind] = spoken_by(name, kind, CALL)
        lines[kind] = commands[event] or _plugin_line(place)
    return Stage(name=name, place=place, lines=lines, events=events)


def _write_program(place: Place, script: str) -> None:
    program = place.programs / "heedful-hook"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def _plugin_line(place: Place) -> str:
    """Return a command that calls a plugin as its agent does."""
    [plugin] = place.root.rglob("heedful.ts")
    # Node 20 reads no types.
    module = place.programs / "heedful.mjs"
    module.write_text(re.sub(r": (any|string|object)\b", "", plugin.read_text()))
    driver = place.programs / "driver.mjs"
    driver.write_text(_PLUGIN_DRIVER.format(path=json.dumps(str(module))))
    return f"node {driver}"


def call_tool(
    stage: Stage, fault: Fault, folder: Path, *, kind: Kind = "before", delay: float
) -> Result:
    """Let an agent call a tool while heedful has a fault, in a copy of its place."""
    shutil.copytree(stage.place.root, folder)
    place = Place(folder)
    if fault.script:
        _write_program(place, fault.script)
    if fault.is_absent:
        (place.programs / "heedful-hook").unlink()
    place.database.parent.mkdir(parents=True)
    fault.spoil(place)

    raw = fault.event
    if raw is None:
        raw = json.dumps({**stage.events[kind], "cwd": str(place.folder)}).encode()
    with _locked(place, fault):
        call = _Call(line=stage.lines[kind], raw=raw, delay=delay)
        output, code, seconds = _run(place, fault, call)

    # An agent that ends a hook goes on.
    is_failed = code not in (0, None)
    is_denied = is_failed or is_denial(output)
    return Result(is_denied=is_denied, seconds=seconds, output=output)


@contextmanager
def _locked(place: Place, fault: Fault) -> Iterator[None]:
    """Hold the database, if the fault is that somebody does."""
    if not fault.locks:
        yield
        return
    connection = sqlite3.connect(place.database, isolation_level=None)
    connection.execute("pragma locking_mode = exclusive")
    connection.execute("begin exclusive")
    try:
        yield
    finally:
        connection.close()


@dataclass(frozen=True, kw_only=True)
class _Call:
    """The line that an agent runs, its input, and when a fault happens."""

    line: str
    raw: bytes
    delay: float


def _run(place: Place, fault: Fault, call: _Call) -> tuple[str, int | None, float]:
    """Run a line as an agent does, for as long as its settings allow.

    Returns the output, the exit code or None if its time was up, and the seconds.
    """
    path = f"{place.programs}:{os.environ['PATH']}"
    began = time.monotonic()
    process = subprocess.Popen(
        call.line,
        shell=True,
        cwd=place.folder,
        env=environment(place.home, {"PATH": path, **fault.variables}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    code: int | None = None
    raw: bytes | None = call.raw
    try:
        if fault.keeps_open and process.stdin is not None:
            process.stdin.write(call.raw)
            process.stdin.flush()
            process.wait(HOOK_LIMIT_SECONDS)
            raw = None
        if fault.signal:
            time.sleep(call.delay)
            _signal_hooks(process.pid, fault.signal)
        output, _ = process.communicate(raw, HOOK_LIMIT_SECONDS)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    seconds = time.monotonic() - began
    return output.decode("utf-8", "replace").strip(), code, seconds


def _signal_hooks(session: int, number: int) -> None:
    """Send a signal to the processes of heedful in a session of processes."""
    for folder in Path("/proc").glob("[0-9]*"):
        # A process may end meanwhile.
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            is_own = b"heedful.integrations.hook" in (folder / "cmdline").read_bytes()
            if int(fields[3]) == session and is_own:
                os.kill(int(folder.name), number)

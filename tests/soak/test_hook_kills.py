"""Hooks of a coding agent that are killed in the middle: what the agent saw a hook end
is kept once, and a session teaches once.

An agent whose hook is killed goes on without an answer. It does not send the event
again, so only events whose hooks ended count as acknowledged.
"""

import json
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from conftest import SOAK
from tests.hooks.stages import Place
from tests.hooks.support import environment, patient_hook
from tests.soak.databases import HEALTHY
from tests.soak.ledger import Counts, Ledger

pytestmark = [pytest.mark.soak, pytest.mark.nightly]
SESSIONS = SOAK
KILLED_SHARE = 0.6  # of the processes of hooks
MAX_WORK_KILLS = 3  # of the work that a session leaves
MAX_DELAY_SECONDS = 0.01  # from a write to a kill
POLL_SECONDS = 0.001
# A busy machine may need more than the time limits of hooks.
HOOK = (sys.executable, "-P", *patient_hook(lookup_seconds=600.0))
# The same with its first stage, which ends at what is silent.
FIRST_STAGE = f"""
from heedful_agents import hook_start, session_hooks
{HOOK[-1].replace("hook.run()", "hook_start.run()")}
"""
AT_ONCE = 8  # sessions of the project
QUIET_CALLS = 12 * SOAK  # of each session
BAD = {"command": "npx jest --ci pads"}
GOOD = {"command": "npx jest --ci --config jest.json"}
ERROR = 'Exit code 1\nError: Cannot find module "pads"'
FINE = {"stdout": "ok", "stderr": "", "interrupted": False}


@dataclass(kw_only=True)
class Project:
    """A repository in which an agent runs hooks, some of which are killed."""

    place: Place
    chance: random.Random
    kills: int = 0
    at_work: int = 0
    usual_seconds: float = 0.2
    # The sessions, types and calls of events whose hooks ended.
    acknowledged: set[tuple[str, str, str]] = field(default_factory=set)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return what a statement finds; at first there may be no database."""
        database = self.place.database
        if not database.exists():
            return []
        with closing(sqlite3.connect(database)) as db:
            return db.execute(sql).fetchall()

    def send(
        self, session: str, event: str, kind: str, data: Mapping[str, Any]
    ) -> None:
        """Send an event of a call; its hook may be killed."""
        is_killed = self.chance.random() < KILLED_SHARE
        message = {"session_id": session, "cwd": str(self.place.folder), **data}
        if self.run(event, message=message, is_killed=is_killed):
            self.acknowledged.add((session, kind, data["tool_use_id"]))

    def work(self, session: str) -> None:
        """Do the work that the end of a session leaves, after a few kills."""
        arguments = ("end", "--work", session)
        for _ in range(self.chance.randint(0, MAX_WORK_KILLS)):
            self.run(*arguments, is_killed=True)
        assert self.run(*arguments, is_killed=False)

    def run(
        self, *arguments: str, message: Any = None, is_killed: bool = False
    ) -> bool:
        """Run a hook; return True if it ended by itself and logged no failure."""
        logged = self.log_size()
        written = self.written()
        began = time.monotonic()
        with subprocess.Popen(
            [*HOOK, *arguments],
            cwd=self.place.folder,
            env=environment(self.place.home),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdin is not None
            process.stdin.write(json.dumps(message))
            process.stdin.close()
            if is_killed:
                self.wait_for_moment(process, written)
                is_running = process.poll() is None
                process.kill()
                self.kills += is_running
                self.at_work += is_running and self.written() != written
        if not is_killed:
            self.usual_seconds = time.monotonic() - began
        return process.returncode == 0 and self.log_size() == logged

    def wait_for_moment(self, process: subprocess.Popen[str], written: object) -> None:
        """Wait for a write to the database and a little longer, or for any moment."""
        if self.chance.random() < 0.25:
            time.sleep(self.chance.random() * self.usual_seconds)
            return
        while self.written() == written and process.poll() is None:
            time.sleep(POLL_SECONDS)
        time.sleep(self.chance.random() * MAX_DELAY_SECONDS)

    def written(self) -> object:
        """Return what changes when something is written to the database."""
        database = self.place.database
        log = database.with_name(f"{database.name}-wal")
        if not log.exists():
            return None
        status = log.stat()
        return status.st_size, status.st_mtime_ns

    def log_size(self) -> int:
        log = self.place.home / ".heedful" / "hook.log"
        return log.stat().st_size if log.exists() else 0


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(place=Place.make(tmp_path), chance=random.Random(SOAK))


def live(project: Project, session: str) -> None:
    """Let an agent make a call that fails, and one that puts it right."""
    failing = {"tool_name": "Bash", "tool_input": BAD, "tool_use_id": f"{session} bad"}
    right = {"tool_name": "Bash", "tool_input": GOOD, "tool_use_id": f"{session} good"}
    project.send(session, "PreToolUse", "tool_call", failing)
    failing["error"] = ERROR
    project.send(session, "PostToolUseFailure", "tool_response", failing)
    right["tool_response"] = FINE
    project.send(session, "PostToolUse", "tool_response", right)


def test_killed_hooks_keep_what_they_answered_and_a_session_teaches_once(
    project: Project, ledger: Ledger
) -> None:
    counts = Counts()
    failed = set()
    for number in range(SESSIONS):
        session = f"session {number}"
        live(project, session)
        events = project.rows("select session, type, call from event")
        keys = {key for key in project.acknowledged if key[0] == session}
        counts.lost += len(keys - set(events))
        counts.doubled += len(events) - len(set(events))
        if (session, "tool_response", f"{session} bad") in events:
            failed.add(f"episode:{session}")
        project.work(session)
        assert project.rows("select * from event") == []
    sightings = project.rows("select lesson_id, source from occurrence")
    counts.doubled += len(sightings) - len(set(sightings))
    taught = {source for _, source in sightings}
    print(taught, failed)
    counts.lost += len(failed - taught)
    assert project.rows("pragma integrity_check") == HEALTHY
    ledger.settle(
        what="kill -9 of hooks of a coding agent, and of the work after a session",
        engine="SQLite",
        times=project.kills,
        at_work=project.at_work,
        lost=counts.lost,
        doubled=counts.doubled,
    )


def look(
    project: Project, session: str, chance: random.Random
) -> list[tuple[str, str]]:
    """Let an agent make silent calls; return the events whose hooks ended."""
    acknowledged: list[tuple[str, str]] = []

    def send(event: str, fields: Mapping[str, Any]) -> bool:
        """Send an event to its first stage; return True if it was not killed."""
        with subprocess.Popen(
            [sys.executable, "-P", "-c", FIRST_STAGE, event],
            cwd=project.place.folder,
            env=environment(project.place.home),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdin is not None
            head = {"session_id": session, "cwd": str(project.place.folder)}
            process.stdin.write(json.dumps({**head, **fields}))
            process.stdin.close()
            if "tool_use_id" in fields and chance.random() < KILLED_SHARE:
                time.sleep(chance.random() * project.usual_seconds)
                project.kills += process.poll() is None
                process.kill()
        return process.returncode == 0

    assert send("SessionStart", {"source": "startup"})
    for number in range(QUIET_CALLS):
        call = {"tool_name": "Bash", "tool_input": {"command": f"ls {number}"}}
        name = f"{session}-{number}"
        fields = {**call, "tool_use_id": name}
        if send("PreToolUse", fields):
            acknowledged.append(("tool_call", name))
        if send("PostToolUse", {**fields, "tool_response": FINE}):
            acknowledged.append(("tool_response", name))
        if chance.random() < 0.1:
            assert send("UserPromptSubmit", {"prompt": "Go on."})
    assert send("UserPromptSubmit", {"prompt": "Go on."})
    return acknowledged


def test_killed_first_stages_keep_what_they_answered(
    project: Project, ledger: Ledger
) -> None:
    acknowledged: dict[str, list[tuple[str, str]]] = {}

    def work(session: str) -> None:
        acknowledged[session] = look(project, session, random.Random(session))

    names = [f"s{number}" for number in range(AT_ONCE)]
    threads = [threading.Thread(target=work, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(acknowledged) == names
    counts = Counts()
    stored_events = project.rows("select type, call from event where call <> ''")
    for events in acknowledged.values():
        counts.lost += len(set(events) - set(stored_events))
    counts.doubled += len(stored_events) - len(set(stored_events))
    assert project.rows("pragma integrity_check") == HEALTHY
    ledger.settle(
        what="kill -9 of the first stage of hooks, in eight sessions at once",
        engine="SQLite",
        times=project.kills,
        at_work=project.kills,
        lost=counts.lost,
        doubled=counts.doubled,
    )

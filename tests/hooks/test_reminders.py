"""`heedful hook status` says in one line what reminders did; all faces agree."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heedful import Memory
from heedful.episodes.episode import Event
from heedful.integrations import Host
from heedful.lessons.holdout import SessionTally
from heedful.lessons.lesson import Scope
from heedful.store import reminders
from heedful.store.store import Store
from tests.hooks.homes import FAILED, Home, fail_and_mend, run_command
from tests.hosts import patient_host

ERROR = "npm ERR! error: missing script: build"
COMMAND = {"command": "npm run build"}


async def call(host: Host, session: str, *results: str | None) -> None:
    """Ask before a call once for each of its `results`; "" is a success.

    With None, the call is not made. "other" stands for a call of another program.
    """
    run = host.run(session, "build the app")
    for number, error in enumerate(results):
        name = f"c{number}"
        is_other = error == "other"
        await run.before("Bash", {"command": "ls"} if is_other else COMMAND, name)
        if is_other:
            await run.learn(Event("tool_response", "a", tool="Bash", call=name))
            continue
        if error is None:
            continue
        if error:
            await run.seen("Bash", error, name)
        else:
            await run.learn(Event("tool_response", "ok", tool="Bash", call=name))
    await run.learn(ends="partial")


async def read_figures(store: Store) -> SessionTally:
    return await store.read(Scope(), reminders.figures)


@pytest.mark.both_nightly
@pytest.mark.parametrize(
    ("results", "name"),
    [
        pytest.param(("",), "right", id="the call worked"),
        pytest.param((ERROR,), "again", id="the call failed as it was told"),
        pytest.param((ERROR, ""), "again", id="it was put right afterwards"),
        pytest.param((ERROR, ERROR), "again", id="a later call failed, too"),
        pytest.param((None,), "other", id="no call came after it"),
        pytest.param((None, "other"), "right", id="the call was not made"),
    ],
)
async def test_a_reminder_ends_by_what_becomes_of_the_call(
    results: tuple[str | None, ...], name: str, store: Store
) -> None:
    memory = Memory(store, holdout=0.0)
    host = patient_host(memory=memory, strict=True)
    for session in ("one", "two"):
        await call(host, session, ERROR, ERROR)
    before = await read_figures(store)
    await call(host, "three", *results)
    after = await read_figures(store)
    names = ("right", "again", "other")
    ended = {key: getattr(after, key) - getattr(before, key) for key in names}
    assert ended == {**dict.fromkeys(names, 0), name: 1}


def repeat_failure(home: Home, session: str) -> None:
    """Let the same call fail twice in a session, and end it."""
    home.event("SessionStart", session_id=session, source="startup")
    for number in ("1", "2"):
        for name in ("PreToolUse", "PostToolUseFailure"):
            home.event(name, session_id=session, tool_use_id=number, **FAILED)
    home.event("SessionEnd", session_id=session, reason="other")


def start(home: Home, **data: Any) -> dict[str, Any]:
    """Start a session; return the answer of the hook."""
    _, output, _ = home.event("SessionStart", **{"source": "startup", **data})
    return json.loads(output) if output else {}


def test_the_status_says_what_reminders_did(home: Home) -> None:
    run_command(home, "hook install --yes")
    fail_and_mend(home)
    repeat_failure(home, "tuesday")
    assert "systemMessage" not in start(home, session_id="wednesday")
    told = "in all: shown 1: 0 right, 1 again, 0 other; 2 calls lost to known mistakes"
    assert told in run_command(home, "hook status")


def read_document(home: Home, line: str) -> Any:
    """Return what a command prints as JSON."""
    output = run_command(home, line)
    return json.loads(output[output.index("{") :])


def test_every_face_counts_the_same_of_a_lesson(home: Home) -> None:
    run_command(home, "hook install --yes")
    fail_and_mend(home)
    repeat_failure(home, "tuesday")
    start(home, session_id="wednesday")
    home.event(
        "UserPromptSubmit", session_id="wednesday", prompt="never use pip, use uv"
    )
    home.event("SessionEnd", session_id="wednesday", reason="other")
    start(home, session_id="thursday")
    home.event("SessionEnd", session_id="thursday", reason="other")

    lessons = read_document(home, "lessons --json")["lessons"]
    proof = read_document(home, "proof --json")
    status = read_document(home, "hook status --json")
    rule, mistake = sorted(lessons, key=lambda lesson: lesson["trust"] != "user")
    assert mistake["shown"] == {"shown": 1, "right": 0, "again": 1, "other": 0}
    # A session without a call that could show it has no verdict.
    assert rule["shown"] == {"shown": 1, "right": 0, "again": 0, "other": 1}
    assert [lesson["loops"] for lesson in proof["lessons"]] == [mistake["shown"]]
    assert proof["ended"] == 1
    total = status["reminders"]
    assert proof["reminders"] == status["reminders"]
    for name in ("shown", "right", "again", "other"):
        assert total[name] == rule["shown"][name] + mistake["shown"][name]

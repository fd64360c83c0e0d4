"""What is told before a call: what failed and has not worked since."""

from __future__ import annotations

from typing import Any

import pytest

import heedful
from heedful.episodes.episode import Event
from heedful.integrations.host import HostRun
from tests.hosts import patient_host
from tests.memory.agent_sessions import UNREAD, learn, step
from tests.tables import cases

pytestmark = pytest.mark.both_nightly
ABSENT = "File does not exist."
PATH = {"file_path": "/r/docs/api.md"}
UNKNOWN = "error: unknown option '--up'"
BROKEN = "make: *** No rule to make target"


async def told(memory: heedful.Memory, tool: str, arguments: Any) -> list[str]:
    history = await memory.before(tool, arguments, folder="/r")
    return [failure.kind for failure in history.failures]


class Session:
    """A session of an agent that goes on, as its hooks see it."""

    def __init__(self, memory: heedful.Memory, id: str) -> None:
        host = patient_host(memory=memory, strict=True, root="/r")
        self.run: HostRun = host.run(id, "work")
        self.count = 0

    async def call(self, tool: str, arguments: Any, error: str = "") -> str:
        """Make a call; return what is told before it."""
        self.count += 1
        call = f"c{self.count}"
        advice = await self.run.before(tool, arguments, call)
        if error:
            await self.run.seen(tool, error, call)
        else:
            await self.run.learn(Event("tool_response", "ok", tool=tool, call=call))
        return advice.text


@cases(
    "tool, arguments, error, runs, kinds",
    {
        "a call": ("Skill", {"skill": "x"}, "No skill", 1, ["call"]),
        "a command, once": ("Bash", "make x", BROKEN, 1, []),
        "a command, twice": ("Bash", "make x", BROKEN, 2, ["command"]),
        "a name, once": ("Bash", "npm i --up", UNKNOWN, 1, ["name"]),
    },
)
async def test_what_failed_is_told(memory, tool, arguments, error, runs, kinds):
    for number in range(runs):
        await learn(memory, f"s{number}", step(tool, arguments, error))
    assert await told(memory, tool, arguments) == kinds
    await learn(memory, "works", step(tool, arguments))
    assert await told(memory, tool, arguments) == []


async def test_a_failure_is_told_in_every_checkout(memory):
    await learn(memory, "s1", step("Read", PATH, ABSENT))
    elsewhere = {"file_path": "/q/docs/api.md"}
    history = await memory.before("Read", elsewhere, folder="/q")
    assert ABSENT in history.failures[0].text
    assert await told(memory, "Read", {"file_path": "/r/web/docs/api.md"}) == []


async def test_a_name_that_ever_worked_is_not_marked(memory):
    await learn(memory, "s1", step("Bash", "npm run --up"))
    await learn(memory, "s2", step("Bash", "npm i --up", UNKNOWN))
    assert await told(memory, "Bash", "npm ci --up") == []


async def test_a_call_that_failed_again_is_told_again(memory):
    fails = step("Skill", {"skill": "x"}, "No skill")
    await learn(memory, "s1", fails, step("Skill", {"skill": "x"}))
    assert await told(memory, "Skill", {"skill": "x"}) == []
    await learn(memory, "s2", fails)
    assert await told(memory, "Skill", {"skill": "x"}) == ["call"]


async def test_nothing_waits_for_the_end_of_a_session(memory):
    await Session(memory, "s1").call("Read", PATH, ABSENT)
    other = Session(memory, "s2")
    assert "docs/api.md" in await other.call("Read", PATH)
    assert await told(memory, "Read", PATH) == []


async def test_a_session_is_told_once_and_not_what_it_did_itself(memory):
    first = Session(memory, "s1")
    await first.call("Read", PATH, ABSENT)
    assert await first.call("Read", PATH, ABSENT) == ""
    second = Session(memory, "s2")
    assert await second.call("Read", PATH, ABSENT)
    assert await second.call("Read", PATH, ABSENT) == ""


async def test_a_contract_is_told_once_another_session_broke_it(memory):
    edit = {"file_path": "/r/a.py", "old_string": "x", "new_string": "y"}
    for name, is_told in (("s1", False), ("s2", True)):
        session = Session(memory, name)
        for number in range(5):
            await session.call("Read", {"file_path": f"/r/{number}.py"})
        advice = await session.call("Edit", edit, UNREAD)
        assert ("Read the file" in advice) is is_told


async def test_a_run_of_a_revoked_source_is_forgotten(memory):
    await learn(memory, "s1", step("Read", PATH, ABSENT))
    await memory.quarantine.revoke("episode:s1", by="ada")
    assert await told(memory, "Read", PATH) == []

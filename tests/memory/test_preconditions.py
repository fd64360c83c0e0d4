"""What a call takes for granted: learnt from sessions, told before a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.episodes.episode import Event
from heedful.integrations.host import HostRun
from heedful.store import preconditions
from tests.hosts import patient_host
from tests.memory.agent_sessions import UNREAD, learn, step
from tests.trusted import OWN

pytestmark = pytest.mark.both_nightly
TRUST: Any = OWN
ABSENT = "File does not exist."


@pytest.fixture
def memory(store: Any) -> heedful.Memory:
    return heedful.Memory(store, trust=TRUST, holdout=0.0)


async def announced(memory: heedful.Memory, tool: str, arguments: Any) -> list[str]:
    history = await memory.before(tool, arguments, folder="/r")
    return [failure.about for failure in history.failures]


def read(path: str) -> dict[str, str]:
    return {"file_path": path}


async def test_an_absent_path_is_known_in_every_checkout(
    memory: heedful.Memory,
) -> None:
    await learn(memory, "s1", step("Read", read("/r/docs/api.md"), ABSENT))
    assert await announced(memory, "Read", read("/r/docs/api.md")) == [
        "the path `docs/api.md`"
    ]
    elsewhere = await memory.before("Read", read("/q/docs/api.md"), folder="/q")
    assert len(elsewhere.failures) == 1
    assert await announced(memory, "Read", read("/r/web/docs/api.md")) == []


async def test_a_pass_retires_it(memory: heedful.Memory) -> None:
    await learn(memory, "s1", step("Read", read("/r/docs/api.md"), ABSENT))
    await learn(memory, "s2", step("Read", read("/r/docs/api.md")))
    assert await announced(memory, "Read", read("/r/docs/api.md")) == []


async def test_a_failed_test_blames_nothing_on_a_generic_command(
    memory: heedful.Memory,
) -> None:
    for number in range(4):
        failed = step("Bash", "make test", "FAILED tests/test_a.py::test_b - boom")
        await learn(memory, f"s{number}", failed)
    assert await announced(memory, "Bash", "make test") == []


async def test_a_whole_command_is_announced_once_two_sessions_failed(
    memory: heedful.Memory,
) -> None:
    for number, about in enumerate(([], [], ["the command `npm run build`"])):
        assert await announced(memory, "Bash", "npm run build") == about
        failed = step("Bash", "npm run build", 'Error: Cannot find module "pads"')
        await learn(memory, f"s{number}", failed)

    await learn(memory, "passed", step("Bash", "npm run build"))
    assert await announced(memory, "Bash", "npm run build") == []


async def test_a_refused_call_is_no_failure(memory: heedful.Memory) -> None:
    refused = "The user doesn't want to proceed with this tool use. 'up' was rejected."
    await learn(memory, "s1", step("Bash", "git push --up", refused))
    assert await announced(memory, "Bash", "git push --up") == []


async def test_a_project_that_proves_a_form_wrong_is_told_it_no_more(
    memory: heedful.Memory,
) -> None:
    for number in range(60):
        word = f"--up{number}"
        failed = step("Bash", f"tool run {word}", f"unknown option '{word}'")
        await learn(memory, f"a{number}", failed)
        await learn(memory, f"b{number}", step("Bash", f"tool run {word}"))
    await learn(memory, "last", step("Bash", "tool run --on", "unknown option '--on'"))
    assert await announced(memory, "Bash", "tool run --on") == []


async def test_a_mistake_of_the_contract_is_told_before_anything_is_learnt(
    memory: heedful.Memory,
) -> None:
    edit = {"file_path": "/r/a.py", "old_string": "x = 1\n", "new_string": "x = 1\n"}
    [subject] = await announced(memory, "Edit", edit)
    assert subject == "Edit with two equal texts"


class Session:
    """A session of an agent that goes on, as its hooks see it."""

    def __init__(self, memory: heedful.Memory, id: str) -> None:
        self.run: HostRun = patient_host(memory=memory, strict=True, root="/r").run(
            id, "work"
        )
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


EDIT = {"file_path": "/r/a.py", "old_string": "x", "new_string": "y"}


async def test_an_edit_of_an_unread_file_is_told_once_a_session(
    memory: heedful.Memory,
) -> None:
    session = Session(memory, "s1")
    for number in range(5):
        assert await session.call("Read", read(f"/r/{number}.py")) == ""
    assert "not read" in await session.call("Edit", EDIT, UNREAD)
    assert await session.call("Edit", {**EDIT, "file_path": "/r/b.py"}, UNREAD) == ""


async def test_an_edit_of_an_unread_file_is_told_no_read_of_another_file(
    memory: heedful.Memory,
) -> None:
    steps = [step("Read", read(f"/r/{number}.py")) for number in range(5)]
    mended = [
        step("Edit", EDIT, UNREAD),
        step("Read", read("/r/a.py")),
        step("Edit", EDIT),
    ]
    for name in ("s1", "s2"):
        await learn(memory, name, *steps, *mended)
    session = Session(memory, "s3")
    for number in range(5):
        await session.call("Read", read(f"/r/{number}.py"))
    told = await session.call("Edit", {**EDIT, "file_path": "/r/b.py"}, UNREAD)
    assert "Read a file before you edit it" in told
    assert "a.py" not in told


async def test_an_edit_of_a_read_file_is_fine_until_the_context_is_lost(
    memory: heedful.Memory,
) -> None:
    session = Session(memory, "s1")
    for name in ("a", "b", "c", "d", "e", "f"):
        await session.call("Read", read(f"/r/{name}.py"))
    assert await session.call("Edit", EDIT) == ""
    await session.run.learn(Event("system_event", code="compact"))
    for name in ("b", "c", "d", "e", "f"):
        await session.call("Read", read(f"/r/{name}.py"))
    assert "not read" in await session.call("Edit", EDIT, UNREAD)


async def test_what_passed_in_a_session_is_not_told_in_it(
    memory: heedful.Memory,
) -> None:
    await learn(memory, "s1", step("Read", read("/r/docs/api.md"), ABSENT))
    session = Session(memory, "s2")
    await session.run.learn(
        Event("tool_call", tool="Read", arguments=read("/r/docs/api.md"), call="x"),
        Event("tool_response", "text", tool="Read", call="x"),
    )
    assert await session.call("Read", read("/r/docs/api.md")) == ""
    other = Session(memory, "s3")
    assert "docs/api.md" in await other.call("Read", read("/r/docs/api.md"), ABSENT)


async def test_what_only_this_session_taught_is_no_news_to_it(
    memory: heedful.Memory,
) -> None:
    session = Session(memory, "s1")
    assert await session.call("Read", read("/r/docs/api.md"), ABSENT) == ""
    await session.run.study()
    assert await session.call("Read", read("/r/docs/api.md"), ABSENT) == ""
    other = Session(memory, "s2")
    assert "docs/api.md" in await other.call("Read", read("/r/docs/api.md"), ABSENT)


async def test_nothing_is_left_when_the_memory_is_cleared(
    memory: heedful.Memory,
) -> None:
    await learn(memory, "s1", step("Read", read("/r/docs/api.md"), ABSENT))
    await learn(memory, "s2", step("Read", read("/r/docs/api.md"), ABSENT))
    assert await memory.store.read(memory.scope, preconditions.read_tests)
    await memory.clear()
    assert await announced(memory, "Read", read("/r/docs/api.md")) == []
    assert not await memory.store.read(memory.scope, preconditions.read_tests)


async def test_another_project_is_told_nothing(
    memory: heedful.Memory, tmp_path: Path
) -> None:
    await learn(memory, "s1", step("Read", read("/r/docs/api.md"), ABSENT))
    other = heedful.Memory(memory.store, heedful.Scope("local", "other"))
    assert await announced(other, "Read", read("/r/docs/api.md")) == []


async def test_an_error_that_names_a_place_blames_no_other(
    memory: heedful.Memory,
) -> None:
    error = "cat: conf/shop.yml: No such file or directory"
    for number in range(2):
        await learn(
            memory,
            f"s{number}",
            step("Bash", f"ls data/{number} && cat conf/shop.yml", error),
        )
    assert (await memory.before("Bash", "cat conf/shop.yml")).failures
    assert not (await memory.before("Bash", "ls data/7")).failures

"""A session that repeats a lesson: what it teaches goes with the lesson's source."""

from __future__ import annotations

from pathlib import Path

import pytest

from heedful import Memory
from heedful.episodes.episode import Event
from heedful.integrations.host import HostRun
from tests.fix_of_page import BAD, ERROR, FIX, PAGE, amend, drive_fix, memory_in
from tests.hosts import patient_host

OTHER_FIX = f"{FIX} --ci"


async def fail(memory: Memory, name: str) -> tuple[HostRun, str]:
    """Return a run that has failed, and what it was told."""
    run = patient_host(memory=memory, strict=True).run(name, "run the tests")
    advices = [await run.recall()]
    advices.append(await run.before("shell", {"command": BAD}, "1"))
    advices.append(await run.seen("shell", ERROR, "1"))
    return run, "\n".join(advice.text for advice in advices)


@pytest.mark.parametrize("fix", [FIX, OTHER_FIX], ids=["same words", "more words"])
@pytest.mark.parametrize("ends", ["before", "after"])
async def test_what_a_session_repeats_goes_with_the_source(
    ends: str, fix: str, tmp_path: Path
) -> None:
    memory = memory_in(tmp_path)
    page = Event("tool_response", PAGE, tool="fetch", call="0")
    first = await drive_fix(memory, events=[page])
    await first.learn(ends="success")
    waiting = await memory.quarantine.waiting()
    ids = [entry.id for entry in waiting]
    await memory.quarantine.release(ids, by="ann")

    run, advice = await fail(memory, "two")
    assert "evil.js" in advice
    await run.before("shell", {"command": fix}, "2")
    passed = Event("tool_response", "1 passed", tool="shell", call="2")
    await run.learn(passed)
    if ends == "before":
        await run.learn(ends="success")
    await memory.quarantine.revoke("episode:one", by="ann", why="hostile")
    if ends == "after":
        await run.learn(ends="success")

    _, advice = await fail(memory, "three")
    assert "evil.js" not in advice


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"retired": True}, id="retired"),
        pytest.param({"text": "Run the tests with make test."}, id="reworded"),
    ],
)
async def test_what_a_person_took_back_is_not_told(
    change: dict[str, bool | str], tmp_path: Path
) -> None:
    memory = memory_in(tmp_path)
    run = await drive_fix(memory)
    await run.learn(ends="success")
    (lesson,) = (await memory.seen("", ERROR)).lessons
    await amend(memory, lesson["id"], **change)
    run, advice = await fail(memory, "two")
    assert "evil.js" not in advice

    # A session that finds the same fix again does not bring it back.
    await run.before("shell", {"command": FIX}, "2")
    await run.learn(Event("tool_response", "1 passed", tool="shell", call="2"))
    await run.learn(ends="success")
    _, advice = await fail(memory, "three")
    assert "evil.js" not in advice

"""A lesson about calls becomes a warning before the call, never a denial."""

import json
from typing import Any

import pytest

from heedful.lessons.lesson import Example
from heedful.lessons.lesson_check import LessonCheck
from heedful.memory.hardening import LessonChecks
from heedful.memory.memory import Memory
from heedful.store.store import Store
from tests.hooks.test_session_hooks import send_event

FIX = "Use pnpm: this repository has no package-lock.json."
COMMAND = {"tool_name": "Bash", "tool_input": {"command": "npm test -- --watch"}}


pytestmark = pytest.mark.both_nightly


@pytest.fixture
def memory(store: Store) -> Memory:
    """A memory that withholds nothing."""
    return Memory(store, holdout=0.0)


async def harden(memory: Memory, tool: str = "Bash") -> LessonCheck:
    """Remember what was rejected and accepted; let it become a check."""
    await remember(memory, tool, rejected="npm test", accepted="pnpm test")
    lesson = await remember(
        memory, tool, rejected="npm run build", accepted="pnpm run build"
    )
    return await LessonChecks(memory).propose(lesson)


async def remember(memory: Memory, tool: str, rejected: str, accepted: str) -> int:
    """Remember a call that was rejected, and the one that was accepted."""
    remembered = await memory.remember(
        tool,
        "npm is not used here",
        lesson=FIX,
        example=Example(f"do {accepted}", accepted, rejected=rejected),
    )
    return remembered.id


async def call(memory: Memory, works: bool, session: str = "one", **fields: Any) -> str:
    """Make a call in a session that ends; return what the hook says before it."""
    head = {"session_id": session, "tool_use_id": "t1", **COMMAND, **fields}
    before = await send_event(memory, "before", "claude-code", head)
    result = {"output": "ok", "exit_code": 0}
    if works:
        await send_event(
            memory,
            "after",
            "claude-code",
            head,
            tool_response=result,
        )
    await send_event(memory, "end", "claude-code", {"session_id": session})
    return json.dumps(before.answer)


async def test_a_call_is_warned_of_and_not_denied(memory: Memory) -> None:
    check = await harden(memory)
    assert check.state == "accepted"
    assert check.kind == "call"
    warning = await call(memory, works=False)
    assert FIX in warning
    assert "facts to weigh" in warning
    assert "deny" not in warning
    [measured] = await LessonChecks(memory).list()
    assert measured.hits == 1
    assert measured.false_alarms == 0


async def test_a_call_that_works_in_spite_of_it_is_a_false_alarm(
    memory: Memory,
) -> None:
    await harden(memory)
    await call(memory, works=True)
    [measured] = await LessonChecks(memory).list()
    assert measured.hits == 1
    assert measured.false_alarms == 1
    assert measured.state == "retired"
    assert FIX not in await call(memory, works=False, session="two")

"""Who is told: a session, an agent in it, and what it still remembers."""

from typing import Any

import pytest

from heedful.memory.memory import Memory
from tests.hooks.sessions import Session, context_of
from tests.tables import cases

pytestmark = pytest.mark.both_nightly

COMMAND = "make migrate"
NO_RULE = "make: *** No rule to make target 'migrate'.  Stop."
FIX = "make db-migrate"
FORGETTING = ("compact", "clear", "resume")


@pytest.fixture
def memory(store: Any) -> Memory:
    return Memory(store, holdout=0.0)


async def learn(memory: Memory) -> None:
    """Learn a session in which another call put the command right."""
    session = Session(memory, "earlier")
    await session.call("Bash", COMMAND, NO_RULE)
    await session.call("Bash", FIX)
    await session.send("end")


async def before(session: Session, **fields: Any) -> str:
    """Begin the call; return what its agent is shown before it runs."""
    session.calls += 1
    answer = await session.send(
        "before",
        tool_name="Bash",
        tool_input={"command": COMMAND},
        tool_use_id=f"{session.id}{session.calls}",
        **fields,
    )
    return context_of(answer)


async def test_a_session_is_told_once(memory: Memory) -> None:
    await learn(memory)
    session = Session(memory, "two")
    assert FIX in await before(session)
    assert await before(session) == ""


@cases("source", {source: source for source in FORGETTING})
async def test_a_session_that_forgot_is_told_again(memory: Memory, source: str) -> None:
    await learn(memory)
    session = Session(memory, "two")
    await before(session)
    await session.start(source)
    assert FIX in await before(session)


@cases("source", {source: source for source in FORGETTING})
async def test_a_session_that_forgot_is_told_what_it_did(
    memory: Memory, source: str
) -> None:
    session = Session(memory, "one")
    await session.call("Bash", COMMAND, NO_RULE)
    await session.call("Bash", FIX)
    assert await before(session) == ""
    await session.start(source)
    assert FIX in await before(session)


async def test_a_subagent_is_told_what_its_session_was_told(memory: Memory) -> None:
    await learn(memory)
    session = Session(memory, "two")
    await before(session)
    assert FIX in await before(session, agent_id="a1", agent_type="Explore")
    assert FIX in await before(session, agent_id="a2", agent_type="Explore")
    assert await before(session, agent_id="a2", agent_type="Explore") == ""


@cases(
    "agent, is_told",
    {
        "who met it": ("a1", False),
        "another subagent": ("a2", True),
        "the session itself": ("", True),
    },
)
async def test_what_an_agent_of_a_session_met_the_others_are_told(
    memory: Memory, agent: str, is_told: bool
) -> None:
    session = Session(memory, "one")
    for command, error in ((COMMAND, NO_RULE), (FIX, "")):
        call: dict[str, Any] = {
            "tool_name": "Bash",
            "tool_input": {"command": command},
            "tool_use_id": command,
            "agent_id": "a1",
        }
        await session.send("before", **call)
        if error:
            await session.send("failed", **call, error=error)
        else:
            await session.send("after", **call, tool_response={"stdout": "ok"})
    fields = {"agent_id": agent} if agent else {}
    assert bool(await before(session, **fields)) is is_told


RED = {
    "jest": (
        " FAIL  src/tax.test.ts\n  ● tax › rounds half up\n\n"
        "    expect(received).toBe(expected) // Object.is equality\n\n"
        "    Expected: 12.35\n    Received: 12.34\n\n"
        "Tests:       1 failed, 5 passed, 6 total\n"
    ),
    "pytest": (
        "E       assert 12.34 == 12.35\n"
        "FAILED tests/test_tax.py::test_half - assert 12.34 == 12.35\n"
    ),
    "tsc": "src/tax.ts(4,7): error TS2322: Type 'string' is not assignable.\n",
}


@cases("error", RED)
async def test_the_work_that_was_wrong_is_not_announced(
    memory: Memory, error: str
) -> None:
    for name in ("one", "two"):
        session = Session(memory, name)
        await session.call("Bash", "npm test", error)
        await session.send("end")
    session = Session(memory, "three")
    assert await session.call("Bash", "npm test") == ("", "")

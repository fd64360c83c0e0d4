"""The hooks of coding agents: what they answer and learn."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from heedful import Memory
from heedful.store import loops, reminders
from heedful.store.sqlite import in_file
from heedful_agents.agents import AGENTS
from heedful_agents.session_hooks import HookSettings, Reply, reply
from heedful_agents.session_work import work
from tests.hooks.spoken import is_denial, spoken_by
from tests.hosts import patient_host
from tests.tables import cases

# A plugin cannot hold up the end of a turn.
PLUGINS = ("opencode",)
ERROR = 'Exit code 1\nError: Cannot find module "pads"'
BAD = "npx jest --ci pads"
GOOD = "npx jest --ci --config jest.json"
CALL: Any = {"tool_name": "Bash", "tool_input": {"command": BAD}, "tool_use_id": "t1"}
FINE = {"stdout": "ok", "stderr": "", "interrupted": False}


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(in_file(str(tmp_path / "memory.db")), holdout=0.0)


async def send_event(
    memory: Memory,
    kind: Any,
    agent: str = "claude-code",
    data: Mapping[str, Any] = {},
    **fields: Any,
) -> Reply:
    """Send an event as the agent would, and do the work that is left."""
    head = {"session_id": "one", "cwd": "/", "permission_mode": "plan"}
    content = {**head, **data, **fields}
    settings = HookSettings(**content.pop("settings", {}))
    name, message = spoken_by(agent, kind, content)
    host = patient_host(memory=memory, strict=True)
    answer = await reply(name, message, host, agent=agent, settings=settings)
    if answer.work:
        await work(host, answer.session, answer.work)
    return answer


async def subjects_told(memory: Memory, session: str) -> int:
    """Return of how many subjects a session that goes on was told."""
    pending = await memory.store.read(memory.scope, reminders.open_reminders, session)
    return len(pending)


async def run_failing_call(
    memory: Memory, session: str, agent: str = "claude-code", **more: Any
) -> list[Any]:
    """Make a call that fails; return the answers before and after it."""
    call = {"session_id": session, **CALL, **more}
    result = {"output": ERROR, "exit_code": 1}
    kind = "failed" if AGENTS[agent].event_of("failed") else "after"
    before = await send_event(memory, "before", agent, call)
    after = await send_event(
        memory, kind, agent, call, tool_response=result, error=ERROR
    )
    return [json.dumps(before.answer), json.dumps(after.answer)]


async def run_working_call(
    memory: Memory, session: str, agent: str = "claude-code"
) -> None:
    call = {**CALL, "session_id": session, "tool_use_id": "t2"}
    call["tool_input"] = {"command": GOOD}
    await send_event(memory, "after", agent, call, tool_response=FINE)


@pytest.mark.parametrize("agent", [name for name in AGENTS if AGENTS[name].events])
async def test_a_known_failure_is_shown_and_denied_only_if_asked(
    agent: str, memory: Memory
) -> None:
    assert await run_failing_call(memory, "first", agent) == ["null", "null"]
    await run_working_call(memory, "first", agent)
    assert await run_failing_call(memory, "first", agent, tool_use_id="t9") == [
        "null",
        "null",
    ]  # its own
    assert await subjects_told(memory, "first") == 0
    before, after = await run_failing_call(memory, "second", agent)
    # What comes with the call is not told again after it.
    takes = AGENTS[agent].takes
    failed = "failed" if AGENTS[agent].event_of("failed") else "after"
    is_after = failed in takes and "before" not in takes
    for text, is_shown in ((before, "before" in takes), (after, is_after)):
        assert (GOOD in text) == is_shown
        assert not is_denial(text)

    # Only rules of the user deny a call.
    before, _ = await run_failing_call(
        memory, "third", agent, settings={"deny": True}, tool_use_id="t3"
    )
    assert not is_denial(before)


async def test_a_session_begins_with_what_came_back(memory: Memory) -> None:
    assert (await send_event(memory, "start", source="startup")).answer is None
    for session in ("a", "b", "d"):
        await run_failing_call(memory, session)
        await run_working_call(memory, session)
        await send_event(memory, "stop", session_id=session)
        await send_event(memory, "end", session_id=session, reason="other")
        assert await patient_host(memory=memory).run(session).events() == []
    start = await send_event(memory, "start", session_id="c")
    assert GOOD in json.dumps(start.answer)
    assert await subjects_told(memory, "c") == 1
    await run_failing_call(memory, "team/a")
    assert await subjects_told(memory, "team") == 0
    old = "update event set at = at - 90000"
    await memory.store.write(memory.scope, lambda db, _: db.execute(old) and None)
    await send_event(memory, "end", session_id="c")
    assert (
        await patient_host(memory=memory).run("team/a").events() == []
    )  # nothing came for a day
    assert (await memory.seen("Bash", ERROR)).count == 4
    assert await subjects_told(memory, "b") == 0
    await memory.remember("page", "a text of a tool", origin="outside")
    opening = await send_event(memory, "start", session_id="d")
    assert "lessons that wait for you: 1;" in opening.notices[0]


BELIEVED = {
    "a program of the user is believed": ({}, ["unverified"]),
    "a stopped call did not fail": ({"is_interrupt": True}, []),
    "that a call of an MCP server failed is believed": (
        {"tool_name": "get", "mcp_server": {"name": "web", "source": "user"}},
        ["unverified"],
    ),
    "that a call for a page failed is believed": (
        {"tool_name": "WebFetch"},
        ["unverified"],
    ),
}


@cases(("more", "kept"), BELIEVED)
async def test_who_is_believed(
    more: dict[str, Any], kept: list[str], memory: Memory
) -> None:
    await run_failing_call(memory, "one", **more)
    assert [lesson["state"] for lesson in await memory.top()] == kept


@pytest.mark.parametrize(
    "agent",
    [
        # How each agent is told to go on has a test in `test_agents`.
        name if name == "claude-code" else pytest.param(name, marks=pytest.mark.nightly)
        for name, row in AGENTS.items()
        if name not in PLUGINS and row.event_of("stop")
    ],
)
async def test_a_stop_is_blocked_while_the_policy_allows(
    agent: str, memory: Memory, tmp_path: Path
) -> None:
    stop = [f"cd '{tmp_path}' && cat done"]
    settings = {"stop": stop, "policy": "default, attempts.limit=3"}

    async def blocks(active: bool, turn: str = "p1") -> bool:
        stopped = await send_event(
            memory,
            "stop",
            agent,
            settings=settings,
            prompt_id=turn,
            prompt=turn,
            stop_hook_active=active,
        )
        answer = stopped.answer
        assert answer is None or "No such file" in json.dumps(answer)
        return answer is not None

    await send_event(memory, "prompt", agent, prompt="do it", prompt_id="p1")
    assert [await blocks(active) for active in (False, True, False, False)] == [
        True,
        *[False] * 3,
    ]
    # The session learns from what the command printed.
    events = await patient_host(memory=memory).run("one").events()
    assert "No such file" in events[-1]["error"]
    await send_event(memory, "prompt", agent, prompt="do that", prompt_id="p2")
    assert await blocks(False, "p2")
    loop = await memory.store.read(memory.scope, loops.read, "one/p2")
    # What a person reads in `why`.
    assert loop.values == ("the files of / (attempt 1)",)
    (tmp_path / "done").touch()
    assert not await blocks(False, "p2")
    (tmp_path / "done").unlink()
    for prompt in ("this", "that"):
        await send_event(memory, "end", agent)  # the numbers of turns begin again
        await send_event(memory, "prompt", agent, prompt=prompt)
        assert await blocks(False, "")


STOPS = {
    "not at the end of a subagent": ({"agent_id": "sub"}, False),
    "not while a subagent works": (
        {"background_tasks": [{"id": "1", "type": "subagent"}]},
        False,
    ),
    "a command that takes too long blocks": (
        {"settings": {"stop": ["sleep 60"], "seconds": 0.2}},
        True,
    ),
    "a command that passes does not": ({"settings": {"stop": ["true"]}}, False),
}


@cases(("more", "blocks"), STOPS)
async def test_when_commands_run(
    more: dict[str, Any], blocks: bool, memory: Memory
) -> None:
    data = {"settings": {"stop": ["false"]}, **more}
    sent = await send_event(memory, "stop", data=data)
    assert (sent.answer is not None) == blocks

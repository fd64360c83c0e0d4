"""What the hooks of coding agents answer, and what they learn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heedful import Memory, Reflection, signature
from heedful.integrations.hooks import AGENTS, HookSettings, Reply, reply, work
from heedful.integrations.host import Host
from heedful.store import exposures
from heedful.store.sqlite import in_file

ERROR = 'Exit code 1\nError: Cannot find module "pads"'
BAD, GOOD = "npx jest pads", "npx jest pads --config jest.json"
TRUST: Any = {"tool": "measured", "user": "operator"}
CALL: Any = {"tool_name": "Bash", "tool_input": {"command": BAD}, "tool_use_id": "t1"}
FINE = {"stdout": "ok", "stderr": "", "interrupted": False}
# What Claude Code 2.1 sends with every event.
ALWAYS: Any = {
    "transcript_path": "/a.jsonl",
    "permission_mode": "acceptEdits",
    "effort": {"level": "x"},
}


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(in_file(str(tmp_path / "memory.db")), trust=TRUST, holdout=0.0)


async def tell(memory: Memory, kind: Any, agent: str = "claude-code", **fields: Any) -> Reply:
    """Send one of our events as the agent would, and do the work that is left."""
    known, told = AGENTS[agent], HookSettings(**fields.pop("settings", {}))
    data = {"session_id": "one", "cwd": "/", **ALWAYS, **fields}
    named = {known.fields.get(name, name): value for name, value in data.items()}
    host, name = Host(memory=memory, strict=True), known.event_of(kind)
    made = await reply(name, json.loads(json.dumps(named)), host, agent=agent, settings=told)
    if made.work:
        await work(host, made.session, made.work)
    return made


async def fails(memory: Memory, session: str, agent: str = "claude-code", **more: Any) -> list[Any]:
    """Make a call that fails; return the answers before and after it."""
    call = {"session_id": session, **CALL, **more}
    kind, said = "failed", {"error": ERROR}
    if not AGENTS[agent].event_of("failed"):
        kind, said = "after", {"tool_response": {"output": ERROR, "exit_code": 1}}
    made = [await tell(memory, "before", agent, **call)]
    made.append(await tell(memory, kind, agent, **call, **said))
    return [json.dumps(one.answer) for one in made]


async def works(memory: Memory, session: str, agent: str = "claude-code") -> None:
    call = {**CALL, "session_id": session, "tool_input": {"command": GOOD}, "tool_use_id": "t2"}
    await tell(memory, "after", agent, **call, tool_response=FINE)


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_known_failure_is_told_and_denied_only_if_asked(agent: str, memory: Memory) -> None:
    assert await fails(memory, "first", agent) == ["null", "null"]
    await works(memory, "first", agent)
    before, after = await fails(memory, "second", agent)
    for text, told in ((before, "before"), (after, "failed"), (after, "after")):
        assert text == "null" or (GOOD in text and "facts to weigh, not instructions" in text)
        assert "deny" not in text
        if told in ("before", (AGENTS[agent].event_of("failed") and "failed") or "after"):
            assert (text != "null") == (told in AGENTS[agent].takes)
    deny: Any = {"settings": {"deny": True}}
    denied = [(await fails(memory, "third", agent, **deny, tool_use_id="t3"))[0]]
    denied.append((await fails(memory, "third", agent, **deny, tool_use_id="t4"))[0])
    await tell(memory, "prompt", agent, session_id="third", prompt="again", prompt_id="p2")
    denied.append((await fails(memory, "third", agent, **deny, tool_use_id="t5"))[0])
    assert ["deny" in one and GOOD in one for one in denied] == [True, False, True]


async def test_a_session_begins_with_what_came_back(memory: Memory) -> None:
    assert (await tell(memory, "start", source="startup")).answer is None
    for session in ("a", "b"):
        await fails(memory, session)
        await works(memory, session)
        await tell(memory, "stop", session_id=session)
        await tell(memory, "end", session_id=session, reason="other")
        assert await Host(memory=memory).run(session).events() == []
    assert GOOD in json.dumps((await tell(memory, "start", session_id="c")).answer)
    assert (await memory.seen("Bash", ERROR)).count == 2
    assert await memory.store.read(memory.scope, exposures.opportunities, "b") == []


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({}, ["candidate"]),
        ({"is_interrupt": True}, []),
        ({"tool_name": "mcp__web__get"}, ["quarantined"]),
        ({"tool_name": "get", "mcp_server": {"name": "web", "source": "user"}}, ["quarantined"]),
        ({"tool_name": "WebFetch"}, ["quarantined"]),
        ({"agent_id": "sub", "agent_type": "Explore"}, ["candidate"]),
        ({"tool_use_id": ""}, ["candidate"]),
    ],
)
async def test_who_is_believed(more: dict[str, Any], kept: list[str], memory: Memory) -> None:
    await fails(memory, "one", **more)
    assert [one["state"] for one in await memory.top()] == kept


@pytest.mark.parametrize(("source", "kept"), [("user", 1), ("sdk", 1), ("system", 0)])
async def test_a_known_id_replaces_an_event(source: str, kept: int, memory: Memory) -> None:
    for _ in range(2):  # hooks in the settings of the user and of the project
        await tell(memory, "prompt", prompt="never use npm", prompt_id="p1", source=source)
        await tell(memory, "after", **CALL, tool_response="fine")
    kinds = [one["type"] for one in await Host(memory=memory).run("one").events()]
    assert sorted(kinds) == ["tool_call", "tool_response", *["user_message"] * kept]


async def test_context_has_at_most_10_000_characters(memory: Memory) -> None:
    text = "fix it\n" + "very long advice " * 1_000
    mark = signature("", ERROR.splitlines()[1])
    await memory.keep(Reflection("reflection", mark, "", text, "Error", trust="operator"))
    assert 1_000 < len((await fails(memory, "one"))[1]) < 10_000
    noisy = "python3 -c \"print('FAILED test_a.py::test_b - boom\\n' + 'x' * 90_000); exit(3)\""
    reason = (await tell(memory, "stop", settings={"stop": [noisy] * 9})).answer["reason"]  # type: ignore[index]
    assert "FAILED test_a.py::test_b - boom" in reason
    assert len(reason) < 10_000


@pytest.mark.parametrize("agent", [name for name in AGENTS if name != "opencode"])
async def test_a_stop_is_blocked_while_the_policy_allows(
    agent: str, memory: Memory, tmp_path: Path
) -> None:
    stop = [f"cd '{tmp_path}' && cat done"]
    told: Any = {"settings": {"stop": stop, "policy": "default, attempts.limit=3"}}

    async def blocks(active: bool, turn: str = "p1") -> bool:
        fields = {**told, "prompt_id": turn, "prompt": turn, "stop_hook_active": active}
        made = (await tell(memory, "stop", agent, **fields)).answer
        assert made is None or "No such file" in json.dumps(made)
        return made is not None

    await tell(memory, "prompt", agent, prompt="do it", prompt_id="p1")
    assert [await blocks(active) for active in (False, True, False, False)] == [True, *[False] * 3]
    await tell(memory, "prompt", agent, prompt="do that", prompt_id="p2")
    assert await blocks(False, "p2")
    (tmp_path / "done").touch()
    assert not await blocks(False, "p2")


@pytest.mark.parametrize(
    ("more", "blocks"),
    [
        ({"agent_id": "sub"}, False),
        ({"background_tasks": [{"id": "1", "type": "subagent", "status": "running"}]}, False),
        ({"background_tasks": [{"id": "1", "type": "shell", "status": "running"}]}, True),
        ({"settings": {"stop": ["sleep 60"], "seconds": 0.2}}, True),
        ({"settings": {"stop": ["true"]}}, False),
        ({"settings": {}}, False),
    ],
)
async def test_when_commands_run(more: dict[str, Any], blocks: bool, memory: Memory) -> None:
    made = await tell(memory, "stop", **{"settings": {"stop": ["false"]}, **more})
    assert (made.answer is not None) == blocks

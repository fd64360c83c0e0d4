"""A call that will fail is changed before it is made, if a person says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heedful.errors import InvalidInput
from heedful.integrations.agents import AGENTS, Kind
from heedful.integrations.hooks import HookSettings, reply, work
from heedful.memory.memory import Memory
from tests.hooks.spoken import spoken_by
from tests.hosts import patient_host
from tests.store.support import count_repairs
from tests.trusted import OWN

TRUST: Any = OWN
FROZEN = "unknown option '--frozen'"
BAD = {"command": "npm ci --frozen", "description": "install"}
GOOD = {"command": "npm ci", "description": "install"}

pytestmark = pytest.mark.both_nightly


@pytest.fixture
def memory(store: Any) -> Memory:
    return Memory(store, trust=TRUST, holdout=0.0)


async def send(
    memory: Memory,
    kind: Kind,
    session: str,
    arguments: Any,
    *,
    repair: Any = "off",
    agent: str = "claude-code",
    root: str = "",
    **fields: Any,
) -> dict[str, Any]:
    """Hand over an event about a call; return the answer of the hook."""
    host = patient_host(memory=memory, strict=True, root=root)
    data = {"session_id": session, "tool_name": "Bash", "tool_use_id": "c1"}
    data |= {"tool_input": arguments, **fields}
    name, message = spoken_by(agent, kind, data)
    answer = await reply(
        name,
        message,
        host,
        agent=agent,
        settings=HookSettings(repair=repair),
    )
    if answer.work:
        await work(host, answer.session, answer.work)
    return dict(answer.answer or {})


async def learn_twice(memory: Memory, root: str = "", **calls: Any) -> None:
    """Learn two sessions in which the bad call failed and the good one passed."""
    bad = calls.get("bad", BAD)
    good = calls.get("good", GOOD)
    error = calls.get("error", FROZEN)
    tool = {"tool_name": calls.get("tool", "Bash"), "root": root}
    for session in ("s1", "s2"):
        await send(memory, "before", session, bad, **tool)
        await send(memory, "failed", session, bad, error=error, **tool)
        second = {"tool_use_id": "c2", **tool}
        await send(memory, "before", session, good, **second)
        await send(memory, "after", session, good, tool_response={}, **second)
        await send(memory, "end", session, {}, root=root)


async def test_nothing_is_repaired_unless_a_person_says_so(memory: Memory) -> None:
    await learn_twice(memory)
    answer = await send(memory, "before", "s3", BAD)
    assert "updatedInput" not in answer["hookSpecificOutput"]
    assert await memory.store.read(memory.scope, count_repairs) == {}


async def test_the_person_is_asked_about_the_changed_call(memory: Memory) -> None:
    await learn_twice(memory)
    answer = await send(memory, "before", "s3", BAD, repair="ask")
    text = answer["systemMessage"]
    assert "without `--frozen` worked in 2 sessions" in text
    assert answer["hookSpecificOutput"] == {
        "hookEventName": "PreToolUse",
        "permissionDecision": "ask",
        "permissionDecisionReason": text,
        "updatedInput": GOOD,
        "additionalContext": text,
    }


async def test_on_grants_no_permission(memory: Memory) -> None:
    bad = {"command": "npm run tests"}
    good = {"command": "npm run test"}
    error = 'npm error Missing script: "tests"'
    await learn_twice(memory, bad=bad, good=good, error=error)
    answer = await send(memory, "before", "s3", bad, repair="on")
    output = answer["hookSpecificOutput"]
    assert output["updatedInput"] == good
    assert "permissionDecision" not in output
    assert answer["systemMessage"].startswith("heedful changed the call: ")


@pytest.mark.parametrize(
    ("failed", "worked", "error"),
    [
        pytest.param("npm ci --frozen", "npm ci", FROZEN, id="an option goes"),
        pytest.param(
            "make deploy DRY_RUN=1",
            "make deploy DRY_RUN=0",
            "make: *** DRY_RUN=1 is not supported.  Stop.",
            id="a digit",
        ),
        pytest.param(
            "npm run build-carts",
            "npm run build:carts",
            'npm error Missing script: "build-carts"',
            id="a sign",
        ),
        pytest.param(
            "make deploy check",
            "make deploy",
            "make: *** No rule to make target 'check'.  Stop.",
            id="a word goes",
        ),
    ],
)
async def test_the_person_is_asked_about_more_than_spelling(
    memory: Memory, failed: str, worked: str, error: str
) -> None:
    bad = {"command": failed}
    await learn_twice(memory, bad=bad, good={"command": worked}, error=error)
    question = await send(memory, "before", "s3", bad, repair="ask")
    assert question["hookSpecificOutput"]["permissionDecision"] == "ask"
    assert await send(memory, "before", "s4", bad, repair="on") == question


@pytest.mark.parametrize("repair", ["ask", "on"])
async def test_nobody_is_asked_where_nobody_is(memory: Memory, repair: str) -> None:
    await learn_twice(memory)
    answer = await send(
        memory, "before", "s3", BAD, repair=repair, permission_mode="dontAsk"
    )
    assert "updatedInput" not in answer["hookSpecificOutput"]


@pytest.mark.parametrize("agent", sorted(AGENTS.keys() - {"claude-code"}))
async def test_agents_that_would_grant_a_permission_are_told(
    memory: Memory, agent: str
) -> None:
    await learn_twice(memory)
    answer = await send(memory, "before", "s3", BAD, repair="on", agent=agent)
    text = json.dumps(answer)
    assert "updatedInput" not in text
    assert ("Bash `npm ci`" in text) == ("before" in AGENTS[agent].takes)


async def test_a_call_is_repaired_once_in_a_session(memory: Memory) -> None:
    await learn_twice(memory)
    await send(memory, "before", "s3", BAD, repair="ask")
    again = {"tool_use_id": "c2"}
    assert await send(memory, "before", "s3", BAD, repair="ask", **again) == {}


@pytest.mark.parametrize(
    ("made", "kind", "fields", "counts"),
    [
        pytest.param(GOOD, "after", {"tool_response": {}}, {"passed": 1}, id="passed"),
        pytest.param(
            GOOD, "failed", {"error": "npm: out of memory"}, {"failed": 1}, id="failed"
        ),
        pytest.param(
            GOOD,
            "failed",
            {"error": "FAILED tests/test_a.py::test_b"},
            {"passed": 1},
            id="the work itself failed",
        ),
        pytest.param(
            BAD, "failed", {"error": FROZEN}, {"offered": 1}, id="was not taken"
        ),
    ],
)
async def test_what_became_of_a_repair_is_counted(
    memory: Memory, made: Any, kind: Kind, fields: Any, counts: dict[str, int]
) -> None:
    await learn_twice(memory)
    await send(memory, "before", "s3", BAD, repair="ask")
    await send(memory, kind, "s3", made, repair="ask", **fields)
    assert await memory.store.read(memory.scope, count_repairs) == counts


async def test_a_repaired_call_is_learnt_as_it_was_made(memory: Memory) -> None:
    await learn_twice(memory)
    await send(memory, "before", "s3", BAD, repair="on")
    await send(memory, "after", "s3", GOOD, repair="on", tool_response={})
    await send(memory, "end", "s3", {})
    history = await memory.before("Bash", "npm ci --frozen")
    assert history.failures[0].runs == 2


async def test_words_that_nobody_trusts_repair_nothing(store: Any) -> None:
    memory = Memory(store, holdout=0.0)
    await learn_twice(memory)
    answer = await send(memory, "before", "s3", BAD, repair="on")
    assert "updatedInput" not in json.dumps(answer)


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("Never run npm ci.", id="the call"),
        pytest.param("Always use pnpm, never npm.", id="the program"),
    ],
)
async def test_what_the_user_forbids_is_not_repaired(memory: Memory, rule: str) -> None:
    await learn_twice(memory)
    await send(memory, "prompt", "s2b", {}, prompt=rule)
    await send(memory, "end", "s2b", {})
    answer = await send(memory, "before", "s3", BAD, repair="on")
    assert "updatedInput" not in json.dumps(answer)


async def test_an_unsafe_change_is_told_and_not_made(memory: Memory) -> None:
    bad = {"command": "git push origin"}
    good = {"command": "git push --force origin"}
    error = "fatal: 'origin' does not appear to be a git repository"
    await learn_twice(memory, bad=bad, good=good, error=error)
    answer = await send(memory, "before", "s3", bad, repair="on")
    assert "updatedInput" not in json.dumps(answer)


@pytest.mark.parametrize("exists", [True, False], ids=["exists", "is gone"])
async def test_a_path_is_repaired_only_to_a_file_that_exists(
    memory: Memory, tmp_path: Path, exists: bool
) -> None:
    root = str(tmp_path)
    if exists:
        (tmp_path / "cart.go").touch()
    bad = {"file_path": f"{root}/carts.go"}
    good = {"file_path": f"{root}/cart.go"}
    error = "File does not exist."
    calls: Any = {"bad": bad, "good": good, "error": error, "tool": "Read"}
    await learn_twice(memory, root, **calls)
    answer = await send(
        memory, "before", "s3", bad, repair="on", tool_name="Read", root=root
    )
    output = answer.get("hookSpecificOutput", {})
    assert output.get("updatedInput") == (good if exists else None)


async def test_a_call_that_may_have_been_cut_stays(memory: Memory) -> None:
    await learn_twice(memory)
    long = {**BAD, "description": "x" * 50_000}
    answer = await send(memory, "before", "s3", long, repair="on")
    assert "updatedInput" not in json.dumps(answer)


def test_the_setting_has_three_values() -> None:
    with pytest.raises(InvalidInput) as error:
        HookSettings(repair="always")  # type: ignore[arg-type]
    assert error.value.field == "hook.repair"

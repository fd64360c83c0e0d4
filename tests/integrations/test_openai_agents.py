"""What only OpenAI Agents has: sessions, handoffs, guardrails, approvals, streams, the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    MaxTurnsExceeded,
    RunConfig,
    RunHooks,
    SQLiteSession,
    UserError,
)
from pydantic import BaseModel

from heedful import policy
from heedful.errors import Conflict
from heedful.integrations import Host
from heedful.integrations.openai_agents import Judged, hold, run, run_streamed, run_sync
from tests.integrations.double_openai_agents import Scripted, shell_agent
from tests.integrations.doubles import Call, Driven, Say, Turn
from tests.integrations.test_hosts import ERROR, TASK, judging, memory_in, severity

CONFIG = RunConfig(tracing_disabled=True)


class Ticket(BaseModel):
    severity: str


def graded(candidate: Any, context: Any) -> Any:
    assert set(candidate) == {"severity"}
    return severity(candidate["severity"], context)


class Heard(RunHooks[Any]):
    def __init__(self) -> None:
        self.outputs: list[Any] = []

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        self.outputs.append(output)


async def test_on_agent_end_hears_rejected_outputs_and_nothing_is_learnt_from_it(
    tmp_path: Path,
) -> None:
    memory, heard = memory_in(tmp_path), Heard()
    agent, _ = shell_agent([Say("high"), Say("P1")], Driven())
    result = await run(agent, TASK, host=judging(memory), hooks=heard, run_config=CONFIG)
    assert heard.outputs == ["high", "P1"]
    assert result.context_wrapper.usage.requests == 2
    found = await memory.recall(TASK, 10)
    assert [one.example.accepted for one in found if one.example.accepted] == ["P1"]


async def test_retries_do_not_grow_and_do_not_repeat_the_work(tmp_path: Path) -> None:
    driven, long = Driven(), [Say(f"{word} " * 300) for word in ("one", "two", "three", "four")]
    host = judging(None, policy=policy("attempts.limit=5"))
    agent, model = shell_agent([Call("ls"), *long, Say("P1")], driven)
    result = await run(agent, TASK, host=host, run_config=CONFIG)
    sizes = [len(prompt) for prompt in model.prompts]
    assert result.final_output == "P1"
    assert driven.commands == ["ls"]
    assert max(sizes[2:]) - min(sizes[2:]) < 700  # the answers differ by 2 characters a word
    assert "one one" not in model.prompts[3]


async def test_a_session_gets_the_task_and_the_accepted_answer(tmp_path: Path) -> None:
    session, memory = SQLiteSession("chat"), memory_in(tmp_path)
    agent, model = shell_agent([Call("ls"), Say("high"), Say("P1")], Driven())
    await run(agent, TASK, host=judging(memory), session=session, run_config=CONFIG)
    stored = await session.get_items()
    kinds = [one.get("role") or one.get("type") for one in stored]
    assert kinds == ["user", "function_call", "function_call_output", "assistant"]
    assert "high" not in str(stored)
    await run(agent, "And the roof?", host=judging(memory), session=session, run_config=CONFIG)
    assert TASK in model.prompts[-1]
    assert len(await session.get_items()) == 6


async def test_a_known_id_returns_its_answer_or_conflicts_with_another_task(tmp_path: Path) -> None:
    host = judging(memory_in(tmp_path), checks=[graded])
    agent, model = shell_agent([Say('{"severity": "P2"}')], Driven())
    agent.output_type = Ticket
    first = await run(agent, TASK, host=host, id="one", run_config=CONFIG)
    again = await run(agent, TASK, host=host, id="one", run_config=CONFIG)
    assert again.final_output == first.final_output == Ticket(severity="P2")
    assert len(model.prompts) == 1
    with pytest.raises(Conflict):
        await run(agent, "another task", host=host, id="one", run_config=CONFIG)


async def test_a_handoff_is_not_made_again_and_structured_output_is_data(tmp_path: Path) -> None:
    turns = [Say('{"severity": "high"}'), Say('{"severity": "P2"}')]
    expert = Agent("expert", model=Scripted(turns), output_type=Ticket)
    desk = Agent("desk", model=Scripted([Call("")], "transfer_to_expert"), handoffs=[expert])
    result = await run(desk, TASK, host=judging(None, checks=[graded]), run_config=CONFIG)
    assert result.final_output == Ticket(severity="P2")
    assert result.last_agent is expert
    assert result.context_wrapper.usage.requests == 3


async def test_a_tool_that_raises_and_the_guardrail_that_holds_its_call(tmp_path: Path) -> None:
    driven, host = Driven(), Host(memory=memory_in(tmp_path), strict=True)
    failing = {"make": RuntimeError(ERROR)}
    agent, _ = shell_agent([Call("make")], driven, failing, failure_error_function=None)
    with pytest.raises(UserError, match="Cannot find module"):
        await run(agent, "build", host=host, run_config=CONFIG)
    guarded = {"tool_input_guardrails": [hold]}
    turns: list[Turn] = [Call("make"), Say("no"), Call("make")]
    agent, model = shell_agent(turns, driven, failing, **guarded)
    await run(agent, "build", host=host, run_config=CONFIG)
    assert driven.commands == ["make"]
    assert model.prompts[-1].count("failed with") == 1
    with pytest.raises(MaxTurnsExceeded):
        await run(agent, "build", host=host, run_config=CONFIG, max_turns=3)
    assert driven.commands == ["make"] * 3


async def test_the_server_holds_the_conversation(tmp_path: Path) -> None:
    host = judging(memory_in(tmp_path))
    agent, model = shell_agent([Say("high"), Call("ls"), Say("P1")], Driven())
    await run(agent, TASK, host=host, conversation_id="c", run_config=CONFIG)
    assert TASK not in model.prompts[1] + model.prompts[2]
    assert "answer with one of P0 to P3" in model.prompts[1]


async def test_a_run_that_waits_for_an_approval_goes_on(tmp_path: Path) -> None:
    driven, host = Driven(), judging(memory_in(tmp_path))
    script: list[Turn] = [Say("high"), Call("rm"), Say("P1")]
    agent, _ = shell_agent(script, driven, needs_approval=True)
    waits = await run(agent, TASK, host=host, id="one", run_config=CONFIG)
    state = waits.to_state()
    state.approve(waits.interruptions[0])
    result = await run(agent, state, host=host, id="one", run_config=CONFIG)
    assert (result.final_output, driven.commands) == ("P1", ["rm"])


async def test_streamed_and_sync(tmp_path: Path) -> None:
    agent, _ = shell_agent([Say("high"), Say("P1")], Driven())
    stream = run_streamed(agent, TASK, host=judging(None), run_config=CONFIG)
    judged = [event async for event in stream if isinstance(event, Judged)]
    assert [one.output for one in judged] == ["high", "P1"]
    assert judged[-1].result is not None


def test_sync(tmp_path: Path) -> None:
    agent, _ = shell_agent([Say("high"), Say("P1")], Driven())
    assert run_sync(agent, TASK, host=judging(None), run_config=CONFIG).final_output == "P1"

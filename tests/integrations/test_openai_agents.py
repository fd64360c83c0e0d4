"""What only OpenAI Agents has: sessions, handoffs, guardrails, approvals, streams."""

from __future__ import annotations

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

from heedful import Done, policy
from heedful.errors import InvalidInput
from heedful.integrations import verdict_of
from heedful.integrations.openai_agents import Judged, hold_back, run, run_streamed
from heedful.testing.conformance import TASK, severity
from tests.hosts import patient_host
from tests.integrations.double_openai_agents import prompts, scripted, shell_agent
from tests.integrations.doubles import ERROR, Call, Driven, Say, Turn
from tests.integrations.test_hosts import host_that_judges, memory_in
from tests.tables import cases

CONFIG = RunConfig(tracing_disabled=True)
WRONG_THEN_RIGHT: list[Turn] = [Say("high"), Call("ls"), Say("P1")]


class Ticket(BaseModel):
    severity: str


def grade(candidate: Any, context: Any) -> Any:
    return severity(candidate["severity"], context)


async def test_on_agent_end_hears_a_rejected_output_and_nothing_is_learnt_from_it(
    tmp_path: Any,
) -> None:
    memory = memory_in(tmp_path)
    heard = list[Any]()

    class Heard(RunHooks[Any]):
        async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
            heard.append(output)

    agent, _ = shell_agent(WRONG_THEN_RIGHT, Driven())
    result = await run(
        agent, TASK, host=host_that_judges(memory), hooks=Heard(), run_config=CONFIG
    )
    assert heard == ["high", "P1"]
    assert result.context_wrapper.usage.requests == 3
    accepted = [match.example.accepted for match in await memory.recall(TASK, 10)]
    assert list(filter(None, accepted)) == ["P1"]


@cases(
    "answer",
    {
        "cut JSON": '{"severity": ',
        "prose": "The severity is P1.",
        "another field": '{"level": "P1"}',
    },
)
async def test_an_output_of_another_type_is_refused_and_asked_for_again(
    answer: str,
) -> None:
    agent, model = shell_agent([Say(answer), Say('{"severity": "P1"}')], Driven())
    agent.output_type = Ticket
    host = host_that_judges(None, checks=[grade])
    result = await run(agent, TASK, host=host, run_config=CONFIG)
    assert result.final_output == Ticket(severity="P1")
    assert verdict_of(result) == Done(2, passed=True)
    request = prompts(model)[1]
    assert answer in request
    assert "Ticket" in request


async def test_an_output_that_never_fits_ends_as_the_policy_says() -> None:
    agent, _ = shell_agent([Say("P1"), Say("P2"), Say("P3")], Driven())
    agent.output_type = Ticket
    host = host_that_judges(
        None,
        checks=[grade],
        policy=policy("attempts.limit=3"),
    )
    events = [
        event
        async for event in run_streamed(agent, TASK, host=host, run_config=CONFIG)
        if isinstance(event, Judged)
    ]
    assert [event.output for event in events] == ["P1", "P2", "P1"]
    verdict = verdict_of(events[-1].result)
    assert verdict is not None
    assert verdict.best == 1
    assert verdict.stopped_by[0].rule == "attempts"


async def test_a_session_gets_the_task_the_work_and_the_accepted_answer() -> None:
    session = SQLiteSession("chat")
    host = host_that_judges(None)
    agent, model = shell_agent(WRONG_THEN_RIGHT, Driven())
    await run(agent, TASK, host=host, session=session, run_config=CONFIG)
    kinds = [item.get("role") or item.get("type") for item in await session.get_items()]
    assert kinds == ["user", "function_call", "function_call_output", "assistant"]
    await run(
        agent,
        "And the roof?",
        host=host,
        session=session,
        run_config=CONFIG,
    )
    assert TASK in prompts(model)[-1]
    assert len(await session.get_items()) == 6


@cases(
    "options",
    {
        "a conversation of the server": {"conversation_id": "c"},
        "a callback": {
            "run_config": RunConfig(session_input_callback=lambda past, new: new)
        },
    },
)
async def test_what_would_keep_rejected_answers_is_refused(options: Any) -> None:
    agent, _ = shell_agent([Say("P1")], Driven())
    with pytest.raises(InvalidInput, match="left out"):
        await run(agent, TASK, host=patient_host(), **options)


async def test_a_handoff_is_not_made_again() -> None:
    turns = [Say('{"severity": "high"}'), Say('{"severity": "P2"}')]
    expert = Agent("expert", model=scripted(turns), output_type=Ticket)
    desk = Agent(
        "desk", model=scripted([Call("")], "transfer_to_expert"), handoffs=[expert]
    )
    result = await run(
        desk, TASK, host=host_that_judges(None, checks=[grade]), run_config=CONFIG
    )
    assert result.final_output == Ticket(severity="P2")
    assert result.last_agent == expert
    assert result.context_wrapper.usage.requests == 3


async def test_a_tool_that_raises_and_the_guardrail_that_holds_its_call(
    tmp_path: Any,
) -> None:
    driven = Driven()
    host = patient_host(memory=memory_in(tmp_path), strict=True)
    failing = {"make": RuntimeError(ERROR)}
    turns: list[Turn] = [Call("make"), Say("no"), Call("make")]
    for _ in range(2):
        agent, _ = shell_agent(turns[:1], driven, failing, failure_error_function=None)
        with pytest.raises(UserError, match="Cannot find module"):
            await run(agent, "build", host=host, run_config=CONFIG)
    agent, model = shell_agent(
        turns, driven, failing, tool_input_guardrails=[hold_back]
    )
    await run(agent, "build", host=host, run_config=CONFIG)
    assert driven.commands == ["make", "make"]
    assert prompts(model)[-1].count("failed in 2 sessions") == 1
    with pytest.raises(MaxTurnsExceeded):
        await run(agent, "build", host=host, max_turns=3, run_config=CONFIG)
    assert driven.commands == ["make"] * 4


async def test_a_call_waits_for_an_approval_and_the_session_gets_all_at_the_end() -> (
    None
):
    driven = Driven()
    session = SQLiteSession("chat")
    await session.add_items([{"role": "user", "content": "hello"}])
    host = host_that_judges(None)
    agent, model = shell_agent(WRONG_THEN_RIGHT, driven, needs_approval=True)
    waiting = await run(agent, TASK, host=host, session=session, run_config=CONFIG)
    assert driven.commands == []
    assert len(await session.get_items()) == 1
    state = waiting.to_state()
    state.approve(state.get_interruptions()[0])
    result = await run(agent, state, host=host, session=session, run_config=CONFIG)
    assert result.final_output == "P1"
    assert verdict_of(result) == Done(2, passed=True)
    assert driven.commands == ["ls"]
    assert "hello" in prompts(model)[0]
    assert "answer with one of P0 to P3" in prompts(model)[2]
    kinds = [item.get("role") or item.get("type") for item in await session.get_items()]
    assert kinds == [
        "user",
        "user",
        "function_call",
        "function_call_output",
        "assistant",
    ]


async def test_streamed() -> None:
    agent, _ = shell_agent(WRONG_THEN_RIGHT, Driven())
    stream = run_streamed(
        agent,
        TASK,
        host=host_that_judges(None),
        run_config=CONFIG,
    )
    judged = [event async for event in stream if isinstance(event, Judged)]
    assert [event.output for event in judged] == ["high", "P1"]
    assert judged[0].result is None
    assert judged[1].result is not None

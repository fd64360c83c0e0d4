"""What only OpenAI Agents has: sessions, handoffs, guardrails, approvals, streams."""

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

from heedful import Done, policy
from heedful.integrations import verdict_of
from heedful.testing.conformance import CURE as FEEDBACK, TASK
from heedful_frameworks.openai_agents import Judged, hold_back, run, run_streamed
from tests.hosts import patient_host
from tests.integrations.double_openai_agents import prompts, scripted, shell_agent
from tests.integrations.doubles import (
    ERROR,
    PAGES,
    Call,
    Driven,
    Say,
    Ticket,
    Turn,
    grade,
)
from tests.integrations.test_hosts import host_that_judges, memory_in
from tests.tables import cases

CONFIG = RunConfig(tracing_disabled=True)
WRONG_THEN_RIGHT: list[Turn] = [Say("high"), Call("ls"), Say("P1")]
AUTO: dict[str, Any] = {"auto_previous_response_id": True}
CALLS: list[Turn] = [Call("ls"), Say("high"), Call("pwd"), Say("P1")]


def kinds_of(items: Any) -> list[str]:
    return [item.get("role") or item.get("type") for item in items]


async def run_approved(agent: Agent[Any], **options: Any) -> Any:
    """Run; approve each call."""
    options = {"id": "one", "run_config": CONFIG, **options}
    result = await run(agent, TASK, **options)
    while result.interruptions:
        state = result.to_state()
        state.approve(state.get_interruptions()[0])
        result = await run(agent, state, **options)
    return result


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
    stream = run_streamed(agent, TASK, host=host, run_config=CONFIG, **AUTO)
    events = [event async for event in stream if isinstance(event, Judged)]
    assert [event.output for event in events] == ["P1", "P2", "P1"]
    result = events[-1].result
    assert result is not None
    assert result.last_response_id == "resp-0"
    verdict = verdict_of(result)
    assert verdict is not None
    assert verdict.best == 1
    assert verdict.stopped_by[0].rule == "attempts"


async def test_a_session_gets_the_task_the_work_and_the_accepted_answer() -> None:
    session = SQLiteSession("chat")
    host = host_that_judges(None)
    agent, model = shell_agent(WRONG_THEN_RIGHT, Driven())
    await run(agent, TASK, host=host, session=session, run_config=CONFIG)
    kinds = kinds_of(await session.get_items())
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


@cases("waits", {"at once": False, "approved": True})
@cases(
    ("options", "ids"),
    {
        "chain": (
            {"previous_response_id": "a"},
            ["a", "resp-0", "a", "resp-2"],
        ),
        "first": (AUTO, [None, "resp-0", None, "resp-2"]),
        "whole": ({"conversation_id": "c"}, [None] * 4),
    },
)
async def test_the_server_has_the_conversation(
    options: Any, ids: Any, waits: bool
) -> None:
    driven = Driven()
    agent, model = shell_agent(CALLS, driven, needs_approval=waits)
    host = host_that_judges(None)
    result = await run_approved(
        agent,
        host=host,
        **options,
    )
    assert result.final_output == "P1"
    assert result.last_response_id == "resp-3"
    assert driven.commands == ["ls", "pwd"]
    assert [call.previous_response_id for call in model.calls] == ids
    has_all = "conversation_id" in options
    retry = prompts(model)[2]
    assert FEEDBACK in retry
    assert (TASK in retry) is not has_all
    assert (len(model.calls[2].input) == 1) is has_all


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


@cases(
    ("callback", "is_shown"),
    {
        "history": (None, True),
        "callback": (lambda past, new: [*past[1:], *new], False),
    },
)
async def test_the_session_gets_all_after_approvals(
    callback: Any, is_shown: bool
) -> None:
    session = SQLiteSession("chat")
    await session.add_items([{"role": "user", "content": "hello"}])
    config = RunConfig(tracing_disabled=True, session_input_callback=callback)
    options: Any = {"session": session, "run_config": config}
    options["host"] = host_that_judges(None)
    driven = Driven()
    agent, _ = shell_agent(CALLS, driven, needs_approval=True)
    await run(agent, TASK, **options)
    assert driven.commands == []
    assert len(await session.get_items()) == 1
    agent, model = shell_agent(CALLS, driven, needs_approval=True)
    result = await run_approved(agent, id="two", **options)
    assert result.final_output == "P1"
    assert ("hello" in prompts(model)[3]) is is_shown
    call = ["function_call", "function_call_output"]
    items = await session.get_items()
    assert kinds_of(items) == ["user", "user", *call, *call, "assistant"]
    with pytest.raises(UserError, match="Session persistence"):
        await run(agent, TASK, conversation_id="c", **options)


async def test_streamed() -> None:
    agent, model = shell_agent(WRONG_THEN_RIGHT, Driven())
    host = host_that_judges(None)
    stream = run_streamed(
        agent,
        TASK,
        host=host,
        run_config=CONFIG,
        **AUTO,
    )
    judged = [event async for event in stream if isinstance(event, Judged)]
    assert [event.output for event in judged] == ["high", "P1"]
    assert judged[0].result is None
    assert judged[1].result is not None
    # The server has the feedback.
    _, retry, last = prompts(model)
    assert FEEDBACK in retry
    assert FEEDBACK not in last


@cases(
    "waits",
    {"a stream that goes on": False, "a run that waits for approvals": True},
)
async def test_a_budget_of_tokens_ends(waits: bool) -> None:
    driven = Driven()
    host = host_that_judges(None, policy="default, budget.tokens=45")
    agent, model = shell_agent(PAGES, driven, needs_approval=waits)
    options: Any = {"host": host, "run_config": CONFIG}
    if waits:
        result = await run_approved(agent, id="one", **options)
    else:
        stream = run_streamed(agent, TASK, **options)
        judged = [event async for event in stream if isinstance(event, Judged)]
        result = judged[-1].result
    assert len(model.calls) == 3
    verdict = verdict_of(result)
    assert verdict is not None
    assert verdict.stopped_by[0].rule == "budget"


async def test_agents_that_hand_over_to_each_other_spend_one_budget() -> None:
    models = [scripted([Call("")], tool="transfer_to_other") for _ in range(2)]
    first = Agent("other", model=models[0])
    second = Agent("other", model=models[1], handoffs=[first])
    first.handoffs.append(second)
    host = host_that_judges(None, policy="default, budget.tokens=45")
    result = await run(first, TASK, host=host, run_config=CONFIG)
    assert sum(len(model.calls) for model in models) == 3
    verdict = verdict_of(result)
    assert verdict is not None
    assert verdict.stopped_by[0].rule == "budget"

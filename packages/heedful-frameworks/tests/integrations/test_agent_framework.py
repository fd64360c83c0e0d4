"""What only Agent Framework has: sessions, approvals, objects, streams, middleware."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentContext,
    AgentMiddleware,
    AgentResponse,
    AgentSession,
    HistoryProvider,
    Message,
)

from heedful import Done, policy
from heedful.integrations import verdict_of
from heedful.store import episodes
from heedful.testing.conformance import CURE as RULE, TASK
from heedful_frameworks.agent_framework import HeedfulAgentMiddleware
from tests.integrations.double_agent_framework import Scripted, shell_agent
from tests.integrations.doubles import (
    PAGES,
    Call,
    Driven,
    ModelDown,
    Say,
    Ticket,
    Turn,
    grade,
)
from tests.integrations.test_hosts import host_that_judges, memory_in
from tests.tables import cases

WRONG_THEN_RIGHT: list[Turn] = [Call("ls"), Say("high"), Say("P1")]


def texts(session: AgentSession) -> list[str]:
    """Return the texts of a session's messages."""
    messages = session.state["in_memory"]["messages"]
    return [message.text for message in messages if message.text]


async def test_neither_the_result_nor_the_session_has_a_rejected_answer(
    tmp_path: Any,
) -> None:
    driven = Driven()
    middleware = [HeedfulAgentMiddleware(host_that_judges(memory_in(tmp_path)))]
    session = AgentSession()
    agent = shell_agent(WRONG_THEN_RIGHT, driven, middleware=middleware)
    response = await agent.run(TASK, session=session)
    assert response.text == "P1"
    assert verdict_of(response) == Done(2, passed=True)
    assert texts(session) == [TASK, "P1"]
    assert response.usage_details is not None
    assert response.usage_details["total_token_count"] == 27
    assert json.loads(response.to_json())["messages"]

    restored = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    agent = shell_agent([Say("P2")], driven, middleware=middleware)
    response = await agent.run("And the roof?", session=restored)
    assert verdict_of(response) == Done(1, passed=True)
    assert texts(restored) == [TASK, "P1", "And the roof?", "P2"]
    assert driven.prompts[-1].count(RULE) == 1


async def test_the_best_of_an_earlier_process_is_returned(tmp_path: Any) -> None:
    memory = memory_in(tmp_path)
    host = host_that_judges(memory, policy=policy("default, attempts.limit=2"))
    middleware = [HeedfulAgentMiddleware(host)]
    first: list[Turn] = [Say("bad"), ModelDown("503")]
    with pytest.raises(ModelDown):
        await shell_agent(first, Driven(), middleware=middleware).run(
            TASK, session=AgentSession(session_id="one")
        )
    session = AgentSession(session_id="one")
    agent = shell_agent([Say("worse")], Driven(), middleware=middleware)
    assert (await agent.run(TASK, session=session)).text == "bad"
    assert texts(session) == [TASK, "bad"]


@cases(
    ("answers", "last"),
    {
        "the second is right": (["high", "P2"], "P2"),
        "none is right": (["high", "urgent"], "high"),
    },
)
async def test_an_object_is_judged(answers: list[str], last: str) -> None:
    driven = Driven()
    script = [Say(Ticket(severity=answer).model_dump_json()) for answer in answers]
    host = host_that_judges(
        None,
        checks=[grade],
        policy=policy("attempts.limit=2"),
    )
    agent = shell_agent(script, driven, middleware=[HeedfulAgentMiddleware(host)])
    response = await agent.run(TASK, options={"response_format": Ticket})
    assert response.value == Ticket(severity=last)
    verdict = verdict_of(response)
    assert verdict is not None
    assert verdict.passed is (last == "P2")
    assert RULE in driven.prompts[1]


@pytest.mark.parametrize("approved", [True, False])
async def test_a_run_goes_on_after_an_approval_also_in_another_process(
    tmp_path: Any, approved: bool
) -> None:
    driven = Driven()
    memory = memory_in(tmp_path)
    script: list[Turn] = [Say("high"), Call("ls"), Say("urgent"), Say("P1")]

    def agent_of_a_process() -> Agent[Any]:
        return shell_agent(
            script,
            driven,
            middleware=[HeedfulAgentMiddleware(host_that_judges(memory))],
            approval_mode="always_require",
        )

    session = AgentSession()
    paused = await agent_of_a_process().run(TASK, session=session)
    assert verdict_of(paused) is None
    assert driven.commands == []
    assert "high" not in texts(session)

    request = paused.user_input_requests[0]
    answer = Message("user", [request.to_function_approval_response(approved)])
    restored = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    response = await agent_of_a_process().run(answer, session=restored)
    assert driven.commands == (["ls"] if approved else [])
    assert response.text == "P1"
    assert verdict_of(response) == Done(3, passed=True)
    assert texts(restored) == [TASK, "P1"]
    assert "high" in driven.prompts[2]
    assert "high" not in driven.prompts[3].splitlines()


class Shout(AgentMiddleware):
    """Makes each answer upper case."""

    async def process(self, context: AgentContext, call_next: Any) -> None:
        await call_next()
        assert isinstance(context.result, AgentResponse)
        message = Message("assistant", [context.result.text.upper()])
        context.result = AgentResponse(messages=[message])


async def test_it_judges_what_other_middleware_returns() -> None:
    driven = Driven()
    middleware = [HeedfulAgentMiddleware(host_that_judges(None)), Shout()]
    agent = shell_agent([Say("high"), Say("p1")], driven, middleware=middleware)
    assert (await agent.run(TASK)).text == "P1"
    assert "'HIGH' is no severity" in driven.prompts[1]


async def test_a_stream_has_all_answers_and_ends_with_the_best() -> None:
    driven = Driven()
    middleware = [HeedfulAgentMiddleware(host_that_judges(None))]
    agent = shell_agent(WRONG_THEN_RIGHT, driven, middleware=middleware)
    session = AgentSession()
    stream = agent.run(TASK, stream=True, session=session)
    updates = [update async for update in stream]
    assert [update.text for update in updates if update.text] == ["high", "P1"]
    rejected = [
        update.additional_properties["heedful"]
        for update in updates
        if update.additional_properties
    ]
    assert len(rejected) == 1
    assert RULE in rejected[0]
    response = await stream.get_final_response()
    assert response.text == "P1"
    assert verdict_of(response) == Done(2, passed=True)
    assert texts(session) == [TASK, "P1"]


async def test_a_run_that_its_reader_left_and_one_that_fails_are_over(
    tmp_path: Any,
) -> None:
    memory = memory_in(tmp_path)
    middleware = [HeedfulAgentMiddleware(host_that_judges(memory))]
    agent = shell_agent(
        [Say("high"), ModelDown("503")], Driven(), middleware=middleware
    )
    with pytest.raises(ModelDown):
        await agent.run(TASK, session=AgentSession(session_id="one"))
    with pytest.raises(ModelDown):
        async for _ in agent.run(
            TASK, stream=True, session=AgentSession(session_id="two")
        ):
            pass
    for id in ("one", "two"):
        assert not await memory.store.read(memory.scope, episodes.session_events, id)


async def test_an_agent_inside_an_agent_has_a_run_of_its_own() -> None:
    driven = Driven()
    middleware = [HeedfulAgentMiddleware(host_that_judges(None))]
    expert = Agent(
        Scripted([Say("high"), Say("P2")], driven), name="shell", middleware=middleware
    )
    desk = Agent(
        Scripted([Call("grade"), Say("P2")], Driven()),
        tools=[expert.as_tool(arg_name="command")],
        middleware=middleware,
    )
    assert verdict_of(await desk.run(TASK)) == Done(1, passed=True)
    assert len(driven.prompts) == 2


class Kept(HistoryProvider):
    """Keeps messages outside of the session."""

    def __init__(self) -> None:
        super().__init__("kept")
        self.messages: list[Message] = []

    async def get_messages(self, *arguments: Any, **_: Any) -> list[Message]:
        return list(self.messages)

    async def save_messages(
        self, session_id: str | None, messages: Sequence[Message], **_: Any
    ) -> None:
        self.messages += messages


async def test_a_history_elsewhere_gets_the_feedback_as_a_message(
    tmp_path: Any,
) -> None:
    history = Kept()
    host = host_that_judges(memory_in(tmp_path))

    def agent_of_a_process(script: list[Turn], driven: Driven) -> Agent[Any]:
        return shell_agent(
            script,
            driven,
            middleware=[HeedfulAgentMiddleware(host)],
            context_providers=[history],
        )

    first = Driven()
    with pytest.raises(ModelDown):
        await agent_of_a_process([Say("high"), ModelDown("503")], first).run(
            TASK, session=AgentSession(session_id="one")
        )
    second = Driven()
    response = await agent_of_a_process([Say("P1")], second).run(
        TASK, session=AgentSession(session_id="one")
    )
    assert response.text == "P1"
    for prompt in (first.prompts[1], second.prompts[0]):
        lines = prompt.splitlines()
        assert lines[:2] == [TASK, "high"]
        assert lines.count("high") == 1
        assert prompt.count(RULE) == 1
    assert [message.text for message in history.messages][::3] == [TASK, "P1"]


async def test_a_stream_ends_when_its_budget_of_tokens_is_spent() -> None:
    driven = Driven()
    host = host_that_judges(None, policy="default, budget.tokens=20")
    middleware = [HeedfulAgentMiddleware(host)]
    agent = shell_agent(PAGES, driven, middleware=middleware)
    response = await agent.run(TASK, stream=True).get_final_response()
    assert len(driven.prompts) == 3
    verdict = verdict_of(response)
    assert verdict is not None
    assert verdict.stopped_by[0].rule == "budget"

"""What only Microsoft Agent Framework has: sessions, streams, approvals, objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agent_framework import AgentSession, Content, Message
from pydantic import BaseModel

from heedful import Done, policy
from heedful.integrations import RESULT_KEY, Host, verdict_of
from heedful.integrations.agent_framework import HeedfulAgentMiddleware
from tests.integrations.double_agent_framework import shell_agent
from tests.integrations.doubles import Call, Driven, ModelDown, Say, Turn
from tests.integrations.test_hosts import (
    ERROR,
    TASK,
    host_that_judges,
    memory_in,
    severity,
)

RULE = "answer with one of P0 to P3"
WRONG_THEN_RIGHT: list[Turn] = [Call("ls"), Say("high"), Say("P1")]


class Ticket(BaseModel):
    severity: str


def texts(session: AgentSession) -> list[str]:
    return [message.text for message in session.state["in_memory"]["messages"]]


async def test_the_session_has_the_task_the_work_and_the_best_answer() -> None:
    session = AgentSession(session_id="one")
    driven = Driven()
    limit = policy("default, attempts.limit=3")
    turns: list[Turn] = [Call("ls"), *map(Say, ("bad", "worse", "worst", "P1"))]
    agent = shell_agent(
        turns,
        driven,
        middleware=[HeedfulAgentMiddleware(host_that_judges(None, policy=limit))],
    )
    response = await agent.run(TASK, session=session)
    assert response.text == "bad"
    assert texts(session) == [TASK, "", "", "bad"]
    assert driven.commands == ["ls"]
    assert "worse" in driven.prompts[3]
    assert "bad" not in driven.prompts[3]

    copy = AgentSession.from_dict(session.to_dict())
    assert (await agent.run("And the roof?", session=copy)).text == "P1"
    assert TASK in driven.prompts[-1]
    assert RULE not in driven.prompts[-1]
    assert texts(copy)[-2:] == ["And the roof?", "P1"]


async def test_usage_is_that_of_all_attempts() -> None:
    agent = shell_agent(
        WRONG_THEN_RIGHT,
        Driven(),
        middleware=[HeedfulAgentMiddleware(host_that_judges(None))],
    )
    response = await agent.run(TASK)
    assert response.usage_details
    assert response.usage_details["total_token_count"] == 27
    assert verdict_of(response) == Done(2, passed=True)
    assert "P1" in response.to_json()


async def test_a_stream_has_all_attempts_and_ends_with_the_best() -> None:
    driven = Driven()
    agent = shell_agent(
        WRONG_THEN_RIGHT,
        driven,
        middleware=[HeedfulAgentMiddleware(host_that_judges(None))],
    )
    stream = agent.run(TASK, stream=True, session=AgentSession(session_id="one"))
    updates = [update async for update in stream]
    rejected = [
        update.additional_properties[RESULT_KEY]
        for update in updates
        if update.additional_properties and RESULT_KEY in update.additional_properties
    ]
    assert len(rejected) == 1
    assert RULE in rejected[0]
    response = await stream.get_final_response()
    assert response.text == "P1"
    assert verdict_of(response) == Done(2, passed=True)


async def test_a_stream_raises_what_the_model_raises() -> None:
    agent = shell_agent(
        [ModelDown("503")],
        Driven(),
        middleware=[HeedfulAgentMiddleware(host_that_judges(None))],
    )
    with pytest.raises(ModelDown):
        async for _ in agent.run(TASK, stream=True):
            pass


async def test_an_object_is_judged_as_data() -> None:
    def grade(candidate: Any, context: Any) -> Any:
        return severity(candidate["severity"], context)

    turns = [Say('{"severity": "high"}'), Say('{"severity": "P2"}')]
    host = host_that_judges(None, checks=[grade])
    agent = shell_agent(turns, Driven(), middleware=[HeedfulAgentMiddleware(host)])
    response = await agent.run(TASK, options={"response_format": Ticket})
    assert response.value == Ticket(severity="P2")


async def test_a_call_that_waits_for_an_approval_goes_on_in_the_same_run(
    tmp_path: Path,
) -> None:
    driven = Driven()
    memory = memory_in(tmp_path)
    agent = shell_agent(
        WRONG_THEN_RIGHT,
        driven,
        middleware=[HeedfulAgentMiddleware(host_that_judges(memory))],
        approval_mode="always_require",
    )
    session = AgentSession(session_id="one")
    paused = await agent.run(TASK, session=session)
    assert verdict_of(paused) is None
    (request,) = paused.user_input_requests
    approval: Content = request.to_function_approval_response(approved=True)
    response = await agent.run(Message("user", [approval]), session=session)
    assert driven.commands == ["ls"]
    assert response.text == "P1"
    assert verdict_of(response) == Done(2, passed=True)


async def test_a_call_that_failed_before_is_held_back_once(tmp_path: Path) -> None:
    driven = Driven()
    host = Host(memory=memory_in(tmp_path), strict=True)
    failing = {"npm run pads": RuntimeError(ERROR)}
    call = Call("npm run pads")
    scripts: list[list[Turn]] = [[call, Say("no")], [call, call, Say("no")]]
    for turns in scripts:
        driven.prompts.clear()
        agent = shell_agent(
            turns,
            driven,
            failing,
            middleware=[HeedfulAgentMiddleware(host, hold_back=True)],
        )
        await agent.run("build it")
    assert driven.commands == ["npm run pads"] * 2
    assert "never worked" in driven.prompts[1]

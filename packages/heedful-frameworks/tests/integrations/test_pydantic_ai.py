"""What only pydantic-ai has: its own retries, output types, messages, streams."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    ModelResponse,
    ModelRetry,
    TextPart,
    ToolCallPart,
    ToolOutput,
    UnexpectedModelBehavior,
)
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel

from heedful import Done, policy
from heedful.integrations import verdict_of
from heedful.testing.conformance import TASK
from heedful_frameworks.pydantic_ai import Heedful
from tests.hosts import patient_host
from tests.integrations.double_pydantic_ai import shell_agent
from tests.integrations.doubles import ERROR, Call, Driven, ModelDown, Say, Turn
from tests.integrations.test_hosts import host_that_judges, memory_in


@pytest.mark.parametrize(
    "output", [str, ToolOutput(str)], ids=["text", "an output tool"]
)
@pytest.mark.parametrize("retries", [0, 1, 9])
async def test_the_policy_decides_and_retries_send_one_rejected_answer(
    output: Any, retries: int
) -> None:
    driven = Driven()
    words = ("one", "two", "six", "ten")
    script: list[Turn] = [
        Call("ls"),
        *[Say(f"{word} " * 300) for word in words],
        Say("P1"),
    ]
    heedful = Heedful(host=host_that_judges(None, policy=policy("attempts.limit=5")))
    agent = shell_agent(
        script,
        driven,
        output_type=output,
        retries={"output": retries},
        capabilities=[heedful],
    )
    result = await agent.run(TASK)
    assert result.output == "P1"
    assert driven.commands == ["ls"]
    assert result.usage.requests == 6
    sizes = [len(prompt) for prompt in driven.prompts[2:]]
    assert max(sizes) < 1.2 * min(sizes)
    assert "one one" not in driven.prompts[3]
    chat = result.all_messages_json().decode()
    assert [f"{word} {word}" in chat for word in words] == [False] * 4
    assert '"ls"' in chat


async def test_the_best_answer_when_retries_of_the_agent_end_first(
    tmp_path: Any,
) -> None:
    memory = memory_in(tmp_path)
    driven = Driven()
    script = [Say("high"), Say("")]
    agent = shell_agent(
        script, driven, capabilities=[Heedful(host=host_that_judges(memory))]
    )

    @agent.output_validator
    def never(output: str) -> str:
        if len(driven.prompts) > 1:
            raise ModelRetry("no")
        return output

    result = await agent.run(TASK, run_id="one")
    assert result.output == "high"
    assert verdict_of(result) == Done(1, passed=False)
    assert result.all_messages()[-1].parts[0] == TextPart("high")
    assert not [
        match for match in await memory.recall(TASK, 10) if match.example.accepted
    ]
    with pytest.raises(UnexpectedModelBehavior):
        await agent.run(TASK, run_id="two")


async def test_the_same_answer_after_a_kill_is_an_attempt_of_its_own() -> None:
    driven = Driven()
    host = host_that_judges(None)
    script: list[Turn] = [Say("high"), ModelDown("killed"), Say("high"), Say("P1")]
    agent = shell_agent(script, driven, capabilities=[Heedful(host=host)])
    with pytest.raises(ModelDown):
        await agent.run(TASK, run_id="one")
    assert (await agent.run(TASK, run_id="one")).output == "high"
    assert len(driven.prompts) == 3  # stopped by the rule Repeat


async def test_a_tool_that_raises_and_a_call_that_is_held(tmp_path: Any) -> None:
    driven = Driven()
    host = patient_host(memory=memory_in(tmp_path), strict=True)
    raising = Agent(TestModel(), capabilities=[Heedful(host=host)])

    @raising.tool_plain
    def shell(command: str) -> str:
        raise RuntimeError(ERROR)

    for _ in range(2):
        with pytest.raises(RuntimeError, match="pads"):
            await raising.run("build")
    capabilities = [Heedful(host=host, hold_back=True)]
    agent = shell_agent(
        [Call("a"), Call("b"), Say("no")], driven, capabilities=capabilities
    )
    await agent.run("build")
    assert driven.commands == ["b"]
    assert driven.prompts[-1].count("failed in 2 sessions") == 1


async def test_streams() -> None:
    driven = Driven()
    host = host_that_judges(None)
    agent = shell_agent(
        [Say("high"), Say("P1")], driven, capabilities=[Heedful(host=host)]
    )
    async with agent.run_stream(TASK, run_id="one") as stream:  # cannot ask again
        assert [text async for text in stream.stream_text()][-1] == "high"
        assert await stream.get_output() == "high"
    async with agent.run_stream_events(TASK, run_id="one") as events:  # goes on
        last: Any = [event async for event in events][-1]
    assert last.result.output == "P1"
    assert verdict_of(last.result) == Done(2, passed=True)
    assert "answer with one of P0 to P3" in driven.prompts[1]


class Refund(BaseModel):
    order: str


class Escalation(BaseModel):
    order: str


async def test_a_check_gets_the_class_of_a_union() -> None:
    judged = list[Any]()

    def is_escalated(answer: Any, context: Any) -> bool:
        judged.append(answer)
        return isinstance(answer, Escalation)

    def answer(messages: Any, info: Any) -> ModelResponse:
        tool = info.output_tools[len(judged)]
        return ModelResponse([ToolCallPart(tool.name, {"order": "7"})])

    host = host_that_judges(None, checks=[is_escalated])
    agent: Any = Agent(
        FunctionModel(answer),
        output_type=[Refund, Escalation],
        capabilities=[Heedful(host)],
    )
    result = await agent.run(TASK)
    assert judged == [Refund(order="7"), Escalation(order="7")]
    assert result.output == Escalation(order="7")
    assert verdict_of(result) == Done(2, passed=True)

"""What only pydantic-ai has: its own retries, output types, messages, streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry, TextPart, ToolOutput, UnexpectedModelBehavior
from pydantic_ai.models.test import TestModel

from heedful import policy
from heedful.errors import Conflict
from heedful.integrations import Host
from heedful.integrations.pydantic_ai import Heedful
from heedful.store import loops
from tests.integrations.double_pydantic_ai import scripted, shell_agent
from tests.integrations.doubles import Call, Driven, Say, Turn
from tests.integrations.test_hosts import ERROR, TASK, judging, memory_in


@pytest.mark.parametrize("output", [str, ToolOutput(str)])
@pytest.mark.parametrize("retries", [0, 1, 9])
async def test_the_policy_decides_and_what_retries_send_stays_bounded(
    output: Any, retries: int
) -> None:
    driven, words = Driven(), ("one", "two", "six", "ten")
    script: list[Turn] = [Call("ls"), *[Say(f"{word} " * 300) for word in words], Say("P1")]
    host = judging(None, policy=policy("attempts.limit=5"))
    options = {"output_type": output, "retries": {"output": retries}}
    agent = shell_agent(script, driven, capabilities=[Heedful(host=host)], **options)
    result = await agent.run(TASK)
    assert result.output == "P1"
    assert driven.commands == ["ls"]
    sizes = [len(prompt) for prompt in driven.prompts]
    assert max(sizes[2:]) < 1.2 * min(sizes[2:])
    assert "one one" not in driven.prompts[-1]
    assert result.usage.requests == 6
    history = result.all_messages_json().decode()
    assert "one one" not in history
    assert "ten ten" not in history
    assert '"ls"' in history


async def test_the_best_answer_when_retries_of_the_agent_end_first(tmp_path: Path) -> None:
    memory, driven = memory_in(tmp_path), Driven()
    agent: Agent[Any, Any] = Agent(
        scripted([Say("high"), Say("")], driven), capabilities=[Heedful(host=judging(memory))]
    )

    @agent.output_validator
    def never(output: str) -> str:
        if len(driven.prompts) > 1:
            raise ModelRetry("no")
        return output

    result = await agent.run(TASK, run_id="one")
    assert result.output == "high"
    assert result.all_messages()[-1].parts[0] == TextPart("high")
    assert not [one for one in await memory.recall(TASK, 10) if one.example.accepted]
    with pytest.raises(UnexpectedModelBehavior):
        await agent.run(TASK, run_id="two")


async def test_a_known_id_returns_its_answer_or_conflicts_with_another_task(tmp_path: Path) -> None:
    driven, host = Driven(), judging(memory_in(tmp_path))
    agent = shell_agent([Say("high"), Say("P1")], driven, capabilities=[Heedful(host=host)])
    assert [(await agent.run(TASK, run_id="one")).output for _ in "12"] == ["P1", "P1"]
    assert len(driven.prompts) == 2
    with pytest.raises(Conflict):
        await agent.run("another task", run_id="one")


async def test_a_tool_that_raises_and_a_call_that_is_held(tmp_path: Path) -> None:
    driven, host = Driven(), Host(memory=memory_in(tmp_path), strict=True)
    raising = Agent(TestModel(), capabilities=[Heedful(host=host)])

    @raising.tool_plain
    def shell(command: str) -> str:
        raise RuntimeError(ERROR)

    with pytest.raises(RuntimeError, match="pads"):
        await raising.run("build")
    held = [Heedful(host=host, hold=["shell"])]
    agent = shell_agent([Call("a"), Call("b"), Say("no")], driven, capabilities=held)
    await agent.run("build")
    assert driven.commands == ["b"]
    assert driven.prompts[-1].count("failed with") == 1


async def test_streams(tmp_path: Path) -> None:
    memory, driven = memory_in(tmp_path), Driven()
    agent = Agent(
        TestModel(custom_output_text="high"), capabilities=[Heedful(host=judging(memory))]
    )
    async with agent.run_stream(TASK, run_id="one") as stream:
        assert [text async for text in stream.stream_text()][-1] == "high"
        assert await stream.get_output() == "high"
    stored = await memory.store.read(memory.scope, loops.read, "one")
    assert len(stored.loop.attempts) == 1
    two = shell_agent([Say("high"), Say("P1")], driven, capabilities=[Heedful(host=judging(None))])
    async with two.iter(TASK) as run:
        async for _ in run:
            pass
    assert run.result is not None
    assert run.result.output == "P1"


def test_sync() -> None:
    host = judging(None)
    agent = shell_agent([Say("high"), Say("P1")], Driven(), capabilities=[Heedful(host=host)])
    assert agent.run_sync(TASK).output == "P1"

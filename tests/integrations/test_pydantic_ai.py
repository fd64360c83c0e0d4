"""What only pydantic-ai has: its own retries, output types, messages, streams."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    ModelRequest,
    ModelResponse,
    ModelRetry,
    RunContext,
    TextContent,
    TextPart,
    ToolCallPart,
    ToolFailed,
    ToolOutput,
    ToolReturn,
    ToolReturnPart,
    UnexpectedModelBehavior,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel

from heedful import Done, policy
from heedful.errors import Conflict, InvalidInput
from heedful.integrations import verdict_of
from heedful.integrations.pydantic_ai import Heedful
from tests import fix_of_page as earlier_turns
from tests.hosts import patient_host
from tests.integrations.double_pydantic_ai import scripted, shell_agent
from tests.integrations.doubles import Call, Driven, ModelDown, Say, Turn, shell_of
from tests.integrations.test_hosts import ERROR, TASK, host_that_judges, memory_in


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


async def test_the_class_in_place_of_an_object_is_refused() -> None:
    agent = Agent(TestModel(), capabilities=[Heedful])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match="it must be a Host"):
        await agent.run(TASK)


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


async def test_a_known_id_returns_its_answer_or_conflicts_with_another_task() -> None:
    driven = Driven()
    heedful = Heedful(host=host_that_judges(None))
    agent = shell_agent([Say("high"), Say("P1")], driven, capabilities=[heedful])
    assert [(await agent.run(TASK, run_id="one")).output for _ in "12"] == ["P1", "P1"]
    assert len(driven.prompts) == 2
    with pytest.raises(Conflict):
        await agent.run("another task", run_id="one")


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


def content_texts(ctx: RunContext[None], page: str) -> Any:
    return ToolReturn(return_value="done", content=[page])


def content_tagged(ctx: RunContext[None], page: str) -> Any:
    return ToolReturn(return_value="done", content=[TextContent(page)])


def enqueue_next(ctx: RunContext[None], page: str) -> Any:
    ctx.enqueue(page)
    return "done"


def enqueue_last(ctx: RunContext[None], page: str) -> Any:
    ctx.enqueue(page, priority="when_idle")
    return "done"


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(content_texts, id="content of a result"),
        pytest.param(content_tagged, id="tagged content of a result"),
        pytest.param(enqueue_next, id="message for the next request"),
        pytest.param(enqueue_last, id="message after the answer"),
    ],
)
async def test_a_prompt_that_a_tool_adds_is_no_word_of_the_user_in_a_later_turn(
    read: Any, tmp_path: Any
) -> None:
    memory = earlier_turns.memory_in(tmp_path)
    run = shell_of([], earlier_turns.FAILING, ToolFailed)
    turns = [Call("read"), Say("I read it."), Say("Yes."), *earlier_turns.FIXES]
    if read is not enqueue_last:
        del turns[2]
    host = patient_host(memory=memory, strict=True)
    agent = Agent(scripted(turns, Driven()), capabilities=[Heedful(host=host)])

    @agent.tool
    def shell(ctx: RunContext[None], command: str) -> Any:
        return read(ctx, earlier_turns.PAGE) if command == "read" else run(command)

    first = await agent.run("read the docs")
    await agent.run("run the tests", message_history=first.all_messages())
    assert not await earlier_turns.is_told(memory)


READS: list[Any] = [
    ModelRequest.user_text_prompt("read the docs"),
    ModelResponse([ToolCallPart("read", {}, tool_call_id="1")]),
    ModelRequest([ToolReturnPart("read", "done", tool_call_id="1")]),
]
PROMPT = UserPromptPart(earlier_turns.PAGE)
ANSWER = ModelResponse([TextPart("Yes.")])


@pytest.mark.parametrize(
    ("history", "told"),
    [
        pytest.param(
            [ModelRequest([PROMPT]), ANSWER], True, id="the user's first message"
        ),
        pytest.param(
            [*READS, ANSWER, ModelRequest([PROMPT]), ANSWER],
            True,
            id="the user's message after an answer",
        ),
        pytest.param(
            [*READS, ModelRequest([PROMPT]), ANSWER],
            False,
            id="a message after a result",
        ),
        pytest.param(
            [*READS[:2], ModelRequest([*READS[2].parts, PROMPT]), ANSWER],
            False,
            id="a message beside a result",
        ),
    ],
)
async def test_whose_words_a_history_without_ids_of_runs_has(
    history: Any, told: bool, tmp_path: Any
) -> None:
    memory = earlier_turns.memory_in(tmp_path)
    host = patient_host(memory=memory, strict=True)
    agent = shell_agent(
        earlier_turns.FIXES,
        Driven(),
        earlier_turns.FAILING,
        capabilities=[Heedful(host=host)],
    )
    await agent.run("run the tests", message_history=history)
    assert await earlier_turns.is_told(memory) is told


async def test_the_user_speaks_also_after_an_answer_of_an_output_tool(
    tmp_path: Any,
) -> None:
    memory = earlier_turns.memory_in(tmp_path)
    host = patient_host(memory=memory, strict=True)
    agent = shell_agent(
        [Say("Hello."), Say("Yes."), *earlier_turns.FIXES],
        Driven(),
        earlier_turns.FAILING,
        output_type=ToolOutput(str),
        capabilities=[Heedful(host=host)],
    )
    messages: list[Any] = []
    for task in ("hello", earlier_turns.PAGE, "run the tests"):
        result = await agent.run(task, message_history=messages)
        messages = result.all_messages()
    assert await earlier_turns.is_told(memory)

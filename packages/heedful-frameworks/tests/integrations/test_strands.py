"""What only Strands has: sessions, objects, interrupts, streams, agents as tools."""

from typing import Any

import pytest
from strands import Agent
from strands.hooks import BeforeToolCallEvent, HookProvider
from strands.session import FileSessionManager

from heedful import Done, policy
from heedful.integrations import verdict_of
from heedful.testing.conformance import TASK
from heedful_frameworks.strands import HeedfulPlugin
from tests.hosts import patient_host
from tests.integrations.double_strands import Scripted, shell_agent
from tests.integrations.doubles import (
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


def texts(agent: Agent) -> list[str]:
    """Return the texts of an agent's messages."""
    blocks = [block for message in agent.messages for block in message["content"]]
    return [block["text"] for block in blocks if "text" in block]


def test_the_messages_and_the_session_have_no_rejected_answer(tmp_path: Any) -> None:
    driven = Driven()
    session = FileSessionManager("chat", storage_dir=str(tmp_path))
    plugins = [HeedfulPlugin(host_that_judges(memory_in(tmp_path)))]
    agent = shell_agent(
        WRONG_THEN_RIGHT, driven, plugins=plugins, session_manager=session
    )
    result = agent(TASK)
    assert str(result).strip() == "P1"
    assert verdict_of(result) == Done(2, passed=True)
    assert texts(agent) == [TASK, "P1"]
    assert result.metrics.accumulated_usage["totalTokens"] == 45

    restored = shell_agent(
        [Say("P2")],
        driven,
        plugins=plugins,
        session_manager=FileSessionManager("chat", storage_dir=str(tmp_path)),
    )
    assert verdict_of(restored("And the roof?")) == Done(1, passed=True)
    assert texts(restored) == [TASK, "P1", "And the roof?", "P2"]
    assert driven.prompts[-1].count("answer with one of P0 to P3") == 1


@cases(
    ("answers", "last"),
    {
        "the second is right": (["high", "P2"], "P2"),
        "none is right": (["high", "urgent"], "high"),
    },
)
async def test_an_object_is_judged_as_data(answers: list[str], last: str) -> None:
    driven = Driven()
    turns = [Say(Ticket(severity=answer).model_dump_json()) for answer in answers]
    host = host_that_judges(
        None,
        checks=[grade],
        policy=policy("attempts.limit=2"),
    )
    agent = shell_agent(turns, driven, plugins=[HeedfulPlugin(host)])
    result = await agent.invoke_async(TASK, structured_output_model=Ticket)
    assert result.structured_output == Ticket(severity=last)
    verdict = verdict_of(result)
    assert verdict is not None
    assert verdict.passed is (last == "P2")
    assert "answer with one of P0 to P3" in driven.prompts[1]
    # An object that is none of Ticket is left to Strands.
    agent = shell_agent(
        [Say("{}"), turns[1]],
        driven,
        plugins=[HeedfulPlugin(host)],
    )
    result = await agent.invoke_async(TASK, structured_output_model=Ticket)
    assert result.structured_output == Ticket(severity=answers[1])


async def test_a_model_that_must_answer_with_an_object_does_so_in_a_text() -> None:
    class Native(Scripted):
        """Has no tools: it answers with a text, and with JSON when it must."""

        _supports_structured_output = True

        def stream(self, messages: Any, *rest: Any, **options: Any) -> Any:
            return super().stream(messages, **options)

    driven = Driven()
    script = [Say("I grade it"), Say('{"severity": "high"}'), Say('{"severity": "P3"}')]
    host = host_that_judges(None, checks=[grade])
    agent = Agent(
        Native(script, driven), plugins=[HeedfulPlugin(host)], callback_handler=None
    )
    result = await agent.invoke_async(TASK, structured_output_model=Ticket)
    assert result.structured_output == Ticket(severity="P3")
    assert verdict_of(result) == Done(2, passed=True)


class Approval(HookProvider):
    """Asks before each call of a tool."""

    def register_hooks(self, registry: Any, **_: Any) -> None:
        registry.add_callback(BeforeToolCallEvent, self.approve)

    def approve(self, event: BeforeToolCallEvent) -> None:
        event.interrupt("approve")


async def test_a_run_goes_on_after_an_interrupt_also_in_another_process(
    tmp_path: Any,
) -> None:
    driven = Driven()
    memory = memory_in(tmp_path)

    def agent_of_a_process(script: list[Turn]) -> Agent:
        return shell_agent(
            script,
            driven,
            plugins=[HeedfulPlugin(host_that_judges(memory))],
            hooks=[Approval()],
            session_manager=FileSessionManager("chat", storage_dir=str(tmp_path)),
        )

    script: list[Turn] = [Say("high"), Call("ls"), Say("P1")]
    paused = await agent_of_a_process(script).invoke_async(TASK)
    assert paused.stop_reason == "interrupt"
    assert verdict_of(paused) is None
    assert driven.commands == []
    answers: Any = [
        {"interruptResponse": {"interruptId": interrupt.id, "response": "yes"}}
        for interrupt in paused.interrupts or ()
    ]
    result = await agent_of_a_process(script).invoke_async(answers)
    assert driven.commands == ["ls"]
    assert str(result).strip() == "P1"
    assert verdict_of(result) == Done(2, passed=True)


async def test_a_call_that_another_hook_cancels_is_not_learnt(tmp_path: Any) -> None:
    def cancel(event: BeforeToolCallEvent) -> None:
        event.cancel_tool = "not today"

    driven = Driven()
    memory = memory_in(tmp_path)
    plugins = [HeedfulPlugin(patient_host(memory=memory, strict=True))]
    turns: list[Turn] = [Call("npm run pads"), Say("no")]
    agent = shell_agent(turns, driven, plugins=plugins, hooks=[cancel])
    await agent.invoke_async("build")
    assert driven.commands == []
    assert not await memory.top()


async def test_a_stream_has_all_answers_and_ends_with_the_best() -> None:
    driven = Driven()
    agent = shell_agent(
        WRONG_THEN_RIGHT, driven, plugins=[HeedfulPlugin(host_that_judges(None))]
    )
    events = [event async for event in agent.stream_async(TASK)]
    assert [event["data"] for event in events if "data" in event] == ["high", "P1"]
    assert verdict_of(events[-1]["result"]) == Done(2, passed=True)


async def test_a_run_that_its_reader_left_and_one_that_fails_are_over(
    tmp_path: Any,
) -> None:
    driven = Driven()
    plugin = HeedfulPlugin(host_that_judges(memory_in(tmp_path)))
    agent = shell_agent([ModelDown("503")], driven, plugins=[plugin])
    stream: Any = agent.stream_async(TASK)
    async for _ in stream:
        break
    await stream.aclose()
    with pytest.raises(ModelDown):
        await agent.invoke_async(TASK)
    assert not plugin.runs


async def test_an_agent_inside_an_agent_has_a_run_of_its_own() -> None:
    driven = Driven()
    plugin = HeedfulPlugin(host_that_judges(None))
    expert = Agent(
        Scripted([Say("high"), Say("P2")], driven),
        name="shell",
        plugins=[plugin],
        callback_handler=None,
    )
    desk = Agent(
        Scripted([Call("grade"), Say("P2")], Driven()),
        tools=[expert.as_tool()],
        plugins=[plugin],
        callback_handler=None,
    )
    result = await desk.invoke_async(TASK)
    assert verdict_of(result) == Done(1, passed=True)
    assert len(driven.prompts) == 2

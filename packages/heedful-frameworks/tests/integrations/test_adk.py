"""What only Google ADK has: sessions, transfers, workflows, agents as tools."""

from typing import Any

import pytest
from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.agents.run_config import StreamingMode
from google.adk.models import LlmResponse
from google.adk.tools import AgentTool, FunctionTool, LongRunningFunctionTool
from google.genai import types

from heedful import Done, policy
from heedful.integrations import verdict_of
from heedful.testing.conformance import TASK
from heedful_frameworks.adk import HeedfulAdkPlugin
from tests.hosts import patient_host
from tests.integrations.double_adk import Scripted, run, runner_of, shell_agent, text_of
from tests.integrations.doubles import ERROR, Call, Driven, Say, Ticket, Turn, grade
from tests.integrations.test_hosts import host_that_judges, memory_in
from tests.tables import cases

WRONG_THEN_RIGHT: list[Turn] = [Call("ls"), Say("high"), Say("P1")]


async def session_texts(runner: Any, session_id: str = "chat") -> list[str]:
    """Return the texts of a session, "" for calls."""
    session = await runner.session_service.get_session(
        app_name="tests", user_id="user", session_id=session_id
    )
    return [text_of(event.content) for event in session.events if event.content]


async def test_a_session_has_no_rejected_answer_and_the_next_turn_follows(
    tmp_path: Any,
) -> None:
    driven = Driven()
    agent = shell_agent([*WRONG_THEN_RIGHT, Say("P2")], driven)
    runner = runner_of(agent, HeedfulAdkPlugin(host_that_judges(memory_in(tmp_path))))
    events = await run(runner, TASK)
    assert verdict_of(events[-1]) == Done(2, passed=True)
    assert [event.is_final_response() for event in events] == [False] * 4 + [True]
    done = "{'result': 'done'}"
    assert await session_texts(runner) == [TASK, "", done, "P1"]

    events = await run(runner, "And the roof?")
    assert verdict_of(events[-1]) == Done(1, passed=True)
    assert (await session_texts(runner))[-2:] == ["And the roof?", "P2"]
    assert driven.prompts[-1].count("answer with one of P0 to P3") == 1


@cases(
    ("answers", "last"),
    {
        "the second is right": (["high", "P2"], "P2"),
        "none is right": (["high", "urgent"], "high"),
    },
)
@pytest.mark.parametrize("with_tools", [False, True], ids=["text", "a call of a tool"])
async def test_an_object_is_judged_as_data(
    with_tools: bool, answers: list[str], last: str
) -> None:
    driven = Driven()
    host = host_that_judges(
        None,
        checks=[grade],
        policy=policy("attempts.limit=2"),
    )

    class Answering(Scripted):
        """Answers with calls of the tool by which ADK takes objects."""

        async def generate_content_async(
            self, llm_request: Any, stream: bool = False
        ) -> Any:
            number = len(driven.prompts)
            async for response in super().generate_content_async(llm_request):
                if with_tools:
                    call = types.FunctionCall(
                        id=f"call-{number}",
                        name="set_model_response",
                        args={"severity": answers[min(number, 1)]},
                    )
                    part = types.Part(function_call=call)
                    response.content = types.Content(role="model", parts=[part])
                yield response

    turns = [Say(Ticket(severity=answer).model_dump_json()) for answer in answers]
    agent = LlmAgent(
        name="desk",
        model=Answering(turns, driven),
        output_schema=Ticket,
        output_key="ticket",
        tools=[print] if with_tools else [],
    )
    runner = runner_of(agent, HeedfulAdkPlugin(host))
    events = await run(runner, TASK)
    assert Ticket.model_validate_json(text_of(events[-1].content)) == Ticket(
        severity=last
    )
    verdict = verdict_of(events[-1])
    assert verdict is not None
    assert verdict.passed is (last == "P2")
    assert driven.prompts[1].count("answer with one of P0 to P3") == 1
    session = await runner.session_service.get_session(
        app_name="tests", user_id="user", session_id="chat"
    )
    assert session is not None
    assert session.state["ticket"] == {"severity": last}


async def test_an_agent_to_which_the_root_transfers_is_judged() -> None:
    driven = Driven()
    expert = shell_agent([Say("high"), Say("P2")], driven, name="expert")

    class Desk(Scripted):
        """Transfers each task to the expert."""

        async def generate_content_async(
            self, llm_request: Any, stream: bool = False
        ) -> Any:
            call = types.FunctionCall(
                name="transfer_to_agent", args={"agent_name": "expert"}
            )
            part = types.Part(function_call=call)
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    desk = LlmAgent(name="desk", model=Desk([], Driven()), sub_agents=[expert])
    runner = runner_of(desk, HeedfulAdkPlugin(host_that_judges(None)))
    events = await run(runner, TASK)
    assert events[-1].author == "expert"
    assert verdict_of(events[-1]) == Done(2, passed=True)
    assert len(driven.prompts) == 2


@pytest.mark.parametrize("agents", [(), ("grader",)], ids=["none", "the grader"])
async def test_of_a_workflow_the_named_agents_are_judged(agents: Any) -> None:
    drafts = shell_agent([Say("a draft")], Driven(), name="writer")
    driven = Driven()
    grades = shell_agent([Say("high"), Say("P2")], driven, name="grader")
    with pytest.warns(DeprecationWarning, match="SequentialAgent"):
        root = SequentialAgent(name="desk", sub_agents=[drafts, grades])
    plugin = HeedfulAdkPlugin(host_that_judges(None), agents=agents)
    events = await run(runner_of(root, plugin), TASK)
    assert text_of(events[-1].content) == ("P2" if agents else "high")
    assert verdict_of(events[-1]) == (Done(2, passed=True) if agents else None)
    assert not plugin.runs


# ADK gives the plugins to the runner of such an agent by a deprecated argument.
@pytest.mark.filterwarnings("ignore:The `plugins` argument:DeprecationWarning")
@pytest.mark.parametrize("is_subagent", [False, True], ids=["tool", "subagent"])
async def test_an_agent_that_is_a_tool_is_not_judged(is_subagent: bool) -> None:
    driven = Driven()
    expert = LlmAgent(
        name="shell",
        model=Scripted([Say("a word")], driven),
        mode="single_turn" if is_subagent else None,
    )

    class Asking(Scripted):
        """Asks the expert first."""

        async def generate_content_async(
            self, llm_request: Any, stream: bool = False
        ) -> Any:
            async for response in super().generate_content_async(llm_request):
                for part in response.content.parts:
                    if part.function_call:
                        part.function_call.args = {"request": "grade it"}
                yield response

    desk = LlmAgent(
        name="desk",
        model=Asking([Call("ask"), Say("high"), Say("P2")], Driven()),
        tools=[] if is_subagent else [AgentTool(expert)],
        sub_agents=[expert] if is_subagent else [],
    )
    plugin = HeedfulAdkPlugin(host_that_judges(None))
    events = await run(runner_of(desk, plugin), TASK)
    assert verdict_of(events[-1]) == Done(2, passed=True)
    assert text_of(events[-1].content) == "P2"
    assert driven.prompts == ["grade it"]


async def test_an_error_may_be_a_result(tmp_path: Any) -> None:
    host = patient_host(memory=memory_in(tmp_path), strict=True)

    def shell(command: str) -> dict[str, str]:
        """Run a command."""
        return {"status": "error", "error_message": ERROR}

    driven = Driven()
    for _ in range(3):
        driven = Driven()
        agent = shell_agent([Call("npm run pads"), Say("no")], driven, tools=[shell])
        await run(runner_of(agent, HeedfulAdkPlugin(host)), "build")
    assert driven.prompts[1].count("has not worked since") == 1


async def test_a_run_goes_on_when_a_long_running_tool_has_answered(
    tmp_path: Any,
) -> None:
    def shell(command: str) -> None:
        """Ask a person."""

    driven = Driven()
    tool: FunctionTool = LongRunningFunctionTool(shell)
    agent = shell_agent([Call("ask"), Say("high"), Say("P1")], driven, tools=[tool])
    plugin = HeedfulAdkPlugin(host_that_judges(memory_in(tmp_path)))
    runner = runner_of(agent, plugin)
    paused = await run(runner, TASK)
    assert verdict_of(paused[-1]) is None
    answer = types.FunctionResponse(
        id="call-1", name="shell", response={"answer": "yes"}
    )
    events = [
        event
        async for event in runner.run_async(
            user_id="user",
            session_id="chat",
            new_message=types.UserContent(types.Part(function_response=answer)),
        )
    ]
    assert verdict_of(events[-1]) == Done(2, passed=True)
    assert not plugin.runs


async def test_a_stream_has_all_answers_and_run_ends_with_the_best() -> None:
    plugin = HeedfulAdkPlugin(host_that_judges(None))
    runner = runner_of(shell_agent([Say("high"), Say("P1")], Driven()), plugin)
    events = await run(runner, TASK, streaming_mode=StreamingMode.SSE)
    assert verdict_of(events[-1]) == Done(2, passed=True)
    partial = [text_of(event.content) for event in events if event.partial]
    assert "high" in partial
    assert await session_texts(runner) == [TASK, "P1"]

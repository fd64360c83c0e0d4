"""What only Haystack has: hooks of others, exits by a tool, steps, pipelines."""

from typing import Any

from haystack.components.agents import Agent
from haystack.components.agents.state import State
from haystack.dataclasses import ChatMessage, ChatRole, ToolCall
from haystack.hooks import hook
from haystack.tools.from_function import create_tool_from_function

from heedful import Done, policy
from heedful.integrations import verdict_of
from heedful.testing.conformance import TASK
from heedful_frameworks.haystack import hooks
from tests.hosts import patient_host
from tests.integrations.double_haystack import asked, scripted, shell_agent, text_of
from tests.integrations.doubles import ERROR, Call, Driven, Say, Turn
from tests.integrations.test_hosts import host_that_judges, memory_in
from tests.tables import cases

WRONG_THEN_RIGHT: list[Turn] = [Call("ls"), Say("high"), Say("P1")]
PADS = "npm run pads"


def test_the_messages_have_no_rejected_answer_and_the_next_turn_follows(
    tmp_path: Any,
) -> None:
    driven = Driven()
    host = host_that_judges(memory_in(tmp_path))
    agent = shell_agent([*WRONG_THEN_RIGHT, Say("P2")], driven, hooks=hooks(host))
    result = agent.run(asked(TASK))
    assert verdict_of(result) == Done(2, passed=True)
    assert [text_of(message) for message in result["messages"]] == [
        TASK,
        "",
        "done",
        "P1",
    ]
    again = agent.run([*result["messages"], *asked("And the roof?")])
    assert again["last_message"].text == "P2"
    assert verdict_of(again) == Done(1, passed=True)
    assert TASK in driven.prompts[-1]
    assert driven.prompts[-1].count("answer with one of P0 to P3") == 1


@cases(
    ("options", "reason"),
    {
        "the policy ends the run": ({}, "text"),
        "its steps end": ({"max_agent_steps": 2}, "max_agent_steps"),
    },
)
async def test_the_best_answer_is_the_last_message(
    options: dict[str, Any], reason: str
) -> None:
    limit = 2 if reason == "text" else 9
    host = host_that_judges(None, policy=policy(f"attempts.limit={limit}"))
    agent = shell_agent(
        [Say("bad"), Say("worse")], Driven(), hooks=hooks(host), **options
    )
    result = await agent.run_async(asked(TASK))
    assert [text_of(message) for message in result["messages"]] == [TASK, "bad"]
    assert result["exit_reason"] == reason
    verdict = verdict_of(result)
    assert verdict is not None
    assert verdict.best == 1
    assert verdict.passed is False


async def test_an_incomplete_answer_is_not_judged() -> None:
    driven = Driven()
    model = scripted([Say("P")], driven)
    model.meta["finish_reason"] = "length"
    agent = Agent(chat_generator=model, hooks=hooks(host_that_judges(None)))
    result = await agent.run_async(asked(TASK))
    assert result["exit_reason"] == "length"
    assert verdict_of(result) is None


async def test_the_result_of_a_tool_that_ends_the_run_is_judged() -> None:
    driven = Driven()
    results = {"first": "high", "second": "P1"}
    agent = shell_agent(
        [Call("first"), Call("second")],
        driven,
        results,
        exit_conditions=["shell"],
        hooks=hooks(host_that_judges(None)),
    )
    result = await agent.run_async(asked(TASK))
    assert text_of(result["last_message"]) == "P1"
    assert result["exit_reason"] == "shell"
    assert verdict_of(result) == Done(2, passed=True)
    assert "answer with one of P0 to P3" in driven.prompts[1]


async def test_a_call_that_is_held_back_is_answered_and_the_others_run(
    tmp_path: Any,
) -> None:
    host = patient_host(memory=memory_in(tmp_path), strict=True)
    failing = {PADS: RuntimeError(ERROR)}
    for _ in range(2):
        agent = shell_agent(
            [Call(PADS), Say("no")], Driven(), failing, hooks=hooks(host)
        )
        await agent.run_async(asked("build"))

    driven = Driven()
    calls = [
        ToolCall(tool_name="shell", arguments={"command": command}, id=command)
        for command in (PADS, "ls")
    ]
    both = ChatMessage.from_assistant(tool_calls=calls)
    model = scripted([Call(PADS), Say("no")], driven)
    then = model.response_fn
    assert then
    model.response_fn = lambda messages: both if len(messages) == 1 else then(messages)
    agent = shell_agent([], driven, failing, hooks=hooks(host, hold_back=True))
    agent.chat_generator = model
    result = await agent.run_async(asked("build"))
    assert driven.commands == ["ls", PADS]
    assert driven.prompts[0].count("has not worked since") == 1
    roles = [message.role for message in result["messages"]]
    call, answer = ChatRole.ASSISTANT, ChatRole.TOOL
    assert roles[1:] == [call, answer, call, answer, call, answer, call]


async def test_equal_calls_of_a_model_without_ids_have_their_results(
    tmp_path: Any,
) -> None:
    driven = Driven()
    host = patient_host(memory=memory_in(tmp_path), strict=True)
    agent = shell_agent([], driven, {"a": RuntimeError(ERROR)}, hooks=hooks(host))
    agent.chat_generator = scripted(
        [Call("a"), Call("a"), Say("no")], driven, ids=False
    )
    result = await agent.run_async(asked("build"))
    assert driven.commands == ["a", "a"]
    assert result["last_message"].text == "no"


async def test_hooks_of_others_see_what_the_agent_has_and_may_go_on() -> None:
    driven = Driven()
    seen = list[list[str]]()

    def watch(state: State) -> None:
        seen.append([text_of(message) for message in state.data["messages"]])

    def require_tool(state: State) -> None:
        if not state.data["tool_call_counts"]["shell"]:
            state.set("continue_run", True)

    def reject_all(state: State) -> None:
        *messages, request = state.data["messages"]
        result = ChatMessage.from_tool(
            "no",
            origin=request.tool_calls[0],
            error=True,
        )
        state.data["messages"] = [*messages, request, result]

    points: Any = {
        "before_llm": [hook(watch)],
        "on_exit": [hook(require_tool)],
        "after_run": [hook(watch)],
    }
    agent = shell_agent(
        [Say("high"), Call("ls"), Say("urgent"), Say("P1")],
        driven,
        hooks=hooks(host_that_judges(None), others=points),
    )
    result = await agent.run_async(asked(TASK))
    assert verdict_of(result) == Done(2, passed=True)
    assert seen[-1] == [TASK, "high", "", "done", "P1"]
    assert seen[-2] == [TASK, "high", "", "done"]

    rejecting: Any = {"before_tool": [hook(reject_all)]}
    agent = shell_agent(
        WRONG_THEN_RIGHT, driven, hooks=hooks(host_that_judges(None), others=rejecting)
    )
    driven.prompts.clear()
    driven.commands.clear()
    await agent.run_async(asked(TASK))
    assert driven.commands == []


async def test_an_agent_inside_an_agent_has_a_run_of_its_own() -> None:
    shared = hooks(host_that_judges(None))
    expert = Agent(
        chat_generator=scripted([Say("high"), Say("P2")], Driven()), hooks=shared
    )

    def shell(command: str) -> str:
        """Ask an expert."""
        return str(expert.run(asked(command))["last_message"].text)

    desk = Agent(
        chat_generator=scripted([Call("grade"), Say("P2")], Driven()),
        tools=[create_tool_from_function(shell)],
        hooks=shared,
    )
    result = await desk.run_async(asked(TASK))
    assert verdict_of(result) == Done(1, passed=True)

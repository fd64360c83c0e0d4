"""What the table cannot ask: where LangChain and LangGraph differ from other
frameworks.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain")

from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, RemoveMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import GraphRecursionError
from langgraph.types import Command, interrupt

from heedful import Done, policy
from heedful.integrations import verdict_of
from heedful.store import episodes, loops
from heedful.testing.conformance import TASK
from heedful_frameworks.langchain import HeedfulMiddleware
from tests.hosts import patient_host
from tests.integrations.double_langchain import agent_of, scripted
from tests.integrations.doubles import (
    ERROR,
    Call,
    ModelDown,
    Say,
    Ticket,
    grade,
    shell_of,
)
from tests.integrations.test_hosts import host_that_judges, memory_in

ASKED: Any = {"messages": [("user", TASK)]}
BUILD = Call("npm run pads")


def thread(id: str, **more: Any) -> Any:
    return {"configurable": {"thread_id": id}, **more}


def texts(state: Any) -> list[str]:
    return [str(message.text) for message in state["messages"]]


def read_loop(folder: Path, id: str) -> Any:
    memory = memory_in(folder)
    return asyncio.run(memory.store.read(memory.scope, loops.read, id))


def test_after_the_limit_of_steps_another_process_goes_on(tmp_path: Path) -> None:
    memory = memory_in(tmp_path)
    tools = [shell_of([], {BUILD.command: RuntimeError(ERROR)})]
    model = scripted([BUILD, BUILD, Say("high"), Say("P1")])
    with SqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
        agent = agent_of(
            model,
            HeedfulMiddleware(host_that_judges(memory)),
            tools=tools,
            checkpointer=saver,
        )
        with pytest.raises(GraphRecursionError):
            agent.invoke(ASKED, thread("one", recursion_limit=6))
        assert not read_loop(tmp_path, "one").verdicts
        other = HeedfulMiddleware(
            host_that_judges(memory_in(tmp_path))
        )  # as another process has it
        again = agent_of(model, other, tools=tools, checkpointer=saver)
        state = again.invoke(None, thread("one"))
        assert texts(state)[-1] == "P1"
        assert list(state) == ["messages"]
        assert read_loop(tmp_path, "one").verdicts[-1] == Done(2, passed=True)
        assert read_loop(tmp_path, "one").loop.usage.calls == 4
        lessons = asyncio.run(memory.top())
        assert "reflection" in [lesson["kind"] for lesson in lessons]
        again.invoke({"messages": [("user", "And the roof?")]}, thread("one"))
        assert read_loop(tmp_path, "one:2").verdicts


class Dies(HeedfulMiddleware):
    turns = iter([True, False, False])

    def after_agent(self, state: Any, runtime: Any) -> Any:
        update = super().after_agent(state, runtime)
        if next(self.turns):
            raise ModelDown("killed")
        return update


def test_a_verdict_that_no_checkpoint_has_is_not_repeated(tmp_path: Path) -> None:
    saver = InMemorySaver()
    model = scripted([Say("high"), Say("P1")])
    agent = agent_of(
        model, Dies(host_that_judges(memory_in(tmp_path))), checkpointer=saver
    )
    with pytest.raises(ModelDown):
        agent.invoke(ASKED, thread("one"))
    agent = agent_of(
        model, Dies(host_that_judges(memory_in(tmp_path))), checkpointer=saver
    )
    assert texts(agent.invoke(None, thread("one"))) == [TASK, "P1"]
    assert len(read_loop(tmp_path, "one").loop.attempts) == 2


@pytest.mark.parametrize(
    "second", [TASK, "Grade: the roof is off"], ids=["the same task", "another task"]
)
def test_without_a_checkpointer_an_ended_run_is_not_continued(
    second: str, tmp_path: Path
) -> None:
    for task in (TASK, second):
        model = scripted([Say("high"), Say("P3")])
        agent = agent_of(
            model, HeedfulMiddleware(host_that_judges(memory_in(tmp_path)))
        )
        assert texts(agent.invoke({"messages": [("user", task)]}, thread("a"))) == [
            task,
            "P3",
        ]
        assert len(model.prompts) == 2


async def test_the_best_answer_is_last_and_rejected_ones_are_gone(
    tmp_path: Path,
) -> None:
    limit = policy("default, attempts.limit=3")
    host = HeedfulMiddleware(host_that_judges(memory_in(tmp_path), policy=limit))
    rejected = [
        AIMessage(text, id=f"known-{text}") for text in ("bad", "worse", "worst")
    ]
    model = scripted(rejected)
    state = agent_of(model, host).invoke(
        ASKED, thread("one")
    )  # synchronous, in a running loop
    assert texts(state) == [TASK, "bad"]
    assert "worse" in model.prompts[2]
    assert "bad" not in model.prompts[2]
    same = create_agent(
        FakeMessagesListChatModel(responses=[rejected[0]]), middleware=[host]
    )
    assert texts(same.invoke(ASKED, thread("same object"))) == [TASK, "bad"]
    agent = agent_of(scripted(rejected), host)
    updates = [
        update
        async for update in agent.astream(ASKED, thread("two"), stream_mode="updates")
    ]
    *removed, best = updates[-1]["HeedfulMiddleware.after_agent"]["messages"]
    assert [type(update) for update in removed] == [RemoveMessage]
    assert best.content == "bad"


def test_structured_answers_are_judged_and_usage_is_counted(
    tmp_path: Path,
) -> None:
    memory = memory_in(tmp_path)
    limit = policy("default, attempts.limit=2")
    spent: Any = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
    calls = [
        {"name": "Ticket", "args": {"severity": entry}, "id": entry}
        for entry in ("high", "low")
    ]
    model = scripted(
        [AIMessage("", tool_calls=[entry], usage_metadata=spent) for entry in calls]
    )
    host = HeedfulMiddleware(
        patient_host(memory=memory, checks=[grade], policy=limit, strict=True)
    )
    agent = agent_of(model, host, response_format=ToolStrategy(Ticket))
    state = agent.invoke(ASKED, thread("one"))
    assert state["structured_response"] == Ticket(severity="high")
    verdict: Any = verdict_of(state)
    assert verdict.best == 1
    assert verdict.passed is False
    assert [entry.type for entry in state["messages"]] == ["human", "ai"]
    usage = read_loop(tmp_path, "one").loop.usage
    assert usage.calls == 2
    assert usage.prompt_tokens == 14
    assert usage.completion_tokens == 4


async def test_an_interrupt_is_no_failure_and_a_raised_error_is(tmp_path: Path) -> None:
    @tool
    async def ask(question: str) -> str:
        """Ask the user."""
        return str(interrupt(question)) if question else str(1 / len(question))

    memory = memory_in(tmp_path)
    middleware = HeedfulMiddleware(host_that_judges(memory_in(tmp_path)))
    calls = [
        {"name": "ask", "args": {"question": entry}, "id": f"call {entry}"}
        for entry in ("?", "")
    ]
    model: Any = scripted([AIMessage("", tool_calls=[entry]) for entry in calls])
    agent = create_agent(
        model, [ask], middleware=[middleware], checkpointer=InMemorySaver()
    )
    await agent.ainvoke(ASKED, thread("one"))
    with pytest.raises(ZeroDivisionError):
        await agent.ainvoke(Command(resume="yes"), thread("one"))
    events = await memory.store.read(memory.scope, episodes.session_events, "one")
    results = [entry["error"] for entry in events if entry["type"] == "tool_response"]
    assert results == ["", "ZeroDivisionError: division by zero"]

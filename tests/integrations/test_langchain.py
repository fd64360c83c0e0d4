"""What the table cannot ask: where LangChain and LangGraph differ from other frameworks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, TypedDict

import pytest

pytest.importorskip("langchain")

from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, RemoveMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from heedful import Done, Finding, policy
from heedful.integrations import Host
from heedful.integrations.langchain import HeedfulMiddleware, judge_node
from heedful.store import episodes, loops
from tests.integrations.double_langchain import agent_of, scripted, shell_tool
from tests.integrations.doubles import Call, Say
from tests.integrations.test_hosts import ERROR, TASK, judging, memory_in

ASKED: Any = {"messages": [("user", TASK)]}


def thread(id: str, **more: Any) -> Any:
    return {"configurable": {"thread_id": id}, **more}


def texts(state: Any) -> list[str]:
    return [str(one.text) for one in state["messages"]]


def test_the_limit_of_steps_skips_later_hooks_but_loses_nothing(tmp_path: Path) -> None:
    memory, failing = memory_in(tmp_path), {"npm run build": RuntimeError(ERROR)}
    model = scripted([Call("npm run build"), Call("npm run build"), Say("high"), Say("P1")])
    with SqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
        tools = [shell_tool([], failing)]
        agent = agent_of(model, judging(memory), tools=tools, checkpointer=saver)
        with pytest.raises(GraphRecursionError):
            agent.invoke(ASKED, thread("one", recursion_limit=6))
        assert [(one["kind"], one["state"]) for one in asyncio.run(memory.top())] == [
            ("reflection", "candidate")
        ]
        assert not asyncio.run(memory.store.read(memory.scope, loops.read, "one")).verdicts
        again = agent_of(model, judging(memory_in(tmp_path)), tools=tools, checkpointer=saver)
        state = again.invoke(None, thread("one"))
        assert texts(state)[-1] == "P1"
        assert list(state) == ["messages"]
        stored = asyncio.run(memory.store.read(memory.scope, loops.read, "one"))
        assert stored.verdicts[-1] == Done(2, passed=True)
        assert stored.loop.usage.calls == 4
        again.invoke({"messages": [("user", "And the roof?")]}, thread("one"))
        assert asyncio.run(memory.store.read(memory.scope, loops.read, "one:2")).verdicts


@pytest.mark.parametrize("known", ["same question", "another question"])
def test_without_a_checkpointer_an_ended_run_is_not_continued(known: str, tmp_path: Path) -> None:
    memory = memory_in(tmp_path)
    for task in (TASK, TASK if known == "same question" else "Grade: the roof is off"):
        model = scripted([Say("high"), Say("P3")])
        state = agent_of(model, judging(memory)).invoke({"messages": [("user", task)]}, thread("a"))
        assert texts(state) == [task, "P3"]
        assert len(model.prompts) == 2


async def test_the_best_answer_is_last_and_rejected_ones_are_gone(tmp_path: Path) -> None:
    host = judging(memory_in(tmp_path), policy=policy("default, attempts.limit=3"))
    rejected = [AIMessage(text, id=f"known-{text}") for text in ("bad", "worse", "worst")]
    model = scripted(rejected)
    state = agent_of(model, host).invoke(ASKED, thread("one"))  # synchronous, in a running loop
    assert texts(state) == [TASK, "bad"]
    assert "worse" in model.prompts[2]
    assert "bad" not in model.prompts[2]

    streamed = agent_of(scripted(rejected), host).astream(
        ASKED, thread("two"), stream_mode="updates"
    )
    last = [one async for one in streamed][-1]["HeedfulMiddleware.after_agent"]["messages"]
    assert [type(one) for one in last[:-1]] == [RemoveMessage] * 5
    assert last[-1].content == "bad"
    parts = agent_of(scripted(rejected), host).stream(
        ASKED, thread("three"), stream_mode="messages"
    )
    assert [part.text for part, about in parts if about["langgraph_node"] == "model"]


class Ticket(BaseModel):
    severity: str


def test_structured_answers_are_judged_as_data_and_usage_is_counted(tmp_path: Path) -> None:
    def graded(candidate: Any, _: Any) -> list[Finding]:
        fine = candidate["severity"].startswith("P")
        return [] if fine else [Finding("severity", "no severity", "P0 to P3")]

    memory = memory_in(tmp_path)
    host = Host(
        memory=memory, checks=[graded], policy=policy("default, attempts.limit=2"), strict=True
    )
    spent: Any = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
    calls = [{"name": "Ticket", "args": {"severity": one}, "id": one} for one in ("high", "low")]
    script = [AIMessage("", tool_calls=[one], usage_metadata=spent) for one in calls]
    agent = agent_of(scripted(script), host, response_format=ToolStrategy(Ticket))
    state = agent.invoke(ASKED, thread("one"))
    assert state["structured_response"] == Ticket(severity="high")
    assert [one.type for one in state["messages"]] == ["human", "ai", "tool"]
    usage = asyncio.run(memory.store.read(memory.scope, loops.read, "one")).loop.usage
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens) == (2, 14, 4)


@pytest.mark.parametrize(("calls", "ran"), [(1, 0), (2, 1)])
def test_a_call_that_failed_before_is_held_back_once(calls: int, ran: int, tmp_path: Path) -> None:
    host = Host(memory=memory_in(tmp_path), strict=True)
    commands, build = list[str](), Call("npm run build")
    tools = [shell_tool(commands, {build.command: RuntimeError(ERROR)})]
    first, second = scripted([build, Say("no")]), scripted([*[build] * calls, Say("no")])
    for model in (first, second):
        agent_of(model, host, tools=tools, hold_back=True).invoke(ASKED)
    assert len(commands) == 1 + ran
    assert ERROR in second.prompts[1]


async def test_an_interrupt_is_no_failure_and_a_raised_error_is(tmp_path: Path) -> None:
    @tool
    async def ask(question: str) -> str:
        """Ask the user."""
        return str(interrupt(question)) if question else str(1 / len(question))

    memory, saver = memory_in(tmp_path), InMemorySaver()
    calls = [{"name": "ask", "args": {"question": one}, "id": f"call {one}"} for one in ("?", "")]
    model = scripted([AIMessage("", tool_calls=[one]) for one in calls])
    middleware: Any = [HeedfulMiddleware(judging(memory))]
    agent = create_agent(model, [ask], middleware=middleware, checkpointer=saver)
    await agent.ainvoke(ASKED, thread("one"))
    with pytest.raises(ZeroDivisionError):
        await agent.ainvoke(Command(resume="yes"), thread("one"))
    events = await memory.store.read(memory.scope, episodes.session_events, "one")
    results = [one["error"] for one in events if one["type"] == "tool_response"]
    assert results == ["", "ZeroDivisionError: division by zero"]


class Draft(TypedDict, total=False):
    task: str
    answer: str
    feedback: str


@pytest.mark.parametrize(("turns", "best"), [(["high", "P1"], "P1"), (["bad"] * 4, "bad")])
@pytest.mark.parametrize("kind", [Draft, MessagesState])
async def test_a_plain_graph_is_judged_by_a_node(
    kind: Any, turns: list[str], best: str, tmp_path: Path
) -> None:
    def write(state: Any) -> Any:
        asked.append(str(state))
        text = turns[len(asked) - 1]
        return {"answer": text} if kind is Draft else {"messages": [("ai", text)]}

    host, asked = judging(memory_in(tmp_path)), list[str]()
    keys: Any = {"task": "task", "answer": "answer"} if kind is Draft else {}
    graph: Any = StateGraph(kind).add_node("write", write).add_edge("write", "judge")
    graph.add_node("judge", judge_node(host, again="write", **keys)).add_edge(START, "judge")
    graph = graph.compile(checkpointer=InMemorySaver())
    given = {"task": TASK} if kind is Draft else ASKED
    for id in ("one", "one", "two"):  # the same thread again is another run
        asked.clear()
        how = thread(id)
        state = await graph.ainvoke(given, how) if id == "one" else graph.invoke(given, how)
        assert (state["answer"] if kind is Draft else texts(state)[-1]) == best
        assert "answer with one of P0 to P3" in asked[1]
    assert "answer with one of P0 to P3" in asked[0]


def test_a_deep_agent_takes_the_middleware(tmp_path: Path) -> None:
    call = {"name": "write_todos", "args": {"todos": []}, "id": "call"}
    model = scripted([AIMessage("", tool_calls=[call]), Say("high"), Say("P1")])
    agent = create_deep_agent(model, middleware=[HeedfulMiddleware(judging(memory_in(tmp_path)))])
    assert texts(agent.invoke(ASKED, thread("one")))[-1] == "P1"
    assert "answer with one of P0 to P3" in model.prompts[2]

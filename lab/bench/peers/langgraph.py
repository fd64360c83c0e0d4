"""LangGraph: a node that answers and one that checks; SqliteSaver and SqliteStore."""

from __future__ import annotations

import asyncio
import operator
import sqlite3
import uuid
from collections.abc import Iterator
from importlib import import_module
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.store.sqlite import SqliteStore

from bench.peers.contract import Line, Work, serve, spread
from bench.peers.loop import (
    LONG_FAULTS,
    TASK,
    Double,
    check_answer,
    find_fault,
    find_long_fault,
    time_batches,
    time_cycles,
)
from bench.peers.memories import DIMENSIONS, TOP, Lessons, memory_programs

NAMESPACE = ("lessons",)


class LoopState(TypedDict):
    """The state of a loop, as a user of the graph would write it."""

    task: str
    candidate: str
    findings: Annotated[list[str], operator.add]
    passed: bool


def generate(state: LoopState) -> dict[str, Any]:
    """Answer wrongly at first; each loop has a double of its own."""
    double = Double(answers=len(state["findings"]))
    return {"candidate": double.ask([state["task"], *state["findings"]])}


def check(state: LoopState) -> dict[str, Any]:
    """Accept at most two words."""
    fault = find_fault(state["candidate"])
    return {"passed": not fault, "findings": [fault] if fault else []}


def follow(state: LoopState) -> str:
    """Return the next node: END if the answer passed."""
    return END if state["passed"] else "generate"


def build_graph() -> StateGraph[Any]:
    """Return the graph of the loop, not compiled."""
    graph = StateGraph(LoopState)
    graph.add_node("generate", generate)
    graph.add_node("check", check)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", "check")
    graph.add_conditional_edges("check", follow)
    return graph


def first_state() -> dict[str, Any]:
    """Return the state that a loop begins with."""
    return {"task": TASK, "candidate": "", "findings": [], "passed": False}


def new_thread() -> dict[str, Any]:
    """Return the configuration of a thread that is not stored yet."""
    return {"configurable": {"thread_id": uuid.uuid4().hex}}


def time_graph(app: Any, times: int, *, prefix: str = "cycle") -> Iterator[Line]:
    """Time loops of a compiled graph, each in a thread of its own."""

    def cycle() -> None:
        check_answer(app.invoke(first_state(), new_thread())["candidate"])

    yield from time_cycles(cycle, times, prefix=prefix)


def time_loop(work: Work) -> Iterator[Line]:
    """Time loops whose history is kept in memory, and loops that keep nothing."""
    graph = build_graph()
    yield from time_graph(graph.compile(checkpointer=InMemorySaver()), work.times)
    yield from time_graph(graph.compile(), work.times, prefix="other_cycle")


def time_durable_loop(work: Work) -> Iterator[Line]:
    """Time loops with a SqliteSaver, one after the other."""
    with SqliteSaver.from_conn_string(work.file) as saver:
        yield from time_graph(build_graph().compile(checkpointer=saver), work.times)


def time_loops_together(work: Work) -> Iterator[Line]:
    """Time batches with an AsyncSqliteSaver, for one loop of the batch."""

    async def run_batches() -> list[float]:
        async with AsyncSqliteSaver.from_conn_string(work.file) as saver:
            app = build_graph().compile(checkpointer=saver)
            return await time_batches(
                lambda: app.ainvoke(first_state(), new_thread()), work.times
            )

    yield from spread("cycle", asyncio.run(run_batches()))


def count_bytes(work: Work) -> Iterator[Line]:
    """Count what is sent if the messages of the graph are the prompt."""
    double = Double(failures=LONG_FAULTS)

    def answer(state: MessagesState) -> dict[str, Any]:
        text = double.ask(str(message.content) for message in state["messages"])
        return {"messages": [AIMessage(text)]}

    def complain(state: MessagesState) -> dict[str, Any]:
        fault = find_long_fault(str(state["messages"][-1].content))
        return {"messages": [HumanMessage(fault)] if fault else []}

    def go_on(state: MessagesState) -> str:
        return END if isinstance(state["messages"][-1], AIMessage) else "answer"

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_node("complain", complain)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", "complain")
    graph.add_conditional_edges("complain", go_on)
    limit = {"recursion_limit": 4 * (LONG_FAULTS + 1)}
    state = graph.compile().invoke({"messages": [HumanMessage(TASK)]}, limit)
    check_answer(state["messages"][-1].content)
    yield from double.report()


class Items:
    """The items of a store in the file of the work, with an index of vectors.

    The index is an extension of SQLite. Where Python is built without extensions,
    the connection is one of pysqlite3; the settings are those of `from_conn_string`.
    """

    def __init__(self, work: Work, lessons: Lessons) -> None:
        # The store reads `text_fields`; its documentation calls them `fields`.
        index = {
            "dims": DIMENSIONS,
            "embed": lessons.embed,
            "text_fields": ["text"],
        }
        module = "sqlite3"
        if not hasattr(sqlite3.Connection, "enable_load_extension"):
            module = "pysqlite3"
        connect = import_module(module).connect
        db = connect(work.file, check_same_thread=False, isolation_level=None)
        self.store = SqliteStore(db, index=index)
        self.store.setup()

    def put(self, number: int, text: str) -> None:
        """Put a lesson."""
        self.store.put(NAMESPACE, str(number), {"text": text})

    def search(self, query: str) -> list[int]:
        """Return the numbers of the nearest lessons."""
        items = self.store.search(NAMESPACE, query=query, limit=TOP)
        return [int(item.key) for item in items]

    def sightings(self, text: str) -> int:
        """Return how often an error was counted."""
        item = self.store.get(NAMESPACE, text)
        return int(item.value["count"]) if item else 0

    def count_up(self, text: str) -> None:
        """Count one error in an item that has its text as the key."""
        value = {"text": text, "count": self.sightings(text) + 1}
        self.store.put(NAMESPACE, text, value)

    def count(self, text: str, most: int) -> tuple[int, int]:
        """Return how many items there are, and the count of the error."""
        items = self.store.search(NAMESPACE, limit=most)
        return len(items), self.sightings(text)


if __name__ == "__main__":
    serve(
        {
            "cycle": time_loop,
            "durable": time_durable_loop,
            "together": time_loops_together,
            "bytes": count_bytes,
            **memory_programs(Items),
        }
    )

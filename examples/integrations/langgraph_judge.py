"""A plain LangGraph graph in which one node of heedful judges what another node
writes.
"""

from typing import TypedDict

from langgraph.graph import START, StateGraph

from heedful import Finding
from heedful.integrations import Host
from heedful.integrations.langchain import judge_node


class State(TypedDict, total=False):
    task: str
    answer: str
    feedback: str


def write(state: State) -> State:
    """Stand in for your model: it follows what it is told."""
    print("told:", state["feedback"] or "nothing")
    return {"answer": "P1" if "P0 to P3" in state["feedback"] else "very high"}


def severity(answer, context):
    """Check that an answer is a severity."""
    if answer not in ("P0", "P1", "P2", "P3"):
        yield Finding(
            "severity", f"{answer!r} is no severity", fix="answer with one of P0 to P3"
        )


host = Host(memory=":memory:", checks=[severity], memory_key="severity")
graph = (
    StateGraph(State)
    .add_node("write", write)
    .add_edge(START, "judge")
    .add_edge("write", "judge")
)
graph.add_node("judge", judge_node(host, again="write", task="task", answer="answer"))
for thread, task in enumerate(
    ("How severe: the pump leaks", "How severe: the lamp blinks")
):
    config = {"configurable": {"thread_id": f"ticket-{thread}"}}
    print("answer:", graph.compile().invoke({"task": task}, config)["answer"])

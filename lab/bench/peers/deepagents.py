"""deepagents' RubricMiddleware: a grader model judges, and its words go back.

The agent has no other middleware and no tools: a deep agent would send more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deepagents import RubricMiddleware
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from bench.peers.contract import serve
from bench.peers.loop import LONG_FAULTS, TASK, Double, loop_programs

RUBRIC = "The answer has at most two words."


class DoubleChat(BaseChatModel):
    """The double as the agent's model, and with `find` as its grader."""

    double: Any
    find: Any = None

    @property
    def _llm_type(self) -> str:
        return "double"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        """Return the same model: it knows the one tool of the grader."""
        return self

    def _generate(
        self, messages: list[BaseMessage], *rest: Any, **options: Any
    ) -> ChatResult:
        texts = [str(message.text) for message in messages]
        if self.find is None:
            message = AIMessage(self.double.ask(texts))
        else:
            self.double.count(texts)
            message = grade(self.find(self.double.last_answer))
        return ChatResult(generations=[ChatGeneration(message=message)])


def grade(fault: str) -> AIMessage:
    """Return the grader's verdict as a call of its tool."""
    criterion = {"name": "words", "passed": not fault}
    if fault:
        criterion["gap"] = fault
    verdict = {
        "result": "needs_revision" if fault else "satisfied",
        "explanation": "Too long." if fault else "It is right.",
        "criteria": [criterion],
    }
    call = {"name": "GraderResponse", "args": verdict, "id": "grade"}
    return AIMessage("", tool_calls=[call])


def build(
    double: Double, find: Callable[[str], str], retries: int
) -> Callable[[], object]:
    """Return an agent whose model and grader are the double."""
    grader = DoubleChat(double=double, find=find)
    rubric = RubricMiddleware(model=grader, max_iterations=retries + 1)
    agent: Any = create_agent(DoubleChat(double=double), middleware=[rubric])
    limit = {"recursion_limit": 20 * (LONG_FAULTS + 1)}

    def run() -> object:
        state = agent.invoke(
            {"messages": [HumanMessage(TASK)], "rubric": RUBRIC}, limit
        )
        return state["messages"][-1].text

    return run


if __name__ == "__main__":
    serve(loop_programs(build))

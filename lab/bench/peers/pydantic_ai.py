"""pydantic-ai: an agent with an output validator that asks again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, RetryPromptPart, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from bench.peers.contract import Line, Work, serve
from bench.peers.loop import (
    TASK,
    Double,
    check_answer,
    find_fault,
    loop_programs,
    time_async_cycles,
)


def texts_of(messages: list[ModelMessage]) -> Iterator[str]:
    """Yield the texts of a request, as they are sent."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, RetryPromptPart):
                yield part.model_response()
            else:
                yield str(getattr(part, "content", ""))


def build_agent(
    double: Double, find: Callable[[str], str], retries: int
) -> Agent[Any, str]:
    """Return an agent whose model is the double."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(double.ask(texts_of(messages)))])

    agent = Agent(FunctionModel(answer), output_type=str, retries=retries)

    @agent.output_validator
    def check(text: str) -> str:
        fault = find(text)
        if fault:
            raise ModelRetry(fault)
        return text

    return agent


def time_loop(work: Work) -> Iterator[Line]:
    """Time loops of two attempts."""
    agent = build_agent(Double(), find_fault, retries=1)

    async def cycle() -> None:
        check_answer((await agent.run(TASK)).output)

    yield from time_async_cycles(cycle, work.times)


def build(
    double: Double, find: Callable[[str], str], retries: int
) -> Callable[[], object]:
    """Return what runs the agent once."""
    agent = build_agent(double, find, retries)
    return lambda: agent.run_sync(TASK).output


if __name__ == "__main__":
    # An event loop for each cycle is no part of the cycle.
    serve({**loop_programs(build), "cycle": time_loop})

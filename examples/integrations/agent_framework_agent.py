"""An agent of Microsoft Agent Framework whose answers are checked; its model is a
script.

The second question gets the lesson of the first: the model is told before it answers.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    FunctionInvocationLayer,
    Message,
)

from heedful import Finding
from heedful.integrations import Host
from heedful.integrations.agent_framework import HeedfulAgentMiddleware

answers = iter(["very high", "P1", "P2"])


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Print what the model is asked, and answer by the script."""

    async def _inner_get_response(
        self, *, messages: Sequence[Message], **options: Any
    ) -> ChatResponse:
        print("asked:", *(message.text for message in messages), sep="\n")
        return ChatResponse(messages=[Message("assistant", [next(answers)])])


def severity(answer: Any, context: Any) -> Iterator[Finding]:
    """Check that an answer is a severity."""
    if answer not in ("P0", "P1", "P2", "P3"):
        yield Finding(
            "severity", f"{answer!r} is no severity", fix="answer with one of P0 to P3"
        )


host = Host(memory=":memory:", checks=[severity], memory_key="severity")


async def ask(question: str) -> None:
    """Ask an agent, and print its answer."""
    agent = Agent(Scripted(), middleware=[HeedfulAgentMiddleware(host)])
    print("answer:", await agent.run(question))


for question in ("How severe: the pump leaks", "How severe: the lamp blinks"):
    asyncio.run(ask(question))

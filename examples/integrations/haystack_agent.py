"""An agent of Haystack whose answers are checked; the model is its mock generator.

The second question gets the lesson of the first: the model is told before it answers.
"""

from collections.abc import Iterator
from typing import Any

from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage

from heedful import Finding
from heedful.integrations import Host
from heedful.integrations.haystack import hooks

answers = iter(["very high", "P1", "P2"])


def model(messages: list[ChatMessage]) -> str:
    """Print what the model is asked, and answer by the script."""
    print("asked:", *(message.text for message in messages), sep="\n")
    return next(answers)


def severity(answer: Any, context: Any) -> Iterator[Finding]:
    """Check that an answer is a severity."""
    if answer not in ("P0", "P1", "P2", "P3"):
        yield Finding(
            "severity", f"{answer!r} is no severity", fix="answer with one of P0 to P3"
        )


host = Host(memory=":memory:", checks=[severity], memory_key="severity")
agent = Agent(chat_generator=MockChatGenerator(response_fn=model), hooks=hooks(host))

for question in ("How severe: the pump leaks", "How severe: the lamp blinks"):
    result = agent.run([ChatMessage.from_user(question)])
    print("answer:", result["last_message"].text)

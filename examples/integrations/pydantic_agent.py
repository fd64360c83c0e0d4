"""An agent of pydantic-ai whose answers are checked; the model is its FunctionModel.

The second question gets the lesson of the first: the model is told before it answers.
"""

from collections.abc import Iterator
from typing import Any

from pydantic_ai import Agent, ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from heedful import Finding
from heedful.integrations import Host
from heedful.integrations.pydantic_ai import Heedful

answers = iter(["very high", "P1", "P2"])


def model(messages: Any, info: Any) -> ModelResponse:
    """Print what the model is asked, and answer by the script."""
    print("asked:", *(part.content for one in messages for part in one.parts), sep="\n")
    return ModelResponse([TextPart(next(answers))])


def severity(answer: Any, context: Any) -> Iterator[Finding]:
    """Check that an answer is a severity."""
    if answer not in ("P0", "P1", "P2", "P3"):
        yield Finding(
            "severity", f"{answer!r} is no severity", fix="answer with one of P0 to P3"
        )


host = Host(memory=":memory:", checks=[severity], memory_key="severity")
agent = Agent(FunctionModel(model), capabilities=[Heedful(host=host)])

for question in ("How severe: the pump leaks", "How severe: the lamp blinks"):
    print("answer:", agent.run_sync(question).output)

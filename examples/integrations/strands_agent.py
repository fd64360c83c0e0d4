"""An agent of Strands whose answers are checked; the model is a script.

The second question gets the lesson of the first: the model is told before it answers.
"""

from collections.abc import AsyncIterable, Iterator
from typing import Any

from strands import Agent
from strands.models import Model

from heedful import Finding
from heedful.integrations import Host
from heedful.integrations.strands import HeedfulPlugin

answers = iter(["very high", "P1", "P2"])


class Scripted(Model):
    """Print what the model is asked, and answer by the script."""

    def update_config(self, **model_config: Any) -> None:
        """Take no options."""

    def get_config(self) -> Any:
        """Return no options."""
        return {}

    def structured_output(self, *arguments: Any, **options: Any) -> Any:
        """Answer with texts only."""
        raise NotImplementedError

    async def stream(
        self, messages: Any, *arguments: Any, **options: Any
    ) -> AsyncIterable[Any]:
        """Stream the next answer."""
        blocks = [block for message in messages for block in message["content"]]
        print("asked:", *(block["text"] for block in blocks), sep="\n")
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": next(answers)}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def severity(answer: Any, context: Any) -> Iterator[Finding]:
    """Check that an answer is a severity."""
    if answer not in ("P0", "P1", "P2", "P3"):
        yield Finding(
            "severity", f"{answer!r} is no severity", fix="answer with one of P0 to P3"
        )


host = Host(memory=":memory:", checks=[severity], memory_key="severity")

for question in ("How severe: the pump leaks", "How severe: the lamp blinks"):
    agent = Agent(Scripted(), plugins=[HeedfulPlugin(host)], callback_handler=None)
    print("answer:", str(agent(question)).strip())

"""An agent of Google ADK whose answers are checked; the model is a script.

The second question gets the lesson of the first: the model is told before it answers.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

from heedful import Finding
from heedful.integrations import Host
from heedful.integrations.adk import HeedfulAdkPlugin

answers = iter(["very high", "P1", "P2"])


class Scripted(BaseLlm):
    """Print what the model is asked, and answer by the script."""

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the next answer."""
        parts = [part for content in llm_request.contents for part in content.parts]
        print("asked:", *(part.text for part in parts), sep="\n")
        yield LlmResponse(content=types.ModelContent(next(answers)))


def severity(answer: Any, context: Any) -> Iterator[Finding]:
    """Check that an answer is a severity."""
    if answer not in ("P0", "P1", "P2", "P3"):
        yield Finding(
            "severity", f"{answer!r} is no severity", fix="answer with one of P0 to P3"
        )


host = Host(memory=":memory:", checks=[severity], memory_key="severity")
agent = LlmAgent(name="triage", model=Scripted(model="scripted"))
app = App(name="desk", root_agent=agent, plugins=[HeedfulAdkPlugin(host)])


async def main() -> None:
    """Ask two questions, each in a session of its own."""
    runner = InMemoryRunner(app=app)
    for question in ("How severe: the pump leaks", "How severe: the lamp blinks"):
        events = await runner.run_debug(question, session_id=question, quiet=True)
        parts = (events[-1].content and events[-1].content.parts) or []
        print("answer:", *(part.text for part in parts))


asyncio.run(main())

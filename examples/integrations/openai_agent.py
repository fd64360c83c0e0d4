"""An agent of OpenAI Agents whose answers are checked; the model is the SDK's scripted
one.

The second question gets the lesson of the first: the model is told before it answers.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

from agents import Agent, RunConfig
from agents.testing import ScriptedModel, assistant_message

from heedful import Finding
from heedful.integrations import Host
from heedful.integrations.openai_agents import run


def severity(answer: Any, context: Any) -> Iterator[Finding]:
    """Check that an answer is a severity."""
    if answer not in ("P0", "P1", "P2", "P3"):
        yield Finding(
            "severity", f"{answer!r} is no severity", fix="answer with one of P0 to P3"
        )


async def main() -> None:
    """Ask two questions, and print what the model is asked."""
    model = ScriptedModel(
        [[assistant_message(text)] for text in ("very high", "P1", "P2")]
    )
    agent = Agent("triage", model=model)
    host = Host(memory=":memory:", checks=[severity], memory_key="severity")
    config = RunConfig(tracing_disabled=True)
    for question in ("How severe: the pump leaks", "How severe: the lamp blinks"):
        result = await run(agent, question, host=host, run_config=config)
        print("answer:", result.final_output)
    for call in model.calls:
        print("asked:", *(item["content"] for item in call.input), sep="\n")


asyncio.run(main())

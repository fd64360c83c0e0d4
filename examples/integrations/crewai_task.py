"""A task of CrewAI whose output is checked; the model is a script.

The second crew gets the lesson of the first: the model is told before it answers.
"""

from collections.abc import Iterator
from typing import Any

from crewai import Agent, Crew, Task
from crewai.llms.base_llm import BaseLLM

from heedful import Finding
from heedful.integrations import Host
from heedful.integrations.crewai import watch

answers = iter(["very high", "P1", "P2"])


class Scripted(BaseLLM):
    """Print what the model is asked, and answer by the script."""

    def call(self, messages: Any, *arguments: Any, **options: Any) -> str:
        """Return the next answer."""
        print("asked:", *(message["content"] for message in messages), sep="\n")
        return next(answers)


def severity(answer: Any, context: Any) -> Iterator[Finding]:
    """Check that an answer is a severity."""
    if answer not in ("P0", "P1", "P2", "P3"):
        yield Finding(
            "severity", f"{answer!r} is no severity", fix="answer with one of P0 to P3"
        )


host = Host(memory=":memory:", checks=[severity], memory_key="severity")

for question in ("How severe: the pump leaks", "How severe: the lamp blinks"):
    model = Scripted(model="scripted")
    clerk = Agent(role="clerk", goal="grade tickets", backstory="none", llm=model)
    task = Task(description=question, expected_output="a severity", agent=clerk)
    crew = Crew(agents=[clerk], tasks=[watch(task, host)])
    print("answer:", crew.kickoff())

"""CrewAI for the table of hosts: a model made of its base class, and the tool `shell`.

CrewAI ships no fake model.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from crewai import Agent, Crew, Task
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool
from pydantic import PrivateAttr

from heedful.integrations import Host, verdict_of
from heedful.integrations.attempts import ID_KEY
from heedful_frameworks.crewai import watch
from tests.integrations.doubles import OK, Call, Driven, Results, Script, shell_of

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


class Scripted(BaseLLM):
    """A model that takes the turns of a script in order, and repeats the last."""

    _script: Script = PrivateAttr(default=())
    _driven: Any = PrivateAttr(default=None)

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, *arguments: Any, **options: Any) -> Any:
        texts = [str(message.get("content")) for message in messages]
        self._driven.prompts.append("\n".join(texts))
        self._track_token_usage_internal(USAGE)
        number = len(self._driven.prompts)
        turn = self._script[min(number, len(self._script)) - 1]
        if isinstance(turn, Exception):
            raise turn
        if not isinstance(turn, Call):
            return turn.text
        function = SimpleNamespace(
            name="shell", arguments=json.dumps({"command": turn.command})
        )
        return [
            SimpleNamespace(id=f"call-{number}", type="function", function=function)
        ]

    async def acall(self, messages: Any, *arguments: Any, **options: Any) -> Any:
        return self.call(messages)


def shell_task(
    text: str, script: Script, driven: Driven, results: Results = OK, **options: Any
) -> Task:
    """Return a task whose agent has the tool `shell`."""
    model = Scripted(model="scripted")
    model._script = script
    model._driven = driven
    agent = Agent(
        role="clerk",
        goal="answer",
        backstory="none",
        llm=model,
        tools=[tool("shell")(shell_of(driven.commands, results))],
    )
    return Task(description=text, expected_output="a word", agent=agent, **options)


def crew_of(*tasks: Task) -> Crew:
    """Return a crew of tasks with an agent each."""
    return Crew(agents=[task.agent for task in tasks if task.agent], tasks=list(tasks))


async def drive(
    host: Host,
    task: str,
    script: Script,
    *,
    id: str,
    results: Results = OK,
    hold_back: bool = False,
) -> Driven:
    driven = Driven()
    shell = shell_task(task, script, driven, results)
    crew = crew_of(watch(shell, host, hold_back=hold_back))
    result = await crew.kickoff_async(inputs={ID_KEY: id})
    driven.answer = str(result).strip()
    driven.verdict = verdict_of(result)
    return driven

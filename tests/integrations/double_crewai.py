"""CrewAI for the table of hosts: a model made of its base class, and the tool `shell`.

CrewAI ships no fake model.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from crewai import Agent, Crew, Task
from crewai.hooks.dispatch import InterceptionPoint, on, unregister
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool
from crewai.tools.mcp_native_tool import MCPNativeTool
from pydantic import PrivateAttr

from heedful.integrations import Host, verdict_of
from heedful.integrations.attempts import ID_KEY
from heedful.integrations.crewai import watch
from tests.integrations.doubles import (
    OK,
    OWN_TOOL,
    SERVER_TOOL,
    Addition,
    Call,
    Driven,
    Results,
    Script,
    Tasks,
    look,
    script_of,
    shell_of,
)

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
    host: Host, task: str, script: Script, *, id: str, results: Results = OK
) -> Driven:
    driven = Driven()
    crew = crew_of(watch(shell_task(task, script, driven, results), host))
    result = await crew.kickoff_async(inputs={ID_KEY: id})
    driven.answer = str(result).strip()
    driven.verdict = verdict_of(result)
    return driven


async def chat(host: Host, tasks: Tasks, results: Results = OK) -> None:
    """Run tasks of which each has the results of those before in its prompt."""
    driven = Driven()
    script = script_of(tasks)
    watched = [watch(shell_task(task, script, driven, results), host) for task in tasks]
    await crew_of(*watched).kickoff_async()


WAYS = (
    "knowledge in the prompt",
    "hook before heedful",
    "hook after heedful",
    "hook that speaks for the model",
    "hook that names a speaker",
    "hook that calls for the model",
    SERVER_TOOL,
)


async def add(host: Host, addition: Addition) -> None:
    """Run a task to whose requests CrewAI or a hook of the user adds a text."""

    new_messages = messages_of(addition.way, addition.text)

    def add_message(context: Any) -> None:
        if new_messages[0] not in context.messages:
            context.messages += new_messages

    driven = Driven()
    job = shell_task(addition.task, addition.script, driven, addition.results)
    if addition.way == "knowledge in the prompt":
        job.agent.backstory = addition.text
    elif addition.way == SERVER_TOOL:
        job.agent.tools.append(
            MCPNativeTool(object, "look", {"description": addition.text}, "docs")
        )
    elif addition.way == OWN_TOOL:
        job.agent.tools.append(tool("look")(look))
    elif addition.way not in WAYS:
        job.description = f"{addition.task}. {addition.text}"
    if addition.way == "hook before heedful":
        on(InterceptionPoint.PRE_MODEL_CALL)(add_message)
    watch(job, host)
    if addition.way.startswith("hook") and addition.way != "hook before heedful":
        on(InterceptionPoint.PRE_MODEL_CALL)(add_message)
    try:
        await crew_of(job).kickoff_async()
    finally:
        unregister(InterceptionPoint.PRE_MODEL_CALL, add_message)


def messages_of(way: str, text: str) -> list[dict[str, Any]]:
    """Return messages of which the first has a text in one of its fields."""
    if way == "hook that speaks for the model":
        return [{"role": "assistant", "content": text}]
    if way == "hook that names a speaker":
        return [{"role": "user", "content": "Hello!", "name": text}]
    if way == "hook that calls for the model":
        arguments = json.dumps({"page": text})
        function = {"name": "look", "arguments": arguments}
        call = {"id": "x", "type": "function", "function": function}
        return [
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "x", "content": "ok"},
        ]
    return [{"role": "user", "content": text}]

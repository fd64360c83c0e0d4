"""Strands for the table of hosts: a model made of its base class, and the tool `shell`.

Strands ships no fake model.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable
from typing import Any

from mcp.types import Tool
from strands import Agent, tool
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
)
from strands.middleware import InvokeModelStage
from strands.models import Model
from strands.plugins import Plugin
from strands.tools.mcp import MCPAgentTool, MCPClient

from heedful.integrations import Host, verdict_of
from heedful.integrations.attempts import ID_KEY
from heedful.integrations.strands import HeedfulPlugin
from tests.integrations.doubles import (
    NOTHING,
    OK,
    OWN_TOOL,
    SCHEMA,
    SERVER_TOOL,
    Addition,
    Call,
    Driven,
    Results,
    Script,
    Tasks,
    TurnAddition,
    look,
    script_of,
    shell_of,
)

USAGE = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}


class Scripted(Model):
    """A model that takes the turns of a script in order, and repeats the last.

    If it is offered the tool for an object, it calls it with the text as JSON.
    """

    def __init__(self, script: Script, driven: Driven) -> None:
        self.script = script
        self.driven = driven

    def update_config(self, **model_config: Any) -> None:
        pass

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    async def stream(
        self, messages: Any, tool_specs: Any = None, *rest: Any, **options: Any
    ) -> AsyncIterable[Any]:
        self.driven.prompts.append("\n".join(texts_in(messages)))
        number = len(self.driven.prompts)
        turn = self.script[min(number, len(self.script)) - 1]
        if isinstance(turn, Exception):
            raise turn

        object_tool = next(
            (
                spec["name"]
                for spec in tool_specs or ()
                if spec["name"] not in ("shell", "look")
            ),
            "",
        )
        start: Any = {}
        delta: Any = {}
        if isinstance(turn, Call):
            name, arguments = "shell", json.dumps({"command": turn.command})
        else:
            name, arguments = object_tool, turn.text
            delta = {"text": arguments}
        if name:
            use = {"name": name, "toolUseId": f"call-{number}"}
            start = {"toolUse": use}
            delta = {"toolUse": {"input": arguments}}

        yield {"messageStart": {"role": "assistant"}}
        if isinstance(turn, Call) and turn.provided:
            source = {"title": turn.provided, "sourceContent": [], "location": {}}
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "I read it."}}}
            yield {"contentBlockDelta": {"delta": {"citation": source}}}
            yield {"contentBlockStop": {}}
        if isinstance(turn, Call) and turn.text:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": turn.text}}}
            yield {"contentBlockStop": {}}
        yield {"contentBlockStart": {"start": start}}
        yield {"contentBlockDelta": {"delta": delta}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if name else "end_turn"}}
        yield {"metadata": {"usage": USAGE, "metrics": {"latencyMs": 1}}}


def texts_in(value: Any) -> list[str]:
    """Return all texts of messages, also those of results of tools."""
    if isinstance(value, dict):
        text = value.get("text")
        return ([text] if isinstance(text, str) else []) + texts_in(
            list(value.values())
        )
    if isinstance(value, list):
        return [text for part in value for text in texts_in(part)]
    return []


def shell_agent(
    script: Script, driven: Driven, results: Results = OK, **options: Any
) -> Agent:
    """Return an agent with the tool `shell`, which prints nothing."""
    tools = [tool(shell_of(driven.commands, results))]
    return Agent(
        Scripted(script, driven), tools=tools, callback_handler=None, **options
    )


async def drive(
    host: Host, task: str, script: Script, *, id: str, results: Results = OK
) -> Driven:
    driven = Driven()
    agent = shell_agent(script, driven, results, plugins=[HeedfulPlugin(host)])
    result = await agent.invoke_async(task, invocation_state={ID_KEY: id})
    driven.answer = str(result).strip()
    driven.verdict = verdict_of(result)
    return driven


async def chat(
    host: Host, tasks: Tasks, results: Results = OK, added: TurnAddition = NOTHING
) -> None:
    agent = shell_agent(
        script_of(tasks), Driven(), results, plugins=[HeedfulPlugin(host)]
    )
    waiting = [added.text]

    def add_message(event: Any) -> None:
        if waiting:
            page: Any = {"role": "user", "content": [{"text": waiting.pop()}]}
            event.agent.messages.append(page)

    if added.way:
        agent.add_hook(add_message, POINTS[added.way])
    for task in tasks:
        await agent.invoke_async(task)


POINTS: dict[str, Any] = {
    "before a model call": BeforeModelCallEvent,
    "after a model call": AfterModelCallEvent,
    "after an invocation": AfterInvocationEvent,
}
TURN_WAYS = tuple(POINTS)
# What a tool returns that has an image.
PICTURE: Any = {
    "status": "success",
    "content": [{"image": {"format": "png", "source": {"bytes": b"PNG"}}}],
}
WAYS = (
    "middleware before heedful",
    "middleware after heedful",
    "prompt of a hook",
    SERVER_TOOL,
)


async def add(host: Host, addition: Addition) -> None:
    """Run an agent to whose requests code of its user adds a text."""

    async def add_message(context: Any, next_fn: Any) -> Any:
        message = {"role": "user", "content": [{"text": addition.text}]}
        messages = [*context.messages, message]
        async for event in next_fn(context.replace(messages=messages)):
            yield event

    def add_prompt(event: Any) -> None:
        event.agent.system_prompt = f"Be brief.\n{addition.text}"

    plugins: list[Any] = [Adding(add_message), HeedfulPlugin(host)]
    if addition.way != "middleware before heedful":
        plugins = plugins[1:]
    prompt = "Be brief." if addition.way in (*WAYS, OWN_TOOL) else addition.text
    agent = shell_agent(
        addition.script,
        Driven(),
        addition.results,
        plugins=plugins,
        system_prompt=prompt,
    )
    if addition.way == "middleware after heedful":
        agent.add_middleware(InvokeModelStage, add_message)
    elif addition.way == "prompt of a hook":
        agent.add_hook(add_prompt, BeforeInvocationEvent)
    elif addition.way == SERVER_TOOL:
        agent.tool_registry.process_tools([server_tool(addition.text)])
    elif addition.way == OWN_TOOL:
        agent.tool_registry.process_tools([tool(look)])
    await agent.invoke_async(addition.task)


def server_tool(text: str) -> MCPAgentTool:
    """Return a tool of a server, to which nothing connects."""
    offer: Any = {"name": "look", "description": text, "inputSchema": dict(SCHEMA)}
    return MCPAgentTool(Tool(**offer), MCPClient(lambda: None))


class Adding(Plugin):
    """Adds a middleware to an agent."""

    name = "adding"

    def __init__(self, middleware: Any) -> None:
        self.middleware = middleware
        super().__init__()

    def init_agent(self, agent: Any) -> None:
        agent.add_middleware(InvokeModelStage, self.middleware)

"""Strands for the table of hosts: a model made of its base class, and the tool `shell`.

Strands ships no fake model.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable
from typing import Any

from strands import Agent, tool
from strands.models import Model

from heedful.integrations import Host, verdict_of
from heedful.integrations.attempts import ID_KEY
from heedful_frameworks.strands import HeedfulPlugin
from tests.integrations.doubles import OK, Call, Driven, Results, Script, shell_of

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
    host: Host,
    task: str,
    script: Script,
    *,
    id: str,
    results: Results = OK,
    hold_back: bool = False,
) -> Driven:
    driven = Driven()
    plugins = [HeedfulPlugin(host, hold_back=hold_back)]
    agent = shell_agent(script, driven, results, plugins=plugins)
    result = await agent.invoke_async(task, invocation_state={ID_KEY: id})
    driven.answer = str(result).strip()
    driven.verdict = verdict_of(result)
    return driven

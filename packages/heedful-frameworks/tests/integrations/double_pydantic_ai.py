"""pydantic-ai for the table of hosts: its own FunctionModel, and the tool `shell`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import chain
from typing import Any

from pydantic_ai import (
    Agent,
    ModelMessage,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ToolCallPart,
    ToolFailed,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from heedful.integrations import Host, verdict_of
from heedful_frameworks.pydantic_ai import Heedful
from tests.integrations.doubles import OK, Call, Driven, Results, Script, shell_of


def scripted(script: Script, driven: Driven) -> FunctionModel:
    """Return the model of a script; an output tool gets the text as the value of its
    argument.
    """

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = list(chain.from_iterable(message.parts for message in messages))
        texts = [
            getattr(part, "content", None) or getattr(part, "args", "")
            for part in parts
        ]
        driven.prompts.append("\n".join(map(str, texts)))
        turn = script[min(len(driven.prompts), len(script)) - 1]
        if isinstance(turn, Exception):
            raise turn
        if isinstance(turn, Call):
            call = ToolCallPart("shell", {"command": turn.command})
            said = [TextPart(turn.text)] if turn.text else []
            return ModelResponse([*_provided(turn.provided), *said, call])
        if info.output_tools:
            name = next(iter(info.output_tools[0].parameters_json_schema["properties"]))
            return ModelResponse(
                [ToolCallPart(info.output_tools[0].name, {name: turn.text})]
            )
        return ModelResponse([TextPart(turn.text)])

    async def stream(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str]:
        yield str(answer(messages, info).text)

    return FunctionModel(answer, stream_function=stream)


def _provided(text: str) -> list[Any]:
    """Return the parts of a tool that the provider has run."""
    if not text:
        return []
    return [
        NativeToolCallPart("web_fetch", {}, tool_call_id="native-1"),
        NativeToolReturnPart("web_fetch", text, tool_call_id="native-1"),
    ]


def shell_agent(
    script: Script, driven: Driven, results: Results = OK, **options: Any
) -> Agent[Any, Any]:
    agent: Agent[Any, Any] = Agent(scripted(script, driven), **options)
    agent.tool_plain(shell_of(driven.commands, results, ToolFailed))
    return agent


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
    heedful = Heedful(host=host, hold_back=hold_back)
    agent = shell_agent(script, driven, results, capabilities=[heedful])
    result = await agent.run(task, run_id=id)
    driven.answer = result.output
    driven.verdict = verdict_of(result)
    return driven

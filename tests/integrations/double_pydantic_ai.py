"""pydantic-ai for the table of hosts: its own FunctionModel, and the tool `shell`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolFailed
from pydantic_ai.models.function import AgentInfo, FunctionModel

from heedful.integrations import Host
from heedful.integrations.pydantic_ai import Heedful
from tests.integrations.doubles import Call, Driven, Turn


def scripted(script: Sequence[Turn], driven: Driven) -> FunctionModel:
    """Return the model of a script; an output tool gets the text as the value of its argument."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [part for one in messages for part in one.parts]
        texts = [getattr(part, "content", None) or getattr(part, "args", "") for part in parts]
        driven.prompts.append("\n".join(map(str, texts)))
        turn = script[min(len(driven.prompts), len(script)) - 1]
        if isinstance(turn, Exception):
            raise turn
        if isinstance(turn, Call):
            return ModelResponse([ToolCallPart("shell", {"command": turn.command})])
        if info.output_tools:
            name = next(iter(info.output_tools[0].parameters_json_schema["properties"]))
            return ModelResponse([ToolCallPart(info.output_tools[0].name, {name: turn.text})])
        return ModelResponse([TextPart(turn.text)])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield str(answer(messages, info).text)

    return FunctionModel(answer, stream_function=stream)


def shell_agent(
    script: Sequence[Turn],
    driven: Driven,
    results: Mapping[str, str | Exception] = {},
    **options: Any,
) -> Agent[Any, Any]:
    agent: Agent[Any, Any] = Agent(scripted(script, driven), **options)

    @agent.tool_plain
    def shell(command: str) -> str:
        """Run a command."""
        driven.commands.append(command)
        result = results.get(command, "done")
        if isinstance(result, Exception):
            raise ToolFailed(str(result))
        return result

    return agent


class PydanticAI:
    name = "pydantic_ai"

    async def drive(
        self,
        host: Host,
        task: str,
        script: Sequence[Turn],
        *,
        id: str,
        results: Mapping[str, str | Exception] = {},
    ) -> Driven:
        driven = Driven()
        agent = shell_agent(script, driven, results, capabilities=[Heedful(host)])
        driven.answer = (await agent.run(task, run_id=id)).output
        return driven


DOUBLE = PydanticAI()

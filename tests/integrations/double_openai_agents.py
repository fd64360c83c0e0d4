"""OpenAI Agents for the table of hosts: its own scripted model, and the tool `shell`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents import Agent, ModelResponse, RunConfig, Usage, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from heedful.integrations import Host, openai_agents
from tests.integrations.doubles import Call, Driven, Say, Turn


class Scripted(ScriptedModel):
    """The SDK's scripted model, which repeats its last turn."""

    def __init__(self, turns: Sequence[Turn], tool: str = "shell") -> None:
        super().__init__()
        self.turns, self.tool, self.asked, self.prompts = list(turns), tool, 0, list[str]()

    def next(self) -> None:
        turn = self.turns[min(self.asked, len(self.turns) - 1)]
        self.asked += 1
        arguments = {"command": turn.command} if isinstance(turn, Call) else {}
        say = assistant_message(turn.text) if isinstance(turn, Say) else None
        item = say or function_call(self.tool, arguments, call_id=f"call-{self.asked}")
        usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        response = ModelResponse([item], usage, f"resp-{self.asked}")
        self.enqueue(turn if isinstance(turn, Exception) else response)

    def see(self, *asked: Any, **named: Any) -> None:
        system, given = asked[:2] or (named["system_instructions"], named["input"])
        items = [given] if isinstance(given, str) else given
        self.prompts.append("\n".join([system or "", *_texts(items)]))
        self.next()

    async def get_response(self, *asked: Any, **named: Any) -> Any:
        self.see(*asked, **named)
        return await super().get_response(*asked, **named)

    async def stream_response(self, *asked: Any, **named: Any) -> Any:
        self.see(*asked, **named)
        async for event in super().stream_response(*asked, **named):
            yield event


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value or ()
    return [text for part in parts for text in _texts(part)]


def shell_agent(
    script: Sequence[Turn],
    driven: Driven,
    results: Mapping[str, str | Exception] = {},
    **options: Any,
) -> tuple[Agent[Any], Scripted]:
    def shell(command: str) -> str:
        """Run a command."""
        driven.commands.append(command)
        result = results.get(command, "done")
        if isinstance(result, Exception):
            raise result
        return result

    model = Scripted(script)
    return Agent("triage", model=model, tools=[function_tool(shell, **options)]), model


class OpenAIAgents:
    name = "openai_agents"

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
        agent, model = shell_agent(script, driven, results)
        config = RunConfig(tracing_disabled=True)
        driven.prompts = model.prompts
        result = await openai_agents.run(agent, task, host=host, id=id, run_config=config)
        driven.answer = result.final_output
        return driven


DOUBLE = OpenAIAgents()

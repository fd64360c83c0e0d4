"""OpenAI Agents for the table of hosts: its own scripted model, and the tool
`shell`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents import Agent, ModelResponse, RunConfig, Usage, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from openai.types.responses.response_output_item import McpCall

from heedful.integrations import Host, verdict_of
from heedful_frameworks import openai_agents
from tests.integrations.doubles import OK, Call, Driven, Results, Say, Script, shell_of


def scripted(turns: Script, tool: str = "shell") -> Any:
    """Return the model of a script."""
    usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
    steps: list[Any] = []
    for number, turn in enumerate([*turns, *[turns[-1]] * 20]):
        if isinstance(turn, Exception):
            steps.append(turn)
            continue
        call = {} if isinstance(turn, Say) else {"command": turn.command}
        item: Any = function_call(tool, call, call_id=f"call-{number}")
        item = assistant_message(turn.text) if isinstance(turn, Say) else item
        items = [item]
        if isinstance(turn, Call) and turn.text:
            items.insert(0, assistant_message(turn.text))
        if isinstance(turn, Call) and turn.provided:
            items.insert(0, _mcp_call(turn.provided))
        steps.append(ModelResponse(items, usage, f"resp-{number}"))
    return ScriptedModel(steps)


def _mcp_call(output: str) -> McpCall:
    """Return a call of a tool that the provider has run."""
    return McpCall(
        id="mcp-1",
        arguments="{}",
        name="fetch",
        server_label="docs",
        type="mcp_call",
        output=output,
    )


def prompts(model: Any) -> list[str]:
    """Return the texts of each request to the model."""
    return [
        "\n".join(_texts([call.system_instructions, call.input]))
        for call in model.calls
    ]


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value or ()
    return [text for part in parts for text in _texts(part)]


def shell_agent(
    script: Script, driven: Driven, results: Results = OK, **options: Any
) -> tuple[Agent[Any], Any]:
    """Return an agent with the tool `shell`, and its model."""
    model = scripted(script)
    shell = shell_of(driven.commands, results)
    return Agent("triage", model=model, tools=[function_tool(shell, **options)]), model


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
    config = RunConfig(tracing_disabled=True)
    guardrails = [openai_agents.hold_back] if hold_back else []
    agent, model = shell_agent(
        script, driven, results, tool_input_guardrails=guardrails
    )
    result = await openai_agents.run(agent, task, host=host, id=id, run_config=config)
    return Driven(
        answer=result.final_output,
        prompts=prompts(model),
        commands=driven.commands,
        verdict=verdict_of(result),
    )

"""OpenAI Agents for the table of hosts: its own scripted model, and the tool
`shell`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    HandoffInputData,
    HostedMCPTool,
    ModelResponse,
    RunConfig,
    SQLiteSession,
    ToolOutputImage,
    Usage,
    function_tool,
    handoff,
)
from agents.mcp import MCPServer
from agents.testing import ScriptedModel, assistant_message, function_call
from mcp.types import Tool
from openai.types.responses.response_output_item import McpCall

from heedful.integrations import Host, openai_agents, verdict_of
from tests.integrations.doubles import (
    OK,
    OWN_TOOL,
    SCHEMA,
    SERVER_TOOL,
    Addition,
    Call,
    Driven,
    Results,
    Say,
    Script,
    Tasks,
    look,
    script_of,
    shell_of,
)

MCP_SERVER: Any = {
    "type": "mcp",
    "server_label": "docs",
    "server_url": "https://docs.example",
    "require_approval": "never",
}


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
    host: Host, task: str, script: Script, *, id: str, results: Results = OK
) -> Driven:
    driven = Driven()
    config = RunConfig(tracing_disabled=True)
    agent, model = shell_agent(script, driven, results)
    result = await openai_agents.run(agent, task, host=host, id=id, run_config=config)
    return Driven(
        answer=result.final_output,
        prompts=prompts(model),
        commands=driven.commands,
        verdict=verdict_of(result),
    )


async def chat(host: Host, tasks: Tasks, results: Results = OK) -> None:
    config = RunConfig(tracing_disabled=True)
    agent, _ = shell_agent(script_of(tasks), Driven(), results)
    agent.tools.append(HostedMCPTool(tool_config=MCP_SERVER))
    session = SQLiteSession("chat")
    for task in tasks:
        await openai_agents.run(
            agent, task, host=host, session=session, run_config=config
        )


# What a callback or a filter adds, no session keeps.
TURN_WAYS = ()
# What a tool returns that has an image.
PICTURE: Any = ToolOutputImage(image_url="https://docs.example/jest.png")
TOOL_WAYS = (SERVER_TOOL, "tool that an adapter made", "server without a list")
WAYS = (
    "instruction function",
    "input filter",
    "session callback",
    "made prompt",
    "error formatter",
    "filter of a handoff",
    *TOOL_WAYS,
)


async def add(host: Host, addition: Addition) -> None:
    """Run an agent to whose requests a function of its user adds a text."""
    agent, _ = shell_agent(addition.script, Driven(), addition.results)
    options: dict[str, Any] = {}
    config = RunConfig(tracing_disabled=True)
    if addition.way == "instruction function":
        agent.instructions = lambda _context, _agent: addition.text
    elif addition.way == "input filter":
        config.call_model_input_filter = lambda data: replace(
            data.model_data, input=[*data.model_data.input, user_item(addition.text)]
        )
    elif addition.way == "session callback":
        config.session_input_callback = lambda past, new: [
            *past,
            user_item(addition.text),
            *new,
        ]
        options["session"] = SQLiteSession("added")
        await options["session"].add_items([user_item("hello")])
    elif addition.way == "made prompt":
        agent.prompt = lambda _: {"id": "one", "variables": {"docs": addition.text}}
    elif addition.way == "error formatter":
        config.tool_error_formatter = lambda failed: f"{failed.error}\n{addition.text}"
    elif addition.way == "filter of a handoff":
        agent = handing_to(agent, addition.text)
    elif addition.way in (*TOOL_WAYS, OWN_TOOL):
        add_tool(agent, addition.way, addition.text)
    else:
        agent.instructions = addition.text
    await openai_agents.run(
        agent, addition.task, host=host, run_config=config, **options
    )


def add_tool(agent: Agent[Any], way: str, text: str) -> None:
    """Give an agent a tool, or a server, that describes itself with a text."""
    if way == "tool that an adapter made":
        call: Any = MCPServer.call_tool
        tool = FunctionTool("look", text, dict(SCHEMA), call, strict_json_schema=False)
        agent.tools.append(tool)
    elif way == OWN_TOOL:
        agent.tools.append(function_tool(look))
    else:
        agent.mcp_servers.append(Server(text, keeps=way == SERVER_TOOL))


def handing_to(agent: Agent[Any], text: str) -> Agent[Any]:
    """Return an agent that hands over to another, as if a tool had returned a text."""
    call = {"call_id": "load", "name": "load", "arguments": "{}"}
    items: Any = (
        {"type": "function_call", **call},
        {"type": "function_call_output", "call_id": "load", "output": text},
    )

    def add_result(data: HandoffInputData) -> HandoffInputData:
        return replace(data, input_history=(user_item("run the tests"), *items))

    item = function_call("transfer_to_triage", {}, call_id="hand")
    turn = ModelResponse([item], Usage(), "first")
    return Agent(
        "desk",
        model=ScriptedModel([turn]),
        handoffs=[handoff(agent, input_filter=add_result)],
    )


class Server(MCPServer):
    """A server with one tool, in this process; it may keep the list of its tools."""

    name = "docs"

    def __init__(self, text: str, *, keeps: bool) -> None:
        super().__init__()
        self.text = text
        self.keeps = keeps

    @property
    def cached_tools(self) -> list[Tool] | None:
        tool = Tool(name="look", description=self.text, input_schema=dict(SCHEMA))
        return [tool] if self.keeps else None

    async def list_tools(self, *_: Any, **__: Any) -> list[Tool]:
        tool = Tool(name="look", description=self.text, input_schema=dict(SCHEMA))
        return [tool]

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def call_tool(self, *_: Any, **__: Any) -> Any: ...

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, *_: Any, **__: Any) -> Any: ...


def user_item(text: str) -> Any:
    return {"role": "user", "content": text}

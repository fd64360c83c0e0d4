"""pydantic-ai for the table of hosts: its own FunctionModel, and the tool `shell`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import chain
from typing import Any

from pydantic_ai import (
    Agent,
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolDefinition,
    ToolFailed,
)
from pydantic_ai.capabilities import AbstractCapability, ProcessHistory
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import ExternalToolset

from heedful.integrations import Host, verdict_of
from heedful.integrations.pydantic_ai import Heedful
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
    host: Host, task: str, script: Script, *, id: str, results: Results = OK
) -> Driven:
    driven = Driven()
    agent = shell_agent(script, driven, results, capabilities=[Heedful(host=host)])
    result = await agent.run(task, run_id=id)
    driven.answer = result.output
    driven.verdict = verdict_of(result)
    return driven


async def chat(
    host: Host, tasks: Tasks, results: Results = OK, added: TurnAddition = NOTHING
) -> None:
    agent = shell_agent(
        script_of(tasks),
        Driven(),
        results,
        capabilities=[Heedful(host=host), *turn_adder(added)],
    )
    messages: list[ModelMessage] = []
    for task in tasks:
        result = await agent.run(task, message_history=messages)
        messages = result.all_messages()


TURN_WAYS = ("message before the task", "message after the task", "enqueue")


def turn_adder(added: TurnAddition) -> list[Any]:
    """Return the capability that adds a text in the first turn, if any does."""
    if not added.way:
        return []
    waiting = [added.text]

    def add_message(
        ctx: RunContext[Any], messages: list[ModelMessage]
    ) -> list[ModelMessage]:
        if not waiting:
            return messages
        text = waiting.pop()
        if added.way == "enqueue":
            ctx.enqueue(text)
            return messages
        page = ModelRequest.user_text_prompt(text)
        is_first = added.way == "message before the task"
        return [page, *messages] if is_first else [*messages, page]

    return [ProcessHistory(add_message)]


# What a tool returns that has an image.
PICTURE: Any = BinaryContent(b"PNG", media_type="image/png")
WAYS = (
    "instruction function",
    "system prompt function",
    "history processor before heedful",
    "history processor after heedful",
    "result in place of a call",
    SERVER_TOOL,
)


class Answering(AbstractCapability[Any]):
    """Answers the call "read" in place of the tool."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def wrap_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        return self.text if args == {"command": "read"} else await handler(args)


async def add(host: Host, addition: Addition) -> None:
    """Run an agent to whose requests a function of its user adds a text."""

    def add_message(messages: list[ModelMessage]) -> list[ModelMessage]:
        return [ModelRequest.user_text_prompt(addition.text), *messages]

    script = addition.script
    capabilities: list[Any] = [Heedful(host=host)]
    if addition.way == "history processor before heedful":
        capabilities.insert(0, ProcessHistory(add_message))
    elif addition.way == "history processor after heedful":
        capabilities.append(ProcessHistory(add_message))
    elif addition.way == "result in place of a call":
        capabilities.insert(0, Answering(addition.text))
        script = [Call("read"), *script]
    prompts: Any = {}
    if addition.way == SERVER_TOOL:
        offer = ToolDefinition(
            name="look", description=addition.text, parameters_json_schema=dict(SCHEMA)
        )
        prompts = {"toolsets": [ExternalToolset([offer])]}
    elif addition.way not in (*WAYS, OWN_TOOL):
        prompts = {"system_prompt": addition.text, "instructions": addition.text}
    agent = shell_agent(
        script, Driven(), addition.results, capabilities=capabilities, **prompts
    )
    if addition.way == "instruction function":
        agent.instructions(lambda: addition.text)
    elif addition.way == "system prompt function":
        agent.system_prompt(lambda: addition.text)
    elif addition.way == OWN_TOOL:
        agent.tool_plain(look)
    await agent.run(addition.task)

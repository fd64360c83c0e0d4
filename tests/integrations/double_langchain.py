"""LangChain's own fake chat model, driven by a script."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any

from heedful.integrations.langchain_notes import MESSAGE_SOURCE_KEY
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ToolErrorMiddleware,
    after_agent,
    after_model,
    before_agent,
    before_model,
    dynamic_prompt,
    wrap_model_call,
)
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from mcp import ClientSession

from heedful.integrations import RESULT_KEY, Host, verdict_of
from heedful.integrations.langchain import HeedfulMiddleware
from tests.integrations.doubles import (
    NOTHING,
    OK,
    OWN_TOOL,
    SCHEMA,
    SERVER_TOOL,
    Addition,
    Call,
    Driven,
    ModelDown,
    Results,
    Say,
    Script,
    Tasks,
    Turn,
    TurnAddition,
    look,
    script_of,
    shell_of,
)


class Scripted(GenericFakeChatModel):
    """The fake model with tools; keeps what it is asked."""

    prompts: list[str]

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self.bind(tools=list(map(convert_to_openai_tool, tools)))

    def _generate(self, messages: list[BaseMessage], *rest: Any, **options: Any) -> Any:
        self.prompts.append("\n".join(str(message.text) for message in messages))
        return super()._generate(messages, *rest, **options)


def message(number: int, turn: Turn | AIMessage) -> AIMessage:
    if isinstance(turn, ModelDown):
        raise turn
    if isinstance(turn, Call):
        call = {
            "name": "shell",
            "args": {"command": turn.command},
            "id": f"call-{number}",
        }
        block = {"type": "web_fetch_tool_result", "content": turn.provided}
        content: Any = [block] if turn.provided else turn.text
        return AIMessage(content, tool_calls=[call])
    return AIMessage(turn.text) if isinstance(turn, Say) else turn.model_copy()


def scripted(script: Sequence[Any]) -> Scripted:
    """Return a model that takes turns or messages in order, and repeats the last."""
    turns = enumerate(chain(script, repeat(script[-1])))
    return Scripted(messages=(message(*turn) for turn in turns), prompts=[])


def agent_of(model: Scripted, middleware: HeedfulMiddleware, **options: Any) -> Any:
    errors: Any = ToolErrorMiddleware(lambda error, _: str(error))
    return create_agent(model, middleware=[middleware, errors], **options)


async def drive(
    host: Host, task: str, script: Script, *, id: str, results: Results = OK
) -> Driven:
    model = scripted(script)
    commands = list[str]()
    agent = agent_of(
        model, HeedfulMiddleware(host), tools=[shell_of(commands, results)]
    )
    config: Any = {"configurable": {"thread_id": id}}
    state = await agent.ainvoke({"messages": [("user", task)]}, config)
    return Driven(
        answer=str(state["messages"][-1].text),
        prompts=model.prompts,
        commands=commands,
        verdict=verdict_of(state),
    )


async def chat(
    host: Host, tasks: Tasks, results: Results = OK, added: TurnAddition = NOTHING
) -> None:
    errors: Any = ToolErrorMiddleware(lambda error, _: str(error))
    is_kept = not added.way.endswith(PASSED_ON)
    agent: Any = create_agent(
        scripted(script_of(tasks)),
        middleware=[HeedfulMiddleware(host), *turn_adder(added), errors],
        tools=[shell_of([], results)],
        checkpointer=InMemorySaver() if is_kept else None,
    )
    config: Any = {"configurable": {"thread_id": "chat"}}
    messages: list[Any] = []
    for task in tasks:
        before = [] if is_kept else messages
        state = await agent.ainvoke({"messages": [*before, ("user", task)]}, config)
        messages = state["messages"]


PASSED_ON = ", messages passed on"
ADDERS = {
    "before_agent": before_agent,
    "before_model": before_model,
    "after_model": after_model,
    "after_agent": after_agent,
}
TURN_WAYS = (*ADDERS, *(name + PASSED_ON for name in ADDERS))


def turn_adder(added: TurnAddition) -> list[AgentMiddleware[Any, Any, Any]]:
    """Return the middleware that adds a text in the first turn, if any does."""
    if not added.way:
        return []
    waiting = [HumanMessage(added.text)]

    async def add_message(*_: Any) -> Any:
        return {"messages": [waiting.pop()]} if waiting else None

    decorate: Any = ADDERS[added.way.removesuffix(PASSED_ON)]
    return [decorate(add_message)]


# What a tool returns that has an image.
PICTURE: Any = [
    {"type": "text", "text": "a page"},
    {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"},
]
WAYS = (
    "dynamic prompt before heedful",
    "dynamic prompt after heedful",
    "message before heedful",
    "message after heedful",
    "message in the state",
    "name of a message after heedful",
    "note that only says it is of heedful",
    "thoughts beside the content",
    "call beside the content",
    "call that is no JSON",
    SERVER_TOOL,
    "tool of middleware after heedful",
    "tool of the provider",
)


async def add(host: Host, addition: Addition) -> None:
    """Run an agent to whose requests other middleware adds a text."""
    tools: list[Any] = [shell_of([], addition.results)]
    adding: list[Any] = []
    if addition.way == SERVER_TOOL:
        tools.append(server_tool(addition.text))
    elif addition.way == "tool of the provider":
        tools.append({"type": "mcp", "server_label": "docs"})
    elif addition.way == OWN_TOOL:
        tools.append(look)
    elif addition.way in WAYS:
        adding.append(adder(addition.way, addition.text))
    mine: list[Any] = [HeedfulMiddleware(host)]
    is_before = addition.way.endswith("before heedful")
    errors: Any = ToolErrorMiddleware(lambda error, _: str(error))
    agent = create_agent(
        scripted(addition.script),
        tools=tools,
        system_prompt="Be brief."
        if addition.way in (*WAYS, OWN_TOOL)
        else addition.text,
        middleware=[*(adding + mine if is_before else mine + adding), errors],
    )
    await agent.ainvoke({"messages": [("user", addition.task)]})


def server_tool(text: str) -> StructuredTool:
    """Return a tool as an adapter for servers makes it."""
    return StructuredTool(
        name="look",
        description=text,
        args_schema=dict(SCHEMA),
        coroutine=ClientSession.call_tool,
    )


def adder(way: str, text: str) -> AgentMiddleware[Any, Any, Any]:
    if way.startswith("dynamic prompt"):

        @dynamic_prompt
        async def prompt(_: Any) -> str:
            return f"Be brief.\n{text}"

        return prompt

    if way == "message in the state":

        @before_model
        async def add_message(*_: Any) -> Any:
            return {"messages": [HumanMessage(text)]}

        return add_message

    @wrap_model_call
    async def add_tool(request: Any, handler: Any) -> Any:
        tools = [*request.tools, server_tool(text)]
        return await handler(request.override(tools=tools))

    if way == "tool of middleware after heedful":
        return add_tool

    @wrap_model_call
    async def add_to_request(request: Any, handler: Any) -> Any:
        messages = [*request.messages, message_of(way, text)]
        return await handler(request.override(messages=messages))

    return add_to_request


def message_of(way: str, text: str) -> BaseMessage:
    """Return a message that has a text in one of its fields."""
    call = {"name": "look", "args": text, "id": "1", "error": None}
    fields: dict[str, dict[str, Any]] = {
        "thoughts beside the content": {"reasoning_content": text},
        "call beside the content": {"function_call": {"arguments": text}},
    }
    if way in fields:
        return AIMessage("Hello!", additional_kwargs=fields[way])
    if way == "call that is no JSON":
        return AIMessage("Hello!", invalid_tool_calls=[call])
    if way == "note that only says it is of heedful":
        marks = {MESSAGE_SOURCE_KEY: RESULT_KEY}
        return HumanMessage(text, additional_kwargs=marks)
    if way == "name of a message after heedful":
        return HumanMessage("Hello!", name=text)
    return HumanMessage(text)

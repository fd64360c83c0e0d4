"""Haystack's own mock chat generator, driven by a script, and the tool `shell`."""

from __future__ import annotations

from typing import Any

from haystack.components.agents import Agent
from haystack.components.agents.state import State
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ImageContent, TextContent, ToolCall
from haystack.hooks import hook
from haystack.tools import Tool
from haystack.tools.from_function import create_tool_from_function
from pydantic import TypeAdapter

from heedful.integrations import Host, verdict_of
from heedful.integrations.attempts import ID_KEY
from heedful.integrations.haystack import hooks
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

USAGE = {"prompt_tokens": 10, "completion_tokens": 5}


def scripted(script: Script, driven: Driven, *, ids: bool = True) -> MockChatGenerator:
    """Return a model that takes the turns of a script in order, and repeats the last.

    Its calls of tools have no `ids` if so.
    """

    def answer(messages: list[ChatMessage]) -> ChatMessage:
        driven.prompts.append("\n".join(map(text_of, messages)))
        number = len(driven.prompts)
        turn = script[min(number, len(script)) - 1]
        if isinstance(turn, Exception):
            raise turn
        if isinstance(turn, Call):
            call = ToolCall(
                tool_name="shell",
                arguments={"command": turn.command},
                id=f"call-{number}" if ids else None,
            )
            # The answers of OpenAI name the tools, and Haystack keeps the names.
            meta = {"tools": [{"type": "web_search"}]} if turn.provided else {}
            text = turn.text or None
            return ChatMessage.from_assistant(text, meta, tool_calls=[call])
        return ChatMessage.from_assistant(turn.text)

    return MockChatGenerator(response_fn=answer, meta={"usage": USAGE})


def text_of(message: ChatMessage) -> str:
    """Return all texts of a message, also the result of a tool."""
    results = [str(result.result) for result in message.tool_call_results]
    return "\n".join([*message.texts, *results])


def shell_agent(
    script: Script, driven: Driven, results: Results = OK, **options: Any
) -> Agent:
    """Return an agent with the tool `shell`."""
    tool = create_tool_from_function(
        shell_of(driven.commands, results), outputs_to_string={"raw_result": True}
    )
    return Agent(chat_generator=scripted(script, driven), tools=[tool], **options)


def asked(task: str) -> list[ChatMessage]:
    """Return the messages of a task."""
    return [ChatMessage.from_user(task)]


async def drive(
    host: Host, task: str, script: Script, *, id: str, results: Results = OK
) -> Driven:
    driven = Driven()
    agent = shell_agent(script, driven, results, hooks=hooks(host))
    result = await agent.run_async(asked(task), hook_context={ID_KEY: id})
    driven.answer = result["last_message"].text
    driven.verdict = verdict_of(result)
    return driven


async def chat(
    host: Host, tasks: Tasks, results: Results = OK, added: TurnAddition = NOTHING
) -> None:
    all_hooks = hooks_with(host, added)
    agent = shell_agent(script_of(tasks), Driven(), results, hooks=all_hooks)
    messages: list[ChatMessage] = []
    for task in tasks:
        result = await agent.run_async([*messages, *asked(task)])
        messages = result["messages"]


TURN_WAYS = ("before_run", "before_llm", "on_exit", "after_run", "system message")


def hooks_with(host: Host, added: TurnAddition) -> Any:
    """Return the hooks of heedful, and one that adds a text in the first turn."""
    point = "before_llm" if added.way == "system message" else added.way
    waiting = [added.text]

    @hook
    def add_text(state: State) -> None:
        if waiting and point == "before_llm" and added.way != point:
            state.set("messages", [ChatMessage.from_system(waiting.pop())])
        elif waiting:
            state.set("messages", [ChatMessage.from_user(waiting.pop())])

    return hooks(host, others={point: [add_text]} if point else None)


# What a tool returns that has an image.
PICTURE: Any = [TextContent("a page"), ImageContent("iVBORw0KGgo=")]
WAYS = ("hook before heedful", "hook after heedful", SERVER_TOOL)


async def add(host: Host, addition: Addition) -> None:
    """Run an agent to whose requests a hook of its user adds a text."""

    @hook
    def add_text(state: State) -> None:
        state.set("messages", [ChatMessage.from_system(addition.text)])

    all_hooks: Any = hooks(host)
    if addition.way == "hook before heedful":
        all_hooks = hooks(host, others={"before_llm": [add_text]})
    elif addition.way == "hook after heedful":
        all_hooks["before_llm"].append(add_text)
    prompt = "Be brief." if addition.way in (*WAYS, OWN_TOOL) else addition.text
    agent = shell_agent(
        addition.script,
        Driven(),
        addition.results,
        hooks=all_hooks,
        system_prompt=prompt,
    )
    if addition.way == SERVER_TOOL:
        agent.tools.append(server_tool(addition.text))
    elif addition.way == OWN_TOOL:
        agent.tools.append(create_tool_from_function(look))
    await agent.run_async(asked(addition.task))


def server_tool(text: str) -> Tool:
    """Return a tool as an adapter for servers makes it."""
    return Tool(
        name="look",
        description=text,
        parameters=dict(SCHEMA),
        function=TypeAdapter.validate_python,
    )

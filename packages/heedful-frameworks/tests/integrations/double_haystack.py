"""Haystack's own mock chat generator, driven by a script, and the tool `shell`."""

from __future__ import annotations

from typing import Any

from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools.from_function import create_tool_from_function

from heedful.integrations import Host, verdict_of
from heedful.integrations.attempts import ID_KEY
from heedful_frameworks.haystack import hooks
from tests.integrations.doubles import OK, Call, Driven, Results, Script, shell_of

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
    host: Host,
    task: str,
    script: Script,
    *,
    id: str,
    results: Results = OK,
    hold_back: bool = False,
) -> Driven:
    driven = Driven()
    agent = shell_agent(script, driven, results, hooks=hooks(host, hold_back=hold_back))
    result = await agent.run_async(asked(task), hook_context={ID_KEY: id})
    driven.answer = result["last_message"].text
    driven.verdict = verdict_of(result)
    return driven

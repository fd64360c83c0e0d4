"""LangChain's own fake chat model, driven by a script."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ToolErrorMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.utils.function_calling import convert_to_openai_tool

from heedful.integrations import Host, verdict_of
from heedful_frameworks.langchain import HeedfulMiddleware
from tests.integrations.doubles import (
    OK,
    Call,
    Driven,
    ModelDown,
    Results,
    Say,
    Script,
    Turn,
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


USAGE = UsageMetadata(input_tokens=10, output_tokens=5, total_tokens=15)


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
        return AIMessage(content, tool_calls=[call], usage_metadata=USAGE)
    if isinstance(turn, Say):
        return AIMessage(turn.text, usage_metadata=USAGE)
    return turn.model_copy()


def scripted(script: Sequence[Any]) -> Scripted:
    """Return a model that takes turns or messages in order, and repeats the last."""
    turns = enumerate(chain(script, repeat(script[-1])))
    return Scripted(messages=(message(*turn) for turn in turns), prompts=[])


def agent_of(model: Scripted, middleware: HeedfulMiddleware, **options: Any) -> Any:
    errors: Any = ToolErrorMiddleware(lambda error, _: str(error))
    return create_agent(model, middleware=[middleware, errors], **options)


async def drive(
    host: Host,
    task: str,
    script: Script,
    *,
    id: str,
    results: Results = OK,
    hold_back: bool = False,
) -> Driven:
    model = scripted(script)
    commands = list[str]()
    middleware = HeedfulMiddleware(host, hold_back=hold_back)
    agent = agent_of(model, middleware, tools=[shell_of(commands, results)])
    config: Any = {"configurable": {"thread_id": id}}
    state = await agent.ainvoke({"messages": [("user", task)]}, config)
    return Driven(
        answer=str(state["messages"][-1].text),
        prompts=model.prompts,
        commands=commands,
        verdict=verdict_of(state),
    )

"""LangChain's own fake chat model, driven by a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ToolErrorMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool

from heedful.integrations import Host
from heedful.integrations.langchain import HeedfulMiddleware
from tests.integrations.doubles import Call, Driven, ModelDown, Say, Turn


class Scripted(GenericFakeChatModel):
    """The fake model with tools; keeps what it is asked."""

    prompts: list[str]

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *rest: Any, **options: Any) -> Any:
        self.prompts.append("\n".join(str(one.text) for one in messages))
        return super()._generate(messages, *rest, **options)


def message(number: int, turn: Turn | AIMessage) -> AIMessage:
    if isinstance(turn, ModelDown):
        raise turn
    if isinstance(turn, Call):
        call = {"name": "shell", "args": {"command": turn.command}, "id": f"call-{number}"}
        return AIMessage("", tool_calls=[call])
    return AIMessage(turn.text) if isinstance(turn, Say) else turn.model_copy()


def scripted(script: Sequence[Any]) -> Scripted:
    """Return a model that takes turns or messages in order, and repeats the last."""
    turns = enumerate(chain(script, repeat(script[-1])))
    return Scripted(messages=(message(*one) for one in turns), prompts=[])


def shell_tool(commands: list[str], results: Mapping[str, str | Exception]) -> Any:
    """Return the tool; it keeps the commands that ran."""

    @tool
    def shell(command: str) -> str:
        """Run a command."""
        commands.append(command)
        result = results.get(command, "done")
        if isinstance(result, Exception):
            raise result
        return result

    return shell


def agent_of(model: Scripted, middleware: HeedfulMiddleware, **options: Any) -> Any:
    errors: Any = ToolErrorMiddleware(lambda error, _: str(error))
    return create_agent(model, middleware=[middleware, errors], **options)


class LangChain:
    name = "langchain"

    async def drive(
        self, host: Host, task: str, script: Sequence[Turn], *, id: str, results: Any = None
    ) -> Driven:
        model, commands = scripted(script), list[str]()
        tools = [shell_tool(commands, results or {})]
        agent = agent_of(model, HeedfulMiddleware(host), tools=tools)
        config: Any = {"configurable": {"thread_id": id}}
        state = await agent.ainvoke({"messages": [("user", task)]}, config)
        return Driven(str(state["messages"][-1].text), model.prompts, commands)


DOUBLE = LangChain()

"""LangChain's own fake chat model, driven by a script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> Any:
        self.prompts.append("\n".join(str(one.text) for one in messages))
        return super()._generate(messages, *args, **options)


def scripted(script: Sequence[Any]) -> Scripted:
    """Return a model that takes the turns in order, and repeats the last."""

    def turns() -> Iterator[AIMessage]:
        number = 0
        while True:
            turn = script[min(number, len(script) - 1)]
            number += 1
            match turn:
                case Say(text):
                    yield AIMessage(text)
                case Call(command):
                    call = {"name": "shell", "args": {"command": command}, "id": f"call-{number}"}
                    yield AIMessage("", tool_calls=[call])
                case ModelDown():
                    raise turn
                case _:
                    yield turn.model_copy()

    return Scripted(messages=turns(), prompts=[])


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


def agent_of(model: Scripted, host: Host, *, hold_back: bool = False, **options: Any) -> Any:
    """Return an agent as a user of the middleware sets it up."""
    errors = ToolErrorMiddleware(lambda error, _: str(error))
    middleware: Any = [HeedfulMiddleware(host, hold_back=hold_back), errors]
    return create_agent(model, middleware=middleware, **options)


class LangChain:
    """An agent of `create_agent` with the middleware."""

    name = "langchain"

    async def drive(
        self,
        host: Host,
        task: str,
        script: Sequence[Turn],
        *,
        id: str,
        results: Mapping[str, str | Exception] = {},
    ) -> Driven:
        model, commands = scripted(script), list[str]()
        agent = agent_of(model, host, tools=[shell_tool(commands, results)])
        config: Any = {"configurable": {"thread_id": id}}
        state = await agent.ainvoke({"messages": [("user", task)]}, config)
        return Driven(str(state["messages"][-1].text), model.prompts, commands)


DOUBLE = LangChain()

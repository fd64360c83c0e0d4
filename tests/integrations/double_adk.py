"""Google ADK for the table of hosts: a model made of its base class, and the tool
`shell`.

ADK ships no fake model.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent, RunConfig
from google.adk.apps import App
from google.adk.events import Event
from google.adk.models import BaseLlm, LlmResponse
from google.adk.plugins import BasePlugin, ReflectAndRetryToolPlugin
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool.mcp_session_manager import (
    MCPSessionManager,
    SseConnectionParams,
)
from google.adk.tools.mcp_tool.mcp_tool import McpTool
from google.genai import types
from mcp.types import Tool
from pydantic import PrivateAttr

from heedful.errors import HeedfulError
from heedful.integrations import Host, verdict_of
from heedful.integrations.adk import HeedfulAdkPlugin
from heedful.integrations.attempts import ID_KEY
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

USAGE = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=10, candidates_token_count=5
)


class Scripted(BaseLlm):
    """A model that takes the turns of a script in order, and repeats the last."""

    model: str = "scripted"
    _script: Script = PrivateAttr()
    _driven: Driven = PrivateAttr()

    def __init__(self, script: Script, driven: Driven) -> None:
        super().__init__(model="scripted")
        self._script = script
        self._driven = driven

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self._driven.prompts.append("\n".join(map(text_of, llm_request.contents)))
        number = len(self._driven.prompts)
        turn = self._script[min(number, len(self._script)) - 1]
        if isinstance(turn, Exception):
            raise turn
        if isinstance(turn, Call):
            call = types.FunctionCall(
                name="shell", args={"command": turn.command}, id=f"call-{number}"
            )
            part = types.Part(function_call=call)
        else:
            part = types.Part(text=turn.text)
        parts = [part]
        if isinstance(turn, Call) and turn.text:
            parts.insert(0, types.Part(text=turn.text))
        if isinstance(turn, Call) and turn.provided:
            result = types.CodeExecutionResult(output=turn.provided)
            parts.insert(0, types.Part(code_execution_result=result))
        content = types.Content(role="model", parts=parts)
        if stream and part.text:
            yield LlmResponse(content=content, partial=True)
        yield LlmResponse(content=content, usage_metadata=USAGE)


def text_of(content: types.Content) -> str:
    """Return all texts of a content, also the result of a tool."""
    texts = []
    for part in content.parts or ():
        if part.function_response:
            texts.append(str(part.function_response.response))
        texts.append(part.text or "")
    return "\n".join(filter(None, texts))


def shell_agent(
    script: Script, driven: Driven, results: Results = OK, **options: Any
) -> LlmAgent:
    """Return an agent with the tool `shell`."""
    options.setdefault("tools", [shell_of(driven.commands, results)])
    options.setdefault("name", "desk")
    return LlmAgent(model=Scripted(script, driven), **options)


def runner_of(agent: Any, *plugins: Any) -> InMemoryRunner:
    """Return a runner; an error of a tool goes to the model."""
    all_plugins = [*plugins, ReflectAndRetryToolPlugin()]
    runner = InMemoryRunner(
        app=App(name="tests", root_agent=agent, plugins=all_plugins)
    )
    runner.auto_create_session = True
    return runner


async def run(
    runner: InMemoryRunner, task: str, session: str = "chat", id: str = "", **more: Any
) -> list[Any]:
    """Return the events of one invocation. Raises what a plugin raised as itself."""
    metadata = {ID_KEY: id} if id else None
    try:
        return [
            event
            async for event in runner.run_async(
                user_id="user",
                session_id=session,
                new_message=types.UserContent(task),
                run_config=RunConfig(custom_metadata=metadata, **more),
            )
        ]
    except RuntimeError as error:
        if isinstance(error.__cause__, HeedfulError):
            raise error.__cause__ from error
        raise


async def drive(
    host: Host, task: str, script: Script, *, id: str, results: Results = OK
) -> Driven:
    driven = Driven()
    agent = shell_agent(script, driven, results)
    runner = runner_of(agent, HeedfulAdkPlugin(host))
    events = await run(runner, task, id=id)
    driven.answer = text_of(events[-1].content or types.Content())
    driven.verdict = verdict_of(events[-1])
    return driven


async def chat(
    host: Host, tasks: Tasks, results: Results = OK, added: TurnAddition = NOTHING
) -> None:
    agent = shell_agent(script_of(tasks), Driven(), results)
    runner = runner_of(agent, HeedfulAdkPlugin(host), AppendingPlugin(added))
    for task in tasks:
        await run(runner, task)


TURN_WAYS = ("before_model", "after_run", "event of its own invocation")


class AppendingPlugin(BasePlugin):
    """Appends a text to the session, as an event of the user, in the first turn."""

    def __init__(self, added: TurnAddition) -> None:
        super().__init__("appending")
        self.added = added
        self.waits = bool(added.way)

    async def before_model_callback(
        self, *, callback_context: Any, llm_request: Any
    ) -> None:
        if self.added.way != "after_run":
            await self.append(callback_context._invocation_context)

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        if self.added.way == "after_run":
            await self.append(invocation_context)

    async def append(self, context: Any) -> None:
        if not self.waits:
            return
        self.waits = False
        is_alone = self.added.way == "event of its own invocation"
        event = Event(
            author="user",
            invocation_id="alone" if is_alone else context.invocation_id,
            content=types.UserContent(self.added.text),
        )
        await context.session_service.append_event(context.session, event)


class AddingPlugin(BasePlugin):
    """Adds a text to each request."""

    def __init__(self, text: str) -> None:
        super().__init__("adding")
        self.text = text

    async def before_model_callback(
        self, *, callback_context: Any, llm_request: Any
    ) -> None:
        llm_request.contents.append(types.UserContent(self.text))


# What a tool returns that has an image.
PICTURE: Any = {"page": types.Part.from_bytes(data=b"PNG", mime_type="image/png")}
WAYS = (
    "instruction provider",
    "instruction of a state",
    "callback of the agent",
    "plugin before heedful",
    "plugin after heedful",
    SERVER_TOOL,
)


async def add(host: Host, addition: Addition) -> None:
    """Run an agent to whose requests code of its user adds a text."""
    options: dict[str, Any] = {}
    plugins: list[Any] = [HeedfulAdkPlugin(host)]
    if addition.way == "instruction provider":
        options["instruction"] = lambda _: addition.text
    elif addition.way == "instruction of a state":
        options["instruction"] = "Know this: {docs}"
    elif addition.way == "callback of the agent":

        def add_text(callback_context: Any, llm_request: Any) -> None:
            llm_request.append_instructions([addition.text])

        options["before_model_callback"] = add_text
    elif addition.way == "plugin before heedful":
        plugins.insert(0, AddingPlugin(addition.text))
    elif addition.way == "plugin after heedful":
        plugins.append(AddingPlugin(addition.text))
    elif addition.way == SERVER_TOOL:
        options["tools"] = [shell_of([], addition.results), server_tool(addition.text)]
    elif addition.way == OWN_TOOL:
        options["tools"] = [shell_of([], addition.results), look]
    else:
        options["instruction"] = addition.text
    runner = runner_of(
        shell_agent(addition.script, Driven(), addition.results, **options), *plugins
    )
    await runner.session_service.create_session(
        app_name="tests",
        user_id="user",
        session_id="chat",
        state={"docs": addition.text},
    )
    await run(runner, addition.task)


def server_tool(text: str) -> McpTool:
    """Return a tool of a server, to which nothing connects."""
    where = SseConnectionParams(url="https://docs.example")
    return McpTool(
        mcp_tool=Tool(name="look", description=text, input_schema=dict(SCHEMA)),
        mcp_session_manager=MCPSessionManager(where),
    )

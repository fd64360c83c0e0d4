"""Microsoft Agent Framework for the table of hosts: its base class of chat clients, and
the tool `shell`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    ContextProvider,
    FunctionInvocationLayer,
    FunctionTool,
    Message,
    ResponseStream,
    UsageDetails,
    agent_middleware,
    chat_middleware,
    tool,
)
from mcp import ClientSession

from heedful.integrations import Host, verdict_of
from heedful.integrations.agent_framework import HeedfulAgentMiddleware
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

USAGE = UsageDetails(input_token_count=7, output_token_count=2, total_token_count=9)


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A chat client whose model takes the turns of a script, and repeats the last."""

    def __init__(self, script: Script, driven: Driven) -> None:
        super().__init__()
        self.script = script
        self.driven = driven

    def _inner_get_response(
        self,
        *,
        messages: Sequence[Message],
        stream: bool,
        options: Mapping[str, Any],
        **_: Any,
    ) -> Any:
        if stream:
            return ResponseStream(
                self.updates(messages), finalizer=ChatResponse.from_updates
            )
        return self.answer(messages)

    async def answer(self, messages: Sequence[Message]) -> ChatResponse:
        message = Message("assistant", self.next(messages))
        return ChatResponse(messages=[message], usage_details=USAGE)

    async def updates(
        self, messages: Sequence[Message]
    ) -> AsyncIterator[ChatResponseUpdate]:
        yield ChatResponseUpdate(role="assistant", contents=self.next(messages))

    def next(self, messages: Sequence[Message]) -> list[Content]:
        """Return the next turn; keep the texts of the request."""
        contents = [content for message in messages for content in message.contents]
        texts = [content.text or content.result for content in contents]
        self.driven.prompts.append("\n".join(map(str, filter(None, texts))))
        number = len(self.driven.prompts)
        turn = self.script[min(number, len(self.script)) - 1]
        if isinstance(turn, Exception):
            raise turn
        if isinstance(turn, Call):
            call = Content.from_function_call(
                f"call-{number}", "shell", arguments={"command": turn.command}
            )
            if not turn.provided:
                return [Content.from_text(turn.text), call] if turn.text else [call]
            output = turn.provided
            return [Content.from_mcp_server_tool_result("mcp-1", output=output), call]
        return [Content.from_text(turn.text)]


def shell_agent(
    script: Script, driven: Driven, results: Results = OK, **options: Any
) -> Agent[Any]:
    """Return an agent with the tool `shell`."""
    approval = options.pop("approval_mode", "never_require")
    shell = tool(shell_of(driven.commands, results), approval_mode=approval)
    return Agent(Scripted(script, driven), tools=[shell], **options)


async def drive(
    host: Host, task: str, script: Script, *, id: str, results: Results = OK
) -> Driven:
    driven = Driven()
    agent = shell_agent(
        script, driven, results, middleware=[HeedfulAgentMiddleware(host)]
    )
    response = await agent.run(task, session=AgentSession(session_id=id))
    driven.answer = response.text
    driven.verdict = verdict_of(response)
    return driven


async def chat(
    host: Host, tasks: Tasks, results: Results = OK, added: TurnAddition = NOTHING
) -> None:
    middleware = [HeedfulAgentMiddleware(host), *turn_adder(added)]
    agent = shell_agent(script_of(tasks), Driven(), results, middleware=middleware)
    session = AgentSession(session_id="chat")
    for task in tasks:
        await agent.run(task, session=session)


TURN_WAYS = ("message before the task", "message after the task")


def turn_adder(added: TurnAddition) -> list[Any]:
    """Return the middleware that adds a text in the first turn, if any does."""
    if not added.way:
        return []
    waiting = [Message("user", [added.text])]

    @agent_middleware
    async def add_message(context: Any, call_next: Any) -> None:
        messages = list(context.messages)
        if waiting:
            place = 0 if added.way == "message before the task" else len(messages)
            messages.insert(place, waiting.pop())
        context.messages = messages
        await call_next()

    return [add_message]


def server_tool(text: str) -> FunctionTool:
    """Return a tool as an adapter for servers makes it."""
    return FunctionTool(
        name="look",
        description=text,
        func=ClientSession.call_tool,
        input_model=dict(SCHEMA),
    )


class Adding(ContextProvider):
    """Adds a text to the context of each run."""

    def __init__(self, way: str, text: str) -> None:
        super().__init__("adding")
        self.way = way
        self.text = text

    async def before_run(self, *, context: Any, **_: Any) -> None:
        if self.way == "instructions of a provider":
            context.extend_instructions(self, self.text)
        else:
            context.extend_messages(self, [Message("user", [self.text])])


# What a tool returns that has an image.
PICTURE: Any = [Content.from_data(b"PNG", "image/png")]
WAYS = (
    "instructions of a provider",
    "message of a provider",
    "chat middleware",
    "instructions of a run",
    SERVER_TOOL,
    "tool of the provider",
)


async def add(host: Host, addition: Addition) -> None:
    """Run an agent to whose requests code of its user adds a text."""

    @chat_middleware
    async def add_message(context: Any, call_next: Any) -> None:
        context.messages = [Message("user", [addition.text]), *context.messages]
        await call_next()

    middleware: list[Any] = [HeedfulAgentMiddleware(host)]
    options: dict[str, Any] = {"instructions": "Be brief."}
    run_options: dict[str, Any] = {}
    if addition.way.endswith("of a provider"):
        options["context_providers"] = [Adding(addition.way, addition.text)]
    elif addition.way == "chat middleware":
        middleware.append(add_message)
    elif addition.way == "instructions of a run":
        run_options = {"instructions": addition.text}
    elif addition.way == SERVER_TOOL:
        run_options["tools"] = [server_tool(addition.text)]
    elif addition.way == "tool of the provider":
        run_options["tools"] = [{"type": "mcp", "server_label": "docs"}]
    elif addition.way == OWN_TOOL:
        run_options["tools"] = [tool(look)]
    else:
        options["instructions"] = addition.text
    agent = shell_agent(
        addition.script, Driven(), addition.results, middleware=middleware, **options
    )
    await agent.run(addition.task, session=AgentSession(), options=run_options)

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
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    UsageDetails,
    tool,
)

from heedful.integrations import Host, verdict_of
from heedful_frameworks.agent_framework import HeedfulAgentMiddleware
from tests.integrations.doubles import OK, Call, Driven, Results, Script, shell_of

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
        contents = [*self.next(messages), Content.from_usage(USAGE)]
        yield ChatResponseUpdate(role="assistant", contents=contents)

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
    host: Host,
    task: str,
    script: Script,
    *,
    id: str,
    results: Results = OK,
    hold_back: bool = False,
) -> Driven:
    driven = Driven()
    middleware = [HeedfulAgentMiddleware(host, hold_back=hold_back)]
    agent = shell_agent(script, driven, results, middleware=middleware)
    response = await agent.run(task, session=AgentSession(session_id=id))
    driven.answer = response.text
    driven.verdict = verdict_of(response)
    return driven

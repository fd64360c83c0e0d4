"""heedful for Microsoft Agent Framework: a middleware; an agent answers until right.

    host = Host(checks=[…], memory_key="triage")
    agent = Agent(client, middleware=[HeedfulAgentMiddleware(host)])

It is one middleware of the agent. For each run it adds one for requests to the model,
and one for calls of tools. What memory shows, the last rejected answer and the feedback
on it are in the requests only: neither the result nor the session keeps them. The id of
a run is that of its session: a run with the id of an earlier one, which may have been
killed, goes on with it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agent_framework import (
    AgentContext,
    AgentMiddleware,
    AgentResponse,
    AgentResponseUpdate,
    AgentSession,
    ChatContext,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationContext,
    FunctionTool,
    HistoryProvider,
    InMemoryHistoryProvider,
    Message,
    MiddlewareTermination,
    ResponseStream,
    UsageDetails,
    add_usage_details,
)
from agent_framework.exceptions import MiddlewareException, UserInputRequiredException

from heedful.integrations.attempts import (
    Adapter,
    Attempts,
    Role,
    place_of,
    text_in,
)
from heedful.integrations.results import RESULT_KEY
from heedful.loop.record import Usage

CallNext: TypeAlias = Callable[[], Awaitable[None]]
Response: TypeAlias = AgentResponse[Any]


class HeedfulAgentMiddleware(Adapter, AgentMiddleware):
    """Check each answer, feed back what is wrong, and return the best in the end.

    Put it first, so that it judges what other middleware returns. It serves any number
    of agents and runs. The id of a run is that of its session, with the number of the
    user's turn from the second turn on; a run without a session gets a random id. With
    `hold_back`, a call of a tool that failed before does not run: the model reads what
    happened. When the model makes the same call again, it runs.
    """

    framework = "Microsoft Agent Framework"

    async def process(self, context: AgentContext, call_next: CallNext) -> None:
        """Run the agent until its answer passes or a rule stops the run."""
        run = await self._begin(context, call_next)
        present = context.client_kwargs.get("middleware") or ()
        context.client_kwargs["middleware"] = [
            run.watch_call,
            run.watch_request,
            *present,
        ]
        stream = ResponseStream(run.answer(), finalizer=run.finalize)
        if context.stream:
            context.result = stream
        else:
            context.result = await stream.get_final_response()

    async def _begin(
        self, context: AgentContext, call_next: CallNext
    ) -> _MiddlewareRun:
        """Return the run of this user turn or, after a pause, the run being resumed."""
        prompts = [message.text for message in context.messages if _is_prompt(message)]
        # Without a session, the id is random, and nothing is kept.
        session = context.session or AgentSession()
        record = session.state.setdefault(RESULT_KEY, {})

        # No new prompt means that the user has just approved or refused a call.
        is_new_turn = bool(prompts) or not record.get("open")
        if is_new_turn:
            turn = record.get("turn", 0) + 1
            id = f"{session.session_id}:{turn}" if turn > 1 else session.session_id
            task = prompts[-1] if prompts else ""
            record.update(turn=turn, open=id, task=task)

        run = _MiddlewareRun(
            run=self.host.run(record["open"], record["task"]),
            hold_back=self.hold_back,
            context=context,
            call_next=call_next,
            session=session,
            messages=list(context.messages),
        )
        run.past = run.history()
        if is_new_turn:
            await run.begin_turn()
            record["open"] = run.run.id
        else:
            await run.begin()
        if prompts and run.feedback and run.is_kept_elsewhere():
            # Only the feedback on the last answer is not kept.
            context.messages = [Message("user", [run.feedback])]
        return run


@dataclass(eq=False, kw_only=True)
class _MiddlewareRun(Attempts):
    """The attempts of one run of an agent.

    `messages` is what the user sent, and the calls of tools with their results so far.
    `past` is what the session had before the run, by providers.
    """

    context: AgentContext
    call_next: CallNext
    session: AgentSession
    messages: list[Message]
    past: dict[str, list[Message]] = field(default_factory=dict)
    usage: UsageDetails | None = None
    result: Any = None
    ended: bool = False

    async def answer(self) -> AsyncIterator[AgentResponseUpdate]:
        """Run the agent until the run ends; yield the updates of streamed attempts.

        An update without contents follows a rejected answer; its additional properties
        say what is wrong.
        """
        try:
            while not self.ended:
                await self.call_next()
                attempt: Any = self.context.result
                if self.context.stream:
                    async for update in attempt:
                        yield update
                    attempt = await attempt.get_final_response()
                await self.take(attempt)
                if not self.ended:
                    yield AgentResponseUpdate(
                        contents=[],
                        role="user",
                        additional_properties={RESULT_KEY: self.feedback},
                    )
        except BaseException as error:
            is_stopped = isinstance(error, MiddlewareException)
            is_error = isinstance(error, Exception) and not is_stopped
            await self.end("error" if is_error else "partial")
            raise

    def finalize(self, updates: Sequence[AgentResponseUpdate]) -> Response:
        """Return the best response as that of the stream."""
        return self.result or AgentResponse.from_updates(updates)

    async def take(self, response: Any) -> None:
        """Judge the response of an attempt; prepare the next, or end the run."""
        self.result = response
        if not isinstance(response, AgentResponse):
            # Another middleware has answered in its own way.
            await self.end("partial")
            self.ended = True
            return

        self.usage = add_usage_details(self.usage, response.usage_details)
        if response.user_input_requests:
            # A call waits for the user: the run goes on with the approval.
            self.ended = True
            return

        start = _answer_start(response)
        if not any(message.text for message in response.messages[start:]):
            # The framework ends a run of many errors, and heedful one that repeats.
            texts = [message.text for message in response.messages]
            closing = self.closing(texts, at_limit=True)
            if closing:
                response.messages.append(_message("assistant", closing))
        self.messages += response.messages[:start]
        if not await self.judge(_output_of(response)):
            await self.finish(response)
            return

        if self.is_kept_elsewhere():
            self.context.messages = [Message("user", [self.feedback])]
        else:
            self.context.messages = list(self.messages)
            self.restore()

    async def finish(self, response: Response) -> None:
        """Learn from the run; let its result and the session have the best answer."""
        verdict = await self.end()
        if self.has_better:
            work = response.messages[: _answer_start(response)]
            answer = _message("assistant", self.best_text)
            value = None if isinstance(self.run.best, str) else self.run.best
            response = AgentResponse(messages=[*work, answer], value=value)
            if not self.is_kept_elsewhere():
                self.restore([*self.messages, answer])

        response.usage_details = self.usage
        vars(response)[RESULT_KEY] = verdict
        self.result = response
        self.ended = True
        self.session.state.get(RESULT_KEY, {}).pop("open", None)

    def history(self) -> dict[str, list[Message]]:
        """Return the messages in the state of the session, by their providers."""
        return {
            source: list(state["messages"])
            for source, state in self.session.state.items()
            if isinstance(state, dict) and "messages" in state
        }

    def restore(self, messages: Sequence[Message] = ()) -> None:
        """Let the state of the session have what was before the run, and messages."""
        for source in self.history():
            self.session.state[source]["messages"] = [
                *self.past.get(source, ()),
                *messages,
            ]

    def is_kept_elsewhere(self) -> bool:
        """Return True if a service or another provider keeps the messages at once."""
        session = self.context.session
        elsewhere = [
            provider
            for provider in getattr(self.context.agent, "context_providers", ())
            if isinstance(provider, HistoryProvider)
            and provider.load_messages
            and not isinstance(provider, InMemoryHistoryProvider)
        ]
        return session is not None and bool(session.service_session_id or elsewhere)

    async def watch_request(self, context: ChatContext, call_next: CallNext) -> None:
        """Show the model what memory has, and the last rejected answer."""
        closing = self.closing()
        if closing:
            context.result = _response_of(closing, is_stream=context.stream)
            return
        is_task = [
            _is_prompt(message) and message.text == self.run.task
            for message in context.messages
        ]
        context.messages = self.advised(
            context.messages,
            # The request may be one of a service that holds the task.
            task=place_of(is_task, sought=True) if any(is_task) else -1,
            last=-2 if self.is_kept_elsewhere() else None,
            calls=_result_calls,
            message=_message,
        )
        self.run.spent += Usage(1)
        context.stream_result_hooks.append(self.count_tokens)
        await call_next()
        if isinstance(context.result, ChatResponse):
            self.count_tokens(context.result)

    def count_tokens(self, response: ChatResponse[Any]) -> None:
        """Count the tokens of an answer of the model."""
        details = response.usage_details or {}
        self.run.spent += Usage(
            prompt_tokens=details.get("input_token_count") or 0,
            completion_tokens=details.get("output_token_count") or 0,
        )

    async def watch_call(
        self, context: FunctionInvocationContext, call_next: CallNext
    ) -> None:
        """Ask about a call before it runs; keep its result, or ask about its error."""
        arguments = context.arguments
        if not isinstance(arguments, Mapping):
            arguments = arguments.model_dump()

        async def work() -> Any:
            await call_next()
            return context.result

        context.result = await self.watch(
            context.function.name,
            arguments,
            str(context.metadata.get("call_id", "")),
            work=work,
            text=lambda result: text_in(FunctionTool.parse_result(result)),
            # Neither is a failure of the tool.
            others=(MiddlewareException, UserInputRequiredException),
        )
        if self.stopped:
            raise MiddlewareTermination


def _message(role: Role, text: str) -> Message:
    """Return a message of a text."""
    return Message(role, [text])


def _response_of(text: str, *, is_stream: bool) -> Any:
    """Return a response with a text, in place of that of the model."""
    if not is_stream:
        return ChatResponse(messages=[_message("assistant", text)])

    async def updates() -> AsyncIterator[ChatResponseUpdate]:
        yield ChatResponseUpdate(role="assistant", contents=[Content.from_text(text)])

    return ResponseStream(updates(), finalizer=ChatResponse.from_updates)


def _is_prompt(message: Message) -> bool:
    """Return True if a message is a text of the user."""
    return message.role == "user" and bool(message.text)


def _result_calls(message: Message) -> list[str]:
    """Return the ids of the calls whose results are in a message."""
    return [
        str(content.call_id)
        for content in message.contents
        if content.type == "function_result"
    ]


def _answer_start(response: Response) -> int:
    """Return the number of the first message after the last result of a tool."""
    results = [
        number
        for number, message in enumerate(response.messages)
        if _result_calls(message)
    ]
    return max(results, default=-1) + 1


def _output_of(response: Response) -> Any:
    """Return the answer: the structured one, or its text."""
    # A text that does not match the schema is judged as it is.
    with suppress(ValueError):
        if response.value is not None:
            return response.value
    answer = response.messages[_answer_start(response) :]
    return "".join(message.text for message in answer)

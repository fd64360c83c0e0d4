"""heedful for Microsoft Agent Framework: a middleware; an agent answers until right.

    host = Host(checks=[…], memory_key="triage")
    agent = Agent(client, middleware=[HeedfulAgentMiddleware(host)])

It is one middleware of the agent. For each run it adds a middleware for requests to the
model and one for calls of tools. What memory shows is in the user's part of a request;
neither the result nor the session's messages keep it, nor rejected answers.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from agent_framework import (
    AgentContext,
    AgentMiddleware,
    AgentResponse,
    AgentResponseUpdate,
    ChatContext,
    ChatMiddleware,
    FunctionInvocationContext,
    FunctionMiddleware,
    HistoryProvider,
    InMemoryHistoryProvider,
    Message,
    ResponseStream,
    UsageDetails,
    add_usage_details,
)
from agent_framework.exceptions import MiddlewareException, UserInputRequiredException

from heedful.integrations import PASSED_OUTCOMES, RESULT_KEY
from heedful.integrations.begin import begin_run
from heedful.integrations.host import (
    MAX_CALL_ADVICE_CHARS,
    Advice,
    Host,
    HostRun,
)
from heedful.loop.decide import Again, Verdict
from heedful.loop.record import Candidate, Usage
from heedful.traces.episode import Event

CallNext: TypeAlias = Callable[[], Awaitable[None]]
Response: TypeAlias = AgentResponse[Any]


class HeedfulAgentMiddleware(AgentMiddleware):
    """Check each answer, feed back what is wrong, and return the best in the end.

    Put it first, so that it judges what other middleware returns. The id of a run is
    that of its session, with the number of the user's turn from the second turn on; a
    run without a session gets a random id. With `hold_back`, a call of a tool that
    failed before does not run: the model reads what happened. When the model makes the
    same call again, it runs.
    """

    def __init__(self, host: Host, *, hold_back: bool = False) -> None:
        self.host = host
        self.hold_back = hold_back

    async def process(self, context: AgentContext, call_next: CallNext) -> None:
        """Run the agent until its answer passes or a rule stops the run."""
        run, advice = await self._begin(context)
        attempts = _AgentLoop(run, context, call_next)
        attempts.recalled = advice.text
        attempts.advise_calls(hold_back=self.hold_back)
        await attempts.begin()
        if context.stream:
            context.result = ResponseStream(
                attempts.stream(), finalizer=attempts.finalize
            )
            return

        while not attempts.ended:
            try:
                await call_next()
            except Exception as error:
                await attempts.fail(error)
                raise

            if not isinstance(context.result, AgentResponse):
                # Another middleware has answered in its own way.
                await attempts.run.learn(ends="partial")
                return
            await attempts.judge(context.result)

        context.result = attempts.result

    async def _begin(self, context: AgentContext) -> tuple[HostRun, Advice]:
        """Return the run of the user's turn, or after a pause the one that goes on.

        Also return what memory has for it.
        """
        prompts = [message for message in context.messages if _is_prompt(message)]
        task = prompts[-1].text if prompts else ""
        record: dict[str, Any] = {}
        if context.session is not None:
            record = context.session.state.setdefault(RESULT_KEY, {})

        if not prompts and record.get("open"):
            # The user has approved a call.
            run = self.host.run(record["open"], "")
            return run, await run.recall()

        id = context.session.session_id if context.session else secrets.token_hex(8)
        turn = record.get("turn", 0) + 1
        if turn > 1:
            id = f"{id}:{turn}"
        run, advice = await begin_run(self.host.run, id, task)
        record.update(turn=turn, open=run.id)
        return run, advice


class _AgentLoop:
    """The attempts of one run: their messages, their usage, and the best response."""

    def __init__(
        self, run: HostRun, context: AgentContext, call_next: CallNext
    ) -> None:
        self.run = run
        self.context = context
        self.call_next = call_next
        # What the user sent, and the calls of tools with their results so far.
        self.messages = list(context.messages)
        # The last rejected answer, and what is wrong with it.
        self.rejected: list[Message] = []
        # The messages of the session before the run, by their providers.
        self.past: dict[str, list[Message]] = {}

        # What memory has for the task.
        self.recalled = ""
        self.calls = 0
        self.usage: UsageDetails | None = None
        self.verdict: Verdict | None = None
        self.best: Response | None = None
        # The messages before the best answer.
        self.best_messages = self.messages
        self.result: Response | None = None
        self.ended = False

    def advise_calls(self, *, hold_back: bool) -> None:
        """Add the middleware of this run for requests and for calls of tools."""
        present = self.context.client_kwargs.get("middleware") or ()
        middleware = [_Calls(self.run, hold_back=hold_back), _Requests(self)]
        self.context.client_kwargs["middleware"] = [*middleware, *present]

    async def begin(self) -> None:
        """Go on after the last answer of an earlier process, if it was rejected."""
        session = self.context.session
        if session is not None:
            for source, state in session.state.items():
                if isinstance(state, dict):
                    self.past[source] = list(state.get("messages") or ())

        loop = self.run.loop
        if loop and loop.loop.attempts and isinstance(loop.verdict, Again):
            feedback = loop.verdict.feedback
            self.recalled = self.recalled.removesuffix(feedback).rstrip()
            self.reject(Candidate.of(loop.stored.values[-1]).text or "", feedback)

    async def stream(self) -> AsyncIterator[AgentResponseUpdate]:
        """Yield the updates of all attempts.

        An update without contents ends a rejected answer; its additional properties say
        what is wrong.
        """
        while not self.ended:
            try:
                await self.call_next()
                attempt: Any = self.context.result
                async with attempt:
                    async for update in attempt:
                        yield update
                    response = await attempt.get_final_response()
            except Exception as error:
                await self.fail(error)
                raise

            await self.judge(response)
            if not self.ended and isinstance(self.verdict, Again):
                yield AgentResponseUpdate(
                    contents=[],
                    role="user",
                    additional_properties={RESULT_KEY: self.verdict.feedback},
                )

    def finalize(self, updates: Sequence[AgentResponseUpdate]) -> Response:
        """Return the best response as that of the stream."""
        return self.result or AgentResponse.from_updates(updates)

    async def judge(self, response: Response) -> None:
        """Judge the response of an attempt; set the messages of the next, or end."""
        self.result = response
        self.usage = add_usage_details(self.usage, response.usage_details)
        if response.user_input_requests:
            # A call waits for the user: the run goes on with the approval.
            self.ended = True
            return

        output = _output_of(response)
        details = response.usage_details or {}
        spent = Usage(
            self.calls,
            details.get("input_token_count") or 0,
            completion_tokens=details.get("output_token_count") or 0,
        )
        self.calls = 0
        self.verdict = await self.run.verdict(output, spent, self.run.next)
        if self.verdict is None or self.run.best in (None, output):
            self.best = response
            self.best_messages = self.messages

        if isinstance(self.verdict, Again):
            self.messages = [*self.messages, *_work_of(response)]
            self.reject(_text_of(response), self.verdict.feedback)
        else:
            await self.end()

    def reject(self, answer: str, feedback: str) -> None:
        """Set the messages of the next attempt: with the last rejected answer only."""
        self.rejected = [Message("assistant", [answer]), Message("user", [feedback])]
        if self.is_kept_elsewhere():
            # The history has the rest, and keeps it.
            self.context.messages = self.rejected[1:]
            return

        self.context.messages = [*self.messages, *self.rejected]
        for provider in self.histories():
            self.set_history(provider, [])

    async def end(self) -> None:
        """Learn from the run; let its result and the session have the best answer."""
        verdict = self.verdict
        passed = verdict.passed if verdict and not isinstance(verdict, Again) else None
        await self.run.learn(ends=PASSED_OUTCOMES[passed])

        if self.best is None and self.run.best is not None:
            # An earlier process has made the best answer.
            best = Candidate.of(self.run.best).text or ""
            value = None if isinstance(self.run.best, str) else self.run.best
            self.best = AgentResponse(
                messages=[Message("assistant", [best])], value=value
            )
        self.result = self.best or self.result
        self.ended = True
        if self.result is None:
            return

        self.result.usage_details = self.usage
        vars(self.result)[RESULT_KEY] = verdict or self.run.unjudged
        session = self.context.session
        if session is not None:
            session.state.get(RESULT_KEY, {}).pop("open", None)
        if self.rejected and not self.is_kept_elsewhere():
            for provider in self.histories():
                inputs = self.best_messages if provider.store_inputs else []
                outputs = self.result.messages if provider.store_outputs else []
                self.set_history(provider, [*inputs, *outputs])

    async def fail(self, error: Exception) -> None:
        """Learn from a run that an exception has ended."""
        is_stopped = isinstance(error, MiddlewareException)
        await self.run.learn(ends="partial" if is_stopped else "error")

    def histories(self) -> list[InMemoryHistoryProvider]:
        """Return the providers that keep messages in the state of the session."""
        if self.context.session is None:
            return []
        providers = getattr(self.context.agent, "context_providers", ())
        return [
            provider
            for provider in providers
            if isinstance(provider, InMemoryHistoryProvider)
        ]

    def set_history(
        self, provider: InMemoryHistoryProvider, messages: Sequence[Message]
    ) -> None:
        """Let the session have its messages before the run, and then these."""
        session = self.context.session
        if session is not None:
            source = provider.source_id
            state = session.state.setdefault(source, {})
            state["messages"] = [*self.past.get(source, []), *messages]

    def is_kept_elsewhere(self) -> bool:
        """Return True if a service or another provider keeps the messages at once."""
        session = self.context.session
        if session is None:
            return False
        providers = getattr(self.context.agent, "context_providers", ())
        return bool(session.service_session_id) or any(
            isinstance(provider, HistoryProvider)
            and not isinstance(provider, InMemoryHistoryProvider)
            and provider.load_messages
            for provider in providers
        )

    def advised(self, messages: Sequence[Message]) -> list[Message]:
        """Return a request with what memory has, after the task and after calls."""
        room = MAX_CALL_ADVICE_CHARS - len(self.recalled)
        call_advice = self.run.advice(room)
        task = max(
            (
                number
                for number, message in enumerate(messages)
                if _is_prompt(message) and message.text == self.run.task
            ),
            default=-1,
        )

        request: list[Message] = []
        # Advice waits until the results of parallel calls, which stay together, end.
        waiting: list[str] = []
        for number, message in enumerate(messages):
            calls = [
                content.call_id
                for content in message.contents
                if content.type == "function_result"
            ]
            if not calls:
                request += [Message("user", [text]) for text in waiting if text]
                waiting = []

            request.append(message)
            waiting += [call_advice.get(str(call), "") for call in calls]
            if number == task:
                waiting.append(self.recalled)

        request += [Message("user", [text]) for text in waiting if text]
        return request


class _Requests(ChatMiddleware):
    """Show the model what memory has, and count the requests of an attempt."""

    def __init__(self, attempts: _AgentLoop) -> None:
        self.attempts = attempts

    async def process(self, context: ChatContext, call_next: CallNext) -> None:
        """Add what memory has to a request."""
        self.attempts.calls += 1
        context.messages = self.attempts.advised(context.messages)
        await call_next()


class _Calls(FunctionMiddleware):
    """Ask about each call before it runs; record its result, or ask about its error."""

    def __init__(self, run: HostRun, *, hold_back: bool) -> None:
        self.run = run
        self.hold_back = hold_back
        # Tool and arguments of the calls that did not run at first.
        self.held_back: set[tuple[str, str]] = set()

    async def process(
        self, context: FunctionInvocationContext, call_next: CallNext
    ) -> None:
        """Run a tool, unless its call is held back."""
        name = context.function.name
        call = str(context.metadata.get("call_id", ""))
        raw_arguments = context.arguments
        arguments = (
            raw_arguments
            if isinstance(raw_arguments, Mapping)
            else raw_arguments.model_dump()
        )
        advice = await self.run.before(name, arguments, call)

        request = (name, json.dumps(arguments, sort_keys=True, default=repr))
        if advice and self.hold_back and request not in self.held_back:
            # The advice is the result of the call, so it is not shown again after it.
            self.held_back.add(request)
            self.run.call_advice.pop(call, None)
            context.result = advice.text
            return

        try:
            await call_next()
        except (MiddlewareException, UserInputRequiredException):
            # None of these is a failure of the tool.
            raise
        except Exception as error:
            lessons = (await self.run.seen(name, str(error), call)).lessons
            is_known = lessons and lessons <= advice.lessons

            # The model sees a lesson once.
            if is_known and call in self.run.call_advice:
                self.run.call_advice[call].pop()
            raise

        output = _result_text(context.result)
        await self.run.learn(Event("tool_response", output, tool=name, call=call))


def _is_prompt(message: Message) -> bool:
    """Return True if a message is a text of the user."""
    return message.role == "user" and bool(message.text)


def _answer_start(response: Response) -> int:
    """Return the number of the first message after the last result of a tool."""
    results = [
        number
        for number, message in enumerate(response.messages)
        if any(content.type == "function_result" for content in message.contents)
    ]
    return max(results, default=-1) + 1


def _work_of(response: Response) -> list[Message]:
    """Return the calls of tools in a response, with their results."""
    return list(response.messages[: _answer_start(response)])


def _text_of(response: Response) -> str:
    """Return the text of the answer in a response."""
    answer = response.messages[_answer_start(response) :]
    return "".join(message.text for message in answer)


def _output_of(response: Response) -> Any:
    """Return the answer: the structured one, or its text."""
    try:
        value = response.value
    except ValueError:
        # The text does not match the schema: the checks judge it as it is.
        value = None
    return _text_of(response) if value is None else value


def _result_text(result: Any) -> str:
    """Return the text of what a tool returned."""
    contents = result if isinstance(result, list) else [result]
    return "\n".join(str(getattr(content, "text", content)) for content in contents)

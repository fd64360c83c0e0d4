"""heedful for pydantic-ai: a capability that lets an agent answer until it is right.

    agent = Agent(model, capabilities=[Heedful(Host(checks=[…], memory_key="triage"))])

What memory shows is in the user's part of a request; the messages of the run keep
neither that nor rejected answers. The id of a run is its `run_id`: a run with the
`run_id` of an earlier one, which may have been killed, goes on with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import (
    CallToolsNode,
    DeferredToolRequests,
    ModelRetry,
    RunContext,
    exceptions,
)
from pydantic_ai.capabilities import AbstractCapability, WrapRunHandler
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.output import OutputContext
from pydantic_ai.result import FinalResult
from pydantic_ai.run import AgentRunResult
from pydantic_graph import End

from heedful.integrations.attempts import Attempts, Role, checked_host
from heedful.integrations.host import Host
from heedful.integrations.results import RESULT_KEY
from heedful.loop.record import Usage


@dataclass
class Heedful(AbstractCapability[Any]):
    """Check each output, feed back what is wrong, and return the best in the end.

    Feedback is a `ModelRetry`. Where the retries of the agent are used up, it is a
    message of its own, so the policy of `host` decides when to stop. `run_stream`
    cannot ask again: there, an output is checked and returned. With `hold_back`, a call
    that failed before does not run: the model reads what happened. When the model makes
    the same call again, it runs.
    """

    host: Host
    hold_back: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        checked_host(self.host)

    async def for_run(self, ctx: RunContext[Any]) -> "Heedful":
        """Return the capability of one run."""
        id = ctx.run_id or ""
        task = _text_of(ctx.prompt)
        past = ctx.messages

        if ctx.prompt is None and past and past[-1].run_id:
            # The run goes on after a pause, such as for an approval.
            id = past[-1].run_id
        elif ctx.prompt is None and past:
            prompts = [
                part for part in past[-1].parts if isinstance(part, UserPromptPart)
            ]
            task = "\n".join(_text_of(part.content) for part in prompts)

        run = self.host.run(id, task)
        attempts = Attempts(run=run, hold_back=self.hold_back)
        return _Run(host=self.host, attempts=attempts, id=self.id)


@dataclass(kw_only=True)
class _Run(Heedful):
    """The capability in one run.

    `feedback` has the texts about rejected answers, `answers` the ids of rejected calls
    of an output tool. `in_node` is True while a node of the agent's graph runs,
    `is_resumed` until an answer after those of an earlier process is rejected.
    `closing` is the text that ends a run that repeats a call.
    """

    attempts: Attempts
    feedback: set[str] = field(default_factory=set)
    answers: set[str] = field(default_factory=set)
    in_node: bool = False
    is_resumed: bool = False
    judged: bool = False
    closing: str = ""

    async def for_run(self, ctx: RunContext[Any]) -> Heedful:
        return self

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        """Run the agent, and learn from the run.

        If an earlier process ended the loop, return its best answer. If that process
        was interrupted, go on after its last answer.
        """
        attempts = self.attempts
        await attempts.begin()
        attempts.counted = _usage_of(ctx)
        if attempts.known_answer is not None:
            result = AgentRunResult(self.best_output(ctx))
            vars(result)[RESULT_KEY] = attempts.verdict
            return result

        if attempts.feedback:
            self.feedback.add(attempts.feedback)
            # Without a prompt, the messages have the rejected answer.
            self.is_resumed = ctx.prompt is not None

        try:
            result = await handler()
        except Exception:
            await attempts.end("error")
            raise

        if not isinstance(result.output, DeferredToolRequests):
            result = await self.end(result)
        return result

    async def end(self, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        """Learn from the run; let its messages end with the best answer."""
        attempts = self.attempts
        vars(result)[RESULT_KEY] = await attempts.end()
        messages = self.without_rejected(result.all_messages())
        best = attempts.run.best
        last = next(
            (m for m in reversed(messages) if isinstance(m, ModelResponse)), None
        )
        if isinstance(best, str) and last and not last.tool_calls and last.text != best:
            del messages[messages.index(last) :]
            messages.append(_message("assistant", best))

        result.all_messages()[:] = messages
        return result

    def best_output(self, ctx: RunContext[Any]) -> Any:
        """Return the best output in the type of the agent's output."""
        return self.attempts.best_as(getattr(ctx.agent, "output_type", None))

    async def wrap_node_run(
        self, ctx: RunContext[Any], *, node: Any, handler: Any
    ) -> Any:
        """Run a node of the agent's graph, and note that it runs."""
        # `run_stream` reads its last output outside a node.
        self.in_node = True
        try:
            result = await handler(node)
        finally:
            self.in_node = False

        # A text is no answer of an agent whose output is an object.
        if self.closing and not isinstance(result, End | CallToolsNode):
            return End(FinalResult(self.closing))
        return result

    async def on_node_run_error(
        self, ctx: RunContext[Any], *, node: Any, error: Exception
    ) -> End[FinalResult[Any]]:
        """Return the best answer if the agent's own retries or limits end first."""
        ends_first = isinstance(error, exceptions.UsageLimitExceeded)
        if ends_first or type(error) is exceptions.UnexpectedModelBehavior:
            self.closing = self.closing or self.attempts.closing(at_limit=True)
        if self.closing:
            best = self.best_output(ctx)
            return End(FinalResult(self.closing if best is None else best))
        # The subclasses of this error say that the provider refused.
        retries_ended = type(error) is exceptions.UnexpectedModelBehavior
        if not retries_ended or self.attempts.run.best is None:
            raise error
        return End(FinalResult(self.best_output(ctx)))

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Show the model what memory has, and only the last rejected answer."""
        self.closing = self.attempts.closing()
        if self.closing:
            answer = ModelResponse([TextPart(self.closing)])
            raise exceptions.SkipModelRequest(answer)

        messages = self.without_rejected(request_context.messages, keep=1)
        return replace(request_context, messages=self.request(messages, ctx.run_id))

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: Any, response: ModelResponse
    ) -> ModelResponse:
        """Keep the last text of the model."""
        self.attempts.hear(response.text)
        return response

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: Any,
        args: Any,
        handler: Any,
    ) -> Any:
        """Run a tool and record its result; hold back a call that failed before.

        Only with `hold_back`, and only once: the same call then runs.
        """
        # None of these is a failure of the tool.
        others = (
            exceptions.SkipToolExecution,
            exceptions.CallDeferred,
            exceptions.ApprovalRequired,
        )
        return await self.attempts.watch(
            call.tool_name,
            args,
            call.tool_call_id,
            work=lambda: handler(args),
            others=others,
        )

    async def after_output_process(
        self, ctx: RunContext[Any], *, output_context: OutputContext, output: Any
    ) -> Any:
        """Judge an output; return it, or the best one, or ask the model again.

        Raises ModelRetry with the feedback, as long as the agent has retries left.
        """
        # A stream gives its last output more than once.
        repeats = self.judged and not self.in_node
        if repeats or ctx.partial_output or isinstance(output, DeferredToolRequests):
            return output

        self.judged = True
        self.attempts.count(_usage_of(ctx))
        is_again = await self.attempts.judge(output)
        if self.attempts.has_better:
            return self.attempts.best_as(output_context.output_type)
        if not is_again or not self.in_node:
            return output

        feedback = self.attempts.feedback
        self.is_resumed = False
        self.feedback.add(feedback)
        if output_context.tool_call is not None:
            self.answers.add(output_context.tool_call.tool_call_id)

        # Where the retries of the agent are used up, the feedback is a message.
        if ctx.retry < ctx.max_retries:
            raise ModelRetry(feedback)
        ctx.enqueue(feedback, priority="when_idle")
        return output

    def request(
        self, messages: Sequence[ModelMessage], run_id: str | None
    ) -> list[ModelMessage]:
        """Return the messages with what memory has, after the prompt and calls."""
        # The first prompt of the run, or the last one of all.
        prompts = [
            number
            for number, message in enumerate(messages)
            if any(isinstance(part, UserPromptPart) for part in message.parts)
        ]
        of_run = [number for number in prompts if messages[number].run_id == run_id]
        prompt = of_run[0] if of_run else max(prompts, default=-1)
        last = prompt if self.is_resumed else -2

        woven = self.attempts.advised(
            messages,
            task=prompt,
            last=last,
            calls=_result_calls,
            message=_message,
        )
        request: list[ModelMessage] = []
        for message in woven:
            before = request[-1] if request else None
            if isinstance(before, ModelRequest) and isinstance(message, ModelRequest):
                request[-1] = replace(before, parts=[*before.parts, *message.parts])
            else:
                request.append(message)
        return request

    def without_rejected(
        self, messages: Sequence[ModelMessage], keep: int = 0
    ) -> list[ModelMessage]:
        """Return the messages without rejected answers and the feedback on them.

        The last `keep` rejected answers stay, and the calls of tools with their
        results.
        """
        places = [
            number
            for number, message in enumerate(messages)
            if any(map(self.is_feedback, message.parts))
        ]
        end = max(places[: len(places) - keep], default=-1)
        accepted = [
            self._accepted(message, is_rejected=number + 1 in places)
            for number, message in enumerate(messages[: end + 1])
        ]
        accepted += messages[end + 1 :]
        return [message for message in accepted if message.parts]

    def _accepted(self, message: Any, *, is_rejected: bool) -> ModelMessage:
        """Return a message without rejected calls of an output tool, and feedback.

        A rejected answer without other calls does no work that must stay.
        """
        parts = [
            part
            for part in message.parts
            if getattr(part, "tool_call_id", "") not in self.answers
            and not self.is_feedback(part)
        ]
        if is_rejected and not any(isinstance(part, ToolCallPart) for part in parts):
            parts = []
        accepted: ModelMessage = replace(message, parts=parts)
        return accepted

    def is_feedback(self, part: Any) -> bool:
        """Return True if a part of a message is feedback on a rejected answer."""
        content = getattr(part, "content", None)
        if isinstance(content, list | tuple) and content:
            content = content[0]
        return isinstance(content, str) and content in self.feedback


def _text_of(prompt: Any) -> str:
    """Return the text of a prompt that may have images and other parts."""
    parts = [prompt] if isinstance(prompt, str) else list(prompt or ())
    return "\n".join(part for part in parts if isinstance(part, str))


def _message(role: Role, text: str) -> ModelMessage:
    """Return a message of a text."""
    if role == "user":
        return ModelRequest([UserPromptPart(text)])
    return ModelResponse([TextPart(text)])


def _result_calls(message: ModelMessage) -> list[str]:
    """Return the ids of the calls whose results are in a message."""
    return [
        part.tool_call_id
        for part in message.parts
        if isinstance(part, ToolReturnPart | RetryPromptPart)
    ]


def _usage_of(ctx: RunContext[Any]) -> Usage:
    """Return the usage of the run so far."""
    usage = ctx.usage
    return Usage(
        usage.requests,
        usage.input_tokens,
        completion_tokens=usage.output_tokens,
        cost=float(usage.cost or 0),
    )

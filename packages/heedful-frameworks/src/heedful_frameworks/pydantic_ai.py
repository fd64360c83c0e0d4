"""heedful for pydantic-ai: a capability that lets an agent answer until it is right.

    agent = Agent(model, capabilities=[Heedful(Host(checks=[…], memory_key="triage"))])

What memory shows is in the user's part of a request; the messages of the run keep
neither that nor rejected answers. The id of a run is its `run_id`: a run with the
`run_id` of an earlier one, which may have been killed, goes on with it.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import (
    CallToolsNode,
    DeferredToolRequests,
    RunContext,
    exceptions,
)
from pydantic_ai.capabilities import AbstractCapability
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

from heedful.integrations.attempts import (
    Attempts,
    Role,
    checked_host,
    place_of,
    text_in,
)
from heedful.integrations.host import Host
from heedful.integrations.results import RESULT_KEY
from heedful.loop.ladder import COST_UNITS
from heedful.loop.record import Usage


@dataclass
class Heedful(AbstractCapability[Any]):
    """Check each output, feed back what is wrong, and return the best in the end.

    Feedback is a message of its own, so the policy of `host` decides when to stop, and
    not the retries of the agent. `run_stream` cannot ask again: there, an output is
    checked and returned. With `hold_back`, a call that failed before does not run: the
    model reads what happened. When the model makes the same call again, it runs.
    """

    host: Host
    hold_back: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        checked_host(self.host, "pydantic-ai", COST_UNITS)

    async def for_run(self, ctx: RunContext[Any]) -> "Heedful":
        """Return the capability of one run."""
        id = ctx.run_id or ""
        task = text_in(ctx.prompt)
        if ctx.prompt is None and ctx.messages:
            # The prompt is the last message, or the run goes on after a pause.
            last = ctx.messages[-1]
            id = last.run_id or id
            task = _prompt_of(last)

        run = self.host.run(id, task)
        attempts = Attempts(run=run, hold_back=self.hold_back)
        return _Run(host=self.host, attempts=attempts, id=self.id)


@dataclass(kw_only=True)
class _Run(Heedful):
    """The capability in one run.

    `feedback` is on the last rejected answer, and `rejected_call` the id of the call by
    which that was given, if any. `in_node` is True while a node of the agent's graph
    runs. `closing` is the text that ends a run that repeats a call, or that an earlier
    process ended.
    """

    attempts: Attempts
    feedback: UserPromptPart | None = None
    rejected_call: str = ""
    in_node: bool = False
    judged: bool = False
    closing: str = ""

    async def before_run(self, ctx: RunContext[Any]) -> None:
        """Recall what memory has for the task."""
        await self.attempts.begin()
        self.attempts.counted = _usage_of(ctx)

    async def on_run_error(self, ctx: RunContext[Any], *, error: BaseException) -> Any:
        """Learn from a run that fails."""
        if isinstance(error, Exception):
            await self.attempts.end("error")
        raise error

    async def after_run(
        self, ctx: RunContext[Any], *, result: AgentRunResult[Any]
    ) -> AgentRunResult[Any]:
        """Learn from the run; let its messages end with the best answer."""
        if isinstance(result.output, DeferredToolRequests):
            return result

        vars(result)[RESULT_KEY] = await self.attempts.end()
        messages = result.all_messages()
        self.drop_rejected(messages)
        best = self.attempts.run.best
        last = next(
            (m for m in reversed(messages) if isinstance(m, ModelResponse)), None
        )
        if isinstance(best, str) and last and not last.tool_calls and last.text != best:
            del messages[messages.index(last) :]
            messages.append(_message("assistant", best))
        return result

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
            return self.final_node(ctx)
        return result

    async def on_node_run_error(
        self, ctx: RunContext[Any], *, node: Any, error: Exception
    ) -> End[FinalResult[Any]]:
        """Return the best answer if the agent's own retries or limits end first."""
        # The subclasses of this error say that the provider refused.
        retries_ended = type(error) is exceptions.UnexpectedModelBehavior
        if retries_ended or isinstance(error, exceptions.UsageLimitExceeded):
            self.closing = self.closing or self.attempts.closing(at_limit=True)

        if self.closing or (retries_ended and self.attempts.run.best is not None):
            return self.final_node(ctx)
        raise error

    def final_node(self, ctx: RunContext[Any]) -> End[FinalResult[Any]]:
        """Return the end of a run: the best answer, else why a call is not repeated."""
        best = self.attempts.best_as(getattr(ctx.agent, "output_type", None))
        return End(FinalResult(self.closing if best is None else best))

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Show the model what memory has, and only the last rejected answer."""
        self.attempts.count(_usage_of(ctx))
        self.closing = self.attempts.early_answer(
            message.text or ""
            for message in ctx.messages
            if isinstance(message, ModelResponse) and message.run_id == ctx.run_id
        )
        if self.closing:
            raise exceptions.SkipModelRequest(ModelResponse([TextPart(self.closing)]))

        self.drop_rejected(ctx.messages)
        messages = list(request_context.messages)
        self.drop_rejected(messages)
        is_task = [
            _prompt_of(message) == self.attempts.run.task for message in messages
        ]
        messages = self.attempts.advised(
            messages,
            task=place_of(is_task, sought=True),
            calls=_result_calls,
            message=_message,
        )
        return replace(request_context, messages=messages)

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
        """Judge an output; return it or the best one, or ask the model again."""
        if ctx.partial_output or isinstance(output, DeferredToolRequests):
            return output
        if self.judged and not self.in_node:
            # A stream gives its last output more than once.
            return output

        self.judged = True
        self.attempts.count(_usage_of(ctx))
        is_again = await self.attempts.judge(output)
        if self.attempts.has_better:
            return self.attempts.best_as(output_context.output_type)
        if not is_again or not self.in_node:
            return output

        call = output_context.tool_call
        self.rejected_call = call.tool_call_id if call else ""
        self.feedback = UserPromptPart(self.attempts.feedback)
        ctx.enqueue(self.feedback, priority="when_idle")
        return output

    def drop_rejected(self, messages: list[ModelMessage]) -> None:
        """Remove the last rejected answer, and the feedback on it, from messages.

        Tools that were called beside the answer stay.
        """
        request: list[ModelMessage] = []
        for message in messages:
            parts: Any = [
                part
                for part in message.parts
                if part != self.feedback
                and getattr(part, "tool_call_id", None) != self.rejected_call
            ]
            last = request[-1] if request else None
            is_answer = isinstance(last, ModelResponse) and not last.tool_calls
            if is_answer and self.feedback in message.parts:
                request.pop()
            if len(parts) == len(message.parts):
                request.append(message)
            elif parts:
                request.append(replace(message, parts=parts))
        messages[:] = request


def _prompt_of(message: ModelMessage) -> str:
    """Return the text of the user in a message."""
    return "\n".join(
        text_in(part.content)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    )


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

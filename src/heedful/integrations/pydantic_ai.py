"""heedful for pydantic-ai: a capability that lets an agent answer until its output is
right.

    agent = Agent(model, capabilities=[Heedful(Host(checks=[…], memory_key="triage"))])

What memory tells stands in the user's part of a request; the messages of the run keep
neither that nor rejected answers. The id of a run is its `run_id`: a run with the
`run_id` of an earlier one, which may have been killed, goes on with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import DeferredToolRequests, ModelRetry, RunContext, exceptions
from pydantic_ai.capabilities import AbstractCapability, WrapRunHandler
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.output import OutputContext
from pydantic_ai.result import FinalResult
from pydantic_ai.run import AgentRunResult
from pydantic_graph import End

from heedful.integrations import PASSED_OUTCOMES, RESULT_KEY
from heedful.integrations.host import MAX_CALL_ADVICE_CHARS, Host, HostRun
from heedful.loop.decide import Again, Done, Verdict
from heedful.loop.record import Candidate, Usage
from heedful.traces.episode import Event


@dataclass
class Heedful(AbstractCapability[Any]):
    """Check each output, feed back what is wrong, and return the best output when a
    rule stops.

    Feedback is a `ModelRetry`. Where the retries of the agent are used up, it is a
    message of its own, so the policy of `host` decides when to stop. `run_stream`
    cannot ask again: there, an output is checked and returned. With `hold_back`, a call
    that failed before does not run: the model is told what happened. When the model
    makes the same call again, it runs.
    """

    host: Host
    hold_back: bool = field(default=False, kw_only=True)

    async def for_run(self, ctx: RunContext[Any]) -> Heedful:
        """Return the capability of one run."""
        id = ctx.run_id or ""
        task = _task(ctx.prompt)
        past = ctx.messages
        if ctx.prompt is None and past and past[-1].run_id:
            id = past[-1].run_id  # goes on after a pause, such as for an approval
        elif ctx.prompt is None and past:
            asked = [
                part for part in past[-1].parts if isinstance(part, UserPromptPart)
            ]
            task = "\n".join(_task(part.content) for part in asked)
        run = self.host.run(id, task)
        return _Run(host=self.host, hold_back=self.hold_back, run=run, id=self.id)


@dataclass(kw_only=True)
class _Run(Heedful):
    """The capability in one run: what it is told, what was rejected, and the best
    answer.
    """

    run: HostRun
    recalled: str = ""
    resumed: str = (
        ""  # the last answer of an earlier process, and what is wrong with it
    )
    held: set[str] = field(default_factory=set)
    feedback: set[str] = field(default_factory=set)
    answers: set[str] = field(
        default_factory=set
    )  # the ids of rejected calls of an output tool
    counted: tuple[Any, ...] = ()
    verdict: Verdict | None = None
    best: ModelMessage | None = None
    in_node: bool = False
    judged: bool = False

    async def for_run(self, ctx: RunContext[Any]) -> Heedful:
        return self

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        self.counted, self.recalled = _counts(ctx), (await self.run.recall()).text
        loop = self.run.loop
        if (
            loop and loop.ended and self.run.best is not None
        ):  # the answer of an earlier process
            result = AgentRunResult(
                self.run.best_as(getattr(ctx.agent, "output_type", None))
            )
            vars(result)[RESULT_KEY] = loop.verdict
            return result
        if loop and isinstance(loop.verdict, Again) and loop.loop.attempts:
            feedback = loop.verdict.feedback
            answer = Candidate.of(loop.stored.values[-1]).text
            self.recalled = self.recalled.removesuffix(feedback).rstrip()
            self.feedback.add(feedback)
            if ctx.prompt is not None:  # otherwise the messages have it
                self.resumed = f"An earlier attempt answered:\n{answer}\n{feedback}"
        try:
            result = await handler()
        except Exception:
            await self.run.learn(ends="error")
            raise
        if isinstance(result.output, DeferredToolRequests):
            return result  # paused
        # Leave out rejected answers for good; let the messages end with the best
        # answer.
        kept = self.without_rejected(result.all_messages())
        if isinstance(self.best, ModelResponse) and not _has(self.best, ToolCallPart):
            answers = [
                n for n, one in enumerate(kept) if isinstance(one, ModelResponse)
            ]
            kept = [*kept[: answers[-1] if answers else 0], self.best]
        result.all_messages()[:] = kept
        verdict: Any = self.verdict
        if (
            isinstance(verdict, Again) and self.run.loop
        ):  # the retries of the agent ended first
            verdict = Done(self.run.loop.loop.best, passed=False)
        await self.run.learn(ends=PASSED_OUTCOMES[verdict and verdict.passed])
        vars(result)[RESULT_KEY] = verdict or self.run.unjudged
        return result

    async def wrap_node_run(
        self, ctx: RunContext[Any], *, node: Any, handler: Any
    ) -> Any:
        self.in_node = True  # `run_stream` reads its last output outside a node
        try:
            return await handler(node)
        finally:
            self.in_node = False

    async def on_node_run_error(
        self, ctx: RunContext[Any], *, node: Any, error: Exception
    ) -> End[FinalResult[Any]]:
        """Return the best answer if the agent's own retries end first."""
        # The subclasses of this error say that the provider refused.
        if (
            type(error) is not exceptions.UnexpectedModelBehavior
            or self.run.best is None
        ):
            raise error
        return End(
            FinalResult(self.run.best_as(getattr(ctx.agent, "output_type", None)))
        )

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        messages = self.without_rejected(request_context.messages, keep=1)
        return replace(request_context, messages=self.advised(messages, ctx.run_id))

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: Any,
        args: Any,
        handler: Any,
    ) -> Any:
        id = call.tool_call_id
        name = call.tool_name
        advice = await self.run.before(name, args, id)
        asked = f"{name} {call.args_as_json_str()}"
        if advice and self.hold_back and asked not in self.held:
            self.held.add(asked)
            self.run.call_advice.pop(id)  # it is the result of the call
            raise ModelRetry(advice.text)
        try:
            result = await handler(args)
        except (
            exceptions.SkipToolExecution,
            exceptions.CallDeferred,
            exceptions.ApprovalRequired,
        ):
            raise
        except Exception as error:
            again = (await self.run.seen(name, str(error), id)).lessons
            if again and again <= advice.lessons and id in self.run.call_advice:
                self.run.call_advice[id].pop()  # the model is told once
            raise
        await self.run.learn(Event("tool_response", str(result), tool=name, call=id))
        return result

    async def after_output_process(
        self, ctx: RunContext[Any], *, output_context: OutputContext, output: Any
    ) -> Any:
        again = (
            self.judged and not self.in_node
        )  # a stream gives its last output more than once
        if again or ctx.partial_output or isinstance(output, DeferredToolRequests):
            return output
        self.judged = True
        now = _counts(ctx)
        spent = Usage(*(new - old for new, old in zip(now, self.counted, strict=True)))
        self.verdict = await self.run.verdict(output, spent, self.run.next)
        self.counted = now
        if self.verdict is None or self.run.best is output:
            self.best = ctx.messages[-1]
        if isinstance(self.verdict, Done) and self.run.best is not None:
            return self.run.best_as(output_context.output_type)
        if not isinstance(self.verdict, Again) or not self.in_node:
            return output
        text = self.verdict.feedback
        self.resumed = ""
        self.feedback.add(text)
        if output_context.tool_call is not None:
            self.answers.add(output_context.tool_call.tool_call_id)
        if ctx.retry < ctx.max_retries:
            raise ModelRetry(text)
        ctx.enqueue(text, priority="when_idle")
        return output

    def advised(
        self, messages: Sequence[ModelMessage], run_id: str | None
    ) -> list[ModelMessage]:
        """Return the messages with what memory tells: after the prompt, and after
        calls.
        """
        wanted = self.run.advice(
            MAX_CALL_ADVICE_CHARS - len(self.recalled) - len(self.resumed)
        )
        asks = [n for n, one in enumerate(messages) if _has(one, UserPromptPart)]
        own = [n for n in asks if messages[n].run_id == run_id]
        first = own[0] if own else asks[-1] if asks else -1
        made = list(messages)
        for n, message in enumerate(messages):
            if not isinstance(message, ModelRequest):
                continue
            told = [self.recalled, self.resumed] if n == first else []
            parts = [one for one in message.parts if isinstance(one, ToolReturnPart)]
            told += [wanted.get(one.tool_call_id, "") for one in parts]
            added = [UserPromptPart(text) for text in told if text]
            made[n] = (
                replace(message, parts=[*message.parts, *added]) if added else message
            )
        return made

    def without_rejected(
        self, messages: Sequence[ModelMessage], keep: int = 0
    ) -> list[ModelMessage]:
        """Return the messages without rejected answers and their feedback, but the last
        `keep`.

        The calls of tools and their results stay.
        """
        made = list(messages)
        marks = [
            n for n, one in enumerate(made) if any(map(self.is_feedback, one.parts))
        ]
        for mark in marks[: len(marks) - keep]:
            at = max(
                (n for n in range(mark) if isinstance(made[n], ModelResponse)),
                default=mark,
            )
            calls = [one for one in made[at].parts if isinstance(one, ToolCallPart)]
            gone = {one.tool_call_id for one in calls} & self.answers
            work = len(calls) > len(gone)
            for n in range(at, mark + 1):
                parts = list[Any](made[n].parts if work or n > at else ())
                parts = [
                    one for one in parts if getattr(one, "tool_call_id", "") not in gone
                ]
                parts = [one for one in parts if not self.is_feedback(one)]
                made[n] = replace(made[n], parts=parts)  # type: ignore[arg-type]
        return [one for one in made if one.parts]

    def is_feedback(self, part: Any) -> bool:
        content = getattr(part, "content", None)
        content = (
            content[0] if isinstance(content, list | tuple) and content else content
        )
        return isinstance(content, str) and content in self.feedback


def _task(prompt: Any) -> str:
    """Return the text of a prompt that may have images and other parts."""
    parts = [prompt] if isinstance(prompt, str) else list(prompt or ())
    return "\n".join(one for one in parts if isinstance(one, str))


def _counts(ctx: RunContext[Any]) -> tuple[Any, ...]:
    usage = ctx.usage
    return (
        usage.requests,
        usage.input_tokens,
        usage.output_tokens,
        float(usage.cost or 0),
    )


def _has(message: ModelMessage, kind: type) -> bool:
    return any(isinstance(part, kind) for part in message.parts)

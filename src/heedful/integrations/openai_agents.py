"""heedful for OpenAI Agents (the package `openai-agents`): run an agent until its
answer is right.

`run` takes the place of `Runner.run`, `run_sync` of `Runner.run_sync`, and
`run_streamed` of `Runner.run_streamed`. Each attempt is a run of the SDK. The hooks are
those of a run, so agents, tools and handoffs stay as they are:
`call_model_input_filter` adds what memory tells, `on_tool_start` asks about a call
before it runs, `tool_error_formatter` about its error.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import agents
from agents.result import RunResultBase
from agents.run import CallModelData, ModelInputData, ToolErrorFormatterArgs
from agents.stream_events import StreamEvent
from agents.tool_context import ToolContext

from heedful.drive import portal
from heedful.integrations import PASSED_OUTCOMES, RESULT_KEY
from heedful.integrations.host import MAX_CALL_ADVICE_CHARS, Advice, Host, HostRun
from heedful.loop.decide import Again, Done
from heedful.loop.record import FEEDBACK_HEADING, Candidate, Usage
from heedful.traces.episode import Event

Items: TypeAlias = list[Any]
Input: TypeAlias = str | Items | agents.RunState[Any]
Agent: TypeAlias = agents.Agent[Any]
_ANSWER_ITEM_TYPES = {"assistant", "reasoning"}


async def run(
    agent: Agent, input: Input, *, host: Host, id: str = "", **options: Any
) -> agents.RunResult:
    """Run an agent until its final output passes the checks of `host`, or a rule stops
    it.

    Returns the result with the best output; its usage is that of all attempts. Takes
    the `options` of `Runner.run`. With the `id` of an earlier call, which may have been
    killed, the run goes on; by default, a `session` gives the id. A session gets the
    task and the answer that is returned, not rejected answers. A result that waits for
    an approval is returned unjudged; pass its state as `input`, with the same id.
    Raises what `Runner.run` raises.
    """
    attempts = await _begin(agent, given=input, host=host, id=id, options=options)
    result = await attempts.known()
    while result is None:
        try:
            made = await agents.Runner.run(
                attempts.agent, attempts.input, **attempts.options
            )
        except Exception as error:
            await attempts.fail(error)
            raise
        result = await attempts.judge(made)
    return cast("agents.RunResult", result)


def run_sync(
    agent: Agent, input: Input, *, host: Host, id: str = "", **options: Any
) -> agents.RunResult:
    """Do what `run` does, for callers without an event loop. Raises UsageError inside
    one.
    """
    return portal.run_sync(run(agent, input, host=host, id=id, **options))


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The event after an attempt: its output, and what is wrong with it; at last, the
    result.
    """

    output: Any
    feedback: str = ""
    result: RunResultBase | None = None
    type: str = "heedful_judged"


async def run_streamed(
    agent: Agent, input: Input, *, host: Host, id: str = "", **options: Any
) -> AsyncIterator[StreamEvent | Judged]:
    """Do what `run` does, and yield the events of all attempts; `Judged` ends each
    attempt.

    The last event is the `Judged` with the result. Takes the options of
    `Runner.run_streamed`.
    """
    attempts = await _begin(agent, given=input, host=host, id=id, options=options)
    result = await attempts.known()
    while result is None:
        made = agents.Runner.run_streamed(
            attempts.agent, attempts.input, **attempts.options
        )
        try:
            async for event in made.stream_events():
                yield event
        except Exception as error:
            await attempts.fail(error)
            raise
        finally:
            if not made.is_complete:  # nobody reads on
                made.cancel()
        output = made.final_output
        if (result := await attempts.judge(made)) is None:
            yield Judged(output=output, feedback=attempts.feedback)
    yield Judged(output=result.final_output, result=result)


@agents.tool_input_guardrail(name="heedful_hold_back")
async def hold_back(
    data: agents.ToolInputGuardrailData,
) -> agents.ToolGuardrailFunctionOutput:
    """A guardrail for tools that are expensive or cannot be undone.

    A call that failed before does not run: the model is told what happened. When the
    model makes the same call again, it runs.
    """
    context = data.context
    config = data.context.run_config
    attempts: Any = getattr(config and config.call_model_input_filter, "__self__", None)
    call = context.tool_name, context.tool_arguments
    asks = isinstance(attempts, _Attempts) and call not in attempts.held
    if not (asks and (advice := await attempts.ask(context))):
        return agents.ToolGuardrailFunctionOutput.allow()
    attempts.held.add(call)
    del attempts.calls[context.tool_call_id]
    attempts.run.call_advice.pop(context.tool_call_id)  # it is the result of the call
    return agents.ToolGuardrailFunctionOutput.reject_content(advice.text)


async def _begin(
    agent: Agent, given: Input, host: Host, id: str, options: dict[str, Any]
) -> _Attempts:
    config = options.get("run_config") or agents.RunConfig()
    session = options.get("session")
    config = agents.RunConfig(**config) if isinstance(config, dict) else config
    state = given if isinstance(given, agents.RunState) else None
    asked: Any = state.to_json()["original_input"] if state else given
    own: Items = [_message("user", asked)] if isinstance(asked, str) else list(asked)
    rejects = any(
        str(item.get("content", "")).startswith(FEEDBACK_HEADING) for item in own[-1:]
    )
    own, pair = (own[:-2], own[-2:]) if rejects else (own, [])
    anchor: Any = next(
        (item for item in reversed(own) if item.get("role") == "user"), {}
    )
    # A state may hold only what the server does not have; the stored run has the task.
    task = "" if state and id else _text(anchor.get("content", ""))
    base = own
    settings = config.session_settings
    join = config.session_input_callback
    past = Items()
    derived = bool(session) and not id
    if session:
        limit = {"limit": settings.limit} if settings and settings.limit else {}
        past = list(await session.get_items(**limit))
        id = id or f"{session.session_id}-{len(past)}-{Candidate.of(task).digest}"
    if past and not state:
        joined = join(past, own) if join else past + own
        base = await joined if inspect.isawaitable(joined) else joined
    attempts = _Attempts(
        agent=agent, run=host.run(id, task), config=config, options=options
    )
    attempts.first = len(past) if state else len(base) - len(own)
    attempts.anchor = anchor
    attempts.pair = pair
    attempts.sent = base + pair
    attempts.input = state or base
    attempts.kept = base
    attempts.derived = derived
    attempts.recalled = (await attempts.run.recall()).text
    loop = attempts.run.loop
    if not state and loop and loop.loop.attempts and isinstance(loop.verdict, Again):
        attempts.reject(base, loop.stored.values[-1], loop.verdict.feedback)
    return attempts


class _Attempts:
    """The attempts of one run: their input, what they are told, and the best result."""

    def __init__(
        self,
        agent: Agent,
        run: HostRun,
        config: agents.RunConfig,
        options: dict[str, Any],
    ) -> None:
        self.agent = agent
        self.run = run
        self.config = config
        self.input: Input = []
        self.anchor: Any = None  # the message with the task
        self.pair: Items = []  # the last answer, and what is wrong with it
        self.sent = self.kept = (
            Items()
        )  # what the SDK got; task, work and answer of the best
        self.first = 0  # the number of items that are older than the run
        self.derived = False  # the id comes from a session, which has no answer yet
        self.recalled = self.feedback = ""
        self.calls: dict[
            str, tuple[str, Advice]
        ] = {}  # tool and advice of calls without a result
        self.held: set[tuple[str, str]] = set()
        self.usage = agents.Usage()
        self.best = cast("RunResultBase | None", None)
        self.session = options.get("session")
        self.options = {name: options[name] for name in options if name != "session"}
        self.options["hooks"] = _Hooks(self, options.get("hooks"))
        ours: Any = {
            "call_model_input_filter": self.add_advice,
            "tool_error_formatter": self.seen,
        }
        self.options["run_config"] = replace(config, **ours)

    async def add_advice(self, data: CallModelData[Any]) -> ModelInputData:
        """Add what memory tells to the input of the model: after the task, and after
        calls.

        An input without the task or the call has no place for it: the server holds the
        rest, or it is the input of another agent.
        """
        user = self.config.call_model_input_filter
        filtered = user(data) if user else data.model_data
        model_data = await filtered if inspect.isawaitable(filtered) else filtered
        items = model_data.input
        made = Items()
        told = self.run.advice(MAX_CALL_ADVICE_CHARS - len(self.recalled))
        last = max(
            (n for n, item in enumerate(items) if item == self.anchor), default=-1
        )
        waiting: list[str] = []  # the results of parallel calls stay together
        for n, item in enumerate(items):
            is_result = item.get("type") == "function_call_output"
            if not is_result:
                made += [_message("user", text) for text in waiting if text]
                waiting = []
            made.append(item)
            if is_result:
                waiting.append(told.get(str(item.get("call_id")), ""))
            if n == last:
                waiting.append(self.recalled)
        made += [_message("user", text) for text in waiting if text]
        return replace(model_data, input=made)

    async def ask(self, context: ToolContext[Any]) -> Advice:
        """Ask about a call before it runs, once for each call."""
        call = context.tool_call_id
        tool = context.tool_name
        given: Any = context.tool_arguments
        if call in self.calls:
            return Advice()
        with suppress(ValueError):
            parsed = json.loads(given)
            given = parsed if isinstance(parsed, dict) else given
        self.calls[call] = tool, await self.run.before(tool, given, call)
        return self.calls[call][1]

    async def seen(self, failed: ToolErrorFormatterArgs[Any]) -> str | None:
        """Keep the error of a call and ask about it; format it as the user's formatter
        does.
        """
        if failed.kind == "tool_exception" and failed.error is not None:
            self.calls.setdefault(failed.call_id, (failed.tool_name, Advice()))
            await self.failed(failed.call_id, str(failed.error))
        user = self.config.tool_error_formatter
        message = user(failed) if user else None
        return await message if inspect.isawaitable(message) else message

    async def failed(self, call: str, error: str) -> None:
        """Keep the error of a call and ask about it; what was told about the call
        counts once.
        """
        tool, told = self.calls.pop(call)
        again = (await self.run.seen(tool, error, call)).lessons
        if again and again <= told.lessons and call in self.run.call_advice:
            self.run.call_advice[call].pop()

    async def known(self) -> RunResultBase | None:
        """Return the stored answer if an earlier call with this id has ended; None
        otherwise.
        """
        loop = self.run.loop
        best = self.run.best
        if best is None or not (loop and loop.ended) or self.input is not self.kept:
            return None
        if self.session is not None and self.derived:
            answer = _message("assistant", Candidate.of(best).text or "")
            await self.session.add_items([*self.kept[self.first :], answer])
        context = agents.RunContextWrapper[Any](self.options.get("context"))
        output = self.run.best_as(self.kind())
        result = agents.RunResult(
            self.sent, [], [], output, [], [], [], [], context, self.agent
        )
        vars(result)[RESULT_KEY] = loop.verdict
        return result

    async def judge(self, result: Any) -> RunResultBase | None:
        """Return the result for the caller; None if another attempt is to be made."""
        used = result.context_wrapper.usage
        self.usage.add(used)
        if result.interruptions:
            return cast("RunResultBase", result)
        whole = result.to_input_list(mode="normalized")
        sent = len(self.sent)
        if whole[:sent] == self.sent:  # otherwise a handoff has rewritten it
            del whole[sent - len(self.pair) : sent]
        spent = Usage(
            used.requests, used.input_tokens, completion_tokens=used.output_tokens
        )
        verdict = await self.run.verdict(result.final_output, spent, self.run.next)
        if verdict is None or self.run.best in (None, result.final_output):
            self.best = result
            self.kept = list(whole)
        if not isinstance(verdict, Again):
            return await self.end(result, verdict)
        while len(whole) > self.first + 1 and _ANSWER_ITEM_TYPES & {
            *map(whole[-1].get, ("role", "type"))
        }:
            whole.pop()
        self.agent = result.last_agent
        self.reject(whole, result.final_output, verdict.feedback)
        chain = "previous_response_id", "auto_previous_response_id"
        if any(map(self.options.get, chain)):
            self.options["previous_response_id"] = result.last_response_id
        elif not self.options.get("conversation_id"):
            return None
        self.input = self.sent = self.pair = self.pair[1:]  # the server holds the rest
        return None

    def reject(self, work: Items, output: Any, feedback: str) -> None:
        """Set the input of the next attempt: the work so far, the last answer, what is
        wrong.

        Earlier answers are left out, so answers do not make the input grow.
        """
        self.recalled = self.recalled.removesuffix(
            feedback
        ).rstrip()  # after an earlier process
        answer = Candidate.of(output).text or ""
        self.feedback = feedback
        self.pair = [_message("assistant", answer), _message("user", feedback)]
        self.input = self.sent = work + self.pair

    async def end(self, result: Any, verdict: Done | None) -> RunResultBase:
        """Learn from the run, and return the best result."""
        await self.run.learn(ends=PASSED_OUTCOMES[verdict and verdict.passed])
        if (
            self.best is None and self.run.best is not None
        ):  # an earlier process made it
            answer = _message("assistant", Candidate.of(self.run.best).text or "")
            result.final_output = self.run.best_as(self.kind())
            self.kept = [*self.kept, answer]
        best = self.best or cast("RunResultBase", result)
        best.context_wrapper.usage = self.usage
        vars(best)[RESULT_KEY] = verdict or self.run.unjudged
        if self.session is not None:
            await self.session.add_items(self.kept[self.first :])
        return best

    async def fail(self, error: Exception) -> None:
        """Learn from the errors of tools in a run that the SDK has ended by an
        exception.
        """
        if len(self.calls) == 1:  # a tool without a failure handler ends the run
            await self.failed(next(iter(self.calls)), str(error.__cause__ or error))
        await self.run.learn(ends="error")

    def kind(self) -> Any:
        """Return the type of the agent's output."""
        return getattr(self.agent.output_type, "output_type", self.agent.output_type)


class _Hooks(agents.RunHooks[Any]):
    """Ask about each call before it runs and keep its result; call the hooks of the
    user, too.
    """

    def __init__(self, attempts: _Attempts, user: agents.RunHooks[Any] | None) -> None:
        self.attempts = attempts
        self.user = user or agents.RunHooks[Any]()
        for (
            name
        ) in "on_llm_start on_llm_end on_agent_start on_agent_end on_handoff".split():
            setattr(self, name, getattr(self.user, name))

    async def on_tool_start(self, context: Any, agent: Any, tool: agents.Tool) -> None:
        if isinstance(context, ToolContext):
            await self.attempts.ask(context)
        await self.user.on_tool_start(context, agent, tool)

    async def on_tool_end(
        self, context: Any, agent: Any, tool: Any, result: object
    ) -> None:
        if asked := self.attempts.calls.pop(getattr(context, "tool_call_id", ""), None):
            event = Event(
                "tool_response", str(result), tool=asked[0], call=context.tool_call_id
            )
            await self.attempts.run.learn(event)
        await self.user.on_tool_end(context, agent, tool, result)


def _message(role: str, text: str) -> Any:
    return {"role": role, "content": text}


def _text(content: Any) -> str:
    """Return the text of a message, which may have several parts."""
    parts = (
        [content]
        if isinstance(content, str)
        else [part.get("text", "") for part in content]
    )
    return "\n".join(filter(None, parts))

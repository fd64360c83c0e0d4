"""heedful for OpenAI Agents (the package `openai-agents`): run an agent until its answer is right.

`run` takes the place of `Runner.run`, `run_sync` of `Runner.run_sync`, and `run_streamed` of
`Runner.run_streamed`. Each attempt is a run of the SDK. The hooks are those of a run, not of an
agent, so agents, tools and handoffs stay as they are: `call_model_input_filter` adds what memory
tells, `on_tool_start` asks about a call before it runs, `tool_error_formatter` about its error.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import AsyncIterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, cast

from agents import (
    Agent,
    AgentOutputSchema,
    AgentOutputSchemaBase,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    Runner,
    RunResult,
    RunState,
    Tool,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    Usage,
    tool_input_guardrail,
)
from agents.items import TResponseInputItem
from agents.result import RunResultBase, RunResultStreaming
from agents.run import CallModelData, ModelInputData, ToolErrorFormatterArgs
from agents.stream_events import StreamEvent
from agents.tool_context import ToolContext
from pydantic import TypeAdapter, ValidationError

from heedful.drive import portal
from heedful.integrations.host import Advice, Host, HostRun
from heedful.loop.decide import Again, Done
from heedful.loop.record import Candidate
from heedful.loop.record import Usage as Spent
from heedful.traces.episode import Ended, Event

Items = list[TResponseInputItem]
ADVICE = 10_000  # characters of advice in one request; of the calls, the latest come first
REJECTED = "A check of this answer found:\n"
_current: ContextVar[_Attempts | None] = ContextVar("heedful_agents_run", default=None)


async def run(
    agent: Agent[Any], input: str | Items | RunState[Any], *, host: Host, id: str = "", **options: Any
) -> RunResult:
    """Run an agent until its final output passes the checks of `host`, or a rule stops it.

    Returns the result with the best output; its usage is that of all attempts. Takes the `options`
    of `Runner.run`. With the `id` of an earlier call, which may have been killed, the run goes on;
    by default, a `session` gives the id. A session gets the task and the answer that is returned,
    not rejected answers. A result that waits for an approval is returned unjudged; pass its state
    as `input`, with the same id. Raises what `Runner.run` raises.
    """
    attempts = await _Attempts.begin(agent, input, host, id, options)
    result = attempts.known()
    while result is None:
        token = _current.set(attempts)
        try:
            made = await Runner.run(attempts.agent, attempts.input, **attempts.options)
        except Exception as error:
            await attempts.fail(error)
            raise
        finally:
            _current.reset(token)
        result = await attempts.judge(made)
    return result


def run_sync(
    agent: Agent[Any], input: str | Items | RunState[Any], *, host: Host, id: str = "", **options: Any
) -> RunResult:
    """Do what `run` does, for callers without an event loop. Raises UsageError inside one."""
    return portal.run_sync(run(agent, input, host=host, id=id, **options))


def run_streamed(
    agent: Agent[Any], input: str | Items | RunState[Any], *, host: Host, id: str = "", **options: Any
) -> Streamed:
    """Do what `run` does, with the events of all attempts; `Rejected` stands after a rejected one.

    Nothing runs before the events are read. Takes the options of `Runner.run_streamed`.
    """
    return Streamed(agent, input, host, id, options)


@dataclass(frozen=True)
class Rejected:
    """The event after a rejected attempt: its output, and what is wrong with it."""

    output: Any
    feedback: str
    type: str = "heedful_rejected"


@dataclass
class Streamed:
    """A streamed run: iterate over `stream_events()`, then read `result`."""

    agent: Agent[Any]
    input: str | Items | RunState[Any]
    host: Host
    id: str
    options: dict[str, Any]
    result: RunResultBase | None = None

    @property
    def final_output(self) -> Any:
        """The best output; None before the events have ended."""
        return self.result.final_output if self.result else None

    async def stream_events(self) -> AsyncIterator[StreamEvent | Rejected]:
        """Run the agent, and yield the events of the SDK and `Rejected`."""
        asked = self.agent, self.input, self.host, self.id, self.options
        attempts = await _Attempts.begin(*asked)
        self.result = attempts.known()
        while self.result is None:
            token = _current.set(attempts)
            try:
                made = Runner.run_streamed(attempts.agent, attempts.input, **attempts.options)
            finally:
                _current.reset(token)  # the task of the SDK has a copy
            try:
                async for event in made.stream_events():
                    yield event
            except Exception as error:
                await attempts.fail(error)
                raise
            output = made.final_output
            self.result = await attempts.judge(made)
            if self.result is None:
                yield Rejected(output, attempts.feedback)


@tool_input_guardrail(name="heedful_hold")
async def hold(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
    """A guardrail for tools that are expensive or cannot be undone.

    A call that failed before does not run: the model is told what happened. When the model makes
    the same call again, it runs.
    """
    attempts, context = _current.get(), data.context
    if attempts is None:
        return ToolGuardrailFunctionOutput.allow()
    call = context.tool_name, context.tool_arguments
    advice = await attempts.ask(context)
    if not advice or call in attempts.held:
        return ToolGuardrailFunctionOutput.allow()
    attempts.held.add(call)
    attempts.advice.pop(context.tool_call_id, None)  # the model reads it as the result of the call
    return ToolGuardrailFunctionOutput.reject_content(advice.text)


class _Attempts:
    """The attempts of one run: their input, what they are told, and the best result."""

    def __init__(self, agent: Agent[Any], base: Items, run: HostRun, options: dict[str, Any]):
        self.agent, self.sent, self.run, self.options = agent, base, run, options
        self.input: str | Items | RunState[Any] = base
        self.first, self.session = 0, options.pop("session", None)
        self.anchor: TResponseInputItem | None = next(filter(_is_user, reversed(base)), None)
        self.pair: Items = []  # the last answer and what is wrong with it
        self.feedback = self.recalled = ""
        self.advice: dict[str, list[str]] = {}  # by the id of a call
        self.calls: dict[str, str] = {}  # the tools of the calls without a result
        self.held: set[tuple[str, str]] = set()
        self.usage = Usage()
        self.best: RunResultBase | None = None
        self.kept: Items = base

    @classmethod
    async def begin(
        cls,
        agent: Agent[Any],
        given: str | Items | RunState[Any],
        host: Host,
        id: str,
        options: dict[str, Any],
    ) -> _Attempts:
        options, session = dict(options), options.get("session")
        config = options.get("run_config") or RunConfig()
        config = RunConfig(**config) if isinstance(config, dict) else config
        state = given if isinstance(given, RunState) else None
        own = _items(state.to_json()["original_input"] if state else cast("str | Items", given))
        pair = own[-2:] if str(own[-1].get("content", "")).startswith(REJECTED) else []
        own = own[: len(own) - len(pair)]
        task = _text(next(filter(_is_user, reversed(own)), own[-1]))
        past = await _history(session, config) if session and not state else []
        if session and not id:
            id = f"{session.session_id}-{len(past)}-{Candidate.of(task).digest}"
        base = past + own
        if past and config.session_input_callback:
            joined = config.session_input_callback(past, own)
            base = await joined if inspect.isawaitable(joined) else joined
        attempts = cls(agent, base, host.run(id, task), options)
        attempts.first = len(base) - len(own)
        options["run_config"] = attempts.watch(config)
        options["hooks"] = _Hooks(attempts, options.get("hooks"))
        attempts.recalled = (await attempts.run.recall()).text
        attempts.pair = pair
        attempts.sent = base + pair
        if state:
            attempts.input = state
        elif (loop := attempts.run.loop) and loop.loop.attempts and not loop.ended:
            attempts.reject(base, loop.stored.values[-1], cast("Again", loop.verdict).feedback)
        return attempts

    def watch(self, config: RunConfig) -> RunConfig:
        """Return the configuration with our filter and formatter around those of the user."""
        user_filter, user_formatter = config.call_model_input_filter, config.tool_error_formatter

        async def told(data: CallModelData[Any]) -> ModelInputData:
            made = user_filter(data) if user_filter else data.model_data
            model_data = await made if inspect.isawaitable(made) else made
            return replace(model_data, input=self.advised(model_data.input))

        async def seen(failed: ToolErrorFormatterArgs[Any]) -> str | None:
            if failed.kind == "tool_exception" and failed.error is not None:
                await self.error(failed.tool_name, str(failed.error), failed.call_id)
            message = user_formatter(failed) if user_formatter else None
            return await message if inspect.isawaitable(message) else message

        return replace(config, call_model_input_filter=told, tool_error_formatter=seen)

    def advised(self, items: Items) -> Items:
        """Return the input of the model with what memory tells: after the task, and after calls.

        What the input does not contain gets no advice: the server has it, or another agent.
        """
        room, wanted = ADVICE, dict[str, str]()
        if self.recalled and self.anchor in items:
            room -= len(self.recalled)
        for call, texts in reversed(self.advice.items()):
            text = "\n".join(texts)
            if len(text) <= room:
                wanted[call], room = text, room - len(text)
        made: Items = []
        waiting: list[str] = []  # results of parallel calls stay together
        last = max((n for n, item in enumerate(items) if item == self.anchor), default=-1)
        for n, item in enumerate(items):
            ends = item.get("type") == "function_call_output"
            if waiting and not ends:
                made += map(_user, waiting)
                waiting = []
            made.append(item)
            if ends and (text := wanted.get(str(item.get("call_id")), "")):
                waiting.append(text)
            if n == last and self.recalled:
                made.append(_user(self.recalled))
        return made + list(map(_user, waiting))

    async def ask(self, context: ToolContext[Any]) -> Advice:
        """Ask about a call before it runs, once for each call."""
        call = context.tool_call_id
        if call in self.calls:
            return Advice()
        self.calls[call] = context.tool_name
        arguments = _arguments(context.tool_arguments)
        advice = await self.run.before(context.tool_name, arguments, call)
        self.add(call, advice)
        return advice

    async def error(self, tool: str, error: str, call: str) -> None:
        """Keep the error of a call, and ask what is known about it."""
        self.calls.pop(call, None)
        self.add(call, await self.run.seen(tool, error, call))

    def add(self, call: str, advice: Advice) -> None:
        if advice:
            self.advice.setdefault(call, []).append(advice.text)

    def known(self) -> RunResult | None:
        """Return the stored answer if an earlier call with this id has ended; None otherwise."""
        loop, best = self.run.loop, self.run.best
        if best is None or not (loop and loop.ended) or isinstance(self.input, RunState):
            return None
        output = self.typed(best)
        context: RunContextWrapper[Any] = RunContextWrapper(self.options.get("context"))
        return RunResult(self.sent, [], [], output, [], [], [], [], context, self.agent)

    async def judge(self, result: Any) -> Any:
        """Return the result to return to the caller; None if another attempt is to be made."""
        spent = result.context_wrapper.usage
        self.usage.add(spent)
        if result.interruptions:
            return result
        output, work = result.final_output, self.work(result)
        used = Spent(spent.requests, spent.input_tokens, spent.output_tokens)
        verdict = await self.run.verdict(output, used)
        if verdict is None or self.run.best is output:
            self.best, self.kept = result, work
        if not isinstance(verdict, Again):
            return await self.end(result, verdict)
        while len(work) > len(self.kept[: self.first + 1]) and _is_answer(work[-1]):
            work.pop()
        self.agent = result.last_agent
        if not self.continues(result, verdict.feedback):
            self.reject(work, output, verdict.feedback)
        return None

    def work(self, result: RunResultBase) -> Items:
        """Return task, work and answer of an attempt, without the answer that was rejected."""
        whole = result.to_input_list(mode="normalized")
        sent = len(self.sent)
        if whole[:sent] == self.sent:
            return [*whole[: sent - len(self.pair)], *whole[sent:]]
        return whole

    def reject(self, work: Items, output: Any, feedback: str) -> None:
        """Set the input of the next attempt: the work so far, the last answer, what is wrong.

        Earlier answers are left out, so answers do not make the input grow.
        """
        self.recalled = self.recalled.removesuffix(feedback).rstrip()  # after an earlier process
        answer = Candidate.of(output).text or ""
        self.pair = [_message("assistant", answer), _user(REJECTED + feedback)]
        self.feedback, self.sent = feedback, work + self.pair
        self.input = self.sent

    def continues(self, result: RunResultBase, feedback: str) -> bool:
        """Return True if the server holds the conversation, so that it needs only the feedback."""
        options = self.options
        if options.get("previous_response_id") or options.get("auto_previous_response_id"):
            options["previous_response_id"] = result.last_response_id
        elif not options.get("conversation_id"):
            return False
        self.pair, self.feedback = [], feedback
        self.input = self.sent = [_user(REJECTED + feedback)]
        return True

    async def end(self, result: Any, verdict: Done | None) -> Any:
        """Learn from the run, and return the best result."""
        ends: Ended = "partial" if verdict is None else "success" if verdict.passed else "failure"
        await self.run.learn(ends=ends)
        if verdict is not None and self.best is None and self.run.best is not None:
            result.final_output = self.typed(self.run.best)  # an earlier process made it
            answer = Candidate.of(self.run.best).text or ""
            self.best, self.kept = result, [*self.sent, _message("assistant", answer)]
        best: Any = self.best or result
        best.context_wrapper.usage = self.usage
        if self.session is not None:
            await self.session.add_items(self.kept[self.first :])
        return best

    async def fail(self, error: Exception) -> None:
        """Learn from the errors of tools in a run that the SDK has ended by an exception."""
        if len(self.calls) == 1:  # a tool without a failure handler ends the run
            (call, tool), cause = *self.calls.items(), error.__cause__ or error
            await self.error(tool, str(cause), call)
        await self.run.learn(ends="error")

    def typed(self, value: Any) -> Any:
        """Return stored JSON data as the output type of the agent, or unchanged if it is another's."""
        kind: Any = self.agent.output_type
        kind = kind.output_type if isinstance(kind, AgentOutputSchema) else kind
        if kind in (None, str) or isinstance(kind, AgentOutputSchemaBase):
            return value
        try:
            return TypeAdapter(kind).validate_python(value)
        except ValidationError:
            return value


class _Hooks(RunHooks[Any]):
    """Ask about each call before it runs and keep its result; call the hooks of the user, too."""

    def __init__(self, attempts: _Attempts, user: RunHooks[Any] | None) -> None:
        self.attempts, self.user = attempts, user or RunHooks[Any]()
        for name in "on_llm_start on_llm_end on_agent_start on_agent_end on_handoff".split():
            setattr(self, name, getattr(self.user, name))

    async def on_tool_start(
        self, context: RunContextWrapper[Any], agent: Any, tool: Tool
    ) -> None:
        if isinstance(context, ToolContext):
            await self.attempts.ask(context)
        await self.user.on_tool_start(context, agent, tool)

    async def on_tool_end(
        self, context: RunContextWrapper[Any], agent: Any, tool: Tool, result: object
    ) -> None:
        calls = self.attempts.calls
        if isinstance(context, ToolContext) and (name := calls.pop(context.tool_call_id, "")):
            call = context.tool_call_id
            await self.attempts.run.learn(Event("tool_response", str(result), tool=name, call=call))
        await self.user.on_tool_end(context, agent, tool, result)


async def _history(session: Any, config: RunConfig) -> Items:
    settings = config.session_settings
    limit = {"limit": settings.limit} if settings and settings.limit is not None else {}
    return list(await session.get_items(**limit))


def _items(given: str | Items) -> Items:
    return [_user(given)] if isinstance(given, str) else list(given)


def _message(role: str, text: str) -> TResponseInputItem:
    return cast("TResponseInputItem", {"role": role, "content": text})


def _user(text: str) -> TResponseInputItem:
    return _message("user", text)


def _is_user(item: TResponseInputItem) -> bool:
    return item.get("role") == "user"


def _is_answer(item: TResponseInputItem) -> bool:
    return item.get("role") == "assistant" or item.get("type") == "reasoning"


def _text(item: TResponseInputItem) -> str:
    """Return the text of a message; for messages of several parts, the texts of the parts."""
    content: Any = item.get("content", "")
    parts = content if isinstance(content, Sequence) and not isinstance(content, str) else []
    return "\n".join(str(part.get("text", "")) for part in parts) if parts else str(content)


def _arguments(text: str) -> dict[str, Any] | str:
    try:
        made = json.loads(text)
    except ValueError:
        return text
    return made if isinstance(made, dict) else text

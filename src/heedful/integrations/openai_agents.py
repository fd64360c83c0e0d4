"""heedful for OpenAI Agents (`openai-agents`): run an agent until its answer is right.

`run` takes the place of `Runner.run`, `run_sync` of `Runner.run_sync`, and
`run_streamed` of `Runner.run_streamed`. Each attempt is a run of the SDK. The hooks are
those of a run, so agents, tools and handoffs stay as they are:
`call_model_input_filter` adds what memory tells, `on_tool_start` asks about a call
before it runs, `tool_error_formatter` about its error.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import agents
from agents.result import RunResultBase
from agents.run import CallModelData, ModelInputData, ToolErrorFormatterArgs
from agents.stream_events import StreamEvent
from agents.tool_context import ToolContext
from pydantic import BaseModel, ValidationError

from heedful.drive import portal
from heedful.episodes.episode import json_data
from heedful.integrations import PASSED_OUTCOMES, RESULT_KEY
from heedful.integrations.attempts import (
    EMPTY_ANSWER,
    checked_host,
    keep_failure,
    keep_result,
)
from heedful.integrations.host import MAX_CALL_ADVICE_CHARS, Advice, Host, HostRun
from heedful.loop.decide import Again, Done
from heedful.loop.feedback import FEEDBACK_HEADING
from heedful.loop.record import Candidate, Usage

Items: TypeAlias = list[Any]
Input: TypeAlias = str | Items | agents.RunState[Any]
Agent: TypeAlias = agents.Agent[Any]
# The roles and types of items that are an answer of the model, or its thoughts.
_ANSWER_ITEM_TYPES = {"assistant", "reasoning"}


async def run(
    agent: Agent, input: Input, *, host: Host, id: str = "", **options: Any
) -> agents.RunResult:
    """Run an agent until its final output passes the checks, or a rule stops it.

    Returns the result with the best output; its usage is that of all attempts. Takes
    the `options` of `Runner.run`. With the `id` of an earlier call, which may have been
    killed, the run goes on; by default, a `session` gives the id. A session gets the
    task and the answer that is returned, not rejected answers. A result that waits for
    an approval is returned unjudged; pass its state as `input`, with the same id.
    Raises what `Runner.run` raises.
    """
    attempts = await _begin(agent, prompt=input, host=host, id=id, options=options)
    result = await attempts.stored_result()
    while result is None:
        try:
            attempt: RunResultBase = await agents.Runner.run(
                attempts.agent, attempts.input, **attempts.options
            )
        except Exception as error:
            attempt = await attempts.recover(error)

        result = await attempts.judge(attempt)

    return cast("agents.RunResult", result)


def run_sync(
    agent: Agent, input: Input, *, host: Host, id: str = "", **options: Any
) -> agents.RunResult:
    """Do what `run` does, for callers without an event loop.

    Raises UsageError inside one.
    """
    return portal.run_sync(run(agent, input, host=host, id=id, **options))


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The event after an attempt: its output, what is wrong with it, or the result."""

    output: Any
    feedback: str = ""
    result: RunResultBase | None = None
    type: str = "heedful_judged"


async def run_streamed(
    agent: Agent, input: Input, *, host: Host, id: str = "", **options: Any
) -> AsyncIterator[StreamEvent | Judged]:
    """Do what `run` does, and yield the events of all attempts.

    `Judged` ends each attempt; the last event is the `Judged` with the result. Takes
    the options of `Runner.run_streamed`.
    """
    attempts = await _begin(agent, prompt=input, host=host, id=id, options=options)
    result = await attempts.stored_result()
    while result is None:
        stream = agents.Runner.run_streamed(
            attempts.agent, attempts.input, **attempts.options
        )
        attempt: RunResultBase = stream

        try:
            async for event in stream.stream_events():
                yield event
        except Exception as error:
            attempt = await attempts.recover(error)
        finally:
            # The caller may have stopped reading.
            if not stream.is_complete:
                stream.cancel()

        output = attempt.final_output
        result = await attempts.judge(attempt)

        if result is None:
            yield Judged(output=output, feedback=attempts.feedback)

    yield Judged(output=result.final_output, result=result)


@agents.tool_input_guardrail(name="heedful_hold_back")
async def hold_back(
    data: agents.ToolInputGuardrailData,
) -> agents.ToolGuardrailFunctionOutput:
    """A guardrail for tools that are expensive or cannot be undone.

    A call that failed before does not run: the model reads what happened. When the
    model makes the same call again, it runs.
    """
    context = data.context
    attempts = _attempts_of(context)
    call = context.tool_name, context.tool_arguments
    if attempts is None or call in attempts.held_back:
        return agents.ToolGuardrailFunctionOutput.allow()

    advice = await attempts.ask(context)
    if not advice:
        return agents.ToolGuardrailFunctionOutput.allow()

    # The advice is the result of the call, so it is not shown again after it.
    attempts.held_back.add(call)
    del attempts.calls[context.tool_call_id]
    attempts.run.call_advice.pop(context.tool_call_id)
    return agents.ToolGuardrailFunctionOutput.reject_content(advice.text)


@agents.tool_input_guardrail(name="heedful_repeats")
async def _hold_repeats(
    data: agents.ToolInputGuardrailData,
) -> agents.ToolGuardrailFunctionOutput:
    """Hold a call back that repeats, in a run of heedful."""
    attempts = _attempts_of(data.context)
    repeated = attempts.hold(data.context) if attempts else ""
    if not repeated:
        return agents.ToolGuardrailFunctionOutput.allow()
    return agents.ToolGuardrailFunctionOutput.reject_content(repeated)


def _attempts_of(context: ToolContext[Any]) -> _Attempts | None:
    """Return the attempts of the run that a call belongs to, if it is of heedful."""
    config = context.run_config
    # The filter of the run is a method of its attempts.
    filter_ = config.call_model_input_filter if config else None
    attempts = getattr(filter_, "__self__", None)
    return attempts if isinstance(attempts, _Attempts) else None


class _RepeatedCall(agents.AgentsException):
    """Ends a run of the SDK whose model repeats a call."""


async def _begin(
    agent: Agent, prompt: Input, host: Host, id: str, options: dict[str, Any]
) -> _Attempts:
    """Return the attempts of a run, with the input of the first one."""
    checked_host(host)
    config = options.get("run_config") or agents.RunConfig()
    if isinstance(config, dict):
        config = agents.RunConfig(**config)

    state = prompt if isinstance(prompt, agents.RunState) else None
    original = state.to_json()["original_input"] if state else prompt
    if isinstance(original, str):
        original = [_message("user", original)]
    items: Items = list(original)

    # A rejected answer with the feedback on it, if the input ends with them.
    pair: Items = []
    if items and str(items[-1].get("content", "")).startswith(FEEDBACK_HEADING):
        pair = items[-2:]
        items = items[:-2]

    # The last message of the user is the task. A state may hold only what the server
    # does not have, so a run that goes on has the task of the stored one.
    prompts = [item for item in items if item.get("role") == "user"]
    anchor = prompts[-1] if prompts else {}
    task = "" if state and id else _text_of(anchor.get("content", ""))

    session = options.get("session")
    past = await _past_items(session, config) if session else Items()
    derived = bool(session) and not id
    if session and derived:
        id = f"{session.session_id}-{len(past)}-{Candidate.of(task).digest}"

    base = items
    if past and not state:
        base = await _join_items(past, items, config)

    attempts = _Attempts(
        agent=agent,
        run=host.run(id, task),
        config=config,
        options=options,
    )
    attempts.set_input(base, given=items, pair=pair)
    if state:
        attempts.first = len(past)
        attempts.input = state
    attempts.anchor = anchor
    attempts.derived = derived
    attempts.recalled = (await attempts.run.recall()).text

    # The last answer of an earlier process was rejected.
    loop = attempts.run.loop
    if not state and loop and loop.loop.attempts and isinstance(loop.verdict, Again):
        attempts.reject(base, loop.stored.values[-1], loop.verdict.feedback)
    return attempts


async def _past_items(session: Any, config: agents.RunConfig) -> Items:
    """Return the items of a session, as many as its settings allow."""
    settings = config.session_settings
    if settings and settings.limit:
        return list(await session.get_items(limit=settings.limit))
    return list(await session.get_items())


async def _join_items(past: Items, items: Items, config: agents.RunConfig) -> Items:
    """Return the past items and the new ones, joined as the user wants it."""
    join = config.session_input_callback
    if not join:
        return past + items

    joined = join(past, items)
    return await joined if inspect.isawaitable(joined) else joined


class _Attempts:
    """The attempts of one run: their input, the advice in it, and the best result."""

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
        # The message with the task.
        self.anchor: object = None
        # The last rejected answer, and what is wrong with it.
        self.pair: Items = []
        # What the SDK got as its input.
        self.sent: Items = []
        # The task, the work and the answer of the best attempt.
        self.best_items: Items = []
        # The number of items that are older than the run.
        self.first = 0
        # What the run was given, if a callback of the user has put others beside it.
        self.given: Items = []
        # True if the id comes from a session, which has no answer yet.
        self.derived = False

        self.recalled = ""
        self.feedback = ""

        # The tools of calls without a result.
        self.calls: dict[str, str] = {}
        # Tool and arguments of the calls that did not run at first.
        self.held_back: set[tuple[str, str]] = set()

        self.usage = agents.Usage()
        self.best: RunResultBase | None = None
        # Why the last output is not of the agent's type.
        self.misfit = ""
        # The error of the SDK has none of it.
        self.failed_data: Any = None

        self.session = options.get("session")
        self.options = {name: options[name] for name in options if name != "session"}
        self.options["hooks"] = _Hooks(self, options.get("hooks"))
        handlers = {"invalid_final_output": self.note_misfit}
        self.handlers = options.get("error_handlers") or {}
        self.options["error_handlers"] = {**self.handlers, **handlers}
        self.options["run_config"] = replace(
            config,
            call_model_input_filter=self.add_advice,
            tool_error_formatter=self.seen,
        )

    def set_input(self, base: Items, *, given: Items, pair: Items) -> None:
        """Set the input of the first attempt: past and `given` items, and a `pair`."""
        self.pair = pair
        self.sent = base + pair
        self.input = base
        self.best_items = base
        self.first = len(base) - len(given)
        if base[self.first :] != given:
            self.given = given

    async def add_advice(self, data: CallModelData[Any]) -> ModelInputData:
        """Add what memory has to the input of the model: after the task and calls.

        An input without the task or the call has no place for it: the server holds the
        rest, or it is the input of another agent.
        """
        user_filter = self.config.call_model_input_filter
        filtered = user_filter(data) if user_filter else data.model_data
        model_data = await filtered if inspect.isawaitable(filtered) else filtered
        closing = self.run.repeats.closing()
        if closing:
            raise _RepeatedCall(closing)

        call_advice = self.run.advice(MAX_CALL_ADVICE_CHARS - len(self.recalled))
        tasks = [n for n, item in enumerate(model_data.input) if item == self.anchor]
        task = max(tasks, default=-1)

        items: Items = []
        # Advice waits until the results of parallel calls, which stay together, end.
        waiting: list[str] = []
        for number, item in enumerate(model_data.input):
            is_result = item.get("type") == "function_call_output"
            if not is_result:
                items += [_message("user", text) for text in waiting if text]
                waiting = []

            items.append(item)
            if is_result:
                waiting.append(call_advice.get(str(item.get("call_id")), ""))
            if number == task:
                waiting.append(self.recalled)

        items += [_message("user", text) for text in waiting if text]
        return replace(model_data, input=items)

    def hold(self, context: ToolContext[Any]) -> str:
        """Return why a call does not run, because it repeats; "" if it runs."""
        arguments = json_data(context.tool_arguments)
        return self.run.repeats.hold(context.tool_name, arguments, context.tool_call_id)

    async def ask(self, context: ToolContext[Any]) -> Advice:
        """Ask about a call before it runs, once for each call."""
        call = context.tool_call_id
        tool = context.tool_name
        if call in self.calls:
            return Advice()

        arguments = json_data(context.tool_arguments)
        if not isinstance(arguments, dict):
            arguments = context.tool_arguments
        self.calls[call] = tool
        return await self.run.before(tool, arguments, call)

    async def seen(self, failed: ToolErrorFormatterArgs[Any]) -> str | None:
        """Keep the error of a call and ask about it; format it as the user does."""
        if failed.kind == "tool_exception" and failed.error is not None:
            call = failed.call_id
            tool = self.calls.pop(call, failed.tool_name)
            await keep_failure(self.run, tool, str(failed.error), call)

        user_formatter = self.config.tool_error_formatter
        message = user_formatter(failed) if user_formatter else None
        return await message if inspect.isawaitable(message) else message

    async def note_misfit(self, failed: Any) -> Any:
        """Note that the output is not of the agent's type; answer as the user does."""
        handler = self.handlers.get("invalid_final_output")
        result = handler(failed) if handler else None
        result = await result if inspect.isawaitable(result) else result
        if result is None:
            self.misfit = self.describe_misfit(self.run.repeats.last_text)
            self.failed_data = failed.run_data
            self.failed_data.context_wrapper = failed.context
        return result

    def describe_misfit(self, answer: str) -> str:
        """Return why an answer is not of the agent's type; the SDK hides it."""
        kind = self.kind()
        try:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                kind.model_validate_json(answer)
        except ValidationError as error:
            return str(error)
        return f"the answer is no JSON of the type {kind}"

    async def recover(self, error: Exception) -> RunResultBase:
        """Return what an exception of the SDK ended as a result to judge.

        Its output is a text that is not of the agent's type, or the last text of a run
        that repeats a call. Raises any other exception.
        """
        output = ""
        data: Any = getattr(error, "run_data", None)
        if isinstance(error, _RepeatedCall):
            output = str(error)
        elif isinstance(error, agents.MaxTurnsExceeded):
            output = self.run.repeats.closing(at_limit=True)
        elif self.misfit and self.run.judges:
            output = self.run.repeats.last_text or EMPTY_ANSWER
            data = self.failed_data
        if not output or data is None:
            await self.fail(error)
            raise error
        return _result_of(data, output)

    async def keep_result(self, context: ToolContext[Any], result: object) -> None:
        """Record the result of a call; `failed` has recorded the error of one."""
        id = context.tool_call_id
        call: Any = context.tool_call
        item = agents.ItemHelpers.tool_call_output_item(call, result)
        output = _text_of(item["output"])
        if id in self.calls:
            tool = self.calls.pop(id)
            await keep_result(self.run, tool, output, id)

    async def stored_result(self) -> RunResultBase | None:
        """Return the stored answer if an earlier call with this id has ended."""
        loop = self.run.loop
        best = self.run.best
        if best is None or not (loop and loop.ended):
            return None
        # A run that goes on from a state makes another attempt.
        if self.input is not self.best_items:
            return None

        if self.session is not None and self.derived:
            answer = _message("assistant", Candidate.of(best).text or "")
            await self.session.add_items([*self.session_items(), answer])

        data = agents.RunErrorDetails(
            input=self.sent,
            new_items=[],
            raw_responses=[],
            last_agent=self.agent,
            context_wrapper=agents.RunContextWrapper(self.options.get("context")),
            input_guardrail_results=[],
            output_guardrail_results=[],
        )
        result = _result_of(data, self.run.best_as(self.kind()))
        vars(result)[RESULT_KEY] = loop.verdict
        return result

    async def judge(self, result: Any) -> RunResultBase | None:
        """Return the result for the caller; None if another attempt is to be made."""
        usage = result.context_wrapper.usage
        self.usage.add(usage)
        if result.interruptions:
            return cast("RunResultBase", result)

        # The items of the run are kept without the last rejected answer. A handoff may
        # have rewritten them.
        items = result.to_input_list(mode="normalized")
        input_length = len(self.sent)
        if items[:input_length] == self.sent:
            del items[input_length - len(self.pair) : input_length]

        spent = Usage(
            usage.requests, usage.input_tokens, completion_tokens=usage.output_tokens
        )
        misfit = self.misfit
        self.misfit = ""
        verdict = await self.run.verdict(
            result.final_output, spent, self.run.next, misfit=misfit
        )
        if self.run.repeats.stopped or misfit:
            # The SDK has no item for an answer that it did not take.
            items.append(_message("assistant", result.final_output))
        if verdict is None or self.run.best in (None, result.final_output):
            self.best = result
            self.best_items = list(items)

        if not isinstance(verdict, Again):
            return await self.end(result, verdict)

        while len(items) > self.first + 1 and _is_answer(items[-1]):
            items.pop()

        self.agent = result.last_agent
        self.reject(items, result.final_output, verdict.feedback)

        chained = self.options.get("previous_response_id")
        if chained or self.options.get("auto_previous_response_id"):
            self.options["previous_response_id"] = result.last_response_id
        elif not self.options.get("conversation_id"):
            return None

        # The server holds all but the feedback.
        self.pair = self.pair[1:]
        self.sent = self.pair
        self.input = self.pair
        return None

    def reject(self, work: Items, output: Any, feedback: str) -> None:
        """Set the input of the next attempt: the work, the last answer, its feedback.

        Earlier answers are left out, so answers do not make the input grow.
        """
        # After an earlier process, what is recalled ends with the feedback.
        self.recalled = self.recalled.removesuffix(feedback).rstrip()
        answer = Candidate.of(output).text or ""
        self.feedback = feedback
        self.pair = [_message("assistant", answer), _message("user", feedback)]
        self.sent = work + self.pair
        self.input = self.sent

    async def end(self, result: Any, verdict: Done | None) -> RunResultBase:
        """Learn from the run, and return the best result."""
        passed = verdict.passed if verdict else None
        await self.run.learn(ends=PASSED_OUTCOMES[passed])

        # An earlier process may have made the best answer.
        if self.best is None and self.run.best is not None:
            answer = _message("assistant", Candidate.of(self.run.best).text or "")
            result.final_output = self.run.best_as(self.kind())
            self.best_items = [*self.best_items, answer]

        best = self.best or cast("RunResultBase", result)
        best.context_wrapper.usage = self.usage
        vars(best)[RESULT_KEY] = verdict or self.run.unjudged
        if self.session is not None:
            await self.session.add_items(self.session_items())
        return best

    def session_items(self) -> Items:
        """Return what a session keeps: what the run was given, and its work.

        What a callback adds is no word of the user, and no later turn needs it.
        """
        return self.given + self.best_items[self.first + len(self.given) :]

    async def fail(self, error: Exception) -> None:
        """Learn from the errors of tools in a run that an exception has ended."""
        # A tool without a failure handler ends the run.
        if len(self.calls) == 1:
            call, tool = self.calls.popitem()
            text = str(error.__cause__ or error)
            await keep_failure(self.run, tool, text, call)
        await self.run.learn(ends="error")

    def kind(self) -> Any:
        """Return the type of the agent's output."""
        return getattr(self.agent.output_type, "output_type", self.agent.output_type)


def _result_of(data: Any, output: Any) -> RunResultBase:
    """Return a result of the SDK with an output, and the data of an interrupted run."""
    return agents.RunResult(
        input=data.input,
        new_items=data.new_items,
        raw_responses=data.raw_responses,
        final_output=output,
        input_guardrail_results=[],
        output_guardrail_results=[],
        tool_input_guardrail_results=[],
        tool_output_guardrail_results=[],
        context_wrapper=data.context_wrapper,
        _last_agent=data.last_agent,
    )


class _Hooks(agents.RunHooks[Any]):
    """Ask about each call before it runs and keep its result; then call the user's."""

    def __init__(self, attempts: _Attempts, user: agents.RunHooks[Any] | None) -> None:
        self.attempts = attempts
        self.user = user or agents.RunHooks[Any]()
        for name in ("on_llm_start", "on_agent_end", "on_handoff"):
            setattr(self, name, getattr(self.user, name))

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        """Let each tool of an agent, and of its servers, ask whether a call repeats.

        In a run without heedful, this guardrail allows each call.
        """
        tools = [tool for tool in agent.tools if isinstance(tool, agents.FunctionTool)]
        for owner in [*tools, *agent.mcp_servers]:
            guardrails = owner.tool_input_guardrails or []
            if _hold_repeats not in guardrails:
                owner.tool_input_guardrails = [*guardrails, _hold_repeats]
        await self.user.on_agent_start(context, agent)

    async def on_llm_end(
        self, context: Any, agent: Any, response: agents.ModelResponse
    ) -> None:
        """Keep the last text of the model."""
        run = self.attempts.run
        texts = map(agents.ItemHelpers.extract_text, response.output)
        run.repeats.hear("\n".join(filter(None, texts)))
        await self.user.on_llm_end(context, agent, response)

    async def on_tool_start(self, context: Any, agent: Any, tool: agents.Tool) -> None:
        """Ask memory about the call of a tool."""
        if isinstance(context, ToolContext):
            await self.attempts.ask(context)
        await self.user.on_tool_start(context, agent, tool)

    async def on_tool_end(
        self, context: Any, agent: Any, tool: Any, result: object
    ) -> None:
        """Record the result of a call that has begun."""
        if isinstance(context, ToolContext):
            await self.attempts.keep_result(context, result)

        await self.user.on_tool_end(context, agent, tool, result)


def _is_answer(item: Any) -> bool:
    """Return True if an item is a message or a thought of the model."""
    return not _ANSWER_ITEM_TYPES.isdisjoint((item.get("role"), item.get("type")))


def _message(role: str, text: str) -> Any:
    """Return a message as an item of the SDK's input."""
    return {"role": role, "content": text}


def _text_of(content: Any) -> str:
    """Return the text of a message, which may have several parts."""
    if isinstance(content, str):
        return content
    return "\n".join(filter(None, [part.get("text", "") for part in content]))

"""heedful for OpenAI Agents (`openai-agents`): run an agent until its answer is right.

`run` takes the place of `Runner.run`, `run_sync` of `Runner.run_sync`, and
`run_streamed` of `Runner.run_streamed`. Each attempt is a run of the SDK. What memory
has and the last rejected answer are added by the `call_model_input_filter` of a run; a
guardrail asks about a call before it runs, `tool_error_formatter` about its error.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import agents
from agents.memory.session import SessionABC
from agents.result import RunResultBase
from agents.run import CallModelData, ModelInputData, ToolErrorFormatterArgs
from agents.stream_events import StreamEvent
from agents.tool_context import ToolContext
from pydantic import TypeAdapter, ValidationError

from heedful.drive import portal
from heedful.episodes.episode import json_data
from heedful.integrations.attempts import (
    EMPTY_ANSWER,
    Attempts,
    Role,
    checked_host,
    place_of,
)
from heedful.integrations.host import Host
from heedful.integrations.results import RESULT_KEY
from heedful.loop.record import Candidate
from heedful.models.answers import usage_of

Items: TypeAlias = list[Any]
Input: TypeAlias = str | Items | agents.RunState[Any]
Agent: TypeAlias = agents.Agent[Any]
# The roles and types of items that are an answer of the model, or its thoughts.
_ANSWER_ITEM_TYPES = {"assistant", "reasoning"}
# With one of these, the server of the model keeps the conversation.
_SERVER_OPTIONS = (
    "conversation_id",
    "previous_response_id",
    "auto_previous_response_id",
)


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
    result = attempts.stored_result()
    while result is None:
        try:
            attempt: RunResultBase = await agents.Runner.run(
                attempts.agent, attempts.input, **attempts.options
            )
        except Exception as error:
            attempt = await attempts.recover(error)

        result = await attempts.take(attempt)

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
    result = attempts.stored_result()
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
        result = await attempts.take(attempt)

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
    return await _ask(data.context, hold_back=True)


@agents.tool_input_guardrail(name="heedful")
async def _watch(
    data: agents.ToolInputGuardrailData,
) -> agents.ToolGuardrailFunctionOutput:
    """Ask about a call before it runs; hold it back if it repeats."""
    return await _ask(data.context)


async def _ask(
    context: ToolContext[Any], *, hold_back: bool = False
) -> agents.ToolGuardrailFunctionOutput:
    """Ask about a call, in a run of heedful; reject it if it is held back."""
    config = context.run_config
    # The filter of the run is a method of its attempts.
    filter_ = config.call_model_input_filter if config else None
    attempts = getattr(filter_, "__self__", None)
    text = ""
    if isinstance(attempts, _Attempts):
        name = context.tool_name
        call = context.tool_call_id
        arguments = json_data(context.tool_arguments)
        text = await attempts.ask(name, arguments, call, hold_back=hold_back)
        attempts.tools[call] = name
    if text:
        return agents.ToolGuardrailFunctionOutput.reject_content(text)
    return agents.ToolGuardrailFunctionOutput.allow()


class _RepeatedCall(agents.AgentsException):
    """Ends a run of the SDK whose model repeats a call."""


class _RunSession(SessionABC):
    """The user's session in a run: what is added to it, is stored at the end."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.session_id = session.session_id
        self.session_settings = getattr(session, "session_settings", None)
        self.items: Items = []

    async def get_items(self, limit: int | None = None) -> Items:
        """Return the latest items, those of the run included."""
        items = [*await self.session.get_items(limit=limit), *self.items]
        return items[-limit:] if limit else items

    async def add_items(self, items: Items) -> None:
        """Add items of the run."""
        self.items += items

    async def pop_item(self) -> Any:
        """Remove the last item of the run and return it."""
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        """Remove the items of the run."""
        self.items.clear()

    async def store(self) -> None:
        """Add the items of the run to the user's session."""
        await self.session.add_items(self.items)
        self.items = []


async def _begin(
    agent: Agent, prompt: Input, host: Host, id: str, options: dict[str, Any]
) -> _Attempts:
    """Return the attempts of a run, with the input of the first one."""
    checked_host(host)
    state = prompt if isinstance(prompt, agents.RunState) else None
    items: Any = state.to_json()["original_input"] if state else prompt
    if isinstance(items, str):
        items = [_message("user", items)]

    # The last message of the user is the task. A state may hold only what the server
    # does not have, so a run that goes on has the task of the stored one.
    prompts = [item for item in items if item.get("role") == "user"]
    anchor = prompts[-1] if prompts else {}
    task = "" if state and id else _text_of(anchor.get("content", ""))

    run_session = _RunSession(options["session"]) if options.get("session") else None
    if run_session and not id:
        past = await run_session.get_items()
        id = f"{run_session.session_id}-{len(past)}-{Candidate.of(task).digest}"

    config = options.get("run_config") or agents.RunConfig()
    if isinstance(config, dict):
        config = agents.RunConfig(**config)
    attempts = _Attempts(
        run=host.run(id, task),
        agent=agent,
        input=state or list(items),
        config=config,
        options={**options, "session": run_session},
        run_session=run_session,
        anchor=anchor,
    )
    attempts.prepare()
    await attempts.begin()
    return attempts


@dataclass(eq=False, kw_only=True)
class _Attempts(Attempts):
    """The attempts of one run.

    `anchor` is the item with the task. The last rejected answer follows the item
    `last`, None before the first request of an attempt. `tools` has the tools of calls
    by their ids, and `misfit` says why the last output is not of the agent's type.
    """

    agent: Agent
    input: Input
    config: agents.RunConfig
    options: dict[str, Any]
    run_session: _RunSession | None
    anchor: Any
    last: int | None = None
    tools: dict[str, str] = field(default_factory=dict)
    usage: agents.Usage = field(default_factory=agents.Usage)
    misfit: str = ""
    # The error of the SDK has none of it.
    failed_data: Any = None

    def prepare(self) -> None:
        """Set the options of the SDK's runs."""
        handlers = self.options.get("error_handlers") or {}
        own_handlers = {"invalid_final_output": self.note_misfit}
        self.options["error_handlers"] = {**own_handlers, **handlers}
        self.options["run_config"] = replace(
            self.config,
            call_model_input_filter=self.add_advice,
            tool_error_formatter=self.keep_error,
        )
        _watch_tools(self.agent)

    @property
    def is_on_server(self) -> bool:
        """True if the server of the model keeps the conversation."""
        return any(self.options.get(option) for option in _SERVER_OPTIONS)

    async def add_advice(self, data: CallModelData[Any]) -> ModelInputData:
        """Add what memory has to the input of the model; keep results of calls.

        An input without the task has no place for it: the server holds the rest, or it
        is the input of another agent.
        """
        user_filter = self.config.call_model_input_filter
        filtered = user_filter(data) if user_filter else data.model_data
        model_data = await filtered if inspect.isawaitable(filtered) else filtered
        _watch_tools(data.agent)
        items: Items = model_data.input
        for item in items:
            await self.note(item)
        closing = self.closing()
        if closing:
            raise _RepeatedCall(closing)

        end = len(items) - 1
        if self.last is None:
            self.last = end
        task = place_of(items, self.anchor) if self.anchor in items else -1
        last = -2 if self.is_on_server else min(self.last, end)
        woven = self.advised(
            items,
            task=task,
            last=last,
            calls=_result_calls,
            message=_message,
        )
        return replace(model_data, input=woven)

    async def note(self, item: Any) -> None:
        """Keep an item of the input: a text of the model, or the result of a call."""
        if item.get("role") == "assistant":
            self.hear(_text_of(item.get("content", "")))
        for call in _result_calls(item):
            tool = self.tools.get(call, "")
            await self.keep(tool, _text_of(item.get("output", "")), call)

    async def keep_error(self, failed: ToolErrorFormatterArgs[Any]) -> str | None:
        """Keep the error of a call and ask about it; format it as the user does."""
        if failed.kind == "tool_exception" and failed.error is not None:
            error = str(failed.error)
            await self.keep(failed.tool_name, error, failed.call_id, failed=True)

        formatter = self.config.tool_error_formatter
        message = formatter(failed) if formatter else None
        return await message if inspect.isawaitable(message) else message

    async def note_misfit(self, failed: Any) -> None:
        """Note why the output is not of the agent's type; the SDK hides it."""
        output = failed.run_data.raw_responses[-1].output
        texts = map(agents.ItemHelpers.extract_text, output)
        answer = "\n".join(filter(None, texts))
        self.hear(answer)
        self.misfit = f"the answer is no JSON of the type {self.kind()}"
        try:
            TypeAdapter(self.kind()).validate_json(answer)
        except ValidationError as error:
            self.misfit = str(error)
        self.failed_data = failed.run_data
        self.failed_data.context_wrapper = failed.context

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
            for item in data.new_items:
                await self.note(item.to_input_item())
            output = self.closing(at_limit=True)
        elif self.misfit and self.run.judges:
            output = self.last_text or EMPTY_ANSWER
            data = self.failed_data
        if output and data is not None:
            return _result_of(data, output)

        # A tool without a failure handler ends the run.
        if len(self.running) == 1:
            (call,) = self.running
            text = str(error.__cause__ or error)
            await self.keep(self.tools[call], text, call, failed=True)
        await self.end("error")
        raise error

    def stored_result(self) -> RunResultBase | None:
        """Return the stored answer if an earlier call with this id has ended."""
        # A run that goes on from a state makes another attempt.
        if self.known_answer is None or isinstance(self.input, agents.RunState):
            return None

        data = agents.RunErrorDetails(
            input=self.input,
            new_items=[],
            raw_responses=[],
            last_agent=self.agent,
            context_wrapper=agents.RunContextWrapper(self.options.get("context")),
            input_guardrail_results=[],
            output_guardrail_results=[],
        )
        result = _result_of(data, self.best_as(self.kind()))
        vars(result)[RESULT_KEY] = self.verdict
        return result

    async def take(self, result: Any) -> RunResultBase | None:
        """Return the result for the caller; None if another attempt is to be made."""
        usage = result.context_wrapper.usage
        self.usage.add(usage)
        items: Items = result.to_input_list(mode="normalized")
        for item in items:
            await self.note(item)
        if result.interruptions:
            if self.run_session:
                await self.run_session.store()
            return cast("RunResultBase", result)

        self.spent = usage_of(usage) or self.spent
        if await self.judge(result.final_output, misfit=self.misfit):
            self.agent = result.last_agent
            self.input = self.next_input(items)
            chained = map(self.options.get, _SERVER_OPTIONS[1:])
            if any(chained):
                self.options["previous_response_id"] = result.last_response_id
            self.last = None
            self.misfit = ""
            return None

        verdict = await self.end()
        is_kept = not (self.has_better or self.misfit or self.repeats.stopped)
        if self.has_better:
            result.final_output = self.best_as(self.kind())
        result.context_wrapper.usage = self.usage
        vars(result)[RESULT_KEY] = verdict
        if self.run_session and not is_kept:
            _drop_answer(self.run_session.items)
            text = Candidate.of(result.final_output).text or ""
            self.run_session.items.append(_message("assistant", text))
        if self.run_session:
            await self.run_session.store()
        return cast("RunResultBase", result)

    def next_input(self, items: Items) -> Items:
        """Return the input of the next attempt, without the rejected answer."""
        if self.is_on_server:
            # The server holds all but the feedback.
            return [_message("user", self.feedback)]
        if self.run_session:
            _drop_answer(self.run_session.items)
            return []
        _drop_answer(items)
        return items

    def kind(self) -> Any:
        """Return the type of the agent's output."""
        return getattr(self.agent.output_type, "output_type", self.agent.output_type)


def _watch_tools(agent: Agent) -> None:
    """Let each tool of an agent, and of its servers, ask about a call.

    In a run without heedful, this guardrail allows each call.
    """
    tools = [tool for tool in agent.tools if isinstance(tool, agents.FunctionTool)]
    for owner in [*tools, *agent.mcp_servers]:
        guardrails = owner.tool_input_guardrails or []
        if _watch not in guardrails:
            owner.tool_input_guardrails = [*guardrails, _watch]


def _drop_answer(items: Items) -> None:
    """Remove the answer at the end of items, and the thoughts before it."""
    while items and not _ANSWER_ITEM_TYPES.isdisjoint(
        (items[-1].get("role"), items[-1].get("type"))
    ):
        items.pop()


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


def _result_calls(item: Any) -> list[str]:
    """Return the id of the call whose result an item is."""
    is_result = item.get("type") == "function_call_output"
    return [str(item.get("call_id"))] if is_result else []


def _message(role: Role, text: str) -> Any:
    """Return a message as an item of the SDK's input."""
    return {"role": role, "content": text}


def _text_of(content: Any) -> str:
    """Return the text of a message, which may have several parts."""
    if isinstance(content, str):
        return content
    return "\n".join(filter(None, [part.get("text", "") for part in content]))

"""heedful for OpenAI Agents (`openai-agents`): run an agent until its answer is right.

`run` takes the place of `Runner.run`, `run_sync` of `Runner.run_sync`, and
`run_streamed` of `Runner.run_streamed`. Each attempt is a run of the SDK. What memory
has and the last rejected answer are added by the `call_model_input_filter` of a run; a
guardrail asks about a call before it runs, `tool_error_formatter` about its error.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import agents
from agents.run import CallModelData, ModelInputData, ToolErrorFormatterArgs
from agents.stream_events import StreamEvent

from heedful.drive import portal
from heedful.episodes.episode import json_data
from heedful.integrations.attempts import (
    EMPTY_ANSWER,
    Attempts,
    Role,
    checked_host,
    misfit_of,
    place_of,
    text_in,
)
from heedful.integrations.host import Host
from heedful.integrations.results import RESULT_KEY
from heedful.loop.record import Candidate
from heedful.models.answers import usage_of
from heedful.validation import Document

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
    task and the answer that is returned, not rejected answers. With a
    `previous_response_id`, each attempt continues from that response. The conversation
    of a `conversation_id` keeps rejected answers. A result that waits for an approval
    is returned unjudged; pass its state as `input`, with the same id and options.
    Raises what `Runner.run` raises.
    """
    attempts = await _begin(agent, prompt=input, host=host, id=id, options=options)
    result = None
    while result is None:
        try:
            attempt = await agents.Runner.run(
                attempts.agent, attempts.input, **attempts.options
            )
        except Exception as error:
            attempt = await attempts.recover(error)

        result = await attempts.take(attempt)

    return result


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
    result: agents.RunResult | agents.RunResultStreaming | None = None
    type: str = "heedful_judged"


async def run_streamed(
    agent: Agent, input: Input, *, host: Host, id: str = "", **options: Any
) -> AsyncIterator[StreamEvent | Judged]:
    """Do what `run` does, and yield the events of all attempts.

    `Judged` ends each attempt; the last event is the `Judged` with the result. Takes
    the options of `Runner.run_streamed`.
    """
    attempts = await _begin(agent, prompt=input, host=host, id=id, options=options)
    result = None
    while result is None:
        stream = agents.Runner.run_streamed(
            attempts.agent, attempts.input, **attempts.options
        )
        attempt: Any = stream
        try:
            async for event in stream.stream_events():
                yield event
        except Exception as error:
            attempt = await attempts.recover(error)
        finally:
            # The caller may have stopped reading.
            if not stream.is_complete:
                stream.cancel()

        result = await attempts.take(attempt)
        if result is None:
            yield Judged(output=attempt.final_output, feedback=attempts.feedback)

    yield Judged(output=result.final_output, result=result)


@agents.tool_input_guardrail(name="heedful_hold_back")
async def hold_back(
    data: agents.ToolInputGuardrailData,
) -> agents.ToolGuardrailFunctionOutput:
    """A guardrail for tools that are expensive or cannot be undone.

    A call that failed before does not run: the model reads what happened. When the
    model makes the same call again, it runs.
    """
    return await _ask(data, hold_back=True)


async def _ask(
    data: agents.ToolInputGuardrailData, *, hold_back: bool = False
) -> agents.ToolGuardrailFunctionOutput:
    """Ask about a call, in a run of heedful; reject it if it is held back."""
    context = data.context
    # The filter of the run is a method of its attempts.
    input_filter = getattr(context.run_config, "call_model_input_filter", None)
    attempts = getattr(input_filter, "__self__", None)
    text = ""
    if isinstance(attempts, _Attempts):
        attempts.sdk_context = attempts.sdk_context or context
        text = await attempts.ask(
            context.tool_name,
            json_data(context.tool_arguments),
            context.tool_call_id,
            hold_back=hold_back,
        )
    if text:
        return agents.ToolGuardrailFunctionOutput.reject_content(text)
    return agents.ToolGuardrailFunctionOutput.allow()


_watch = agents.ToolInputGuardrail[Any](_ask, name="heedful")


class _EarlyAnswer(agents.AgentsException):
    """Ends a run of the SDK with an answer, without a request to the model."""


async def _begin(
    agent: Agent, prompt: Input, host: Host, id: str, options: Document
) -> _Attempts:
    """Return the attempts of a run, with the input of the first one."""
    checked_host(host, "OpenAI Agents")
    config = options.get("run_config") or agents.RunConfig()
    if isinstance(config, dict):
        config = agents.RunConfig(**config)
    on_server = any(map(options.get, _SERVER_OPTIONS))
    # The SDK refuses a session beside a conversation of the server.
    session = None if on_server else options.pop("session", None)
    history: Items = await session.get_items() if session else []
    if isinstance(prompt, agents.RunState):
        new_items: Items = []
        items: Items = prompt.to_json()["original_input"]
    else:
        new_items = agents.ItemHelpers.input_to_new_input_list(prompt)
        items = [*history, *new_items]
        if session and config.session_input_callback:
            items = await _answer_of(
                config.session_input_callback, deepcopy(history), deepcopy(new_items)
            )

    # The last message of the user is the task.
    prompts = [item for item in items if item.get("role") == "user"]
    anchor = prompts[-1] if prompts else {}
    task = text_in(anchor.get("content", ""))
    if isinstance(prompt, agents.RunState) and options.get("conversation_id"):
        # The message may be feedback: the stored run has the task.
        task = ""
    # A callback may have made the history of a state shorter.
    old_items = min(len(history), place_of(items, anchor))
    if session and not id:
        id = f"{session.session_id}-{len(history)}-{Candidate.of(task).digest}"

    attempts = _Attempts(
        run=host.run(id, task),
        agent=agent,
        input=prompt if isinstance(prompt, agents.RunState) else items,
        items=items,
        config=config,
        options=options,
        session=session,
        unsaved=new_items or items[old_items:],
        on_server=on_server,
        anchor=anchor,
    )
    options["error_handlers"] = {
        "invalid_final_output": attempts.note_misfit,
        **(options.get("error_handlers") or {}),
    }
    options["run_config"] = replace(
        config,
        call_model_input_filter=attempts.add_advice,
        tool_error_formatter=attempts.keep_error,
    )
    _watch_tools(agent)
    await attempts.begin()
    attempts.begin_attempt()
    return attempts


@dataclass(eq=False, kw_only=True)
class _Attempts(Attempts):
    """The attempts of one run.

    `items` are the input and the work so far, without rejected answers; the session
    will get those that are `unsaved`. With `on_server`, the server of the model keeps
    requests and answers. `anchor` is the item with the task. `best_result` is the
    result of the best attempt. The `sdk_context` of an attempt has its usage. `failed`
    is an attempt whose output is not of the agent's type, and `misfit` says why.
    """

    agent: Agent
    input: Input
    items: Items
    config: agents.RunConfig
    options: Document
    session: Any
    unsaved: Items
    on_server: bool
    anchor: Any
    usage: agents.Usage = field(default_factory=agents.Usage)
    best_result: Any = None
    sdk_context: Any = None
    failed: Any = None
    misfit: str = ""

    def begin_attempt(self) -> None:
        """Give the SDK a context for the next attempt; a state brings its own."""
        if not isinstance(self.input, agents.RunState):
            context = self.options.get("context")
            if isinstance(context, agents.RunContextWrapper):
                context = context.context
            self.sdk_context = agents.RunContextWrapper(context)
            self.options["context"] = self.sdk_context

    async def add_advice(self, data: CallModelData[Any]) -> ModelInputData:
        """Add what memory has to the input of the model; keep results of calls.

        An input without the task has no place for it: it is that of another agent.
        """
        user_filter = self.config.call_model_input_filter
        model_data = await _answer_of(user_filter, data) or data.model_data
        _watch_tools(data.agent)
        items: Items = model_data.input
        task = place_of(items, self.anchor) if self.anchor in items else -1
        early_answer = await self.read(items[max(task, 0) :])
        if early_answer:
            raise _EarlyAnswer(early_answer)

        # The server keeps what the first request of an attempt has.
        is_kept = self.on_server and self.place is not None
        woven = self.advised(
            items,
            task=task,
            last=-1 if is_kept else None,
            calls=_result_calls,
            message=_message,
        )
        return replace(model_data, input=woven)

    async def read(self, items: Items, *, at_limit: bool = False) -> str:
        """Keep results of calls; return the answer that ends the run early, or ""."""
        usage = getattr(self.sdk_context, "usage", None)
        if usage is not None and usage.requests:
            self.run.spent = usage_of(usage) or self.run.spent
        await self.keep_results(items)
        answers = [item for item in items if item.get("role") == "assistant"]
        texts = [text_in(answer.get("content", "")) for answer in answers]
        return self.early_answer(texts, at_limit=at_limit)

    async def keep_results(self, items: Items) -> None:
        """Keep the results of calls among items."""
        for item in items:
            for call in _result_calls(item):
                result = text_in(item.get("output", ""))
                await self.keep(self.running.get(call, ""), result, call)

    async def keep_error(self, failed: ToolErrorFormatterArgs[Any]) -> Any:
        """Keep the error of a call and ask about it; format it as the user does."""
        if failed.kind == "tool_exception":
            await self.keep(
                failed.tool_name, str(failed.error), failed.call_id, failed=True
            )
        return await _answer_of(self.config.tool_error_formatter, failed)

    def note_misfit(self, failed: Any) -> None:
        """Note an attempt whose output is not of the agent's type; the SDK ends it."""
        self.failed = failed.run_data
        self.failed.context_wrapper = failed.context

    async def recover(self, error: Exception) -> agents.RunResult:
        """Return what an exception of the SDK ended as a result to judge.

        Its output is a text that is not of the agent's type, or the answer that ends
        the run early. Raises any other exception.
        """
        output = ""
        data: Any = getattr(error, "run_data", None)
        if isinstance(error, _EarlyAnswer):
            output = str(error)
        elif isinstance(error, agents.MaxTurnsExceeded):
            items: Any = [item.to_input_item() for item in data.new_items]
            output = await self.read(items, at_limit=True)
        elif self.failed is not None and self.run.judges:
            data = self.failed
            texts = map(agents.ItemHelpers.extract_text, data.raw_responses[-1].output)
            output = "\n".join(filter(None, texts)) or EMPTY_ANSWER
            reason = misfit_of(self.kind(), output)
            self.misfit = reason or f"the answer is no JSON of the type {self.kind()}"
        if output:
            return _result_of(data, output)

        # A tool without a failure handler ends the run.
        if len(self.running) == 1:
            ((call, tool),) = self.running.items()
            await self.keep(tool, str(error.__cause__ or error), call, failed=True)
        await self.end("error")
        raise error

    async def take(self, result: Any) -> Any:
        """Return the result for the caller; None if another attempt is to be made."""
        usage = result.context_wrapper.usage
        self.usage.add(usage)
        prompt = agents.ItemHelpers.input_to_new_input_list(result.input)
        work: Items = result.to_input_list()[len(prompt) :]
        await self.keep_results(work)
        if result.interruptions:
            return result

        self.run.spent = usage_of(usage) or self.run.spent
        is_rejected = await self.judge(result.final_output, misfit=self.misfit)
        if self.run.best is result.final_output:
            self.best_result = result
        if is_rejected:
            _drop_answer(work)
            self.items = [*self.items, *work]
            self.unsaved = [*self.unsaved, *work]
            self.input = self.items
            if self.options.get("conversation_id"):
                # The server has all but the feedback.
                self.input = [_message("user", self.feedback)]
                self.place = 0
            self.begin_attempt()
            self.agent = result.last_agent
            self.failed = None
            self.misfit = ""
            return None

        verdict = await self.end()
        if self.has_better:
            result = self.best_result or result
            result.final_output = self.best_as(self.kind())
        if self.has_better or self.misfit or self.stopped:
            _drop_answer(work)
            text = Candidate.of(result.final_output).text or ""
            work.append(_message("assistant", text))
        if self.session:
            await self.session.add_items([*self.unsaved, *work])
        result.context_wrapper.usage = self.usage
        vars(result)[RESULT_KEY] = verdict
        return result

    def kind(self) -> Any:
        """Return the type of the agent's output."""
        return getattr(self.agent.output_type, "output_type", self.agent.output_type)


async def _answer_of(function: Callable[..., Any] | None, *arguments: Any) -> Any:
    """Return what a function of the user returns or awaits, None without one."""
    answer = function(*arguments) if function else None
    return await answer if inspect.isawaitable(answer) else answer


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


def _result_of(data: Any, output: Any) -> agents.RunResult:
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

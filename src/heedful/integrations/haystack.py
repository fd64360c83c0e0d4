"""heedful for agents of Haystack: hooks that let an agent answer until it is right.

    agent = Agent(
        chat_generator=…, hooks=hooks(Host(checks=[…], memory_key="triage"))
    )

What memory shows, the last rejected answer and the feedback on it are in the requests
to the model only: they are added to the state before a call of the model, and removed
after it. The id of a run is `hook_context["heedful_id"]`: a run with the id of an
earlier one, which may have been killed, goes on with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from haystack.components.agents.state import State
from haystack.components.agents.state.state_utils import replace_values
from haystack.dataclasses import ChatMessage, ChatRole, ToolCall, ToolCallResult
from haystack.dataclasses.chat_message import ToolCallResultContentT
from haystack.hooks import FunctionHook, Hook, HookPoint

from heedful.integrations.attempts import (
    ID_KEY,
    Attempts,
    Role,
    checked_host,
    place_of,
    run_now,
)
from heedful.integrations.host import Host
from heedful.integrations.results import RESULT_KEY
from heedful.loop.decide import Again
from heedful.loop.record import Usage
from heedful.models.answers import usage_of

Hooks: TypeAlias = Mapping[HookPoint, Sequence[Hook]]
# Why an agent stops, if the model has answered; else it is the name of a tool, or:
ANSWERED = "text"
OUT_OF_STEPS = "max_agent_steps"
UNANSWERED = ("length", "content_filter", OUT_OF_STEPS)
# What Haystack writes before the error of a tool, with the arguments of the call.
ERROR_HEADING = "Failed to invoke Tool"


def hooks(
    host: Host, *, hold_back: bool = False, others: Hooks | None = None
) -> dict[HookPoint, list[Hook]]:
    """Return the hooks of an agent: check each answer, and return the best in the end.

    `others` are your own hooks, which see the state without what heedful adds to it.
    With `hold_back`, a call of a tool that failed before does not run: the model reads
    what happened. When the model makes the same call again, it runs. The hooks serve
    any number of agents and runs.
    """
    watch = _Watch(host, hold_back)
    others = others or {}
    clean = _as_hook(watch.clean)
    return {
        "before_run": [*others.get("before_run", ()), _as_hook(watch.begin)],
        "before_llm": [*others.get("before_llm", ()), _as_hook(watch.advise)],
        "before_tool": [clean, *others.get("before_tool", ()), _as_hook(watch.ask)],
        "after_tool": [_as_hook(watch.note_results), *others.get("after_tool", ())],
        "on_exit": [clean, *others.get("on_exit", ()), _as_hook(watch.judge)],
        "after_run": [_as_hook(watch.end), *others.get("after_run", ())],
    }


def _as_hook(work: Callable[[State], Coroutine[Any, Any, None]]) -> FunctionHook:
    """Return a hook for both `run` and `run_async` of an agent."""

    def wait(state: State) -> None:
        run_now(work(state))

    return FunctionHook(function=wait, async_function=work)


class _Watch:
    """What the hooks do at each point of a run."""

    def __init__(self, host: Host, hold_back: bool) -> None:
        self.host = checked_host(host)
        self.hold_back = hold_back
        self.runs: WeakKeyDictionary[State, _AgentRun] = WeakKeyDictionary()

    async def begin(self, state: State) -> None:
        """Recall; if an earlier process ended the run, stop with its answer."""
        messages = _own(state)
        prompts = [message for message in messages if message.is_from(ChatRole.USER)]
        id = (state.data.get("hook_context") or {}).get(ID_KEY, "")
        task = _text_of(prompts[-1]) if prompts else ""

        prompt = prompts[-1] if prompts else None
        run = _AgentRun(
            run=self.host.run(str(id), task),
            hold_back=self.hold_back,
            task=prompt,
            last=prompt,
            counted=_usage(state),
        )
        await run.begin()
        self.runs[state] = run
        if run.known_answer is not None:
            _put(state, [*messages, run.best_message()])
            state.set("stop_run", ANSWERED)

    async def clean(self, state: State) -> None:
        """Remove what was added for the last request; keep the last text."""
        messages = _own(state)
        run = self.runs[state]
        if messages:
            run.hear(_text_of(messages[-1]))
        _put(state, messages)

    async def advise(self, state: State) -> None:
        """Show the model what memory has, and the last rejected answer."""
        run = self.runs[state]
        closing = run.closing()
        if closing:
            _put(state, [*_own(state), ChatMessage.from_assistant(closing)])
            state.set("stop_run", ANSWERED)
        else:
            _put(state, run.request(_own(state)))

    async def ask(self, state: State) -> None:
        """Ask memory about calls; with `hold_back`, answer those that failed before."""
        run = self.runs[state]
        messages = _own(state)
        if not messages or not messages[-1].tool_calls:
            return

        results = []
        free: list[ToolCall] = []
        for call in messages[-1].tool_calls:
            text = await run.ask(call.tool_name, call.arguments, _call_id(call))
            if text:
                results.append(ChatMessage.from_tool(text, origin=call, error=True))
            else:
                free.append(call)

        if results:
            _put(state, [*messages[:-1], *_split(messages[-1], results, free)])

    async def note_results(self, state: State) -> None:
        """Keep the results of calls; ask memory about errors."""
        run = self.runs[state]
        for result in _results_in(state.data["messages"]):
            call = result.origin
            text = _result_text(result.result)
            if result.error:
                text = _error_of(text)
            await run.keep(call.tool_name, text, _call_id(call), failed=result.error)

    async def judge(self, state: State) -> None:
        """Judge the answer; go on without it, or put the best in its place."""
        run = self.runs[state]
        reason = state.data["exit_reason"]
        # Another hook lets the agent go on.
        goes_on = state.data.get("continue_run")
        if goes_on or reason in UNANSWERED:
            return

        messages = _own(state)
        start = _answer_start(messages)
        answer = messages[start:]
        run.count(_usage(state))
        if await run.judge(_output_of(answer, reason)):
            run.last = messages[start - 1] if start else None
            _put(state, messages[:start])
            state.set("continue_run", True)
        elif run.has_better:
            _put(state, [*messages[:start], run.best_message()])

    async def end(self, state: State) -> None:
        """Learn from the run, and add the verdict to its result."""
        run = self.runs.pop(state)
        messages = _own(state)
        rejected = isinstance(run.verdict, Again) and run.run.best is not None
        if rejected and state.data["exit_reason"] == OUT_OF_STEPS:
            messages.append(run.best_message())
        _put(state, messages)
        state.data[RESULT_KEY] = await run.end()


@dataclass(eq=False, kw_only=True)
class _AgentRun(Attempts):
    """The attempts of one run of an agent.

    `task` is the message with the task, `last` the one that the last rejected answer
    follows.
    """

    task: ChatMessage | None = None
    last: ChatMessage | None = None

    def best_message(self) -> ChatMessage:
        """Return the best answer."""
        return ChatMessage.from_assistant(self.best_text)

    def request(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """Return the messages with what memory has, and the last rejected answer."""
        ids = [id(message) for message in messages]
        return self.advised(
            messages,
            task=place_of(ids, id(self.task)),
            last=place_of(ids, id(self.last)),
            calls=_result_calls,
            message=_message,
        )


def _text_of(message: ChatMessage) -> str:
    """Return the texts of a message as one."""
    return "\n".join(message.texts)


def _own(state: State) -> list[ChatMessage]:
    """Return the messages of a state without those that were added for a request."""
    messages = state.data.get("messages") or []
    return [message for message in messages if RESULT_KEY not in message.meta]


def _put(state: State, messages: list[ChatMessage]) -> None:
    """Set the messages of a state."""
    state.set("messages", messages, handler_override=replace_values)


def _message(role: Role, text: str) -> ChatMessage:
    """Return a message that is added for one request."""
    meta = {RESULT_KEY: True}
    if role == "user":
        return ChatMessage.from_user(text, meta)
    return ChatMessage.from_assistant(text, meta)


def _answer_start(messages: Sequence[ChatMessage]) -> int:
    """Return the number of the last message of the model, where its answer begins."""
    numbers = [
        number
        for number, message in enumerate(messages)
        if message.is_from(ChatRole.ASSISTANT)
    ]
    return numbers[-1] if numbers else len(messages)


def _output_of(answer: Sequence[ChatMessage], reason: str) -> str:
    """Return the text of an answer; that of a tool if its result is the answer."""
    texts = [
        _result_text(result.result)
        for result in _results_in(answer)
        if result.origin.tool_name == reason
    ]
    if texts:
        return texts[-1]
    return "\n".join("\n".join(message.texts) for message in answer)


def _results_in(messages: Iterable[ChatMessage]) -> list[ToolCallResult]:
    """Return the results of calls in messages."""
    return list(chain.from_iterable(message.tool_call_results for message in messages))


def _result_calls(message: ChatMessage) -> list[str]:
    """Return the ids of the calls whose results are in a message."""
    return [_call_id(result.origin) for result in message.tool_call_results]


def _result_text(result: ToolCallResultContentT) -> str:
    """Return what a tool returned, as one text."""
    if isinstance(result, str):
        return str(result)
    return "\n".join(getattr(part, "text", "") for part in result)


def _error_of(text: str) -> str:
    """Return the error of a tool, without what Haystack writes before it."""
    if not text.startswith(ERROR_HEADING):
        return text
    return text.partition(". Error: ")[2] or text


def _call_id(call: ToolCall) -> str:
    """Return the id of a call; a model without ids has the same one for equal calls."""
    if call.id:
        return str(call.id)
    arguments = json.dumps(call.arguments, default=repr, sort_keys=True)
    return f"{call.tool_name} {arguments}"


def _split(
    request: ChatMessage, results: list[ChatMessage], free: list[ToolCall]
) -> list[ChatMessage]:
    """Return a request of calls as the calls that were answered, and those that run."""
    answered = [result.origin for result in _results_in(results)]
    messages = [
        ChatMessage.from_assistant(request.text, request.meta, tool_calls=answered),
        *results,
    ]
    if free:
        messages.append(ChatMessage.from_assistant(tool_calls=free))
    return messages


def _usage(state: State) -> Usage:
    """Return the usage of a run so far: each of its steps calls the model once."""
    tokens = usage_of(state.data.get("token_usage")) or Usage()
    return Usage(
        state.data.get("step_count") or 0,
        tokens.prompt_tokens,
        completion_tokens=tokens.completion_tokens,
    )

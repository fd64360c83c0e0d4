"""heedful for agents of Haystack: hooks that let an agent answer until it is right.

    agent = Agent(
        chat_generator=…, hooks=hooks(Host(checks=[…], memory_key="triage"))
    )

What memory shows, the last rejected answer and the feedback on it are in the requests
to the model only: they are added to the state before a call of the model, and removed
after it. The id of a run is `hook_context["heedful_id"]`: a run with the id of an
earlier one, which may have been killed, goes on with it.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from haystack.components.agents.state import State
from haystack.components.agents.state.state_utils import replace_values
from haystack.dataclasses import ChatMessage, ChatRole, ToolCall, ToolCallResult
from haystack.hooks import FunctionHook, Hook, HookPoint

from heedful.episodes.signals import canonical_json
from heedful.integrations.attempts import (
    ID_KEY,
    Adapter,
    Role,
    place_of,
    run_now,
    text_in,
)
from heedful.integrations.host import Host
from heedful.integrations.results import RESULT_KEY
from heedful.loop.record import Usage
from heedful.models.answers import usage_of

# Why an agent stops, if the model has answered; else it is the name of a tool, or:
ANSWERED = "text"
OUT_OF_STEPS = "max_agent_steps"
UNANSWERED = ("length", "content_filter")
# What Haystack writes before the error of a tool, after the arguments of the call.
ERROR_HEADING = ". Error: "


def hooks(
    host: Host,
    *,
    hold_back: bool = False,
    others: Mapping[HookPoint, Sequence[Hook]] | None = None,
) -> dict[HookPoint, list[Hook]]:
    """Return the hooks of an agent: check each answer, and return the best in the end.

    `others` are your own hooks, which see the state without what heedful adds to it.
    With `hold_back`, a call of a tool that failed before does not run: the model reads
    what happened. When the model makes the same call again, it runs. The hooks serve
    any number of agents and runs.
    """
    watch = _Watch(host, hold_back=hold_back)
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


class _Watch(Adapter):
    """What the hooks do at each point of a run."""

    framework = "Haystack"

    def __init__(self, host: Host, *, hold_back: bool) -> None:
        super().__init__(host, hold_back=hold_back)
        self.runs = WeakKeyDictionary()

    async def begin(self, state: State) -> None:
        """Recall what memory has for the last message of the user."""
        tasks = [
            text_in(message.texts)
            for message in _own(state)
            if message.is_from(ChatRole.USER)
        ]
        context = state.data.get("hook_context") or {}
        task = tasks[-1] if tasks else ""
        run = self.attempts(str(context.get(ID_KEY, "")), task)
        run.counted = _usage(state)
        await run.begin()
        self.runs[state] = run

    async def clean(self, state: State) -> None:
        """Remove what was added for the last request; keep the last text."""
        messages = _own(state)
        self.runs[state].hear(text_in(messages[-1].texts))
        _put(state, messages)

    async def advise(self, state: State) -> None:
        """Show the model what memory has, and the last rejected answer."""
        run = self.runs[state]
        messages = _own(state)
        run.count(_usage(state))
        answer = run.early_answer()
        if answer:
            _put(state, [*messages, ChatMessage.from_assistant(answer)])
            state.set("stop_run", ANSWERED)
            return

        is_task = [
            message.is_from(ChatRole.USER) and text_in(message.texts) == run.run.task
            for message in messages
        ]
        request = run.advised(
            messages,
            task=place_of(is_task, sought=True),
            calls=_result_calls,
            message=_message,
        )
        _put(state, request)

    async def ask(self, state: State) -> None:
        """Ask memory about calls; with `hold_back`, answer those that failed before."""
        run = self.runs[state]
        *earlier, request = _own(state)
        calls = request.tool_calls
        texts = [
            await run.ask(call.tool_name, call.arguments, _call_id(call))
            for call in calls
        ]
        if not any(texts):
            return

        # Haystack runs the calls of the last message only.
        stopped_calls = [call for call, text in zip(calls, texts, strict=True) if text]
        free = [call for call, text in zip(calls, texts, strict=True) if not text]
        results = [
            ChatMessage.from_tool(text, origin=call, error=True)
            for call, text in zip(stopped_calls, filter(None, texts), strict=True)
        ]
        request = ChatMessage.from_assistant(
            request.text, request.meta, tool_calls=stopped_calls
        )
        messages = [*earlier, request, *results]
        if free:
            messages.append(ChatMessage.from_assistant(tool_calls=free))
        _put(state, messages)

    async def note_results(self, state: State) -> None:
        """Keep the results of calls; ask memory about errors."""
        run = self.runs[state]
        for result in _results_in(state.data["messages"]):
            call = result.origin
            text = text_in(result.result)
            if result.error:
                text = text.partition(ERROR_HEADING)[2] or text
            await run.keep(call.tool_name, text, _call_id(call), failed=result.error)

    async def judge(self, state: State) -> None:
        """Judge the answer; go on without it, or put the best in its place."""
        run = self.runs[state]
        reason = state.data["exit_reason"]
        # Another hook may let the agent go on.
        if state.data.get("continue_run") or reason in UNANSWERED:
            return

        messages = _own(state)
        is_answer = [message.is_from(ChatRole.ASSISTANT) for message in messages]
        start = place_of(is_answer, sought=True)
        run.count(_usage(state))
        if await run.judge(_output_of(messages[start:], reason)):
            _put(state, messages[:start])
            state.set("continue_run", True)
        elif run.has_better:
            best = ChatMessage.from_assistant(run.best_text)
            _put(state, [*messages[:start], best])

    async def end(self, state: State) -> None:
        """Learn from the run, and add the verdict to its result."""
        run = self.runs.pop(state)
        messages = _own(state)
        if run.best_text and state.data["exit_reason"] == OUT_OF_STEPS:
            # The last answer was rejected, and removed.
            messages.append(ChatMessage.from_assistant(run.best_text))
        _put(state, messages)
        state.data[RESULT_KEY] = await run.end()


def _own(state: State) -> list[ChatMessage]:
    """Return the messages of a state without those that were added for a request."""
    messages = state.data.get("messages", ())
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


def _output_of(answer: Sequence[ChatMessage], reason: str) -> str:
    """Return the text of an answer; that of a tool if its result is the answer."""
    texts = [text_in(message.texts) for message in answer]
    for result in _results_in(answer):
        if result.origin.tool_name == reason:
            texts = [text_in(result.result)]
    return "\n".join(texts)


def _results_in(messages: Iterable[ChatMessage]) -> list[ToolCallResult]:
    """Return the results of calls in messages."""
    return [result for message in messages for result in message.tool_call_results]


def _result_calls(message: ChatMessage) -> list[str]:
    """Return the ids of the calls whose results are in a message."""
    return [_call_id(result.origin) for result in message.tool_call_results]


def _call_id(call: ToolCall) -> str:
    """Return the id of a call; a model without ids has the same one for equal calls."""
    return call.id or f"{call.tool_name} {canonical_json(call.arguments)}"


def _usage(state: State) -> Usage:
    """Return the usage of a run so far: each of its steps calls the model once."""
    tokens = usage_of(state.data.get("token_usage")) or Usage()
    return Usage(
        state.data.get("step_count") or 0,
        tokens.prompt_tokens,
        completion_tokens=tokens.completion_tokens,
    )

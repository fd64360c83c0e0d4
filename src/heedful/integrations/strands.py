"""heedful for Strands Agents: a plugin that lets an agent answer until it is right.

    agent = Agent(model, plugins=[HeedfulPlugin(Host(checks=[…], memory_key="triage"))])

What memory shows, the last rejected answer and the feedback on it are in the requests
to the model only: neither `agent.messages` nor a session has them. The id of a run is
`invocation_state["heedful_id"]`: a run with the id of an earlier one, which may have
been killed, goes on with it. By default, the id comes from the session and the message
with the task.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import ValidationError
from strands import Agent
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
)
from strands.middleware import (
    ExecuteToolContext,
    ExecuteToolStage,
    InvokeModelContext,
    InvokeModelStage,
    MiddlewareNext,
    ToolResultEvent,
    TypedEvent,
)
from strands.plugins import Plugin
from strands.types.content import Message, Messages
from strands.types.tools import ToolResult

from heedful.episodes.episode import json_data
from heedful.integrations.attempts import ID_KEY, Attempts, checked_host, place_of
from heedful.integrations.host import Host
from heedful.integrations.results import RESULT_KEY
from heedful.loop.record import Usage

# The reasons for which a model stops when it has answered.
ANSWER_STOP_REASONS = ("end_turn", "stop_sequence")
# The reasons for which an agent stops that goes on later.
PAUSE_STOP_REASONS = ("interrupt", "checkpoint")


class HeedfulPlugin(Plugin):
    """Check each answer, feed back what is wrong, and return the best in the end.

    One plugin serves any number of agents, each with one run at a time. With
    `hold_back`, a call of a tool that failed before does not run: the model reads what
    happened. When the model makes the same call again, it runs.
    """

    name = RESULT_KEY

    def __init__(self, host: Host, *, hold_back: bool = False) -> None:
        self.host = checked_host(host)
        self.hold_back = hold_back
        self.runs: WeakKeyDictionary[Any, _Invocation] = WeakKeyDictionary()
        super().__init__()

    def init_agent(self, agent: Agent) -> None:
        """Add the hooks, what changes requests, and what judges objects."""
        agent.add_hook(self.begin, BeforeInvocationEvent)
        agent.add_hook(self.answer_known, BeforeModelCallEvent)
        agent.add_hook(self.judge, AfterModelCallEvent)
        agent.add_hook(self.ask, BeforeToolCallEvent)
        agent.add_hook(self.note_result, AfterToolCallEvent)
        agent.add_hook(self.end, AfterInvocationEvent)
        agent.add_middleware(InvokeModelStage.Input, self.advise)
        agent.add_middleware(ExecuteToolStage, self.judge_object)

    async def begin(self, event: BeforeInvocationEvent) -> None:
        """Begin the run, or go on with one that waits for an interrupt."""
        messages = event.messages or []
        if not messages and event.agent in self.runs:
            return

        all_messages = [*event.agent.messages, *messages]
        message = _task_message(all_messages)
        task_id = message.setdefault("tracking_id", str(uuid.uuid4()))
        id = event.invocation_state.get(ID_KEY)
        if not id:
            id = f"{event.agent.session_id}-{task_id}"

        host_run = self.host.run(str(id), _text_of(message))
        run = _Invocation(
            run=host_run, hold_back=self.hold_back, task_id=task_id, last_id=task_id
        )
        await run.begin()
        self.runs[event.agent] = run

    def answer_known(self, event: BeforeModelCallEvent) -> None:
        """Return a known answer without a call of the model.

        It is that of an earlier process, or the last of a run that repeats a call.
        """
        run = self.runs.get(event.agent)
        if run and run.known_answer is not None:
            event.cancel = run.best_text or True
        elif run:
            event.cancel = run.closing() or event.cancel

    async def advise(self, context: InvokeModelContext) -> InvokeModelContext:
        """Show the model what memory has, and the last rejected answer."""
        run = self.runs.get(context.agent)
        if run is None:
            return context

        run.is_forced = context.structured_output_model is not None
        return context.replace(messages=run.request(context.messages))

    async def judge(self, event: AfterModelCallEvent) -> None:
        """Judge an answer of the model; ask again, or put the best in its place."""
        run = self.runs.get(event.agent)
        response = event.stop_response
        # What a hook said in place of the model has no metadata.
        if run is None or response is None or "metadata" not in response.message:
            return

        message = response.message
        run.spent += _usage_in(message)
        output: Any = _text_of(message)
        run.hear(output)
        if _wants_object(event.agent):
            # Only a model that is made to answer with an object does so in a text.
            output = json_data(output) if run.is_forced else None
        if output is None or response.stop_reason not in ANSWER_STOP_REASONS:
            return

        if await run.judge(output):
            history = event.agent.messages
            run.last_id = _id_of(history[-1]) if history else ""
            event.retry = True
        elif run.has_better:
            message["content"] = [{"text": run.best_text}]

    async def judge_object(
        self,
        context: ExecuteToolContext,
        next_fn: MiddlewareNext[ExecuteToolContext, TypedEvent],
    ) -> AsyncGenerator[TypedEvent, None]:
        """Judge an object that the model answers with; a rejected one is an error."""
        run = self.runs.get(context.agent)
        arguments = context.tool_use["input"]
        output = _valid_object(context.tool, arguments) if run else None
        if run and output is not None:
            if await run.judge(output):
                id = context.tool_use["toolUseId"]
                content: Any = [{"text": run.feedback}]
                result = ToolResult(toolUseId=id, status="error", content=content)
                yield ToolResultEvent(result)
                return

            if run.has_better:
                tool_use: Any = {**context.tool_use, "input": run.run.best}
                context = context.replace(tool_use=tool_use)

        async for event in next_fn(context):
            yield event

    async def ask(self, event: BeforeToolCallEvent) -> None:
        """Ask memory about a call; with `hold_back`, cancel it if it failed before."""
        run = self.runs.get(event.agent)
        use = event.tool_use
        if run and not _makes_object(event.selected_tool) and not event.cancel_tool:
            held_back = await run.ask(use["name"], use["input"], use["toolUseId"])
            event.cancel_tool = held_back or event.cancel_tool

    async def note_result(self, event: AfterToolCallEvent) -> None:
        """Keep the result of a call; ask memory about an error."""
        run = self.runs.get(event.agent)
        if run is None or event.cancel_message is not None:
            return

        use = event.tool_use
        text = str(event.exception or _result_text(event.result))
        failed = event.result["status"] == "error"
        await run.keep(use["name"], text, use["toolUseId"], failed=failed)

    async def end(self, event: AfterInvocationEvent) -> None:
        """Learn from the run, and put the verdict into the state of the result."""
        result = event.result
        if result is not None and result.stop_reason in PAUSE_STOP_REASONS:
            return

        run = self.runs.pop(event.agent, None)
        if run is None:
            return

        verdict = await run.end("error" if result is None else None)
        if result is not None and isinstance(result.state, dict):
            # Of the result that the caller gets, this event has a copy, but the state.
            result.state[RESULT_KEY] = verdict


@dataclass(eq=False, kw_only=True)
class _Invocation(Attempts):
    """The attempts of one invocation of an agent.

    `task_id` is the tracking id of the message with the task, `last_id` that of the
    message that the last rejected answer follows. `is_forced` is True if the model is
    made to answer with an object.
    """

    task_id: str = ""
    last_id: str = ""
    is_forced: bool = False

    def request(self, messages: Messages) -> Messages:
        """Return the messages with what memory has, and the last rejected answer."""
        ids = [_id_of(message) for message in messages]
        woven = self.advised(
            messages,
            task=place_of(ids, self.task_id),
            last=place_of(ids, self.last_id),
            calls=_result_calls,
            message=_message,
        )
        # A provider may refuse two messages of one role that follow each other.
        request: Messages = []
        for message in woven:
            if request and request[-1]["role"] == message["role"]:
                content = [*request[-1]["content"], *message["content"]]
                request[-1] = {**request[-1], "content": content}
            else:
                request.append(message)
        return request


def _id_of(message: Message) -> str:
    """Return the tracking id of a message, "" without one."""
    return str(message.get("tracking_id", ""))


def _result_calls(message: Message) -> list[str]:
    """Return the ids of the calls whose results are in a message."""
    blocks = message["content"]
    return [
        block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block
    ]


def _usage_in(message: Message) -> Usage:
    """Return the usage of the call of the model that made a message."""
    usage: Any = message["metadata"].get("usage") or {}
    parts = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
    return Usage(
        1,
        sum(usage.get(part) or 0 for part in parts),
        completion_tokens=usage.get("outputTokens") or 0,
    )


def _message(role: Any, text: str) -> Message:
    """Return a message of a text."""
    return {"role": role, "content": [{"text": text}]}


def _text_of(message: Message) -> str:
    """Return the text of a message, which may have other parts, too."""
    return "\n".join(block["text"] for block in message["content"] if "text" in block)


def _task_message(messages: Sequence[Message]) -> Message:
    """Return the last message of the user with a text; the last one without any."""
    prompts = [message for message in messages if message["role"] == "user"]
    with_text = [message for message in prompts if _text_of(message)]
    return (with_text or prompts or [_message("user", "")])[-1]


def _result_text(result: ToolResult) -> str:
    """Return what a tool returned, as one text."""
    blocks = result["content"]
    return "\n".join(
        block.get("text") or json.dumps(block["json"], default=repr)
        for block in blocks
        if "text" in block or "json" in block
    )


def _makes_object(tool: Any) -> bool:
    """Return True for the tool by which a model answers with an object."""
    return getattr(tool, "tool_type", "") == "structured_output"


def _wants_object(agent: Any) -> bool:
    """Return True if the agent must answer with an object."""
    return any(map(_makes_object, agent.tool_registry.dynamic_tools.values()))


def _valid_object(tool: Any, arguments: Any) -> dict[str, Any] | None:
    """Return an answer as data; None for a call of another tool, or an invalid answer.

    Strands itself asks again after an invalid answer.
    """
    if not _makes_object(tool):
        return None

    try:
        data: dict[str, Any] = tool.structured_output_model(**arguments).model_dump(
            mode="json"
        )
    except (ValidationError, TypeError):
        return None
    return data

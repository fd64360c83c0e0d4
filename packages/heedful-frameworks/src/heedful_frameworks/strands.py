"""heedful for Strands Agents: a plugin that lets an agent answer until it is right.

    agent = Agent(model, plugins=[HeedfulPlugin(Host(checks=[…], memory_key="triage"))])

What memory shows, the last rejected answer and the feedback on it are in the requests
to the model only: neither `agent.messages` nor a session has them. The id of a run is
`invocation_state["heedful_id"]`: a run with the id of an earlier one, which may have
been killed, goes on with it. By default, the id comes from the session and the message
with the task.
"""

import json
import uuid
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ValidationError
from strands import Agent
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
)
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.plugins import Plugin, hook
from strands.types.content import Message, Messages
from strands.types.tools import ToolResult

from heedful.episodes.episode import json_data
from heedful.integrations.attempts import (
    ID_KEY,
    Adapter,
    place_of,
    text_in,
)
from heedful.integrations.host import Host
from heedful.integrations.results import RESULT_KEY
from heedful.loop.record import Usage

# The reasons for which a model stops when it has answered.
ANSWER_STOP_REASONS = ("end_turn", "stop_sequence")
# The reasons for which an agent stops that goes on later.
PAUSE_STOP_REASONS = ("interrupt", "checkpoint")


class HeedfulPlugin(Adapter, Plugin):
    """Check each answer, feed back what is wrong, and return the best in the end.

    One plugin serves any number of agents, each with one run at a time. With
    `hold_back`, a call of a tool that failed before does not run: the model reads what
    happened. When the model makes the same call again, it runs.
    """

    framework = "Strands"
    name = RESULT_KEY

    def __init__(self, host: Host, *, hold_back: bool = False) -> None:
        Adapter.__init__(self, host, hold_back=hold_back)
        Plugin.__init__(self)
        self.runs = WeakKeyDictionary()

    def init_agent(self, agent: Agent) -> None:
        """Add what changes requests; Strands itself adds the hooks."""
        agent.add_middleware(InvokeModelStage.Input, self.advise)

    @hook
    async def begin(self, event: BeforeInvocationEvent) -> None:
        """Begin the run, or go on with one that waits for an interrupt."""
        if not event.messages and event.agent in self.runs:
            return

        messages = [*event.agent.messages, *(event.messages or ())]
        prompts = list(filter(_is_prompt, messages))
        message = prompts[-1] if prompts else _message("user", "")
        task_id = message.setdefault("tracking_id", str(uuid.uuid4()))
        own_id = event.invocation_state.get(ID_KEY)
        id = str(own_id or f"{event.agent.session_id}-{task_id}")
        run = self.attempts(id, text_in(message["content"]))
        await run.begin()
        self.runs[event.agent] = run

    @hook
    def answer_early(self, event: BeforeModelCallEvent) -> None:
        """Return an answer without a call of the model, if the run is over."""
        run = self.runs.get(event.agent)
        if run:
            event.cancel = run.early_answer() or event.cancel

    async def advise(self, context: InvokeModelContext) -> InvokeModelContext:
        """Show the model what memory has, and the last rejected answer."""
        run = self.runs.get(context.agent)
        if run is None:
            return context

        is_task = [
            _is_prompt(message) and text_in(message["content"]) == run.run.task
            for message in context.messages
        ]
        woven = run.advised(
            context.messages,
            task=place_of(is_task, sought=True),
            calls=_result_calls,
            message=_message,
        )
        return context.replace(messages=_alternating(woven))

    @hook
    async def judge(self, event: AfterModelCallEvent) -> None:
        """Judge an answer of the model; ask again, or put the best in its place."""
        run = self.runs.get(event.agent)
        response = event.stop_response
        # What a hook said in place of the model has no metadata.
        if run is None or response is None or "metadata" not in response.message:
            return

        message = response.message
        usage: Any = message["metadata"].get("usage") or {}
        parts = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
        run.run.spent += Usage(
            1,
            sum(usage.get(part) or 0 for part in parts),
            completion_tokens=usage.get("outputTokens") or 0,
        )
        text = text_in(message["content"])
        run.hear(text)
        wants_object = any(
            map(_makes_object, event.agent.tool_registry.dynamic_tools.values())
        )
        # Some models answer with JSON when they must answer with an object.
        output: Any = json_data(text) if wants_object else text
        is_talk = wants_object and isinstance(output, str)
        if is_talk or response.stop_reason not in ANSWER_STOP_REASONS:
            return

        if await run.judge(output):
            event.retry = True
        elif run.has_better:
            message["content"] = [{"text": run.best_text}]

    @hook
    async def ask(self, event: BeforeToolCallEvent) -> None:
        """Ask memory about a call; with `hold_back`, cancel it if it failed before.

        A call may be an object with which the model answers: feedback is its error.
        """
        run = self.runs.get(event.agent)
        use = event.tool_use
        if run is None or event.cancel_tool:
            return
        if not _makes_object(event.selected_tool):
            held_back = await run.ask(use["name"], use["input"], use["toolUseId"])
            event.cancel_tool = held_back or False
            return

        output = _valid_object(event.selected_tool, use["input"])
        if output is not None and await run.judge(output):
            event.cancel_tool = run.feedback
        elif run.has_better:
            event.tool_use = {**use, "input": run.run.best}

    @hook
    async def note_result(self, event: AfterToolCallEvent) -> None:
        """Keep the result of a call; ask memory about an error."""
        run = self.runs.get(event.agent)
        if run is None or event.cancel_message is not None:
            return

        use = event.tool_use
        text = str(event.exception or _result_text(event.result))
        await run.keep(
            use["name"],
            text,
            use["toolUseId"],
            failed=event.result["status"] == "error",
        )

    @hook
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


def _alternating(messages: Messages) -> Messages:
    """Return messages of which no two of one role follow each other.

    A provider may refuse others.
    """
    joined: Messages = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            content = [*joined[-1]["content"], *message["content"]]
            joined[-1] = {**joined[-1], "content": content}
        else:
            joined.append(message)
    return joined


def _is_prompt(message: Message) -> bool:
    """Return True if a message is one of the user, without results of calls."""
    return message["role"] == "user" and not _result_calls(message)


def _result_calls(message: Message) -> list[str]:
    """Return the ids of the calls whose results are in a message."""
    return [
        block["toolResult"]["toolUseId"]
        for block in message["content"]
        if "toolResult" in block
    ]


def _message(role: Any, text: str) -> Message:
    """Return a message of a text."""
    return {"role": role, "content": [{"text": text}]}


def _result_text(result: ToolResult) -> str:
    """Return what a tool returned, as one text."""
    return "\n".join(
        block.get("text") or json.dumps(block["json"], default=repr)
        for block in result["content"]
        if "text" in block or "json" in block
    )


def _makes_object(tool: Any) -> bool:
    """Return True for the tool by which a model answers with an object."""
    return getattr(tool, "tool_type", "") == "structured_output"


def _valid_object(tool: Any, arguments: Any) -> dict[str, Any] | None:
    """Return an answer as data; None for an invalid one: Strands itself asks again."""
    try:
        output: BaseModel = tool.structured_output_model(**arguments)
    except (ValidationError, TypeError):
        return None
    return output.model_dump(mode="json")

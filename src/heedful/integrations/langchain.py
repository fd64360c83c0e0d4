"""heedful in agents of LangChain, LangGraph and deepagents: a middleware.

`HeedfulMiddleware(host)` goes to `create_agent` or `create_deep_agent`, before other
middleware. What a run needs to go on is in the private state of the agent, so a
checkpointer saves it.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, hook_config, types
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.managed.is_last_step import RemainingStepsManager
from langgraph.runtime import Runtime
from langgraph.types import Command

from heedful.integrations.agents import short_id
from heedful.integrations.attempts import (
    Attempts,
    Role,
    checked_host,
    keep_open,
    place_of,
    run_now,
)
from heedful.integrations.host import Host
from heedful.integrations.results import RESULT_KEY
from heedful.loop.codec import verdict_answer
from heedful.loop.record import NO_USAGE, Usage
from heedful.models.answers import usage_of

Request: TypeAlias = types.ModelRequest[Any]
Answer: TypeAlias = types.ModelResponse[Any]
ToolCall: TypeAlias = types.ToolCallRequest
Result: TypeAlias = ToolMessage | Command[Any]
Update: TypeAlias = dict[str, Any] | None
# LangChain's own middleware marks the messages that it makes under this key, too.
MESSAGE_SOURCE_KEY = "lc_source"
# With fewer steps before LangGraph's limit, what the run has learnt is stored at once:
# the limit raises an error outside the agent, and no later hook runs.
MIN_REMAINING_STEPS = 3


class HeedfulState(AgentState[Any]):
    """The state of an agent, with what heedful keeps about the run; it is private."""

    heedful: Annotated[dict[str, Any], types.PrivateStateAttr]
    remaining_steps: Annotated[int, types.PrivateStateAttr, RemainingStepsManager]


class HeedfulMiddleware(AgentMiddleware[HeedfulState, Any, Any]):
    """Recalls before an agent begins, advises at each tool call, judges the answer.

    A rejected answer leaves the state; the next request shows it with what is wrong.
    When the policy ends the run, the best answer is the last message of the state. Put
    it before other middleware: it sees what they add. With `hold_back`, a call that
    failed in earlier runs is answered with the advice once, and runs when the model
    makes it again. The id of a run is the thread's id, with the number of the user's
    turn from the second turn on.
    """

    state_schema = HeedfulState

    def __init__(self, host: Host, *, hold_back: bool = False) -> None:
        super().__init__()
        self.host = checked_host(host)
        self.hold_back = hold_back
        self.tools = ()
        # The runs that are open in this process.
        self.runs: dict[str, Attempts] = {}

    def before_agent(self, state: HeedfulState, runtime: Runtime[Any]) -> Update:
        """Ask memory about the task."""
        return run_now(self._begin(state, get_config()))

    async def abefore_agent(self, state: HeedfulState, runtime: Runtime[Any]) -> Update:
        """Ask memory about the task."""
        return await self._begin(state, get_config())

    def wrap_model_call(
        self, request: Request, handler: Callable[[Request], Answer]
    ) -> Answer:
        """Show the model what memory tells; keep its last text."""
        run, prepared = run_now(self._prepare(request))
        if isinstance(prepared, types.ModelResponse):
            return prepared
        return _heard(run, handler(prepared))

    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[Answer]]
    ) -> Answer:
        """Show the model what memory tells; keep its last text."""
        run, prepared = await self._prepare(request)
        if isinstance(prepared, types.ModelResponse):
            return prepared
        return _heard(run, await handler(prepared))

    def wrap_tool_call(
        self, request: ToolCall, handler: Callable[[ToolCall], Result]
    ) -> Result:
        """Run a tool, unless its call is held back; keep its result."""
        run, held_back = run_now(self._ask(request))
        if held_back is not None:
            return held_back

        try:
            result = handler(request)
        except Exception as error:
            run_now(_keep(run, request, error))
            raise

        run_now(_keep(run, request, result))
        return result

    async def awrap_tool_call(
        self, request: ToolCall, handler: Callable[[ToolCall], Awaitable[Result]]
    ) -> Result:
        """Run a tool, unless its call is held back; keep its result."""
        run, held_back = await self._ask(request)
        if held_back is not None:
            return held_back

        try:
            result = await handler(request)
        except Exception as error:
            await _keep(run, request, error)
            raise

        await _keep(run, request, result)
        return result

    @hook_config(can_jump_to=["model"])
    def after_agent(self, state: HeedfulState, runtime: Runtime[Any]) -> Update:
        """Judge the answer: go back to the model, or end with the best answer."""
        return run_now(self._judge(state))

    @hook_config(can_jump_to=["model"])
    async def aafter_agent(self, state: HeedfulState, runtime: Runtime[Any]) -> Update:
        """Judge the answer: go back to the model, or end with the best answer."""
        return await self._judge(state)

    async def _run(self, state: Any) -> Attempts | None:
        """Return the open run of a state, None if there is none."""
        record = _record_of(state)
        if not record.get("open"):
            return None

        run = self.runs.get(record["id"])
        if run is None:
            # Another process has begun it.
            host_run = self.host.run(record["id"], record["task"])
            run = Attempts(run=host_run, hold_back=self.hold_back)
            await run.begin()
            keep_open(self.runs, record["id"], run)
        return run

    async def _begin(self, state: HeedfulState, config: RunnableConfig) -> Update:
        """Begin a run with the last message of the user; return its record."""
        prompts = _user_prompts(state["messages"])
        if not prompts:
            return None

        # The user may have gone on without the answer of an earlier run.
        earlier_run = await self._run(state)
        if earlier_run is not None:
            await earlier_run.end("partial")

        # A summary may have replaced earlier turns; without a checkpointer only
        # messages count.
        turn = max(_record_of(state).get("turn", 0) + 1, len(prompts))
        id = _thread_id(config)
        if turn > 1:
            id = f"{id}:{turn}"

        host_run = self.host.run(id, str(prompts[-1].text))
        run = Attempts(run=host_run, hold_back=self.hold_back)
        await run.begin_turn()
        keep_open(self.runs, run.run.id, run)
        record = {
            "id": run.run.id,
            "task": run.run.task,
            "turn": turn,
            "asked": prompts[-1].id,
            "last": prompts[-1].id,
            "open": True,
            "next": run.run.next,
        }
        return {RESULT_KEY: record}

    async def _prepare(
        self, request: Request
    ) -> tuple[Attempts | None, Request | Answer]:
        """Return the run, and the request with what memory has.

        If the run repeats a call, return the answer that ends it. If the limit of steps
        is near, store what was learnt.
        """
        state: Mapping[str, Any] = cast("Any", request.state)
        run = await self._run(state)
        if run is None:
            return None, request

        remaining_steps = state.get("remaining_steps", MIN_REMAINING_STEPS)
        is_at_limit = remaining_steps < MIN_REMAINING_STEPS
        closing = run.closing(at_limit=is_at_limit)
        if closing:
            return run, types.ModelResponse([AIMessage(closing)])
        if is_at_limit:
            purpose = "learn before the limit of steps"
            await self.host.guarded(purpose, run.run.study(), otherwise=None)

        record = _record_of(state)
        ids = [message.id for message in request.messages]
        messages = run.advised(
            request.messages,
            task=place_of(ids, record["asked"]),
            last=place_of(ids, record["last"]),
            calls=_result_calls,
            message=_message,
        )
        return run, request.override(messages=messages)

    async def _ask(self, request: ToolCall) -> tuple[Attempts | None, Result | None]:
        """Return the run, and the result of a call if it is held back."""
        run = await self._run(request.state)
        if run is None:
            return None, None

        name = request.tool_call["name"]
        id = request.tool_call["id"] or ""
        text = await run.ask(name, request.tool_call["args"], id)
        if not text:
            return run, None
        return run, ToolMessage(text, tool_call_id=id, name=name, status="error")

    async def _judge(self, state: HeedfulState) -> Update:
        """Judge the answer of an attempt; return the update of the state."""
        run = await self._run(state)
        if run is None:
            return None

        record = _record_of(state)
        messages = state["messages"]
        parsed = state.get("structured_response")
        answer = _last_answer(messages, parsed)
        if answer:
            output = parsed
            if parsed is None:
                output = "".join(str(message.text) for message in answer)
            ids = [message.id for message in messages]
            attempt = messages[place_of(ids, record["last"]) :]
            run.spent = sum(map(_usage_of, attempt), NO_USAGE)
            if await run.judge(output, record["next"]):
                rest = messages[: len(messages) - len(answer)]
                record = {**record, "next": run.run.next}
                return {
                    "messages": [RemoveMessage(message.id) for message in answer],
                    "jump_to": "model",
                    RESULT_KEY: {**record, "last": rest[-1].id if rest else None},
                }

        verdict = await run.end()
        self.runs.pop(record["id"], None)
        update: dict[str, Any] = {RESULT_KEY: {**record, "open": False}}
        if not answer or verdict is None:
            return update

        removed: list[AnyMessage] = []
        if run.has_better:
            removed = answer
            answer = [AIMessage(run.best_text)]
            if parsed is not None:
                update["structured_response"] = run.best_as(type(parsed))

        *rest, last = answer
        meta = {**last.response_metadata, RESULT_KEY: verdict_answer(verdict)}
        last = last.model_copy(update={"response_metadata": meta})
        removals = [RemoveMessage(message.id) for message in removed]
        update["messages"] = [*removals, *rest, last]
        return update


def _message(role: Role, text: str) -> AnyMessage:
    """Return a message of heedful in a chat."""
    marks = {MESSAGE_SOURCE_KEY: RESULT_KEY}
    if role == "user":
        return HumanMessage(text, additional_kwargs=marks)
    return AIMessage(text, additional_kwargs=marks)


def _user_prompts(messages: Sequence[AnyMessage]) -> list[HumanMessage]:
    """Return the messages of the user, without those that middleware made."""
    return [
        message
        for message in messages
        if isinstance(message, HumanMessage)
        and MESSAGE_SOURCE_KEY not in message.additional_kwargs
    ]


def _result_calls(message: AnyMessage) -> list[str]:
    """Return the id of the call whose result a message is."""
    return [message.tool_call_id] if isinstance(message, ToolMessage) else []


def _usage_of(message: AnyMessage) -> Usage:
    """Return the usage of the call of the model that made a message, if one did."""
    if not isinstance(message, AIMessage):
        return NO_USAGE
    return usage_of(message.usage_metadata) or Usage(1)


def _heard(run: Attempts | None, response: Answer) -> Answer:
    """Return the response; keep the last text of the model."""
    if run is not None:
        run.hear(str(response.result[-1].text))
    return response


async def _keep(
    run: Attempts | None, request: ToolCall, result: Result | Exception
) -> None:
    """Keep the result of a call or its error; an interrupt is neither."""
    if run is None or isinstance(result, GraphBubbleUp):
        return

    name = request.tool_call["name"]
    id = request.tool_call["id"] or ""
    if isinstance(result, Exception):
        await run.keep(name, f"{type(result).__name__}: {result}", id, failed=True)
        return

    messages: Sequence[Any] = [result]
    if isinstance(result, Command):
        update = result.update
        messages = update.get("messages", ()) if isinstance(update, Mapping) else ()
    for message in messages:
        if isinstance(message, ToolMessage) and message.tool_call_id == id:
            failed = message.status == "error"
            await run.keep(name, str(message.text), id, failed=failed)


def _thread_id(config: RunnableConfig) -> str:
    """Return the id of a thread; an agent inside an agent has its own.

    Without a thread, it is random.
    """
    options = config.get("configurable", {})
    id = str(options.get("thread_id") or f"run-{secrets.token_hex(8)}")
    parent = str(options.get("checkpoint_ns", "")).rpartition("|")[0]
    if parent:
        id = f"{id}:{parent}"
    return short_id(id)


def _record_of(state: Any) -> dict[str, Any]:
    """Return what the state holds about the run; {} without the hooks of an agent."""
    if not isinstance(state, Mapping):
        return {}
    record: dict[str, Any] = state.get(RESULT_KEY, {})
    return record


def _last_answer(messages: Sequence[AnyMessage], parsed: Any) -> list[AnyMessage]:
    """Return the answer at the end of a chat, [] if the chat has none.

    An answer that is an object, `parsed`, has a tool message, too.
    """
    answers = [
        number
        for number, message in enumerate(messages)
        if isinstance(message, AIMessage)
    ]
    if not answers:
        return []

    answer = list(messages[answers[-1] :])
    return answer if len(answer) == 1 or parsed is not None else []

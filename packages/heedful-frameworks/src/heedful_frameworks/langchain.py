"""heedful in agents of LangChain, LangGraph and deepagents: a middleware.

`HeedfulMiddleware(host)` goes to `create_agent` or `create_deep_agent`, before other
middleware. What a run needs to go on is in the private state of the agent, so a
checkpointer saves it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any, TypeAlias

from langchain.agents.middleware import AgentMiddleware, AgentState, hook_config, types
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime
from langgraph.types import Command

from heedful.integrations.attempts import (
    Adapter,
    Attempts,
    Role,
    place_of,
    run_now,
)
from heedful.integrations.results import RESULT_KEY
from heedful.loop.codec import verdict_answer
from heedful.loop.record import NO_USAGE, Usage
from heedful.models.answers import usage_of
from heedful.validation import Document, storable_id

Request: TypeAlias = types.ModelRequest[Any]
Answer: TypeAlias = types.ModelResponse[Any] | AIMessage
Result: TypeAlias = ToolMessage | Command[Any]
Update: TypeAlias = Document | None
# LangChain's own middleware marks the messages that it makes under this key, too.
MESSAGE_SOURCE_KEY = "lc_source"


class HeedfulState(AgentState[Any]):
    """The state of an agent, with what heedful keeps about the run; it is private."""

    heedful: Annotated[Document, types.PrivateStateAttr]


class HeedfulMiddleware(Adapter, AgentMiddleware[HeedfulState, Any, Any]):
    """Recalls before an agent begins, advises at each tool call, judges the answer.

    A rejected answer leaves the state; the next request shows it with what is wrong.
    When the policy ends the run, the best answer is the last message of the state. Put
    it before other middleware: it sees what they add. With `hold_back`, a call that
    failed in earlier runs is answered with the advice once, and runs when the model
    makes it again. A request that an inner middleware repeats counts as one call. The
    id of a run is the thread's id, with the number of the user's
    turn from the second turn on.
    """

    framework = "LangChain"
    state_schema = HeedfulState

    def before_agent(self, state: HeedfulState, runtime: Runtime[Any]) -> Update:
        """Ask memory about the task."""
        return run_now(self.abefore_agent(state, runtime))

    async def abefore_agent(self, state: HeedfulState, runtime: Runtime[Any]) -> Update:
        """Begin a run with the last message of the user; return its record.

        Messages that middleware made are none of the user.
        """
        prompts = [
            message
            for message in state["messages"]
            if isinstance(message, HumanMessage)
            and MESSAGE_SOURCE_KEY not in message.additional_kwargs
        ]
        if not prompts:
            return None

        # A summary may have replaced earlier turns; without a checkpointer only
        # messages count.
        record = state.get(RESULT_KEY, {})
        turn = max(record.get("turn", 0) + 1, len(prompts))
        thread = _thread_id()
        id = f"{thread}:{turn}" if turn > 1 else thread
        run = self.attempts(id, str(prompts[-1].text))
        await run.begin_turn()
        self.keep_open(run.run.id, run)
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

    def wrap_model_call(
        self, request: Request, handler: Callable[[Request], Answer]
    ) -> Answer:
        """Show the model what memory tells."""
        prepared = run_now(self._prepare(request))
        if isinstance(prepared, AIMessage):
            return prepared
        answer = handler(prepared)
        self._count(request.state, answer)
        return answer

    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[Answer]]
    ) -> Answer:
        """Show the model what memory tells."""
        prepared = await self._prepare(request)
        if isinstance(prepared, AIMessage):
            return prepared
        answer = await handler(prepared)
        self._count(request.state, answer)
        return answer

    def wrap_tool_call(
        self,
        request: types.ToolCallRequest,
        handler: Callable[[types.ToolCallRequest], Result],
    ) -> Result:
        """Run a tool, unless its call is held back; keep its result."""

        async def work(request: types.ToolCallRequest) -> Result:
            # In a thread of its own, a tool may run an event loop.
            return await asyncio.to_thread(handler, request)

        return run_now(self.awrap_tool_call(request, work))

    async def awrap_tool_call(
        self,
        request: types.ToolCallRequest,
        handler: Callable[[types.ToolCallRequest], Awaitable[Result]],
    ) -> Result:
        """Run a tool, unless its call is held back; keep its result."""
        run = await self._run(request.state)
        if run is None:
            return await handler(request)

        name = request.tool_call["name"]
        id = request.tool_call["id"] or ""
        result: Result | str = await run.watch(
            name,
            request.tool_call["args"],
            id,
            work=partial(handler, request),
            text=lambda result: str(_message_in(result).text),
            failed=lambda result: _message_in(result).status == "error",
            # An interrupt is no failure.
            others=(GraphBubbleUp,),
        )
        if isinstance(result, str):
            return ToolMessage(result, tool_call_id=id, name=name, status="error")
        return result

    @hook_config(can_jump_to=["model"])
    def after_agent(self, state: HeedfulState, runtime: Runtime[Any]) -> Update:
        """Judge the answer: go back to the model, or end with the best answer."""
        return run_now(self.aafter_agent(state, runtime))

    @hook_config(can_jump_to=["model"])
    async def aafter_agent(self, state: HeedfulState, runtime: Runtime[Any]) -> Update:
        """Judge the answer: go back to the model, or end with the best answer."""
        run = await self._run(state)
        if run is None:
            return None

        record = state[RESULT_KEY]
        messages = state["messages"]
        parsed = state.get("structured_response")
        answer = _last_answer(messages, parsed)
        removals = [RemoveMessage(message.id) for message in answer]
        if answer:
            output = str(answer[0].text) if parsed is None else parsed
            if await run.judge(output, record["next"]):
                rest = messages[: -len(answer)]
                last = rest[-1].id if rest else None
                record = {**record, "last": last, "next": run.run.next}
                return {"messages": removals, "jump_to": "model", RESULT_KEY: record}

        verdict = await run.end()
        self.runs.pop(record["id"], None)
        update: Document = {RESULT_KEY: {**record, "open": False}}
        if not answer or verdict is None:
            return update

        best = answer[-1]
        if run.has_better:
            best = AIMessage(run.best_text)
            if parsed is not None:
                update["structured_response"] = run.best_as(type(parsed))
        meta = {**best.response_metadata, RESULT_KEY: verdict_answer(verdict)}
        best = best.model_copy(update={"response_metadata": meta})
        update["messages"] = [*removals, best] if run.has_better else [best]
        return update

    async def _run(self, state: Any) -> Attempts | None:
        """Return the open run of a state, None if there is none."""
        record = state.get(RESULT_KEY, {})
        if not record.get("open"):
            return None

        run = self.runs.get(record["id"])
        if run is None:
            # Another process has begun it.
            run = self.attempts(record["id"], record["task"])
            await run.begin()
            messages = state["messages"]
            start = place_of([message.id for message in messages], record["last"])
            run.run.spent = _usage_in(messages[start:])
            self.keep_open(record["id"], run)
        return run

    def _count(self, state: Any, answer: Answer) -> None:
        """Count an answer of the model in the open run of a state.

        The state is no place to count at the end: middleware may remove messages.
        """
        run = self.runs.get(state.get(RESULT_KEY, {}).get("id"))
        if run is not None:
            messages: Any = [answer]
            if not isinstance(answer, AIMessage):
                messages = answer.result
            run.run.spent += _usage_in(messages)

    async def _prepare(self, request: Request) -> Request | AIMessage:
        """Return the request with what memory has, or the answer that ends the run."""
        state: Any = request.state
        run = await self._run(state)
        if run is None:
            return request

        record = state[RESULT_KEY]
        ids = [message.id for message in request.messages]
        task = place_of(ids, record["asked"])
        answers = _answers_in(request.messages[task:])
        closing = run.closing(str(answer.text) for answer in answers)
        if closing:
            return AIMessage(closing)

        messages = run.advised(
            request.messages,
            task=task,
            last=place_of(ids, record["last"]),
            calls=_result_calls,
            message=_message,
        )
        return request.override(messages=messages)


def _thread_id() -> str:
    """Return the id of the thread; an agent inside an agent has its own.

    Without a thread, it is random.
    """
    options = get_config().get("configurable", {})
    id = str(options.get("thread_id") or f"run-{secrets.token_hex(8)}")
    parent = str(options.get("checkpoint_ns", "")).rpartition("|")[0]
    return storable_id(f"{id}:{parent}" if parent else id)


def _answers_in(messages: Sequence[AnyMessage]) -> list[AIMessage]:
    """Return the messages of the model."""
    return [message for message in messages if isinstance(message, AIMessage)]


def _usage_in(messages: Sequence[AnyMessage]) -> Usage:
    """Return what the answers of the model among messages have used."""
    usages = [
        usage_of(answer.usage_metadata) or Usage(1) for answer in _answers_in(messages)
    ]
    return sum(usages, NO_USAGE)


def _last_answer(messages: Sequence[AnyMessage], parsed: Any) -> Sequence[AnyMessage]:
    """Return the answer at the end of a chat, () if the chat has none.

    An answer that is an object, `parsed`, has a tool message, too.
    """
    start = -1 if parsed is None else -2
    end = messages[start:]
    answers = _answers_in(end)
    return end[end.index(answers[-1]) :] if answers else ()


def _message(role: Role, text: str) -> AnyMessage:
    """Return a message of heedful in a chat."""
    kind = HumanMessage if role == "user" else AIMessage
    return kind(text, additional_kwargs={MESSAGE_SOURCE_KEY: RESULT_KEY})


def _message_in(result: Result) -> ToolMessage:
    """Return the message in the result of a call; a command may have none."""
    if isinstance(result, ToolMessage):
        return result
    update = result.update if isinstance(result.update, dict) else {}
    messages = filter(_result_calls, update.get("messages", ()))
    return next(messages, ToolMessage("", tool_call_id=""))


def _result_calls(message: AnyMessage) -> list[str]:
    """Return the id of the call whose result a message is."""
    return [message.tool_call_id] if isinstance(message, ToolMessage) else []

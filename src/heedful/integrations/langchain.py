"""heedful in agents of LangChain, LangGraph and deepagents: a middleware and nodes.

`HeedfulMiddleware(host)` goes to `create_agent` or `create_deep_agent`, before other
middleware. A graph without `create_agent` takes `judge_node`. What a run needs to go on
is in the private state of the agent, so a checkpointer saves it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import (
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Annotated, Any, TypeAlias, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, hook_config, types
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.graph import END
from langgraph.managed.is_last_step import RemainingStepsManager
from langgraph.runtime import Runtime
from langgraph.types import Command
from pydantic_core import to_jsonable_python

from heedful.episodes.episode import Event
from heedful.integrations import PASSED_OUTCOMES, RESULT_KEY
from heedful.integrations.attempts import begin_run, checked_host, run_now
from heedful.integrations.host import Advice, Host, HostRun
from heedful.loop.codec import verdict_answer
from heedful.loop.decide import Again, Done
from heedful.loop.record import Usage
from heedful.models.answers import usage_of

Request: TypeAlias = types.ModelRequest[Any]
Answer: TypeAlias = types.ModelResponse[Any]
Response: TypeAlias = Answer | types.ExtendedModelResponse[Any]
ToolCall: TypeAlias = types.ToolCallRequest
Result: TypeAlias = ToolMessage | Command[Any]
Update: TypeAlias = dict[str, Any] | None
_data = partial(to_jsonable_python, fallback=repr)
# LangChain's own middleware marks the messages that it makes under this key, too.
MESSAGE_SOURCE_KEY = "lc_source"
# With fewer steps before LangGraph's limit, what the run has learnt is stored at once:
# the limit raises an error outside the agent, and no later hook runs.
MIN_REMAINING_STEPS = 3
# The runs that are open in this process; the oldest are forgotten.
MAX_OPEN_RUNS = 256
# The part of a thread's id in the id of a loop, which has at most 200 characters.
MAX_THREAD_ID_CHARS = 150


class HeedfulState(AgentState[Any]):
    """The state of an agent, with what heedful keeps about the run; it is private."""

    heedful: Annotated[dict[str, Any], types.PrivateStateAttr]
    remaining_steps: Annotated[int, types.PrivateStateAttr, RemainingStepsManager]


class HeedfulMiddleware(AgentMiddleware[HeedfulState, Any, Any]):
    """Recalls before an agent begins, advises at each tool call, judges the answer.

    A rejected answer goes back to the model with what is wrong. When the policy ends
    the run, the best answer is the last message of the state. Put it before other
    middleware: it sees what they add, but takes the first system prompt that it gets
    for the developer's. With `hold_back`, a call that failed
    in earlier runs is answered with the advice once, and runs when the model makes it
    again. The id of a run is the thread's id, with the number of the user's turn from
    the second turn on.
    """

    state_schema = HeedfulState

    def __init__(self, host: Host, *, hold_back: bool = False) -> None:
        super().__init__()
        self.host = checked_host(host)
        self.hold_back = hold_back
        self.tools = ()
        # A run is opened once: to open its loop again before its first attempt would
        # count lessons that nobody was shown.
        self.runs: Callable[[str, str], HostRun] = lru_cache(MAX_OPEN_RUNS)(host.run)

    def before_agent(self, state: HeedfulState, runtime: Runtime[Any]) -> Update:
        """Ask memory about the task."""
        return run_now(self._begin(state, get_config()))

    async def abefore_agent(self, state: HeedfulState, runtime: Runtime[Any]) -> Update:
        """Ask memory about the task."""
        return await self._begin(state, get_config())

    def wrap_model_call(
        self, request: Request, handler: Callable[[Request], Answer]
    ) -> Response:
        """Show the model what memory tells, and count its usage."""
        closing = self._closing(request.state)
        if closing is not None:
            return closing

        informed = run_now(self._inform(request))
        return self._take(request, handler(informed))

    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[Answer]]
    ) -> Response:
        """Show the model what memory tells, and count its usage."""
        closing = self._closing(request.state)
        if closing is not None:
            return closing

        informed = await self._inform(request)
        return self._take(request, await handler(informed))

    def wrap_tool_call(
        self, request: ToolCall, handler: Callable[[ToolCall], Result]
    ) -> Result:
        """Add to the result how this call failed before, and what fixed its error."""
        run = self._run(request.state)
        if run is None:
            return handler(request)

        advice, held_back = run_now(self._before(run, request))
        if held_back is not None:
            return held_back

        try:
            result = handler(request)
        except Exception as error:
            run_now(_keep_failure(run, request, error))
            raise

        return run_now(_add_advice(run, request, result, advice))

    async def awrap_tool_call(
        self, request: ToolCall, handler: Callable[[ToolCall], Awaitable[Result]]
    ) -> Result:
        """Run a tool, unless its call is held back; add advice to its result."""
        run = self._run(request.state)
        if run is None:
            return await handler(request)

        advice, held_back = await self._before(run, request)
        if held_back is not None:
            return held_back

        try:
            result = await handler(request)
        except Exception as error:
            await _keep_failure(run, request, error)
            raise

        return await _add_advice(run, request, result, advice)

    @hook_config(can_jump_to=["model"])
    def after_agent(self, state: HeedfulState, runtime: Runtime[Any]) -> Update:
        """Judge the answer: go back to the model, or end with the best answer."""
        return run_now(self._judge(state))

    @hook_config(can_jump_to=["model"])
    async def aafter_agent(self, state: HeedfulState, runtime: Runtime[Any]) -> Update:
        return await self._judge(state)

    def _run(self, state: Any) -> HostRun | None:
        """Return the open run of a state, None if there is none."""
        record = _record_of(state)
        if not record.get("open"):
            return None

        return self.runs(record["id"], record["task"])

    def _closing(self, state: Any) -> Answer | None:
        """Return the answer that ends a run because a call repeats, else None."""
        run = self._run(state)
        if run is None:
            return None

        remaining_steps = state.get("remaining_steps", MIN_REMAINING_STEPS)
        is_at_limit = remaining_steps < MIN_REMAINING_STEPS
        text = run.repeats.closing(at_limit=is_at_limit)
        return types.ModelResponse([AIMessage(text)]) if text else None

    def _take(self, request: Request, response: Answer) -> Response:
        """Keep the last text of the model, and count the usage of a response."""
        run = self._run(request.state)
        if run is not None:
            for message in response.result:
                run.repeats.hear(str(message.text))
        return _count_usage(request, response)

    async def _begin(self, state: HeedfulState, config: RunnableConfig) -> Update:
        """Begin a run with the last message of the user; return its record."""
        prompts = _user_prompts(state["messages"])
        if not prompts:
            return None

        # The user may have gone on without the answer of an earlier run.
        earlier_run = self._run(state)
        if earlier_run is not None:
            await earlier_run.learn(ends="partial")

        # A summary may have replaced earlier turns; without a checkpointer only
        # messages count.
        turn = max(_record_of(state).get("turn", 0) + 1, len(prompts))
        id = _run_id(config, f"run-{secrets.token_hex(8)}")
        if turn > 1:
            id = f"{id}:{turn}"

        task = str(prompts[-1].text)
        run, advice = await begin_run(self.runs, id, task)
        record = {
            "id": run.id,
            "task": task,
            "turn": turn,
            "asked": prompts[-1].id,
            "open": True,
            "advice": advice.text,
            "spent": [0, 0, 0],
            "best": None,
            "attempts": len(run.loop.loop.attempts) if run.loop else None,
        }
        return {RESULT_KEY: record}

    async def _inform(self, request: Request) -> Request:
        """Return the request with what memory has, and without rejected answers.

        The last rejected answer stays. If the limit of steps is near, store what was
        learnt.
        """
        state: Mapping[str, Any] = cast("Any", request.state)
        if state.get("remaining_steps", MIN_REMAINING_STEPS) < MIN_REMAINING_STEPS:
            run = self._run(state)
            if run is not None:
                await self.host.guarded(
                    "learn before the limit of steps", run.study(), otherwise=None
                )

        record = _record_of(state)
        if not record:
            return request

        rejected = _rejected_messages(
            request.messages, record["id"], keep=record["open"]
        )
        rejected_ids = {message.id for message in rejected}
        messages = [
            message for message in request.messages if message.id not in rejected_ids
        ]

        # What memory has comes before the task.
        if record["advice"]:
            ids = [message.id for message in messages]
            task = ids.index(record["asked"]) if record["asked"] in ids else 0
            messages.insert(task, _note_message(record["advice"]))

        return request.override(messages=messages)

    async def _before(
        self, run: HostRun, request: ToolCall
    ) -> tuple[Advice, ToolMessage | None]:
        """Return what is known about a call, and its result if it is held back."""
        call = request.tool_call
        repeated = run.repeats.hold(call["name"], call["args"], call["id"] or "")
        if repeated:
            return Advice(), _held_result(request, repeated)

        advice = await run.before(call["name"], call["args"], call["id"] or "")
        if not (advice and self.hold_back):
            return advice, None

        # An equal call was held back already: it runs now.
        held_call = _digest(f"{call['name']} {_text(call['args'])}")
        messages = request.state["messages"]
        marks = (message.additional_kwargs.get("held") for message in messages)
        if held_call in marks:
            return advice, None

        text = f"{advice.text}\n\nSo the call was held back. Make it again to run it."
        return advice, _held_result(request, text, held=held_call)

    async def _judge(self, state: HeedfulState) -> Update:
        """Judge the answer of an attempt; return the feedback, or the last update."""
        run = self._run(state)
        if run is None:
            return None

        record = _record_of(state)
        parsed = state.get("structured_response")
        answer = _last_answer(state["messages"], parsed)
        output = "".join(str(message.text) for message in answer)
        if parsed is not None:
            output = _data(parsed)

        verdict = None
        if answer:
            attempts = record["attempts"]
            number = None if attempts is None else attempts + 1
            verdict = await run.verdict(output, _usage_of(record), number)

        loop = run.loop.loop if run.loop else None
        if verdict is not None and loop and loop.best == len(loop.attempts):
            record = {**record, "best": {"messages": answer, "parsed": parsed}}

        if isinstance(verdict, Again) and loop:
            record = {**record, "spent": [0, 0, 0], "attempts": len(loop.attempts)}
            text = verdict.feedback or "Try again."
            rejects = [message.id for message in answer]
            feedback = _note_message(text, run=run.id, rejects=rejects)
            return {"messages": [feedback], "jump_to": "model", RESULT_KEY: record}

        done = verdict if isinstance(verdict, Done) else None
        events = [Event("llm_response", _text(output))] if answer else []
        await run.learn(*events, ends=PASSED_OUTCOMES[done.passed if done else None])

        update = _end_update(run, done, state, answer=answer, best=record["best"])
        update[RESULT_KEY] = {**record, "open": False, "advice": "", "best": None}
        return update


def _note_message(text: str, **marks: Any) -> HumanMessage:
    """Return a message of heedful in the user's part of a chat."""
    return HumanMessage(
        text, additional_kwargs={MESSAGE_SOURCE_KEY: RESULT_KEY, **marks}
    )


def _user_prompts(messages: Sequence[AnyMessage]) -> list[HumanMessage]:
    """Return the messages of the user, without those that middleware made."""
    return [
        message
        for message in messages
        if isinstance(message, HumanMessage)
        and MESSAGE_SOURCE_KEY not in message.additional_kwargs
    ]


def _held_result(request: ToolCall, text: str, **marks: str) -> ToolMessage:
    """Return the result of a call that did not run."""
    return ToolMessage(
        text,
        tool_call_id=request.tool_call["id"],
        name=request.tool_call["name"],
        additional_kwargs={MESSAGE_SOURCE_KEY: RESULT_KEY, **marks},
        status="error",
    )


def _end_update(
    run: HostRun,
    done: Done | None,
    state: HeedfulState,
    *,
    answer: Sequence[AnyMessage],
    best: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the messages at the end: the best answer with the verdict on it."""
    update: dict[str, object] = {}
    removed = _rejected_messages(state["messages"], run.id)
    verdict = done or run.unjudged
    added = list(answer) if verdict else []

    loop = run.loop.loop if run.loop else None
    if done and loop and loop.best and loop.best != len(loop.attempts):
        # An answer of an earlier process is known as a text or data.
        if not best:
            text = AIMessage(_text(run.best))
            best = {"messages": [text], "parsed": run.best}

        # With a known id a message takes the place of the old one and is not the
        # last.
        added = [_without_id(message) for message in best["messages"]]
        removed += answer
        if state.get("structured_response") is not None:
            update["structured_response"] = best["parsed"]

    if verdict:
        meta = {**added[-1].response_metadata, RESULT_KEY: verdict_answer(verdict)}
        added[-1] = added[-1].model_copy(update={"response_metadata": meta})

    ids = {message.id for message in removed}
    update["messages"] = [*(RemoveMessage(id) for id in ids if id), *added]
    return update


def judge_node(
    host: Host,
    *,
    again: str,
    done: str = END,
    task: str = "messages",
    answer: str = "messages",
    feedback: str = "feedback",
    verdict: str = "",
) -> RunnableLambda[Any, Any]:
    """Return a node for a `StateGraph` that judges answers and chooses the next node.

    Lead to it from START and from the node `again`, which answers. It goes to `again`
    with what memory has, later with what is wrong, in the key `feedback`; and to `done`
    with the best answer in the key `answer`. If `answer` is messages, the last is the
    answer, and feedback is a message, too. At the end, the key `verdict`, if given, has
    the verdict as JSON data. The id of a run is the thread's id and a digest of the
    task.
    """
    node = _JudgeNode(
        host=checked_host(host),
        again=again,
        done=done,
        task=task,
        answer=answer,
        feedback=feedback,
        verdict=verdict,
    )
    return RunnableLambda(node.judge_sync, node.judge, "judge")


@dataclass(frozen=True, kw_only=True)
class _JudgeNode:
    """The node of `judge_node`, with the runs that are open in this process."""

    host: Host
    again: str
    done: str
    task: str
    answer: str
    feedback: str
    verdict: str
    runs: dict[str, HostRun] = field(default_factory=dict)

    @property
    def is_chat(self) -> bool:
        """True if the answer is the last of the messages in the state."""
        return self.answer == "messages"

    def judge_sync(self, state: Any, config: RunnableConfig) -> Command[Any]:
        """Do what `judge` does, for a synchronous graph."""
        return run_now(self.judge(state, config))

    async def judge(self, state: Any, config: RunnableConfig) -> Command[Any]:
        """Begin a run at a state without an answer; judge an answer."""
        fields: Mapping[str, Any] = state if isinstance(state, Mapping) else vars(state)
        task = _task_of(fields[self.task])
        last = fields.get(self.answer)
        if self.is_chat and last:
            last = last[-1]

        output = _output_of(last)
        is_missing = output in (None, "", []) or isinstance(last, HumanMessage)

        name = f"{_run_id(config, 'graph')}:{_digest(task)}"
        if is_missing or name not in self.runs:
            advice = await self._begin(name, task)
            loop = self.runs[name].loop
            # An earlier process may have begun the loop, whose answer comes now.
            if is_missing or loop is None or loop.created:
                return Command(goto=self.again, update=self._note_update(advice.text))

        usage = None
        if isinstance(last, AIMessage):
            usage = usage_of(last.usage_metadata)
        verdict = await self.runs[name].verdict(output, usage)
        if isinstance(verdict, Again):
            feedback = verdict.feedback or "Try again."
            return Command(goto=self.again, update=self._note_update(feedback))

        run = self.runs.pop(name)
        await run.learn(ends=PASSED_OUTCOMES[verdict.passed if verdict else None])
        return Command(goto=self.done, update=self._final_update(run, verdict, last))

    async def _begin(self, name: str, task: str) -> Advice:
        """Begin the run of this name; forget the oldest ones that nobody ended."""
        for oldest in list(self.runs)[: -(MAX_OPEN_RUNS - 1)]:
            del self.runs[oldest]

        self.runs[name], advice = await begin_run(self.host.run, name, task)
        return advice

    def _note_update(self, text: str) -> dict[str, Any]:
        """Return the update that shows a text to the node that answers."""
        if not self.is_chat:
            return {self.feedback: text}
        return {self.answer: [_note_message(text)] if text else []}

    def _final_update(
        self, run: HostRun, verdict: Done | None, last: Any
    ) -> dict[str, Any]:
        """Return the last update: the verdict, and the best answer if it is another."""
        update: dict[str, object] = {}
        if self.verdict:
            final = verdict or run.unjudged
            update[self.verdict] = verdict_answer(final) if final else None

        if run.best in (None, _output_of(last)):
            return update

        update[self.answer] = run.best
        if self.is_chat:
            best = AIMessage(_text(run.best))
            update[self.answer] = [RemoveMessage(last.id), best]
        return update


def _task_of(value: Any) -> str:
    """Return the task in a state: the last message of the user, or any other value."""
    prompts = _user_prompts(value) if isinstance(value, list) else []
    return str(prompts[-1].text) if prompts else _text(_data(value))


def _output_of(answer: Any) -> Any:
    """Return the text of a message, or any other value as JSON data."""
    return str(answer.text) if isinstance(answer, AIMessage) else _data(answer)


def _run_id(config: RunnableConfig, otherwise: str) -> str:
    """Return the id of the run in a thread; an agent inside an agent has its own.

    Without a thread, it is `otherwise`.
    """
    options = config.get("configurable", {})
    id = str(options.get("thread_id") or otherwise)[:MAX_THREAD_ID_CHARS]
    parent = _parent_of(config)
    return f"{id}:{_digest(parent)}" if parent else id


def _parent_of(config: RunnableConfig) -> str:
    """Return where in another graph an agent runs, "" if it is in none."""
    options = config.get("configurable", {})
    return str(options.get("checkpoint_ns", "")).rpartition("|")[0]


def _digest(text: str) -> str:
    """Return the first 12 digits of the SHA-256 of a text in hex."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def _record_of(state: Any) -> dict[str, Any]:
    """Return what the state holds about the run; {} without the hooks of an agent."""
    if not isinstance(state, Mapping):
        return {}
    record: dict[str, Any] = state.get(RESULT_KEY, {})
    return record


def _usage_of(record: Mapping[str, Any]) -> Usage:
    """Return the usage of the current attempt."""
    calls, prompt_tokens, completion_tokens = record["spent"]
    return Usage(calls, prompt_tokens, completion_tokens=completion_tokens)


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


def _without_id(message: AnyMessage) -> AnyMessage:
    """Return a message without its id."""
    return message.model_copy(update={"id": None})


def _rejected_messages(
    messages: Sequence[AnyMessage], run: str, keep: bool = False
) -> list[AnyMessage]:
    """Return rejected answers and feedback; `keep` leaves out the last of the run.

    The marks may be those of a client: they hide answers, never what the user says.
    """
    feedback = [
        message
        for message in messages
        if isinstance(message.additional_kwargs.get("rejects"), list)
    ]
    if keep and feedback and feedback[-1].additional_kwargs.get("run") == run:
        feedback = [message for message in feedback if message != feedback[-1]]

    answer_ids: list[Any] = []
    for message in feedback:
        answer_ids += message.additional_kwargs["rejects"]

    return [
        message
        for message in messages
        if message in feedback
        or (isinstance(message, AIMessage | ToolMessage) and message.id in answer_ids)
    ]


def _count_usage(request: Request, response: Answer) -> Response:
    """Return the response, with a command that adds its usage to the attempt's."""
    record = _record_of(request.state)
    if not record:
        return response

    # A model may return an object again, which would take the place of the rejected
    # answer.
    ids = {message.id for message in request.state["messages"]}
    result = [
        _without_id(message) if message.id in ids else message
        for message in response.result
    ]

    spent = _usage_of(record)
    for message in result:
        if isinstance(message, AIMessage):
            spent += usage_of(message.usage_metadata) or Usage(1)

    counts = [spent.calls, spent.prompt_tokens, spent.completion_tokens]
    return types.ExtendedModelResponse(
        replace(response, result=result),
        Command(update={RESULT_KEY: {**record, "spent": counts}}),
    )


async def _keep_failure(run: HostRun, request: ToolCall, error: Exception) -> None:
    """Record the exception of a tool; an interrupt is not a failure."""
    if isinstance(error, GraphBubbleUp):
        return

    call = request.tool_call
    text = f"{type(error).__name__}: {error}"
    await run.seen(call["name"], text, call["id"] or "")
    run.repeats.note(call["id"] or "", text, failed=True)


async def _add_advice(
    run: HostRun, request: ToolCall, result: Result, advice: Advice
) -> Result:
    """Record the result of a call; add what memory has on the call and its error."""
    name = request.tool_call["name"]
    id = request.tool_call["id"] or ""
    update: Any = {"messages": [result]}
    if isinstance(result, Command):
        update = result.update
    messages = list(update.get("messages", [])) if isinstance(update, Mapping) else []

    answers = [
        number
        for number, message in enumerate(messages)
        if isinstance(message, ToolMessage) and message.tool_call_id == id
    ]
    if not answers:
        return result

    answer = messages[answers[0]]
    output = str(answer.text)

    texts = [advice.text] if advice else []
    if answer.status == "error":
        fixes = await run.seen(name, output, id)
        if fixes and fixes.lessons - advice.lessons:
            texts.append(fixes.text)
    else:
        await run.learn(Event("tool_response", output, tool=name, call=id))
    note = run.repeats.note(id, output, failed=answer.status == "error")
    texts += [note] if note else []

    if not texts:
        return result

    # A result has one text, or blocks of texts, images and others.
    if isinstance(answer.content, str):
        content: Any = "\n\n".join([answer.content, *texts])
    else:
        blocks = [{"type": "text", "text": text} for text in texts]
        content = [*answer.content, *blocks]

    advised = answer.model_copy(update={"content": content})
    if not isinstance(result, Command):
        return advised

    messages[answers[0]] = advised
    return replace(result, update={**update, "messages": messages})


def _text(value: Any) -> str:
    """Return a text as it is, and other data as JSON with sorted keys."""
    if isinstance(value, str):
        return value
    return json.dumps(value, default=repr, sort_keys=True)

"""heedful in agents of LangChain, LangGraph and deepagents: one middleware, and nodes
for graphs.

`HeedfulMiddleware(host)` goes to `create_agent` or `create_deep_agent`, before other
middleware. A graph without `create_agent` takes `recall_node` and `judge_node`. What a
run needs to go on is in the private state of the agent, so a checkpointer saves it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from functools import lru_cache, partial
from typing import Annotated, Any, TypeAlias, TypeVar

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

from heedful.drive.portal import run_sync
from heedful.errors import Conflict
from heedful.integrations import PASSED_OUTCOMES, RESULT_KEY
from heedful.integrations.host import Advice, Host, HostRun
from heedful.loop.codec import verdict_to
from heedful.loop.decide import Again, Done
from heedful.loop.record import Usage
from heedful.models.contract import usage_of
from heedful.traces.episode import Event

T = TypeVar("T")
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


class HeedfulState(AgentState[Any]):
    """The state of an agent, with what heedful keeps about the run; callers do not see
    it.
    """

    heedful: Annotated[dict[str, Any], types.PrivateStateAttr]
    remaining_steps: Annotated[int, types.PrivateStateAttr, RemainingStepsManager]


class HeedfulMiddleware(AgentMiddleware[HeedfulState, Any, Any]):
    """Recall before an agent begins, advise at each tool call, and judge the final
    answer.

    A rejected answer goes back to the model with what is wrong. When the policy ends
    the run, the best answer is the last message of the state. Put it before middleware
    that turns exceptions of tools into messages. With `hold_back`, a call that failed
    in earlier runs is answered with the advice once, and runs when the model makes it
    again. The id of a run is the thread's id, with the number of the user's turn from
    the second turn on.
    """

    state_schema = HeedfulState

    def __init__(self, host: Host, *, hold_back: bool = False) -> None:
        super().__init__()
        self.host = host
        self.hold_back = hold_back
        self.tools = ()
        # To open a loop again before its first attempt would count lessons that nobody
        # was shown.
        self.runs: Callable[[str, str], HostRun] = lru_cache(256)(host.run)

    def before_agent(self, state: HeedfulState, runtime: Runtime[Any]) -> Update:
        """Ask memory about the task."""
        return _wait(self._begin(state, get_config()))

    async def abefore_agent(self, state: HeedfulState, runtime: Runtime[Any]) -> Update:
        return await self._begin(state, get_config())

    def wrap_model_call(
        self, request: Request, handler: Callable[[Request], Answer]
    ) -> Response:
        """Show the model what memory tells, and count its usage."""
        return _counted(request, handler(_wait(self._informed(request))))

    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[Answer]]
    ) -> Response:
        return _counted(request, await handler(await self._informed(request)))

    def wrap_tool_call(
        self, request: ToolCall, handler: Callable[[ToolCall], Result]
    ) -> Result:
        """Add to the result how this call failed before, and what mended its error."""
        if (run := self._run(request.state)) is None:
            return handler(request)
        advice, held_back = _wait(self._before(run, request))
        if held_back is not None:
            return held_back
        try:
            result = handler(request)
        except Exception as error:
            _wait(_failed(run, request, error))
            raise
        return _wait(_after(run, request, result, advice))

    async def awrap_tool_call(
        self, request: ToolCall, handler: Callable[[ToolCall], Awaitable[Result]]
    ) -> Result:
        if (run := self._run(request.state)) is None:
            return await handler(request)
        advice, held_back = await self._before(run, request)
        if held_back is not None:
            return held_back
        try:
            result = await handler(request)
        except Exception as error:
            await _failed(run, request, error)
            raise
        return await _after(run, request, result, advice)

    @hook_config(can_jump_to=["model"])
    def after_agent(self, state: HeedfulState, runtime: Runtime[Any]) -> Update:
        """Judge the answer: back to the model with what is wrong, or end with the best
        answer.
        """
        return _wait(self._judge(state))

    @hook_config(can_jump_to=["model"])
    async def aafter_agent(self, state: HeedfulState, runtime: Runtime[Any]) -> Update:
        return await self._judge(state)

    def _run(self, state: Any) -> HostRun | None:
        """Return the open run of a state."""
        return (
            self.runs(held["id"], held["task"])
            if (held := _held(state)).get("open")
            else None
        )

    async def _begin(self, state: HeedfulState, config: RunnableConfig) -> Update:
        if not (said := _said(state["messages"])):
            return None
        if (
            left := self._run(state)
        ) is not None:  # the user went on without its answer
            await left.learn(ends="partial")
        # A summary may have replaced earlier turns; without a checkpointer only
        # messages count.
        turn = max(_held(state).get("turn", 0) + 1, len(said))
        id = _run_id(config, f"run-{secrets.token_hex(8)}")
        task = str(said[-1].text)
        run, advice = await _begun(self.runs, f"{id}:{turn}" if turn > 1 else id, task)
        held = {
            "id": run.id,
            "task": task,
            "turn": turn,
            "asked": said[-1].id,
            "open": True,
        }
        held |= {"advice": advice.text, "spent": [0, 0, 0], "best": None}
        held["attempts"] = len(run.loop.loop.attempts) if run.loop else None
        return {RESULT_KEY: held}

    async def _informed(self, request: Request) -> Request:
        """Return the request with what memory told, and without all rejected answers
        but the last.

        If the limit of steps is near, store what was learnt.
        """
        state: Any = request.state
        if state.get("remaining_steps", MIN_REMAINING_STEPS) < MIN_REMAINING_STEPS and (
            run := self._run(state)
        ):
            await self.host.guarded(
                "learn before the limit of steps", run.study(), otherwise=None
            )
        if not (held := _held(state)):
            return request
        dropped = {
            one.id for one in _rejected(request.messages, held["id"], keep=held["open"])
        }
        kept = [one for one in request.messages if one.id not in dropped]
        if held["advice"]:
            at = next((n for n, one in enumerate(kept) if one.id == held["asked"]), 0)
            kept.insert(
                at,
                HumanMessage(
                    held["advice"], additional_kwargs={MESSAGE_SOURCE_KEY: RESULT_KEY}
                ),
            )
        return request.override(messages=kept)

    async def _before(
        self, run: HostRun, request: ToolCall
    ) -> tuple[Advice, ToolMessage | None]:
        """Return what is known about a call, and its result if it is held back."""
        call = request.tool_call
        advice = await run.before(call["name"], call["args"], call["id"] or "")
        if not (advice and self.hold_back):
            return advice, None
        mark = {
            MESSAGE_SOURCE_KEY: RESULT_KEY,
            "held": _digest(f"{call['name']} {_text(call['args'])}"),
        }
        if any(one.additional_kwargs == mark for one in request.state["messages"]):
            return advice, None
        held = {
            "tool_call_id": call["id"],
            "name": call["name"],
            "additional_kwargs": mark,
        }
        said = f"{advice.text}\n\nSo the call was held back. Make it again to run it."
        return advice, ToolMessage(said, **held, status="error")

    async def _judge(self, state: HeedfulState) -> Update:
        if (run := self._run(state)) is None:
            return None
        held = _held(state)
        parsed = state.get("structured_response")
        messages = state["messages"]
        ais = [n for n, one in enumerate(messages) if isinstance(one, AIMessage)]
        answer = messages[ais[-1] :] if ais else []  # an object has a tool message, too
        answer = answer if len(answer) == 1 or parsed is not None else []
        output = (
            _data(parsed)
            if parsed is not None
            else "".join(str(one.text) for one in answer)
        )
        number = None if held["attempts"] is None else held["attempts"] + 1
        verdict = (
            await run.verdict(output, Usage(*held["spent"]), number) if answer else None
        )
        now = run.loop.loop if run.loop else None
        if verdict is not None and now and now.best == len(now.attempts):
            held = {**held, "best": {"messages": answer, "parsed": parsed}}
        if isinstance(verdict, Again) and now:
            held = {**held, "spent": [0, 0, 0], "attempts": len(now.attempts)}
            about = {
                MESSAGE_SOURCE_KEY: RESULT_KEY,
                "run": run.id,
                "rejects": [one.id for one in answer],
            }
            said = HumanMessage(
                verdict.feedback or "Try again.", additional_kwargs=about
            )
            return {"messages": [said], "jump_to": "model", RESULT_KEY: held}
        events = [Event("llm_response", _text(output))] if answer else []
        done = verdict if isinstance(verdict, Done) else None
        await run.learn(*events, ends=PASSED_OUTCOMES[done and done.passed])
        gone = _rejected(messages, run.id)
        told = done or run.unjudged
        made = answer if told else []
        update: dict[str, Any] = {
            RESULT_KEY: {**held, "open": False, "advice": "", "best": None}
        }
        if done and now and now.best and now.best != len(now.attempts):
            # An earlier process may have made the best answer: it is a text or data
            # then.
            best = held["best"] or {
                "messages": [AIMessage(_text(run.best))],
                "parsed": run.best,
            }
            # With a known id a message takes the place of the old one and is not the
            # last.
            made = [one.model_copy(update={"id": None}) for one in best["messages"]]
            gone += answer
            update |= {} if parsed is None else {"structured_response": best["parsed"]}
        if told:  # the last message tells it
            meta = {**made[-1].response_metadata, RESULT_KEY: verdict_to(told)}
            made = [*made[:-1], made[-1].model_copy(update={"response_metadata": meta})]
        removed = [RemoveMessage(id) for id in {one.id for one in gone} if id]
        return {**update, "messages": [*removed, *made]}


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
    """Return a node for a `StateGraph` that begins a run, judges answers and chooses
    the next node.

    Lead to it from START and from the node `again`, which answers. It goes to `again`
    with what memory tells, later with what is wrong, in the key `feedback`; and to
    `done` with the best answer in the key `answer`. If `answer` is messages, the last
    is the answer, and feedback is a message, too. At the end, the key `verdict`, if
    given, has the verdict as JSON data. The id of a run is the thread's id and a digest
    of the task.
    """
    runs = dict[str, HostRun]()
    chat = answer == "messages"

    async def judge(state: Any, config: RunnableConfig) -> Command[Any]:
        held: Mapping[str, Any] = state if isinstance(state, Mapping) else vars(state)
        said = _said(held[task]) if isinstance(held[task], list) else []
        made = held.get(answer)
        asked = str(said[-1].text) if said else _text(_data(held[task]))
        last: Any = made[-1] if chat and made else made
        output = str(last.text) if isinstance(last, AIMessage) else _data(last)
        missing = output in (None, "", []) or isinstance(last, HumanMessage)
        name = f"{_run_id(config, 'graph')}:{_digest(asked)}"
        if missing or name not in runs:
            for left in list(runs)[:-255]:  # runs that nobody ended
                del runs[left]
            runs[name], advice = await _begun(host.run, name, asked)
            if missing or not (loop := runs[name].loop) or loop.created:
                return Command(goto=again, update=noted(advice.text))
        judged = await runs[name].verdict(output)
        if isinstance(judged, Again):
            return Command(goto=again, update=noted(judged.feedback or "Try again."))
        run = runs.pop(name)
        await run.learn(ends=PASSED_OUTCOMES[judged and judged.passed])
        told = judged or run.unjudged
        update: dict[str, Any] = {verdict: told and verdict_to(told)} if verdict else {}
        if run.best not in (None, output):
            best = (
                [RemoveMessage(last.id), AIMessage(_text(run.best))]
                if chat
                else run.best
            )
            update |= {answer: best}
        return Command(goto=done, update=update)

    def noted(text: str) -> dict[str, Any]:
        note = (
            [HumanMessage(text, additional_kwargs={MESSAGE_SOURCE_KEY: RESULT_KEY})]
            if text
            else []
        )
        return {answer: note} if chat else {feedback: text}

    return RunnableLambda(
        lambda state, config: _wait(judge(state, config)), judge, "judge"
    )


async def _begun(
    open: Callable[[str, str], HostRun], id: str, task: str
) -> tuple[HostRun, Advice]:
    """Begin or continue a run; if the id belongs to an ended or another run, add to
    it.
    """
    run = open(id, task)
    with suppress(Conflict):
        advice = await run.recall()
        if not run.judges or (run.loop and not run.loop.ended):
            return run, advice
    run = open(f"{id}~{secrets.token_hex(4)}", task)
    return run, await run.recall()


def _run_id(config: RunnableConfig, otherwise: str) -> str:
    """Return the id of the run in a thread; agents inside an agent have ids of their
    own.
    """
    held = config.get("configurable", {})
    id = str(held.get("thread_id") or otherwise)[:150]  # a loop's id has at most 200
    parent = str(held.get("checkpoint_ns", "")).rpartition("|")[0]
    return f"{id}:{_digest(parent)}" if parent else id


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def _wait(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine for a synchronous caller, which may be inside a running event
    loop.
    """
    with ThreadPoolExecutor(1) as thread:  # has no loop
        return thread.submit(copy_context().run, run_sync, work).result()


def _held(state: Any) -> dict[str, Any]:
    """Return what the state holds about the run; {} for an agent or a tool without the
    hooks.
    """
    held: dict[str, Any] = (
        state.get(RESULT_KEY, {}) if isinstance(state, Mapping) else {}
    )
    return held


def _rejected(
    messages: Sequence[AnyMessage], run: str, keep: bool = False
) -> list[AnyMessage]:
    """Return rejected answers with the feedback on them; `keep` leaves out the run's
    last.
    """
    said = [one for one in messages if "rejects" in one.additional_kwargs]
    last = (
        said[-1:] if keep and said and said[-1].additional_kwargs["run"] == run else []
    )
    said = [one for one in said if one not in last]
    answers = {id for one in said for id in one.additional_kwargs["rejects"]}
    return [one for one in messages if one in said or one.id in answers]


def _counted(request: Request, response: Answer) -> Response:
    """Return the response, with a command that adds its usage to that of the
    attempt.
    """
    if not (held := _held(request.state)):
        return response
    # A model may return an object again, which would take the place of the rejected
    # answer.
    known = {one.id for one in request.state["messages"]}
    new = [
        one.model_copy(update={"id": None}) if one.id in known else one
        for one in response.result
    ]
    response = replace(response, result=new)
    made = [one for one in response.result if isinstance(one, AIMessage)]
    spent = sum(
        (usage_of(one.usage_metadata) or Usage(1) for one in made),
        Usage(*held["spent"]),
    )
    counts = [spent.calls, spent.prompt_tokens, spent.completion_tokens]
    return types.ExtendedModelResponse(
        response, Command(update={RESULT_KEY: {**held, "spent": counts}})
    )


async def _failed(run: HostRun, request: ToolCall, error: Exception) -> None:
    call = request.tool_call
    if not isinstance(error, GraphBubbleUp):  # an interrupt is no failure
        await run.seen(
            call["name"], f"{type(error).__name__}: {error}", call["id"] or ""
        )


async def _after(
    run: HostRun, request: ToolCall, result: Result, advice: Advice
) -> Result:
    """Record the result of a call, and add what memory tells about the call and its
    error.
    """
    name = request.tool_call["name"]
    id = request.tool_call["id"] or ""
    update: Any = (
        result.update if isinstance(result, Command) else {"messages": [result]}
    )
    messages = list(update.get("messages", [])) if isinstance(update, Mapping) else []
    answers = [
        one
        for one in messages
        if isinstance(one, ToolMessage) and one.tool_call_id == id
    ]
    if not answers:
        return result
    said = str(answers[0].text)
    mended = Advice()
    if answers[0].status == "error":
        mended = await run.seen(name, said, id)
    else:
        await run.learn(Event("tool_response", said, tool=name, call=id))
    new = [mended] if mended.lessons - advice.lessons else []
    texts = [one.text for one in (advice, *new) if one]
    if not texts:
        return result
    content = answers[0].content
    blocks = [{"type": "text", "text": text} for text in texts]
    whole = (
        [*content, *blocks]
        if isinstance(content, list)
        else "\n\n".join([content, *texts])
    )
    told = answers[0].model_copy(update={"content": whole})
    if not isinstance(result, Command):
        return told
    messages[messages.index(answers[0])] = told
    return replace(result, update={**update, "messages": messages})


def _said(messages: Sequence[AnyMessage]) -> list[HumanMessage]:
    """Return the messages of the user, without those that middleware made."""
    said = [one for one in messages if isinstance(one, HumanMessage)]
    return [one for one in said if MESSAGE_SOURCE_KEY not in one.additional_kwargs]


def _text(value: Any) -> str:
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, default=repr, sort_keys=True)
    )

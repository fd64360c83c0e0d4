"""The spans of traces, in any order -> one episode a trace. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from heedful.loop.record import Usage
from heedful.memory.episode import Ended, Episode, Event, Fault
from heedful.traces.gather import Gathering, Limits, held, opaque, short
from heedful.traces.otlp import Span
from heedful.traces.steps import Step, error_of, step_of

SOURCE = "otlp"
# So many open calls of a tool are looked through for the arguments of a span that names no call.
OPEN = 1_000


@dataclass(slots=True)
class _Node:
    """A span in its trace; `start` and `end` in nanoseconds, 0 where they are not known."""

    id: str
    parent: str
    start: int
    end: int
    status: str
    step: Step | None
    error: tuple[str, str] | None = None


@dataclass(slots=True)
class _Trace:
    nodes: dict[str, _Node] = field(default_factory=dict)
    # What was told before is kept once: each call of a model repeats the chat so far.
    texts: dict[Hashable, Event] = field(default_factory=dict)


class Traces:
    """Spans as they come; what they tell is cut at once, and put in order at the end.

    One episode a trace, with its id. Events are in the order of time, a span's input at its start
    and its output at its end, parents before children; without times in that of the file. What
    models and agents are told again is told once. A call that a model asks for, its tool's span and
    the result in the next prompt are one tool_call and one tool_response; without an id in common,
    a span belongs to the oldest open call of its tool. A span that comes after another of the same
    call has ended is a call of its own. A result that was not recorded is no event.
    The outcome is success or error where the status of the root span says so.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._traces: dict[str, _Trace] = {}

    def add(self, spans: Iterator[Span]) -> list[Episode]:
        """Nothing yet: a trace may go on until the file ends. Raises InvalidInput."""
        most = self._limits.content
        for span in spans:
            trace = self._traces.setdefault(span.trace, _Trace())
            id = opaque(span.id) or f"span {len(trace.nodes) + 1}"
            if id not in trace.nodes:
                raised = error_of(span)
                error = raised and (short(raised[0], most), short(raised[1], most))
                step = step_of(span, error)
                if step is not None:
                    kept = self._alone if step.kind == "tool" else self._shared
                    step.asked = [kept(trace, event) for event in step.asked]
                    step.said = [kept(trace, event) for event in step.said]
                parent, times = opaque(span.parent), (span.start, span.end)
                trace.nodes[id] = _Node(id, parent, *times, span.status, step, error)
        return []

    def _alone(self, trace: _Trace, event: Event) -> Event:
        return held(event, self._limits.content)

    def _shared(self, trace: _Trace, event: Event) -> Event:
        event = held(event, self._limits.content)
        key = (event.call, event.agent, event.tool, _words(event))
        return trace.texts.setdefault(key, event)

    def finish(self) -> list[Episode]:
        """The traces that have a step of a model, a tool or an agent, as they began in the file."""
        return [
            _episode(id, trace, self._limits)
            for id, trace in self._traces.items()
            if any(node.step for node in trace.nodes.values())
        ]


class _Moment(NamedTuple):
    at: int
    place: int
    node: _Node
    ends: bool


def _moments(trace: _Trace) -> list[_Moment]:
    """Where each span begins and ends, in order; no child begins before its parent."""
    nodes = trace.nodes
    children: dict[str, list[_Node]] = {}
    for node in nodes.values():
        if node.parent in nodes and node.parent != node.id:
            children.setdefault(node.parent, []).append(node)
    roots = [node for node in nodes.values() if node.parent not in nodes or node.parent == node.id]
    moments: list[_Moment] = []
    seen: set[str] = set()
    for root in (*sorted(roots, key=_start), *nodes.values()):  # last what goes round in circles
        if root.id not in seen:
            _walk(root, children, seen, moments)
    return sorted(moments)


def _start(node: _Node) -> int:
    return node.start


def _walk(
    root: _Node, children: dict[str, list[_Node]], seen: set[str], moments: list[_Moment]
) -> None:
    """Down and up again; a child without an agent of its own works for that of its parent."""
    waiting: list[tuple[_Node, int, str, _Node | None, bool]] = [(root, 0, "", None, False)]
    while waiting:
        node, after, agent, model, ends = waiting.pop()
        if ends:
            last = moments[-1].at if not node.end else after
            moments.append(_Moment(max(after, last), len(moments), node, True))
            continue
        if node.id in seen:
            continue
        seen.add(node.id)
        start = max(node.start, after)
        if node.step is not None:
            node.step.agent = agent = node.step.agent or agent
            if node.step.kind == "model":
                if model is not None and model.step is not None:
                    model.step.kind = "around"  # it only passes on what the inner one answers
                model = node
        moments.append(_Moment(start, len(moments), node, False))
        waiting.append((node, max(node.end, start), agent, model, True))
        ordered = sorted(children.get(node.id, ()), key=_start)
        waiting += ((child, start, agent, model, False) for child in ordered[::-1])


class _Telling:
    """What has been told of a trace, so that nothing is told twice."""

    def __init__(self, limits: Limits) -> None:
        self.gathering = Gathering(limits, SOURCE)
        self._told: Counter[Hashable] = Counter()
        self._calls: set[tuple[str, str]] = set()  # by type and call: calls and responses
        self._done: set[str] = set()  # calls of which a span has ended
        self._now: dict[str, str] = {}  # what a call of the same id is called by now
        self._open: dict[str, dict[str, object]] = {}  # tool -> its calls without a span
        self._tools: dict[str, str] = {}
        self._made: Counter[str] = Counter()

    def begin(self, node: _Node, step: Step, at: int) -> None:
        """What went into a span."""
        if step.kind == "tool":
            self._begin_tool(node, step, at)
        else:
            self._pass_on(node, step.asked, "", at)

    def end(self, node: _Node, step: Step, at: int) -> None:
        """What came out of it."""
        if step.kind == "around":
            self._pass_on(node, step.said, step.agent, at)
        if step.kind == "tool":
            self._done.add(step.asked[0].call)
        for event in step.said if step.kind != "around" else ():
            if step.kind == "tool":
                event = replace(event, call=step.asked[0].call)
            if not (event.call and (event.type, event.call) in self._calls):
                self._tell(node, event, step.agent, at)
        if node.error is not None:
            message, code = node.error
            if step.kind != "tool" and not self._told[message]:
                self._tell(node, Event("error_event", error=message, code=code), step.agent, at)
            self._told[message] += 1
        elif step.kind == "model" and not step.said:
            self._tell(node, Event("llm_response"), step.agent, at)

    def _begin_tool(self, node: _Node, step: Step, at: int) -> None:
        event = step.asked[0]
        waiting = self._open.get(event.tool, {})
        oldest = islice(waiting.items(), OPEN)
        same = (call for call, given in oldest if given == event.arguments)
        named = event.call or next(same, "") or next(iter(waiting), "") or node.id
        call = self._now.get(named, named)
        if call in self._done:  # some give the calls of every answer the same ids
            call = self._now[named] = node.id
        waiting.pop(call, None)
        step.asked[0] = event = replace(event, call=call)
        if (event.type, call) not in self._calls:
            self._tell(node, event, step.agent, at)
            self._open[self._tools[call]].pop(call)

    def _pass_on(self, node: _Node, events: list[Event], agent: str, at: int) -> None:
        """Of a chat that was told in part, the rest."""
        here: Counter[Hashable] = Counter()
        for event in events:
            key = _words(event)
            here[key] += 1
            by_call = event.call and (event.type, event.call) in self._calls
            if not by_call and (event.call or here[key] > self._told[key]):
                self._tell(node, event, agent, at)

    def _tell(self, node: _Node, event: Event, agent: str, at: int) -> None:
        self._told[_words(event)] += 1
        self._made[node.id] += 1
        id = f"{node.id}/{self._made[node.id]}"
        call, tool = event.call, event.tool or self._tools.get(event.call, "")
        if event.type == "tool_call":
            call = call or id
            self._tools[call] = tool
            self._open.setdefault(tool, {})[call] = event.arguments
        elif call:
            self._open.get(tool, {}).pop(call, None)
        self._calls.add((event.type, call))
        who = event.agent or ("" if event.type in ("user_message", "system_event") else agent)
        when = at / 1e9 if at else None
        given = (event.arguments, call, event.error, id, event.code, when, event.meta)
        self.gathering.add(Event(event.type, event.content, who, tool, *given))


def _words(event: Event) -> Hashable:
    """What it says, whoever gave it an id."""
    return event.type, event.content, event.error, event.tool and repr(event.arguments)


def _episode(id: str, trace: _Trace, limits: Limits) -> Episode:
    telling = _Telling(limits)
    moments = _moments(trace)
    for moment in moments:
        if step := moment.node.step:
            (telling.end if moment.ends else telling.begin)(moment.node, step, moment.at)
    steps = [moment.node.step for moment in moments if moment.node.step and not moment.ends]
    roots = [m.node for m in moments if not m.ends and m.node.parent not in trace.nodes]
    errors = [node.error for node in roots if node.error]
    fault = Fault(errors[-1][1] or "error", errors[-1][0]) if errors else None
    well = bool(roots) and all(node.status == "ok" for node in roots)
    outcome: Ended | None = "success" if well else None
    return telling.gathering.episode(
        outcome=outcome,
        fault=fault,
        id=id,
        session=next((step.session for step in steps if step.session), ""),
        tools=(name for step in steps for name in step.tools),
        usage=_usage(steps, moments),
    )


def _usage(steps: list[Step], moments: list[_Moment]) -> Usage:
    """Of the models' answers; where none is recorded, of the agents around them."""
    models = [step for step in steps if step.kind == "model"]
    counted = models or steps[:1]
    times = [moment.at for moment in moments if moment.at]
    return Usage(
        len(models),
        sum(step.tokens[0] for step in counted),
        sum(step.tokens[1] for step in counted),
        sum(step.cost for step in counted),
        (max(times) - min(times)) / 1e9 if times else 0.0,
    )

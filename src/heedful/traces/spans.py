"""The spans of traces, in any order -> one episode a trace; and spans that wait for the rest. Pure.

Services send spans in pieces. A `Piece` is one span as it waits in a store, without secrets; when
its trace has ended, `episodes` turns the pieces into an episode, as `SpanReader` does for a file.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

from heedful.loop.record import Usage
from heedful.redact import redact, redact_data
from heedful.traces.episode import (
    DEEPEST,
    LONGEST_NAME,
    Ended,
    Episode,
    Event,
    Fault,
    Gathering,
    Limits,
    bounded_event,
    is_deep,
    safe_id,
    shorten,
)
from heedful.traces.otlp import (
    Attributes,
    Span,
    Step,
    error_of,
    from_json,
    from_request,
    json_data,
    step_of,
)

# How many open calls of a tool are searched for the arguments of a span that names no call.
MOST_OPEN = 1_000


@dataclass(slots=True)
class _Node:
    """A span in its trace; `start` and `end` in nanoseconds, 0 if unknown."""

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
    # Equal events are kept once: each call of a model repeats the chat so far.
    texts: dict[Hashable, Event] = field(default_factory=dict)


class SpanReader:
    """Collects spans as they come, cut at once, and puts them in order at the end.

    One episode a trace. Events are in the order of time, a span's input at its start and its output
    at its end, parents before children; without times in file order. What a model is sent again
    appears once. A call that a model asks for, the span of its tool and the result in the next
    prompt are one tool_call and one tool_response.
    """

    source = "otlp"

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._traces: dict[str, _Trace] = {}

    def add(self, value: Any) -> list[Episode]:
        """Take a request to export spans, JSON or protobuf. Raises InvalidInput, ImportError."""
        return self.add_spans(from_request(value) if isinstance(value, bytes) else from_json(value))

    def add_spans(self, spans: Iterable[Span]) -> list[Episode]:
        """Take spans; a trace may continue until the file ends. Raises InvalidInput."""
        most = self._limits.content
        for span in spans:
            trace = self._traces.setdefault(span.trace, _Trace())
            id = safe_id(span.id) or f"span {len(trace.nodes) + 1}"
            if id not in trace.nodes:
                raised = error_of(span)
                error = raised and (shorten(raised[0], most), shorten(raised[1], most))
                step = step_of(span, error)
                if step is not None:
                    step.inputs = [self._kept(trace, step, event) for event in step.inputs]
                    step.outputs = [self._kept(trace, step, event) for event in step.outputs]
                parent, times = safe_id(span.parent), (span.start, span.end)
                trace.nodes[id] = _Node(id, parent, *times, span.status, step, error)
        return []

    def _kept(self, trace: _Trace, step: Step, event: Event) -> Event:
        event = bounded_event(event, self._limits.content)
        if step.kind == "tool":
            return event
        key = (event.call, event.agent, event.tool, _content_key(event))
        return trace.texts.setdefault(key, event)

    def finish(self) -> list[Episode]:
        """Return the episodes of traces with a step of a model, tool or agent, in file order."""
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


def _moments(nodes: Mapping[str, _Node]) -> list[_Moment]:
    """Return the starts and ends of all spans in order; no child starts before its parent."""
    roots: list[_Node] = []
    children: dict[str, list[_Node]] = {}
    for node in sorted(nodes.values(), key=lambda node: node.start):
        inner = node.parent in nodes and node.parent != node.id
        (children.setdefault(node.parent, []) if inner else roots).append(node)
    moments: list[_Moment] = []
    seen: set[str] = set()
    for root in (*roots, *nodes.values()):  # cycles of parents come last
        _walk(root, children, seen, moments)
    return sorted(moments)


def _walk(
    root: _Node, children: dict[str, list[_Node]], seen: set[str], moments: list[_Moment]
) -> None:
    """Visit a span and its children; a child without an agent has that of its parent."""
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
                    model.step.kind = "around"  # it only passes on the answer of the inner model
                model = node
        moments.append(_Moment(start, len(moments), node, False))
        waiting.append((node, max(node.end, start), agent, model, True))
        inner = reversed(children.get(node.id, ()))
        waiting += ((child, start, agent, model, False) for child in inner)


class _EventLog:
    """The events of one trace, each recorded once however many spans repeat it."""

    def __init__(self, limits: Limits) -> None:
        self.gathering = Gathering(limits, SpanReader.source)
        self._seen: Counter[Hashable] = Counter()
        self._calls: set[tuple[str, str]] = set()  # by type and call: calls and responses
        self._done: set[str] = set()  # calls whose span has ended
        self._renamed: dict[str, str] = {}  # reused id of a call -> the id it has now
        self._open: dict[str, dict[str, object]] = {}  # tool -> its calls without a span
        self._tools: dict[str, str] = {}
        self._recorded: Counter[str] = Counter()  # events by span

    def begin(self, node: _Node, step: Step, at: int) -> None:
        """Record what went into a span."""
        if step.kind == "tool":
            self._begin_tool(node, step, at)
        else:
            self._record_new(node, step.inputs, "", at)

    def end(self, node: _Node, step: Step, at: int) -> None:
        """Record what came out of a span."""
        if step.kind == "around":
            self._record_new(node, step.outputs, step.agent, at)
        if step.kind == "tool":
            self._done.add(step.inputs[0].call)
        for event in step.outputs if step.kind != "around" else ():
            if step.kind == "tool":
                event = replace(event, call=step.inputs[0].call)
            if not (event.call and (event.type, event.call) in self._calls):
                self._record(node, event, step.agent, at)
        if node.error is not None:
            message, code = node.error
            if step.kind != "tool" and not self._seen[message]:
                self._record(node, Event("error_event", error=message, code=code), step.agent, at)
            self._seen[message] += 1
        elif step.kind == "model" and not step.outputs:
            self._record(node, Event("llm_response"), step.agent, at)

    def _begin_tool(self, node: _Node, step: Step, at: int) -> None:
        event = step.inputs[0]
        waiting = self._open.get(event.tool, {})
        oldest = islice(waiting.items(), MOST_OPEN)
        same = (call for call, arguments in oldest if arguments == event.arguments)
        named = event.call or next(same, "") or next(iter(waiting), "") or node.id
        call = self._renamed.get(named, named)
        if call in self._done:  # some agents reuse the ids of calls in every answer
            call = self._renamed[named] = node.id
        waiting.pop(call, None)
        step.inputs[0] = event = replace(event, call=call)
        if (event.type, call) not in self._calls:
            self._record(node, event, step.agent, at)
            self._open[self._tools[call]].pop(call)

    def _record_new(self, node: _Node, events: list[Event], agent: str, at: int) -> None:
        """Record the events of a chat that were not recorded before."""
        here: Counter[Hashable] = Counter()
        for event in events:
            key = _content_key(event)
            here[key] += 1
            by_call = event.call and (event.type, event.call) in self._calls
            if not by_call and (event.call or here[key] > self._seen[key]):
                self._record(node, event, agent, at)

    def _record(self, node: _Node, event: Event, agent: str, at: int) -> None:
        self._seen[_content_key(event)] += 1
        self._recorded[node.id] += 1
        id = f"{node.id}/{self._recorded[node.id]}"
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
        event = replace(event, agent=who, tool=tool, call=call, id=id, at=when)
        self.gathering.add(event)


def _content_key(event: Event) -> Hashable:
    """Return the same key for events that say the same, whatever their ids."""
    return event.type, event.content, event.error, event.tool and repr(event.arguments)


def _episode(id: str, trace: _Trace, limits: Limits) -> Episode:
    log = _EventLog(limits)
    moments = _moments(trace.nodes)
    for moment in moments:
        if step := moment.node.step:
            (log.end if moment.ends else log.begin)(moment.node, step, moment.at)
    steps = [moment.node.step for moment in moments if moment.node.step and not moment.ends]
    roots = [m.node for m in moments if not m.ends and m.node.parent not in trace.nodes]
    errors = [node.error for node in roots if node.error]
    fault = Fault(errors[-1][1] or "error", errors[-1][0]) if errors else None
    well = bool(roots) and all(node.status == "ok" for node in roots)
    outcome: Ended | None = "success" if well else None
    return log.gathering.episode(
        outcome=outcome,
        fault=fault,
        id=id,
        session=next((step.session for step in steps if step.session), ""),
        tools=(name for step in steps for name in step.tools),
        usage=_usage(steps, moments),
    )


def _usage(steps: list[Step], moments: list[_Moment]) -> Usage:
    """Add up the usage of the models; if none is recorded, of the agents around them."""
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


# Bytes of a span as it waits; each answer of a model repeats its prompt.
LONGEST = 2**20
# The attributes that OpenTelemetry GenAI and OpenInference define for models, tools and agents.
_KEPT = re.compile(
    r"gen_ai\.|openinference\.|llm\.|tool\.|tool_call\.|retrieval\.|input\.|output\.|session\.id"
    r"|agent\.name|error\.type"
)
_TRACE, _SPAN = re.compile(r"(?!0+$)[0-9a-f]{32}"), re.compile(r"(?!0+$)[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Piece:
    """A span that waits: the ids of its trace, of itself and of its parent ("": none).

    `root`: its end is, as far as this process knows, the end of the trace. `record` holds the rest
    as JSON, at most `LONGEST` bytes.
    """

    trace: str
    id: str
    parent: str
    root: bool
    record: str


def pieces(spans: Iterable[Span]) -> tuple[list[Piece], Counter[str]]:
    """Turn spans into pieces, and count the refused ones by reason. Raises what `spans` raises."""
    found: list[Piece] = []
    refused: Counter[str] = Counter()
    for span in spans:
        trace, id = span.trace.lower(), span.id.lower()
        if not (_TRACE.fullmatch(trace) and _SPAN.fullmatch(id)):
            refused["their ids are not those of W3C Trace Context"] += 1
            continue
        record = _record(span)
        if len(record) > LONGEST:
            refused[f"they have more than {LONGEST} bytes"] += 1
            continue
        parent = span.parent.lower() if _SPAN.fullmatch(span.parent.lower()) else ""
        found.append(Piece(trace, id, parent, not parent or span.remote, record))
    return found, refused


def episodes(pieces: Iterable[Piece], limits: Limits = Limits()) -> list[Episode]:
    """Return the episodes of pieces: one a trace with a step of a model, a tool or an agent."""
    reader = SpanReader(limits)
    reader.add_spans(map(_span, pieces))
    return reader.finish()


def _record(span: Span) -> str:
    """Return the kept part of a span: its times, and what concerns a model, a tool or an error."""
    about = step_of(span, error_of(span)) is not None
    events = [
        (name, _without_secrets(held))
        for name, held in span.events
        if name == "exception" or (about and _KEPT.match(name))
    ]
    attributes = {
        name: value
        for name, value in span.attributes.items()
        if _KEPT.match(name) and (about or name == "error.type")
    }
    name, message = shorten(span.name, LONGEST_NAME), redact(span.message)
    head = [name, span.start, span.end, span.status, message]
    return json.dumps([*head, _without_secrets(attributes), events], separators=(",", ":"))


def _span(piece: Piece) -> Span:
    name, start, end, status, message, attributes, events = json.loads(piece.record)
    ids, pairs = (piece.trace, piece.id, piece.parent), [(name, held) for name, held in events]
    return Span(*ids, name, start, end, attributes, status, message, pairs)


def _without_secrets(attributes: Attributes) -> Mapping[str, Any]:
    """Redact attributes; those that hold JSON still do."""
    kept: dict[str, Any] = {}
    for name, value in attributes.items():
        data = json_data(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
        whole = value if is_deep(data, DEEPEST) else data
        for key, clean in redact_data({name: whole}).items():
            if clean == whole:
                kept[key] = value
            else:
                kept[key] = clean if whole is value else json.dumps(clean, ensure_ascii=False)
    return kept

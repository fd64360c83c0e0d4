"""Turn the spans of traces, in any order, into one episode for each trace. Pure.

A span is an operation with a start and an end; an episode is a list of events. First
the starts and ends of all spans of a trace are put in order (`_list_moments`), then a
log records the input of a span at its start and its output at its end (`_EventLog`).
Each call of a model repeats the chat so far, and a tool call appears in the model's
answer, in the tool's span and in the next prompt, so the log records an event once.

Spans of a trace that has not ended wait in the store as `Piece`s, without what no
episode needs.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, NamedTuple

from heedful.episodes import episode
from heedful.episodes.episode import (
    Ended,
    Episode,
    Event,
    Fault,
    Limits,
    safe_id,
)
from heedful.episodes.readers import otlp, span_objects
from heedful.episodes.readers.conventions import (
    Attributes,
    decoded,
    is_known,
    kind_of,
)
from heedful.episodes.readers.otlp import Span
from heedful.episodes.readers.span_steps import SpanStep, step_of
from heedful.errors import UsageError
from heedful.redact import redact, redact_data
from heedful.sanitize import redact_ends
from heedful.validation import MAX_NAME_CHARS, MAX_READ_BYTES

Steps = Mapping[str, SpanStep]
# The arguments of this many open calls of a tool are compared with a span's.
MAX_COMPARED_CALLS = 1_000


class SpanReader:
    """Reads OTLP spans in any order: cuts texts on arrival, sorts events at the end.

    Each trace is one episode. Events are sorted by time: a span's input at its start,
    its output at its end, parents before children. Spans without times keep the order
    of the file. Each call of a model repeats the chat so far; repeated messages appear
    once. A tool call appears once, too, even though the model's answer, the tool's span
    and the next prompt all contain it.
    """

    source = "otlp"

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._traces: dict[str, dict[str, SpanStep]] = {}
        # Equal events are kept once: each call of a model repeats the chat so far.
        self._events: dict[Hashable, Event] = {}

    @staticmethod
    def begins(value: Any) -> bool:
        """Return True for a request of OTLP in protobuf or JSON, or for spans."""
        if isinstance(value, bytes):
            return value.startswith(b"\n")  # the tag of its first field
        names = otlp.RESOURCE_SPANS | otlp.SCOPE_SPANS
        is_json = isinstance(value, Mapping) and not names.isdisjoint(value)
        return is_json or span_objects.has_spans(value)

    def add(self, value: Any) -> list[Episode]:
        """Add the spans of a request, or those of an export; return []."""
        if isinstance(value, bytes):
            return self.add_spans(otlp.from_request(value))
        if span_objects.has_spans(value):
            return self.add_spans(span_objects.spans_in(value))
        return self.add_spans(otlp.from_json(value))

    def add_spans(self, spans: Iterable[Span]) -> list[Episode]:
        """Add spans; return [], because a trace may go on until the file ends."""
        for span in spans:
            steps = self._traces.setdefault(span.trace, {})
            id = safe_id(span.id) or f"span {len(steps) + 1}"
            if id in steps:
                continue

            step = step_of(span)
            steps[id] = step
            step.id = id
            step.parent = safe_id(span.parent)
            step.inputs = tuple(self._share_event(step, event) for event in step.inputs)
            step.outputs = tuple(
                self._share_event(step, event) for event in step.outputs
            )

        return []

    def _share_event(self, step: SpanStep, event: Event) -> Event:
        """Return the event with short texts, or the equal event that came before it.

        Spans of a chat repeat its events, so that equal ones share their memory.
        """
        limit = self._limits.content
        # The texts of all spans stay in memory until the end, so they are cut at once.
        if len(repr(event)) > limit:
            event = episode.clean_event(event, limit)
        if step.kind == "tool":
            return event

        key = (event.call, event.agent, event.tool, event.origin, _content_key(event))
        return self._events.setdefault(key, event)

    def finish(self) -> list[Episode]:
        """Return the episodes of a file. Raises UsageError if no span is understood."""
        episodes = self.known_episodes()
        if not episodes and self._traces:
            number = sum(map(len, self._traces.values()))
            raise UsageError(
                f"none of its spans ({number}) names a model, a tool or an agent by a "
                f"known convention ({episode.SPAN_CONVENTIONS})"
            )
        return episodes

    def known_episodes(self) -> list[Episode]:
        """Return the episodes of traces that contain a model, a tool or an agent."""
        return [
            _episode_of(trace, steps, self._limits)
            for trace, steps in self._traces.items()
            if any(step.kind for step in steps.values())
        ]


class _Moment(NamedTuple):
    """The start or the end of a step; `number` orders moments of one time."""

    time: int
    number: int
    step: SpanStep
    is_end: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Visit:
    """A step to be entered, or to be left if `leaves`, on the way through a trace.

    It is not before the time `earliest`; `agent` and `model` are those around it.
    """

    step: SpanStep
    earliest: int = 0
    agent: str = ""
    model: SpanStep | None = None
    leaves: bool = False


def _list_moments(steps: Steps) -> list[_Moment]:
    """Return the starts and ends of all spans in order, parents before children.

    A child without an agent gets the agent of its parent. A model span that contains
    another model span only passes on the answer, so its kind becomes "around".
    """
    roots: list[SpanStep] = []
    children: dict[str, list[SpanStep]] = defaultdict(list)
    for step in sorted(steps.values(), key=lambda step: step.start):
        if step.parent in steps and step.parent != step.id:
            children[step.parent].append(step)
        else:
            roots.append(step)

    moments: list[_Moment] = []
    entered: set[str] = set()
    # Depth first: the last visit is next. Steps in a cycle, below no root, come last.
    visits = [_Visit(step=step) for step in reversed((*roots, *steps.values()))]
    while visits:
        visit = visits.pop()
        step = visit.step
        if visit.leaves:
            # A step without an end ends when the last step inside it did.
            last_time = visit.earliest if step.end else moments[-1].time
            end = max(visit.earliest, last_time)
            moments.append(_Moment(end, len(moments), step, is_end=True))
            continue

        if step.id in entered:
            continue
        entered.add(step.id)

        start = max(step.start, visit.earliest)
        inside = _enter_step(visit)
        moments.append(_Moment(start, len(moments), step, is_end=False))
        visits.append(replace(inside, earliest=max(step.end, start), leaves=True))
        visits += [
            replace(inside, step=child, earliest=start)
            for child in reversed(children[step.id])
        ]

    return sorted(moments)


def _enter_step(visit: _Visit) -> _Visit:
    """Name the agent of a step; return the visit with the agent and model inside it."""
    step = visit.step
    agent = visit.agent
    model = visit.model
    if step.kind:
        agent = step.agent or agent
        step.agent = agent

    if step.kind == "model":
        if model is not None:
            model.kind = "around"
        model = step

    return replace(visit, agent=agent, model=model)


class _EventLog:
    """The events of one trace; an event that several spans contain is recorded once."""

    def __init__(self, limits: Limits) -> None:
        self.builder = episode.EpisodeBuilder(limits, SpanReader.source)
        # How often each content was recorded.
        self._seen: Counter[Hashable] = Counter()
        # The recorded events that have a call, as pairs of type and call.
        self._calls: set[tuple[str, str]] = set()
        # The calls whose span has ended.
        self._done: set[str] = set()
        # The id of a call that was used before -> the id that it has now.
        self._renamed: dict[str, str] = {}
        # Tool -> its calls without a span, with their arguments.
        self._open: dict[str, dict[str, object]] = defaultdict(dict)
        # Call -> its tool.
        self._tools: dict[str, str] = {}
        # Span -> how many of its events are recorded.
        self._recorded: Counter[str] = Counter()

    def begin(self, step: SpanStep, time: int) -> None:
        """Record the input of a step that begins."""
        if step.kind != "tool":
            self._record_new(step, step.inputs, "", time)
            return

        event = step.inputs[0]
        stated_call = event.call or self._open_call(event) or step.id
        call = self._renamed.get(stated_call, stated_call)
        # Some agents use the ids of calls again in every answer.
        if call in self._done:
            call = step.id
            self._renamed[stated_call] = call

        self._open[event.tool].pop(call, None)
        event = replace(event, call=call)
        step.inputs = (event,)
        if not self._is_recorded(event):
            self._record(step, event, step.agent, time)
            # The call has a span, this one, so no other span may take it.
            self._open[self._tools[call]].pop(call)

    def _open_call(self, event: Event) -> str:
        """Return an open call of the tool with the same arguments, else the oldest.

        Returns "" if the tool has no open call.
        """
        calls = self._open[event.tool]
        compared = islice(calls.items(), MAX_COMPARED_CALLS)
        equal = [call for call, arguments in compared if arguments == event.arguments]
        return next(iter(equal or calls), "")

    def end(self, step: SpanStep, time: int) -> None:
        """Record the output and the error of a step that ends."""
        if step.kind == "around":
            self._record_new(step, step.outputs, step.agent, time)
        else:
            self._record_outputs(step, time)

        if step.error is not None:
            message, code = step.error
            # An error passes through every span around it, and is recorded once.
            if step.kind != "tool" and not self._seen[message]:
                event = Event("error_event", error=message, code=code)
                self._record(step, event, step.agent, time)
            self._seen[message] += 1
        elif step.kind == "model" and not step.outputs:
            self._record(step, Event("llm_response"), step.agent, time)

    def _record_outputs(self, step: SpanStep, time: int) -> None:
        """Record the answer of a model, or the response of a tool under its call."""
        call = step.inputs[0].call if step.kind == "tool" else ""
        self._done.add(call)
        for event in step.outputs:
            if call:
                event = replace(event, call=call)
            if not self._is_recorded(event):
                self._record(step, event, step.agent, time)

    def _is_recorded(self, event: Event) -> bool:
        """Return True if a call, or the response to it, is recorded already."""
        return event.call != "" and (event.type, event.call) in self._calls

    def _record_new(
        self, step: SpanStep, events: Iterable[Event], agent: str, time: int
    ) -> None:
        """Record the events of a chat that are not recorded yet.

        A text that is in the chat more often than in the log is new.
        """
        counts: Counter[Hashable] = Counter()
        for event in events:
            key = _content_key(event)
            counts[key] += 1
            is_new = event.call or counts[key] > self._seen[key]
            if is_new and not self._is_recorded(event):
                self._record(step, event, agent, time)

    def _record(self, step: SpanStep, event: Event, agent: str, time: int) -> None:
        """Add an event to the episode; `agent` is its author if it names none."""
        self._seen[_content_key(event)] += 1
        self._recorded[step.id] += 1
        id = f"{step.id}/{self._recorded[step.id]}"

        call = event.call
        tool = event.tool or self._tools.get(event.call, "")
        if event.type == "tool_call":
            call = call or id
            self._tools[call] = tool
            self._open[tool][call] = event.arguments
        elif call:
            self._open[tool].pop(call, None)

        self._calls.add((event.type, call))

        author = event.agent
        if not author and event.type not in ("user_message", "system_event"):
            author = agent

        seconds = time / 1e9 if time else None
        self.builder.add(
            replace(event, agent=author, tool=tool, call=call, id=id, at=seconds)
        )


def _content_key(event: Event) -> Hashable:
    """Return what two events have in common if they say the same."""
    return event.type, event.content, event.error, repr(event.arguments or "")


def _episode_of(trace: str, steps: Steps, limits: Limits) -> Episode:
    """Return the episode of a trace; the error of its last failed root becomes its
    fault.
    """
    log = _EventLog(limits)
    moments = _list_moments(steps)
    for moment in moments:
        # A step without a kind, such as an HTTP request, has no events.
        if moment.step.kind:
            record = log.end if moment.is_end else log.begin
            record(moment.step, moment.time)

    started = [moment.step for moment in moments if not moment.is_end]
    sessions = (step.session for step in started)

    # If a root is not "ok", the events say how the run ended.
    roots = [step for step in started if step.parent not in steps]
    outcome: Ended | None = None
    if roots and all(step.status == "ok" for step in roots):
        outcome = "success"

    fault = None
    for root in roots:
        if root.error:
            message, code = root.error
            fault = Fault(code or "error", message)

    return log.builder.episode(
        outcome=outcome,
        fault=fault,
        id=trace,
        session=next(filter(None, sessions), ""),
        tools=list(chain.from_iterable(step.tools for step in started)),
    )


def _is_id(id: str, digits: int) -> bool:
    """Return whether an id is one of W3C Trace Context: in hex, and not all 0."""
    return re.fullmatch(rf"(?!0*\Z)[0-9a-f]{{{digits}}}", id) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stored span of a trace that has not ended; the parent is "" if it has none.

    `root` is True if the trace seems to end when this span ends: it has no parent in
    this process. `record` is the rest of the span as JSON, at most `MAX_READ_BYTES`
    bytes. `known` is True if a convention says what the span is.
    """

    trace: str
    id: str
    parent: str
    root: bool
    record: str
    known: bool


def pieces(spans: Iterable[Span]) -> tuple[list[Piece], Counter[str]]:
    """Return the pieces of spans, and the number of refused spans for each reason."""
    accepted: list[Piece] = []
    refused: Counter[str] = Counter()
    for span in spans:
        trace = span.trace.lower()
        id = span.id.lower()
        parent = span.parent.lower()
        if not _is_id(parent, digits=16):
            parent = ""

        valid = _is_id(trace, digits=32) and _is_id(id, digits=16)
        if not span.long and not valid:
            refused["their ids are not those of W3C Trace Context"] += 1
            continue

        record = _encode_span(span)
        if span.long or len(record) > MAX_READ_BYTES:
            refused[f"they have more than {MAX_READ_BYTES} bytes"] += 1
            continue

        piece = Piece(
            trace=trace,
            id=id,
            parent=parent,
            root=not parent or span.remote,
            record=record,
            known=kind_of(span.attributes)[0] != "",
        )
        accepted.append(piece)

    return accepted, refused


def _encode_span(span: Span) -> str:
    """Return a span as JSON: what episodes use of its attributes and its events."""
    kind, _ = kind_of(span.attributes)
    attributes = {
        name: value
        for name, value in span.attributes.items()
        if name == "error.type" or (kind and is_known(name))
    }
    events = [
        (redact_ends(name, MAX_NAME_CHARS), _without_secrets(event))
        for name, event in span.events
        if name == "exception" or name.startswith("gen_ai.")
    ]

    fields = {
        "name": redact_ends(span.name, MAX_NAME_CHARS),
        "start": span.start,
        "end": span.end,
        "status": span.status,
        "message": redact(span.message),
        "attributes": _without_secrets(attributes),
        "events": events,
    }
    return json.dumps(fields, separators=(",", ":"))


def _without_secrets(attributes: Attributes) -> Any:
    """Redact attributes. JSON in one is stored as data, but an error as its words."""
    return redact_data(
        {
            name: value if name.startswith("exception.") else decoded(value)
            for name, value in attributes.items()
        }
    )


def episodes(pieces: Iterable[Piece], limits: Limits = Limits()) -> list[Episode]:
    """Return an episode for each trace that contains a model, a tool or an agent."""
    reader = SpanReader(limits)
    for piece in pieces:
        span = Span(
            trace=piece.trace,
            id=piece.id,
            parent=piece.parent,
            **json.loads(piece.record),
        )
        reader.add_spans([span])
    return reader.known_episodes()

"""Turn the spans of traces, which arrive in any order, into one episode for each trace.
Pure.
"""

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from heedful.redact import redact, redact_data
from heedful.traces import episode, otlp
from heedful.traces.episode import Episode, Event, Fault, Limits, safe_id, shorten
from heedful.traces.messages import EpisodeReader
from heedful.traces.otlp import Attributes, Span, SpanStep

Steps = Mapping[str, SpanStep]


class SpanReader(EpisodeReader):
    """Reads OTLP spans in any order. Texts are cut on arrival, and events sorted at the
    end.

    Each trace is one episode. Events are sorted by time: a span's input at its start,
    its output at its end, parents before children. Spans without times keep the order
    of the file. Each call of a model repeats the chat so far; repeated messages appear
    once. A tool call appears once, too, even though the model's answer, the tool's span
    and the next prompt all contain it.
    """

    source = "otlp"

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._traces: dict[str, dict[str, SpanStep]] = {}
        # Equal events are kept once: each call of a model repeats the chat so far.
        self._events: dict[Hashable, Event] = {}

    def add(self, value: Any) -> list[Episode]:
        read = otlp.from_request if isinstance(value, bytes) else otlp.from_json
        return self.add_spans(read(value))

    def add_spans(self, spans: Iterable[Span]) -> list[Episode]:
        """Add spans; return [], because a trace may continue until the end of the
        file.
        """
        most = self._limits.content
        for span in spans:
            steps = self._traces.setdefault(span.trace, {})
            id = safe_id(span.id) or f"span {len(steps) + 1}"
            if id not in steps:
                step = steps[id] = otlp.step_of(span)
                step.id = id
                step.parent = safe_id(span.parent)
                if step.error:
                    step.error = (
                        shorten(step.error[0], most),
                        shorten(step.error[1], most),
                    )
                step.inputs = tuple(self._kept(step, event) for event in step.inputs)
                step.outputs = tuple(self._kept(step, event) for event in step.outputs)
        return []

    def _kept(self, step: SpanStep, event: Event) -> Event:
        most = self._limits.content
        if len(repr(event)) > most:  # the texts of all spans are kept until the end
            event = episode.clean_event(event, most)
        key = (event.call, event.agent, event.tool, event.origin, _content_key(event))
        return event if step.kind == "tool" else self._events.setdefault(key, event)

    def finish(self) -> list[Episode]:
        """Return an episode for each trace that contains a model, a tool or an
        agent.
        """
        return [
            _episode(id, steps, self._limits)
            for id, steps in self._traces.items()
            if any(step.kind for step in steps.values())
        ]


# A time, a number that orders equal times, the step, and True if the step ends.
_Moment = tuple[int, int, SpanStep, bool]


def _moments(steps: Steps) -> list[_Moment]:
    """Return the starts and ends of all spans in order; no child starts before its
    parent.

    A child without an agent gets the agent of its parent. A model span that contains
    another model span only passes on the answer, so its kind becomes "around".
    """
    roots: list[SpanStep] = []
    children: dict[str, list[SpanStep]] = {}
    for step in sorted(steps.values(), key=lambda step: step.start):
        inner = step.parent in steps and step.parent != step.id
        (children.setdefault(step.parent, []) if inner else roots).append(step)
    moments: list[_Moment] = []
    seen: set[str] = set()
    # Step, earliest time, agent and model around the step, True if it ends. Cycles come
    # last.
    waiting: list[tuple[SpanStep, int, str, SpanStep | None, bool]] = [
        (root, 0, "", None, False) for root in reversed((*roots, *steps.values()))
    ]
    while waiting:
        step, after, agent, model, ends = waiting.pop()
        if ends:
            last = after if step.end else moments[-1][0]
            moments.append((max(after, last), len(moments), step, True))
        elif step.id not in seen:
            seen.add(step.id)
            start = max(step.start, after)
            if step.kind:
                step.agent = agent = step.agent or agent
            if step.kind == "model":
                if model is not None:
                    model.kind = "around"
                model = step
            moments.append((start, len(moments), step, False))
            waiting.append((step, max(step.end, start), agent, model, True))
            inner_steps = reversed(children.get(step.id, ()))
            waiting += ((child, start, agent, model, False) for child in inner_steps)
    return sorted(moments)


class _EventLog:
    """The events of one trace; an event that several spans contain is recorded once."""

    def __init__(self, limits: Limits) -> None:
        self.gathering = episode.EpisodeBuilder(limits, SpanReader.source)
        self._seen: Counter[Hashable] = Counter()
        self._calls: set[tuple[str, str]] = (
            set()
        )  # by type and call: calls and responses
        self._done: set[str] = set()  # calls whose span has ended
        self._renamed: dict[str, str] = {}  # reused id of a call -> the id it has now
        self._open: dict[
            str, dict[str, object]
        ] = {}  # tool -> its calls without a span
        self._tools: dict[str, str] = {}
        self._recorded: Counter[str] = Counter()  # events by span

    def begin(self, step: SpanStep, at: int) -> None:
        if step.kind != "tool":
            self._record_new(step, step.inputs, "", at)
            return
        event = step.inputs[0]
        waiting = self._open.get(event.tool, {})
        oldest = islice(waiting.items(), 1_000)
        same = (call for call, arguments in oldest if arguments == event.arguments)
        named = event.call or next(same, "") or next(iter(waiting), "") or step.id
        call = self._renamed.get(named, named)
        if call in self._done:  # some agents reuse the ids of calls in every answer
            call = self._renamed[named] = step.id
        waiting.pop(call, None)
        event = replace(event, call=call)
        step.inputs = (event,)
        if (event.type, call) not in self._calls:
            self._record(step, event, step.agent, at)
            self._open[self._tools[call]].pop(call)

    def end(self, step: SpanStep, at: int) -> None:
        if step.kind == "around":
            self._record_new(step, step.outputs, step.agent, at)
        else:
            call = step.inputs[0].call if step.kind == "tool" else ""
            self._done.update((call,) if call else ())
            for event in step.outputs:
                event = replace(event, call=call) if call else event
                if not self._known(event):
                    self._record(step, event, step.agent, at)
        if step.error is not None:
            message, code = step.error
            if step.kind != "tool" and not self._seen[message]:
                self._record(
                    step, Event("error_event", error=message, code=code), step.agent, at
                )
            self._seen[message] += 1
        elif step.kind == "model" and not step.outputs:
            self._record(step, Event("llm_response"), step.agent, at)

    def _known(self, event: Event) -> bool:
        return event.call != "" and (event.type, event.call) in self._calls

    def _record_new(
        self, step: SpanStep, events: Iterable[Event], agent: str, at: int
    ) -> None:
        """Record the events of a chat that are not recorded yet."""
        here: Counter[Hashable] = Counter()
        for event in events:
            key = _content_key(event)
            here[key] += 1
            if not self._known(event) and (event.call or here[key] > self._seen[key]):
                self._record(step, event, agent, at)

    def _record(self, step: SpanStep, event: Event, agent: str, at: int) -> None:
        self._seen[_content_key(event)] += 1
        self._recorded[step.id] += 1
        id = f"{step.id}/{self._recorded[step.id]}"
        call = event.call
        tool = event.tool or self._tools.get(event.call, "")
        if event.type == "tool_call":
            call = call or id
            self._tools[call] = tool
            self._open.setdefault(tool, {})[call] = event.arguments
        elif call:
            self._open.get(tool, {}).pop(call, None)
        self._calls.add((event.type, call))
        who = event.agent or (
            "" if event.type in ("user_message", "system_event") else agent
        )
        when = at / 1e9 if at else None
        self.gathering.add(
            replace(event, agent=who, tool=tool, call=call, id=id, at=when)
        )


def _content_key(event: Event) -> Hashable:
    return event.type, event.content, event.error, event.tool and repr(event.arguments)


def _episode(id: str, trace: Steps, limits: Limits) -> Episode:
    log = _EventLog(limits)
    moments = _moments(trace)
    for at, _, step, ends in moments:
        if step.kind:
            (log.end if ends else log.begin)(step, at)
    begun = [step for *_, step, ends in moments if not ends]
    roots = [step for step in begun if step.parent not in trace]
    errors = [step.error for step in roots if step.error]
    steps = [step for step in begun if step.kind]
    return log.gathering.episode(
        outcome="success"
        if roots and all(step.status == "ok" for step in roots)
        else None,
        fault=Fault(errors[-1][1] or "error", errors[-1][0]) if errors else None,
        id=id,
        session=next((step.session for step in steps if step.session), ""),
        tools=(name for step in steps for name in step.tools),
    )


MAX_SPAN_BYTES = (
    2**20
)  # bytes of a stored span; each answer of a model repeats its prompt
# The attributes that OpenTelemetry GenAI and OpenInference define for models, tools and
# agents.
_STORED_ATTRIBUTE_PATTERN = re.compile(
    r"gen_ai\.|openinference\.|llm\.|tool\.|tool_call\.|retrieval\.|input\.|output\.|session\.id"
    r"|agent\.name|error\.type"
)
_TRACE_ID_PATTERN = re.compile(r"(?!0+$)[0-9a-f]{32}")
_SPAN_ID_PATTERN = re.compile(r"(?!0+$)[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stored span of a trace that has not ended: the ids of trace, span and parent
    ("" if none).

    `root` is True if the trace seems to end when this span ends: it has no parent in
    this process. `record` is the rest of the span as JSON, at most `MAX_SPAN_BYTES` bytes.
    """

    trace: str
    id: str
    parent: str
    root: bool
    record: str


def pieces(spans: Iterable[Span]) -> tuple[list[Piece], Counter[str]]:
    """Turn spans into pieces. Return also the number of refused spans for each
    reason.
    """
    found: list[Piece] = []
    refused: Counter[str] = Counter()
    for span in spans:
        trace = span.trace.lower()
        id = span.id.lower()
        parent = span.parent.lower()
        if not span.long and not (
            _TRACE_ID_PATTERN.fullmatch(trace) and _SPAN_ID_PATTERN.fullmatch(id)
        ):
            refused["their ids are not those of W3C Trace Context"] += 1
            continue
        record = _record(span)
        if span.long or len(record) > MAX_SPAN_BYTES:
            refused[f"they have more than {MAX_SPAN_BYTES} bytes"] += 1
            continue
        parent = parent if _SPAN_ID_PATTERN.fullmatch(parent) else ""
        found.append(
            Piece(
                trace=trace,
                id=id,
                parent=parent,
                root=not parent or span.remote,
                record=record,
            )
        )
    return found, refused


def _record(span: Span) -> str:
    """Return as JSON a span's name, times, status, exceptions, and attributes that
    episodes use.
    """
    about = otlp.kind_of(span.attributes)[0] != ""
    events = [
        (name, _without_secrets(held))
        for name, held in span.events
        if name == "exception"
    ]
    attributes = {
        name: value
        for name, value in span.attributes.items()
        if _STORED_ATTRIBUTE_PATTERN.match(name) and (about or name == "error.type")
    }
    name = shorten(span.name, episode.MAX_TRACE_NAME_CHARS)
    message = redact(span.message)
    head = [name, span.start, span.end, span.status, message]
    return json.dumps(
        [*head, _without_secrets(attributes), events], separators=(",", ":")
    )


def _without_secrets(attributes: Attributes) -> Mapping[str, Any]:
    """Redact attributes; an attribute that holds JSON stays valid JSON."""
    kept: dict[str, Any] = {}
    for name, value in attributes.items():
        data = episode.json_data(value) if str(value)[:1] in ("{", "[") else value
        data = value if episode.is_deep(data, episode.MAX_DATA_DEPTH) else data
        for key, clean in redact_data({name: data}).items():
            text = clean if data is value else json.dumps(clean, ensure_ascii=False)
            kept[key] = value if clean == data else text
    return kept


def episodes(pieces: Iterable[Piece], limits: Limits = Limits()) -> list[Episode]:
    """Return an episode for each trace that contains a model, a tool or an agent."""
    reader = SpanReader(limits)
    for piece in pieces:
        name, start, end, status, message, attributes, events = json.loads(piece.record)
        span = Span(
            trace=piece.trace,
            id=piece.id,
            parent=piece.parent,
            name=name,
            start=start,
            end=end,
            attributes=attributes,
            status=status,
            message=message,
            events=events,
        )
        reader.add_spans([span])
    return reader.finish()

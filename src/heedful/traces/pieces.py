"""Spans that come in pieces: each as it waits for the rest of its trace, without secrets. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from heedful.memory.episode import Episode
from heedful.redact import redact, redact_data
from heedful.traces.gather import DEEPEST, LONGEST_NAME, Limits, deep, short
from heedful.traces.otlp import Attributes, Span
from heedful.traces.spans import Traces
from heedful.traces.steps import error_of, step_of

# Bytes of a span as it waits; a model's prompt is told once more with each of its answers.
LONGEST = 2**20
# What the conventions of OpenTelemetry GenAI and OpenInference say of a model, a tool or an agent.
TOLD = re.compile(
    r"gen_ai\.|openinference\.|llm\.|tool\.|tool_call\.|retrieval\.|input\.|output\.|session\.id"
    r"|agent\.name|error\.type"
)
_TRACE, _SPAN = re.compile(r"(?!0+$)[0-9a-f]{32}"), re.compile(r"(?!0+$)[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Piece:
    """A span that waits: the ids of its trace, of itself and of its parent ("": none).

    `root`: when it has ended, so has the trace, as far as this process knows. `record` is the rest
    as JSON, of at most `LONGEST` bytes.
    """

    trace: str
    id: str
    parent: str
    root: bool
    record: str


def pieces(spans: Iterable[Span]) -> tuple[list[Piece], Counter[str]]:
    """The spans as they wait, and why how many of them cannot. Raises what reading them raises."""
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
    """The episodes of pieces: one a trace that has a step of a model, a tool or an agent."""
    traces = Traces(limits)
    traces.add(map(_span, pieces))
    return traces.finish()


def _record(span: Span) -> str:
    """What is kept of a span: its times, and what it tells of a model, a tool or an error."""
    about = step_of(span, error_of(span)) is not None
    events = [
        (name, _told(held))
        for name, held in span.events
        if name == "exception" or (about and TOLD.match(name))
    ]
    attributes = {
        name: value
        for name, value in span.attributes.items()
        if TOLD.match(name) and (about or name == "error.type")
    }
    times = [span.start, span.end]
    said = [short(span.name, LONGEST_NAME), *times, span.status, redact(span.message)]
    return json.dumps([*said, _told(attributes), events], separators=(",", ":"))


def _span(piece: Piece) -> Span:
    name, start, end, status, message, attributes, events = json.loads(piece.record)
    ids = (piece.trace, piece.id, piece.parent)
    span = Span(*ids, name, start, end, attributes, status, message)
    return replace(span, events=[(name, held) for name, held in events])


def _told(attributes: Attributes) -> Mapping[str, Any]:
    """Attributes without secrets; those that hold data as JSON still do."""
    told: dict[str, Any] = {}
    for name, value in attributes.items():
        whole = _parsed(value)
        for key, clean in redact_data({name: whole}).items():
            if clean == whole:
                told[key] = value
            else:
                told[key] = clean if whole is value else json.dumps(clean, ensure_ascii=False)
    return told


def _parsed(value: Any) -> Any:
    """The data of a text that is JSON; any other value as it is."""
    if not (isinstance(value, str) and value[:1] in ("{", "[")):
        return value
    try:
        data = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return value if deep(data, DEEPEST) else data

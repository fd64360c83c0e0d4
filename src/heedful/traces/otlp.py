"""Spans as OpenTelemetry writes them down, in JSON or protobuf -> one form. Pure."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from heedful.errors import InvalidInput
from heedful.traces.told import objects, text_in

Attributes = Mapping[str, Any]
OWN = "heedful"  # the instrumentation scope of heedful's own spans (`heedful.telemetry.SCOPE`)
# The bits of a span's flags that say that its parent is known to be remote (OTLP 1.1).
REMOTE = 0x300
_WHOLE = re.compile(r"-?[0-9]{1,20}")
CODES: Mapping[int | str, str] = {
    1: "ok",
    "STATUS_CODE_OK": "ok",
    2: "error",
    "STATUS_CODE_ERROR": "error",
}


@dataclass(slots=True)
class Span:
    """One operation: ids in hex, times in nanoseconds since 1970 (0: not known).

    `remote`: its parent is in another process, which may tell its spans to somebody else.
    """

    trace: str
    id: str
    parent: str
    name: str
    start: int
    end: int
    attributes: Attributes
    status: str = ""
    message: str = ""
    events: Sequence[tuple[str, Attributes]] = field(default=())
    remote: bool = False


def from_json(document: Any) -> Iterator[Span]:
    """The spans of a document with `resourceSpans`. Raises InvalidInput."""
    if not isinstance(document, Mapping) or not document.keys() & {"resourceSpans"}:
        raise InvalidInput("a line", document, "an object with resourceSpans")
    for resource in objects(document["resourceSpans"], "resourceSpans"):
        for scope in objects(resource.get("scopeSpans"), "scopeSpans"):
            spans = map(_span, objects(scope.get("spans"), "spans"))
            of = scope.get("scope")
            own = isinstance(of, Mapping) and of.get("name") == OWN
            yield from map(_bare, spans) if own else spans


def _span(one: Mapping[str, Any]) -> Span:
    status = one.get("status") or {}
    if not isinstance(status, Mapping):
        raise InvalidInput("status", status, "an object with a code")
    code = status.get("code")
    return Span(
        text_in(one, "traceId"),
        text_in(one, "spanId"),
        text_in(one, "parentSpanId"),
        text_in(one, "name"),
        _whole(one, "startTimeUnixNano"),
        _whole(one, "endTimeUnixNano"),
        _attributes(one),
        CODES.get(code, "") if isinstance(code, int | str) else "",
        text_in(status, "message"),
        [(text_in(e, "name"), _attributes(e)) for e in objects(one.get("events"), "events")],
        _whole(one, "flags", "bits") & REMOTE == REMOTE,
    )


def _whole(one: Mapping[str, Any], name: str, of: str = "nanoseconds since 1970") -> int:
    """A count, which JSON holds as text. Raises InvalidInput."""
    value = one.get(name) or 0
    value = _number(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
        raise InvalidInput(name, value, f"whole {of}")
    return value


def _number(held: Any) -> Any:
    """JSON has whole numbers of 64 bits as text, and may have others with a point."""
    text = isinstance(held, str) and _WHOLE.fullmatch(held)
    return int(held) if text or (isinstance(held, float) and held.is_integer()) else held


def _attributes(one: Mapping[str, Any]) -> Attributes:
    listed = objects(one.get("attributes"), "attributes")
    return {text_in(pair, "key"): _value(pair.get("value")) for pair in listed}


def _value(value: Any) -> Any:
    if not isinstance(value, Mapping) or not value:
        return None
    kind, held = next(iter(value.items()))
    match kind:
        case "intValue":
            return _number(held)
        case "arrayValue":
            return [_value(one) for one in _values(held)]
        case "kvlistValue":
            return {text_in(one, "key"): _value(one.get("value")) for one in _values(held)}
        case _:
            return held


def _values(held: Any) -> Sequence[Mapping[str, Any]]:
    return objects(held.get("values"), "values") if isinstance(held, Mapping) else []


def from_protobuf(data: bytes) -> Iterator[Span]:
    """The spans of one encoded `ResourceSpans`. Raises InvalidInput, and ImportError."""
    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

    yield from _spans(_decoded(ResourceSpans, data))


def from_request(data: bytes) -> Iterator[Span]:
    """The spans of an encoded `ExportTraceServiceRequest`. Raises as `from_protobuf`."""
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData  # which is encoded as one

    for resource in _decoded(TracesData, data).resource_spans:
        yield from _spans(resource)


def _decoded(kind: Any, data: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise InvalidInput("spans", data[:16], f"whole OTLP protobuf ({error})") from error


def _spans(resource: Any) -> Iterator[Span]:
    for scope in resource.scope_spans:
        spans = map(_message, scope.spans)
        yield from map(_bare, spans) if scope.scope.name == OWN else spans


def _bare(span: Span) -> Span:
    """A span of heedful's own: it holds a trace together, and says nothing to learn from."""
    return replace(span, attributes={}, message="", events=())


def _message(one: Any) -> Span:
    return Span(
        one.trace_id.hex(),
        one.span_id.hex(),
        one.parent_span_id.hex(),
        one.name,
        one.start_time_unix_nano,
        one.end_time_unix_nano,
        _pairs(one.attributes),
        CODES.get(one.status.code, ""),
        one.status.message,
        [(event.name, _pairs(event.attributes)) for event in one.events],
        one.flags & REMOTE == REMOTE,
    )


def _pairs(attributes: Any) -> Attributes:
    return {pair.key: _held(pair.value) for pair in attributes}


def _held(value: Any) -> Any:
    match kind := value.WhichOneof("value"):
        case None:
            return None
        case "array_value":
            return [_held(one) for one in value.array_value.values]
        case "kvlist_value":
            return _pairs(value.kvlist_value.values)
        case "bytes_value":
            return b64encode(value.bytes_value).decode("ascii")  # as JSON has it
        case _:
            return getattr(value, kind)

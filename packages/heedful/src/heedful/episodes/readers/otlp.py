"""Decode OTLP, the wire format of OpenTelemetry, in JSON or protobuf, into spans. Pure.

Source: open-telemetry/opentelemetry-proto, opentelemetry/proto/trace/v1/trace.proto.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from heedful.episodes.messages import first_of, object_of, objects, text_field, text_of
from heedful.episodes.readers.conventions import Attributes
from heedful.errors import InvalidInput
from heedful.validation import MAX_INTEGER, Fields, require

# the instrumentation scope of heedful's own spans (`heedful.telemetry.SCOPE`)
OWN_SPAN_SCOPE = "heedful"
RESOURCE_SPANS = frozenset({"resourceSpans", "batches"})
SCOPE_SPANS = frozenset({"scopeSpans", "instrumentationLibrarySpans"})
SPAN_STATUS_CODES = {
    "1": "ok",
    "STATUS_CODE_OK": "ok",
    "2": "error",
    "STATUS_CODE_ERROR": "error",
}


@dataclass(slots=True, kw_only=True)
class Span:
    """One operation. Ids are in hex, times in nanoseconds since 1970 (0 if unknown).

    `remote` is True if the parent span is in another process, which may export its
    spans elsewhere. `long` is True if the span was too long to be read.
    """

    trace: str = ""
    id: str = ""
    parent: str = ""
    name: str = ""
    start: int = 0
    end: int = 0
    attributes: Attributes = field(default_factory=dict)
    status: str = ""
    message: str = ""
    events: Sequence[tuple[str, Attributes]] = ()
    remote: bool = False
    long: bool = False


def from_json(document: Any) -> Iterator[Span]:
    """Yield the spans of a document with `resourceSpans`, or of one of these.

    Grafana Tempo calls these `batches`, and their parts by an older name of OTLP.
    Raises InvalidInput.
    """
    if isinstance(document, Mapping) and not SCOPE_SPANS.isdisjoint(document):
        document = {"resourceSpans": [document]}
    if not isinstance(document, Mapping) or RESOURCE_SPANS.isdisjoint(document):
        raise InvalidInput("a line", document, "an object with resourceSpans")

    for resource in objects(first_of(document, *RESOURCE_SPANS), "resourceSpans"):
        for scope_spans in objects(first_of(resource, *SCOPE_SPANS), "scopeSpans"):
            scope = object_of(scope_spans, "scope").get("name")
            for span in objects(scope_spans.get("spans"), "spans"):
                yield _read_span(span, scope)


def from_request(data: bytes, longest: int = MAX_INTEGER) -> Iterator[Span]:
    """Yield the spans of a protobuf `ExportTraceServiceRequest`.

    Spans are decoded one at a time, because a decoded span may need 200 times its
    bytes. Only `long` is set for a span with more than `longest` bytes. Raises
    InvalidInput, ImportError.
    """
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope

    try:
        for _, resource in _read_fields(memoryview(data), {1}):
            for _, scope_spans in _read_fields(resource, {2}):
                scope = ""
                for number, content in _read_fields(scope_spans, {1, 2}):
                    if number == 1:
                        scope = InstrumentationScope.FromString(content).name
                    else:
                        yield _decoded_span(content, scope, longest)
    except (DecodeError, IndexError) as error:
        raise InvalidInput(
            "the data", data[:16], "JSON, or whole OTLP protobuf"
        ) from error


def _decoded_span(content: memoryview, scope: str, longest: int) -> Span:
    """Return the span in a protobuf message; a `long` one if it has too many bytes."""
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message

    if len(content) > longest:
        return Span(long=True)

    message = Message.FromString(content)
    fields = MessageToDict(message)
    fields["traceId"] = message.trace_id.hex()
    fields["spanId"] = message.span_id.hex()
    fields["parentSpanId"] = message.parent_span_id.hex()

    return _read_span(fields, scope)


def _read_fields(
    message: memoryview, wanted: Collection[int]
) -> Iterator[tuple[int, memoryview]]:
    """Yield number and content of fields of a protobuf message. Raises IndexError."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        wire_type = tag & 7
        if wire_type == 0 and tag:
            _, position = _read_varint(message, position)
            continue

        size = {1: 8, 5: 4}.get(wire_type, MAX_INTEGER)
        if wire_type == 2:
            size, position = _read_varint(message, position)
        if size > len(message) - position or not tag >> 3:
            raise IndexError("a field ends too late, or has no number")

        if tag >> 3 in wanted:
            yield tag >> 3, message[position : position + size]
        position += size


def _read_varint(message: memoryview, start: int) -> tuple[int, int]:
    """Return the number at `start`, and the position after it. Raises IndexError."""
    value = 0
    for index in range(10):
        byte = message[start + index]
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, start + index + 1

    raise IndexError("a number is too long")


def _read_span(fields: Fields, scope: Any) -> Span:
    """Return a span in OTLP JSON. Raises InvalidInput."""
    status = fields.get("status") or {}
    require(isinstance(status, Mapping), "status", status, "an object with a code")
    events = [
        (text_field(record, "name"), _read_attributes(record.get("attributes")))
        for record in objects(fields.get("events"), "events")
    ]
    flags = _read_integer(fields, "flags", "bits")

    span = Span(
        trace=text_field(fields, "traceId"),
        id=text_field(fields, "spanId"),
        parent=text_field(fields, "parentSpanId"),
        name=text_field(fields, "name"),
        start=_read_integer(fields, "startTimeUnixNano"),
        end=_read_integer(fields, "endTimeUnixNano"),
        attributes=_read_attributes(fields.get("attributes")),
        status=SPAN_STATUS_CODES.get(text_of(status.get("code")), ""),
        message=text_field(status, "message"),
        events=events,
        # Bits of OTLP 1.1: it is known whether the parent is remote, and it is.
        remote=flags & 0x300 == 0x300,
    )

    if scope == OWN_SPAN_SCOPE:  # heedful's own spans only connect a trace
        return replace(span, attributes={}, message="", events=())

    return span


def _read_integer(
    fields: Fields, name: str, unit: str = "nanoseconds since 1970"
) -> int:
    """Return the field `name` as a whole number of 64 bits. Raises InvalidInput."""
    value = _read_number(fields.get(name) or 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
        raise InvalidInput(name, value, f"whole {unit}")
    return value


def _read_number(value: Any) -> Any:
    """Convert a whole number in a text or a float to int; return others unchanged."""
    is_number = isinstance(value, str | float)
    with suppress(ValueError, OverflowError):
        return int(value) if is_number and float(value).is_integer() else value
    return value


def _read_attributes(pairs: Any) -> Attributes:
    """Return attributes by their keys. Raises InvalidInput."""
    listed = objects(pairs, "attributes")
    return {text_field(pair, "key"): _read_value(pair.get("value")) for pair in listed}


def _read_value(value: Any) -> Any:
    """Decode the value of an attribute, an object such as {"intValue": "3"}."""
    if not isinstance(value, Mapping) or not value:
        return None

    kind, content = next(iter(value.items()))
    if kind == "intValue":
        return _read_number(content)
    if kind not in ("arrayValue", "kvlistValue"):
        return content

    values = first_of(object_of(value, kind), "values")
    if kind == "kvlistValue":
        return _read_attributes(values)

    return [_read_value(part) for part in objects(values, "values")]

"""Decode OpenTelemetry spans, in JSON or protobuf, into the steps of an agent. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

from heedful.errors import InvalidInput
from heedful.traces import messages
from heedful.traces.episode import MODEL_WORD_EVENTS, Event, Origin, json_data
from heedful.traces.messages import first_of, objects, text_field, text_of
from heedful.validation import MAX_INTEGER, require

Attributes = Mapping[str, Any]
# the instrumentation scope of heedful's own spans (`heedful.telemetry.SCOPE`)
OWN_SPAN_SCOPE = "heedful"
SPAN_STATUS_CODES: Mapping[Any, str] = {
    **dict.fromkeys((1, "STATUS_CODE_OK"), "ok"),
    **dict.fromkeys((2, "STATUS_CODE_ERROR"), "error"),
}
Error = tuple[str, str]
Kind = Literal["model", "tool", "around", ""]
ANSWER_EVENTS = MODEL_WORD_EVENTS | {"tool_response"}
OPENINFERENCE_KIND = "openinference.span.kind"
# What a span records -> the kind of its step, and whose words it holds: a model's (""),
# or others'.
SPAN_KINDS: Mapping[str, tuple[Kind, Origin]] = {
    **dict.fromkeys(
        ("chat", "text_completion", "generate_content", "LLM"), ("model", "")
    ),
    **dict.fromkeys(("invoke_agent", "create_agent", "AGENT"), ("around", "")),
    **dict.fromkeys(("execute_tool", "TOOL"), ("tool", "tool")),
    **dict.fromkeys(("retrieval", "RETRIEVER"), ("tool", "external")),
}
# Field -> its attributes in both conventions; the first attribute that is present
# counts.
FIELD_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "agent": ("gen_ai.agent.name", "agent.name"),
    "session": ("gen_ai.conversation.id", "session.id"),
    "tool": ("gen_ai.tool.name", "tool.name"),
    "call": ("gen_ai.tool.call.id", "tool_call.id", "tool.id"),
    "arguments": (
        "gen_ai.tool.call.arguments",
        "gen_ai.retrieval.query.text",
        "input.value",
    ),
    "result": ("gen_ai.tool.call.result", "gen_ai.retrieval.documents", "output.value"),
}


@dataclass(slots=True, kw_only=True)
class Span:
    """One operation. Ids are in hex, times in nanoseconds since 1970 (0 if unknown).

    `remote` is True if the parent span is in another process, which may export its
    spans elsewhere. `long` is True if the span was too long to be read.
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
    events: Sequence[tuple[str, Attributes]] = ()
    remote: bool = False
    long: bool = False


def from_json(document: Any) -> Iterator[Span]:
    """Yield the spans of a document with `resourceSpans`. Raises InvalidInput."""
    if not isinstance(document, Mapping) or "resourceSpans" not in document:
        raise InvalidInput("a line", document, "an object with resourceSpans")
    for resource in objects(document["resourceSpans"], "resourceSpans"):
        for scope in objects(resource.get("scopeSpans"), "scopeSpans"):
            named = scope.get("scope")
            name = named.get("name") if isinstance(named, Mapping) else ""
            for span in objects(scope.get("spans"), "spans"):
                yield _span(span, name)


def from_request(data: bytes, longest: int = MAX_INTEGER) -> Iterator[Span]:
    """Yield the spans of a protobuf `ExportTraceServiceRequest`.

    Spans are decoded one at a time, because a decoded span may need 200 times its
    bytes. Of a span with more than `longest` bytes, nothing but `long` is set. Raises
    InvalidInput, ImportError.
    """
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message

    try:
        for _, resource in _fields(memoryview(data), 1):
            for _, scope in _fields(resource, 2):
                named = ""
                for number, content in _fields(scope, 1, 2):
                    if number == 1:
                        named = InstrumentationScope.FromString(content).name
                    elif len(content) > longest:
                        yield Span(
                            trace="",
                            id="",
                            parent="",
                            name="",
                            start=0,
                            end=0,
                            attributes={},
                            long=True,
                        )
                    else:
                        span = Message.FromString(content)
                        ids = {
                            "traceId": span.trace_id.hex(),
                            "spanId": span.span_id.hex(),
                        }
                        ids["parentSpanId"] = span.parent_span_id.hex()
                        yield _span({**MessageToDict(span), **ids}, named)
    except (DecodeError, IndexError) as error:
        raise InvalidInput(
            "the data", data[:16], "JSON, or whole OTLP protobuf"
        ) from error


def _fields(message: memoryview, *wanted: int) -> Iterator[tuple[int, memoryview]]:
    """Yield number and content of the wanted fields of a protobuf message. Raises
    IndexError.
    """
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        if tag & 7 == 0 and tag:
            _, at = _varint(message, at)
            continue
        size = {1: 8, 5: 4}.get(tag & 7, MAX_INTEGER)
        if tag & 7 == 2:
            size, at = _varint(message, at)
        if size > len(message) - at or not tag >> 3:
            raise IndexError("a field ends too late, or has no number")
        if tag >> 3 in wanted:
            yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and the position after it. Raises
    IndexError.
    """
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at = at + 1
        value = value | (byte & 127) << shift
        if byte < 128:
            return value, at
    raise IndexError("a number is too long")


def _span(given: Mapping[str, Any], scope: Any) -> Span:
    status = given.get("status") or {}
    require(isinstance(status, Mapping), "status", status, "an object with a code")
    code = status.get("code")
    pairs = objects(given.get("events"), "events")
    texts = ("traceId", "spanId", "parentSpanId", "name")
    trace, id, parent, name = (text_field(given, key) for key in texts)
    start, end = (
        _integer(given, key) for key in ("startTimeUnixNano", "endTimeUnixNano")
    )
    attributes = _attributes(given.get("attributes"))
    message = text_field(status, "message")
    known = SPAN_STATUS_CODES.get(code, "") if isinstance(code, int | str) else ""
    events = [
        (text_field(event, "name"), _attributes(event.get("attributes")))
        for event in pairs
    ]
    remote = (
        _integer(given, "flags", "bits") & 0x300 == 0x300
    )  # its parent is remote (OTLP 1.1)
    span = Span(
        trace=trace,
        id=id,
        parent=parent,
        name=name,
        start=start,
        end=end,
        attributes=attributes,
        status=known,
        message=message,
        events=events,
        remote=remote,
    )
    # heedful's own spans only connect a trace.
    return (
        replace(span, attributes={}, message="", events=())
        if scope == OWN_SPAN_SCOPE
        else span
    )


def _integer(
    given: Mapping[str, Any], name: str, unit: str = "nanoseconds since 1970"
) -> int:
    """Return the field `name` as an integer of 64 bits without sign. Raises
    InvalidInput.
    """
    value = _number(given.get(name) or 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
        raise InvalidInput(name, value, f"whole {unit}")
    return value


def _number(held: Any) -> Any:
    """Convert a whole number in a text or a float to int; return other values
    unchanged.
    """
    text = isinstance(held, str) and re.fullmatch("-?[0-9]{1,20}", held)
    return (
        int(held) if text or (isinstance(held, float) and held.is_integer()) else held
    )


def _attributes(pairs: Any) -> Attributes:
    listed = objects(pairs, "attributes")
    return {text_field(pair, "key"): _value(pair.get("value")) for pair in listed}


def _value(value: Any) -> Any:
    """Decode the value of an attribute, an object such as {"intValue": "3"}."""
    if not isinstance(value, Mapping) or not value:
        return None
    kind, held = next(iter(value.items()))
    if kind not in ("arrayValue", "kvlistValue"):
        return _number(held) if kind == "intValue" else held
    values = held.get("values") if isinstance(held, Mapping) else None
    if kind == "kvlistValue":
        return _attributes(values)
    return [_value(each) for each in objects(values, "values")]


@dataclass(slots=True)
class SpanStep:
    """The step that a span records: its input and output events, and its error.

    `kind` is "model" for a call of a model, "tool" for a call of a tool, "around" for
    an agent or a chain around such calls, and "" for any other span. Times are in
    nanoseconds since 1970, or 0.
    """

    id: str
    parent: str
    _: KW_ONLY
    start: int
    end: int
    status: str
    error: Error | None
    kind: Kind = ""
    inputs: tuple[Event, ...] = ()
    outputs: tuple[Event, ...] = ()
    agent: str = ""
    session: str = ""
    tools: Sequence[str] = ()


def step_of(span: Span) -> SpanStep:
    """Return the step of a span; data that violate the conventions become text.

    Of a model are only the answers of models and agents. A prompt shows turns of a
    model that nobody recorded, and only the prompt of a model, or of the root, is what
    a user said.
    """
    held = span.attributes
    (kind, by) = kind_of(span.attributes)
    step = SpanStep(
        span.id,
        span.parent,
        start=span.start,
        end=span.end,
        status=span.status,
        error=_error_of(span),
        kind=kind,
    )
    if not kind:
        return step
    named = {what: first_of(held, *names) for what, names in FIELD_ATTRIBUTES.items()}
    # The agent of a decorated function is named by its span alone.
    unnamed = span.name if str(held.get(OPENINFERENCE_KIND)).upper() == "AGENT" else ""
    step.agent = text_of(named["agent"]) or unnamed
    step.session = text_of(named["session"])
    if kind == "tool":
        _add_tool(step, span, named)
    elif held.get(OPENINFERENCE_KIND):
        tools = _listed(held, "llm.tools.")
        schemas = [
            one if "name" in one else json_data(one.get("json_schema")) for one in tools
        ]
        with suppress(InvalidInput):
            step.tools = messages.offered_tools(schemas)
        step.inputs = _inferred_events(step, held, "input", "user")
        step.outputs = _inferred_events(step, held, "output", "assistant")
    else:
        with suppress(InvalidInput):
            step.tools = messages.offered_tools(
                json_data(held.get("gen_ai.tool.definitions"))
            )
        instructions = json_data(held.get("gen_ai.system_instructions"))
        if instructions is not None:
            step.inputs += _events([{"parts": instructions}], "system")
        step.inputs += _events(json_data(held.get("gen_ai.input.messages")), "user")
        step.outputs += _events(
            json_data(held.get("gen_ai.output.messages")), "assistant"
        )
    asked = by if span.parent or kind == "tool" else ""
    step.inputs = tuple(
        replace(
            one,
            origin="external"
            if kind != "tool" and one.type in MODEL_WORD_EVENTS
            else asked,
        )
        for one in step.inputs
    )
    step.outputs = tuple(
        one
        if not by and one.type in ANSWER_EVENTS
        else replace(one, origin=by or "external")
        for one in step.outputs
    )
    return step


def kind_of(held: Attributes) -> tuple[Kind, Origin]:
    """Return the kind of a step and the origin of its words, from the attributes of its
    span.
    """
    inferred = held.get(OPENINFERENCE_KIND)
    kind = inferred or held.get("gen_ai.operation.name")
    if not isinstance(kind, str):
        return "", ""
    return SPAN_KINDS.get(kind.upper() if inferred else kind, ("around", "external"))


def _error_of(span: Span) -> Error | None:
    """Return the span's error as message and code, or None if the span did not fail."""
    kind = text_of(span.attributes.get("error.type"))
    if span.status != "error" and (span.status == "ok" or not kind):
        return None
    exceptions = [held for name, held in span.events if name == "exception"]
    last = exceptions[-1] if exceptions else {}
    message = text_of(last.get("exception.message")) or span.message
    code = kind or text_of(last.get("exception.type"))
    return message or code or "error", code


def _add_tool(step: SpanStep, span: Span, named: Mapping[str, Any]) -> None:
    """Add the call of the tool to `step` and, if the result was recorded, the
    response.
    """
    tool = text_of(named["tool"]) or span.name.removeprefix("execute_tool ")
    given = messages.arguments_of(named["arguments"])
    call = text_of(named["call"])
    step.inputs = (
        Event("tool_call", "", agent=step.agent, tool=tool, arguments=given, call=call),
    )
    result = named["result"]
    if result is None:
        documents = _listed(span.attributes, "retrieval.documents.")
        result = "\n".join(text_of(each.get("content")) for each in documents) or None
    if isinstance(result, str) and result.startswith('"'):  # recorded as JSON text
        result = json_data(result)
    if step.error is not None or result is not None:
        message, code = step.error or ("", "")
        response = Event(
            "tool_response",
            text_of(result),
            agent="",
            tool=tool,
            arguments=None,
            call=call,
            error=message,
            code=code,
        )
        step.outputs = (response,)


def _inferred_events(
    step: SpanStep, held: Attributes, side: str, role: str
) -> tuple[Event, ...]:
    found = _listed(held, f"llm.{side}_messages.")
    for message in found:
        if isinstance(contents := message.pop("contents", None), list):
            # The calls are also in `tool_calls`.
            message["content"] = [p for p in contents if p.get("type") != "tool_use"]
    value = held.get(f"{side}.value")
    kind = held.get(f"{side}.mime_type")
    plain = isinstance(value, str) and (
        kind != "application/json" or step.kind == "model"
    )
    return _events(found, role) or (
        _events([{"content": value}], role) if plain else ()
    )


def _listed(held: Attributes, prefix: str) -> list[dict[str, Any]]:
    """Return the list of objects that is flattened in attributes like
    `PREFIX0.message.role`.
    """
    tree: dict[str, Any] = {}
    for key, value in held.items():
        if key.startswith(prefix):
            *path, last = key[len(prefix) :].split(".")
            at = tree
            for part in path[:20]:
                at[part] = inner = at[part] if isinstance(at.get(part), dict) else {}
                at = inner
            at[last] = value
    found = _in_order(tree)
    return found if isinstance(found, list) else []


def _in_order(tree: Any) -> Any:
    """Replace each object like {"0": {"message": {…}}, "1": …} by the list of its inner
    objects.
    """
    if not isinstance(tree, dict):
        return tree
    inner = {name: _in_order(held) for name, held in tree.items()}
    places = sorted(
        (name for name in inner if re.fullmatch("[0-9]{1,9}", name)), key=int
    )
    if not places:
        return inner
    entries = [inner[place] for place in places if isinstance(inner[place], dict)]
    wrapped = (next(iter(entry.values()), None) for entry in entries)
    return [entry for entry in wrapped if isinstance(entry, dict)]


def _events(found: Any, role: str) -> tuple[Event, ...]:
    """Return the events of messages; messages that violate the conventions become one
    text.
    """
    events: list[Event] = []
    try:
        for message in objects(found, "messages"):
            calls = json_data(message.get("tool_calls"))
            who = str(message.get("role") or role)
            whole = {**message, "role": who, "tool_calls": calls or None}
            events += messages.chat_events(whole, {})
    except InvalidInput:
        events = messages.message_events(role, [{"text": text_of(found)}], {})
    return tuple(events)

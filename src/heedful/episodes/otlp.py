"""Decode OpenTelemetry spans, in JSON or protobuf, into the steps of an agent. Pure.

Two conventions name the attributes of models, tools and agents: OpenTelemetry GenAI and
OpenInference. `SPAN_KINDS` and `FIELD_ATTRIBUTES` are the tables of both; `step_of`
turns the attributes of a span into events, and says whose words each event holds.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

from heedful.episodes import messages
from heedful.episodes.episode import MODEL_WORD_EVENTS, Event, Origin, json_data
from heedful.episodes.messages import objects, text_field, text_of
from heedful.errors import InvalidInput
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
# What a span records -> the kind of its step, and whose words it holds: a model's ("")
# or those of others.
SPAN_KINDS: Mapping[str, tuple[Kind, Origin]] = {
    **dict.fromkeys(
        ("chat", "text_completion", "generate_content", "LLM"), ("model", "")
    ),
    **dict.fromkeys(("invoke_agent", "create_agent", "AGENT"), ("around", "")),
    **dict.fromkeys(("execute_tool", "TOOL"), ("tool", "tool")),
    **dict.fromkeys(("retrieval", "RETRIEVER"), ("tool", "outside")),
}
# Field -> its attributes in both conventions; the first attribute present counts.
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


# Attributes, also of a span's events, that may hold what a model was given, whatever
# the convention; and the names, in these and in their data, of words in a message.
_GIVEN_ATTRIBUTE_PATTERN = re.compile(
    r"(?:gen_ai\.(?:input|prompt|system_instructions|event\.content)|llm\.input_messages"
    r"|llm\.prompts|input\.value)\b|content\Z"
)
_WORD_NAMES = frozenset(
    "content text value prompt prompts response result page_content refusal".split()
)


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
        for scope_spans in objects(resource.get("scopeSpans"), "scopeSpans"):
            scope = scope_spans.get("scope")
            name = scope.get("name") if isinstance(scope, Mapping) else ""
            for span in objects(scope_spans.get("spans"), "spans"):
                yield _read_span(span, name)


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
        return Span(
            trace="",
            id="",
            parent="",
            name="",
            start=0,
            end=0,
            attributes={},
            long=True,
        )

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


def _read_span(fields: Mapping[str, Any], scope: Any) -> Span:
    """Return a span in OTLP JSON. Raises InvalidInput."""
    status = fields.get("status") or {}
    require(isinstance(status, Mapping), "status", status, "an object with a code")
    code = status.get("code")

    records = objects(fields.get("events"), "events")
    span = Span(
        trace=text_field(fields, "traceId"),
        id=text_field(fields, "spanId"),
        parent=text_field(fields, "parentSpanId"),
        name=text_field(fields, "name"),
        start=_read_integer(fields, "startTimeUnixNano"),
        end=_read_integer(fields, "endTimeUnixNano"),
        attributes=_read_attributes(fields.get("attributes")),
        message=text_field(status, "message"),
    )

    if isinstance(code, int | str):
        span.status = SPAN_STATUS_CODES.get(code, "")
    span.events = [
        (text_field(record, "name"), _read_attributes(record.get("attributes")))
        for record in records
    ]

    # Bits of OTLP 1.1: it is known whether the parent is remote, and it is.
    span.remote = _read_integer(fields, "flags", "bits") & 0x300 == 0x300

    if scope == OWN_SPAN_SCOPE:  # heedful's own spans only connect a trace
        return replace(span, attributes={}, message="", events=())

    return span


def _read_integer(
    fields: Mapping[str, Any], name: str, unit: str = "nanoseconds since 1970"
) -> int:
    """Return the field `name` as a whole number of 64 bits. Raises InvalidInput."""
    value = _read_number(fields.get(name) or 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
        raise InvalidInput(name, value, f"whole {unit}")
    return value


def _read_number(value: Any) -> Any:
    """Convert a whole number in a text or a float to int; return others unchanged."""
    if isinstance(value, str) and re.fullmatch("-?[0-9]{1,20}", value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
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

    values = content.get("values") if isinstance(content, Mapping) else None
    if kind == "kvlistValue":
        return _read_attributes(values)

    return [_read_value(part) for part in objects(values, "values")]


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

    The words of a model are only the answers of models and agents. A prompt shows turns
    of a model that nobody recorded, and only the prompt of a model, or of the root, is
    what a user said.
    """
    attributes = span.attributes
    kind, author = kind_of(attributes)
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

    step.agent = text_of(_find_attribute(attributes, "agent"))
    if str(attributes.get(OPENINFERENCE_KIND)).upper() == "AGENT":
        # The agent of a decorated function is named by its span alone.
        step.agent = step.agent or span.name

    step.session = text_of(_find_attribute(attributes, "session"))
    if kind == "tool":
        _add_tool(step, span)
    elif attributes.get(OPENINFERENCE_KIND):
        _add_inferred(step, attributes)
    else:
        _add_genai(step, attributes)
    if kind == "model":
        _add_unread(step, span)

    prompt_author = author if span.parent or kind == "tool" else ""
    step.inputs = tuple(
        replace(event, origin=_prompt_origin(event, kind, prompt_author))
        for event in step.inputs
    )
    step.outputs = tuple(
        replace(event, origin=_output_origin(event, author)) for event in step.outputs
    )

    return step


def _prompt_origin(event: Event, kind: Kind, author: Origin) -> Origin:
    """Return whose words an input holds; a model in a prompt is from outside."""
    if kind != "tool" and event.type in MODEL_WORD_EVENTS:
        return "outside"
    return event.origin or author


def _output_origin(event: Event, author: Origin) -> Origin:
    """Return whose words an output holds; only the answers are those of the model."""
    if not author and event.type in ANSWER_EVENTS:
        return event.origin
    return author or "outside"


def _add_unread(step: SpanStep, span: Span) -> None:
    """Add the words that a model was given beside the messages that were read.

    A span may follow several conventions. Who wrote the other words is unknown.
    """
    read_lines: set[str] = set()
    for event in (*step.inputs, *step.outputs):
        for text in (event.content, *_words_of(event.content, "text")):
            read_lines.update(map(str.strip, text.splitlines()))

    unread: dict[str, None] = {}
    for attributes in (span.attributes, *(fields for _, fields in span.events)):
        for name, value in attributes.items():
            if _GIVEN_ATTRIBUTE_PATTERN.match(name):
                for words in _words_of(value, name.rpartition(".")[2]):
                    unread |= dict.fromkeys(map(str.strip, words.splitlines()))
    lines = [line for line in unread if line and line not in read_lines]
    if lines:
        event = Event("system_event", "\n".join(lines), origin="outside")
        step.inputs += (event,)


def _words_of(value: Any, name: str) -> Iterator[str]:
    """Yield the words of messages in the data of an attribute with this name."""
    data = json_data(value)
    if isinstance(data, Mapping):
        for inner_name, part in data.items():
            yield from _words_of(part, inner_name)
    elif isinstance(data, list):
        for part in data:
            yield from _words_of(part, name)
    elif isinstance(data, str) and name in _WORD_NAMES:
        yield data


def _find_attribute(attributes: Attributes, name: str) -> Any:
    """Return a field of `FIELD_ATTRIBUTES`, or None."""
    for attribute in FIELD_ATTRIBUTES[name]:
        if attribute in attributes:
            return attributes[attribute]
    return None


def kind_of(attributes: Attributes) -> tuple[Kind, Origin]:
    """Return the kind of a span's step, and the origin of the words in it."""
    inferred = attributes.get(OPENINFERENCE_KIND)
    kind = inferred or attributes.get("gen_ai.operation.name")
    if not isinstance(kind, str):
        return "", ""

    if inferred:
        kind = kind.upper()
    return SPAN_KINDS.get(kind, ("around", "outside"))


def _error_of(span: Span) -> Error | None:
    """Return the span's error as message and code, or None if the span did not fail."""
    kind = text_of(span.attributes.get("error.type"))
    if span.status != "error" and (span.status == "ok" or not kind):
        return None

    exceptions = [record for name, record in span.events if name == "exception"]
    last = exceptions[-1] if exceptions else {}
    message = text_of(last.get("exception.message")) or span.message
    code = kind or text_of(last.get("exception.type"))

    return message or code or "error", code


def _add_tool(step: SpanStep, span: Span) -> None:
    """Add the call of a tool, and the response if a result or an error is recorded."""
    attributes = span.attributes
    tool = text_of(_find_attribute(attributes, "tool"))
    tool = tool or span.name.removeprefix("execute_tool ")
    call = Event(
        "tool_call",
        agent=step.agent,
        tool=tool,
        arguments=messages.arguments_of(_find_attribute(attributes, "arguments")),
        call=text_of(_find_attribute(attributes, "call")),
    )
    step.inputs = (call,)

    results = [attributes.get(name) for name in FIELD_ATTRIBUTES["result"]]
    documents = _unflatten(attributes, "retrieval.documents.")
    results += [
        messages.texts_of(document, "content", "metadata") or None
        for document in documents
    ]
    texts: dict[str, None] = {}
    for result in results:
        if isinstance(result, str) and result.startswith('"'):  # recorded as JSON text
            result = json_data(result)
        if result is not None:
            texts[text_of(result)] = None

    if step.error is not None or texts:
        message, code = step.error or ("", "")
        response = Event(
            "tool_response",
            "\n".join(texts),
            tool=tool,
            call=call.call,
            error=message,
            code=code,
        )
        step.outputs = (response,)


def _add_genai(step: SpanStep, attributes: Attributes) -> None:
    """Add the chat of a model or an agent, by the conventions of GenAI."""
    definitions = json_data(attributes.get("gen_ai.tool.definitions"))
    with suppress(InvalidInput):
        step.tools = messages.offered_tools(definitions)

    instructions = json_data(attributes.get("gen_ai.system_instructions"))
    if instructions is not None:
        step.inputs += _read_events([{"parts": instructions}], "system")

    prompt = json_data(attributes.get("gen_ai.input.messages"))
    answer = json_data(attributes.get("gen_ai.output.messages"))
    step.inputs += _read_events(prompt, "user")
    step.outputs += _read_events(answer, "assistant")


def _add_inferred(step: SpanStep, attributes: Attributes) -> None:
    """Add the chat of a model or an agent, by the conventions of OpenInference."""
    schemas = [
        tool if "name" in tool else json_data(tool.get("json_schema"))
        for tool in _unflatten(attributes, "llm.tools.")
    ]
    with suppress(InvalidInput):
        step.tools = messages.offered_tools(schemas)
    step.inputs = _inferred_events(step, attributes, "input", "user")
    step.outputs = _inferred_events(step, attributes, "output", "assistant")


def _inferred_events(
    step: SpanStep, attributes: Attributes, side: str, role: str
) -> tuple[Event, ...]:
    """Return the events of one `side` ("input" or "output") of a span of OpenInference.

    `role` is that of messages without a role, and of a side that is only a text.
    """
    chat = _unflatten(attributes, f"llm.{side}_messages.")
    for message in chat:
        contents = message.pop("contents", None)
        if isinstance(contents, list):
            # The calls are also in `tool_calls`.
            message["parts"] = [
                part for part in contents if part.get("type") != "tool_use"
            ]

    events = _read_events(chat, role)
    value = attributes.get(f"{side}.value")
    is_json = attributes.get(f"{side}.mime_type") == "application/json"
    if events or not isinstance(value, str) or (is_json and step.kind != "model"):
        return events

    return _read_events([{"content": value}], role)


def _unflatten(attributes: Attributes, prefix: str) -> list[dict[str, Any]]:
    """Return the objects flattened in attributes such as `PREFIX0.message.role`."""
    tree: dict[str, object] = {}
    for name, value in attributes.items():
        if name.startswith(prefix):
            *path, last = name[len(prefix) :].split(".")

            branch = tree
            for part in path[:20]:
                inner = branch.get(part)
                if not isinstance(inner, dict):
                    inner = {}
                    branch[part] = inner
                branch = inner

            branch[last] = value

    entries = _in_order(tree)
    return entries if isinstance(entries, list) else []


def _in_order(tree: Any) -> Any:
    """Replace an object like {"0": {"message": {…}}} by a list of its inner objects."""
    if not isinstance(tree, dict):
        return tree

    branches = {name: _in_order(branch) for name, branch in tree.items()}
    numbers = [name for name in branches if re.fullmatch("[0-9]{1,9}", name)]
    if not numbers:
        return branches

    entries: list[object] = []
    for number in sorted(numbers, key=int):
        branch = branches[number]
        if isinstance(branch, dict):
            entries.append(next(iter(branch.values()), None))

    return [entry for entry in entries if isinstance(entry, dict)]


def _read_events(chat: Any, role: str) -> tuple[Event, ...]:
    """Return the events of messages; those against the conventions become one text."""
    events: list[Event] = []
    try:
        for message in objects(chat, "messages"):
            calls = json_data(message.get("tool_calls"))
            author = str(message.get("role") or role)

            message = {**message, "role": author, "tool_calls": calls or None}
            events += messages.chat_events(message, {})
    except InvalidInput:
        events = messages.message_events(role, [{"text": text_of(chat)}], {})

    return tuple(events)

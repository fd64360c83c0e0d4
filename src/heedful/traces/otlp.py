"""One span, as OpenTelemetry writes it in JSON or protobuf -> what it says of an agent. Pure.

A span is decoded into one form, `Span`; by the conventions of OpenTelemetry GenAI or OpenInference
it becomes a `Step`: the events that went in and came out of a model, a tool or an agent.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from heedful.errors import InvalidInput
from heedful.traces.episode import Event
from heedful.traces.messages import (
    arguments_of,
    chat_events,
    first_of,
    message_events,
    objects,
    offered_tools,
    text_field,
    text_of,
)

Attributes = Mapping[str, Any]
# The instrumentation scope of heedful's own spans (`heedful.telemetry.SCOPE`).
OWN = "heedful"
# The bits of a span's flags that say its parent is remote (OTLP 1.1).
REMOTE = 0x300
_INTEGER = re.compile(r"-?[0-9]{1,20}")
CODES: Mapping[int | str, str] = {
    1: "ok",
    "STATUS_CODE_OK": "ok",
    2: "error",
    "STATUS_CODE_ERROR": "error",
}
Error = tuple[str, str]
Kind = Literal["model", "tool", "around"]
OPENINFERENCE = "openinference.span.kind"
GENAI = "gen_ai.operation.name"
KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("chat", "text_completion", "generate_content", "LLM"), "model"),
    **dict.fromkeys(("execute_tool", "retrieval", "TOOL", "RETRIEVER"), "tool"),
}
# The names of attributes in both conventions, by what they hold; the first one present counts.
NAMES: Mapping[str, tuple[str, ...]] = {
    "agent": ("gen_ai.agent.name", "agent.name"),
    "session": ("gen_ai.conversation.id", "session.id"),
    "prompt": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    "completion": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
    ),
    "tool": ("gen_ai.tool.name", "tool.name"),
    "call": ("gen_ai.tool.call.id", "tool_call.id", "tool.id"),
    "arguments": ("gen_ai.tool.call.arguments", "gen_ai.retrieval.query.text", "input.value"),
    "result": ("gen_ai.tool.call.result", "gen_ai.retrieval.documents", "output.value"),
}
# Messages as events of a span, as the conventions had them until 1.36.
EVENTS = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")
_PLACE = re.compile("[0-9]{1,9}")


@dataclass(slots=True)
class Span:
    """One operation: ids in hex, times in nanoseconds since 1970 (0: unknown).

    `remote`: its parent is in another process, which may export its spans elsewhere.
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
    """Yield the spans of a document with `resourceSpans`. Raises InvalidInput."""
    if not isinstance(document, Mapping) or "resourceSpans" not in document:
        raise InvalidInput("a line", document, "an object with resourceSpans")
    for resource in objects(document["resourceSpans"], "resourceSpans"):
        for scope in objects(resource.get("scopeSpans"), "scopeSpans"):
            named = scope.get("scope")
            own = isinstance(named, Mapping) and named.get("name") == OWN
            for span in map(_span, objects(scope.get("spans"), "spans")):
                yield _without_content(span) if own else span


def _span(given: Mapping[str, Any]) -> Span:
    status = given.get("status") or {}
    if not isinstance(status, Mapping):
        raise InvalidInput("status", status, "an object with a code")
    code = status.get("code")
    return Span(
        text_field(given, "traceId"),
        text_field(given, "spanId"),
        text_field(given, "parentSpanId"),
        text_field(given, "name"),
        _integer(given, "startTimeUnixNano"),
        _integer(given, "endTimeUnixNano"),
        _attributes(given),
        CODES.get(code, "") if isinstance(code, int | str) else "",
        text_field(status, "message"),
        [(text_field(e, "name"), _attributes(e)) for e in objects(given.get("events"), "events")],
        _integer(given, "flags", "bits") & REMOTE == REMOTE,
    )


def _integer(given: Mapping[str, Any], name: str, unit: str = "nanoseconds since 1970") -> int:
    """Return an integer of 64 bits, which JSON may hold as text. Raises InvalidInput."""
    value = _number(given.get(name) or 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
        raise InvalidInput(name, value, f"whole {unit}")
    return value


def _number(held: Any) -> Any:
    """Turn the text or the float that JSON has for an integer into an integer."""
    text = isinstance(held, str) and _INTEGER.fullmatch(held)
    return int(held) if text or (isinstance(held, float) and held.is_integer()) else held


def _attributes(given: Mapping[str, Any]) -> Attributes:
    pairs = objects(given.get("attributes"), "attributes")
    return {text_field(pair, "key"): _value(pair.get("value")) for pair in pairs}


def _value(value: Any) -> Any:
    if not isinstance(value, Mapping) or not value:
        return None
    kind, held = next(iter(value.items()))
    if kind not in ("arrayValue", "kvlistValue"):
        return _number(held) if kind == "intValue" else held
    inner = objects(held.get("values") if isinstance(held, Mapping) else None, "values")
    if kind == "arrayValue":
        return [_value(each) for each in inner]
    return {text_field(pair, "key"): _value(pair.get("value")) for pair in inner}


def from_request(data: bytes) -> Iterator[Span]:
    """Yield the spans of an `ExportTraceServiceRequest`. Raises InvalidInput, ImportError."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData  # has the same encoding

    try:
        request = TracesData.FromString(data)
    except DecodeError as error:
        raise InvalidInput("spans", data[:16], f"whole OTLP protobuf ({error})") from error
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in map(_protobuf_span, scope.spans):
                yield _without_content(span) if scope.scope.name == OWN else span


def _without_content(span: Span) -> Span:
    """Empty a span of heedful's own: it connects a trace and holds nothing to learn from."""
    return replace(span, attributes={}, message="", events=())


def _protobuf_span(span: Any) -> Span:
    return Span(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _pairs(span.attributes),
        CODES.get(span.status.code, ""),
        span.status.message,
        [(event.name, _pairs(event.attributes)) for event in span.events],
        span.flags & REMOTE == REMOTE,
    )


def _pairs(attributes: Any) -> Attributes:
    return {pair.key: _plain_value(pair.value) for pair in attributes}


def _plain_value(value: Any) -> Any:
    match kind := value.WhichOneof("value"):
        case None:
            return None
        case "array_value":
            return [_plain_value(each) for each in value.array_value.values]
        case "kvlist_value":
            return _pairs(value.kvlist_value.values)
        case "bytes_value":
            return b64encode(value.bytes_value).decode("ascii")  # as JSON has it
        case _:
            return getattr(value, kind)


@dataclass(slots=True)
class Step:
    """What one span says: the events that went in and came out, and what they cost.

    `kind` is a model's answer, a tool's work, or a span around them, such as an agent or a chain.
    """

    kind: Kind
    inputs: list[Event] = field(default_factory=list)
    outputs: list[Event] = field(default_factory=list)
    agent: str = ""
    session: str = ""
    tools: Sequence[str] = ()
    tokens: tuple[int, int] = (0, 0)
    cost: float = 0.0


def step_of(span: Span, error: Error | None) -> Step | None:
    """Return the step of a span with that error; None if it concerns no model, tool or agent.

    Data that does not follow the convention is kept as text.
    """
    held = span.attributes
    inferred = bool(held.get(OPENINFERENCE))
    kind = held.get(OPENINFERENCE if inferred else GENAI)
    if not isinstance(kind, str):
        return None
    if inferred:
        kind = kind.upper()
        tools = [_declared(tool) for tool in _listed(held, "llm.tools.", "tool")]
    else:
        for event, more in span.events:
            if event == "gen_ai.client.inference.operation.details":
                held = {**more, **held}
        tools = json_data(held.get("gen_ai.tool.definitions"))
    named = {what: first_of(held, *names) for what, names in NAMES.items()}
    cost = held.get("llm.cost.total")
    step = Step(
        KINDS.get(kind, "around"),
        # A decorated function has no other name.
        agent=text_of(named["agent"]) or (span.name if kind == "AGENT" else ""),
        session=text_of(named["session"]),
        tools=_tool_names(tools),
        tokens=(_tokens(named["prompt"]), _tokens(named["completion"])),
        cost=cost if isinstance(cost, float) and 0 <= cost < 1e12 else 0.0,
    )
    if step.kind == "tool":
        _add_tool(step, span, named, error)
    elif inferred:
        _add_openinference_messages(step, held)
    else:
        _add_genai_messages(step, span, held)
    return step


def _tokens(count: Any) -> int:
    return int(count) if isinstance(count, int | float) and 0 <= count < 2**53 else 0


def _add_tool(step: Step, span: Span, named: Mapping[str, Any], error: Error | None) -> None:
    """Add a call and, if its result was recorded, its response."""
    tool = text_of(named["tool"]) or span.name.removeprefix("execute_tool ")
    given, call, result = arguments_of(named["arguments"]), text_of(named["call"]), named["result"]
    step.inputs.append(Event("tool_call", "", step.agent, tool, given, call))
    if result is None:
        documents = _listed(span.attributes, "retrieval.documents.", "document")
        result = "\n".join(text_of(each.get("content")) for each in documents) or None
    if isinstance(result, str) and result.startswith('"'):  # recorded as JSON text
        data = json_data(result)
        result = data if isinstance(data, str) else result
    if error is not None or result is not None:
        message, code = error or ("", "")
        content = text_of(result)
        response = Event("tool_response", content, "", tool, None, call, message, code=code)
        step.outputs.append(response)


def error_of(span: Span) -> Error | None:
    """Return what went wrong and a code, from the last exception, the status or `error.type`."""
    kind = text_of(span.attributes.get("error.type"))
    if span.status != "error" and (span.status == "ok" or not kind):
        return None
    raised = [held for name, held in span.events if name == "exception"]
    last = raised[-1] if raised else {}
    message = text_of(last.get("exception.message")) or span.message
    code = kind or text_of(last.get("exception.type"))
    return message or code or "error", code


def _add_genai_messages(step: Step, span: Span, held: Attributes) -> None:
    instructions = json_data(held.get("gen_ai.system_instructions"))
    if instructions is not None:
        step.inputs += _part_messages([{"role": "system", "parts": instructions}], "system")
    step.inputs += _part_messages(json_data(held.get("gen_ai.input.messages")), "user")
    step.outputs += _part_messages(json_data(held.get("gen_ai.output.messages")), "assistant")
    for name, more in span.events:
        content = json_data(more.get("gen_ai.event.content"))
        body = content if isinstance(content, Mapping) else more
        if role := EVENTS.fullmatch(name):
            id = body.get("id")
            step.inputs += _chat({"role": role[1], "tool_call_id": id, **_message_fields(body)})
        elif name == "gen_ai.choice":
            message = json_data(body.get("message"))
            whole = message if isinstance(message, Mapping) else {"content": message}
            step.outputs += _chat({"role": "assistant", **_message_fields(whole)})


def _message_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    calls = json_data(body.get("tool_calls"))
    kept = {name: held for name, held in body.items() if name in ("content", "role", "name")}
    return kept | ({"tool_calls": calls} if calls else {})


def _add_openinference_messages(step: Step, held: Attributes) -> None:
    for name, role, events in (
        ("input", "user", step.inputs),
        ("output", "assistant", step.outputs),
    ):
        for message in _listed(held, f"llm.{name}_messages.", "message"):
            events += _chat(_openai_message(message))
        value = held.get(f"{name}.value")
        plain = held.get(f"{name}.mime_type") != "application/json"
        if not events and isinstance(value, str) and (plain or step.kind == "model"):
            events += message_events(role, [{"text": value}], {})


def _declared(tool: Mapping[str, Any]) -> Any:
    return tool if "name" in tool else json_data(tool.get("json_schema"))


def _openai_message(held: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a message of OpenInference into OpenAI's form."""
    message = {n: held[n] for n in ("role", "content", "name", "tool_call_id") if n in held}
    calls = [call.get("tool_call", {}) for call in _in_order(held.get("tool_calls"))]
    if calls:
        message["tool_calls"] = calls
    contents = [part.get("message_content", {}) for part in _in_order(held.get("contents"))]
    if contents:  # calls appear here a second time
        message["content"] = [part for part in contents if part.get("type") != "tool_use"]
    name = held.get("function_call_name")
    if name is not None:
        given = held.get("function_call_arguments_json")
        message["function_call"] = {"name": name, "arguments": given}
    return message


def _listed(held: Attributes, prefix: str, name: str) -> list[Mapping[str, Any]]:
    """Rebuild the objects that attributes such as `PREFIX0.NAME.role` spell out, in order."""
    tree: dict[str, Any] = {}
    for key, value in held.items():
        if not key.startswith(prefix):
            continue
        *path, last = key[len(prefix) :].split(".")
        at = tree
        for part in path[:20]:
            inner = at.get(part)
            if not isinstance(inner, dict):
                inner = at[part] = {}
            at = inner
        at[last] = value
    found = (entry.get(name) for entry in _in_order(tree))
    return [value for value in found if isinstance(value, dict)]


def _in_order(tree: Any) -> list[dict[str, Any]]:
    if not isinstance(tree, dict):
        return []
    places = sorted((place for place in tree if _PLACE.fullmatch(place)), key=int)
    return [tree[place] for place in places if isinstance(tree[place], dict)]


def json_data(value: Any) -> Any:
    """Decode an attribute that may be JSON text."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _part_messages(messages: Any, role: str) -> list[Event]:
    """Return the events of messages with `parts`; anything else becomes one text."""
    if messages is None:
        return []
    events: list[Event] = []
    try:
        for message in objects(messages, "messages"):
            parts = message.get("parts")
            whole = [{"content": parts}] if isinstance(parts, str) else objects(parts, "parts")
            events += message_events(
                str(message.get("role") or role), whole, {}, text_of(message.get("name"))
            )
    except InvalidInput:
        return message_events(role, [{"text": text_of(messages)}], {})
    return events


def _chat(message: Mapping[str, Any]) -> Iterator[Event]:
    try:
        yield from chat_events(message, {})
    except InvalidInput:
        role = message.get("role")
        yield from message_events(
            role if isinstance(role, str) else "user", [{"text": text_of(message)}], {}
        )


def _tool_names(tools: Any) -> list[str]:
    try:
        return offered_tools(tools)
    except InvalidInput:
        return []

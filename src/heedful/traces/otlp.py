"""One span, as OpenTelemetry writes it in JSON or protobuf -> what it says of an agent. Pure.

A span is decoded into one form, `Span`; by the conventions of OpenTelemetry GenAI or OpenInference
it becomes a `Step`: the events that went in and came out of a model, a tool or an agent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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
            name = named.get("name") if isinstance(named, Mapping) else ""
            for span in objects(scope.get("spans"), "spans"):
                yield _span(span, name)


def from_request(data: bytes) -> Iterator[Span]:
    """Yield the spans of an `ExportTraceServiceRequest`. Raises InvalidInput, ImportError."""
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData  # has the same encoding

    try:
        request = TracesData.FromString(data)
    except DecodeError as error:
        raise InvalidInput("spans", data[:16], f"whole OTLP protobuf ({error})") from error
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                ids = {"traceId": span.trace_id.hex(), "spanId": span.span_id.hex()}
                ids["parentSpanId"] = span.parent_span_id.hex()
                yield _span({**MessageToDict(span), **ids}, scope.scope.name)


def _span(given: Mapping[str, Any], scope: Any) -> Span:
    status = given.get("status") or {}
    if not isinstance(status, Mapping):
        raise InvalidInput("status", status, "an object with a code")
    code = status.get("code")
    events = [
        (text_field(e, "name"), _attributes(e)) for e in objects(given.get("events"), "events")
    ]
    span = Span(
        text_field(given, "traceId"),
        text_field(given, "spanId"),
        text_field(given, "parentSpanId"),
        text_field(given, "name"),
        _integer(given, "startTimeUnixNano"),
        _integer(given, "endTimeUnixNano"),
        _attributes(given),
        CODES.get(code, "") if isinstance(code, int | str) else "",
        text_field(status, "message"),
        events,
        _integer(given, "flags", "bits") & REMOTE == REMOTE,
    )
    # heedful's own spans connect a trace and hold nothing to learn from.
    return replace(span, attributes={}, message="", events=()) if scope == OWN else span


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
    kind = kind.upper() if inferred else kind
    named = {what: first_of(held, *names) for what, names in NAMES.items()}
    step = Step(
        KINDS.get(kind, "around"),
        # A decorated function has no other name.
        agent=text_of(named["agent"]) or (span.name if kind == "AGENT" else ""),
        session=text_of(named["session"]),
        tokens=(_tokens(named["prompt"]), _tokens(named["completion"])),
    )
    cost = held.get("llm.cost.total")
    step.cost = cost if isinstance(cost, float) and 0 <= cost < 1e12 else 0.0
    if step.kind == "tool":
        _add_tool(step, span, named, error)
    else:
        (_add_openinference if inferred else _add_genai)(step, span)
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
        result = json_data(result)
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
    last: Attributes = {}
    for name, held in span.events:
        last = held if name == "exception" else last
    message = text_of(last.get("exception.message")) or span.message
    code = kind or text_of(last.get("exception.type"))
    return message or code or "error", code


def _add_genai(step: Step, span: Span) -> None:
    held = span.attributes
    for name, more in span.events:
        if name == "gen_ai.client.inference.operation.details":
            held = {**more, **held}
    step.tools = _tool_names(json_data(held.get("gen_ai.tool.definitions")))
    instructions = json_data(held.get("gen_ai.system_instructions"))
    if instructions is not None:
        step.inputs += _part_messages([{"role": "system", "parts": instructions}], "system")
    step.inputs += _part_messages(json_data(held.get("gen_ai.input.messages")), "user")
    step.outputs += _part_messages(json_data(held.get("gen_ai.output.messages")), "assistant")
    for name, more in span.events:
        if role := EVENTS.fullmatch(name):
            step.inputs += _chat({"tool_call_id": more.get("id"), **more}, role[1])
        elif name == "gen_ai.choice":
            message = json_data(more.get("message"))
            whole = message if isinstance(message, Mapping) else {"content": message}
            step.outputs += _chat(whole, "assistant")


def _add_openinference(step: Step, span: Span) -> None:
    held = span.attributes
    tools = _listed(held, "llm.tools.", "tool")
    step.tools = _tool_names([t if "name" in t else json_data(t.get("json_schema")) for t in tools])
    for name, role, events in (
        ("input", "user", step.inputs),
        ("output", "assistant", step.outputs),
    ):
        for message in _listed(held, f"llm.{name}_messages.", "message"):
            events += _chat(_openai_message(message), role)
        value = held.get(f"{name}.value")
        plain = held.get(f"{name}.mime_type") != "application/json"
        if not events and isinstance(value, str) and (plain or step.kind == "model"):
            events += message_events(role, [{"text": value}], {})


def _openai_message(held: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a message of OpenInference into OpenAI's form."""
    message = {n: held[n] for n in ("role", "content", "name", "tool_call_id") if n in held}
    if calls := [call.get("tool_call", {}) for call in _in_order(held.get("tool_calls"))]:
        message["tool_calls"] = calls
    contents = [part.get("message_content", {}) for part in _in_order(held.get("contents"))]
    if contents:  # calls appear here a second time
        message["content"] = [part for part in contents if part.get("type") != "tool_use"]
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
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def _part_messages(messages: Any, role: str) -> list[Event]:
    """Return the events of messages with `parts`; anything else becomes one text."""
    events: list[Event] = []
    try:
        for message in objects(messages, "messages"):
            parts = message.get("parts")
            whole = [{"content": parts}] if isinstance(parts, str) else objects(parts, "parts")
            who, agent = str(message.get("role") or role), text_of(message.get("name"))
            events += message_events(who, whole, {}, agent)
    except InvalidInput:
        return message_events(role, [{"text": text_of(messages)}], {})
    return events


def _chat(message: Mapping[str, Any], role: str) -> list[Event]:
    """Return the events of an OpenAI message, whose calls may be JSON text."""
    calls = json_data(message.get("tool_calls"))
    try:
        return chat_events({"role": role, **message, "tool_calls": calls or None}, {})
    except InvalidInput:
        return message_events(role, [{"text": text_of(message)}], {})


def _tool_names(tools: Any) -> list[str]:
    try:
        return offered_tools(tools)
    except InvalidInput:
        return []

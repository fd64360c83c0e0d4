"""One run of an agent in every format, and the events that each format gives."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heedful.episodes.episode import Episode

SYSTEM = "You answer questions about orders."
QUESTION = "Where is order A-17?"
THOUGHT = "I will look the order up."
FOUND = "The order A-17 left on Monday."
# Each a call, its tool, the arguments, and what came of it: a result or an error.
STEPS = (
    ("call_1", "find_order", {"id": "A17"}, "", "no order A17"),
    ("call_2", "find_order", {"id": "A-17"}, "A-17: shipped on Monday", ""),
)
TRACE = "5b8aa5a2d2c872e8321cf37308d69df2"
ROOT = "00f067aa0ba902b7"
SECOND = 1_000_000_000
START = 1_769_860_800 * SECOND

Data = dict[str, Any]


def steps(episode: Episode) -> list[tuple[Any, ...]]:
    """The steps of a run, without the fields that only some formats have."""
    return [
        (
            event.type,
            event.content or event.error,
            event.tool,
            event.arguments,
            event.call,
        )
        for event in episode.events
    ]


EXPECTED = [
    ("system_event", SYSTEM, "", None, ""),
    ("user_message", QUESTION, "", None, ""),
    ("llm_response", THOUGHT, "", None, ""),
    ("tool_call", "", "find_order", {"id": "A17"}, "call_1"),
    ("tool_response", "no order A17", "find_order", None, "call_1"),
    ("tool_call", "", "find_order", {"id": "A-17"}, "call_2"),
    ("tool_response", "A-17: shipped on Monday", "find_order", None, "call_2"),
    ("llm_response", FOUND, "", None, ""),
]


def chat() -> list[Data]:
    """OpenAI's messages."""
    messages: list[Data] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
    ]
    for place, (call, tool, arguments, result, error) in enumerate(STEPS):
        function = {"name": tool, "arguments": json.dumps(arguments)}
        calls = [{"id": call, "type": "function", "function": function}]
        thought = None if place else THOUGHT
        messages.append({"role": "assistant", "content": thought, "tool_calls": calls})
        messages.append(
            {"role": "tool", "tool_call_id": call, "content": result or error}
        )
    return [*messages, {"role": "assistant", "content": FOUND}]


def claude() -> list[Data]:
    """Entries of a session of Claude Code."""

    def entry(kind: str, content: Any, **more: Any) -> Data:
        return {"type": kind, "message": {"role": kind, "content": content, **more}}

    entries: list[Data] = [
        {"type": "system", "subtype": "informational", "content": SYSTEM}
    ]
    entries.append(entry("user", QUESTION))
    for place, (call, tool, arguments, result, error) in enumerate(STEPS):
        blocks: list[Data] = [] if place else [{"type": "text", "text": THOUGHT}]
        blocks.append(
            {"type": "tool_use", "id": call, "name": tool, "input": arguments}
        )
        entries += [entry("assistant", [block], id=f"msg_{place}") for block in blocks]
        content: Any = [{"type": "text", "text": result}] if place else error
        outcome = {"type": "tool_result", "tool_use_id": call, "content": content}
        entries.append(entry("user", [outcome | ({"is_error": True} if error else {})]))
    entries.append(entry("assistant", [{"type": "text", "text": FOUND}], id="msg_9"))
    for place, line in enumerate(entries):
        line |= {
            "uuid": f"uuid-{place}",
            "timestamp": f"2026-01-31T12:00:{place:02}.500Z",
        }
        line |= {"sessionId": "session-1", "isSidechain": False}
    return [
        {"type": "file-history-snapshot", "messageId": "m0", "snapshot": {}},
        *entries,
    ]


def value(data: Any) -> Data:
    """An attribute's value as OTLP JSON has it."""
    if isinstance(data, list):
        return {"arrayValue": {"values": list(map(value, data))}}
    if isinstance(data, dict):
        return {"kvlistValue": {"values": pairs(data)}}
    if isinstance(data, bool | float):
        return {"boolValue" if isinstance(data, bool) else "doubleValue": data}
    return {"intValue" if isinstance(data, int) else "stringValue": str(data)}


def pairs(attributes: Mapping[str, Any]) -> list[Data]:
    return [
        {"key": key, "value": value(content)} for key, content in attributes.items()
    ]


def span(
    id: str,
    parent: str,
    name: str,
    times: tuple[int, int],
    attributes: Data,
    **more: Any,
) -> Data:
    """A span from one second of the run to another."""
    return {
        "traceId": TRACE,
        "spanId": id,
        "parentSpanId": parent,
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(START + times[0] * SECOND),
        "endTimeUnixNano": str(START + times[1] * SECOND),
        "attributes": pairs(attributes),
        **more,
    }


def document(spans: Sequence[Data]) -> Data:
    """What a collector writes."""
    resource = {"attributes": pairs({"service.name": "orders"})}
    scopes = [{"scope": {"name": "agent"}, "spans": list(spans)}]
    return {"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]}


def failed(kind: str, message: str) -> Data:
    """The status and event of a span that raised."""
    attributes = pairs({"exception.type": kind, "exception.message": message})
    event = {"name": "exception", "timeUnixNano": str(START), "attributes": attributes}
    return {"status": {"code": 2, "message": message}, "events": [event]}


def part(message: Data) -> Data:
    """A message of OpenAI's as GenAI has it."""
    if message["role"] == "tool":
        answer = {"type": "tool_call_response", "id": message["tool_call_id"]}
        return {"role": "tool", "parts": [{**answer, "response": message["content"]}]}
    content = message["content"]
    text = content[0]["text"] if isinstance(content, list) else content
    parts: list[Data] = [{"type": "text", "content": text}] if text else []
    for call in message.get("tool_calls", ()):
        head = {"id": call["id"], "name": call["function"]["name"]}
        arguments = json.loads(call["function"]["arguments"])
        parts.append({"type": "tool_call", **head, "arguments": arguments})
    return {"role": message["role"], "parts": parts}


def turns() -> list[tuple[list[Data], Data]]:
    """Each answer of the model, with all the messages before it."""
    messages = chat()
    answers = [
        place
        for place, message in enumerate(messages)
        if message["role"] == "assistant"
    ]
    return [(messages[:place], messages[place]) for place in answers]


def run_spans(
    ask: Callable[[list[Data], Data], Data], use: Callable[..., Data], root: Data
) -> list[Data]:
    """The spans of the run, children first, as they end; `ask` and `use` give the
    attributes.
    """
    spans = []
    for place, (before, answer) in enumerate(turns()):
        times = (1 + 4 * place, 2 + 4 * place)
        spans.append(
            span(
                f"{place + 1:016x}",
                parent=ROOT,
                name="chat gpt",
                times=times,
                attributes=ask(before, answer),
            )
        )
    for place, step in enumerate(STEPS):
        more = failed("LookupError", step[4]) if step[4] else {}
        times = (3 + 4 * place, 4 + 4 * place)
        name = f"execute_tool {step[1]}"
        spans.append(
            span(
                f"{place + 101:016x}",
                parent=ROOT,
                name=name,
                times=times,
                attributes=use(*step),
                **more,
            )
        )
    return [
        *spans,
        span(
            ROOT, parent="", name="invoke_agent clerk", times=(0, 11), attributes=root
        ),
    ]


def genai(as_json: bool = True) -> list[Data]:
    """Spans by the conventions of OpenTelemetry GenAI."""

    def ask(before: list[Data], answer: Data) -> Data:
        prompt = list(map(part, before))
        reply = [part(answer) | {"finish_reason": "stop"}]
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(prompt) if as_json else prompt,
            "gen_ai.output.messages": json.dumps(reply) if as_json else reply,
        }

    def use(call: str, tool: str, arguments: Data, result: str, error: str) -> Data:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": call,
            "gen_ai.tool.call.arguments": json.dumps(arguments),
        }
        return attributes | (
            {"gen_ai.tool.call.result": json.dumps(result)} if result else {}
        )

    root = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}
    return run_spans(ask, use, root | {"gen_ai.conversation.id": "conversation-1"})


def flat(prefix: str, messages: Sequence[Data]) -> Data:
    """Messages as OpenInference has them."""
    attributes: Data = {}
    for place, message in enumerate(messages):
        fields: Data = {
            name: message[name] for name in ("role", "tool_call_id") if name in message
        }
        content = message["content"]
        if isinstance(content, list):
            parts = content[0].items()
            fields |= {
                f"contents.0.message_content.{name}": text for name, text in parts
            }
        elif content:
            fields["content"] = content
        for number, call in enumerate(message.get("tool_calls", ())):
            of = f"tool_calls.{number}.tool_call"
            fields |= {
                f"{of}.function.{name}": text for name, text in call["function"].items()
            }
            fields[f"{of}.id"] = call["id"]
        attributes |= {
            f"{prefix}.{place}.message.{name}": value for name, value in fields.items()
        }
    return attributes


def openinference() -> list[Data]:
    """Spans by the conventions of OpenInference; those of tools do not name their
    call.
    """
    schema = {"type": "function", "function": {"name": "find_order", "parameters": {}}}

    def ask(before: list[Data], answer: Data) -> Data:
        return {
            "openinference.span.kind": "LLM",
            **flat("llm.input_messages", before),
            **flat("llm.output_messages", [answer]),
            "llm.tools.0.tool.json_schema": json.dumps(schema),
        }

    def use(call: str, tool: str, arguments: Data, result: str, error: str) -> Data:
        attributes = {
            "openinference.span.kind": "TOOL",
            "tool.name": tool,
            "input.value": json.dumps(arguments),
            "input.mime_type": "application/json",
        }
        return attributes | ({"output.value": result} if result else {})

    root = {
        "openinference.span.kind": "AGENT",
        "agent.name": "clerk",
        "session.id": "session-1",
    }
    return run_spans(ask, use, root | {"output.value": FOUND})


def own() -> Data:
    """Our own form."""
    texts = (
        ("system_event", SYSTEM),
        ("user_message", QUESTION),
        ("llm_response", THOUGHT),
    )
    events: list[Data] = [
        {"event_type": kind, "content": content} for kind, content in texts
    ]
    for call, tool, arguments, result, error in STEPS:
        of = {"tool_name": tool, "call": call}
        events.append({"event_type": "tool_call", "arguments": arguments} | of)
        failed = {"error": {"message": error, "code": "LookupError"}}
        outcome = failed if error else {"content": result}
        events.append({"event_type": "tool_response"} | of | outcome)
    return {"events": [*events, {"event_type": "llm_response", "content": FOUND}]}


def lines(values: Sequence[Any]) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in values)


def protobuf(trace: Data) -> bytes:
    """The request that a document of OTLP JSON stands for."""
    import base64

    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTraceServiceRequest,
    )

    copy = json.loads(json.dumps(trace))
    for resource in copy["resourceSpans"]:
        for copied in resource["scopeSpans"][0]["spans"]:
            for name in ("traceId", "spanId", "parentSpanId"):
                copied[name] = base64.b64encode(bytes.fromhex(copied[name])).decode()
    request: bytes = ParseDict(copy, ExportTraceServiceRequest()).SerializeToString()
    return request


FILES: Mapping[str, bytes] = {
    "own": lines([own()]),
    "chat document": json.dumps(chat(), indent=1).encode(),
    "chat object": lines([{"messages": chat()}]),
    "chat messages": lines(chat()),
    "claude": lines(claude()),
    "genai document": json.dumps(document(genai()), indent=2).encode(),
    "genai structured": lines([document(genai(as_json=False))]),
    "genai lines": lines([document([step]) for step in genai()]),
    "genai protobuf": protobuf(document(genai())),
    "openinference document": lines([document(openinference())]),
    "openinference protobuf": protobuf(document(openinference())),
}

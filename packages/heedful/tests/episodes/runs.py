"""One run of an agent as a file of every format, and the events that each file gives.

The files stand in the folder `files`, as the libraries write them: spans one a line.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.episodes.episode import Episode

FOLDER = Path(__file__).parent / "files"
SYSTEM = "You answer questions about orders."
QUESTION = "Where is order A-17?"
THOUGHT = "I will look the order up."
FOUND = "The order A-17 left on Monday."
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


def read_file(name: str) -> Any:
    """Return the value of a file, or the values of its lines."""
    text = (FOLDER / name).read_text("utf-8")
    if name.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)


def read_spans(convention: str) -> list[Data]:
    """Return the spans of the run by this convention, children first, as they end."""
    documents = read_file(f"spans/{convention}.jsonl")
    return [
        span
        for document in documents
        for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    ]


def genai() -> list[Data]:
    return read_spans("genai")


def openinference() -> list[Data]:
    return read_spans("openinference")


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


OWN: Data = read_file("own.json")
CHAT: list[Data] = read_file("chat.json")
CLAUDE: list[Data] = read_file("claude.jsonl")
FILES: Mapping[str, bytes] = {
    "own": lines([OWN]),
    "chat document": json.dumps(CHAT, indent=1).encode(),
    "chat object": lines([{"messages": CHAT}]),
    "chat messages": lines(CHAT),
    "claude": lines(CLAUDE),
    "genai document": json.dumps(document(genai()), indent=2).encode(),
    "genai structured": lines([document(read_spans("genai structured"))]),
    "genai lines": lines([document([step]) for step in genai()]),
    "genai protobuf": protobuf(document(genai())),
    "openinference document": lines([document(openinference())]),
    "openinference protobuf": protobuf(document(openinference())),
}
DIALECTS = (
    "OpenLLMetry",
    "Vercel AI SDK",
    "MLflow",
    "Langfuse",
    "LangSmith",
    "Logfire",
)

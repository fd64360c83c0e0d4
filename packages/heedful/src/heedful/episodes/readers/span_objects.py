"""Read spans that are objects of their own, as OpenTelemetry's console exporter prints
them, and as Langfuse, LangSmith, Phoenix and MLflow export them. Pure.

Sources: open-telemetry/opentelemetry-python, `ReadableSpan.to_json`; langfuse/langfuse,
framework-traces/*.json; langchain-ai/langsmith-sdk, python/langsmith/schemas.py;
mlflow/mlflow, `Span.to_dict`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from heedful.episodes.messages import (
    first_of,
    object_of,
    objects,
    seconds,
    text_field,
    text_of,
)
from heedful.episodes.readers.conventions import Attributes, decoded
from heedful.episodes.readers.otlp import Span
from heedful.validation import Fields

# The names of the lists in which an export has its spans.
_LIST_NAMES = ("observations", "spans", "data")
# Fields of spans of Phoenix, observations of Langfuse and runs of LangSmith -> their
# attributes.
_FIELD_ATTRIBUTES = {
    "span_kind": "openinference.span.kind",
    "type": "langfuse.observation.type",
    "input": "langfuse.observation.input",
    "output": "langfuse.observation.output",
    "level": "langfuse.observation.level",
    "statusMessage": "langfuse.observation.status_message",
    "run_type": "langsmith.span.kind",
    "inputs": "gen_ai.prompt",
    "outputs": "gen_ai.completion",
}


def spans_in(value: Any) -> Iterator[Span]:
    """Yield the spans of a span, of a list of spans, or of an export.

    Raises InvalidInput.
    """
    for fields in _span_objects(value):
        yield _read_span(fields)


def has_spans(value: Any) -> bool:
    """Return True for a span, a list of spans or an export."""
    return any(_span_objects(value))


def _span_objects(value: Any) -> Iterator[Fields]:
    """Yield the objects of spans."""
    if isinstance(value, list):
        for part in value:
            yield from _span_objects(part)
    elif isinstance(value, Mapping):
        ids = object_of(value, "context") or value
        if isinstance(value.get("run_type"), str) and "id" in value:
            yield from _runs_in(value)
            return
        has_ids = isinstance(first_of(ids, "trace_id", "traceId"), str)
        if has_ids and "name" in value and ("attributes" in value or "type" in value):
            yield value
            return
        for name in _LIST_NAMES:
            yield from _span_objects(value.get(name))


def _runs_in(run: Fields) -> Iterator[Fields]:
    """Yield a run of LangSmith and the runs inside it."""
    trace = first_of(run, "trace_id", "id")
    yield {"trace_id": trace, **run}
    for number, child in enumerate(objects(run.get("child_runs"), "child_runs"), 1):
        ids = {"id": f"{run['id']}.{number}", "parent_run_id": run["id"]}
        yield from _runs_in({"trace_id": trace, **ids, **child})


def _read_span(fields: Fields) -> Span:
    """Return the span of an object. Raises InvalidInput."""
    ids = object_of(fields, "context") or fields
    status = object_of(fields, "status") or fields
    code = text_of(first_of(status, "status_code", "code")).lower()
    message = text_of(
        first_of(status, "description", "message", "status_message", "error")
    )
    if "run_type" in fields and message:
        code = "error"
    parent = first_of(
        fields, "parent_id", "parent_span_id", "parentObservationId", "parent_run_id"
    )
    return Span(
        trace=_id_of(first_of(ids, "trace_id", "traceId")),
        id=_id_of(first_of(ids, "span_id", "spanId", "id")),
        parent=_id_of(parent),
        name=text_field(fields, "name"),
        start=_time_of(fields, "start"),
        end=_time_of(fields, "end"),
        attributes=_attributes_of(fields),
        status=code.rpartition("_")[2],
        message=message,
        events=[
            (text_field(event, "name"), decoded(event.get("attributes")) or {})
            for event in objects(fields.get("events"), "events")
        ],
    )


def _id_of(value: Any) -> str:
    """Return an id in hex without the mark of hex."""
    return text_of(value).removeprefix("0x")


def _time_of(fields: Fields, end: str) -> int:
    """Return the "start" or the "end" in nanoseconds, or 0. Raises InvalidInput."""
    nanoseconds = fields.get(f"{end}_time_unix_nano")
    if isinstance(nanoseconds, int):
        return nanoseconds
    time = first_of(fields, f"{end}_time", f"{end}Time")
    if isinstance(time, list) and len(time) == 2:  # seconds and nanoseconds
        return int(time[0]) * 10**9 + int(time[1])
    return round((seconds(time) or 0) * 1e9)


def _attributes_of(fields: Fields) -> Attributes:
    """Return the attributes of a span, also those that Langfuse makes fields."""
    attributes = object_of(fields, "attributes")
    if object_of(fields, "metadata"):
        attributes = object_of(fields["metadata"], "attributes")
    observed = {
        attribute: fields[name]
        for name, attribute in _FIELD_ATTRIBUTES.items()
        if fields.get(name) is not None
    }
    return {**attributes, **observed}

"""Spans of every library: the one run, as a file, as protobuf and in a store."""

import json
from typing import Any

import pytest

from heedful.episodes import reading, spans
from heedful.episodes.course import answered
from heedful.episodes.episode import Episode
from heedful.episodes.readers.otlp import from_json
from heedful.errors import TraceFileError
from tests.episodes import runs
from tests.episodes.runs import (
    DIALECTS,
    document,
    lines,
    protobuf,
    read_file,
    read_spans,
    span,
)
from tests.tables import cases


def only(*values: Any) -> Episode:
    [episode] = reading.read(lines(values))
    return episode


@pytest.mark.parametrize("name", DIALECTS)
def test_the_same_run_in_every_convention_is_the_same_steps(name):
    episode = only(document(read_spans(name)))
    assert runs.steps(episode) == runs.EXPECTED
    assert episode.task == runs.QUESTION
    assert episode.outcome == "partial"
    assert answered(episode.events) == {3: 4, 5: 6}
    [same] = reading.read(protobuf(document(read_spans(name))))
    assert same.digest == episode.digest


@pytest.mark.parametrize("name", ["OpenLLMetry", "Vercel AI SDK"])
def test_the_tools_that_a_model_was_offered(name):
    assert only(document(read_spans(name))).tools == ("find_order",)


@cases(
    "values",
    {
        "console": read_file("spans/console.jsonl"),
        "an export of Langfuse": [read_file("spans/langfuse export.json")],
    },
)
def test_spans_that_are_objects_are_the_same_steps(values):
    episode = only(*values)
    assert runs.steps(episode) == runs.EXPECTED
    assert episode.events[4].error == "no order A17"
    assert episode.session == "conversation-1"
    assert [event.at for event in episode.events] == sorted(
        event.at or 0 for event in episode.events
    )


def test_spans_of_no_convention_are_refused_with_those_that_are_known():
    unknown = span("ab" * 8, "", "clerk", (0, 1), {"http.method": "GET"})
    with pytest.raises(TraceFileError, match=r"none of its spans \(1\).*OpenLLMetry"):
        only(document([unknown]))


@pytest.mark.parametrize("name", DIALECTS)
def test_what_a_service_stores_of_spans_gives_the_same_steps(name):
    pieces, refused = spans.pieces(from_json(document(read_spans(name))))
    assert not refused
    assert all(piece.known for piece in pieces)
    [episode] = spans.episodes(pieces)
    assert runs.steps(episode) == runs.EXPECTED


def test_values_of_every_type_are_told_alike_in_json_and_protobuf():
    result = {"t": True, "i": -7, "d": 0.5, "l": [1, "a"], "o": {"k": None}}
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.call.result": result,
    }
    trace = document(
        [span("ab" * 8, parent="", name="look", times=(0, 1), attributes=attributes)]
    )
    listed = trace["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"]
    listed[1]["value"]["kvlistValue"]["values"][-1]["value"]["kvlistValue"][
        "values"
    ] = [
        {"key": "none", "value": {}},
        {"key": "bytes", "value": {"bytesValue": "AAE="}},
    ]
    [episode] = reading.read(lines([trace]))
    assert json.loads(episode.events[1].content) == result | {
        "o": {"none": None, "bytes": "AAE="}
    }
    [same] = reading.read(protobuf(trace))
    assert same.digest == episode.digest


def test_what_tempo_exports_is_read_as_what_a_collector_writes():
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    trace = document(
        [span("ab" * 8, parent="", name="look", times=(0, 1), attributes=attributes)]
    )
    [episode] = reading.read(lines([trace]))
    [resource] = trace.pop("resourceSpans")
    resource["instrumentationLibrarySpans"] = resource.pop("scopeSpans")
    [same] = reading.read(lines([{"batches": [resource]}]))
    assert same.digest == episode.digest


def test_a_function_was_given_its_arguments_by_place_and_by_name():
    given = {"args": ["A-17"], "kwargs": {"deep": True}}
    attributes = {
        "openinference.span.kind": "TOOL",
        "tool.name": "look",
        "input.value": json.dumps(given),
    }
    episode = only(document([span("ab" * 8, "", "look", (0, 1), attributes)]))
    assert episode.events[0].arguments == given


def test_a_prompt_beside_the_messages_is_from_outside():
    message = {"role": "user", "parts": [{"type": "text", "content": runs.QUESTION}]}
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([message]),
        "input.value": "Answer in one line.",
        "shop.region": "north of the river",
    }
    episode = only(document([span("ab" * 8, "", "chat", (0, 1), attributes)]))
    prompt = episode.events[1]
    assert prompt.content == "Answer in one line."
    assert prompt.origin == "outside"

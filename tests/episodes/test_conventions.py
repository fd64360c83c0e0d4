"""Spans of every library: the one run, and what each convention has of its own."""

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
    Data,
    document,
    lines,
    pairs,
    protobuf,
    read_file,
    read_spans,
    span,
)
from tests.tables import cases


def only(*values: Any) -> Episode:
    [episode] = reading.read(lines(values))
    return episode


def one_span(attributes: Data, **more: Any) -> Data:
    return document([span("ab" * 8, "", "clerk", (0, 1), attributes, **more)])


def response_of(attributes: Data, **more: Any) -> tuple[str, str]:
    """What the tool of a span returned, and its error."""
    response = only(one_span(attributes, **more)).events[-1]
    assert response.type == "tool_response"
    return response.content, response.error


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


def test_parallel_calls_of_a_tool_are_told_apart_by_their_arguments():
    def call(id: str, order: str, result: str) -> Data:
        attributes = {
            "traceloop.span.kind": "tool",
            "traceloop.entity.name": "find_order",
            "traceloop.entity.input": json.dumps({"kwargs": {"id": order}}),
            "traceloop.entity.output": json.dumps(result),
        }
        return span(id, "", "find_order.tool", (2, 3), attributes)

    calls = {}
    for number, order in enumerate(("A-1", "B-2")):
        place = f"gen_ai.completion.0.tool_calls.{number}"
        calls[f"{place}.id"] = f"call_{number}"
        calls[f"{place}.name"] = "find_order"
        calls[f"{place}.arguments"] = json.dumps({"id": order})
    model = {"llm.request.type": "chat", "gen_ai.completion.0.role": "assistant"}
    episode = only(
        document(
            [
                span("aa" * 8, "", "openai.chat", (0, 1), model | calls),
                call("bb" * 8, "B-2", "left"),
                call("cc" * 8, "A-1", "waits"),
            ]
        )
    )
    results = {event.call: event.content for event in episode.events[2:]}
    assert results == {"call_0": "waits", "call_1": "left"}


@cases(
    "attributes, error",
    {
        "a status alone": ({}, "error"),
        "a type": ({"error.type": "KeyError"}, "KeyError"),
        "a message of Langfuse": (
            {"langfuse.observation.status_message": "no order"},
            "no order",
        ),
    },
)
def test_an_error_may_be_a_status_alone(attributes, error):
    kinds = {"langfuse.observation.type": "tool"}
    status = {"status": {"code": 2}}
    assert response_of(kinds | attributes, **status) == ("", error)


@cases(
    "output, content, error",
    {
        "MCP": (
            {"content": [{"type": "text", "text": "no order"}], "isError": True},
            "no order",
            "no order",
        ),
        "a message that says that it failed": (
            {"output": {"type": "tool", "content": "no order", "status": "error"}},
            "no order",
            "no order",
        ),
        "data": ({"left": 1}, '{"left": 1}', ""),
        "data like messages": (
            {"system": "ok", "users": [{"role": "admin", "content": "x"}]},
            '{"system": "ok", "users": [{"role": "admin", "content": "x"}]}',
            "",
        ),
    },
)
def test_what_a_tool_returned(output, content, error):
    kinds = {"langsmith.span.kind": "tool", "gen_ai.completion": json.dumps(output)}
    assert response_of(kinds) == (content, error)


@cases(
    "given, arguments",
    {
        "by name": ({"args": [], "kwargs": {"id": 7}}, {"id": 7}),
        "as Python prints it": ({"input": "{'id': None}"}, {"id": None}),
        "what LangChain says twice": (
            {"input_str": "x", "tags": [], "inputs": {"id": "A-1"}, "kwargs": {"n": 1}},
            {"id": "A-1"},
        ),
    },
)
def test_what_a_tool_was_given(given, arguments):
    attributes = {"mlflow.spanType": '"TOOL"', "mlflow.spanInputs": json.dumps(given)}
    assert only(one_span(attributes)).events[0].arguments == arguments


@cases(
    "attributes",
    {
        "an argument": {
            "traceloop.span.kind": "workflow",
            "traceloop.entity.input": json.dumps({"args": ["Go."], "kwargs": {}}),
        },
        "a system and a prompt": {
            "ai.operationId": "ai.streamText",
            "ai.prompt": json.dumps({"system": "Be brief.", "prompt": "Go."}),
        },
        "a chat when it ended": {
            "agent_name": "clerk",
            "pydantic_ai.all_messages": json.dumps(
                [
                    {"role": "user", "parts": [{"type": "text", "content": "Go."}]},
                    {"role": "assistant", "parts": []},
                    {"role": "assistant", "content": "Gone."},
                ]
            ),
        },
    },
)
def test_the_task_is_what_the_root_was_given(attributes):
    episode = only(one_span(attributes))
    assert episode.task == "Go."
    [prompt] = [event for event in episode.events if event.content == "Go."]
    assert prompt.origin == ""


def test_texts_of_functions_below_the_root_are_no_words_of_a_chat():
    node = {
        "langsmith.span.kind": "chain",
        "gen_ai.prompt": json.dumps({"input": "next"}),
        "gen_ai.completion": json.dumps({"output": "continue"}),
    }
    inner = span("cd" * 8, runs.ROOT, "route", (1, 2), node)
    episode = only(document([*read_spans("LangSmith"), inner]))
    assert runs.steps(episode) == runs.EXPECTED


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


def test_an_error_without_words_has_those_of_the_result():
    attributes = {"mlflow.spanType": '"TOOL"', "mlflow.spanOutputs": '"no order A17"'}
    status = {"status": {"code": 2}}
    assert response_of(attributes, **status) == ("no order A17", "no order A17")


def test_spans_of_no_convention_are_refused_with_those_that_are_known():
    with pytest.raises(TraceFileError, match=r"none of its spans \(1\).*OpenLLMetry"):
        only(one_span({"http.method": "GET"}))


@pytest.mark.parametrize("name", DIALECTS)
def test_what_a_service_stores_of_spans_gives_the_same_steps(name):
    pieces, refused = spans.pieces(from_json(document(read_spans(name))))
    assert not refused
    assert all(piece.known for piece in pieces)
    [episode] = spans.episodes(pieces)
    assert runs.steps(episode) == runs.EXPECTED


def test_a_chat_may_be_events_of_a_span():
    def record(name: str, **fields: str) -> Data:
        return {"name": f"gen_ai.{name}", "attributes": pairs(fields)}

    call = {"id": "c1", "function": {"name": "look", "arguments": "{}"}}
    answer = {"role": "assistant", "content": "I look.", "tool_calls": [call]}
    records = [
        record("system.message", content="Be brief."),
        record("user.message", content="Go."),
        record("choice", message=json.dumps(answer), finish_reason="tool_calls"),
    ]
    episode = only(one_span({"gen_ai.operation.name": "chat"}, events=records))
    assert [(event.type, event.origin) for event in episode.events] == [
        ("system_event", ""),
        ("user_message", ""),
        ("llm_response", ""),
        ("tool_call", ""),
    ]
    assert episode.task == "Go."
    assert episode.events[3].tool == "look"

"""The particulars of each format: errors, gaps, agents and older conventions."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from heedful.episodes import reading as traces
from heedful.episodes.episode import Episode, Event, Fault
from tests.episodes.runs import Data, document, failed, lines, protobuf, span
from tests.tables import cases


def read_one(values: Sequence[Any]) -> Episode:
    """Read a file of these values, which is one episode."""
    [episode] = traces.read(lines(values))
    return episode


def only(value: Any) -> Episode:
    return read_one([value])


def summary(episode: Episode) -> list[tuple[str, str]]:
    return [
        (event.type, event.content or event.error or event.tool)
        for event in episode.events
    ]


def otlp(spans: Sequence[Data]) -> Episode:
    return only(document(spans))


def timed_span(
    seconds: tuple[int, int],
    kind: str,
    id: str = "a1",
    parent: str = "",
    answer: str = "",
    **more: Any,
) -> Data:
    """A span of GenAI; attributes by name without `gen_ai.`, or the model's answer."""
    if answer:
        more["output__messages"] = [message("assistant", text(answer))]
    status = {
        name: more.pop(name) for name in ("status", "events", "name") if name in more
    }
    names = {"gen_ai.operation.name": kind}
    names |= {f"gen_ai.{key.replace('__', '.')}": value for key, value in more.items()}
    return (
        span(id, parent, name=status.pop("name", kind), times=seconds, attributes=names)
        | status
    )


def message(role: str, *parts: Data) -> Data:
    return {"role": role, "parts": list(parts)}


def text(content: str) -> Data:
    return {"type": "text", "content": content}


# OpenAI messages


def test_the_rare_of_chats():
    call = {"name": "look", "arguments": "not { JSON"}
    messages: list[Data] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "assistant", "name": "scout", "tool_calls": [{"function": call}]},
        {"role": "tool", "name": "look", "content": "a wall"},
        {
            "role": "assistant",
            "reasoning_content": "Hm.",
            "refusal": "I will not.",
            "content": "",
        },
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "custom": {"name": "sql", "input": "x"}}],
        },
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:"}}],
        },
        {"role": "critic", "content": "Poor."},
    ]
    events = only(messages).events
    assert [(event.type, event.content or event.tool) for event in events] == [
        ("system_event", "Be brief."),
        ("tool_call", "look"),
        ("tool_response", "a wall"),
        ("llm_response", "Hm."),
        ("llm_response", "I will not."),
        ("tool_call", "sql"),
        ("user_message", "[image_url]"),
        ("critic_message", "Poor."),
    ]
    assert events[1].arguments == "not { JSON"
    assert events[1].agent == "scout"
    assert events[3].meta == {"part": "thinking"}
    assert events[5].arguments == "x"


# Claude Code


def test_side_chains_errors_and_bookkeeping_of_a_session():
    shared = {"sessionId": "s", "timestamp": "2026-01-31T12:00:00Z"}
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": "denied",
        "is_error": True,
    }
    episode = read_one(
        [
            {"type": "summary", "summary": "Mending a test", "leafUuid": "u9"},
            {
                "type": "user",
                "isMeta": True,
                "message": {"content": "a caveat"},
                "uuid": "u0",
            }
            | shared,
            {"type": "user", "message": {"content": "Mend it."}, "uuid": "u1"} | shared,
            {"type": "progress", "data": {}} | shared,
            {"type": "assistant", "uuid": "u2", "isSidechain": True, "agentId": "f00"}
            | {"message": {"content": [{"type": "thinking", "thinking": "Which?"}]}}
            | shared,
            {
                "type": "user",
                "uuid": "u3",
                "isSidechain": True,
                "message": {"content": [result]},
            }
            | shared,
            {
                "type": "system",
                "subtype": "api_error",
                "error": {"status": 529},
                "uuid": "u4",
            }
            | shared,
            {"type": "assistant", "isApiErrorMessage": True, "uuid": "u5"}
            | {"message": {"content": [{"type": "text", "text": "API Error: timeout"}]}}
            | shared,
        ]
    )
    assert [
        (event.type, event.content or event.error, event.agent)
        for event in episode.events
    ] == [
        ("summary", "Mending a test", ""),
        ("system_event", "a caveat", ""),
        ("user_message", "Mend it.", ""),
        ("llm_response", "Which?", "f00"),
        ("tool_response", "denied", "sidechain"),
        ("system_event", '{"status": 529}', ""),
        ("error_event", "API Error: timeout", ""),
    ]
    assert episode.task == "Mend it."
    assert episode.outcome == "error"


@cases(
    "entries",
    {
        "of a subagent": [{"isSidechain": True}],
        "a summary": [{"isCompactSummary": True}],
    },
)
def test_a_prompt_that_a_model_wrote_is_no_word_of_the_user(entries):
    prompt = {"type": "user", "message": {"content": "From now on use pip."}}
    episode = read_one([prompt | entry for entry in entries])

    [event] = episode.events
    assert event.type == "system_event"
    assert event.origin == "outside"


def test_the_prompts_of_a_subagent_of_codex_are_no_words_of_the_user():
    part = {"type": "input_text", "text": "Never edit files."}
    message = {"type": "message", "role": "user", "content": [part]}
    origin = {"subagent": {"thread_spawn": {"parent_thread_id": "p"}}}
    episode = read_one(
        [
            {"type": "session_meta", "payload": {"id": "s", "source": origin}},
            {"type": "response_item", "payload": message},
        ]
    )

    [event] = episode.events
    assert event.type == "system_event"
    assert event.origin == "outside"


def test_a_file_of_several_sessions_is_as_many_episodes():
    def entry(content: str, **more: str) -> Data:
        return {"type": "user", "message": {"content": content}} | more

    entries = [
        entry(f"{name} {place}", sessionId=name)
        for place in (0, 1)
        for name in ("s1", "s2")
    ]
    first, second = traces.read(lines(entries))
    assert first.id == "s1"
    assert [event.content for event in second.events] == ["s2 0", "s2 1"]
    lone = only(entry("no session"))
    assert lone.id == ""
    assert lone.task == "no session"


def test_a_session_is_in_the_order_of_its_times_whatever_that_of_its_entries():
    entries: list[Data] = [
        {"type": "user", "sessionId": "s", "uuid": word, "message": {"content": word}}
        | more
        for word, more in (
            ("first", {}),
            ("third", {"timestamp": "2026-01-31T12:00:03Z"}),
            ("fourth", {}),
            ("second", {"timestamp": "2026-01-31T12:00:01Z", "isSidechain": True}),
        )
    ]
    episode = read_one(entries)
    assert [event.content for event in episode.events] == [
        "first",
        "second",
        "third",
        "fourth",
    ]
    assert episode.task == "first"
    assert read_one(entries[1:]).task == "third"
    early = {
        "type": "user",
        "sessionId": "s",
        "timestamp": 7,
        "message": {"content": "early"},
    }
    assert read_one([*entries[1:], early]).task == "early"


# OpenTelemetry GenAI


def turn(n: int) -> list[Data]:
    """A model asks for a tool, which runs; the inner span is that of another
    library.
    """
    ask = message(
        "assistant", {"type": "tool_call", "id": "c", "name": "look", "arguments": {}}
    )
    outer = timed_span(
        (n + 2, n + 5),
        "execute_tool",
        f"t{n}",
        "r",
        tool__name="look",
        tool__call__id="c",
        tool__call__arguments={},
        tool__call__result="dark",
    )
    inner = timed_span(
        (n + 3, n + 4),
        "execute_tool",
        f"i{n}",
        f"t{n}",
        tool__name="look",
        tool__call__id="c",
        tool__call__arguments={},
    )
    return [
        timed_span(
            (n, n + 1), "chat", f"m{n}", "r", output__messages=json.dumps([ask])
        ),
        outer,
        inner,
    ]


BROKEN = failed("RateLimited", "429")
MORE = message("user", text("More."))
YES = message("assistant", text("Yes."))
EARLY = timed_span(
    (100, 200), "invoke_agent", "r", input__messages=[message("user", text("Go."))]
)
# The spans, their events, and what else the episode says: a function of it, and its
# value.
SPANS: dict[str, Any] = {
    "one id for calls that come after each other": (
        [timed_span((0, 40), "invoke_agent", "r"), *turn(1), *turn(11), *turn(21)],
        3 * [("tool_call", "look"), ("tool_response", "dark")],
        (lambda e: len({v.call for v in e.events}), 3),
    ),
    "an error that is passed on": (
        [
            timed_span((0, 9), "invoke_agent", "r", agent__name="a") | BROKEN,
            timed_span((1, 2), "chat", "m", "r") | BROKEN,
            timed_span((3, 4), "chat", "n", "r", error__type="x"),
        ],
        [("error_event", "429"), ("llm_response", "")],
        (
            lambda e: (e.events[0].code, e.fault),
            ("RateLimited", Fault("RateLimited", "429")),
        ),
    ),
    "a message twice, and a chat that is repeated": (
        [
            timed_span((0, 1), "chat", "m1", input__messages=[MORE], answer="Yes."),
            timed_span(
                (2, 3), "chat", "m2", input__messages=[MORE, YES, MORE], answer="Yes."
            ),
        ],
        2 * [("user_message", "More."), ("llm_response", "Yes.")],
    ),
    "a child before its parent": (
        [timed_span((1, 2), "chat", "c", "r", answer="too early"), EARLY],
        [("user_message", "Go."), ("llm_response", "too early")],
    ),
    "a retrieval, and data that does not follow the convention": (
        [
            timed_span(
                (0, 1),
                "chat",
                "m1",
                system_instructions=json.dumps([text("Be brief.")]),
            ),
            timed_span(
                (1, 2),
                "chat",
                "m2",
                input__messages='[{"role": "user", "parts": [{"type": "te',
                output__messages=[{"role": "assistant", "parts": "just text"}],
                tool__definitions="nonsense",
            ),
            timed_span(
                (3, 4),
                "retrieval",
                "t",
                retrieval__query__text="w",
                retrieval__documents=["a", 1],
            ),
            span(
                "h",
                parent="",
                name="GET",
                times=(5, 6),
                attributes={"http.method": "GET"},
            ),
        ],
        [
            ("system_event", "Be brief."),
            ("llm_response", ""),
            ("user_message", '[{"role": "user", "parts": [{"type": "te'),
            ("llm_response", "just text"),
            ("tool_call", "retrieval"),
            ("tool_response", '["a", 1]'),
        ],
        (lambda e: e.events[4].arguments, "w"),
    ),
}


@pytest.mark.parametrize("name", SPANS)
def test_spans_become_events(name):
    spans, events, *beside = SPANS[name]
    episode = otlp(spans)
    assert summary(episode) == events
    for of, value in beside:
        assert of(episode) == value


def test_traces_apart_and_agents_of_agents():
    def agent(id: str, parent: str, name: str) -> Data:
        return timed_span((0, 9), "invoke_agent", id, parent, agent__name=name)

    lone = timed_span((1, 2), "chat", "x", answer="x") | {"traceId": "ff" * 16}
    spans = [agent("r", "", "lead"), timed_span((1, 2), "chat", "a", "r", answer="a")]
    spans += [
        agent("s", "r", "scout"),
        timed_span((1, 2), "chat", "b", "s", answer="b"),
        lone,
    ]
    first, second = traces.read(lines([document(spans)]))
    assert {(event.content, event.agent) for event in first.events} == {
        ("a", "lead"),
        ("b", "scout"),
    }
    assert second.id == "ff" * 16
    assert second.events[0].agent == ""
    ring = [
        timed_span((1, 2), "chat", id, parent, answer=id) for id, parent in ("ab", "ba")
    ]
    assert [event.content for event in otlp(ring).events] == ["b", "a"]


@cases(
    "status, outcome, fault",
    {
        "success": ({"status": {"code": 1}}, "success", None),
        "nothing said": ({"status": {}}, "partial", None),
        "time-out": (
            failed("TimeoutError", "too slow"),
            "timeout",
            Fault("TimeoutError", "too slow"),
        ),
    },
)
def test_the_root_says_how_it_ended(status, outcome, fault):
    answer = [message("assistant", text("Done."))]
    episode = otlp(
        [
            span(
                "r",
                parent="",
                name="POST /ask",
                times=(0, 9),
                attributes={"http.route": "/ask"},
            )
            | status,
            timed_span((1, 2), "chat", "m", "r", output__messages=answer),
        ]
    )
    assert episode.outcome == outcome
    assert episode.fault == fault
    assert summary(episode) == [("llm_response", "Done.")]


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
    [episode] = traces.read(lines([trace]))
    assert json.loads(episode.events[1].content) == result | {
        "o": {"none": None, "bytes": "AAE="}
    }
    [same] = traces.read(protobuf(trace))
    assert same.digest == episode.digest


def test_what_tempo_exports_is_read_as_what_a_collector_writes():
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    trace = document(
        [span("ab" * 8, parent="", name="look", times=(0, 1), attributes=attributes)]
    )
    [episode] = traces.read(lines([trace]))
    [resource] = trace.pop("resourceSpans")
    resource["instrumentationLibrarySpans"] = resource.pop("scopeSpans")
    [same] = traces.read(lines([{"batches": [resource]}]))
    assert same.digest == episode.digest


# Our own


def test_the_shape_of_a_request_and_our_own_names_are_one():
    theirs: Data = {
        "event_type": "anything_else",
        "content": {"a": 1},
        "event_id": "e-1",
    }
    theirs |= {
        "timestamp": "2026-01-31T12:00:00+01:00",
        "metadata": {"k": [1]},
        "priority": 3,
    }
    theirs |= {"tool_name": "look", "error": {"message": "no", "code": "E1"}}
    error = {
        "error_category": "timeout_error",
        "error_message": "late",
        "context": {"s": 9},
    }
    request = {
        "tenant_id": "t",
        "events": [theirs],
        "outcome": "timeout",
        "error": error,
    }
    request |= {"task_description": "Look.", "task_goal": "to see", "session_id": "s1"}
    event: Data = {
        "type": "anything_else",
        "content": '{"a": 1}',
        "id": "e-1",
        "tool": "look",
    }
    event |= {
        "at": 1_769_857_200,
        "meta": {"k": [1], "priority": 3},
        "error": "no",
        "code": "E1",
    }
    fault = {"category": "timeout_error", "message": "late", "context": '{"s": 9}'}
    ours = {"events": [event], "outcome": "timeout", "fault": fault, "task": "Look."}
    ours |= {"goal": "to see", "session": "s1"}
    first = only(request)
    second = only(ours)
    assert first == second
    assert first.digest == second.digest
    assert first.events == (
        Event(
            "anything_else",
            '{"a": 1}',
            id="e-1",
            tool="look",
            at=1_769_857_200.0,
            meta={"k": [1], "priority": 3},
            error="no",
            code="E1",
        ),
    )


@cases(
    "given, outcome",
    {
        "what was said": (
            {"outcome": "success", "error": {"error_category": "timeout"}},
            "success",
        ),
        "a fault": ({"error": {"error_category": "timeout_error"}}, "timeout"),
        "a last event that timed out": (
            {"events": [{"type": "error_event", "code": "504"}]},
            "timeout",
        ),
        "an error before the last event": (
            {"events": [{"type": "x", "error": "no"}, {"type": "llm_response"}]},
            "partial",
        ),
    },
)
def test_the_outcome_is_what_was_said_or_the_last_error_and_never_a_guess(
    given, outcome
):
    assert only({"events": [], **given}).outcome == outcome


def test_missing_ids_are_places_and_ids_that_come_twice_are_told_apart():
    events = [{"type": "tool_call", "id": id} for id in ("", "a", "a", "a", "e1")]
    ids = [event.id for event in only({"events": events}).events]
    assert ids == ["e1", "a", "a~3", "a~4", "e1~5"]


# Codex


@cases(
    "chat, texts",
    {
        "a system prompt beside the messages": (
            {"system": "Be brief.", "messages": [{"role": "user", "content": "Go"}]},
            ["Be brief.", "Go"],
        ),
        "a content beside parts": (
            {"messages": [message("user", text("Go")) | {"content": "on"}]},
            ["Go\non"],
        ),
        "the same twice": (
            {"messages": [message("user", text("Go")) | {"content": [text("Go")]}]},
            ["Go"],
        ),
    },
)
def test_all_that_a_chat_gives_a_model_is_read(chat, texts):
    assert [event.content for event in only(chat).events] == texts

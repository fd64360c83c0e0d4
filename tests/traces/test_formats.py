"""What each format tells beside the plain run: errors, gaps, agents, and old ways to say it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heedful.traces import reading as traces
from heedful.traces.episode import Episode, Event, Fault
from tests.traces.runs import Data, document, failed, lines, pairs, protobuf, span


def only(*values: Any) -> Episode:
    [episode] = traces.read(lines(values))
    return episode


def told(episode: Episode) -> list[tuple[str, str]]:
    return [(one.type, one.content or one.error or one.tool) for one in episode.events]


def otlp(*spans: Data) -> Episode:
    return only(document(spans))


def at(seconds: tuple[int, int], kind: str, id: str = "a1", parent: str = "", **more: Any) -> Data:
    """A span of GenAI; attributes by name without `gen_ai.`."""
    status = {name: more.pop(name) for name in ("status", "events", "name") if name in more}
    names = {"gen_ai.operation.name": kind}
    names |= {f"gen_ai.{key.replace('__', '.')}": held for key, held in more.items()}
    return span(id, parent, status.pop("name", kind), seconds, names) | status


def message(role: str, *parts: Data) -> Data:
    return {"role": role, "parts": list(parts)}


def text(content: str) -> Data:
    return {"type": "text", "content": content}


# OpenAI messages


def test_chats_have_an_id_an_outcome_and_tools_where_they_say_so():
    tools = [{"type": "function", "function": {"name": "look"}}, {"name": "walk"}]
    chat = {"messages": [{"role": "user", "content": "Go."}], "id": "c1", "tools": tools}
    episode = only(chat | {"outcome": "failure"})
    assert (episode.id, episode.outcome, episode.tools) == ("c1", "failure", ("look", "walk"))
    assert only(chat | {"outcome": "great"}).outcome == "partial"


def test_the_old_and_the_rare_of_chats():
    call = {"name": "look", "arguments": "not { JSON"}
    messages: list[Data] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "assistant", "content": None, "function_call": call, "name": "scout"},
        {"role": "function", "name": "look", "content": "a wall"},
        {"role": "assistant", "reasoning_content": "Hm.", "refusal": "I will not.", "content": ""},
        {"role": "assistant", "tool_calls": [{"id": "c", "custom": {"name": "sql", "input": "x"}}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
        {"role": "critic", "content": "Poor."},
    ]
    events = only(messages).events
    assert [(one.type, one.content or one.tool) for one in events] == [
        ("system_event", "Be brief."),
        ("tool_call", "look"),
        ("tool_response", "a wall"),
        ("llm_response", "Hm."),
        ("llm_response", "I will not."),
        ("tool_call", "sql"),
        ("user_message", "[image_url]"),
        ("critic_message", "Poor."),
    ]
    assert (events[1].arguments, events[1].agent) == ("not { JSON", "scout")
    assert (events[3].meta, events[5].arguments) == ({"part": "thinking"}, "x")


# Claude Code


def test_side_chains_errors_and_bookkeeping_of_a_session():
    shared = {"sessionId": "s", "timestamp": "2026-01-31T12:00:00Z"}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "denied", "is_error": True}
    episode = only(
        {"type": "summary", "summary": "Mending a test", "leafUuid": "u9"},
        {"type": "user", "isMeta": True, "message": {"content": "a caveat"}, "uuid": "u0"} | shared,
        {"type": "user", "message": {"content": "Mend it."}, "uuid": "u1"} | shared,
        {"type": "progress", "data": {}} | shared,
        {"type": "assistant", "uuid": "u2", "isSidechain": True, "agentId": "f00"}
        | {"message": {"content": [{"type": "thinking", "thinking": "Which?"}]}}
        | shared,
        {"type": "user", "uuid": "u3", "isSidechain": True, "message": {"content": [result]}}
        | shared,
        {"type": "system", "subtype": "api_error", "error": {"status": 529}, "uuid": "u4"} | shared,
        {"type": "assistant", "isApiErrorMessage": True, "uuid": "u5"}
        | {"message": {"content": [{"type": "text", "text": "API Error: timeout"}]}}
        | shared,
    )
    assert [(one.type, one.content or one.error, one.agent) for one in episode.events] == [
        ("summary", "Mending a test", ""),
        ("system_event", "a caveat", ""),
        ("user_message", "Mend it.", ""),
        ("llm_response", "Which?", "f00"),
        ("tool_response", "denied", "sidechain"),
        ("error_event", '{"status": 529}', ""),
        ("error_event", "API Error: timeout", ""),
    ]
    assert (episode.task, episode.outcome) == ("Mend it.", "error")


def test_a_file_of_several_sessions_is_as_many_episodes():
    entries = [
        {"type": "user", "sessionId": name, "message": {"content": f"{name} {place}"}}
        for place in range(2)
        for name in ("s1", "s2")
    ]
    found = list(traces.read(lines(entries)))
    assert [one.id for one in found] == ["s1", "s2"]
    assert [told(one) for one in found] == [
        [("user_message", "s1 0"), ("user_message", "s1 1")],
        [("user_message", "s2 0"), ("user_message", "s2 1")],
    ]
    lone = only({"type": "user", "message": {"content": "no session"}})
    assert (lone.id, lone.task) == ("", "no session")


def test_a_session_is_in_the_order_of_its_times_whatever_that_of_its_entries():
    entries: list[Data] = [
        {"type": "user", "sessionId": "s", "uuid": word, "message": {"content": word}} | more
        for word, more in (
            ("first", {}),
            ("third", {"timestamp": "2026-01-31T12:00:03Z"}),
            ("fourth", {}),
            ("second", {"timestamp": "2026-01-31T12:00:01Z", "isSidechain": True}),
        )
    ]
    entries.append({"type": "assistant", "message": {"usage": {"input_tokens": None}}})
    episode = only(*entries)
    assert [one.content for one in episode.events] == ["first", "second", "third", "fourth"]
    assert episode.task == "first"
    assert only(*entries[1:]).task == "third"
    early = {"type": "user", "sessionId": "s", "timestamp": 7, "message": {"content": "early"}}
    assert only(*entries[1:], early).task == "early"


# OpenTelemetry GenAI


def test_calls_that_come_after_each_other_with_one_id_are_calls_of_their_own():
    ask = message("assistant", {"type": "tool_call", "id": "c", "name": "look", "arguments": {}})
    given = {"tool__name": "look", "tool__call__id": "c", "tool__call__arguments": {}}
    turns = [
        one
        for n in (1, 11, 21)
        for one in (
            at((n, n + 1), "chat", f"m{n}", "r", output__messages=json.dumps([ask])),
            at((n + 2, n + 5), "execute_tool", f"t{n}", "r", tool__call__result="dark", **given),
            # Told by another library, too.
            at((n + 3, n + 4), "execute_tool", f"i{n}", f"t{n}", **given),
        )
    ]
    episode = otlp(at((0, 40), "invoke_agent", "r"), *turns)
    assert told(episode) == 3 * [("tool_call", "look"), ("tool_response", "dark")]
    assert len({one.call for one in episode.events}) == 3


def test_without_content_the_steps_are_there_but_no_result_that_was_not_recorded():
    episode = otlp(
        at((0, 9), "invoke_agent", "r", usage__input_tokens=9),
        at((1, 2), "chat", "m", "r"),
        at((3, 4), "execute_tool", "t", "r", name="execute_tool look"),
    )
    assert told(episode) == [("llm_response", ""), ("tool_call", "look")]
    assert episode.events[1].call == "t"
    assert episode.usage.calls == 1


@pytest.mark.parametrize(
    ("status", "outcome", "fault"),
    [
        ({"status": {"code": 1}}, "success", None),
        ({"status": {"code": "STATUS_CODE_OK"}}, "success", None),
        ({"status": {}}, "partial", None),
        (failed("ValueError", "no"), "error", Fault("ValueError", "no")),
        (failed("TimeoutError", "too slow"), "timeout", Fault("TimeoutError", "too slow")),
        ({"status": {"code": 2, "message": "gave up"}}, "error", Fault("error", "gave up")),
    ],
)
def test_the_root_says_how_it_ended(status, outcome, fault):
    answer = [message("assistant", text("Done."))]
    episode = otlp(
        span("r", "", "POST /ask", (0, 9), {"http.route": "/ask"}) | status,
        at((1, 2), "chat", "m", "r", output__messages=answer),
    )
    assert (episode.outcome, episode.fault) == (outcome, fault)
    assert told(episode) == [("llm_response", "Done.")]


def test_an_error_that_is_passed_on_is_told_once():
    broken = failed("RateLimited", "429")
    episode = otlp(
        at((0, 9), "invoke_agent", "r", agent__name="a") | broken,
        at((1, 2), "chat", "m", "r") | broken,
        at((3, 4), "chat", "n", "r", error__type="x"),
    )
    assert told(episode) == [("error_event", "429"), ("llm_response", "")]
    assert episode.events[0].code == "RateLimited"
    assert episode.fault == Fault("RateLimited", "429")


def test_the_kind_of_an_error_may_be_all_that_is_said():
    one = at((0, 1), "chat") | {"attributes": pairs({"gen_ai.operation.name": "chat"})}
    one["attributes"] += pairs({"error.type": "timeout"})
    episode = otlp(one)
    assert (told(episode), episode.outcome) == ([("error_event", "timeout")], "timeout")


@pytest.mark.parametrize("nested", [False, True])
def test_messages_as_events_of_a_span(nested):
    def event(name: str, **body: Any) -> Data:
        content = {"gen_ai.event.content": json.dumps(body)} if nested else body
        return {"name": name, "attributes": pairs(content)}

    call = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    calls = call if nested else json.dumps(call)
    chosen = {"role": "assistant", "content": "A wall."}
    events = [
        event("gen_ai.system.message", content="Be brief."),
        event("gen_ai.user.message", content="Look."),
        event("gen_ai.assistant.message", tool_calls=calls),
        event("gen_ai.tool.message", content="a wall", id="c1"),
        event("gen_ai.choice", index=0, message=chosen if nested else json.dumps(chosen)),
        event("log", anything="else"),
    ]
    episode = otlp(at((0, 1), "chat", events=events))
    assert told(episode) == [
        ("system_event", "Be brief."),
        ("user_message", "Look."),
        ("tool_call", "look"),
        ("tool_response", "a wall"),
        ("llm_response", "A wall."),
    ]
    assert episode.events[3].tool == "look"


def test_messages_in_the_event_of_an_inference():
    name = "gen_ai.client.inference.operation.details"
    asked = json.dumps([message("user", text("Hi."))])
    event = {"name": name, "attributes": pairs({"gen_ai.input.messages": asked})}
    assert told(otlp(at((0, 1), "chat", events=[event])))[0] == ("user_message", "Hi.")


def test_a_message_that_comes_twice_is_told_twice_and_a_chat_so_far_once():
    chat = [message("user", text("More.")), message("assistant", text("Yes."))]
    more = [*chat, message("user", text("More."))]
    episode = otlp(
        at((0, 1), "chat", "m1", input__messages=chat[:1], output__messages=chat[1:]),
        at((2, 3), "chat", "m2", input__messages=more, output__messages=chat[1:]),
    )
    assert told(episode) == 2 * [("user_message", "More."), ("llm_response", "Yes.")]


def test_tools_without_ids_belong_to_the_oldest_open_call_of_their_arguments():
    calls = [
        {"type": "tool_call", "name": "look", "arguments": {"at": place}} for place in ("a", "b")
    ]
    episode = otlp(
        at((0, 1), "chat", "m1", output__messages=[message("assistant", *calls)]),
        at((3, 4), "execute_tool", "t1", tool__name="look", tool__call__result="in b")
        | {
            "attributes": pairs(
                {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "look",
                    "gen_ai.tool.call.arguments": {"at": "b"},
                    "gen_ai.tool.call.result": "in b",
                }
            )
        },
        at((5, 6), "execute_tool", "t2", tool__name="look", tool__call__result="in a"),
    )
    first, second, one, other = episode.events
    assert (one.content, other.content) == ("in b", "in a")
    assert (one.call, other.call) == (second.call, first.call)


def test_times_that_are_missing_or_wrong_leave_parents_before_children():
    def chat(id: str, parent: str, seconds: tuple[int, int], say: str) -> Data:
        return at(seconds, "chat", id, parent, output__messages=[message("assistant", text(say))])

    early = at((100, 200), "invoke_agent", "r", input__messages=[message("user", text("Go."))])
    spans = [chat("c", "r", (1, 2), "too early"), early]
    assert [word for _, word in told(otlp(*spans))] == ["Go.", "too early"]
    for one in (
        untimed := [early, chat("c", "r", (3, 4), "first"), chat("d", "r", (1, 2), "then")]
    ):
        one |= {"startTimeUnixNano": "0", "endTimeUnixNano": 0}
    episode = otlp(*untimed)
    assert [word for _, word in told(episode)] == ["Go.", "first", "then"]
    assert {event.at for event in episode.events} == {None}


def test_spans_that_are_their_own_parents_are_told():
    def chat(id: str, parent: str) -> Data:
        return at((1, 2), "chat", id, parent, output__messages=[message("assistant", text(id))])

    episode = otlp(chat("a", "b"), chat("b", "a"), chat("c", "c"))
    assert {word for _, word in told(episode)} >= {"c", "a"}
    assert episode.outcome == "partial"


def test_a_model_around_a_model_only_passes_on_what_it_says():
    answer: Data = {
        "output__messages": [message("assistant", text("Yes."))],
        "usage__output_tokens": 3,
    }
    episode = otlp(at((0, 9), "chat", "o", **answer), at((1, 2), "chat", "i", "o", **answer))
    assert told(episode) == [("llm_response", "Yes.")]
    assert (episode.usage.calls, episode.usage.completion_tokens) == (1, 3)


def test_agents_of_agents_and_traces_apart():
    def agent(id: str, parent: str, name: str) -> Data:
        return at((0, 9), "invoke_agent", id, parent, agent__name=name)

    def chat(id: str, parent: str) -> Data:
        return at((1, 2), "chat", id, parent, output__messages=[message("assistant", text(id))])

    other = chat("x", "") | {"traceId": "ff" * 16}
    spans = [
        agent("r", "", "lead"),
        chat("a", "r"),
        agent("s", "r", "scout"),
        chat("b", "s"),
        other,
    ]
    found = list(traces.read(lines([document(spans)])))
    assert {(one.content, one.agent) for one in found[0].events} == {("a", "lead"), ("b", "scout")}
    assert [one.id for one in found][1] == "ff" * 16
    assert found[1].events[0].agent == ""


def test_retrieval_instructions_and_what_is_not_as_it_should_be():
    episode = otlp(
        at((0, 1), "chat", "m1", system_instructions=json.dumps([text("Be brief.")]))
        | {"name": "chat"},
        at(
            (1, 2),
            "chat",
            "m2",
            input__messages='[{"role": "user", "parts": [{"type": "te',  # cut by an exporter
            output__messages=[{"role": "assistant", "parts": "just text"}],
            tool__definitions="nonsense",
            usage__input_tokens="many",
        ),
        at((3, 4), "retrieval", "t", retrieval__query__text="walls", retrieval__documents=["a", 1]),
        span("h", "", "GET", (5, 6), {"http.method": "GET"}),
    )
    assert told(episode) == [
        ("system_event", "Be brief."),
        ("llm_response", ""),
        ("user_message", '[{"role": "user", "parts": [{"type": "te'),
        ("llm_response", "just text"),
        ("tool_call", "retrieval"),
        ("tool_response", '["a", 1]'),
    ]
    assert episode.events[4].arguments == "walls"
    assert list(traces.read(lines([document([span("h", "", "GET", (5, 6), {})])]))) == []


def test_values_of_every_type_are_told_alike_in_json_and_protobuf():
    held = {"t": True, "i": -7, "d": 0.5, "l": [1, "a"], "o": {"k": None}}
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": held}
    whole = document([span("ab" * 8, "", "look", (0, 1), attributes)])
    listed = whole["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"]
    listed[1]["value"]["kvlistValue"]["values"][-1]["value"]["kvlistValue"]["values"] = [
        {"key": "none", "value": {}},
        {"key": "bytes", "value": {"bytesValue": "AAE="}},
    ]
    [said] = traces.read(lines([whole]))
    assert json.loads(said.events[1].content) == held | {"o": {"none": None, "bytes": "AAE="}}
    [same] = traces.read(protobuf(whole))
    assert same.digest == said.digest


# OpenInference


def test_retrievers_agents_and_the_old_of_openinference():
    def one(id: str, kind: str, seconds: tuple[int, int], held: Data, parent: str = "r") -> Data:
        return span(id, parent, kind.lower(), seconds, {"openinference.span.kind": kind, **held})

    message = "llm.output_messages.0.message"
    part = f"{message}.contents"
    episode = otlp(
        one("r", "AGENT", (0, 20), {"input.value": "Find it.", "output.value": "Found."}, ""),
        one("c", "CHAIN", (0, 20), {"input.value": "{}", "input.mime_type": "application/json"}),
        one("q", "RETRIEVER", (1, 2), {"input.value": "walls"})
        | {
            "attributes": pairs(
                {
                    "openinference.span.kind": "RETRIEVER",
                    "input.value": "walls",
                    "retrieval.documents.1.document.content": "second",
                    "retrieval.documents.0.document.content": "first",
                    "retrieval.documents.0.document.score": 0.5,
                }
            )
        },
        one(
            "m",
            "LLM",
            (3, 4),
            {
                f"{message}.role": "assistant",
                f"{part}.0.message_content.type": "reasoning",
                f"{part}.0.message_content.text": "Hm.",
                f"{part}.1.message_content.type": "tool_use",
                f"{message}.function_call_name": "look",
                f"{message}.function_call_arguments_json": '{"at": 1}',
            },
        ),
        one("n", "LLM", (5, 6), {"input.value": "plain prompt", "output.value": "plain answer"}),
        one("e", "EMBEDDING", (7, 8), {}) | failed("OSError", "no network"),
        one(
            "t", "TOOL", (9, 10), {"tool.name": "look", "tool_call.id": "k9", "output.value": "{}"}
        ),
    )
    # Without a name of its own an agent has that of its span.
    assert {one.agent for one in episode.events if one.type != "user_message"} == {"agent"}
    assert told(episode) == [
        ("user_message", "Find it."),
        ("tool_call", "retriever"),
        ("tool_response", "first\nsecond"),
        ("llm_response", "Hm."),
        ("tool_call", "look"),
        ("user_message", "plain prompt"),
        ("llm_response", "plain answer"),
        ("error_event", "no network"),
        ("tool_call", "look"),
        ("tool_response", "{}"),
        ("llm_response", "Found."),
    ]
    assert episode.events[4].arguments == {"at": 1}
    assert episode.events[8].call == "k9"


# Our own


def test_the_shape_of_a_request_and_our_own_names_are_one():
    request = {
        "tenant_id": "t",
        "events": [
            {
                "event_type": "anything_else",
                "content": {"a": 1},
                "event_id": "e-1",
                "timestamp": "2026-01-31T12:00:00+01:00",
                "metadata": {"k": [1]},
                "tool_name": "look",
                "error": {"message": "no", "code": "E1"},
                "priority": 3,
            }
        ],
        "outcome": "timeout",
        "error": {"error_category": "timeout_error", "error_message": "late", "context": {"s": 9}},
        "task_description": "Look.",
        "task_goal": "to see",
        "session_id": "s1",
    }
    events = [
        {
            "type": "anything_else",
            "content": '{"a": 1}',
            "id": "e-1",
            "at": 1_769_857_200,
            "meta": {"k": [1], "priority": 3},
            "tool": "look",
            "error": "no",
            "code": "E1",
        }
    ]
    fault = {"category": "timeout_error", "message": "late", "context": '{"s": 9}'}
    ours = {"events": events, "outcome": "timeout", "fault": fault, "task": "Look."}
    ours |= {"goal": "to see", "session": "s1"}
    first, second = only(request), only(ours)
    assert first == second
    assert first.digest == second.digest
    assert first.events[0] == Event(
        "anything_else",
        '{"a": 1}',
        tool="look",
        error="no",
        id="e-1",
        code="E1",
        at=1_769_857_200.0,
        meta={"priority": 3, "k": [1]},
    )


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ({}, "partial"),
        ({"outcome": "success", "error": {"error_category": "timeout"}}, "success"),
        ({"error": {"error_category": "timeout_error"}}, "timeout"),
        ({"error": {"error_category": "value_error"}}, "error"),
        ({"events": [{"type": "error_event", "code": "504"}]}, "timeout"),
        ({"events": [{"type": "x", "error": "no"}]}, "error"),
        ({"events": [{"type": "x", "error": "no"}, {"type": "llm_response"}]}, "partial"),
    ],
)
def test_the_outcome_is_what_was_said_or_the_last_error_and_never_a_guess(given, outcome):
    assert only({"events": [], **given}).outcome == outcome


def test_missing_ids_are_places_and_ids_that_come_twice_are_told_apart():
    events = [{"type": "x", "id": id} for id in ("", "a", "a", "a~2", "a", "e1")]
    ids = [event.id for event in only({"events": events}).events]
    assert ids == ["e1", "a", "a~2", "a~2~2", "a~3", "e1~2"]

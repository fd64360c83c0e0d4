"""What an episode shows of its own mistakes: each signal fires, and not on its near miss."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.memory.course import HEAD, MOST_VALUES, TAIL, course, read, values
from heedful.memory.episode import Episode, Event
from heedful.memory.signal import MOST_EVIDENCE, Signal
from heedful.memory.signals import signals

ASKED = Event("user_message", "How much is the kettle?", id="asked")


def call(tool: str = "price", arguments: Any = None, **fields: Any) -> Event:
    return Event("tool_call", tool=tool, arguments=arguments or {"item": "kettle"}, **fields)


def result(content: str = "41.90", **fields: Any) -> Event:
    return Event("tool_response", content, **fields)


def said(content: str, agent: str = "writer", **fields: Any) -> Event:
    return Event("llm_response", content, agent=agent, **fields)


def chat(content: str, agent: str = "coder") -> Event:
    return Event("message", content, agent=agent)


def code(*lines: str) -> Event:
    return chat("\n".join(["```python", *lines, "```"]))


def found(kind: str, *events: Event, **fields: Any) -> list[Signal]:
    return [one for one in signals(Episode(events, **fields)) if one.kind == kind]


def places(kind: str, *events: Event, **fields: Any) -> list[tuple[int, tuple[int, ...]]]:
    return [(one.at, one.evidence) for one in found(kind, *events, **fields)]


def tried(n: int, item: str) -> Event:
    return call(arguments={"item": item, "n": n})


def program(last: str) -> Event:
    return code("a = 1", "b = a", last)


LOST = result("Error: no file '/data/prices.csv'")
OTHER = result("Error: the disk is full")
STEP = (call(), result("nothing"))
ROUND = (call("open"), result("a list"), call("back"), result("home"))

# kind, the events that show it, its decisive event with the evidence, and the near miss
TABLE: list[tuple[str, Sequence[Event], tuple[int, tuple[int, ...]], Sequence[Event]]] = [
    ("cause", (call(), LOST), (0, (1,)), (call(), result("no errors"))),
    ("cause", (call(), LOST, said("again"), call(), LOST), (0, (1, 4)), (call(), result(""))),
    ("cause", (code("run()"), chat("exitcode: 1\nKeyError: 'a'")), (0, (1,)), (code("run()"),)),
    (
        "cause",
        (call(), Event("error_event", error="refused")),
        (0, (1,)),
        (call(), chat("exitcode: 0 (execution succeeded)")),
    ),
    ("timeout", (call(), result("Error: timed out")), (0, (1,)), (call(), result("timeout=3"))),
    (
        "timeout",
        (code("wait()"), chat("exitcode: 124 (execution failed)\nCode output:\nTimeout")),
        (0, (1,)),
        (code("wait()"), chat("exitcode: 1\nurllib3.get(url, timeout=3)")),
    ),
    (
        "argument",
        (call(), result("Error: missing required argument 'item'")),
        (0, (1,)),
        (call(), LOST),
    ),
    (
        "unknown_tool",
        (call("prise"), result("Error: tool 'prise' not found")),
        (0, (1,)),
        (call(), result("Error: item not found")),
    ),
    (
        "retry",
        (tried(1, "ketle"), LOST, tried(1, "kettle"), result()),
        (2, (0, 2)),
        (tried(1, "ketle"), LOST, tried(7, "pan"), result()),
    ),
    (
        "retry",
        (
            program("c = d"),
            chat("exitcode: 1\nNameError: d"),
            program("c = b"),
            chat("exitcode: 0\n1"),
        ),
        (2, (0, 2)),
        (
            program("c = d"),
            chat("exitcode: 1\nNameError: d"),
            code("print(7)"),
            chat("exitcode: 0\n7"),
        ),
    ),
    (
        "retry",
        (
            call(arguments='{"order": "10-44A"}'),
            LOST,
            call(arguments={"order": "A-1044"}),
            result(),
        ),
        (2, (0, 2)),
        (call(arguments={"order": "10-44A"}), LOST, call(arguments={"order": "88"}), result()),
    ),
    (
        "retry",
        (call(arguments={"unit": "usd"}), LOST, call(arguments={"unit": "USD"}), result()),
        (2, (0, 2)),
        (call(arguments={"id": 17}), LOST, call(arguments={"id": 88}), result()),
    ),
    ("repeated", 3 * STEP, (2, (0, 2, 4)), 2 * STEP),
    ("repeated", 3 * ROUND, (4, (0, 2, 4, 6, 8, 10)), 2 * ROUND),
    (
        "repeated",
        (*ROUND, *STEP, *(3 * ROUND)),
        (10, (6, 8, 10, 12, 14, 16)),
        (*ROUND, ASKED, *ROUND, ASKED, *ROUND),
    ),
    (
        "contradicted",
        (said("The order total is 40."), call(), result('{"order_total": 55}')),
        (0, (0, 2)),
        (said("The order total is 40."), call(), result('{"order_total": 40, "paid": 55}')),
    ),
    (
        "contradicted",
        (said("The order total is 40."), call(), result("order total: 55")),
        (0, (0, 2)),
        (
            call(),
            result("order total: 40"),
            said("The order total is 40."),
            call(),
            result("order total: 55"),
        ),
    ),
    (
        "expectation",
        (said("I set the path. This should work now."), call(), LOST),
        (0, (0, 2)),
        (said("I set the path. This should work now."), call(), result()),
    ),
    (
        "expectation",
        (said("I set the path. This should work now."), call(), LOST),
        (0, (0, 2)),
        (said("Check whether this should work."), call(), LOST),
    ),
    (
        "expectation",
        (said("It should return 77 here."), call(), result("12")),
        (0, (0, 2)),
        (said("It should return 77 here."), call(), result("sum 77")),
    ),
    (
        "unused",
        (call(), result("Stock: eleven kettles in Turin"), said("I do not know.")),
        (0, (1,)),
        (call(), result("Stock: eleven kettles in Turin"), said("There are eleven.")),
    ),
    (
        "invented",
        (said("Let's assume that it costs 40."),),
        (0, (0,)),
        (said("It is assumed by law."),),
    ),
    (
        "answer",
        (call(), result("It is 41.90"), said("It costs 41.90.")),
        (0, (0, 2)),
        (call(), result("It is 41.90"), said("It costs a lot.")),
    ),
]


@pytest.mark.parametrize(("kind", "events", "place", "near"), TABLE)
def test_a_signal_is_there_and_its_near_miss_is_none(kind, events, place, near):
    assert place in places(kind, *events)
    assert place not in places(kind, *near)
    assert kind in ("cause", "answer") or not found(kind, *near)


def test_a_signal_tells_its_events_by_id_and_in_words():
    events = (replace(call(), id="c"), replace(LOST, id="r"))
    [one] = found("cause", *events)
    assert (one.id, one.evidence_ids, one.strength) == ("c", ("r",), 0.5)
    assert str(one) == "event c: fails first here: Error: no file '/data/prices.csv'"
    assert str(found("cause", call(), LOST)[0]).startswith("event 0: ")


# The first cause and its symptoms


def test_failures_of_different_kinds_have_causes_of_their_own():
    assert places("cause", call(), LOST, call(), OTHER) == [(0, (1,)), (2, (3,))]


def test_failures_about_one_file_are_one_whatever_they_say():
    other = result("Error: cannot open '/data/prices.csv' for reading")
    assert places("cause", call(), LOST, call("list"), other) == [(0, (1, 3))]


def test_the_more_symptoms_the_surer_the_cause_and_the_evidence_is_bounded():
    [one] = found("cause", *(30 * (call(), LOST)))
    assert one.strength == pytest.approx(30 / 31)
    assert len(one.evidence) == MOST_EVIDENCE
    assert "29 later failures" in one.words


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            'Traceback (most recent call last):\n  File "a.py"\nKeyError: 1\nthen more',
            "KeyError: 1",
        ),
        (
            "exitcode: 1 (failed)\nCode output: Traceback (most recent call last):\n  f()\nE: x",
            "E: x",
        ),
        ("exitcode: 1 (execution failed)", "exitcode: 1 (execution failed)"),
        ("first\nError: second\nthird", "Error: second"),
        ("Traceback (most recent call last):", "most recent call last):"),
    ],
)
def test_a_failure_is_named_by_its_telling_line(text, line):
    [one] = found("cause", call(), result(text, error="" if "rror" in text else "exit"))[:1]
    assert line in one.words or one.words.endswith("exit")


@pytest.mark.parametrize(
    "text",
    [
        "exit code 2",
        "Exit code: 2",
        "KeyError: 'a'",
        "  json.decoder.JSONDecodeError: line 1",
        "Uncaught TypeError: x is not a function",
        'Exception in thread "main" java.lang.NullPointerException',
        "Code output: Error: no such video",
        '{"error": "no such order"}',
        '{"error": 0.5}',
        '{"status": "error", "message": "no"}',
        '{"success": false, "message": "no"}',
        "1 validation error for add",
        "Unknown tool name: 'serch'. Available tools: 'search'",
        "bash: make: command not found",
        "cat: /a: No such file or directory",
    ],
)
def test_a_failure_that_is_told_in_the_words_of_the_result(text):
    assert places("cause", call(), result(text)) == [(0, (1,))]


@pytest.mark.parametrize(
    "text",
    [
        '{"error": null, "data": [1]}',
        '{"error": "", "n": 1}',
        "error: None",
        '{"failed": 0, "passed": 5}',
        "12 passed, 0 failed",
        "exit code 0",
        "    5  raise ValueError('x')\n    6  except KeyError:",
        "class ParseError(Exception):\n    pass",
        "the page on HTTPError and Exception",
        "error_rate,day\n0.1,2",
        '{"success": true}',
    ],
)
def test_a_result_that_speaks_of_errors_is_no_failure(text):
    assert not found("cause", call(), result(text))


def test_what_changed_in_a_retry_is_said():
    before, after = {"item": "ketle", "n": 1}, {"item": "kettle", "n": 1, "unit": "EUR"}
    [one] = found("retry", call(arguments=before), LOST, call(arguments=after), result())
    assert "item: 'ketle' became 'kettle'" in one.words
    assert "unit: 'absent' became 'EUR'" in one.words


def test_the_same_call_that_works_later_is_a_retry_in_which_nothing_changed():
    [one] = found("retry", call(arguments='{"n":1}'), LOST, call(arguments='{"n": 1}'), result())
    assert one.words.endswith("what changed: nothing")
    assert found("retry", call(arguments="ls"), LOST, call(arguments="ls"), result())


def test_what_came_between_two_equal_calls_is_named():
    test, edit, ok = call("test", {"path": "a"}), call("edit", {"new": "b"}), result("done")
    events = (test, LOST, call("read"), ok, *(3 * (edit, ok)), test, result("5 passed"))
    [one] = found("retry", *events)
    assert one.words.startswith("works after a call that failed and edit in between; what changed")
    assert one.evidence == (0, 4, 6, 8, 10)
    [one] = found("retry", test, LOST, edit, ok, call("test", {"path": "a", "n": 1}), ok)
    assert (one.evidence, "between" in one.words) == ((0, 4), False)


def test_another_agent_or_tool_is_no_retry():
    assert not found("retry", call(agent="a"), LOST, call(agent="b"), result())
    assert not found("retry", call("a"), LOST, call("b"), result())


def test_only_what_was_not_offered_is_an_unknown_tool():
    events = (call("prise"), result(), call("prise"), result())
    assert places("unknown_tool", *events, tools=("price",)) == [(0, (0,))]
    assert not found("unknown_tool", *events, tools=("prise",))
    assert not found("unknown_tool", *events)


def test_the_arguments_of_a_call_are_no_claim_and_several_values_no_contradiction():
    given = call(arguments={"order_total": 40})
    assert not found("contradicted", given, result("order_total: 55"))
    claim = said("The order total is 40.")
    assert not found("contradicted", claim, call(), result("order total: 55, order total: 56"))
    assert not found("contradicted", claim, call(), result("order total: Unknown"))


def test_a_result_is_used_however_its_numbers_are_written():
    assert not found("unused", call(), result("1,200.0"), said("It is 1200."))


# The answer


def test_the_answer_is_followed_through_results_to_the_call_they_came_of():
    events = (ASKED, call(call="1"), call(call="2"), result("41.90", call="1"), said("41.90 euros"))
    assert places("answer", *events) == [(1, (1, 4))]


def test_a_run_that_is_not_known_to_have_failed_is_not_said_to():
    events = (call(), result("It is 41.90"), said("It costs 41.90."))
    assert "failed run" in found("answer", *events, outcome="failure")[0].words
    assert "failed" not in found("answer", *events, outcome="partial")[0].words
    assert not found("answer", *events, outcome="error")
    assert not found("answer", *events, outcome="timeout")


def test_what_the_task_holds_and_what_every_text_holds_is_no_value():
    events = (said("Of 365 days 3 have rain"), said("3 of 365, on Mount Vernon"))
    assert places("answer", *events, task="How many of 365 days on mount vernon?") == []
    assert places("answer", *events, task="How many?") == [(0, (0, 1)), (1, (1, 1))]


def test_a_run_that_succeeded_has_no_wrong_answer():
    events = (call(), result("It is 41.90"), said("It costs 41.90."))
    assert found("answer", *events, outcome="success") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. First\n2) Second\nStep 12: go", set()),
        ("41.90\n$5,200,000.00 and 7.50 and 007", {"41.9", "5200000", "7.5", "007"}),
        ("the answer is **Piotr**.", {"piotr"}),
        ("I met Ada Lovelace. Grace Hopper too", {"ada lovelace"}),
        ("**: **", set()),
    ],
)
def test_values(text, expected):
    assert values(text) == expected


# How an event is read


@pytest.mark.parametrize(
    ("event", "role"),
    [
        (ASKED, "given"),
        (Event("system_event", "the timer"), "given"),
        (Event("llm_call", "prompt"), "given"),
        (chat("Find it."), "given"),
        (chat(""), "said"),
        (call(), "act"),
        (result(""), "result"),
        (code("x"), "act"),
        (chat("I clicked 'Search'. Here is the page."), "act"),
        (chat("I will click it."), "said"),
        (chat("exitcode: 0 (execution succeeded)"), "result"),
        (chat("Output: 7"), "result"),
        (Event("user_message", "exitcode: 0\n7"), "result"),
        (said("Output: 7"), "said"),
        (Event("llm_call", "Output: 7"), "given"),
        (Event("summary", "what was done"), "given"),
        (Event("никакой", "x"), "said"),
        (Event(""), "said"),
    ],
)
def test_roles(event, role):
    assert course(Episode((event,), task="Find it.")).roles == (role,)


def test_a_message_that_is_printed_belongs_to_the_last_step():
    seen = course(Episode((code("1"), said("run it"), chat("Output: 1"), chat("Output: 2"))))
    assert (seen.result, seen.act) == ((2, None, None, None), (None, None, 0, 0))
    alone = course(Episode((chat("Output: 1"),)))
    assert alone.act == (None,)


def test_of_a_long_event_the_two_ends_are_read():
    text = "a" * HEAD + "b" * 10**6 + "c" * TAIL
    assert read(text) == "a" * HEAD + "\n" + "c" * TAIL
    assert read(text[: HEAD + TAIL]) == text[: HEAD + TAIL]
    assert len(values(" ".join(str(n) for n in range(100, 1000)))) == MOST_VALUES


# Bad input


def test_nothing_shows_nothing():
    assert signals(Episode(())) == ()
    assert signals(Episode((Event(""), Event("x", at=None), Event("tool_response")))) == ()


def work(events: tuple[Event, ...], asked: Callable[[Episode], object]) -> int:
    """How many functions are called on the way, those of C too."""
    counted = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        asked(Episode(events))
    finally:
        sys.setprofile(before)
    return counted


MANY: list[Callable[[int], tuple[Event, ...]]] = [
    lambda n: n * (call(), LOST, said("It should work now."), code("a"), chat("Output: 1")),
    lambda n: (call(), *(n * (LOST,))),
    lambda n: tuple(said(f"The order total is {k} of {k}00.") for k in range(n)),
    lambda n: tuple(result(f"Error: 'file{k}.csv' is lost, {k}") for k in range(n)),
    lambda n: tuple(e for k in range(n) for e in (tried(k, "pan"), result(f"order total: {k}"))),
    lambda n: tuple(call(call=str(k)) for k in range(n)),
]


@pytest.mark.parametrize("many", MANY, ids=range(len(MANY)))
def test_the_work_is_linear_in_the_number_of_events(many):
    once, fourfold = (work(many(n), signals) for n in (100, 400))
    assert fourfold < 4.4 * once


@pytest.mark.parametrize(
    "text",
    ["_", " ", "\n", "a ", "A", "A ", "1", "1,", "**", "'", "./", "I ", "step ", "the ", ":"],
)
def test_no_text_makes_a_pattern_slow(text):
    long = text * (10_000 // len(text))
    texts = long, f"```{long}", f"Output: {long}", f"exitcode: 1\n{long}"
    found = signals(Episode(tuple(map(chat, texts)), task=long))
    assert all(len(one.words) < 500 for one in found)


# Properties

TEXTS = [
    *("", "It should work now.", "```\nx = 1\n```", "exitcode: 1\nKeyError", "Output: 1234"),
    *("Assuming it is 42.", "The order total is 55.", "order total: 56", "Ada Lovelace wrote it"),
    *(
        "I clicked 'x'. 1,234 found",
        "Error: no file 'a.csv'",
        "timed out",
        "\x00\ud800\u202e",
        "𒐐𒐚",
    ),
]
WORDS = st.sampled_from(TEXTS) | st.text(max_size=60)
GIVEN = st.dictionaries(st.text(max_size=3), st.integers(), max_size=3)
TYPES = "tool_call tool_response llm_response error_event message system_event".split()
EVENTS = st.builds(
    Event,
    st.sampled_from([*TYPES, ""]),
    WORDS,
    agent=st.sampled_from(["", "a", "b"]),
    tool=st.sampled_from(["", "look", "find"]),
    arguments=st.none() | st.text(max_size=10) | GIVEN,
    call=st.sampled_from(["", "1", "2"]),
    error=st.sampled_from(["", "refused"]),
    id=st.text(max_size=3),
)
TRACES = st.lists(EVENTS, max_size=12).map(tuple)


@given(TRACES, st.sampled_from(["success", "failure", "partial", "timeout", "error"]), WORDS)
def test_any_trace_is_read_and_every_signal_names_events_of_it(events, outcome, task):
    for one in signals(Episode(events, outcome, task, tools=("look",))):
        assert 0 <= one.strength <= 1
        assert one.words
        assert "\n" not in one.words
        assert one.id == events[one.at].id
        assert one.evidence
        assert one.evidence_ids == tuple(events[at].id for at in one.evidence)


CLOCK = (call("clock", {"zone": "local"}, agent="clerk"), result("noon"), said("Hello.", "clerk"))
UNRELATED = st.lists(st.sampled_from([(ASKED,), CLOCK, (said("Good.", "clerk"),)]), max_size=3).map(
    lambda parts: tuple(event for part in parts for event in part)
)


@given(st.sampled_from(TABLE), UNRELATED, UNRELATED)
def test_events_that_have_nothing_to_do_with_it_remove_no_signal(row, before, after):
    kind, events, (at, evidence), _ = row
    padded = (*before, *events, *after)
    moved = (at + len(before), tuple(one + len(before) for one in evidence))
    assert moved in places(kind, *padded)


@given(TRACES, st.data())
def test_ids_are_names_only(events, data):
    ids = data.draw(st.permutations([str(n) for n in range(len(events))]))
    renamed = tuple(replace(one, id=name) for one, name in zip(events, ids, strict=True))
    shape = [(one.kind, one.at, one.evidence, one.strength) for one in signals(Episode(events))]
    assert shape == [
        (one.kind, one.at, one.evidence, one.strength) for one in signals(Episode(renamed))
    ]

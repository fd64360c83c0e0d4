"""Each signal fires on its pattern and not on a near miss."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from heedful import Episode, Event, signals
from heedful.episodes.signals import MAX_EVIDENCE_EVENTS, Signal
from tests.tables import cases


def call(tool: str = "price", arguments: Any = None, **fields: Any) -> Event:
    return Event(
        "tool_call", tool=tool, arguments=arguments or {"item": "kettle"}, **fields
    )


def result(content: str = "41.90", **fields: Any) -> Event:
    return Event("tool_response", content, **fields)


def speech(content: str, agent: str = "writer", **fields: Any) -> Event:
    return Event("llm_response", content, agent=agent, **fields)


def chat(content: str, agent: str = "coder") -> Event:
    return Event("message", content, agent=agent)


def find_signals(kind: str, events: Sequence[Event], **fields: Any) -> list[Signal]:
    episode = Episode(tuple(events), **fields)
    return [signal for signal in signals(episode) if signal.kind == kind]


def positions_of(
    kind: str, events: Sequence[Event], **fields: Any
) -> list[tuple[int, tuple[int, ...]]]:
    return [
        (signal.at, signal.evidence) for signal in find_signals(kind, events, **fields)
    ]


ASKED = Event("user_message", "How much is the kettle?", id="asked")
LOST = result("Error: no file '/data/prices.csv'")
OTHER = result("Error: the disk is full")
STEP = (call(), result("nothing"))


# kind, the events that show it, its decisive event with the evidence, and the near miss
TABLE: list[
    tuple[str, Sequence[Event], tuple[int, tuple[int, ...]], Sequence[Event]]
] = [
    ("cause", (call(), LOST), (0, (1,)), (call(), result("no errors"))),
    (
        "cause",
        (call(), LOST, speech("again"), call(), LOST),
        (0, (1, 4)),
        (call(), result("")),
    ),
    (
        "cause",
        (call(), Event("error_event", error="refused")),
        (0, (1,)),
        (call(), chat("Error")),
    ),
    ("repeated", 3 * STEP, (2, (0, 2, 4)), 2 * STEP),
    (
        "answer",
        (call(), result("It is 41.90"), speech("It costs 41.90.")),
        (0, (0, 2)),
        (call(), result("It is 41.90"), speech("It costs a lot.")),
    ),
]


@pytest.mark.parametrize(
    ("kind", "events", "place", "near"),
    TABLE,
    ids=[
        "a failed result",
        "two equal failures",
        "an error event",
        "three equal steps",
        "a value in a wrong answer",
    ],
)
def test_a_signal_is_there_and_its_near_miss_is_none(kind, events, place, near):
    assert place in positions_of(kind, events)
    assert place not in positions_of(kind, near)
    assert kind in ("cause", "answer") or not find_signals(kind, near)


def test_failures_of_one_signature_are_one():
    [signal] = find_signals("cause", [replace(call(), id="c"), replace(LOST, id="r")])
    assert signal.id == "c"
    assert signal.evidence_ids == ("r",)
    assert signal.strength == 0.68
    assert str(signal) == "event c: fails first here: Error: no file '/data/prices.csv'"
    assert str(find_signals("cause", [call(), LOST])[0]).startswith("event 0: ")
    assert (
        signals(Episode((Event(""), Event("x", at=None), Event("tool_response")))) == ()
    )
    assert positions_of("cause", [call(), LOST, call(), OTHER]) == [
        (0, (1,)),
        (2, (3,)),
    ]
    [signal] = find_signals("cause", (30 * (call(), LOST)))
    assert len(signal.evidence_ids) == MAX_EVIDENCE_EVENTS
    assert len(signal.evidence) == MAX_EVIDENCE_EVENTS
    assert "29 later failures" in signal.words
    events = (call("prise"), result(), call("prise"), result())
    assert positions_of("unknown_tool", events, tools=("price",)) == [(0, (0,))]
    assert not find_signals("unknown_tool", events, tools=("prise",))
    assert not find_signals("unknown_tool", events)


def test_the_answer_is_followed_through_results_to_the_calls_they_came_from():
    events = (
        ASKED,
        call(call="1"),
        call(call="2"),
        result("41.90", call="1"),
        speech("41.90 euros"),
    )
    assert positions_of("answer", events) == [(1, (1, 4))]
    assert "failed run" in find_signals("answer", events)[0].words
    assert find_signals("answer", events)[0].values == ("41.9",)
    assert "failed" not in find_signals("answer", events, outcome="partial")[0].words
    for outcome in ("success", "error", "timeout"):
        assert not find_signals("answer", events, outcome=outcome)
    days = (speech("Of 365 days 3 have rain"), speech("3 of 365, on Mount Vernon"))
    assert (
        positions_of("answer", days, task="How many of 365 days on mount vernon?") == []
    )
    assert positions_of("answer", days, task="How many?") == [(0, (0, 1)), (1, (1, 1))]


def count_calls(events: tuple[Event, ...], analyse: Callable[[Episode], object]) -> int:
    """How many functions are called on the way, those of C too."""
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        analyse(Episode(events))
    finally:
        sys.setprofile(before)
    return calls


MANY = {
    "steps that repeat": lambda n: (
        n * (call(), LOST, speech("It should work now."), chat("Output: 1"))
    ),
    "errors with numbers": lambda n: tuple(
        result(f"Error: 'file{k}.csv' is lost, {k}") for k in range(n)
    ),
    "calls with numbers": lambda n: tuple(
        e
        for k in range(n)
        for e in (call(arguments={"item": "pan", "n": k}), result(f"order total: {k}"))
    ),
}


@cases("many", MANY)
def test_the_work_is_linear_in_the_number_of_events(many):
    once, fourfold = (count_calls(many(n), signals) for n in (100, 400))
    assert fourfold < 4.4 * once


# Properties

PHRASES = (
    "It is 1234|Assuming it is 42.|The order total is 55.|order total: 56|timed "
    "out|KeyError: 'a'"
)
PHRASES += "|𒐐𒐚|Ada Lovelace wrote it|I clicked 'x'. 1,234 found|Error: no file 'a.csv'"
CODE = ["```\nx = 1\n```", "exit code: 1\nKeyError", "", "\x00\ud800\u202e"]
TEXTS = [*PHRASES.split("|"), *CODE]
WORDS = st.sampled_from(TEXTS) | st.text(max_size=60)
GIVEN = st.dictionaries(st.text(max_size=3), st.integers(), max_size=3)
TYPES = "tool_call tool_response llm_response error_event message system_event".split()
NAMED = map(st.sampled_from, (["", "a", "b"], ["", "look", "find"], ["", "1", "2"]))
AGENT, TOOL, CALL = NAMED
ERROR = st.sampled_from(["", "refused"])
ID = st.text(max_size=3)
ARGUMENTS = st.none() | st.text(max_size=10) | GIVEN
KINDS = st.sampled_from([*TYPES, ""])
EVENTS = st.builds(
    Event,
    KINDS,
    WORDS,
    agent=AGENT,
    tool=TOOL,
    arguments=ARGUMENTS,
    call=CALL,
    error=ERROR,
    id=ID,
)
TRACES = st.lists(EVENTS, max_size=12).map(tuple)


@given(
    TRACES,
    st.sampled_from(["success", "failure", "partial", "timeout", "error"]),
    WORDS,
)
def test_any_trace_is_read_and_every_signal_names_events_of_it(events, outcome, task):
    for signal in signals(Episode(events, outcome, task=task, tools=("look",))):
        assert 0 <= signal.strength <= 1
        assert signal.words
        assert "\n" not in signal.words
        assert signal.id == events[signal.at].id
        assert signal.evidence
        assert signal.evidence_ids == tuple(
            events[position].id for position in signal.evidence
        )

"""Repeated steps: equal calls, equal results, and steps in a row."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import pytest

from heedful import Event, repeated_step
from tests.tables import cases

SAID = Event("llm_response", "Let me look again.")
ASKED = Event("llm_call", "What next?")
USER = Event("user_message", "Is it there by now?")


def call(tool: str = "look", arguments: Any = "{}", **fields: Any) -> Event:
    return Event("tool_call", tool=tool, arguments=arguments, **fields)


def result(content: str = "nothing", **fields: Any) -> Event:
    return Event("tool_response", content, **fields)


STEP = [call(), result()]
BROKEN = Event("error_event", error="no such file")
NAMED = Event("error_event", error="no such file", call="1")


def count_repeats(events: Sequence[Event]) -> int:
    signal = repeated_step(events, 2)
    return len(signal.evidence) if signal else 1


def test_the_first_run_that_is_long_enough_is_the_answer_with_all_its_steps():
    assert repeated_step([USER, *4 * STEP, call()]) is None
    signal = repeated_step([USER, *5 * STEP])
    assert signal is not None
    assert signal.kind == "repeated"
    assert signal.at == 3
    assert signal.evidence == (1, 3, 5, 7, 9)
    assert (
        signal.words == "look: the same arguments and the same result 5 times in a row"
    )
    events: list[Event] = []
    for tool in "aabbbbbbcddddddd":
        events += [call(tool), result()]
    signal = repeated_step(events)
    assert signal is not None
    assert signal.evidence == (4, 6, 8, 10, 12, 14)
    assert count_repeats(events) == 2


ARGUMENTS: list[tuple[Any, Any, bool]] = [
    ('{"n": 1}', '{"n": "1"}', False),
    ({"n": 1}, {"n": True}, False),
    ("[1, 2]", "[2, 1]", False),
    ('{"n": 1}', '{"n": 1.0}', True),
    ('{"a": 1, "b": [{"c": 2, "d": 3}]}', '{"b":[{"d":3,"c":2}],\n"a":1}', True),
    (MappingProxyType({"a": 1, "b": 2}), {"b": 2, "a": 1}, True),
    ("9" * 5_000, "9" * 5_000, True),  # more digits than Python reads
    ("[" * 99_999, "[" * 99_999, True),  # deeper than Python reads
    ({1: "a", "b": {2}}, {1: "a", "b": {2}}, True),  # no JSON at all
]
CALLS = [
    *(
        (call(arguments=first), call(arguments=second), equal)
        for first, second, equal in ARGUMENTS
    ),
    (call(arguments=None, content="ls"), call(arguments=None, content="pwd"), False),
    (call(arguments=None, content="ls -l"), call(arguments="ls -l"), True),
    (
        call(content="first I look", id="1"),
        call(),
        True,
    ),  # words beside recorded arguments
]


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    CALLS,
    ids=[
        "number and text",
        "number and truth",
        "another order of a list",
        "1 and 1.0",
        "another order of keys",
        "another kind of mapping",
        "very long numbers",
        "very deep lists",
        "no JSON",
        "other contents",
        "content and arguments",
        "words beside arguments",
    ],
)
def test_calls_are_equal_by_tool_agent_and_arguments(first, second, equal):
    assert count_repeats([first, result(id="2"), second, result(id="3")]) == 1 + equal
    assert (
        count_repeats([first, result(), first, result(), second, result()]) == 2 + equal
    )


@cases(
    "events, count",
    {
        # results are compared exactly; an empty one is a result, none is not
        "an error": ([call(), result(), call(), result(error="timeout")], 1),
        "empty results": ([call(), result(""), call(), result("")], 2),
        # parallel calls without ids: in order, by the name of the tool if the answer
        # gives one
        "parallel calls and one later": (
            [call("a"), call("a"), result("1"), result("1"), call("a"), result("1")],
            3,
        ),
        # a lost result does not shift the others
        "a lost result": (
            [call("a"), SAID, call("b"), result("x", tool="b"), *STEP, *STEP],
            2,
        ),
        # ids come in any order; one is wrong or used again
        "ids in another order": (
            [
                call(call="1"),
                call(call="2"),
                result("b", call="2"),
                result("a", call="1"),
            ],
            1,
        ),
        "an id used again": (
            [call(call="0"), call(call="0"), result(call="0"), call(call="0")],
            1,
        ),
        # an error is the result until there is a response
        "errors": (2 * [call(), BROKEN], 2),
        "a response after an error": (
            [call(), BROKEN, result("a"), call(), BROKEN, result("b")],
            1,
        ),
    },
)
def test_which_result_belongs_to_a_call(events, count):
    assert count_repeats(events) == count


TIMER = Event("system_event", "the timer fired")
OTHER = [call("other"), result()]
NO_REASON = [[SAID], [ASKED, SAID], [result("whose?")]]
REASONS = [[USER], [TIMER], OTHER, [call(), SAID], [call(agent="bob"), result()]]


@pytest.mark.parametrize(
    ("between", "same"),
    [*((first, True) for first in NO_REASON), *((first, False) for first in REASONS)],
    ids=[
        "words of the agent",
        "a prompt and words",
        "a result of nobody",
        "a message of the user",
        "a timer",
        "another tool",
        "a call without result",
        "another agent",
    ],
)
def test_a_reason_to_ask_again_restarts_the_count(between, same):
    assert count_repeats([*STEP, *between, *STEP]) == 1 + same
    assert count_repeats([*STEP, *between, *STEP, *STEP]) == 2 + same


def test_a_tool_that_polls_is_never_reported_and_is_another_step():
    waiting = [*3 * STEP, SAID, *6 * STEP, call(), result("here it is")]
    assert repeated_step(waiting) is not None
    assert repeated_step(waiting, polls=["look"]) is None
    pause = [call("sleep", "10"), result("ok")]
    assert repeated_step(5 * [*pause, *STEP], 2, polls={"look"}) is None

"""An agent that repeats a step: what counts as equal, as running, and as its result."""

from __future__ import annotations

import json
from itertools import groupby
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import InvalidInput
from heedful.memory.episode import Event
from heedful.memory.repeats import RepeatedStep, repeated_step

SAID = Event("llm_response", "Let me look again.")
ASKED = Event("llm_call", "What next?")
USER = Event("user_message", "Is it there by now?")


def call(tool: str = "look", arguments: Any = "{}", **fields: Any) -> Event:
    return Event("tool_call", tool=tool, arguments=arguments, **fields)


def result(content: str = "nothing", **fields: Any) -> Event:
    return Event("tool_response", content, **fields)


STEP = [call(), result()]


def trace(*steps: tuple[str, Any, str]) -> list[Event]:
    return [e for tool, arguments, said in steps for e in (call(tool, arguments), result(said))]


def times(*events: Event) -> int:
    found = repeated_step(events, 2)
    return found.times if found else 1


# What is repeated


def test_five_equal_steps_running_are_a_repeated_step():
    events = [USER, *4 * STEP]
    assert repeated_step(events) is None
    assert repeated_step([*events, call()]) is None
    found = repeated_step([*events, *STEP])
    assert found == RepeatedStep("look", (1, 3, 5, 7, 9), (2, 4, 6, 8, 10))
    assert found.times == 5
    assert str(found) == "look: the same arguments and the same result 5 times running"


def test_the_first_run_that_is_long_enough_is_the_answer_with_all_its_steps():
    events = trace(*2 * [("a", "", "")], *6 * [("b", "", "")], ("c", "", ""), *7 * [("d", "", "")])
    found = repeated_step(events)
    assert found is not None
    assert (found.tool, found.times, found.calls[0]) == ("b", 6, 4)
    assert times(*events) == 2


@pytest.mark.parametrize("events", [[], [SAID], [call()], [result()], STEP, [*9 * [call()]]])
def test_nothing_is_repeated(events):
    assert repeated_step(events, 2) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (call("look"), call("Look")),
        (call(arguments='{"n": 1}'), call(arguments='{"n": 2}')),
        (call(arguments='{"n": 1}'), call(arguments='{"n": "1"}')),
        (call(arguments='{"n": 1}'), call(arguments='{"n": 1.0}')),
        (call(arguments={"n": 1}), call(arguments={"n": True})),
        (call(arguments="[1, 2]"), call(arguments="[2, 1]")),
        (call(arguments="ls  -l"), call(arguments="ls -l")),
        (call(arguments="{}"), call(arguments="")),
        (call(arguments=None, content="ls"), call(arguments=None, content="pwd")),
        (call(agent="ada"), call(agent="bob")),
    ],
)
def test_calls_that_differ(one, other):
    assert times(one, result(), other, result()) == 1
    assert times(one, result(), one, result(), other, result()) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (call(arguments='{"a": 1, "b": [{"c": 2, "d": 3}]}'), '{"b":[{"d":3,"c":2}],\n"a":1}'),
        (call(arguments={"a": 1, "b": None}), '{"b": null, "a": 1}'),
        (call(arguments=MappingProxyType({"a": 1, "b": 2})), {"b": 2, "a": 1}),
        (call(arguments="ls -l"), "ls -l"),
        (call(arguments="9" * 5_000), "9" * 5_000),  # more digits than Python reads
        (call(arguments="[" * 99_999), "[" * 99_999),  # deeper than Python reads
        (call(arguments={1: "a", "b": {2}}), {1: "a", "b": {2}}),  # no JSON at all
        (call(arguments=None, content="ls -l"), "ls -l"),
        (call(content="first I look", id="1"), "{}"),  # words beside recorded arguments
    ],
)
def test_calls_that_are_equal(one, other):
    assert times(one, result(id="2"), call(arguments=other), result(id="3")) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (result("nothing"), result("nothing ")),
        (result('{"a": 1}'), result('{"a":1}')),
        (result(), result(error="timeout")),
    ],
)
def test_results_are_compared_exactly(one, other):
    assert times(call(), one, call(), other) == 1


def test_an_empty_result_is_a_result_and_none_is_not():
    assert times(call(), result(""), call(), result("")) == 2
    assert times(call(), SAID, call(), SAID, call()) == 1


# What may stand between


@pytest.mark.parametrize(
    "between",
    [[SAID], [ASKED, SAID], [Event("error_event", "the model timed out")], [result("whose?")]],
)
def test_what_brings_nothing_new_may_stand_between(between):
    assert times(*STEP, *between, *STEP) == 2


@pytest.mark.parametrize(
    "between",
    [
        [USER],
        [SAID, USER, SAID],
        [Event("system_event", "the timer fired")],
        [Event("file_changed")],
        [call("other"), result()],
        [call("other"), SAID],
        [call(), SAID],
        [call(agent="bob"), result()],
    ],
)
def test_after_what_may_be_a_reason_to_ask_again_the_count_begins_anew(between):
    assert times(*STEP, *between, *STEP) == 1
    assert times(*STEP, *between, *STEP, *STEP) == 2


# Polling


def test_a_tool_that_polls_is_never_reported():
    waiting = [*3 * STEP, SAID, *6 * STEP, call(), result("here it is")]
    assert repeated_step(waiting) is not None
    assert repeated_step(waiting, polls=["look"]) is None


def test_a_poll_between_is_another_step():
    pause, look = [call("sleep", "10"), result("ok")], STEP
    assert repeated_step(5 * [*pause, *look], 2) is None
    assert repeated_step(5 * [*pause, *look], 2, polls={"look"}) is None
    found = repeated_step([*5 * look, *5 * pause], polls={"look"})
    assert found is not None
    assert found.tool == "sleep"


# Which result belongs to which call


def test_parallel_calls_are_paired_by_id_in_whatever_order_results_come():
    calls = [call(call=str(n)) for n in range(5)]
    answers = [result(call=str(n)) for n in (3, 0, 4, 1, 2)]
    found = repeated_step([*calls, *answers])
    assert found == RepeatedStep("look", (0, 1, 2, 3, 4), (6, 8, 9, 5, 7))
    other = [result("here" if n == 2 else "nothing", call=str(n)) for n in (3, 0, 4, 1, 2)]
    assert times(*calls, *other) == 2


def test_parallel_calls_without_ids_are_paired_in_order():
    assert times(call(), call(), result("a"), result("b")) == 1
    both = [call("a"), call("b"), result("1"), result("2")]
    assert times(*both, *both) == 1
    assert times(call("a"), call("a"), result("1"), result("1"), call("a"), result("1")) == 3


def test_parallel_calls_without_ids_are_paired_by_the_name_of_the_tool_where_it_is_given():
    answers = [result("2", tool="b"), result("1", tool="a")]
    assert repeated_step([call("a"), call("b"), *answers, call("b"), result("2")], 2) is not None
    assert times(call("a"), result("1", tool="b"), call("a"), result("1", tool="b")) == 1


def test_a_result_that_was_lost_does_not_shift_the_others():
    events = [call("a"), SAID, call("b"), result("x", tool="b"), *STEP, *STEP]
    assert times(*events) == 2
    lost = [call(), call(), result("1"), call(), result("2"), call(), result("2")]
    assert repeated_step(lost, 2) == RepeatedStep("look", (3, 5), (4, 6))


def test_a_late_result_finds_its_call_by_id():
    late = [call(call="1"), SAID, *2 * STEP, result(call="1")]
    assert times(*late[:-1]) == 2
    assert repeated_step(late, 3) == RepeatedStep("look", (0, 2, 4), (6, 3, 5))
    wrong = [call(call="1"), result(call="2"), call(call="3"), result(call="2")]
    assert times(*wrong) == 1


def test_an_id_may_be_used_again_for_the_next_call():
    events = 5 * [call(call="0"), result(call="0")]
    assert repeated_step(events) == RepeatedStep("look", (0, 2, 4, 6, 8), (1, 3, 5, 7, 9))
    assert times(call(call="0"), call(call="0"), result(call="0"), call(call="0")) == 1


def test_an_error_is_the_result_of_a_call_until_there_is_a_response():
    broken = Event("error_event", error="no such file")
    named = Event("error_event", error="no such file", call="1")
    assert times(call(), broken, call(), broken) == 2
    assert times(call(call="1"), named, call(call="1"), named) == 2
    assert times(call(), broken, result("a"), call(), broken, result("b")) == 1
    assert times(call(), broken, result("a"), call(), broken, result("a")) == 2
    assert times(call(), result(), broken, call(), result(), broken) == 2


# What is refused


@pytest.mark.parametrize("wrong", [1, 0, -5, True, 2.0, None])
def test_fewer_than_two_times_are_no_repetition(wrong):
    with pytest.raises(InvalidInput, match=r"^times is .* must be an integer of at least 2$"):
        repeated_step([], wrong)


def test_one_name_is_no_collection_of_names():
    with pytest.raises(InvalidInput, match=r"polls is 'look'.*list"):
        repeated_step([], polls="look")


# Properties

STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(['{"n":1}', '{"n": 1}', "x"]), st.just("r"))
    | st.tuples(st.just("a"), st.just("x"), st.sampled_from(["r", "s"])),
    max_size=30,
)
OWN = st.lists(st.sampled_from([SAID, ASKED]), max_size=2)
# A trace of finished steps: each call has its result, the agent talks, a user now and then.
PARTS = st.lists(
    st.one_of(
        STEPS.map(lambda steps: trace(*steps)),
        st.integers(2, 6).map(lambda n: n * trace(("a", "x", "r"))),
        OWN,
        st.just([USER]),
    ),
    max_size=8,
)
TRACES = PARTS.map(lambda parts: [event for part in parts for event in part])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@given(STEPS, st.integers(2, 6))
def test_it_finds_the_first_group_of_equal_neighbours(steps, least):
    same = [(tool, text.replace(" ", ""), said) for tool, text, said in steps]
    start, expected = 0, None
    for key, group in groupby(same):
        length = len(list(group))
        if length >= least and expected is None:
            expected = (key[0], tuple(range(2 * start, 2 * (start + length), 2)))
        start += length
    found = repeated_step(trace(*steps), least)
    assert (found and (found.tool, found.calls)) == expected


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["tool", "arguments", "result"])), max_size=9
    ),
    st.integers(0, 4),
)
def test_a_change_within_every_window_of_five_is_never_reported(changes, rest):
    steps: list[tuple[str, Any, str]] = []
    for number, (equal, what) in enumerate(changes):
        steps += equal * [("tool", {"arguments": 0}, "result")]
        changed: dict[str, Any] = {"tool": "tool", "arguments": 0, "result": "result"}
        changed[what] = f"change {number}"
        steps += [(changed["tool"], {"arguments": changed["arguments"]}, changed["result"])]
    steps += rest * [("tool", {"arguments": 0}, "result")]
    assert repeated_step(trace(*steps)) is None


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5), st.data())
def test_the_order_of_keys_whitespace_and_form_change_nothing(arguments, data):
    def written() -> Any:
        mixed = shuffled(arguments, data)
        if data.draw(st.booleans()):
            return mixed
        indent = data.draw(st.sampled_from([None, 0, 2]))
        return json.dumps(mixed, indent=indent, ensure_ascii=data.draw(st.booleans()))

    found = repeated_step(trace(*(("tool", written(), "result") for _ in range(5))))
    assert found is not None


def shuffled(value: Any, data: st.DataObject) -> Any:
    match value:
        case dict():
            keys = data.draw(st.permutations(list(value)))
            return {key: shuffled(value[key], data) for key in keys}
        case list():
            return [shuffled(one, data) for one in value]
        case _:
            return value


@given(TRACES, st.integers(2, 5), st.sets(st.sampled_from("ab")))
def test_polls_are_never_reported_and_count_as_changing_steps(events, least, polls):
    changing = [call(e.tool, str(n)) if e.tool in polls else e for n, e in enumerate(events, 1_000)]
    found = repeated_step(events, least, polls)
    assert found == repeated_step(changing, least)
    assert found is None or found.tool not in polls


@given(TRACES, st.integers(2, 5))
def test_asked_after_each_event_it_speaks_at_the_place_that_the_whole_trace_shows(events, least):
    live = [repeated_step(events[:end], least) for end in range(len(events) + 1)]
    whole = live[-1]
    spoken = [found for found in live if found is not None]
    assert bool(spoken) == (whole is not None)
    if whole is not None:
        first = spoken[0]
        assert first.calls == whole.calls[:least]
        assert live.index(first) == first.results[-1] + 1  # as soon as the last result is there
        assert live[live.index(first) :] == spoken  # and it never takes it back


@given(TRACES, st.data())
def test_the_tail_of_a_trace_shows_no_run_that_the_whole_does_not(events, data):
    start = data.draw(st.integers(0, len(events)))
    found = repeated_step(events[start:])
    whole = repeated_step(events)
    assert found is None or whole is not None
    if found is not None and whole is not None and whole.calls[0] >= start:
        assert found.calls == tuple(at - start for at in whole.calls)


@given(STEPS, st.data())
def test_parallel_calls_with_ids_are_judged_as_if_made_one_after_the_other(steps, data):
    calls = [call(tool, text, call=str(n)) for n, (tool, text, _) in enumerate(steps)]
    answers = [result(said, call=str(n)) for n, (_, _, said) in enumerate(steps)]
    events: list[Event] = [*calls, *data.draw(st.permutations(answers))]
    found, plain = repeated_step(events, 3), repeated_step(trace(*steps), 3)
    assert (found and found.calls) == (plain and tuple(at // 2 for at in plain.calls))
    if found is not None:
        assert [events[at].call for at in found.results] == [str(at) for at in found.calls]

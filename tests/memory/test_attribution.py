"""Which step and which agent an episode went wrong at: the grounds, their order, and bad input."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.memory.attribution import (
    GROUNDS,
    MOST,
    MOST_REASONS,
    Attribution,
    Suspect,
    acted,
    attribute,
    decisive,
    observed,
    ranked,
)
from heedful.memory.course import course
from heedful.memory.episode import Episode, Event
from heedful.memory.signal import MOST_EVIDENCE
from tests.memory.test_signals import (
    ASKED,
    LOST,
    TRACES,
    UNRELATED,
    call,
    chat,
    code,
    said,
    tried,
    work,
)
from tests.memory.test_signals import result as back

BOUGHT = (
    ASKED,
    said("I will look it up.", "planner"),
    call(agent="buyer"),
    back("The pan costs 41.90"),
    said("The kettle costs 41.90.", "writer"),
    said("That is correct.", "reviewer"),
)


def first(*events: Event, **fields: object) -> Suspect:
    return attribute(Episode(events, **fields)).steps[0]  # type: ignore[arg-type]


def test_the_step_that_acted_got_something_and_gave_the_answer_is_first():
    found = attribute(Episode(BOUGHT))
    step = found.steps[0]
    assert (step.at, step.agent, step.score, step.evidence) == (2, "buyer", 1.0, (2, 3, 4))
    assert step.reasons[:2] == ("acted", "its result is event 3")
    assert step.reasons[2].startswith("the answer of the failed run rests on it: 41.9 ")
    assert [one.at for one in found.steps] == [2, 1, 4, 5]
    assert [one.agent for one in found.agents] == ["buyer", "planner", "writer", "reviewer"]
    assert str(step).startswith("event 2 (buyer), 1.00: acted; its result is event 3; ")
    assert found.agents[0] == step


GIVEN = call(arguments={"price": 41.90})
ALIKE = [
    (
        acted,
        (said("Is it 41.90?", "a"), call(arguments={"price": 12.50}), said("41.90 or 12.50")),
        1,
    ),
    (
        observed,
        (replace(GIVEN, call="1"), call(call="2"), back("12.50", call="2"), said("41.90, 12.50")),
        1,
    ),
    (decisive, (code("a"), chat("Output: 3"), code("b"), chat("Output: 41.90"), said("41.90")), 2),
]


@pytest.mark.parametrize(("ground", "events", "at"), ALIKE)
def test_each_ground_decides_between_steps_that_are_equal_without_it(ground, events, at):
    others = tuple(one for one in GROUNDS if one is not ground)
    seen = course(Episode(events))
    with_it, without = (ranked(seen, grounds).steps for grounds in (GROUNDS, others))
    assert with_it[0].at == at
    assert with_it[0].score > with_it[1].score
    assert without[0].at == 0
    assert without[0].score == without[1].score


def test_a_message_that_states_what_no_step_found_comes_before_those_that_repeat_it():
    events = (
        said("Let us see.", "a"),
        said("It was Ada Lovelace.", "b"),
        said("By Ada Lovelace", "c"),
    )
    assert first(*events).at == 1


def test_of_equal_steps_the_earlier_is_first_wherever_they_stand():
    step = (code("a"), chat("Output: 77"))
    talk = (said("Hello.", "a"), said("Well.", "b"))
    for before in (0, 1, 5):
        assert first(*(before * talk), *step, *step, said("77 it is")).at == 2 * before


# Without an answer


@pytest.mark.parametrize("outcome", ["error", "timeout"])
def test_a_run_that_broke_down_went_wrong_at_the_first_failure(outcome):
    events = (call("a"), back("41.90"), call("b"), LOST, call("b"), LOST, said("41.90 or not"))
    found = first(*events, outcome=outcome)
    assert (found.at, found.score) == (2, 1.0)
    assert first(*events).at == 0


def test_what_was_mended_is_no_cause():
    events = (
        tried(1, "ketle"),
        LOST,
        tried(1, "kettle"),
        back("ok"),
        call("b"),
        back("Error: full"),
    )
    assert first(*events, outcome="error").at == 4
    assert first(*events[:2], *events[4:], outcome="error").at == 0


def test_a_tool_that_was_not_offered_is_a_failure():
    events = (call("a"), back("ok"), call("b"), back("ok"))
    assert first(*events, outcome="error", tools=("a",)).at == 2
    assert first(*events, outcome="error", tools=("a", "b")).at == 0


def test_a_run_without_any_value_has_no_answer_and_its_failures_count():
    assert first(call("a"), back("ok"), call("b"), LOST, said("I give up.")).at == 2


# Who is ranked


def test_a_success_and_a_run_without_agents_blame_nobody():
    assert attribute(Episode(BOUGHT, "success")) == Attribution()
    assert attribute(Episode(())) == Attribution()
    assert attribute(Episode((ASKED, ASKED))) == Attribution()


def test_results_are_no_steps_but_where_the_trace_does_not_tell_what_they_came_of():
    assert [one.at for one in attribute(Episode((call(), back()))).steps] == [0]
    assert [one.at for one in attribute(Episode((back("41.90"), said("41.90 x")))).steps] == [0, 1]


def test_steps_and_reasons_and_evidence_are_bounded_and_agents_are_all_there():
    many = tuple(said(f"Number {n}", f"agent {n}") for n in range(3 * MOST))
    found = attribute(Episode(many))
    assert (len(found.steps), len(found.agents)) == (MOST, 3 * MOST)
    failures = tuple(
        chat(f"exitcode: 1\n{word}Error: missing argument") for word in "ABCDEFGHIJKLMNOP"
    )
    step = first(code("x"), *failures)
    assert len(step.reasons) == 2 + MOST_REASONS
    assert len(step.evidence) <= MOST_EVIDENCE


def test_events_are_named_by_their_ids():
    named = tuple(replace(one, id=f"e{n}") for n, one in enumerate(BOUGHT))
    step = first(*named)
    assert (step.id, step.evidence_ids) == ("e2", ("e2", "e3", "e4"))
    assert str(step).startswith("event e2 (buyer), 1.00: acted; its result is event e3;")


MANY = (*BOUGHT, call(), LOST, code("a"), chat("Output: 1"))
SAME = (call(), back("ok"), said("Well.", "a"))


@pytest.mark.parametrize("events", [MANY, SAME, SAME[:1], SAME[2:]], ids=range(4))
def test_the_work_is_nearly_linear_in_the_number_of_events(events):
    once, fourfold = (work(n * events, attribute) for n in (200, 800))
    assert fourfold < 4.5 * once


# Properties


@given(TRACES, st.sampled_from(["failure", "partial", "timeout", "error"]))
def test_any_trace_has_a_ranking_of_its_steps_and_agents(events, outcome):
    found = attribute(Episode(events, outcome))
    scores = [one.score for one in found.steps]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert all(set(one.evidence) <= set(range(len(events))) for one in found.steps)
    assert len({one.agent for one in found.agents}) == len(found.agents)
    assert {one.agent for one in found.steps} == {one.agent for one in found.agents}
    assert found.agents[:1] == found.steps[:1]


@given(UNRELATED.filter(bool), st.integers(0, 3))
def test_neither_what_stands_before_nor_a_later_position_changes_who_is_first(before, times):
    padded = (*(times * before), *BOUGHT)
    found = first(*padded)
    assert (found.at, found.score) == (2 + times * len(before), 1.0)

"""The reasons of recorded decisions, and how close a loop was to its limits."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import heedful
from heedful.loop.decide import (
    Policy,
    decide,
    echoes_before,
    reasoning,
    standing_of,
    triggers,
)
from heedful.loop.policies import orchestrator
from heedful.loop.record import Evaluation, Finding, Loop, Override
from heedful.loop.stop import All, Echo, Fatigue, MaxAttempts
from heedful.testing import history
from tests.drive.support import FOUR
from tests.loop import support
from tests.loop.support import QUALITY, evaluated, loop_of

BEFORE = loop_of(evaluated("x"), echoes={"x": 4})

# -- how worn a loop was


@pytest.mark.parametrize(
    ("errors", "policy", "level", "change"),
    [
        (["ab", "ab"], FOUR, 0.15, 0.15),
        (["a"] * 8, FOUR, 1.0, 0.1),  # nor rise above 1
        (
            ["ab", "ab"],
            Policy((All(MaxAttempts(9), Fatigue(increment=0.2)),)),
            0.2,
            0.2,
        ),
    ],
)
def test_a_standing_has_the_level_of_fatigue_and_its_change(
    errors, policy, level, change
):
    worn = standing_of(history(*errors), policy)
    assert worn.fatigue == level
    assert worn.change == change


@pytest.mark.parametrize(
    ("loop", "policy", "echoes"),
    [
        (Loop("new"), FOUR, {}),
        (loop_of(evaluated("x"), evaluated("x", warnings="w")), FOUR, {"x": 2, "w": 1}),
        (
            loop_of(evaluated("x"), evaluated("y")),
            FOUR,
            {"y": 1},
        ),  # of the last attempt
        (BEFORE, FOUR, {"x": 1}),
        (BEFORE, orchestrator, {"x": 5}),
        (BEFORE, Policy((All(MaxAttempts(2), Echo(9, across="scope")),)), {"x": 5}),
    ],
)
def test_a_standing_counts_each_finding_of_the_last_attempt(loop, policy, echoes):
    assert standing_of(loop, policy).echoes == echoes


# -- why a decision fell as it did


def decided(loop: Loop, policy: Policy, at: float = 7.0) -> Any:
    verdict = decide(loop, policy)
    found = heedful.Decision(
        len(loop.attempts), verdict, standing=standing_of(loop, policy), at=at
    )
    (told,) = reasoning(loop, [found])
    return told


BAD = Evaluation((Finding("words", "too many"),), {"quality": 0.5})


def test_again_is_told_by_its_triggers():
    told = decided(loop_of(BAD, goals=(QUALITY,)), FOUR)
    assert told.loop == "loop"
    assert told.attempt == 1
    assert told.rerun == 0
    assert told.decided == "again"
    assert told.reason == "words_failed"
    assert told.detail == "Triggered by words, quality"
    assert told.spoke == ()
    assert told.lifted == ()
    assert told.at == 7.0
    lifted = loop_of(BAD, goals=(QUALITY,), overrides=(Override("attempts", "ada"),))
    told = decided(lifted, Policy((MaxAttempts(1), Echo(9))))
    assert told.decided == "again"
    assert told.reason == "words_failed"
    assert [stop.rule for stop in told.spoke] == ["attempts"]
    assert [(one.rule, one.by) for one in told.lifted] == [("attempts", "ada")]


def test_an_end_is_told_by_its_rules():
    loop = loop_of(*[BAD] * 4, goals=(QUALITY,))
    told = decided(loop, Policy((Fatigue(0.45), MaxAttempts(4))))
    assert told.decided == "stopped"
    assert told.reason == "attempts"
    assert told.rerun == 3
    assert told.detail == "4 of 4 attempts made; fatigue 0.45 has reached 0.45"
    assert [stop.rule for stop in told.spoke] == ["attempts", "fatigue"]
    assert told.standing == heedful.Standing(0.45, 0.15, {"words: too many": 4})
    assert told.triggers == triggers(BAD, (QUALITY,))
    told = decided(loop_of(evaluated(warnings="w")), FOUR)
    assert told.decided == "passed"
    assert told.reason == "passed"
    assert told.detail == ""
    assert told.triggers == ()


def test_a_decision_may_come_without_an_attempt_or_an_evaluation():
    told = decided(Loop("new", cancelled="ada"), FOUR)
    assert told.attempt == 0
    assert told.rerun == 0
    assert told.decided == "stopped"
    assert told.reason == "cancelled"
    told = decided(loop_of(None), replace(FOUR, unscored="again"))
    assert told.decided == "again"
    assert told.reason == ""
    assert told.detail == ""
    unscored = decided(loop_of(Evaluation(), goals=(QUALITY,)), FOUR)
    assert unscored.reason == "unscored"
    assert unscored.triggers[0].reason == "quality_unscored"


# -- what was counted in loops before it


@given(support.loops(least=1), st.sampled_from([2, 3]), support.improvements)
def test_the_echoes_of_earlier_loops_are_read_from_the_decisions(loop, times, better):
    policy = Policy((MaxAttempts(9), All(Echo(times, "scope"), MaxAttempts(1))), better)
    parts = [loop.upto(end) for end in range(1, len(loop.attempts) + 1)]
    made = [
        heedful.Decision(
            len(part.attempts), decide(part, policy), standing=standing_of(part, policy)
        )
        for part in parts
    ]
    stored = replace(loop, echoes={})
    before = echoes_before(stored, policy, made[-1])
    assert decide(replace(stored, echoes=before), policy) == made[-1].verdict
    assert all(loop.echoes.get(key, 0) == count for key, count in before.items())

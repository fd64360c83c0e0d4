"""The reasons of recorded decisions, and how close a loop was to its limits."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from heedful.loop.decide import (
    Decision,
    Policy,
    Standing,
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
        pytest.param(["ab", "ab"], FOUR, 0.15, 0.15, id="one attempt more"),
        pytest.param(["a"] * 8, FOUR, 1.0, 0.1, id="at the end"),  # nor rise above 1
        pytest.param(
            ["ab", "ab"],
            Policy((All(MaxAttempts(9), Fatigue(increment=0.2)),)),
            0.2,
            0.2,
            id="a rule inside another",
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
        pytest.param(Loop("new"), FOUR, {}, id="no attempt"),
        pytest.param(
            loop_of(evaluated("x"), evaluated("x", warnings="w")),
            FOUR,
            {"x": 2, "w": 1},
            id="a finding twice",
        ),
        pytest.param(
            loop_of(evaluated("x"), evaluated("y")),
            FOUR,
            {"y": 1},
            id="another finding",
        ),  # of the last attempt
        pytest.param(BEFORE, FOUR, {"x": 1}, id="within the loop"),
        pytest.param(BEFORE, orchestrator, {"x": 5}, id="across the scope"),
        pytest.param(
            BEFORE,
            Policy((All(MaxAttempts(2), Echo(9, across="scope")),)),
            {"x": 5},
            id="across the scope inside a rule",
        ),
    ],
)
def test_a_standing_counts_each_finding_of_the_last_attempt(loop, policy, echoes):
    assert standing_of(loop, policy).echoes == echoes


# -- why a decision fell as it did


def explain_last(loop: Loop, policy: Policy, decided_at: float = 7.0) -> Any:
    verdict = decide(loop, policy)
    decision = Decision(
        len(loop.attempts), verdict, standing=standing_of(loop, policy), at=decided_at
    )
    (reason,) = reasoning(loop, [decision])
    return reason


BAD = Evaluation((Finding("words", "too many"),), {"quality": 0.5})


def test_again_is_told_by_its_triggers():
    reason = explain_last(loop_of(BAD, goals=(QUALITY,)), FOUR)
    assert reason.loop == "loop"
    assert reason.attempt == 1
    assert reason.rerun == 0
    assert reason.decided == "again"
    assert reason.reason == "words_failed"
    assert reason.detail == "Triggered by words, quality"
    assert reason.spoke == ()
    assert reason.lifted == ()
    assert reason.at == 7.0
    lifted = loop_of(BAD, goals=(QUALITY,), overrides=(Override("attempts", "ada"),))
    reason = explain_last(lifted, Policy((MaxAttempts(1), Echo(9))))
    assert reason.decided == "again"
    assert reason.reason == "words_failed"
    assert [stop.rule for stop in reason.spoke] == ["attempts"]
    assert [(stop.rule, stop.by) for stop in reason.lifted] == [("attempts", "ada")]


def test_an_end_is_told_by_its_rules():
    loop = loop_of(*[BAD] * 4, goals=(QUALITY,))
    reason = explain_last(loop, Policy((Fatigue(0.45), MaxAttempts(4))))
    assert reason.decided == "stopped"
    assert reason.reason == "attempts"
    assert reason.rerun == 3
    assert (
        reason.detail
        == "all 4 attempts are made; too many attempts without improvement "
        "(fatigue 0.45, limit 0.45)"
    )
    assert [stop.rule for stop in reason.spoke] == ["attempts", "fatigue"]
    assert reason.standing == Standing(0.45, 0.15, {"words: too many": 4})
    assert reason.triggers == triggers(BAD, (QUALITY,))
    reason = explain_last(loop_of(evaluated(warnings="w")), FOUR)
    assert reason.decided == "passed"
    assert reason.reason == "passed"
    assert reason.detail == ""
    assert reason.triggers == ()


def test_a_decision_may_come_without_an_attempt_or_an_evaluation():
    reason = explain_last(Loop("new", cancelled="ada"), FOUR)
    assert reason.attempt == 0
    assert reason.rerun == 0
    assert reason.decided == "stopped"
    assert reason.reason == "cancelled"
    reason = explain_last(loop_of(None), replace(FOUR, unscored="again"))
    assert reason.decided == "again"
    assert reason.reason == ""
    assert reason.detail == ""
    unscored = explain_last(loop_of(Evaluation(), goals=(QUALITY,)), FOUR)
    assert unscored.reason == "unscored"
    assert unscored.triggers[0].reason == "quality_unscored"


# -- what was counted in loops before it


@given(support.loops(least=1), st.sampled_from([2, 3]), support.improvements)
def test_the_echoes_of_earlier_loops_are_read_from_the_decisions(loop, times, better):
    policy = Policy((MaxAttempts(9), All(Echo(times, "scope"), MaxAttempts(1))), better)
    parts = [loop.upto(end) for end in range(1, len(loop.attempts) + 1)]
    decisions = [
        Decision(
            len(part.attempts), decide(part, policy), standing=standing_of(part, policy)
        )
        for part in parts
    ]
    stored_loop = replace(loop, echoes={})
    before = echoes_before(stored_loop, policy, decisions[-1])
    assert decide(replace(stored_loop, echoes=before), policy) == decisions[-1].verdict
    assert all(loop.echoes.get(key, 0) == count for key, count in before.items())

"""The reasons of recorded decisions, and how close a loop was to its limits."""

from dataclasses import replace
from typing import Any

import pytest

from heedful.loop.decide import Decision, Policy, decide, reasoning, standing_of
from heedful.loop.record import Evaluation, Finding, Loop, Override
from heedful.loop.stop import All, Echo, Fatigue, MaxAttempts
from heedful.testing import history
from tests.drive.support import FOUR
from tests.loop.support import QUALITY, loop_of

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


# -- why a decision fell as it did


def explain_last(loop: Loop, policy: Policy) -> Any:
    verdict = decide(loop, policy)
    decision = Decision(
        len(loop.attempts), verdict, standing=standing_of(loop, policy), at=7.0
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

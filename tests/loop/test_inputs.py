"""A value outside what is allowed raises InvalidInput, which names the field."""

from __future__ import annotations

import math
from typing import Any

import pytest

from heedful.drive.drive import Run
from heedful.errors import InvalidInput, UnknownName
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Policy
from heedful.loop.policies import PRESETS, preset
from heedful.loop.record import (
    Attempt,
    Candidate,
    Evaluation,
    Finding,
    Goal,
    Improvement,
    Loop,
    Usage,
    check_goals,
)
from heedful.loop.stop import All, Budget, Echo, Fatigue, MaxAttempts, Plateau, Repeat

NAN, INF = math.nan, math.inf
WRONG: list[tuple[str, Any, dict[str, Any]]] = [
    *[("severity", Finding, {"severity": v}) for v in (-0.1, 1.1, NAN, INF, "high", None)],
    ("level", Finding, {"level": "fatal"}),
    *[("threshold of s", Goal, {"threshold": v}) for v in (NAN, INF, -INF, 1e300, "0.5", None)],
    ("direction", Goal, {"threshold": 1, "direction": "up"}),
    *[("threshold of s", Goal, {"threshold": v}) for v in (True, False)],
    *[("score s", Evaluation, {"scores": {"s": v}}) for v in (NAN, INF, 1e300, "1", None)],
    *[("limit", MaxAttempts, {"limit": v}) for v in (0, -1, 1.5, "4", None, True)],
    *[("times", Echo, {"times": v}) for v in (0, 2.0, "3")],
    ("across", Echo, {"across": "world"}),
    *[("times", Repeat, {"times": v}) for v in (0, None)],
    *[("near", Repeat, {"near": v}) for v in (None, 1, "yes")],
    *[("met", Evaluation, {"met": v}) for v in (-0.1, 1.1, NAN, True, "1")],
    *[("preference", Evaluation, {"preference": v}) for v in (NAN, INF, None, True, "1")],
    *[("limit", Fatigue, {"limit": v}) for v in (0, 0.0004, 1.1, NAN, "0.3")],
    *[("increment", Fatigue, {"increment": v}) for v in (0, -0.1, 2, NAN)],
    *[("most", Fatigue, {"most": v}) for v in (0.2, 1.1, NAN)],
    *[("decay", Fatigue, {"decay": v}) for v in (-0.1, 1.1, None)],
    *[("patience", Plateau, {"patience": v}) for v in (0, -1, 1.0)],
    *[("floor", Plateau, {"floor": v}) for v in (0, 1.1, NAN, "0.3", True)],
    *[("novelty", Plateau, {"novelty": v}) for v in (None, 1, "yes")],
    ("plateau", Plateau, {"patience": None}),
    ("budget", Budget, {}),
    *[
        (f"budget {name}", Budget, {name: v})
        for name in ("tokens", "cost", "seconds", "calls")
        for v in (0, -1, NAN, INF, "5", True)
    ],
    *[("min_gain", Improvement, {"min_gain": v}) for v in (0, -1, 0.0004, NAN, INF, "0.05", True)],
    *[("against", Improvement, {"against": v}) for v in ("first", None, 1)],
    ("All", All, {}),
    ("rules", Policy, {"rules": ()}),
    ("rule", Policy, {"rules": (3,)}),
    ("unscored", Policy, {"rules": (MaxAttempts(),), "unscored": "maybe"}),
    *[("goals", Policy, {"rules": (MaxAttempts(),), "goals": v}) for v in (("q >= 1",), (None,))],
    *[("usage", Usage, {"calls": v}) for v in (-1,)],
    *[("usage", Usage, {"cost": v}) for v in (-0.1, NAN, INF)],
    *[("usage", Usage, {"seconds": v}) for v in (-0.1, NAN, INF)],
    *[("tenant", Scope, {"tenant": v}) for v in ("", "x" * 201, "a\nb", "a\u202eb")],
    ("project", Scope, {"project": "\0"}),
]
REQUIRED: dict[Any, dict[str, Any]] = {
    Finding: {"check": "c", "message": "m"},
    Goal: {"score": "s"},
}


@pytest.mark.parametrize(("field", "record", "given"), WRONG)
def test_what_is_not_allowed_is_refused_by_name(field, record, given):
    with pytest.raises(InvalidInput) as caught:
        record(**{**REQUIRED.get(record, {}), **given})
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field} is ")
    assert isinstance(caught.value, ValueError)


LOW, HIGH = Goal("q", 0.5), Goal("q", 0.5, "at_most")


@pytest.mark.parametrize(
    ("goals", "wrong"),
    [
        ((LOW, HIGH), ""),  # exactly there it can be met
        ((Goal("q", 0.1 + 0.2), Goal("q", 0.3, "at_most")), ""),  # the same thousandth
        ((Goal("q", 0.3), Goal("q", 0.1 + 0.2, "at_most")), ""),
        ((LOW, Goal("q", 0.9)), ""),
        ((LOW, Goal("d", 0.1, "at_most")), ""),
        ((Goal("q", 0.501), HIGH), "threshold of q >= 0.501 is 0.501; it must be at most 0.5: "),
        ((HIGH, Goal("q", 0.9)), "threshold of q >= 0.9 is 0.9; it must be at most 0.5: another"),
        ((HIGH, LOW, Goal("q", 0.4, "at_most")), "threshold of q >= 0.5 is 0.5; it must be at mo"),
    ],
)
def test_goals_that_no_score_can_meet_together_are_refused(goals, wrong):
    makers: list[Any] = [
        lambda: check_goals(goals),
        lambda: Policy((MaxAttempts(),), goals=goals),
        lambda: Run("t", generate=lambda task, hint: "", goals=goals, store=None),
    ]
    for make in makers:
        if not wrong:
            make()
            continue
        with pytest.raises(InvalidInput) as caught:
            make()
        assert str(caught.value).startswith(wrong)
        assert caught.value.field == wrong.split(" is ")[0]


@pytest.mark.parametrize("numbers", [[2], [1, 3], [1, 1], [0, 1]])
def test_attempts_are_numbered_from_1_without_gaps(numbers):
    attempts = tuple(Attempt(n, Candidate.of("x")) for n in numbers)
    with pytest.raises(InvalidInput, match="attempt numbers"):
        Loop("loop", attempts=attempts)


def test_an_unknown_preset_lists_those_there_are():
    with pytest.raises(
        UnknownName, match="'nope'; there are: default, orchestrator, reflection, stage"
    ):
        preset("nope")
    assert all(preset(name).name == name for name in PRESETS)

"""The presets: what is in them, and where each of their numbers takes effect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful import policies
from heedful.errors import UnknownName
from heedful.loop.decide import Again, Done, Policy, decide
from heedful.loop.policies import PRESETS, preset
from heedful.loop.record import Evaluation, Finding, Goal, Improvement, Loop
from heedful.loop.stop import All, Echo, Fatigue, MaxAttempts, NothingMet, Plateau, Repeat
from tests.loop.support import DRIFT, evaluated, loop_of, rules, tried

GOALS = (Goal("alignment", 0.75), DRIFT)
NOVEL = Plateau(patience=None, novelty=True, floor=0.3)
ORCHESTRATOR = (MaxAttempts(4), Fatigue(0.5, 0.15, 0.05), Echo(3, across="scope"))
default, thorough, orchestrator, reflection, stage = map(
    preset, ("default", "thorough", "orchestrator", "reflection", "stage")
)


@pytest.mark.parametrize(
    ("name", "rules", "gain", "against", "goals"),
    [
        (
            "default",
            (MaxAttempts(4), Repeat(2), All(Repeat(1, near=False), NothingMet())),
            *(0.05, "best", ()),
        ),
        ("thorough", (MaxAttempts(5), Repeat(2, near=False)), 0.05, "best", ()),
        ("orchestrator", ORCHESTRATOR, 0.05, "previous", GOALS),
        ("reflection", (MaxAttempts(3), Repeat(1), NOVEL), 0.1, "best", ()),
        ("stage", (MaxAttempts(3),), 0.05, "best", ()),
    ],
)
def test_a_preset_holds_these_rules(name, rules, gain, against, goals):
    assert preset(name) == Policy(rules, Improvement(gain, against), "stop", name, goals)
    assert preset(name) is PRESETS[name] is getattr(policies, name)


def test_an_unknown_preset_names_those_there_are():
    with pytest.raises(UnknownName, match="'Default'; there are: default, orchestrator") as caught:
        preset("Default")
    known = ("default", "orchestrator", "reflection", "stage", "thorough")
    assert caught.value.known == tuple(sorted(PRESETS)) == known


def reported(*scores: tuple[float, float], tags: str = "", **fields: Any) -> Loop:
    """Attempts with alignment and drift; each has the bias tags, which an improvement keeps."""
    biases = tuple(Finding("bias", tag, key=tag, persistent=True, level="warning") for tag in tags)
    made = [Evaluation(biases, {"alignment": a, "drift": d}) for a, d in scores]
    return loop_of(*made, goals=orchestrator.goals, **fields)


@pytest.mark.parametrize(
    ("alignment", "drift", "reasons"),
    [
        (0.75, 0.25, None),
        (0.749, 0.25, ["alignment_threshold_not_met"]),
        (0.75, 0.251, ["drift_threshold_exceeded"]),
        (0.72, 0.28, ["alignment_threshold_not_met", "drift_threshold_exceeded"]),
    ],
)
def test_the_orchestrator_wants_alignment_three_quarters_and_drift_one_quarter(
    alignment, drift, reasons
):
    verdict = decide(reported((alignment, drift)), orchestrator)
    if reasons is None:
        assert verdict == Done(1, passed=True)
    else:
        assert isinstance(verdict, Again)
        assert [trigger.reason for trigger in verdict.reasons] == reasons


SAME = (0.5, 0.5)


@pytest.mark.parametrize(
    ("scores", "level"),
    [
        ([SAME], 0.0),  # none before the first rerun
        ([SAME, SAME], 0.15),
        ([SAME, SAME, SAME], 0.30),
        ([SAME, (0.55, 0.9)], 0.0),  # the one or the other improves by 0.05
        ([SAME, (0.549, 0.451)], 0.15),
        ([SAME, SAME, (0.55, 0.5)], 0.10),
        ([(0.7, 0.3), SAME, (0.55, 0.5)], 0.10),  # against the previous, not the best
        ([SAME] * 5, 0.60),
    ],
)
def test_fatigue_grows_by_15_and_shrinks_by_5_hundredths(scores, level):
    loop = replace(reported(*scores), improves=orchestrator.improvement)
    assert Fatigue(0.5).level(loop) == level


BETTER = [(0.1, 0.9), (0.2, 0.8), (0.3, 0.7)]  # an improvement does not reset a bias tag


@pytest.mark.parametrize(
    ("policy", "loop", "stopped"),
    [
        (orchestrator, reported(SAME, SAME, SAME), []),
        (orchestrator, reported(SAME, SAME, SAME, SAME), ["attempts"]),
        (orchestrator, reported(*BETTER[:2], tags="a"), []),
        (orchestrator, reported(*BETTER, tags="a"), ["echo"]),
        (orchestrator, reported(SAME, tags="a", echoes={"a": 2}), ["echo"]),
        (orchestrator, reported(SAME, tags="b", echoes={"a": 2}), []),
        (orchestrator, loop_of(Evaluation(scores={"drift": 0.1}), goals=GOALS), ["unscored"]),
        (default, tried("abc"), []),
        (default, tried("abcd"), ["attempts"]),
        (default, tried("aa"), []),
        (default, tried("aaa"), ["repeat"]),
        (default, tried("abc", near="23"), ["repeat"]),
        (default, tried("aa", met=0.0), ["repeat+nothing_met"]),
        (default, tried("aa", met=0.1), []),
        (default, tried("ab", met=0.0, near="2"), []),  # nearly the same is not the same
        (default, tried("abc", met=0.0), []),
        (thorough, tried("abcd"), []),
        (thorough, tried("abcde"), ["attempts"]),
        (thorough, tried("aa", met=0.0), []),
        (thorough, tried("aaa"), ["repeat"]),
        (thorough, tried("abc", near="23"), []),
        (reflection, loop_of(evaluated("x"), evaluated("y")), []),
        (reflection, loop_of(*map(evaluated, "xyz")), ["attempts"]),
        (reflection, loop_of(*map(evaluated, "xy"), texts="aa"), ["repeat"]),
        (reflection, loop_of(evaluated("x"), evaluated("x")), ["plateau"]),  # no new issue
        (reflection, loop_of(Evaluation((Finding("c", "m", severity=0.299),))), ["plateau"]),
        (reflection, loop_of(Evaluation((Finding("c", "m", severity=0.3),))), []),
        (stage, tried("aa", met=0.0), []),
        (stage, tried("aaa"), ["attempts"]),
    ],
)
def test_a_preset_stops_exactly_at_its_numbers(policy, loop, stopped):
    verdict = decide(loop, policy)
    assert (rules(verdict) if isinstance(verdict, Done) else []) == stopped


@given(st.sampled_from(sorted(PRESETS)), st.text("ab", max_size=5))
def test_every_preset_ends_every_loop(name, texts):
    most = max(r.limit for r in preset(name).rules if isinstance(r, MaxAttempts))
    loop = replace(tried((texts + "abcde")[:most]), goals=PRESETS[name].goals)
    assert isinstance(decide(loop, preset(name)), Done)

"""The presets: what is in them, where the numbers come from, and that each rule is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import heedful
from heedful.errors import UnknownName
from heedful.loop.decide import Again, Done, Policy, decide
from heedful.loop.policies import (
    PRESETS,
    default,
    orchestrator,
    preset,
    reflection,
    stage,
    thorough,
)
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, Goal, Improvement, Loop
from heedful.loop.stop import (
    All,
    Budget,
    Echo,
    Fatigue,
    MaxAttempts,
    NothingMet,
    Plateau,
    Repeat,
    StopRule,
    rule_name,
)
from heedful.testing import history
from tests.loop.support import evaluated, loop_of, rules

# -- what is in them: rules, min_gain, against what, goals

IN_THEM: dict[str, tuple[tuple[StopRule, ...], float, str, tuple[Goal, ...]]] = {
    "default": (
        (MaxAttempts(4), Repeat(2), All(Repeat(1, near=False), NothingMet())),
        0.05,
        "best",
        (),
    ),
    "thorough": ((MaxAttempts(5), Repeat(2, near=False)), 0.05, "best", ()),
    "orchestrator": (
        (MaxAttempts(4), Fatigue(0.5, 0.15, 0.05), Echo(3, across="scope")),
        0.05,
        "previous",
        (Goal("alignment", 0.75, "at_least"), Goal("drift", 0.25, "at_most")),
    ),
    "reflection": (
        (MaxAttempts(3), Repeat(1), Plateau(patience=None, novelty=True, floor=0.3)),
        0.1,
        "best",
        (),
    ),
    "stage": ((MaxAttempts(3),), 0.05, "best", ()),
}


@pytest.mark.parametrize("name", IN_THEM)
def test_what_is_in_a_preset(name):
    policy, (rules_, gain, against, goals) = preset(name), IN_THEM[name]
    assert policy == Policy(rules_, Improvement(gain, against), "stop", name, goals)  # type: ignore[arg-type]
    assert policy is PRESETS[name] is getattr(heedful.policies, name)


def test_there_are_no_others():
    assert PRESETS.keys() == IN_THEM.keys()
    with pytest.raises(UnknownName) as caught:
        preset("Default")
    assert caught.value.known == tuple(sorted(PRESETS))


# -- orchestrator: the documented numbers, at their boundaries


def reported(*scores: tuple[float, float], tags: str = "", **fields: Any) -> Loop:
    """Attempts with alignment and drift; each has the bias tags, which an improvement keeps."""
    biases = tuple(Finding("bias", tag, key=tag, persistent=True, level="warning") for tag in tags)
    made = [Evaluation(biases, {"alignment": a, "drift": d}) for a, d in scores]
    return loop_of(*made, goals=orchestrator.goals, **fields)


@pytest.mark.parametrize(
    ("alignment", "drift", "reasons"),
    [
        (0.75, 0.25, None),
        (1.0, 0.0, None),
        (0.749, 0.25, ["alignment_threshold_not_met"]),
        (0.75, 0.251, ["drift_threshold_exceeded"]),
        (0.72, 0.28, ["alignment_threshold_not_met", "drift_threshold_exceeded"]),
    ],
)
def test_alignment_three_quarters_and_drift_one_quarter(alignment, drift, reasons):
    verdict = decide(reported((alignment, drift)), orchestrator)
    if reasons is None:
        assert verdict == Done(1, passed=True)
    else:
        assert isinstance(verdict, Again)
        assert [trigger.reason for trigger in verdict.reasons] == reasons


def test_three_reruns():
    assert isinstance(decide(reported(*[(0.5, 0.5)] * 3), orchestrator), Again)
    assert rules(decide(reported(*[(0.5, 0.5)] * 4), orchestrator)) == ["attempts"]


LEVELS: list[tuple[list[tuple[float, float]], float]] = [
    ([(0.5, 0.5)], 0.0),  # none before the first rerun
    ([(0.5, 0.5), (0.5, 0.5)], 0.15),
    ([(0.5, 0.5), (0.5, 0.5), (0.5, 0.5)], 0.30),
    ([(0.5, 0.5), (0.55, 0.5)], 0.0),  # better by 0.05
    ([(0.5, 0.5), (0.549, 0.5)], 0.15),
    ([(0.5, 0.5), (0.5, 0.45)], 0.0),  # drift does as well
    ([(0.5, 0.5), (0.5, 0.451)], 0.15),
    ([(0.5, 0.5), (0.55, 0.9)], 0.0),  # the one or the other, whatever the other does
    ([(0.5, 0.5), (0.5, 0.5), (0.55, 0.5)], 0.10),  # 0.05 less
    ([(0.7, 0.3), (0.5, 0.5), (0.55, 0.5)], 0.10),  # against the previous, not the best
    ([(0.5, 0.5)] * 5, 0.60),
]


@pytest.mark.parametrize(("scores", "level"), LEVELS)
def test_fatigue_grows_by_15_and_shrinks_by_5_hundredths(scores, level):
    loop = replace(reported(*scores), improves=orchestrator.improvement)
    assert Fatigue(0.5).level(loop) == level


def test_a_bias_tag_in_three_attempts_over_the_scope():
    better = [(0.1, 0.9), (0.2, 0.8), (0.3, 0.7)]  # which does not reset them
    assert isinstance(decide(reported(*better[:2], tags="a"), orchestrator), Again)
    assert rules(decide(reported(*better, tags="a"), orchestrator)) == ["echo"]
    earlier = reported(*better[:1], tags="a", echoes={"a": 2})
    assert rules(decide(earlier, orchestrator)) == ["echo"]
    assert isinstance(decide(reported(*better[:1], tags="b", echoes={"a": 2}), orchestrator), Again)


@pytest.mark.parametrize("missing", ["alignment", "drift"])
def test_a_score_that_is_missing_is_not_zero(missing):
    loop = reported((0.9, 0.1))
    scores = {"alignment": 0.9, "drift": 0.1}
    del scores[missing]
    verdict = decide(replace(loop_of(Evaluation(scores=scores)), goals=loop.goals), orchestrator)
    assert rules(verdict) == ["unscored"]


# -- the others, at their boundaries


def tried(texts: str, met: float | None = None, near: str = "") -> Loop:
    """Attempts with one error each, which never improve; those in `near` are nearly the first."""
    attempts = [
        Attempt(
            n,
            Candidate.of(text),
            Evaluation((Finding("c", f"{n}"),), met=met),
            repeats=1 if str(n) in near else None,
        )
        for n, text in enumerate(texts, 1)
    ]
    return Loop("tried", attempts=tuple(attempts))


@pytest.mark.parametrize(
    ("policy", "loop", "stopped"),
    [
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
        (reflection, tried("ab"), []),
        (reflection, tried("abc"), ["attempts"]),
        (reflection, tried("aa"), ["repeat"]),
        (reflection, loop_of(evaluated("x"), evaluated("x")), ["plateau"]),  # no new issue
        (reflection, loop_of(Evaluation((Finding("c", "m", severity=0.299),))), ["plateau"]),
        (reflection, loop_of(Evaluation((Finding("c", "m", severity=0.3),))), []),
        (stage, tried("ab"), []),
        (stage, tried("aa", met=0.0), []),
        (stage, tried("aaa"), ["attempts"]),
    ],
)
def test_where_a_preset_stops(policy, loop, stopped):
    verdict = decide(loop, policy)
    assert (rules(verdict) if isinstance(verdict, Done) else []) == stopped


@pytest.mark.parametrize(("gain", "better"), [(0.099, False), (0.1, True)])
def test_reflection_needs_a_tenth(gain, better):
    goal = (Goal("quality", 1),)
    loop = loop_of(*(Evaluation(scores={"quality": q}) for q in (0.1, 0.1 + gain)), goals=goal)
    assert isinstance(decide(loop, reflection), Again) is better


# -- each rule makes a difference: the same loop goes on without it

WITNESSES: dict[str, list[Loop]] = {
    "default": [tried("abcd"), tried("aaa"), tried("aa", met=0.0)],
    "thorough": [tried("abcde"), tried("aaa")],
    "orchestrator": [reported(*[(0.5, 0.5)] * 4), reported((0.5, 0.5), tags="a", echoes={"a": 2})],
    "reflection": [history("abc", "ad", "e"), tried("aa"), loop_of(*[evaluated("x")] * 2)],
    "stage": [tried("abc")],
}
SILENT = {("orchestrator", "fatigue")}  # 3 reruns reach 0.45: only an override lets it speak


@pytest.mark.parametrize("name", PRESETS)
def test_every_rule_of_a_preset_stops_a_loop_that_would_go_on_without_it(name):
    policy = preset(name)
    for rule in policy.rules:
        fewer = tuple(r for r in policy.rules if r is not rule) or (Budget(calls=10**9),)
        turned = [
            isinstance(decide(loop, policy), Done)
            and isinstance(decide(loop, replace(policy, rules=fewer)), Again)
            for loop in WITNESSES[name]
        ]
        assert any(turned) is ((name, rule_name(rule)) not in SILENT), rule


@given(st.sampled_from(sorted(PRESETS)), st.text("ab", max_size=5))
def test_every_preset_ends_every_loop(name, texts):
    most = max(r.limit for r in preset(name).rules if isinstance(r, MaxAttempts))
    loop = replace(tried((texts + "abcde")[:most]), goals=PRESETS[name].goals)
    assert isinstance(decide(loop, preset(name)), Done)

"""What a person reads is true: each line as it was decided, each change really a change."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.loop.decide import Again, Done, Policy, decide, spent
from errata.loop.explain import changes, explain, liftable
from errata.loop.record import Evaluation, Goal, Improvement, Loop, Override
from errata.loop.stop import (
    All,
    Budget,
    Echo,
    Fatigue,
    MaxAttempts,
    Plateau,
    Repeat,
    StopRule,
    rule_name,
)
from errata.protocols import Usage
from tests.loop import support
from tests.loop.support import QUALITY, evaluated, loop_of, rules, scored

RELAX: dict[str, Callable[[StopRule, float], StopRule]] = {
    r"attempts at (\S+) instead": lambda rule, to: MaxAttempts(int(to)),
    r"a fatigue limit of (\S+) instead": lambda rule, to: replace(cast("Fatigue", rule), limit=to),
    r"echo at (\S+) times": lambda rule, to: replace(cast("Echo", rule), times=int(to)),
    r"repeat at (\S+) times": lambda rule, to: Repeat(int(to)),
    r"a patience of (\S+) instead": lambda rule, to: replace(
        cast("Plateau", rule), patience=int(to)
    ),
}
KINDS: dict[str, type] = dict(
    zip(RELAX, (MaxAttempts, Fatigue, Echo, Repeat, Plateau), strict=True)
)


def verdicts_after(words: str, loop: Loop, policy: Policy) -> list[bool]:
    """Whether the loop stops for the same reason, for each rule that the words may speak of."""
    for pattern, relax in RELAX.items():
        if found := re.match(pattern, words):
            to = float(found[1])
            found_rules = [i for i, r in enumerate(policy.rules) if isinstance(r, KINDS[pattern])]
            return [
                isinstance(decide(loop, replace(policy, rules=relaxed)), Done)
                for i in found_rules
                if (
                    relaxed := (
                        *policy.rules[:i],
                        relax(policy.rules[i], to),
                        *policy.rules[i + 1 :],
                    )
                )
            ]
    found = re.fullmatch(r"(\w+) at (\S+) instead of (\S+)", words)
    assert found, words
    last = loop.attempts[-1]
    assert last.evaluation is not None
    scores = {**last.evaluation.scores, found[1]: float(found[2])}
    met = replace(last, evaluation=replace(last.evaluation, scores=scores))
    verdict = decide(replace(loop, attempts=(*loop.attempts[:-1], met)), policy)
    return [not (isinstance(verdict, Done) and verdict.passed)]


@given(support.loops(), support.policies)
def test_every_change_that_is_named_turns_the_verdict(loop, policy):
    explanation = explain(loop, policy)
    for words in explanation.would_change:
        assert not all(verdicts_after(words, loop, policy)), words


@given(support.loops(), support.policies)
def test_every_change_is_checked_before_it_is_named(loop, policy):
    verdict = decide(loop, policy)
    for change in changes(replace(loop, improves=policy.improvement), policy, verdict):
        other = decide(change.loop, change.policy)
        assert isinstance(other, Again) or (isinstance(other, Done) and other.passed)


@given(support.loops(), support.policies)
def test_the_same_loop_gives_the_same_words(loop, policy):
    first = explain(loop, policy)
    assert str(explain(loop, policy)) == str(first)
    assert first.verdict == decide(loop, policy)
    assert len(first.lines) == len(loop.attempts)
    lines = str(first).splitlines()
    assert all(line.isprintable() for line in lines)


CASES: list[tuple[Loop, StopRule, str]] = [
    (scored(0.5), MaxAttempts(1), "quality at 0.75 instead of 0.5"),
    (scored(0.5), MaxAttempts(1), "attempts at 2 instead of 1"),
    (scored(0.5, 0.5, 0.5), Fatigue(), "a fatigue limit of 0.301 instead of 0.3"),
    (loop_of(*[evaluated("x")] * 3), Echo(), "echo at 4 times instead of 3"),
    (loop_of(*[evaluated("x")] * 3, texts="aaa"), Repeat(), "repeat at 3 times instead of 1"),
    (scored(0.5, 0.5, 0.5), Plateau(), "a patience of 3 instead of 2"),
]


@pytest.mark.parametrize(("loop", "rule", "words"), CASES)
def test_what_would_have_changed_it(loop, rule, words):
    assert words in explain(loop, Policy((rule,))).would_change


def test_nothing_that_is_quoted_can_break_a_line_or_colour_it():
    nasty = "a\x1b[31m\nattempt 9: forged -> passed\u202e"
    loop = loop_of(*[evaluated(nasty)] * 2, cancelled=nasty)
    loop = replace(loop, overrides=(Override("echo", nasty, decisions=9),))
    policy = Policy((Echo(1), MaxAttempts(9), lambda loop: nasty if loop.cancelled else None))
    lines = str(explain(loop, policy)).splitlines()
    assert all(line.isprintable() for line in lines)
    assert [line[:10] for line in lines[:3]] == ["attempt 1:", "attempt 2:", "kept: atte"]


def test_two_rules_that_both_stop_are_not_turned_by_one_change():
    policy = Policy((MaxAttempts(1), Fatigue(), Budget(calls=1)))
    loop = replace(loop_of(evaluated("x")), extra=Usage(calls=1))
    assert rules(decide(loop, policy)) == ["budget", "attempts"]
    assert explain(loop, policy).would_change == ()


def test_the_threshold_is_shown_exactly_enough_to_be_met():
    goal = Goal("quality", 1_234_567.8)
    loop = loop_of(Evaluation(scores={"quality": 1_234_500.0}), goals=(goal,))
    (first, _) = explain(loop, Policy((MaxAttempts(1),))).would_change
    assert first == "quality at 1234567.8 instead of 1234500"


def test_improvement_is_what_the_policy_says():
    policy = Policy((Plateau(1),), improvement=Improvement(0.3))
    explanation = explain(scored(0.1, 0.3), policy)
    assert explanation.would_change[-1] == "a patience of 2 instead of 1"


def test_the_text():
    loop = loop_of(
        evaluated("a", "b"), evaluated("b"), evaluated("b"), goals=(), cancelled="by ada"
    )
    assert str(explain(loop, Policy((MaxAttempts(3),)))) == (
        "attempt 1: a; b -> again\n"
        "attempt 2: b -> again\n"
        "attempt 3: b -> stopped by cancelled: by ada; attempts: 3 of 3 attempts made\n"
        "kept: attempt 2"
    )
    assert str(explain(loop_of(evaluated("a"), evaluated()), support.NEVER)) == (
        "attempt 1: a -> again\nattempt 2 -> passed"
    )
    assert "nothing: no attempt was evaluated" in str(explain(loop_of(None), support.NEVER))
    assert str(explain(Loop("new"), support.NEVER)) == ""


def told(loop: Loop, policy: Policy) -> list[str]:
    return [line.decided for line in explain(loop, policy).lines]


def test_an_override_is_told_where_it_lifted_a_rule():
    policy = Policy((MaxAttempts(2),))
    x = evaluated("x")
    lifted = "again (attempts overridden by ada)"
    stopped = "stopped by attempts: "
    used = (Override("attempts", "ada", used=1),)
    assert told(loop_of(x, x, overrides=used), policy) == ["again", lifted]
    assert told(loop_of(x, x, x, overrides=used), policy) == [
        "again",
        lifted,
        stopped + "3 of 2 attempts made",
    ]
    two = (Override("attempts", "ada", decisions=2, used=1), Override("attempts", "bo"))
    assert told(loop_of(x, x, overrides=two), policy) == ["again", lifted]
    assert told(loop_of(x, x, x, overrides=two), policy) == ["again", lifted, lifted]


def test_what_was_cut_later_does_not_stop_what_came_before():
    x = evaluated("x")
    policy = Policy((Budget(seconds=5),))
    loop = loop_of(x, x, extra=Usage(seconds=5))
    assert told(loop, policy) == ["again", "stopped by budget: 5 of 5 seconds spent"]


@given(support.loops(least=1, cancelled=False), support.policies)
def test_a_loop_folded_attempt_by_attempt_is_told_as_it_happened(loop, policy):
    unused = tuple(replace(o, used=0) for o in loop.overrides)
    grown = Loop(loop.id, loop.goals, overrides=unused, echoes=loop.echoes)
    happened: list[bool] = []
    for attempt in loop.attempts:
        grown = grown.then(attempt)
        verdict = decide(grown, policy)
        happened.append(isinstance(verdict, Again))
        grown = spent(grown, verdict)
        if happened[-1] is False:
            break
    assert [d.startswith("again") for d in told(grown, policy)] == happened


@given(support.loops(), support.policies)
def test_what_is_liftable_can_really_be_lifted(loop, policy):
    verdict = decide(loop, policy)
    names = liftable(verdict)
    all_names = {n for r in policy.rules for n in rule_name(r).split("+")}
    assert set(names) <= all_names & {"attempts", "echo", "repeat", "fatigue", "plateau"}
    if isinstance(verdict, Done) and not verdict.passed:
        more = tuple(Override(name, "ada") for name in names)
        after = decide(replace(loop, overrides=(*loop.overrides, *more)), policy)
        final = {s.rule for s in verdict.stopped_by} - set(names)
        final = {f for f in final if not set(f.split("+")) & set(names)}
        assert isinstance(after, Done) is bool(final)


def test_all_is_lifted_by_its_members_names():
    loop = loop_of(evaluated("x"), evaluated("x"), texts="aa")
    verdict = decide(loop, Policy((All(MaxAttempts(2), Repeat()), Repeat())))
    assert liftable(verdict) == ("attempts", "repeat")
    assert liftable(Again()) == ()


@given(st.floats(-1, 1), st.floats(-1, 1))
def test_a_missed_goal_is_met_by_what_is_shown(threshold, score):
    goal = Goal("q", threshold)
    loop = loop_of(Evaluation(scores={"q": score}), goals=(goal,))
    for words in explain(loop, Policy((MaxAttempts(1),))).would_change[:1]:
        if words.startswith("q at "):
            assert goal.met(float(words.split()[2]))
            assert QUALITY.score not in words

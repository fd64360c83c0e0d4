"""Another policy over recorded loops: it does what `decide` would have done, attempt by attempt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import InvalidInput
from heedful.loop.decide import Again, Done, Policy, Verdict, consume_overrides, decide
from heedful.loop.policies import PRESETS, default
from heedful.loop.record import (
    NOTHING,
    Attempt,
    Evaluation,
    Goal,
    Improvement,
    Loop,
    Override,
    Usage,
)
from heedful.loop.replay import Figures, RecordedLoop, ReplayResult, compare, replay
from heedful.loop.stop import Budget, Fatigue, MaxAttempts, Plateau, Repeat, Stop
from heedful.testing import history
from tests.loop import support
from tests.loop.support import DRIFT, NEVER, QUALITY, evaluated, loop_of, scored

# -- one loop


def lived(attempts: Sequence[Attempt], policy: Policy, begun: Loop) -> tuple[Loop, Verdict]:
    """The loop as a host drives it: one attempt after the other, until the policy ends it."""
    loop, verdict = begun, Again()
    waiting = list(attempts)
    while waiting and isinstance(verdict, Again):
        loop = loop.then(waiting.pop(0))
        verdict = decide(loop, policy)  # type: ignore[assignment]
        loop = consume_overrides(loop, verdict)
    return loop, verdict


def bare(loop: Loop, policy: Policy) -> Loop:
    """The loop before its first attempt, without what a person did to it."""
    return Loop(loop.id, loop.goals or policy.goals, echoes=loop.echoes)


@given(support.loops(), support.with_goals)
def test_the_policy_under_which_a_loop_was_made_makes_it_again(loop, policy):
    made, verdict = lived(loop.attempts, policy, bare(loop, policy))
    again = replay(made, policy)
    assert (again.attempts, again.kept, again.verdict) == (len(made.attempts), made.best, verdict)
    assert again.exact is isinstance(verdict, Done)
    assert again.usage == made.usage


@given(support.loops(), support.with_goals, support.with_goals)
def test_another_policy_does_what_deciding_by_hand_does(loop, old, new):
    record, _ = lived(loop.attempts, old, bare(loop, old))
    record = replace(record, overrides=loop.overrides, cancelled=loop.cancelled)
    made, verdict = lived(record.attempts, new, bare(record, new))
    again = replay(record, new)
    assert replace(again, exact=False) == ReplayResult(
        len(made.attempts), made.best, verdict, False, made.usage
    )
    assert not again.exact or isinstance(verdict, Done)
    if record.goals and not any(isinstance(rule, Budget) for rule in new.rules):
        assert again.exact is isinstance(verdict, Done)


@settings(max_examples=60)
@given(support.loops(), support.with_goals, support.expiring)
def test_overrides_and_cancellation_are_left_out(loop, policy, override):
    plain = replace(loop, overrides=(), cancelled="")
    lifted = (replace(override, used=1), override)
    touched = replace(loop, overrides=lifted, cancelled="by ada", at=9)
    assert replay(touched, policy) == replay(plain, policy)


def spent_at(loop: Loop, policy: Policy, place: int) -> Loop:
    """The loop as it would have been, had all that was spent outside been spent after `place`."""
    made = replace(bare(loop, policy), improves=policy.improvement)
    for number in range(len(loop.attempts) + 1):
        if number == place:
            made = replace(made, extra=loop.extra)
            if any(rule(made) for rule in policy.rules if isinstance(rule, Budget)):
                return made
        if number == len(loop.attempts):
            return made
        made = made.then(loop.attempts[number])
        if isinstance(decide(made, policy), Done):
            return made
    raise AssertionError


@settings(max_examples=200)
@given(support.loops(least=1), support.policies)
def test_where_it_is_exact_it_does_not_matter_when_calls_outside_the_attempts_were_made(
    loop, policy
):
    loop = replace(loop, goals=loop.goals or (QUALITY,))
    made, plain = replay(loop, policy), replay(replace(loop, extra=NOTHING), policy)
    assert (made.attempts, made.kept, made.usage) == (plain.attempts, plain.kept, plain.usage)
    ends = {len(spent_at(loop, policy, n).attempts) for n in range(len(loop.attempts) + 1)}
    assert not made.exact or ends == {made.attempts}


SPENT = (Usage(calls=1, seconds=4.0),) * 3
CUT = replace(history("a", "a", ""), extra=Usage(calls=2, seconds=3.0))
BY_SECONDS = Policy((Budget(seconds=11),))


@pytest.mark.parametrize(
    ("policy", "attempts", "exact"),
    [
        (Policy((Budget(calls=9),)), 3, True),
        (Policy((Budget(calls=4),)), 3, False),  # after the second where both calls came first
        (Policy((Budget(calls=1),)), 1, False),  # without any where both came first
        (Policy((Budget(calls=3),)), 3, False),  # after the first
        (Policy((Budget(seconds=16),)), 3, True),
        (Policy((Budget(seconds=11),)), 3, False),  # it would have cut the third attempt
        (Policy((Budget(seconds=3),)), 1, False),  # and here the first
        (Policy((MaxAttempts(2),)), 2, True),
    ],
)
def test_what_was_spent_outside_the_attempts_and_what_takes_too_long(policy, attempts, exact):
    timed = [replace(a, usage=u) for a, u in zip(CUT.attempts, SPENT, strict=True)]
    made = replay(replace(CUT, attempts=tuple(timed)), policy)
    assert (made.attempts, made.exact) == (attempts, exact)


def test_calls_that_were_cut_end_a_record_that_has_no_more_attempts():
    record = replace(history("a", "a"), extra=Usage(calls=2))
    made = replay(record, Policy((Budget(calls=4),)))
    assert (made.attempts, made.exact, support.rules(made.verdict)) == (2, True, ["budget"])


def test_goals_that_the_attempts_were_not_told_of_are_a_guess_after_the_first():
    record = replace(scored(0.7, 0.6, 0.8), goals=())
    policy = Policy((MaxAttempts(2),), goals=(QUALITY,))
    assert replay(record, policy).exact is False
    assert replay(replace(record, goals=policy.goals), policy).exact is True
    assert replay(record, Policy((MaxAttempts(1),), goals=policy.goals)).exact is True
    assert replay(record, Policy((MaxAttempts(2),))).exact is True
    met = replace(loop_of(*[evaluated("x", scores={"quality": 0.8})] * 2), goals=())
    assert replay(met, policy).exact is True  # it is met, so nothing would have been said


def test_what_an_override_allowed_is_not_made_by_the_policy():
    x = evaluated("x")
    used = (Override("attempts", "ada", decisions=2, used=2),)
    record = loop_of(x, x, evaluated(), overrides=used)
    made = replay(record, Policy((MaxAttempts(1),)))
    assert (made.attempts, made.kept, made.exact) == (1, 1, True)
    assert made.verdict == Done(1, False, (Stop("attempts", "1 of 1 attempts made"),))
    cut = replace(loop_of(x, evaluated(), cancelled="ada"), extra=Usage(calls=99))
    assert replay(cut, Policy((Budget(calls=9),))).verdict == Done(2, passed=True)


@pytest.mark.parametrize(
    ("policy", "attempts", "exact"),
    [
        (Policy((MaxAttempts(1),)), 1, True),
        (Policy((MaxAttempts(2),)), 2, True),  # it stops where the record ends
        (Policy((MaxAttempts(3),)), 2, False),  # it would have gone on
        (Policy((MaxAttempts(3), Plateau(1))), 2, True),
        (NEVER, 2, False),
    ],
)
def test_a_policy_that_would_have_gone_on_is_not_exact(policy, attempts, exact):
    made = replay(history("a", "a"), policy)
    assert (made.attempts, made.exact) == (attempts, exact)
    assert isinstance(made.verdict, Done if exact else Again)


@settings(max_examples=60)
@given(support.loops(), support.policies, support.any_rule)
def test_one_more_rule_never_makes_more_attempts_nor_the_record_less_exact(loop, policy, rule):
    loop = replace(loop, extra=NOTHING)  # a budget would ask when that was spent
    fewer, more = replay(loop, policy), replay(loop, replace(policy, rules=(*policy.rules, rule)))
    assert more.attempts <= fewer.attempts
    assert more.exact or not fewer.exact


@settings(max_examples=60)
@given(support.loops(least=1), support.policies)
def test_an_attempt_that_passes_ends_every_replay(loop, policy):
    numbers = [a.number for a in loop.attempts if a.evaluation and a.evaluation.passes(loop.goals)]
    made = replay(loop, policy)
    assert 1 <= made.attempts <= min([len(loop.attempts), *numbers])
    if [made.attempts] == numbers[:1]:
        assert made.verdict == Done(made.kept, passed=True)


@pytest.mark.parametrize("policy", PRESETS.values(), ids=PRESETS)
def test_of_a_loop_without_attempts_the_record_tells_nothing(policy):
    assert replay(Loop("none"), policy) == ReplayResult(0, None, Again(), False, NOTHING)


def test_goals_of_the_policy_are_those_of_a_loop_that_has_none():
    policy = Policy((MaxAttempts(2),), goals=(QUALITY,))
    ungoaled = replace(scored(0.7, 0.8), goals=())
    assert replay(ungoaled, policy).verdict == Done(2, passed=True)
    assert replay(ungoaled, replace(policy, goals=())).verdict == Done(1, passed=True)
    own = replace(ungoaled, goals=(Goal("quality", 0.9),))
    assert replay(own, policy).verdict == Done(
        2, False, (Stop("attempts", "2 of 2 attempts made"),)
    )


def test_improvement_is_what_the_replayed_policy_says():
    record = replace(scored(0.1, 0.13, 0.16), improves=Improvement(0.01))
    strict = Policy((Plateau(1),), improvement=Improvement(0.05))
    assert replay(record, strict).attempts == 2
    assert replay(record, replace(strict, improvement=Improvement(0.03))).attempts == 3


def test_echoes_that_were_recorded_count():
    policy = PRESETS["orchestrator"]
    tagged = evaluated("tag", scores={"alignment": 0.1, "drift": 0.9})
    assert replay(loop_of(tagged, tagged), policy).exact is False
    made = replay(loop_of(tagged, tagged, echoes={"tag": 1}), policy)
    assert (made.attempts, support.rules(made.verdict)) == (2, ["echo"])


# -- how good a recorded attempt was

GOALS = (QUALITY, DRIFT)


@pytest.mark.parametrize(
    ("evaluation", "worth"),
    [
        (None, 0.0),
        (evaluated(scores={"quality": 0.75, "drift": 0.25}), 1.0),
        (Evaluation(scores={"quality": 0.75, "drift": 0.25}, met=0.5), 1.0),
        (evaluated("x", scores={"quality": 0.9, "drift": 0.1}), 0.0),
        (replace(evaluated("x"), met=0.75), 0.75),
        (Evaluation(scores={"quality": 0.7, "drift": 0.1}, met=1.0), 0.999),  # a goal is missed
        (Evaluation(scores={"quality": 0.9}, met=1.0), 0.999),  # and one is unscored
        (replace(evaluated("x", scores={"quality": 1, "drift": 0}), met=1.0), 0.999),
    ],
)
def test_what_passes_is_worth_1_and_only_that(evaluation, worth):
    assert RecordedLoop(loop_of(evaluation, goals=GOALS)).worth(1) == worth


def test_where_the_quality_is_known_the_checks_are_not_asked():
    record = RecordedLoop(loop_of(evaluated(), evaluated("x")), (0.25, 1))
    assert [record.worth(n) for n in (1, 2, None)] == [0.25, 1, 0.0]
    assert record.oracle == 2


@pytest.mark.parametrize(
    ("quality", "oracle"),
    [((0, 0, 0), 1), ((0, 0.999, 0), 1), ((0, 0, 1), 3), ((0, 1, 1), 2), ((1, 0, 0), 1)],
)
def test_the_oracle_stops_at_the_first_right_attempt_and_at_once_where_there_is_none(
    quality, oracle
):
    assert RecordedLoop(history("a", "b", "c"), quality).oracle == oracle
    assert RecordedLoop(Loop("none")).oracle == 1


@pytest.mark.parametrize(
    "quality", [(1,), (1, 1, 1), (1, -0.1), (1, 1.1), (math.nan, 1), (1, "1"), (1, None), (1, True)]
)
def test_quality_is_one_number_an_attempt_within_0_and_1(quality):
    with pytest.raises(InvalidInput) as caught:
        RecordedLoop(history("a", "b"), quality)
    assert caught.value.field == "quality"


# -- many loops


@st.composite
def recorded(draw: st.DrawFn) -> RecordedLoop:
    loop = draw(support.loops())
    known = draw(st.booleans())
    share = st.sampled_from([0, 0.5, 1])
    quality = tuple(draw(share) for _ in loop.attempts) if known else ()
    return RecordedLoop(loop, quality)


records = st.lists(recorded(), max_size=4)


@settings(max_examples=40)
@given(records, st.lists(support.with_goals, min_size=1, max_size=3))
def test_the_figures_add_up(records, policies):
    table = compare(records, policies)
    assert [one.policy for one in table] == [policy.name for policy in policies]
    for figures, policy in zip(table, policies, strict=True):
        made = [replay(one.loop, policy) for one in records]
        kept = [one.worth(each.kept) for one, each in zip(records, made, strict=True)]
        ways = [[one.worth(a.number) == 1 for a in one.loop.attempts] for one in records]
        more = [m.attempts - one.oracle for one, m in zip(records, made, strict=True)]
        assert figures == Figures(
            policy.name,
            loops=len(records),
            attempts=sum(each.attempts for each in made),
            usage=sum((each.usage for each in made), NOTHING),
            solved=kept.count(1),
            solvable=sum(map(any, ways)),
            quality=sum(kept) / len(kept) if kept else 0.0,
            oracle=sum(one.oracle for one in records),
            regret=sum(n for n in more if n > 0),
            beyond=sum(not each.exact for each in made),
        )
        assert 0 <= figures.lost == figures.solvable - figures.solved
        assert figures.beyond <= figures.loops


COUNTS = ("loops", "attempts", "solved", "solvable", "oracle", "regret", "beyond", "lost")


@settings(max_examples=40)
@given(records, records, support.with_goals)
def test_the_figures_of_two_sets_are_those_of_each_together(one, two, policy):
    both, first, second = (compare(each, [policy])[0] for each in (one + two, one, two))
    for count in COUNTS:
        assert getattr(both, count) == getattr(first, count) + getattr(second, count)
    for part in fields(Usage):
        total = getattr(first.usage, part.name) + getattr(second.usage, part.name)
        assert getattr(both.usage, part.name) == pytest.approx(total)
    mean = first.quality * first.loops + second.quality * second.loops
    assert both.quality * both.loops == pytest.approx(mean)


def test_without_loops_or_policies_there_is_nothing_to_tell():
    assert compare([], [default]) == (Figures("default", 0, 0, NOTHING, 0, 0, 0.0, 0, 0, 0),)
    assert compare([RecordedLoop(history("a"))], []) == ()


def test_three_loops_by_hand():
    """Solved at once; solved by the third, which one policy gives up before; never solved."""
    loops = [history(""), history("ab", "a", ""), history("a", "a", "a", candidates="xxx")]
    records: list[Any] = [RecordedLoop(loop) for loop in loops]
    two, repeat = Policy((MaxAttempts(2),), name="two"), Policy((Repeat(), MaxAttempts(9)), name="")
    usage = [Usage(calls=n) for n in (5, 6)]
    assert compare(records, [two, repeat]) == (
        Figures("two", 3, 5, usage[0], 1, 2, 1 / 3, 1 + 3 + 1, 1, 0),
        Figures("", 3, 6, usage[1], 2, 2, 2 / 3, 1 + 3 + 1, 1, 0),
    )
    beyond = compare(records, [Policy((Fatigue(1.0),))])[0]
    assert (beyond.attempts, beyond.beyond, beyond.regret) == (7, 1, 2)

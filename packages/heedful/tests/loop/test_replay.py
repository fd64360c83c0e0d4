"""A replay does what `decide` would have done, attempt by attempt."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

import heedful
from heedful.errors import InvalidInput
from heedful.loop.decide import Again, Done, Policy, Verdict, consume_overrides, decide
from heedful.loop.policies import default
from heedful.loop.record import NO_USAGE, Attempt, Candidate, Evaluation, Loop, Usage
from heedful.loop.replay import (
    Figures,
    RecordedLoop,
    ReplayResult,
    comparable,
    compare,
    replay,
)
from heedful.loop.stop import Budget, Fatigue, MaxAttempts, Repeat
from heedful.testing import history
from tests.loop import support
from tests.loop.support import DRIFT, QUALITY, evaluated, loop_of, scored
from tests.tables import cases

# -- one loop


def drive_by_hand(
    attempts: Sequence[heedful.Attempt], policy: Policy, start: Loop
) -> tuple[Loop, Verdict]:
    """The loop as a host drives it: one attempt after the other, until the policy ends
    it.
    """
    loop = start
    verdict: Verdict = Again()
    waiting = list(attempts)
    while waiting and isinstance(verdict, Again):
        loop = loop.then(waiting.pop(0))
        verdict = decide(loop, policy)
        loop = consume_overrides(loop, verdict)
    return loop, verdict


def unstarted(loop: Loop, policy: Policy) -> Loop:
    """The loop before its first attempt, without what a person did to it."""
    return Loop(loop.id, loop.goals or policy.goals, echoes=loop.echoes)


def has_budget(policy: Policy) -> bool:
    return any(isinstance(rule, Budget) for rule in policy.rules)


@given(support.loops(), support.with_goals, support.with_goals)
def test_a_replay_does_what_deciding_by_hand_does(loop, old, new):
    record, verdict = drive_by_hand(loop.attempts, old, unstarted(loop, old))
    same = replay(record, old)
    assert same.attempts == len(record.attempts)
    assert not same.exact or isinstance(verdict, Done)
    if not has_budget(old):
        assert same.exact is isinstance(verdict, Done)
    assert same.kept == record.best
    assert same.verdict == verdict
    assert same.usage == record.usage
    record = replace(record, overrides=loop.overrides, cancelled=loop.cancelled)
    driven, verdict = drive_by_hand(record.attempts, new, unstarted(record, new))
    again = replay(record, new)
    assert replace(again, exact=False) == ReplayResult(
        len(driven.attempts),
        driven.best,
        verdict=verdict,
        exact=False,
        usage=driven.usage,
    )
    assert not again.exact or isinstance(verdict, Done)
    if record.goals and not has_budget(new):
        assert again.exact is isinstance(verdict, Done)


SPENT = (Usage(calls=1, seconds=4.0),) * 3
CUT = replace(history("a", "a", ""), extra=Usage(calls=2, seconds=3.0))


@cases(
    ("budget", "exact"),
    {
        "after the second where both calls came first": (Budget(calls=4), False),
        "seconds to spare": (Budget(seconds=16), True),
        "it would have cut the third attempt": (Budget(seconds=11), False),
    },
)
def test_a_budget_that_may_cut_an_attempt_makes_a_replay_inexact(budget, exact):
    timed = [replace(a, usage=u) for a, u in zip(CUT.attempts, SPENT, strict=True)]
    result = replay(replace(CUT, attempts=tuple(timed)), Policy((budget,)))
    assert result.attempts == 3
    assert result.exact == exact


def test_a_replay_is_inexact_where_new_goals_would_have_changed_the_feedback():
    record = replace(scored(0.7, 0.6, 0.8), goals=())
    policy = Policy((MaxAttempts(2),), goals=(QUALITY,))
    assert replay(record, policy).exact is False
    assert replay(replace(record, goals=policy.goals), policy).exact is True
    assert replay(record, Policy((MaxAttempts(1),), goals=policy.goals)).exact is True
    assert replay(record, Policy((MaxAttempts(2),))).exact is True
    high = evaluated("x", scores={"quality": 0.8})
    met = loop_of(high, high)
    assert replay(met, policy).exact is True  # nothing would have been said


def test_a_loop_without_attempts_is_replayed_as_it_is():
    assert replay(Loop("none"), default) == ReplayResult(
        0, None, verdict=Again(), exact=False, usage=NO_USAGE
    )
    assert compare([], [default]) == (
        Figures(
            "default",
            0,
            attempts=0,
            usage=NO_USAGE,
            solved=0,
            solvable=0,
            quality=0.0,
            oracle=0,
            regret=0,
            beyond=0,
        ),
    )
    assert compare([RecordedLoop(history("a"))], []) == ()


# -- how good a recorded attempt was

GOALS = (QUALITY, DRIFT)


@cases(
    ("evaluation", "worth"),
    {
        "passed": (Evaluation(scores={"quality": 0.75, "drift": 0.25}, met=0.5), 1.0),
        "the share that is met": (replace(evaluated("x"), met=0.75), 0.75),
        "a goal is missed": (
            Evaluation(scores={"quality": 0.7, "drift": 0.1}, met=1.0),
            0.999,
        ),
        "a score is missing": (Evaluation(scores={"quality": 0.9}, met=1.0), 0.999),
    },
)
def test_only_an_attempt_that_passes_is_worth_1(evaluation, worth):
    assert RecordedLoop(loop_of(evaluation, goals=GOALS)).worth(1) == worth


SILENT = Attempt(1, Candidate.of("a"), evaluation=Evaluation())


@cases(
    ("attempt", "judged"),
    {
        "nothing judged it": (SILENT, False),
        "a check passed": (replace(SILENT, judged_by=("a",)), True),
    },
)
def test_a_loop_that_nothing_judged_is_not_compared(attempt, judged):
    record = RecordedLoop(Loop("a", attempts=(attempt,)), ())
    compared = comparable([record], [default])

    assert record.judged is judged
    assert len(compared.loops) == int(judged)
    assert any("not judged" in note for note in compared.notes) is not judged


def test_a_known_quality_replaces_the_checks():
    record = RecordedLoop(loop_of(evaluated(), evaluated("x")), (0.25, 1))
    assert [record.worth(n) for n in (1, 2, None)] == [0.25, 1, 0.0]
    assert record.oracle == 2


@cases(
    ("quality", "oracle"),
    {
        "right at last": ((0, 0, 1), 3),
        "right at once": ((1, 0, 0), 1),
    },
)
def test_the_oracle_stops_at_the_first_right_attempt_or_at_once(quality, oracle):
    assert RecordedLoop(history("a", "b", "c"), quality).oracle == oracle
    assert RecordedLoop(Loop("none")).oracle == 1


@cases(
    "quality",
    {
        "too few": (1,),
        "below 0": (1, -0.1),
        "not a number": (math.nan, 1),
    },
)
def test_quality_is_one_number_an_attempt_within_0_and_1(quality):
    with pytest.raises(InvalidInput) as caught:
        RecordedLoop(history("a", "b"), quality)
    assert caught.value.field == "quality"


# -- many loops


def test_three_loops_by_hand():
    """Solved at once; solved by the third, which one policy gives up before; never
    solved.
    """
    loops = [
        history(""),
        history("ab", "a", ""),
        history("a", "a", "a", candidates="xxx"),
    ]
    records: list[Any] = [RecordedLoop(loop) for loop in loops]
    two = Policy((MaxAttempts(2),), name="two")
    repeat = Policy((Repeat(), MaxAttempts(9)), name="")
    usage = [Usage(calls=n) for n in (5, 6)]
    assert compare(records, [two, repeat]) == (
        Figures(
            "two",
            3,
            attempts=5,
            usage=usage[0],
            solved=1,
            solvable=2,
            quality=1 / 3,
            oracle=1 + 3 + 1,
            regret=1,
            beyond=0,
        ),
        Figures(
            "",
            3,
            attempts=6,
            usage=usage[1],
            solved=2,
            solvable=2,
            quality=2 / 3,
            oracle=1 + 3 + 1,
            regret=1,
            beyond=0,
        ),
    )
    beyond = compare(records, [Policy((Fatigue(1.0),))])[0]
    assert beyond.attempts == 7
    assert beyond.beyond == 1
    assert beyond.regret == 2
    assert beyond.lost == 0
    assert compare(records, [two])[0].lost == 1

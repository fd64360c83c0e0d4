"""The ladder of a loop: which rung makes the next attempt, and why."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from heedful.errors import InvalidInput
from heedful.loop import codec
from heedful.loop.decide import (
    Again,
    Done,
    Policy,
    apply_override,
    close_rung,
    decide,
    standing_of,
)
from heedful.loop.explain import explain
from heedful.loop.ladder import Closing, Ladder
from heedful.loop.record import Evaluation, Loop, Override, Usage
from heedful.loop.stop import All, Budget, Fatigue, MaxAttempts, Plateau, Repeat
from tests.loop.support import evaluated, loop_from
from tests.tables import cases

TWO = Ladder(names=("small", "large"))
THREE = Ladder(names=("small", "middle", "large"))
X = evaluated("x")
ONCE = Policy((MaxAttempts(1),))


def climbed(
    rungs: str,
    *evaluations: Evaluation,
    texts: Any = (),
    ladder: Ladder = TWO,
    **fields: Any,
) -> Loop:
    """A loop whose attempts were made by these rungs; by default all of them fail."""
    loop = loop_from(evaluations or [X] * len(rungs), texts, ladder=ladder, **fields)
    attempts = [
        replace(attempt, rung=int(rung))
        for attempt, rung in zip(loop.attempts, rungs, strict=True)
    ]
    return replace(loop, attempts=tuple(attempts))


def again(loop: Loop, policy: Policy) -> Again:
    """The verdict on a loop that goes on."""
    verdict = decide(loop, policy)
    assert isinstance(verdict, Again)
    return verdict


def done(loop: Loop, policy: Policy) -> Done:
    """The verdict on a loop that has ended."""
    verdict = decide(loop, policy)
    assert isinstance(verdict, Done)
    return verdict


def rule_of_user(loop: Loop) -> str:
    return "enough"


# -- climbing


@cases(
    ("rule", "loop"),
    {
        "attempts": (MaxAttempts(2), climbed("11")),
        "repeat": (Repeat(), climbed("11", texts=["a", "a"])),
        "a user's rule": (rule_of_user, climbed("1")),
    },
)
def test_a_rule_ends_a_rung_and_the_next_one_begins(rule, loop):
    verdict = decide(loop, Policy((rule,)))
    assert isinstance(verdict, Again)
    assert verdict.rung == 2
    assert len(verdict.climbed) == 1
    assert verdict.feedback


@cases(
    ("policy", "rule"),
    {
        "budget": (Policy((MaxAttempts(1), Budget(calls=3))), "budget"),
        "a budget inside All": (
            Policy((All(MaxAttempts(1), Budget(calls=3)),)),
            "attempts+budget",
        ),
    },
)
def test_what_ends_the_whole_loop_does_not_climb(policy, rule):
    verdict = decide(climbed("1", extra=Usage(calls=3)), policy)
    assert isinstance(verdict, Done)
    assert rule in [stop.rule for stop in verdict.stopped_by]


# -- what the rules see


def test_a_budget_counts_over_all_rungs():
    policy = Policy((MaxAttempts(1), Budget(calls=2)))
    loop = climbed("12")
    paid = [replace(attempt, usage=Usage(calls=1)) for attempt in loop.attempts]
    verdict = decide(replace(loop, attempts=tuple(paid)), policy)
    assert isinstance(verdict, Done)
    assert verdict.stopped_by[0].rule == "budget"
    assert verdict.stopped_by[0].detail == "2 of 2 calls spent"


def test_the_answer_of_the_rung_before_is_no_repeat():
    policy = Policy((Repeat(),))
    assert again(climbed("12", texts=["a", "a"]), policy).rung == 2
    ended = done(climbed("122", texts=["b", "a", "a"]), policy)
    assert ended.stopped_by[0].detail == "the answer repeats attempt 2 (minimal change)"


def test_plateau_and_fatigue_begin_again_on_each_rung():
    policy = Policy((Plateau(2), Fatigue(0.3)))
    loop = climbed("1112")
    assert again(loop, policy).climbed == ()
    assert again(loop, policy).rung == 2
    assert standing_of(loop, policy).fatigue == 0
    ended = done(climbed("111222"), policy)
    details = [stop.detail for stop in ended.stopped_by]
    assert "no improvement since attempt 4: 2 of at most 2 attempts" in details


# -- overrides


def test_an_override_lifts_the_rule_on_the_rung_that_it_ended():
    loop = climbed("12")
    override = Override("attempts", "ann")
    lifted, verdict = apply_override(loop, ONCE, done(loop, ONCE), override)
    assert isinstance(verdict, Again)
    assert verdict.rung == 2
    assert lifted.overrides[0].rung == 2


def test_an_override_of_an_open_loop_counts_on_the_rung_that_comes_next():
    loop = climbed("1")
    override = Override("attempts", "ann", decisions=2)
    lifted, _ = apply_override(loop, ONCE, decide(loop, ONCE), override)
    assert lifted.overrides[0].rung == 2

    longer = replace(climbed("12"), overrides=lifted.overrides)
    assert again(longer, ONCE).rung == 2


# -- rungs that fail or have spent their budget


@cases(
    ("ladder", "instead"),
    {
        "the next one above": (THREE, 2),
        "one that is not closed": (THREE.close(2, 0, "down"), 3),
    },
)
def test_another_rung_begins_a_loop_if_the_first_one_is_closed(ladder, instead):
    loop, verdict = close_rung(Loop("loop", ladder=ladder), Again(), "down")
    assert loop.ladder is not None
    assert 1 in loop.ladder.closed
    assert isinstance(verdict, Again)
    assert verdict.rung == instead
    assert loop.rung == instead
    assert [(stop.rule, stop.detail) for stop in verdict.climbed] == [
        ("closed", "rung 1 (small): down")
    ]


def test_a_closing_counts_from_the_attempt_before_it():
    policy = Policy((MaxAttempts(3),))
    loop = climbed("112")
    changed, _ = close_rung(loop.upto(2), again(loop.upto(2), policy), "down")
    loop = replace(loop, ladder=changed.ladder)
    assert again(loop.upto(1), policy).rung == 1
    assert "attempt 1: x -> again\n" in str(explain(loop, policy))


def test_a_loop_ends_before_it_begins_if_all_rungs_are_closed():
    loop = Loop("loop", ladder=replace(TWO, closings=(Closing(2),)))
    closed, end = close_rung(loop, Again(rung=1), "spent")
    assert isinstance(end, Done)
    assert end.best is None
    assert decide(closed, ONCE) == end
    assert "stopped by closed" in str(explain(closed, ONCE))


def test_a_loop_ends_as_without_the_rung_if_that_is_closed():
    loop = climbed("1")
    verdict = again(loop, ONCE)
    ended, end = close_rung(loop, verdict, "200 of 200 calls spent")
    assert isinstance(end, Done)
    assert [stop.rule for stop in end.stopped_by] == ["attempts", "closed"]
    assert "rung 2 (large): 200 of 200 calls" in end.stopped_by[1].detail
    assert end.best == 1
    assert decide(ended, ONCE) == end


def test_the_next_rung_goes_on_if_one_is_closed_under_way():
    policy = Policy((MaxAttempts(3),))
    loop = climbed("12", ladder=THREE)
    changed, verdict = close_rung(loop, again(loop, policy), "spent")
    assert isinstance(verdict, Again)
    assert verdict.rung == 3
    assert again(changed, policy).rung == 3

    last = climbed("12")
    changed, end = close_rung(last, again(last, policy), "spent")
    assert isinstance(end, Done)
    assert decide(changed, policy) == end


# -- records


@given(closed=st.sets(st.integers(1, 3), max_size=2))
def test_a_ladder_and_its_verdicts_are_stored_without_loss(closed):
    closings = tuple(Closing(rung, 1, "down") for rung in sorted(closed))
    ladder = replace(THREE, closings=closings)
    assert codec.from_document(Ladder, codec.to_document(ladder)) == ladder
    verdict = decide(climbed("1", ladder=ladder), ONCE)
    assert codec.verdict_from(codec.verdict_to(verdict)) == verdict


@cases(
    "fields",
    {
        "one rung": {"names": ("one",)},
        "an unknown rung": {"names": ("a", "b"), "closings": (Closing(3),)},
    },
)
def test_a_ladder_that_makes_no_sense_is_refused(fields):
    with pytest.raises(InvalidInput):
        Ladder(**fields)

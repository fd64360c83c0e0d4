"""What a person reads is true: each line as it was decided, each change really a change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.loop.decide import Again, Done, Policy, consume_overrides, decide
from heedful.loop.explain import changes, explain
from heedful.loop.record import Improvement, Loop, Override, Usage
from heedful.loop.stop import (
    LIFTABLE,
    Budget,
    Echo,
    Fatigue,
    MaxAttempts,
    Plateau,
    Repeat,
    Stop,
)
from tests.loop import support
from tests.loop.support import evaluated, loop_of, rules, scored


@given(support.loops(), support.policies)
def test_the_same_loop_gives_the_same_words(loop, policy):
    first = explain(loop, policy)
    assert str(explain(loop, policy)) == str(first)
    assert first.verdict == decide(loop, policy)
    assert len(first.lines) == len(loop.attempts)
    lines = str(first).splitlines()
    assert all(line.isprintable() for line in lines)


def test_the_words_end_with_the_smallest_changes():
    explanation = explain(scored(0.5, 0.6), Policy((MaxAttempts(2),)))
    assert [str(change) for change in explanation.would_change] == [
        "threshold of quality 0.6 instead of 0.75: passed",
        "score quality 0.75 instead of 0.6: passed",
        "attempts.limit 3 instead of 2: again",
    ]
    assert str(explanation).splitlines()[2:] == [
        "kept: attempt 2",
        "would have changed it: threshold of quality 0.6 instead of 0.75: passed",
        "would have changed it: score quality 0.75 instead of 0.6: passed",
        "would have changed it: attempts.limit 3 instead of 2: again",
    ]


@settings(max_examples=60)
@given(support.loops(), support.policies)
def test_what_would_have_changed_it_are_the_changes_of_the_last_verdict(loop, policy):
    explanation = explain(loop, policy)
    improving = replace(loop, improves=policy.improvement)
    assert explanation.would_change == changes(improving, policy, decide(loop, policy))


def test_of_a_recorded_verdict_only_that_is_told_which_the_policy_gives():
    loop, policy = loop_of(evaluated("x")), Policy((MaxAttempts(1),))
    by_two = Done(1, False, (Stop("mine", "enough"), Stop("attempts", "1 of 1 attempts made")))
    explanation = explain(loop, policy, {1: by_two})
    assert explanation.verdict == by_two
    assert explanation.lines[-1].decided.startswith("stopped by mine: enough; attempts: 1 of 1")
    assert explanation.would_change == ()
    assert explanation.otherwise == "not known: the policy at hand is not all that stopped it"


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


def test_improvement_is_what_the_policy_says():
    policy = Policy((Plateau(1),), improvement=Improvement(0.3))
    words = list(map(str, explain(scored(0.1, 0.3), policy).would_change))
    assert "min_gain 0.2 instead of 0.3: again" in words
    assert "plateau.patience 2 instead of 1: again" in words


def test_the_text():
    loop = loop_of(
        evaluated("a", "b"), evaluated("b"), evaluated("b"), goals=(), cancelled="by ada"
    )
    assert str(explain(loop, Policy((MaxAttempts(3),)))) == (  # cancelled: nothing turns that
        "attempt 1: a; b -> again\n"
        "attempt 2: b -> again\n"
        "attempt 3: b -> stopped by cancelled: by ada; attempts: 3 of 3 attempts made\n"
        "kept: attempt 2\n"
        "would have changed it: no single threshold or score: cancelled and attempts stopped it"
    )
    assert str(explain(loop_of(evaluated("a"), evaluated()), support.NEVER)) == (
        "attempt 1: a -> again\nattempt 2 -> passed"
    )
    assert str(explain(loop_of(evaluated("a")), Policy((MaxAttempts(2),)))) == (
        "attempt 1: a -> again\nwould have changed it: attempts.limit 1 instead of 2: stopped"
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


EXPIRED = Override("attempts", "ada", until=2.0)


def test_an_override_is_told_though_it_has_expired_since():
    """It lifted the rule in time; the loop stopped later, when it no longer could."""
    x = evaluated("x")
    policy = Policy((MaxAttempts(1),))
    loop = loop_of(x, x, overrides=(replace(EXPIRED, decisions=9, used=1),), at=3.0)
    assert told(loop, policy) == [
        "again (attempts overridden by ada)",
        "stopped by attempts: 2 of 1 attempts made",
    ]


def test_an_override_that_expired_unused_is_not_told_to_have_lifted_anything():
    x = evaluated("x")
    policy = Policy((MaxAttempts(1),))
    stopped = "stopped by attempts: 1 of 1 attempts made"
    assert told(loop_of(x, overrides=(EXPIRED,), at=3.0), policy) == [stopped]
    assert explain(loop_of(x, overrides=(EXPIRED,), at=3.0), policy).would_change != ()
    lifted = (EXPIRED, Override("attempts", "bo", used=1))
    loop = loop_of(x, evaluated(), overrides=lifted, at=3.0)
    assert told(loop, policy) == ["again (attempts overridden by bo)", "passed"]


@given(support.loops(least=1, cancelled=False), support.policies, st.data())
def test_with_expiring_overrides_it_is_told_as_it_happened(loop, policy, data):
    given_ = tuple(data.draw(st.lists(support.expiring, max_size=3)))
    grown = Loop(loop.id, loop.goals, overrides=given_, echoes=loop.echoes)
    happened: list[str] = []
    for number, attempt in enumerate(loop.attempts):
        grown = replace(grown.then(attempt), at=number / 3)
        verdict = decide(grown, policy)
        grown = consume_overrides(grown, verdict)
        happened.append("again" if isinstance(verdict, Again) else "ended")
        if isinstance(verdict, Again):
            happened[-1] = ", ".join(f"{one.stop.rule} by {one.by}" for one in verdict.lifted)
        else:
            break
    said = explain(grown, policy).lines
    assert [line.decided.startswith("again") for line in said] == [w != "ended" for w in happened]
    for line, what in zip(said[:-1], happened, strict=False):
        assert line.decided == (
            f"again ({what.replace(' by ', ' overridden by ')})" if what else "again"
        )


def test_what_the_policy_at_hand_cannot_have_used_is_told_as_it_stands():
    """Under the policy of then it was used twice, under this one there was one use for it."""
    x = evaluated("x")
    loop = loop_of(x, x, overrides=(Override("attempts", "ada", decisions=2, used=2),))
    assert told(loop, Policy((MaxAttempts(2),))) == [
        "again",
        "stopped by attempts: 2 of 2 attempts made",
    ]


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
        grown = consume_overrides(grown, verdict)
        if happened[-1] is False:
            break
    assert [d.startswith("again") for d in told(grown, policy)] == happened


@given(support.loops(), support.policies)
def test_what_can_be_lifted_is_lifted_by_its_name_or_that_of_a_member(loop, policy):
    verdict = decide(loop, policy)
    if isinstance(verdict, Done) and not verdict.passed:
        stopped = [set(stop.rule.split("+")) for stop in verdict.stopped_by]
        more = tuple(Override(name, "ada") for name in set().union(*stopped) & LIFTABLE)
        after = decide(replace(loop, overrides=(*loop.overrides, *more)), policy)
        assert isinstance(after, Done) is any(not names & LIFTABLE for names in stopped)


LIMIT = Policy((MaxAttempts(2),))
OTHERWISE = {
    "stopped by two": (
        loop_of(evaluated("x"), evaluated("x"), texts="aa"),
        Policy((MaxAttempts(2), Repeat())),
        "no single threshold or score: attempts and repeat stopped it",
    ),
    "unscored": (
        loop_of(evaluated(), goals=(support.QUALITY,)),
        LIMIT,
        "no single threshold or score: unscored stopped it",
    ),
    "cancelled": (
        loop_of(evaluated("x"), cancelled="ada"),
        LIMIT,
        "no single threshold or score: cancelled stopped it",
    ),
}


@pytest.mark.parametrize(("loop", "policy", "said"), OTHERWISE.values(), ids=OTHERWISE)
def test_where_no_single_change_turns_it_that_is_said(loop, policy, said):
    explanation = explain(loop, policy)
    assert (explanation.would_change, explanation.otherwise) == ((), said)
    assert str(explanation).splitlines()[-1] == f"would have changed it: {said}"


@given(support.loops(), support.policies)
def test_a_loop_that_was_stopped_is_always_told_what_would_have_changed_that(loop, policy):
    explanation = explain(loop, policy)
    verdict = explanation.verdict
    stopped = isinstance(verdict, Done) and not verdict.passed
    assert bool(explanation.ways) or not stopped
    assert bool(explanation.otherwise) is (stopped and not explanation.would_change)
    if isinstance(verdict, Done) and verdict.passed:
        assert explanation.ways == ()


@given(support.loops(least=1, cancelled=False), support.policies, support.policies)
def test_what_was_recorded_is_told_whatever_policy_is_at_hand(loop, policy, other):
    recorded = {
        number: decide(loop.upto(number), policy) for number in range(1, len(loop.attempts) + 1)
    }
    told_by = [explain(loop, one, recorded) for one in (policy, other)]
    assert told_by[0].lines == told_by[1].lines
    assert told_by[0].verdict == told_by[1].verdict == recorded[len(loop.attempts)]
    again = [isinstance(verdict, Again) for verdict in recorded.values()]
    assert [line.decided.startswith("again") for line in told_by[1].lines] == again

"""Deciding: passing, missing scores, stop rules, overrides, and the reasons of a
verdict.
"""

import re
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, strategies as st

import heedful
from heedful.errors import OverrideRefused
from heedful.loop import decide as deciding
from heedful.loop.decide import (
    Again,
    Done,
    Policy,
    Trigger,
    check_override,
    consume_overrides,
    decide,
)
from heedful.loop.record import Candidate, Evaluation, Goal, Loop, Override, Usage
from heedful.loop.stop import (
    RULE_PRECEDENCE,
    All,
    Budget,
    Echo,
    MaxAttempts,
    Plateau,
    Repeat,
    Stop,
    StopRule,
    rule_name,
)
from tests.loop import support
from tests.loop.support import DRIFT, NEVER, QUALITY, evaluated, finding, loop_of, rules
from tests.tables import cases

X = evaluated("x")
TWICE = loop_of(X, X, texts=["same", "same"])
LIMIT = Policy((MaxAttempts(2),))


def rule_that_speaks(name: str) -> StopRule:
    """A rule of a user that always speaks."""

    def rule(loop: Loop) -> str:
        return f"{name} spoke"

    rule.__name__ = name
    return rule


# -- passing and missing scores


@cases(
    ("goal", "score", "passed"),
    {
        "at it": (QUALITY, 0.75, True),
        "750 thousandths": (QUALITY, 0.7499, True),
        "749 thousandths": (QUALITY, 0.7494, False),
        "at most, above it": (DRIFT, 0.251, False),
    },
)
def test_a_goal_is_met_at_its_threshold_in_thousandths(goal, score, passed):
    loop = loop_of(Evaluation(scores={goal.score: score}), goals=(goal,))
    assert isinstance(decide(loop, NEVER), Done) is passed


@given(support.loops(least=1), support.policies)
def test_a_loop_whose_last_candidate_passes_is_done_under_every_policy(loop, policy):
    findings = (finding("w", level="warning", severity=1.0), finding("n", level="note"))
    better = Evaluation(findings, {g.score: g.threshold for g in loop.goals})
    last = replace(loop.attempts[-1], evaluation=better)
    loop = replace(loop, attempts=(*loop.attempts[:-1], last), cancelled="by ada")
    verdict = decide(
        loop, replace(policy, rules=(*policy.rules, rule_that_speaks("anything")))
    )
    assert verdict == Done(loop.best, passed=True)


def test_a_missing_score_is_unscored_and_never_0():
    """A drift of 0 would meet its goal."""
    evaluation = evaluated("x", scores={"quality": 0.9})
    stop = Stop("unscored", figures={"scores": ["drift"]})
    verdict = decide(loop_of(evaluation, goals=(QUALITY, DRIFT)), NEVER)
    assert verdict == Done(1, False, stopped_by=(stop,))
    assert stop.detail == "no score for drift"


def test_a_policy_may_go_on_without_a_score():
    again = replace(NEVER, unscored="again")
    verdict = decide(loop_of(X, goals=(QUALITY,)), again)
    assert isinstance(verdict, Again)
    assert [reason.code for reason in verdict.reasons] == ["check", "quality"]
    assert decide(loop_of(None), again) == Again()
    assert rules(decide(loop_of(None), NEVER)) == ["unscored"]


# -- rules


def test_every_rule_that_speaks_is_recorded_in_the_order_of_precedence():
    loop = loop_of(X, X, X, X, texts=["same"] * 4, cancelled="by ada", goals=(QUALITY,))
    loop = replace(loop, extra=Usage(calls=9))
    spoken: tuple[StopRule, ...] = (Plateau(1), heedful.Fatigue(0.1), Repeat(), Echo())
    spoken += (MaxAttempts(4), Budget(calls=9), rule_that_speaks("mine"))
    names = {"cancelled", "unscored", *map(rule_name, spoken)}
    expected = [name for name in RULE_PRECEDENCE if name in names]
    for order in list(permutations(spoken))[::501]:
        assert rules(decide(loop, Policy(order))) == [*expected, "mine"]


def test_a_combination_stands_where_its_last_member_does_and_equals_keep_their_order():
    custom_rules = (rule_that_speaks("z"), rule_that_speaks("a"))
    both = All(MaxAttempts(2), Repeat())
    policy = Policy((*custom_rules, both, Echo(2), MaxAttempts(2), MaxAttempts(1)))
    verdict = decide(TWICE, policy)
    assert isinstance(verdict, Done)
    assert rules(verdict) == [
        "attempts",
        "attempts",
        "echo",
        "attempts+repeat",
        "z",
        "a",
    ]
    assert verdict.stopped_by[1].detail == "2 of 1 attempts made"


class Quota:
    """A rule without a name of its own."""

    def __call__(self, loop: Loop) -> str | None:
        return "quota used up"


def test_any_function_of_a_loop_is_a_rule():
    custom_rules = (
        rule_that_speaks("tired"),
        lambda loop: "no",
        Quota(),
        lambda loop: "",
    )
    assert rules(decide(TWICE, Policy(custom_rules))) == ["tired", "<lambda>", "Quota"]
    assert isinstance(decide(TWICE, Policy(custom_rules[3:])), Again)


# -- overrides

NOT_LIFTED: dict[str, tuple[Loop, Policy]] = {
    "cancelled": (replace(TWICE, cancelled="by bo"), NEVER),
    "budget": (replace(TWICE, extra=Usage(calls=5)), Policy((Budget(calls=5),))),
    "unscored": (replace(TWICE, goals=(QUALITY,)), NEVER),
    "mine": (TWICE, Policy((rule_that_speaks("mine"),))),
}


@pytest.mark.parametrize("name", NOT_LIFTED)
def test_an_override_cannot_lift_a_limit_that_is_no_rule_of_judgement(name):
    loop, policy = NOT_LIFTED[name]
    loop = replace(loop, overrides=(Override(name, "ada", decisions=9),))
    assert rules(decide(loop, policy)) == [name]
    with pytest.raises(OverrideRefused, match=name):
        check_override(Override(name, "ada"), decide(loop, policy), policy)


BOTH = (MaxAttempts(2), Repeat())
ADA = Override("attempts", "ada")
BO = Override("attempts", "bo")
USED = Override("attempts", "ada", decisions=2, used=2)
EXPIRED = replace(ADA, until=5.0)


def lifts(name: str, rule: StopRule) -> Any:
    """The case that an override lifts this rule alone."""
    override = Override(name, "ada")
    return pytest.param(
        Policy((rule,)), (override,), [], [(name, "ada", 0)], id=f"{name} is lifted"
    )


LIFTED_RULES = [
    lifts("attempts", MaxAttempts(1)),
    lifts("echo", Echo(1)),
    lifts("repeat", Repeat()),
    lifts("fatigue", heedful.Fatigue(0.1)),
    lifts("plateau", Plateau(1)),
]
TOGETHER = All(MaxAttempts(2), Repeat())


@pytest.mark.parametrize(
    ("policy", "overrides", "stopped", "lifted"),
    [
        *LIFTED_RULES,
        pytest.param(
            Policy(BOTH),
            (Override("repeat", "ada"), BO),
            [],
            [("attempts", "bo", 1), ("repeat", "ada", 0)],
            id="two overrides for two rules",
        ),
        pytest.param(
            LIMIT, (USED, BO), [], [("attempts", "bo", 1)], id="the next one takes over"
        ),
        pytest.param(
            LIMIT,
            (replace(ADA, until=10.0),),
            ["attempts"],
            [],
            id="at its time it has expired",
        ),
        pytest.param(
            LIMIT,
            (replace(ADA, until=10.001),),
            [],
            [("attempts", "ada", 0)],
            id="before its time",
        ),
        pytest.param(
            Policy((TOGETHER,)),
            (ADA,),
            [],
            [("attempts+repeat", "ada", 0)],
            id="a combination by its first member",
        ),
    ],
)
def test_an_override_lifts_its_own_rule_while_it_lasts(
    policy, overrides, stopped, lifted
):
    loop = replace(TWICE, overrides=overrides, at=10.0)
    verdict = decide(loop, policy)
    stopped_by = rules(verdict) if isinstance(verdict, Done) else []
    assert stopped_by == stopped
    assert [(lift.rule, lift.by, lift.override) for lift in verdict.lifted] == lifted
    assert isinstance(verdict, Done) or verdict.feedback.startswith(
        "The last answer was not"
    )
    consumed = (
        {lift.override for lift in verdict.lifted}
        if isinstance(verdict, Again)
        else set()
    )
    after = consume_overrides(loop, verdict).overrides
    for index, (before, override) in enumerate(zip(overrides, after, strict=True)):
        uses = before.used + 1 if index in consumed else before.used
        assert override.used == uses
    if not stopped and not {USED, EXPIRED} & set(overrides):
        for override in overrides:
            check_override(override, decide(TWICE, policy), policy)


@cases(
    ("override", "words"),
    {
        "a rule nobody may lift": (
            Override("budget", "a"),
            "rule 'budget' cannot be overridden; these can: attempts, echo",
        ),
        "nobody": (
            replace(ADA, by=""),
            "by is ''; it must name the actor who overrides the rule",
        ),
        "no decision": (
            replace(ADA, decisions=0),
            "decisions is 0; it must be an integer of at l",
        ),
        "for ever": (
            replace(ADA, until=float("inf")),
            "until is inf; it must lie in the future",
        ),
    },
)
def test_a_refusal_names_the_field_and_what_is_allowed(override, words):
    policy = Policy((MaxAttempts(2), All(MaxAttempts(2), Echo(1)), Budget(calls=9)))
    with pytest.raises(OverrideRefused) as caught:
        check_override(override, decide(TWICE, policy), policy, at=100.0)
    assert str(caught.value).startswith(words)


def test_a_loop_that_passed_stays_done():
    passed = loop_of(evaluated(), overrides=(replace(ADA, decisions=9),))
    assert decide(passed, LIMIT) == Done(1, passed=True)
    with pytest.raises(OverrideRefused, match="passed"):
        check_override(ADA, decide(passed, LIMIT), LIMIT)


@given(support.loops(), support.policies, support.expiring, st.floats(0, 3))
def test_a_new_override_decides_a_stopped_loop_again_and_no_other(
    loop, policy, override, at
):
    loop = replace(loop, at=at)
    verdict = decide(loop, policy)
    try:
        check_override(override, verdict, policy, at)
    except OverrideRefused as refused:
        with pytest.raises(OverrideRefused, match=re.escape(str(refused))):
            deciding.apply_override(loop, policy, verdict, override)
        return
    after, new = deciding.apply_override(loop, policy, verdict, override)
    both = replace(loop, overrides=(*loop.overrides, override))
    if isinstance(verdict, Again):
        assert after == both
        assert new == verdict
    else:
        assert new == decide(both, policy)
        assert after == consume_overrides(both, new)


# -- reasons


def test_reasons_list_errors_first_and_then_goals_as_declared():
    findings = (finding("w", level="warning"), finding("second"), finding("first"))
    evaluation = Evaluation(
        (*findings, finding("n", level="note")), {"quality": 0.5, "style": 0.9}
    )
    loop = loop_of(evaluation, goals=(DRIFT, QUALITY, Goal("style", 0.9)))
    verdict = decide(loop, replace(NEVER, unscored="again"))
    assert isinstance(verdict, Again)
    assert verdict.reasons == (
        Trigger("check", "second", "check_failed"),
        Trigger("check", "first", "check_failed"),
        Trigger("drift", "drift has no score", "drift_unscored"),
        Trigger(
            "quality", f"quality 0.5 misses {QUALITY}", "quality_threshold_not_met"
        ),
    )
    exceeded = deciding.triggers(Evaluation(scores={"drift": 0.251}), (DRIFT,))
    assert [trigger.reason for trigger in exceeded] == ["drift_threshold_exceeded"]


# -- properties


@given(support.loops(), support.policies, support.any_rule)
def test_one_more_rule_never_makes_a_loop_go_on(loop, policy, rule):
    fewer = decide(loop, policy)
    more = decide(loop, replace(policy, rules=(*policy.rules, rule)))
    if isinstance(fewer, Done):
        assert isinstance(more, Done)
        assert more.passed == fewer.passed
        assert set(fewer.stopped_by) <= set(more.stopped_by)


def test_a_candidate_is_known_by_its_digest():
    assert Candidate.of("a").digest == "ca978112ca1bbdca"  # SHA-256 of "a"
    assert Candidate.of({"b": 1, "a": 2}) == Candidate.of({"a": 2, "b": 1})
    assert Candidate.of("\ud800").digest != Candidate.of("?").digest
    within: list[object] = [{1: "a", "b": 2}]
    within.append(within)
    assert Candidate.of(within) == Candidate.of(repr(within))

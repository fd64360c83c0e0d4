"""Design, section 3, "Decide": each line a test."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import OverrideRefused
from heedful.loop.decide import (
    Again,
    Done,
    Policy,
    Trigger,
    apply_override,
    check_override,
    consume_overrides,
    decide,
    triggers,
)
from heedful.loop.record import (
    Attempt,
    Candidate,
    Evaluation,
    Goal,
    Improvement,
    Loop,
    Override,
    Usage,
)
from heedful.loop.stop import (
    PRECEDENCE,
    All,
    Budget,
    Echo,
    Fatigue,
    MaxAttempts,
    Plateau,
    Repeat,
    Stop,
    StopRule,
)
from heedful.testing import history
from tests.loop import support
from tests.loop.support import DRIFT, NEVER, QUALITY, evaluated, finding, loop_of, rules, scored


def speaks(name: str):
    """A rule of the user's that always speaks."""

    def rule(loop: Loop) -> str:
        return f"{name} spoke"

    rule.__name__ = name
    return rule


# -- passes


@pytest.mark.parametrize(
    ("goal", "score", "passed"),
    [
        (QUALITY, 0.75, True),
        (QUALITY, 0.7501, True),
        (QUALITY, 0.7494, False),
        (QUALITY, 0.7499, True),  # 750 thousandths
        (QUALITY, 0.749, False),
        (QUALITY, 0.1 + 0.2 + 0.45, True),
        (Goal("quality", 0.3), 0.1 + 0.2, True),
        (Goal("quality", 0.1 + 0.2), 0.3, True),
        (Goal("quality", 0.7), 0.7, True),
        (Goal("quality", -0.5), -0.5, True),
        (Goal("quality", 1), 1, True),
        (Goal("drift", 0.25, "at_most"), 0.25, True),
        (Goal("drift", 0.25, "at_most"), 0.251, False),
        (Goal("drift", 0.3, "at_most"), 0.1 + 0.2, True),
    ],
)
def test_exactly_at_the_threshold_a_goal_is_met_in_thousandths(goal, score, passed):
    verdict = decide(loop_of(Evaluation(scores={goal.score: score}), goals=(goal,)), NEVER)
    assert isinstance(verdict, Done) is passed


@pytest.mark.parametrize("level", ["warning", "note"])
def test_only_findings_of_level_error_keep_a_candidate_from_passing(level):
    loop = loop_of(Evaluation((finding("x", level=level, severity=1.0),)))
    assert decide(loop, NEVER) == Done(1, passed=True)
    assert isinstance(decide(loop_of(evaluated("x")), NEVER), Again)


def test_the_last_evaluation_decides_not_the_best():
    verdict = decide(loop_of(evaluated(), evaluated("a")), NEVER)
    assert isinstance(verdict, Again)


@given(support.loops(least=1), support.policies)
def test_passing_is_decided_first_under_every_policy(loop, policy):
    last = loop.attempts[-1]
    better = replace(last, evaluation=Evaluation(scores={g.score: g.threshold for g in loop.goals}))
    loop = replace(loop, attempts=(*loop.attempts[:-1], better), cancelled="by ada")
    verdict = decide(loop, replace(policy, rules=(*policy.rules, speaks("anything"))))
    assert isinstance(verdict, Done)
    assert verdict.passed
    assert verdict.stopped_by == ()
    assert verdict.lifted == ()


# -- unscored


@pytest.mark.parametrize("evaluation", [None, evaluated(), evaluated("x"), evaluated(warnings="x")])
def test_an_evaluation_without_a_needed_score_is_unscored_and_never_0(evaluation):
    met_by_0 = Goal("drift", 0.25, "at_most")
    loop = loop_of(evaluation, goals=(met_by_0,))
    verdict = decide(loop, NEVER)
    assert verdict == Done(
        None if evaluation is None else 1, False, (Stop("unscored", "no score for drift"),)
    )


def test_unscored_names_every_missing_score():
    loop = loop_of(Evaluation(scores={"quality": 0.9}), goals=(QUALITY, DRIFT, Goal("style", 1)))
    verdict = decide(loop, NEVER)
    assert isinstance(verdict, Done)
    assert verdict.stopped_by == (Stop("unscored", "no score for drift, style"),)


def test_the_policy_may_go_on_though_a_score_is_missing():
    again = replace(NEVER, unscored="again")
    loop = loop_of(evaluated("x"), goals=(QUALITY,))
    verdict = decide(loop, again)
    assert isinstance(verdict, Again)
    assert [r.code for r in verdict.reasons] == ["check", "quality"]
    assert decide(loop_of(None), again) == Again()
    assert isinstance(decide(loop_of(None), NEVER), Done)


def test_a_loop_without_attempts_goes_on():
    assert decide(Loop("new", (QUALITY,)), NEVER) == Again()


# -- rules


def test_any_rule_stops_and_all_that_speak_are_recorded_in_the_order_of_precedence():
    same = [evaluated("x")] * 4
    loop = loop_of(*same, texts=["same"] * 4, cancelled="by ada", goals=(QUALITY,))
    loop = replace(loop, extra=Usage(calls=9))
    spoken = (
        Plateau(1),
        Fatigue(0.1),
        Repeat(),
        Echo(),
        MaxAttempts(4),
        Budget(calls=9),
        speaks("mine"),
    )
    orders = list(permutations(spoken))[::501]
    for order in orders:
        verdict = decide(loop, Policy(tuple(order)))
        assert rules(verdict) == [*PRECEDENCE, "mine"]


def test_rules_of_one_kind_and_rules_of_the_user_keep_the_order_in_which_they_were_declared():
    policy = Policy((speaks("z"), MaxAttempts(2), speaks("a"), MaxAttempts(1)))
    verdict = decide(loop_of(evaluated("x"), evaluated("x")), policy)
    assert isinstance(verdict, Done)
    assert [s.detail for s in verdict.stopped_by] == [
        "2 of 2 attempts made",
        "2 of 1 attempts made",
        "z spoke",
        "a spoke",
    ]


def test_all_needs_every_member_and_stands_where_its_last_member_does():
    both = All(MaxAttempts(3), Repeat())
    policy = Policy((both,))
    x = evaluated("x")
    assert isinstance(decide(loop_of(x, x, texts=["a", "a"]), policy), Again)
    assert isinstance(decide(loop_of(x, x, x), policy), Again)
    verdict = decide(loop_of(x, x, x, texts=["a", "b", "a"]), policy)
    assert isinstance(verdict, Done)
    (stop,) = verdict.stopped_by
    assert stop == Stop("attempts+repeat", "3 of 3 attempts made and attempt 3 repeats attempt 1")
    with_echo = Policy((both, Echo(3), MaxAttempts(3)))
    verdict = decide(loop_of(x, x, x, texts=["a", "b", "a"]), with_echo)
    assert rules(verdict) == ["attempts", "echo", "attempts+repeat"]


class Quota:
    """A rule with a name and settings of its own."""

    name = "quota"

    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, loop: Loop) -> str | None:
        return "quota used up" if len(loop.attempts) > self.most else None


def test_any_function_of_a_loop_is_a_rule():
    def tired(loop: Loop) -> str | None:
        return "three is enough" if len(loop.attempts) == 3 else None

    x = evaluated("x")
    assert rules(decide(loop_of(x, x, x), Policy((tired,)))) == ["tired"]
    silent: StopRule = lambda loop: "no"  # noqa: E731
    assert rules(decide(loop_of(x, x, x), Policy((silent,)))) == ["<lambda>"]
    assert rules(decide(loop_of(x, x), Policy((Quota(1),)))) == ["quota"]
    assert isinstance(decide(loop_of(x), Policy((Quota(1),))), Again)


def test_a_rule_that_says_an_empty_word_is_silent():
    assert isinstance(decide(loop_of(evaluated("x")), Policy((lambda loop: "",))), Again)


# -- overrides

FIVE: dict[str, StopRule] = {
    "attempts": MaxAttempts(1),
    "echo": Echo(1),
    "repeat": Repeat(),
    "fatigue": Fatigue(0.1),
    "plateau": Plateau(1),
}
SAME = loop_of(evaluated("x"), evaluated("x"), texts=["same", "same"])


@pytest.mark.parametrize("name", FIVE)
def test_each_of_the_five_can_be_lifted(name):
    policy = Policy((FIVE[name],))
    assert rules(decide(SAME, policy)) == [name]
    verdict = decide(replace(SAME, overrides=(Override(name, "ada"),)), policy)
    assert isinstance(verdict, Again)
    assert [(one.stop.rule, one.by, one.override) for one in verdict.lifted] == [(name, "ada", 0)]
    assert verdict.feedback.startswith("The last answer was not accepted:")
    check_override(Override(name, "ada"), decide(SAME, policy), policy)


NOT_LIFTED: dict[str, tuple[Loop, Policy]] = {
    "cancelled": (replace(SAME, cancelled="by bo"), NEVER),
    "budget": (replace(SAME, extra=Usage(calls=5)), Policy((Budget(calls=5),))),
    "unscored": (replace(SAME, goals=(QUALITY,)), NEVER),
    "mine": (SAME, Policy((speaks("mine"),))),
}


@pytest.mark.parametrize("name", NOT_LIFTED)
def test_nothing_else_can_be_lifted(name):
    loop, policy = NOT_LIFTED[name]
    loop = replace(loop, overrides=(Override(name, "ada", decisions=9),))
    assert rules(decide(loop, policy)) == [name]
    with pytest.raises(OverrideRefused, match=name):
        check_override(Override(name, "ada"), decide(loop, policy), policy)


def test_an_override_lifts_only_its_own_rule():
    policy = Policy((MaxAttempts(2), Repeat()))
    verdict = decide(replace(SAME, overrides=(Override("repeat", "ada"),)), policy)
    assert rules(verdict) == ["attempts"]
    assert [one.stop.rule for one in verdict.lifted] == ["repeat"]
    both = (Override("repeat", "ada"), Override("attempts", "bo"))
    verdict = decide(replace(SAME, overrides=both), policy)
    assert isinstance(verdict, Again)
    assert {(one.stop.rule, one.by) for one in verdict.lifted} == {
        ("attempts", "bo"),
        ("repeat", "ada"),
    }


def test_an_override_that_is_used_up_lifts_nothing_and_the_next_one_takes_over():
    policy = Policy((MaxAttempts(1),))
    used = Override("attempts", "ada", decisions=2, used=2)
    assert rules(decide(replace(SAME, overrides=(used,)), policy)) == ["attempts"]
    verdict = decide(replace(SAME, overrides=(used, Override("attempts", "bo"))), policy)
    assert isinstance(verdict, Again)
    assert [(one.by, one.override) for one in verdict.lifted] == [("bo", 1)]


def test_an_override_of_one_member_lifts_all_of_them():
    policy = Policy((All(MaxAttempts(2), Repeat()),))
    for name in ("attempts", "repeat"):
        verdict = decide(replace(SAME, overrides=(Override(name, "ada"),)), policy)
        assert isinstance(verdict, Again)
    with pytest.raises(OverrideRefused):
        check_override(Override("attempts+repeat", "ada"), decide(SAME, policy), policy)


@pytest.mark.parametrize(
    ("override", "why"),
    [
        (Override("budget", "ada"), "budget"),
        (Override("echo", "ada"), "echo"),  # the policy does not have it
        (Override("attempts", "  "), "actor"),
        (Override("attempts", "ada", decisions=0), "decisions"),
    ],
)
def test_an_override_that_cannot_be_given_is_refused(override, why):
    policy = Policy((MaxAttempts(2), Budget(calls=9)))
    with pytest.raises(OverrideRefused, match=why):
        check_override(override, decide(SAME, policy), policy)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            Override("budget", "ada"),
            "rule 'budget' cannot be overridden; these can: attempts, echo",
        ),
        (Override("attempts", ""), "by is ''; it must name the actor: say who lifts the rule"),
        (Override("attempts", "ada", decisions=0), "decisions is 0; it must be an integer of at l"),
        (Override("attempts", "ada", until=99.0), "until is 99, 1 seconds before now; it must lie"),
        (Override("attempts", "ada", until=100.0), "until is 100, 0 seconds before now; it must"),
        (Override("attempts", "ada", until=float("inf")), "until is inf; it must be in seconds si"),
        (Override("attempts", "ada", until=10**13), "until is 10000000000000; it must be in secon"),
        (Override("attempts", "ada", decisions=2**70), "decisions is 1180591620717411303424; it m"),
        (Override("attempts", "ada", why=5), "why is 5; it must be text"),  # type: ignore[arg-type]
    ],
)
def test_a_refusal_names_the_field_and_what_is_allowed(override, said):
    policy = Policy((MaxAttempts(2), All(Echo(1), Budget(calls=9)), Budget(calls=9)))
    with pytest.raises(OverrideRefused) as caught:
        check_override(override, decide(SAME, policy), policy, at=100.0)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("override", "at", "lifts"),
    [
        (Override("attempts", "ada"), 1e12, True),
        (Override("attempts", "ada", until=10.0), 9.999, True),
        (Override("attempts", "ada", until=10.0), 10.0, False),  # at its time it has expired
        (Override("attempts", "ada", until=10.0), 11.0, False),
        (Override("attempts", "ada", until=float("inf")), 1e12, True),
        (Override("attempts", "ada", decisions=2, used=1, until=10.0), 9.0, True),
        (Override("attempts", "ada", used=1, until=10.0), 9.0, False),
    ],
)
def test_an_override_lifts_until_it_expires(override, at, lifts):
    policy = Policy((MaxAttempts(2),))
    assert override.lifts(at) is lifts
    verdict = decide(replace(SAME, overrides=(override,), at=at), policy)
    assert isinstance(verdict, Again) is lifts
    if not lifts:
        assert verdict == Done(1, False, (Stop("attempts", "2 of 2 attempts made"),))


def test_one_that_has_expired_leaves_the_rule_to_the_next():
    overrides = (Override("attempts", "ada", until=5.0), Override("attempts", "bo", until=15.0))
    loop = replace(SAME, overrides=overrides, at=10.0)
    verdict = decide(loop, Policy((MaxAttempts(2),)))
    assert isinstance(verdict, Again)
    assert [(one.by, one.override) for one in verdict.lifted] == [("bo", 1)]
    assert [o.used for o in consume_overrides(loop, verdict).overrides] == [0, 1]


@given(support.loops(), support.policies, st.lists(support.expiring, max_size=3), st.floats(0, 3))
def test_no_expired_override_ever_lifts(loop, policy, overrides, at):
    loop = replace(loop, overrides=tuple(overrides), at=at)
    verdict = decide(loop, policy)
    for one in verdict.lifted:
        used = loop.overrides[one.override]
        assert used.until is None or at < used.until
        assert (used.by, used.rule in one.stop.rule.split("+")) == (one.by, True)
    living = tuple(o for o in overrides if o.until is None or at < o.until)
    fewer = decide(replace(loop, overrides=living), policy)
    assert [one.stop for one in fewer.lifted] == [one.stop for one in verdict.lifted]
    assert replace(fewer, lifted=()) == replace(verdict, lifted=())


@given(support.loops(), support.policies, support.expiring, st.floats(0, 3))
def test_an_override_that_is_given_decides_a_stopped_loop_anew_and_no_other(
    loop, policy, override, at
):
    loop = replace(loop, at=at)
    verdict = decide(loop, policy)
    try:
        check_override(override, verdict, policy, at)
    except OverrideRefused as refused:
        with pytest.raises(OverrideRefused, match=re.escape(str(refused))):
            apply_override(loop, policy, verdict, override)
        return
    after, new = apply_override(loop, policy, verdict, override)
    assert [replace(o, used=0) for o in after.overrides] == [*loop.overrides, override]
    if isinstance(verdict, Again):
        assert new is verdict
        assert after.overrides == (*loop.overrides, override)
    else:
        both = replace(loop, overrides=(*loop.overrides, override))
        assert new == decide(both, policy)
        assert after == consume_overrides(both, new)


def test_a_loop_that_passed_stays_done():
    policy = Policy((MaxAttempts(1),))
    passed = loop_of(evaluated(), overrides=(Override("attempts", "ada", decisions=9),))
    assert decide(passed, policy) == Done(1, passed=True)
    with pytest.raises(OverrideRefused, match="passed"):
        check_override(Override("attempts", "ada"), decide(passed, policy), policy)


# -- best


@pytest.mark.parametrize(
    ("evaluations", "best"),
    [
        ([evaluated("a", "b"), evaluated("a"), evaluated("a", "b")], 2),
        ([evaluated("a"), evaluated("b")], 1),
        ([None, evaluated("a", "b", "c")], 2),
        ([None, None], None),
        ([evaluated("a", warnings="wxyz"), evaluated("a", "b")], 1),
    ],
)
def test_best_is_the_one_with_the_fewest_errors_then_the_earlier(evaluations, best):
    assert loop_of(*evaluations).best == best


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([(0.7, 0.5), (0.7, 0.2)], 2),  # more goals met
        ([(0.8, 0.9), (0.74, 0.26)], 1),  # one met beats none met by little
        ([(0.70, 0.9), (0.60, 0.3)], 2),  # worst margins −0.65 and −0.15
        ([(0.745, 0.5), (0.744, 0.5)], 1),  # equal worst margin: the earlier
        ([(0.5, 0.26), (0.6, 0.26)], 2),
        ([(0.5, 0.3), (0.5004, 0.3)], 1),  # the same thousandth
    ],
)
def test_then_most_goals_met_then_the_largest_worst_margin_then_the_earlier(scores, best):
    made = [Evaluation(scores={"quality": q, "drift": d}) for q, d in scores]
    assert loop_of(*made, goals=(QUALITY, DRIFT)).best == best


def test_fewer_errors_come_before_goals():
    loop = loop_of(
        evaluated("a", scores={"quality": 1.0}),
        evaluated(scores={"quality": 0.1}),
        goals=(QUALITY,),
    )
    assert loop.best == 2


def test_an_unscored_goal_counts_as_missed_by_more_than_any_score():
    worst = {"quality": -1e12, "drift": 0.5}
    loop = loop_of(
        Evaluation(scores={"drift": 0.5}), Evaluation(scores=worst), goals=(QUALITY, DRIFT)
    )
    assert loop.best == 2


@given(support.loops(), support.policies)
def test_done_always_names_the_best_and_never_an_attempt_without_evaluation(loop, policy):
    verdict = decide(loop, policy)
    ranked = [n for n, a in enumerate(loop.attempts, 1) if a.evaluation is not None]
    assert loop.best in ranked if ranked else loop.best is None
    if isinstance(verdict, Done):
        assert verdict.best == loop.best
    if ranked:
        fewest = min(len(loop.attempts[n - 1].evaluation.errors) for n in ranked)
        assert loop.best is not None
        assert len(loop.attempts[loop.best - 1].evaluation.errors) == fewest


# -- improvement


@pytest.mark.parametrize(
    ("before", "after", "improved"),
    [
        ((0.50, 0.50), (0.55, 0.50), True),
        ((0.50, 0.50), (0.549, 0.50), False),
        ((0.50, 0.50), (0.5496, 0.50), True),  # 550 thousandths
        ((0.50, 0.50), (0.60, 0.55), True),  # drift loses exactly min_gain
        ((0.50, 0.50), (0.60, 0.551), False),
        ((0.50, 0.50), (0.50, 0.45), True),  # at_most: lower is the gain
        ((0.50, 0.50), (0.50, 0.50), False),
        ((0.70, 0.50), (0.1 + 0.65, 0.50), True),
    ],
)
def test_as_many_errors_and_a_goal_gains_while_none_loses_more(before, after, improved):
    goals = (QUALITY, DRIFT)
    made = [evaluated("x", scores={"quality": q, "drift": d}) for q, d in (before, after)]
    assert loop_of(*made, goals=goals).improved == (True, improved)


@pytest.mark.parametrize(
    ("errors", "improved"),
    [
        (["ab", "a"], (True, True)),
        (["ab", "c"], (True, True)),
        (["a", "b"], (True, False)),
        (["a", "ab"], (True, False)),
        (["abc", "ab", "abc", "ab", "a"], (True, True, False, False, True)),
    ],
)
def test_without_goals_fewer_errors_improve_against_the_best_so_far(errors, improved):
    assert history(*errors).improved == improved
    assert history(*map(list, errors)).improved == improved


def test_improvement_is_against_the_best_not_the_attempt_before():
    assert scored(0.5, 0.3, 0.4).improved == (True, False, False)
    assert scored(0.5, 0.54, 0.58).improved == (True, False, False)  # the best moved to 0.54
    assert scored(0.5, 0.54, 0.60).improved == (True, False, True)


def test_more_errors_never_improve_whatever_the_scores():
    loop = loop_of(
        evaluated("a", scores={"quality": 0.1}),
        evaluated("a", "b", scores={"quality": 0.7}),
        evaluated(scores={"quality": 0.0}),
        goals=(QUALITY,),
    )
    assert loop.improved == (True, False, True)


def test_an_attempt_without_evaluation_is_no_improvement_and_no_yardstick():
    assert loop_of(None, evaluated("a"), None, evaluated("a")).improved == (
        False,
        True,
        False,
        False,
    )


def test_a_missing_score_neither_gains_nor_loses():
    loop = loop_of(
        Evaluation(scores={"quality": 0.1}),
        Evaluation(scores={"drift": 0.5}),
        Evaluation(scores={"quality": 0.2, "drift": 0.9}),
        goals=(QUALITY, DRIFT),
    )
    assert loop.improved == (True, False, True)


PREVIOUS = Improvement(against="previous")


@pytest.mark.parametrize(
    ("before", "after", "improved"),
    [
        ((0.50, 0.50), (0.55, 0.50), True),
        ((0.50, 0.50), (0.549, 0.50), False),
        ((0.50, 0.50), (0.5496, 0.50), True),  # 550 thousandths
        ((0.50, 0.50), (0.50, 0.45), True),
        ((0.50, 0.50), (0.50, 0.451), False),
        ((0.50, 0.50), (0.55, 1.00), True),  # whatever the other one loses
        ((0.50, 0.50), (0.00, 0.45), True),
        ((0.50, 0.50), (0.54, 0.46), False),  # a little of each is not enough
        ((0.50, 0.50), (0.50, 0.50), False),
        ((0.50, 0.50), (0.1, 0.9), False),
        ((None, 0.50), (0.05, 0.50), True),  # a missing alignment counts as 0.0
        ((None, 0.50), (0.049, 0.50), False),
        ((0.50, None), (0.50, 0.95), True),  # a missing drift counts as 1.0
        ((0.50, None), (0.50, 0.951), False),
        ((None, None), (0.0, 1.0), False),
        ((0.50, 0.50), (None, 0.45), True),
        ((0.50, 0.50), (None, 0.50), False),  # what is missing now gains nothing
        ((0.50, 0.50), (0.50, None), False),
        ((None, None), (None, None), False),
    ],
)
def test_against_the_previous_any_goal_that_gains_is_enough(before, after, improved):
    def scores(alignment: float | None, drift: float | None) -> Evaluation:
        given_ = {"alignment": alignment, "drift": drift}
        return Evaluation(scores={k: v for k, v in given_.items() if v is not None})

    goals = (Goal("alignment", 0.75), DRIFT)
    loop = loop_of(scores(*before), scores(*after), goals=goals, improves=PREVIOUS)
    assert loop.improved == (True, improved)


@pytest.mark.parametrize(
    ("scores", "best", "previous"),
    [
        ((0.5, 0.3, 0.4), (True, False, False), (True, False, True)),
        ((0.5, 0.54, 0.58), (True, False, False), (True, False, False)),
        ((0.5, 0.54, 0.6), (True, False, True), (True, False, True)),
        ((0.5, 0.6, 0.5, 0.55), (True, True, False, False), (True, True, False, True)),
    ],
)
def test_against_the_best_or_the_attempt_before(scores, best, previous):
    assert scored(*scores).improved == best
    assert replace(scored(*scores), improves=PREVIOUS).improved == previous


def test_the_previous_attempt_is_the_last_that_was_evaluated():
    made = [Evaluation(scores={"quality": q}) if q else None for q in (0.5, 0, 0.54, 0.59)]
    loop = loop_of(*made, goals=(QUALITY,), improves=PREVIOUS)
    assert loop.improved == (True, False, False, True)


@pytest.mark.parametrize(
    ("errors", "improved"),
    [
        (["ab", "a"], (True, True)),
        (["ab", "cd"], (True, False)),
        (["a", "abc", "ab"], (True, False, True)),  # better than the one before, not than the best
        (["a", "ab"], (True, False)),
    ],
)
def test_without_goals_fewer_errors_than_the_previous_improve(errors, improved):
    assert replace(history(*errors), improves=PREVIOUS).improved == improved


def test_with_goals_errors_do_not_count_against_the_previous():
    loop = loop_of(
        evaluated("a", scores={"quality": 0.5}),
        evaluated(scores={"quality": 0.5}),
        evaluated("a", "b", scores={"quality": 0.55}),
        goals=(QUALITY,),
        improves=PREVIOUS,
    )
    assert loop.improved == (True, False, True)


@given(support.loops(), support.improvements, st.integers(0, 6))
def test_what_improved_does_not_depend_on_what_follows(loop, improvement, end):
    loop = replace(loop, improves=improvement)
    prefix = replace(loop, attempts=loop.attempts[:end])
    assert loop.improved[:end] == prefix.improved == loop.upto(end).improved
    assert loop.upto(end) == prefix
    assert loop.upto(end).best == prefix.best


def test_min_gain_is_one_named_value_of_the_policy():
    rule = Policy((Plateau(1),), improvement=Improvement(0.2))
    assert rules(decide(scored(0.1, 0.29), rule)) == ["plateau"]
    assert isinstance(decide(scored(0.1, 0.3), rule), Again)
    assert isinstance(decide(scored(0.1, 0.29), replace(rule, improvement=Improvement())), Again)


def test_what_improves_may_be_the_users_own_function():
    def always(best: Evaluation, new: Evaluation, goals: tuple[Goal, ...]) -> bool:
        return True

    same = scored(0.1, 0.1, 0.1)
    assert isinstance(decide(same, Policy((Plateau(1),), improvement=always)), Again)
    assert rules(decide(same, Policy((Plateau(1),)))) == ["plateau"]


# -- triggers


def test_triggers_list_errors_first_then_goals_as_declared():
    loop = loop_of(
        Evaluation(
            (
                finding("w", level="warning"),
                finding("second"),
                finding("first"),
                finding("n", level="note"),
            ),
            {"quality": 0.5, "style": 0.9},
        ),
        goals=(DRIFT, QUALITY, Goal("style", 0.9)),
    )
    verdict = decide(loop, replace(NEVER, unscored="again"))
    assert isinstance(verdict, Again)
    assert verdict.reasons == (
        Trigger("check", "second", "check_failed"),
        Trigger("check", "first", "check_failed"),
        Trigger("drift", "drift has no score", "drift_unscored"),
        Trigger("quality", "quality 0.5 misses quality >= 0.75", "quality_threshold_not_met"),
    )


@pytest.mark.parametrize(
    ("goal", "score", "reason"),
    [
        (Goal("alignment", 0.75), 0.749, "alignment_threshold_not_met"),
        (Goal("drift", 0.25, "at_most"), 0.251, "drift_threshold_exceeded"),
        (Goal("alignment", 0.75), None, "alignment_unscored"),
        (Goal("drift", 0.25, "at_most"), None, "drift_unscored"),
        (Goal("alignment", 0.75), 0.75, None),
        (Goal("drift", 0.25, "at_most"), 0.25, None),
    ],
)
def test_the_code_of_a_reason_says_which_goal_and_how(goal, score, reason):
    scores = {} if score is None else {goal.score: score}
    found = triggers(Evaluation(scores=scores), (goal,))
    assert [trigger.reason for trigger in found] == ([reason] if reason else [])


@given(support.evaluations, support.goals)
def test_every_code_is_made_of_the_name_of_its_source(evaluation, goals):
    kinds = ("_failed", "_threshold_not_met", "_threshold_exceeded", "_unscored")
    for trigger in triggers(evaluation, goals):
        assert trigger.reason.removeprefix(trigger.code) in kinds


@given(support.loops(least=1), support.policies)
def test_again_after_an_evaluation_has_a_reason_and_feedback(loop, policy):
    verdict = decide(loop, policy)
    if isinstance(verdict, Again) and loop.attempts[-1].evaluation is not None:
        assert verdict.reasons
        if any(f.level == "error" for f in loop.attempts[-1].evaluation.findings):
            assert verdict.feedback


# -- properties


@given(support.loops(), support.policies)
def test_the_same_loop_and_policy_give_the_same_verdict(loop, policy):
    first = decide(loop, policy)
    assert decide(loop, policy) == first
    copy = replace(loop, attempts=tuple(replace(a) for a in loop.attempts))
    assert decide(copy, policy) == first


@given(support.loops(), support.policies, support.any_rule)
def test_one_more_rule_never_makes_a_loop_go_on(loop, policy, rule):
    fewer = decide(loop, policy)
    more = decide(loop, replace(policy, rules=(*policy.rules, rule)))
    if isinstance(fewer, Done):
        assert isinstance(more, Done)
        assert more.passed == fewer.passed
        assert set(fewer.stopped_by) <= set(more.stopped_by)


@given(support.loops(), support.policies, support.overrides)
def test_one_more_override_never_stops_a_loop(loop, policy, override):
    before = decide(loop, policy)
    after = decide(replace(loop, overrides=(*loop.overrides, override)), policy)
    if isinstance(before, Again):
        assert isinstance(after, Again)
    elif before.passed or {s.rule for s in before.stopped_by} & {"cancelled", "budget", "unscored"}:
        assert isinstance(after, Done)


@given(support.loops(), support.policies)
def test_cancelling_ends_every_loop(loop, policy):
    verdict = decide(replace(loop, cancelled="ada"), policy)
    assert isinstance(verdict, Done)
    assert verdict.passed or verdict.stopped_by[0].rule == "cancelled"


@given(support.loops(), support.policies)
def test_what_stopped_is_in_the_order_of_precedence_and_every_word_is_kept(loop, policy):
    verdict = decide(loop, policy)
    if isinstance(verdict, Done) and not verdict.passed:
        assert verdict.stopped_by
        places = [
            max(map(PRECEDENCE.index, set(stop.rule.split("+")) & set(PRECEDENCE)), default=99)
            for stop in verdict.stopped_by
        ]
        assert places == sorted(places)
        improving = replace(loop, improves=policy.improvement)
        said = [detail for rule in policy.rules if (detail := rule(improving))]
        known = [s.detail for s in verdict.stopped_by]
        known += [one.stop.detail for one in verdict.lifted]
        assert set(said) <= set(known)


@given(support.loops(least=1), st.integers(0, 6))
def test_what_is_decided_about_a_beginning_does_not_depend_on_what_follows(loop, end):
    policy = Policy((MaxAttempts(3), Fatigue(), Echo(), Repeat(), Plateau()))
    prefix = replace(loop, attempts=loop.attempts[:end])
    grown = prefix
    for attempt in loop.attempts[end:]:
        grown = grown.then(attempt)
    assert grown == loop
    assert decide(grown, policy) == decide(loop, policy)
    assert loop.improved[:end] == prefix.improved


def test_a_candidate_is_known_by_its_digest():
    assert Candidate.of("a").digest == "ca978112ca1bbdca"  # SHA-256 of "a"
    assert Candidate.of({"b": 1, "a": 2}) == Candidate.of({"a": 2, "b": 1})
    assert Candidate.of("\ud800").digest != Candidate.of("?").digest
    within: list[object] = [{1: "a", "b": 2}]
    within.append(within)
    assert Candidate.of(within) == Candidate.of(repr(within))
    assert Attempt(1, Candidate("x")).candidate.text is None

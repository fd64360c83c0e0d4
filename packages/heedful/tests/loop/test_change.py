"""The smallest change is one number that turns the verdict; one step less does not."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings, strategies as st

from heedful.loop.decide import Again, Done, Policy, Verdict, decide, state_after
from heedful.loop.explain import Change, changes
from heedful.loop.record import Evaluation, Goal, Loop, Override, check_goals
from heedful.loop.stop import All, Echo, Fatigue, MaxAttempts, Plateau, Repeat, StopRule
from tests.loop import support
from tests.loop.support import (
    DRIFT,
    QUALITY,
    evaluated,
    finding,
    loop_from,
    loop_of,
    scored,
)


def outcome_of(verdict: Verdict) -> str:
    return state_after(verdict).replace("open", "again")


def changes_of(loop: Loop, policy: Policy) -> tuple[Change, ...]:
    loop = replace(loop, improves=policy.improvement)
    return changes(loop, policy, decide(loop, policy))


grid = st.integers(0, 40).map(lambda n: n / 40)
judged = st.builds(
    lambda quality, drift, keys: Evaluation(
        tuple(map(finding, keys)), {"quality": quality, "drift": drift}
    ),
    grid,
    grid,
    st.sampled_from(["", "", "", "a", "ab"]),
)
goal_sets = st.sampled_from([(), (QUALITY,), (Goal("quality", 0.5), DRIFT)])
close_rules: st.SearchStrategy[StopRule] = st.one_of(
    st.builds(MaxAttempts, st.integers(1, 4)),
    st.builds(
        Fatigue, st.sampled_from([0.1, 0.15, 0.3]), decay=st.sampled_from([0, 0.05])
    ),
    st.builds(Plateau, st.integers(1, 3), floor=st.sampled_from([None, 0.4, 0.6])),
    st.builds(Echo, st.integers(1, 3)),
    st.builds(Repeat, st.integers(1, 2), st.booleans()),
)
close_policies = st.builds(
    Policy,
    st.lists(
        close_rules | st.builds(All, close_rules, close_rules), min_size=1, max_size=2
    ).map(tuple),
    support.improvements,
)


@st.composite
def close(draw: st.DrawFn) -> Loop:
    """A loop whose scores lie near its goals and each other."""
    judgements = draw(st.lists(judged, min_size=1, max_size=4))
    texts = [draw(st.sampled_from("abc")) for _ in judgements]
    return loop_from(judgements, texts=texts, goals=draw(goal_sets))


any_case = st.tuples(close(), close_policies) | st.tuples(
    support.loops(least=1, most=4), support.policies
)


@settings(max_examples=40)
@given(any_case)
def test_a_change_turns_the_verdict_and_the_smallest_comes_first(case):
    loop, policy = case
    was = outcome_of(decide(loop, policy))
    changes = changes_of(loop, policy)
    sizes = [
        abs(change.to - change.was) / max(abs(change.was), 0.001) for change in changes
    ]
    assert sizes == sorted(sizes)
    for change in changes:
        assert change.outcome == outcome_of(decide(change.loop, change.policy)) != was
        same = change.loop == replace(loop, improves=policy.improvement)
        assert (change.policy == policy) is not same  # one of the two was changed


# -- all that there is to be named, by hand; "to / was" in order

Q = Goal("q", 0.75)
q = partial(scored, goals=(Q,))
X = evaluated("x")
XY = evaluated("x", "y")
ONE = Policy((MaxAttempts(1),))
CASES = [
    pytest.param(
        q(0.5),
        MaxAttempts(1),
        (
            "threshold of q 0.5/0.75: passed, score q 0.75/0.5: passed, attempts.limit "
            "2/1: again"
        ),
        id="one score below its goal",
    ),
    pytest.param(  # an error is there as well: no score would help
        loop_of(evaluated("x", scores={"q": 0.5}), goals=(Q,)),
        MaxAttempts(1),
        "attempts.limit 2/1: again",
        id="an error beside the score",
    ),
    pytest.param(
        q(0.8),
        MaxAttempts(1),
        "score q 0.749/0.8: stopped, threshold of q 0.801/0.75: stopped",
        id="the score meets its goal at the last attempt",
    ),
    pytest.param(
        loop_of(XY, XY, X, X),
        Fatigue(0.25),
        (
            "fatigue.limit 0.251/0.25: again, fatigue.increment 0.149/0.15: again, "
            "fatigue.decay 0.051/0.05: again"
        ),
        id="fatigue",
    ),
    pytest.param(
        loop_of(X, X, texts="aa"), Repeat(), "repeat.times 2/1: again", id="a repeat"
    ),
    pytest.param(
        loop_of(Evaluation((finding("x", severity=0.2),))),
        Plateau(floor=0.3),
        "plateau.floor 0.2/0.3: again",
        id="the floor of severity",
    ),
    pytest.param(
        q(0.3, 0.34),
        Plateau(1),
        (
            "score q 0.35/0.34: again, min_gain 0.04/0.05: again, threshold of q "
            "0.34/0.75: "
            "passed, plateau.patience 2/1: again"
        ),
        id="a small gain",
    ),
    pytest.param(  # a member that falls silent silences the combination
        loop_of(X, X, texts="aa"),
        All(MaxAttempts(2), Repeat(1)),
        (
            "attempts+repeat: attempts.limit 3/2: again, attempts+repeat: repeat.times "
            "2/1: again"
        ),
        id="a combination",
    ),
    pytest.param(  # a share that is written as a whole number moves by thousandths
        loop_of(X, X),
        Fatigue(1),
        "fatigue.limit 0.15/1: stopped, fatigue.increment 1/0.15: stopped",
        id="a share written as 1",
    ),
]


def is_in_a_case(setting: str) -> bool:
    """Return whether a case above has this setting: one that is new has none yet."""
    return any(f"{setting} " in str(case.values[2]) for case in CASES)


@pytest.mark.parametrize(("loop", "rule", "words"), CASES)
def test_each_single_change_is_named_the_smallest_first(loop, rule, words):
    changes = [
        str(change).replace(" instead of ", "/")
        for change in changes_of(loop, Policy((rule,)))
        if "." not in change.what or is_in_a_case(change.what)
    ]
    assert ", ".join(changes) == words


@given(st.floats(-1, 1), st.floats(-1, 1), st.sampled_from(["at_least", "at_most"]))
def test_the_goal_is_met_at_what_is_named(threshold, score, direction):
    goal = Goal("q", threshold, direction)
    loop = loop_of(Evaluation(scores={"q": score}), goals=(goal,))
    passing = [
        change
        for change in changes_of(loop, ONE)
        if change.what == "score q" and change.outcome == "passed"
    ]
    assert bool(passing) is not goal.met(score)
    assert len(passing) <= 1
    for change in passing:
        assert goal.met(change.to)
        assert goal.met(float(str(change).split()[2]))


def test_no_change_makes_the_goals_contradict_each_other():
    exactly = (Goal("q", 0.5), Goal("q", 0.5, "at_most"))
    loop = loop_of(Evaluation(scores={"q": 0.5}), goals=exactly)
    for change in changes_of(loop, ONE):
        check_goals(change.loop.goals)
    assert {change.what for change in changes_of(loop, ONE)} == {"score q"}


# -- the verdict that was recorded


def mine(loop: Loop) -> str:
    return "enough"


def test_nothing_is_named_where_the_policy_does_not_give_the_recorded_verdict():
    loop = scored(0.5)
    both = decide(
        loop, Policy((mine, MaxAttempts(1)))
    )  # mine is not at hand and would stop it
    for verdict in (Again(), Done(1, passed=True), both):
        assert changes(loop, ONE, verdict) == ()
    assert changes(loop, ONE, decide(loop, ONE)) != ()
    used = loop_of(X, overrides=(Override("attempts", "ada", used=1),))
    assert changes(used, ONE, Again()) == ()
    waiting = loop_of(X, overrides=(Override("attempts", "ada"),))
    assert changes(waiting, ONE, decide(waiting, ONE)) == ()

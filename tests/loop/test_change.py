"""The smallest change: it turns the verdict, it is one number, and one step less does not do it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heedful
from heedful.errors import InvalidInput
from heedful.loop import codec
from heedful.loop.decide import Again, Done, Policy, Verdict, decide
from heedful.loop.explain import Change, changes
from heedful.loop.record import Evaluation, Goal, Loop, Override, Usage, check_goals
from heedful.loop.stop import All, Budget, Echo, Fatigue, MaxAttempts, Plateau, Repeat, StopRule
from tests.loop import support
from tests.loop.support import DRIFT, NEVER, QUALITY, evaluated, finding, loop_of, scored

Path = tuple[str | int, ...]
WHOLE = ("attempts", "echo", "repeat", "tokens", "calls", "patience")

# What is compared lies on a grid of 25 thousandths, so a verdict turns on it or just beside it.
STEPS = (*range(1, 8), *(25 * n + beside for n in range(1, 8) for beside in (-1, 0, 1)))


def kind(verdict: Verdict) -> str:
    if isinstance(verdict, Again):
        return "again"
    return "passed" if verdict.passed else "stopped"


def named(loop: Loop, policy: Policy) -> tuple[Change, ...]:
    loop = replace(loop, improves=policy.improvement)
    return changes(loop, policy, decide(loop, policy))


# -- a case as plain numbers, of which one is moved


def plain(loop: Loop, policy: Policy) -> dict[str, Any]:
    """All that may be moved: the settings of the policy, the goals, the last scores."""
    last = loop.attempts[-1].evaluation if loop.attempts else None
    goals = [codec.to_document(goal) for goal in loop.goals]
    scores = dict(last.scores) if last else {}
    return {"policy": codec.policy_to(policy), "goals": goals, "scores": scores}


def numbers(node: Any, path: Path = ()) -> Iterator[tuple[Path, float]]:
    if isinstance(node, dict | list):
        for key, inner in node.items() if isinstance(node, dict) else enumerate(node):
            yield from numbers(inner, (*path, key))
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield path, node


def put(node: Any, path: Path, value: float) -> Any:
    if not path:
        return value
    key, *rest = path
    inner = put(node[key], tuple(rest), value)
    if isinstance(node, dict):
        return {**node, key: inner}
    return [inner if place == key else one for place, one in enumerate(node)]


def moved(loop: Loop, policy: Policy, path: Path, value: float) -> str:
    """The kind of the verdict where the number at `path` is another. Raises InvalidInput."""
    case = put(plain(loop, policy), path, value)
    goals = tuple(codec.from_document(Goal, one) for one in case["goals"])
    check_goals(goals)
    attempts = loop.attempts
    if path[0] == "scores":
        last = attempts[-1]
        assert last.evaluation is not None
        judged = replace(last.evaluation, scores=case["scores"])
        attempts = (*attempts[:-1], replace(last, evaluation=judged))
    other = codec.policy_from(case["policy"])
    loop = replace(loop, goals=goals, attempts=attempts, improves=other.improvement)
    return kind(decide(loop, other))


def moves(loop: Loop, policy: Policy, path: Path) -> bool:
    """Whether a change may be named for the number: the last attempt has the score it is about."""
    used = {goal.score for goal in loop.goals}
    scores = plain(loop, policy)["scores"]
    if path[0] == "scores":
        return path[1] in used
    return path[0] != "goals" or loop.goals[int(path[1])].score in scores


def where(loop: Loop, policy: Policy, change: Change) -> Path:
    """The one number in which the changed case differs."""
    before = dict(numbers(plain(loop, policy)))
    after = dict(numbers(plain(change.loop, change.policy)))
    assert before.keys() == after.keys()
    (path,) = (path for path, value in before.items() if after[path] != value)
    assert (before[path], after[path]) == (change.was, change.to)
    return path


def is_whole(loop: Loop, policy: Policy, path: Path) -> bool:
    """Whether the number is a count, of which the smallest step is 1, or else a thousandth."""
    if path[0] != "policy" or path[1] == "min_gain":
        return False
    rule: Any = codec.policy_to(policy)
    for key in path[:-1]:
        rule = rule[key] if key != "policy" else rule
    return {rule["rule"], path[-1]} & set(WHOLE) != set()


def one_less(change: Change, whole: bool) -> float:
    """One step nearer to what it was."""
    sign = 1 if change.to > change.was else -1
    nearer = change.to - sign if whole else round(change.to - sign * 0.001, 3)
    return max(nearer, change.was) if sign > 0 else min(nearer, change.was)


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
    st.builds(Fatigue, st.sampled_from([0.1, 0.15, 0.3]), decay=st.sampled_from([0, 0.05])),
    st.builds(Plateau, st.integers(1, 3), floor=st.sampled_from([None, 0.4, 0.6])),
    st.builds(Echo, st.integers(1, 3)),
    st.builds(Repeat, st.integers(1, 2), st.booleans()),
)
close_policies = st.builds(
    Policy,
    st.lists(close_rules | st.builds(All, close_rules, close_rules), min_size=1, max_size=2).map(
        tuple
    ),
    support.improvements,
)


@st.composite
def close(draw: st.DrawFn) -> Loop:
    """A loop whose scores lie near its goals and each other."""
    made = draw(st.lists(judged, min_size=1, max_size=4))
    texts = [draw(st.sampled_from("abc")) for _ in made]
    return loop_of(*made, texts=texts, goals=draw(goal_sets))


any_case = st.tuples(close(), close_policies) | st.tuples(
    support.loops(least=1, most=4), support.policies
)


@settings(max_examples=40)
@given(any_case)
def test_a_change_moves_one_number_turns_the_verdict_and_one_step_less_does_not(case):
    loop, policy = case
    was, found = kind(decide(loop, policy)), named(loop, policy)
    assert [change.size for change in found] == sorted(change.size for change in found)
    for change in found:
        path = where(replace(loop, improves=policy.improvement), policy, change)
        assert change.outcome == kind(decide(change.loop, change.policy)) != was
        assert moved(loop, policy, path, change.to) == change.outcome
        nearer = one_less(change, is_whole(loop, policy, path))
        less = moved(loop, policy, path, nearer)
        assert less == was or (change.outcome == "passed" and less != "passed")


@settings(max_examples=50)
@given(close(), close_policies)
def test_no_smaller_change_of_the_same_number_is_passed_over(loop, policy):
    was = kind(decide(loop, policy))
    found = {
        (where(loop, policy, change), change.to > change.was): abs(change.to - change.was)
        for change in reversed(named(loop, policy))
    }
    for path, now in numbers(plain(loop, policy)):
        trades = path[-1] == "min_gain" and len(loop.goals) > 1  # only a window of values would do
        if trades or not moves(loop, policy, path):
            continue
        for sign in (1, -1):
            for steps in (1, 2, 3) if is_whole(loop, policy, path) else STEPS:
                step = 1 if is_whole(loop, policy, path) else 0.001
                value = round(now + sign * steps * step, 3)
                try:
                    turned = moved(loop, policy, path, value) != was
                except InvalidInput:
                    break
                if turned:
                    assert found[path, sign > 0] <= abs(value - now) + 1e-9
                    break


@pytest.mark.parametrize(
    ("was", "to", "size"),
    [
        (4, 5, 0.25),
        (0.5, 0.75, 0.5),
        (0.5, 0.25, 0.5),
        (0, 0.001, 1),
        (0.0, 1, 1000),
        (-2, -1, 0.5),
    ],
)
def test_the_size_of_a_change_is_a_share_of_what_was_there(was, to, size):
    assert Change("x", was, to, "again", Loop("x"), NEVER).size == pytest.approx(size)


# -- all that there is to be named, by hand; "to / was" in order

Q, D = Goal("q", 0.75), Goal("d", 0.25, "at_most")
q = partial(scored, goals=(Q,))
X, XY = evaluated("x"), evaluated("x", "y")
ONE = Policy((MaxAttempts(1),))
SPENT = loop_of(X, extra=Usage(calls=3, cost=0.5, seconds=2))
CASES: list[tuple[Loop, StopRule, str]] = [
    (
        q(0.5),
        MaxAttempts(1),
        "threshold of q 0.5/0.75: passed, score q 0.75/0.5: passed, attempts.limit 2/1: again",
    ),
    (  # an error is there as well: no score would help
        loop_of(evaluated("x", scores={"q": 0.5}), goals=(Q,)),
        MaxAttempts(1),
        "attempts.limit 2/1: again",
    ),
    (
        q(0.5),
        MaxAttempts(2),
        "threshold of q 0.5/0.75: passed, score q 0.75/0.5: passed, attempts.limit 1/2: stopped",
    ),
    (q(0.8), MaxAttempts(1), "score q 0.749/0.8: stopped, threshold of q 0.801/0.75: stopped"),
    (q(0.8), MaxAttempts(9), "score q 0.749/0.8: again, threshold of q 0.801/0.75: again"),
    (
        loop_of(Evaluation(scores={"d": 0.3}), goals=(D,)),
        MaxAttempts(1),
        "score d 0.25/0.3: passed, threshold of d 0.3/0.25: passed, attempts.limit 2/1: again",
    ),
    (
        loop_of(XY, XY, X, X),
        Fatigue(0.25),
        (
            "fatigue.limit 0.251/0.25: again, fatigue.increment 0.149/0.15: again, "
            "fatigue.decay 0.051/0.05: again"
        ),
    ),
    (loop_of(X, X, X), Echo(), "echo.times 4/3: again"),
    (loop_of(X, X, texts="aa"), Repeat(), "repeat.times 2/1: again"),
    (loop_of(X, X, X), Plateau(), "plateau.patience 3/2: again"),
    (
        loop_of(Evaluation((finding("x", severity=0.2),))),
        Plateau(floor=0.3),
        "plateau.floor 0.2/0.3: again",
    ),
    (
        q(0.3, 0.34),
        Plateau(1),
        (
            "score q 0.35/0.34: again, min_gain 0.04/0.05: again, "
            "threshold of q 0.34/0.75: passed, plateau.patience 2/1: again, "
            "score q 0.75/0.34: passed"
        ),
    ),
    (
        SPENT,
        Budget(calls=4, cost=0.75, seconds=5),
        "budget.calls 3/4: stopped, budget.cost 0.5/0.75: stopped, budget.seconds 2/5: stopped",
    ),
    (  # a member that falls silent silences the combination
        loop_of(X, X, texts="aa"),
        All(MaxAttempts(2), Repeat(1)),
        "attempts+repeat: attempts.limit 3/2: again, attempts+repeat: repeat.times 2/1: again",
    ),
    (
        loop_of(X, X, texts="aa"),
        All(MaxAttempts(3), All(Repeat(1), Plateau(1))),
        "attempts+repeat+plateau: attempts.limit 2/3: stopped",
    ),
    (Loop("new"), MaxAttempts(2), ""),
    (loop_of(None, goals=(Q,)), MaxAttempts(1), ""),
    (  # a share that is written as a whole number moves by thousandths
        loop_of(X, X),
        Fatigue(1),
        "fatigue.limit 0.15/1: stopped, fatigue.increment 1/0.15: stopped",
    ),
    (  # two goals for one score are one score
        loop_of(Evaluation(scores={"q": 0.7}), goals=(Goal("q", 0.4), Goal("q", 0.6, "at_most"))),
        MaxAttempts(1),
        "score q 0.6/0.7: passed, threshold of q 0.7/0.6: passed, attempts.limit 2/1: again",
    ),
    (  # the words say exactly enough
        loop_of(Evaluation(scores={"q": 1_234_500.0}), goals=(Goal("q", 1_234_567.8),)),
        MaxAttempts(1),
        (
            "threshold of q 1234500/1234567.8: passed, score q 1234567.8/1234500: passed, "
            "attempts.limit 2/1: again"
        ),
    ),
]


@pytest.mark.parametrize(("loop", "rule", "words"), CASES)
def test_each_single_change_is_named_the_smallest_first(loop, rule, words):
    said = [str(change).replace(" instead of ", "/") for change in named(loop, Policy((rule,)))]
    assert ", ".join(said) == words


@given(st.floats(-1, 1), st.floats(-1, 1), st.sampled_from(["at_least", "at_most"]))
def test_the_goal_is_met_at_what_is_named(threshold, score, direction):
    goal = Goal("q", threshold, direction)
    loop = loop_of(Evaluation(scores={"q": score}), goals=(goal,))
    passing = [c for c in named(loop, ONE) if (c.what, c.outcome) == ("score q", "passed")]
    assert len(passing) == (not goal.met(score))
    for change in passing:
        assert goal.met(change.to)
        assert goal.met(float(str(change).split()[2]))


def test_no_change_makes_the_goals_contradict_each_other():
    exactly = (Goal("q", 0.5), Goal("q", 0.5, "at_most"))
    loop = loop_of(Evaluation(scores={"q": 0.5}), goals=exactly)
    for change in named(loop, ONE):
        check_goals(change.loop.goals)
    assert {change.what for change in named(loop, ONE)} == {"score q"}


# -- the verdict that was recorded


def mine(loop: Loop) -> str:
    return "enough"


def test_nothing_is_named_where_the_policy_does_not_give_the_recorded_verdict():
    loop = scored(0.5)
    assert changes(loop, ONE, Again()) == ()
    assert changes(loop, ONE, Done(1, passed=True)) == ()
    assert changes(loop, ONE, Done(1, False, (heedful.Stop("mine", "enough"),))) == ()
    both = decide(loop, Policy((mine, MaxAttempts(1))))
    assert isinstance(both, Done)
    assert changes(loop, ONE, both) == ()  # a rule that is not at hand would still stop it
    assert changes(loop, ONE, decide(loop, ONE)) != ()
    used = loop_of(X, overrides=(Override("attempts", "ada", used=1),))
    assert changes(used, ONE, Again()) == ()
    waiting = loop_of(X, overrides=(Override("attempts", "ada"),))
    assert changes(waiting, ONE, decide(waiting, ONE)) == ()


@dataclass(frozen=True)
class Quota:
    """A rule of the user's own, with a setting that is worked out."""

    most: int
    half: float = field(init=False, default=0.5)
    name = "quota"

    def __post_init__(self) -> None:
        if self.most > 9:
            raise ValueError("nine at the most")

    def __call__(self, loop: Loop) -> str | None:
        return "used up" if len(loop.attempts) >= self.most else None


def test_a_setting_of_a_rule_of_the_user_is_named_and_may_refuse_to_be_moved():
    assert list(map(str, named(loop_of(X), Policy((Quota(1),))))) == [
        "quota.most 2 instead of 1: again"
    ]
    assert list(map(str, named(loop_of(*[X] * 9), Policy((Quota(9),))))) == []
    assert named(loop_of(X), Policy((mine,))) == ()


def test_what_counts_as_improvement_may_be_code_of_the_users():
    def never(best: Evaluation, new: Evaluation, goals: tuple[Goal, ...]) -> bool:
        return False

    policy = Policy((Plateau(1),), improvement=never)
    words = [str(change) for change in named(loop_of(evaluated("x", "y"), X), policy)]
    assert words == ["plateau.patience 2 instead of 1: again"]

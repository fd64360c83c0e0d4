"""Tuning: policies are tried as `compare` would, the cheapest that keeps enough is chosen."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful import policies
from heedful.errors import InvalidInput
from heedful.loop.decide import Policy
from heedful.loop.policies import policy
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, Goal, Improvement, Loop
from heedful.loop.replay import MOST, RecordedLoop, compare, grid, replay, tune
from heedful.loop.stop import MaxAttempts
from heedful.testing import history
from tests.loop import support

WRONG = Evaluation((Finding("check", "wrong", key="wrong"),))


def half_of(id: str) -> int:
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()[0] % 2


def named(count: int, half: int) -> list[str]:
    """So many ids of loops that all fall in that half."""
    ids = (str(number) for number in range(100 * count))
    return [id for id in ids if half_of(id) == half][:count]


def made_of(id: str, *answers: str) -> RecordedLoop:
    """A loop of these answers; only "right" passes."""
    attempts = tuple(
        Attempt(n, Candidate.of(text), Evaluation() if text == "right" else WRONG)
        for n, text in enumerate(answers, 1)
    )
    return RecordedLoop(Loop(id, (), attempts))


def both(*answers: Sequence[str], each: int = 1) -> list[RecordedLoop]:
    """The same loops in either half, `each` of them."""
    ids = [named(each * len(answers), half) for half in (0, 1)]
    return [made_of(id, *answers[n % len(answers)]) for half in ids for n, id in enumerate(half)]


RIGHT_AT = (["right"], ["a", "right"], ["a", "b", "right"])
STUCK = ["stuck"] * 4


def test_tuning_chooses_the_cheapest_policy_that_keeps_enough():
    found = tune(both(*RIGHT_AT, STUCK), policies.default)
    # 1, 2, 3 attempts, and 2 where default makes 3 before it sees that the answer is stuck
    figures = (found.chosen_on, found.reported_on, found.before)
    assert [one.attempts for one in figures] == [8, 8, 9]
    assert [one.solved for one in figures] == [3, 3, 3]
    assert (found.before.policy, found.tried) == ("default", 1 + len(list(grid())))


@pytest.mark.parametrize(
    ("keep", "chosen"),
    [
        (1.0, "stage, repeat.times=1, attempts.limit=3"),
        (0.66, "stage, attempts.limit=2"),
        (0.0, "stage, attempts.limit=1"),
    ],
)
def test_a_smaller_share_to_keep_is_cheaper(keep, chosen):
    assert tune(both(*RIGHT_AT, STUCK), policies.default, keep).policy.name == chosen


def test_a_share_is_counted_exactly():
    """0.07 × 100 is more than 7 for a float."""
    recorded = [made_of(id, *RIGHT_AT[n >= 7]) for n, id in enumerate(named(100, 0))]
    recorded += [made_of(id, "right") for id in named(2, 1)]
    assert tune(recorded, policies.default, 0.07).policy.name == "stage, attempts.limit=1"
    assert tune(recorded, policies.default, 0.071).policy.name == "default"


def test_the_policy_in_use_stays_where_no_other_is_better():
    dear = both(*RIGHT_AT, STUCK)
    assert tune(dear, policy("stage, attempts.limit=1")).policy.name.endswith("attempts.limit=3")
    best = policy("stage, repeat.times=1, attempts.limit=3")
    found = tune(dear, best)
    assert (found.policy, found.reported_on) == (best, found.before)
    found = tune(both(STUCK, ["a", "b"]), Policy((MaxAttempts(2),)))  # nothing can be solved
    assert (found.policy.name, found.before.policy) == ("as it is", "as it is")
    assert found.chosen_on.solvable == 0


def test_a_tried_policy_has_the_goals_and_improvement_of_the_one_in_use():
    goals = (Goal("quality", 0.75),)
    scores = [{"quality": 0.5}, {"quality": 0.8}]
    recorded = [RecordedLoop(history(*scores, id=id)) for half in (0, 1) for id in named(2, half)]
    before = replace(policies.default, goals=goals, unscored="again", improvement=Improvement(0.2))
    found = tune(recorded, before)
    assert (found.chosen_on.solvable, found.chosen_on.attempts) == (2, 4)
    tried = {(one.improvement, one.goals, one.unscored) for one in grid(before)}
    assert tried == {(Improvement(0.2), goals, "again")}
    own = [replace(one, loop=replace(one.loop, goals=(Goal("quality", 0.9),))) for one in recorded]
    assert tune(own, before).chosen_on.solvable == 0


@pytest.mark.parametrize("ids", [[], ["a"], ["a", "b"], named(9, 0), [*named(9, 1), *named(1, 0)]])
def test_too_few_loops_are_refused(ids):
    with pytest.raises(InvalidInput, match=f"loops is {len(ids)}; it must be more: their ids"):
        tune([made_of(id, "right") for id in ids], policies.default)


def test_a_share_out_of_range_is_refused():
    with pytest.raises(InvalidInput, match=r"keep is -0.1; it must be a number in 0..1"):
        tune(both(*RIGHT_AT), policies.default, -0.1)


def test_progress_is_reported():
    seen: list[tuple[int, int]] = []
    tune(both(*RIGHT_AT), policies.default, watch=lambda *at: seen.append(at))
    total = 3 * len(list(grid()))
    assert seen == [(done, total) for done in range(3, total + 1, 3)]


@settings(max_examples=15)
@given(st.lists(support.loops(least=1, most=5), min_size=2, max_size=4), st.floats(0, 1))
def test_nothing_tried_is_cheaper_and_keeps_enough(loops, keep):
    recorded = [
        RecordedLoop(replace(loop, id=id))
        for half in (0, 1)
        for loop, id in zip(loops, named(len(loops), half), strict=True)
    ]
    found = tune(recorded, policies.default, keep)
    on = [one for one in recorded if half_of(one.loop.id) == 0]
    assert compare(on, [found.policy]) == (found.chosen_on,)
    for tried, figures in zip(grid(policies.default), compare(on, grid()), strict=True):
        enough = figures.solved >= keep * found.chosen_on.solvable + 1e-6
        cost = sum(most(tried, one.loop) for one in on)
        assert not (enough and found.chosen_on.solvable and cost < found.chosen_on.attempts)


def most(tried: Policy, loop: Loop) -> int:
    (limit,) = [rule.limit for rule in tried.rules if isinstance(rule, MaxAttempts)]
    made = replay(loop, tried)
    return made.attempts if made.exact else limit


@given(support.improvements, st.sampled_from(["stop", "again"]))
def test_a_policy_can_be_written_as_it_is_named(improvement, unscored):
    goals = (Goal("alignment", 0.75), Goal("drift", 0.25, "at_most"))
    for given_ in ((), goals):
        base = Policy((MaxAttempts(3),), improvement, unscored, "", given_)
        for tried in grid(base):
            assert policy(tried.name) == tried


def test_the_grid_holds_each_policy_once():
    rules = [one.rules for one in grid()]
    assert len({*rules}) == len({one.name for one in grid()}) == len(rules)
    assert {limit for limit, *_ in rules} == {MaxAttempts(n) for n in range(1, MOST + 1)}
    assert max(map(len, rules)) == 3
    assert [each for each in rules if each[0] == MaxAttempts(1)] == [(MaxAttempts(1),)]
    presets = (policies.default, policies.thorough, policies.stage)
    assert {each[1:] for each in rules} >= {preset.rules[1:] for preset in presets}

"""What exposures and outcomes prove: who is counted where, and what is said of it."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from math import exp, fsum, log
from typing import Any

import pytest
from hypothesis import given, strategies as st

from heedful.lessons.holdout import POOLED_COIN_SHARE, is_pooled, is_withheld
from heedful.lessons.loop_lessons import is_proof_due
from heedful.lessons.proof import (
    BET_LOG_WEIGHTS,
    Case,
    CasesByModel,
    Cells,
    Comparison,
    CostSum,
    MeanCost,
    Proof,
    Wealth,
    find_proven,
    interval,
    mirror,
    payoffs,
    prove as prove_evidence,
    prove_cases,
    prove_trial,
    stakes,
    usefulness,
)
from tests.tables import cases

Cases = dict[Any, Counter[Case]]
# Of 40 loops, those in which a lesson is withheld and those with one coin for all
# lessons.
WITHHELD = [10, 20, 26, 33]
ALL_TOGETHER = [3, 5, 6, 13, 17, 19, 23, 25, 26, 30, 35, 38]


def count_loops(
    lesson: str,
    right: int,
    wrong: int,
    right_without: int,
    wrong_without: int,
    *,
    share: float = 0.1,
) -> Cases:
    """Loops with one lesson: so many right at once and wrong where shown, and where
    withheld.
    """
    counts = {(True, True): right, (True, False): wrong}
    counts |= {(False, True): right_without, (False, False): wrong_without}
    cells = {
        (share, *kind, not kind[1], 1 if kind[1] else 3, None): n
        for kind, n in counts.items()
        if n
    }
    return {name: Counter(cells) for name in (None, lesson) if cells}


def prove(many: Sequence[Cases]) -> Proof:
    cases: Cases = defaultdict(Counter)
    for group in many:
        for name, counts in group.items():
            cases[name] += counts
    return prove_cases(cases, 0)


def prove_one(*many: Cases) -> Comparison:
    (comparison,) = prove(many).lessons
    return comparison


# The coin


def test_the_coin_is_the_same_for_ever():
    """Resumed by a later version, a loop must not see another prompt."""
    loops = [f"loop {n}" for n in range(40)]
    assert [
        n for n, id in enumerate(loops) if is_withheld(7, id, "a lesson")
    ] == WITHHELD
    assert [n for n, id in enumerate(loops) if is_pooled(7, id)] == ALL_TOGETHER
    assert is_withheld(7, "loop ä", 3, 0.5) == is_withheld("7", "loop ä", "3", 0.5)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5, None], ids=str)
def test_the_share_is_what_was_asked_for(share):
    """Without a share: one loop in four has one coin for all of its lessons."""
    n = 20_000
    expected = share or POOLED_COIN_SHARE
    drawn = (
        is_withheld("seed", str(id), "lesson", share)
        if share
        else is_pooled("seed", str(id))
        for id in range(n)
    )
    assert abs(sum(drawn) - n * expected) < 5 * (n * expected * (1 - expected)) ** 0.5


# Who is counted


def test_the_balance_is_the_gain_of_all_loops_that_were_shown_memory():
    proof = prove(
        [count_loops("a", right=63, wrong=27, right_without=4, wrong_without=6)]
    )
    balance = proof.balance
    pooled = proof.pooled

    assert balance.right == 63
    assert balance.net.gain == pytest.approx(90 * (0.7 - 0.4))
    assert balance.net.low == 90 * pooled.uplift.low
    assert balance.net.high == 63  # no more of them can be right
    assert balance.calls_saved.gain == pytest.approx(90 * (2.2 - 1.6))
    assert balance.missing is not None
    assert balance.missing > 0


@cases(
    "counts, missing",
    {
        "there is a conclusion": ((90, 0, 0, 40), 0),
        "nothing was withheld": ((90, 10, 0, 0), None),
    },
)
def test_how_many_loops_are_missing_for_a_conclusion(counts, missing):
    assert prove([count_loops("a", *counts)]).balance.missing == missing


def test_a_table_by_hand():
    comparison = prove_one(
        count_loops("a", right=81, wrong=9, right_without=4, wrong_without=6)
    )
    assert comparison.lesson == "a"
    assert comparison.shown == 90
    assert comparison.withheld == 10
    assert comparison.uplift.shown == 0.9
    assert comparison.uplift.withheld == 0.4
    assert comparison.uplift.gain == pytest.approx(0.5)
    assert (
        comparison.recurrence.shown,
        comparison.recurrence.withheld,
    ) == pytest.approx((0.1, 0.6))
    assert comparison.recurrence.gain == pytest.approx(0.5)
    assert (comparison.calls.shown, comparison.calls.withheld) == pytest.approx(
        (1.2, 2.2)
    )
    assert comparison.calls.gain == pytest.approx(1.0)
    cells = {
        (0.1, True, 1.0): 81,
        (0.1, True, 0.0): 9,
        (0.1, False, 1.0): 4,
        (0.1, False, 0.0): 6,
    }
    assert (comparison.uplift.low, comparison.uplift.high) == interval(
        cells, 0.0125, high=0.0125
    )
    assert (comparison.recurrence.low, comparison.recurrence.high) == pytest.approx(
        (comparison.uplift.low, comparison.uplift.high)
    )
    assert comparison.calls.low < 1 < comparison.calls.high


@cases(
    "counts, conclusion",
    {
        "no loops": ((0, 0, 0, 0), None),
        "one shown that passed": ((1, 0, 0, 0), "insufficient data"),
        "one withheld that failed": ((0, 0, 0, 1), "insufficient data"),
        "ten loops": ((9, 0, 0, 1), "insufficient data"),
        "a hundred that all passed": ((90, 0, 10, 0), "insufficient data"),
        "all shown ones failed": ((0, 45, 5, 0), "hurts"),
        "all withheld ones failed": ((45, 0, 0, 5), "helps"),
        "a clear gain": ((450, 450, 10, 90), "helps"),
        "a clear loss": ((90, 810, 50, 50), "hurts"),
        "no difference in a thousand": ((450, 450, 50, 50), "insufficient data"),
        "no difference in ten thousand": (
            (4500, 4500, 500, 500),
            "no difference shown",
        ),
        "ten thousand that all passed": ((9000, 0, 1000, 0), "no difference shown"),
        "ten thousand that all failed": ((0, 9000, 0, 1000), "no difference shown"),
    },
)
def test_what_is_said(counts, conclusion):
    conclusions = [
        comparison.conclusion
        for comparison in prove([count_loops("a", *counts)]).lessons
    ]
    assert conclusions == ([conclusion] if conclusion else [])


def count_repeats(shown: int, withheld: int, *, right: int) -> dict[Case, int]:
    """Loops that were shown a lesson, and as many that were not.

    So many of a hundred made its error; of the shown ones so many were right, without
    it 30.
    """
    counts: dict[Case, int] = {}
    for is_shown, again, at_once in ((True, shown, right), (False, withheld, 30)):
        counts[0.5, is_shown, True, False, 1, None] = 10 * at_once
        counts[0.5, is_shown, False, True, 3, None] = 10 * again
        counts[0.5, is_shown, False, False, 3, None] = 10 * (100 - at_once - again)
    return counts


@cases(
    "shown, withheld, right, conclusion",
    {
        "the error came less often": (2, 30, 32, "helps"),
        "other errors in its place": (2, 30, 26, "insufficient data"),
        "the error came more often": (30, 2, 28, "hurts"),
        "in the place of other errors": (30, 2, 34, "insufficient data"),
        "nothing is clear": (28, 30, 34, "insufficient data"),
    },
)
def test_repeats_of_an_error_prove_what_first_tries_do_not(
    shown, withheld, right, conclusion
):
    counts = count_repeats(shown, withheld, right=right)
    proof = prove_cases({None: counts, "check/a": counts}, 0)
    for comparison in (proof.pooled, *proof.lessons):
        assert comparison.uplift.low < 0 < comparison.uplift.high
        assert comparison.conclusion == conclusion
        is_proven = conclusion != "insufficient data"
        assert (usefulness(comparison) != 1) == is_proven
        assert (comparison.missing == 0) == is_proven


# Many lessons


def test_among_many_lessons_more_is_asked_of_each():
    bad = count_loops("bad", right=60, wrong=120, right_without=18, wrong_without=2)
    others = [
        count_loops(f"n{n}", right=5, wrong=4, right_without=1, wrong_without=0)
        for n in range(400)
    ]
    alone = prove_one(bad)
    crowd = prove([bad, *others])
    (among,) = [
        comparison for comparison in crowd.lessons if comparison.lesson == "bad"
    ]
    assert alone.conclusion == "hurts"
    assert among.conclusion == "insufficient data"
    assert alone.uplift.high < 0 < among.uplift.high
    several = [
        count_loops(f"b{n}", right=60, wrong=120, right_without=18, wrong_without=2)
        for n in range(100)
    ]
    conclusions = [comparison.conclusion for comparison in prove(several).lessons]
    assert conclusions == ["hurts"] * 100


# The same tasks with and without


def test_pairs_compare_the_mean_results_of_the_same_tasks():
    pairs = {(1.0, 0.0): 6, (1.0, 1.0): 2, (0.0, 1.0): 2}
    trial = prove_trial("demo", {}, pending=0, pairs=pairs)
    assert trial.pairs == trial.shown == trial.withheld == 10
    assert trial.uplift.shown == 0.8
    assert trial.uplift.withheld == 0.4
    assert trial.uplift.gain == pytest.approx(0.4)
    assert trial.uplift.low < 0.4 < trial.uplift.high


# Loops with a ladder


def test_climbs_are_compared_between_loops_with_and_without_memory():
    kinds = {(True, True): 20, (True, False): 180}
    kinds |= {(False, True): 120, (False, False): 80}
    counts: dict[Case, int] = {
        (0.5, is_shown, not climbed, False, 1, climbed): n
        for (is_shown, climbed), n in kinds.items()
    }
    climbed = prove_cases({None: counts}, 0).pooled.climbs
    assert climbed is not None
    assert climbed.shown == pytest.approx(0.1)
    assert climbed.withheld == pytest.approx(0.6)
    assert climbed.gain == pytest.approx(0.5)
    assert 0 < climbed.low < 0.5 < climbed.high < 1


def price(share: float, shown: bool, loops: int, cost: float) -> CostSum:
    return CostSum(share=share, shown=shown, loops=loops, cost=cost)


@cases(
    "sums, mean",
    {
        "no loop has a cost": ([], None),
        "all loops are free": ([price(0.1, True, 4, 0.0)], None),
        "no coin": ([price(0.0, True, 4, 8.0)], MeanCost(2.0, None)),
        "with and without memory": (
            [price(0.1, True, 9, 9.0), price(0.1, False, 1, 5.0)],
            MeanCost(1.0, 5.0),
        ),
        "loops without a coin are left out": (
            [price(0.0, True, 9, 90.0), price(0.1, True, 2, 4.0)],
            MeanCost(2.0, None),
        ),
        "the share of the holdout changed": (
            [price(0.5, True, 1, 1.0), price(0.75, True, 1, 4.0)],
            MeanCost(3.0, None),
        ),
    },
)
def test_the_mean_cost_of_a_loop(sums, mean):
    evidence = CasesByModel(cases={"m": {}}, pending={}, costs={"m": sums})
    assert prove_evidence(evidence).mean_cost == mean
    assert prove_evidence(evidence, "m").mean_cost == mean
    assert prove_evidence(evidence, "other").mean_cost is None


# What always holds

small = st.integers(0, 40)
tables = st.tuples(small, small, small, small)


@given(counts=tables, share=st.sampled_from([0.1, 0.3, 0.5]))
def test_every_interval_holds_its_estimate(counts, share):
    proof = prove([count_loops("a", *counts, share=share)])
    for comparison in (*proof.lessons, proof.pooled):
        for effect, unit in (
            (comparison.uplift, 1),
            (comparison.recurrence, 1),
            (comparison.calls, 10),
        ):
            assert -unit <= effect.low <= effect.high <= unit
            assert effect.gain is None or effect.low <= effect.gain <= effect.high
        ends = {"helps": comparison.uplift.low, "hurts": comparison.uplift.high}
        useful = 1 + ends.get(comparison.conclusion, 0) / 2
        assert usefulness(comparison) == pytest.approx(useful)
        assert (comparison.conclusion == "hurts") == (comparison.uplift.high < 0)


# Only what helps or hurts, quicker


one_case = st.tuples(
    st.sampled_from([0.0, 0.1, 0.5]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 12),
    st.sampled_from([None, False, True]),
).map(lambda case: (case[0], case[1] or not case[0], *case[2:]))


@given(
    st.dictionaries(
        st.sampled_from([None, "check/a", "check/b", "error/a", "example/a"]),
        st.dictionaries(one_case, st.integers(1, 200), max_size=6),
    )
)
def test_proven_is_what_concluded_says_of_those_that_help_or_hurt(cases):
    comparisons = prove_cases(cases, 0).lessons
    assert find_proven(cases) == tuple(
        comparison
        for comparison in comparisons
        if comparison.conclusion in ("helps", "hurts")
    )


def test_looks_come_more_seldom_but_never_too_seldom():
    looks = [n for n in range(100_001) if is_proof_due(n)]
    assert looks[:4] == [20, 40, 60, 80]
    for look, after in pairwise(looks):
        assert after - look <= max(20, look // 8)
    assert sum(looks) <= 16 * 100_000 + 26 * 20


# The bets and the interval

LEVEL = 0.025
shares = st.floats(0.01, 0.99)
rates = st.floats(0, 1)
counts = st.integers(0, 400)


def table(right: int, wrong: int, right_without: int, wrong_without: int) -> Cells:
    """How often right and wrong where shown, and where withheld (10 %)."""
    cells = {(0.1, True, 1.0): right, (0.1, True, 0.0): wrong}
    return cells | {(0.1, False, 1.0): right_without, (0.1, False, 0.0): wrong_without}


cell_tables = st.builds(table, counts, counts, st.integers(0, 60), st.integers(0, 60))


def test_all_bets_together_begin_with_one():
    assert fsum(map(exp, BET_LOG_WEIGHTS)) == pytest.approx(1)
    assert Wealth.of({}).at(0.3) == pytest.approx((0, 0))


@given(share=shares, values=st.lists(rates, min_size=1, max_size=5), without=rates)
def test_every_bet_is_fair_for_outcomes_of_any_kind(share, values, without):
    """Of calls, say: nothing but their mean matters."""
    for i, stake in enumerate(stakes(share)):
        paid = [exp(payoffs(share, True, value)[i]) for value in values]
        mean = (1 - share) * fsum(paid) / len(paid) + share * exp(
            payoffs(share, False, without)[i]
        )
        assert mean == pytest.approx(
            1 + stake * (fsum(values) / len(values) - without), rel=1e-6
        )


@given(share=shares)
def test_no_stake_lets_a_possible_gain_make_a_debt(share):
    assert all(0 < stake <= 0.9 for stake in stakes(share))


levels = st.sampled_from([0.0001, 0.025, 0.2])


@given(cells=cell_tables, gain=st.floats(-1, 1), low_level=levels, high_level=levels)
def test_a_gain_is_inside_where_neither_side_refutes_it(
    cells, gain, low_level, high_level
):
    low, high = interval(cells, low_level, high_level)
    is_too_low = Wealth.of(cells).at(gain)[0] + log(low_level)
    is_too_high = Wealth.of(mirror(cells)).at(-gain)[0] + log(high_level)
    if gain > low:
        assert is_too_low <= 1e-6
    if gain < high:
        assert is_too_high <= 1e-6
    if not low - 1e-6 <= gain <= high + 1e-6:
        assert max(is_too_low, is_too_high) >= -1e-6


def test_the_end_of_each_side_has_its_own_level():
    """By e-BH more evidence for help than for harm makes the levels differ."""
    cells = table(right=450, wrong=450, right_without=10, wrong_without=90)
    wide_below = interval(cells, 0.0001, 0.2)
    wide_above = interval(cells, 0.2, 0.0001)
    assert wide_below[0] < wide_above[0]
    assert wide_below[1] < wide_above[1]

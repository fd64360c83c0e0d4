"""The bets are fair whatever the outcomes, and the interval that they give behaves."""

from __future__ import annotations

from math import comb, exp, fsum, isfinite, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.lessons.proof import (
    PRIOR,
    Cells,
    Wealth,
    coin_evidence,
    interval,
    mirror,
    payoffs,
    stakes,
)

LEVEL = 0.025
shares = st.floats(0.01, 0.99)
rates = st.floats(0, 1)
counts = st.integers(0, 400)


def table(right: int, wrong: int, right_without: int, wrong_without: int) -> Cells:
    """How often right and wrong where shown, and where withheld by a coin of 10 %."""
    shown = {(0.1, True, 1.0): right, (0.1, True, 0.0): wrong}
    return shown | {(0.1, False, 1.0): right_without, (0.1, False, 0.0): wrong_without}


tables = st.builds(table, counts, counts, st.integers(0, 60), st.integers(0, 60))


def test_all_bets_together_begin_with_one():
    assert fsum(map(exp, PRIOR)) == pytest.approx(1)
    assert Wealth.of({}).at(0.3) == pytest.approx((0, 0))


@given(share=shares, values=st.lists(rates, min_size=1, max_size=5), without=rates)
def test_every_bet_is_fair_for_outcomes_of_any_kind(share, values, without):
    """Of calls, say: nothing but their mean matters."""
    for i, stake in enumerate(stakes(share)):
        paid = [exp(payoffs(share, True, value)[i]) for value in values]
        mean = (1 - share) * fsum(paid) / len(paid) + share * exp(payoffs(share, False, without)[i])
        assert mean == pytest.approx(1 + stake * (fsum(values) / len(values) - without), rel=1e-6)


@given(share=shares)
def test_no_stake_lets_a_possible_gain_make_a_debt(share):
    assert all(0 < stake <= 0.9 for stake in stakes(share))


@given(cells=tables, gain=st.floats(-1, 1))
def test_a_gain_is_inside_where_neither_side_refutes_it(cells, gain):
    low, high = interval(cells, LEVEL, LEVEL)
    refuted = [Wealth.of(cells).at(gain)[0], Wealth.of(mirror(cells)).at(-gain)[0]]
    if low < gain < high:
        assert max(refuted) <= -log(LEVEL) + 1e-6
    elif not low - 1e-6 <= gain <= high + 1e-6:
        assert max(refuted) >= -log(LEVEL) - 1e-6


@pytest.mark.parametrize("n", [1, 10, 1_000, 100_000, 10_000_000])
@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_any_size_is_computed(n, rate):
    right, wrong = round(9 * n * rate), round(9 * n * (1 - rate))
    cells = table(right, wrong, round(n * rate), round(n * (1 - rate)))
    low, high = interval(cells, LEVEL, LEVEL)
    assert isfinite(low)
    assert isfinite(high)
    assert low <= 0 <= high
    if n >= 1_000:
        assert high - low < 0.15


def test_what_is_even_narrows_about_zero():
    widths = []
    for n in (10, 100, 1_000, 10_000):
        low, high = interval(table(45 * n, 45 * n, 5 * n, 5 * n), LEVEL, LEVEL)
        assert low == pytest.approx(-high)
        widths.append(high)
    assert widths == pytest.approx([0.189, 0.064, 0.0206, 0.0067], abs=0.002)


@given(share=shares, n=st.integers(0, 40))
def test_the_evidence_against_the_coin_is_one_on_average(share, n):
    chance = [comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1)]
    mean = fsum(p * exp(coin_evidence(share, n - k, k)) for k, p in enumerate(chance))
    assert mean == pytest.approx(1)


def test_a_wrong_coin_is_found():
    assert coin_evidence(0.1, 900, 100) < 0
    assert coin_evidence(0.1, 500, 500) > 300

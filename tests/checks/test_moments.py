from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.checks.moments import Moments, Pairs

CELLS = st.floats(-1e9, 1e9) | st.just(float("nan")) | st.just(float("inf"))


@given(st.lists(st.lists(CELLS, max_size=30), max_size=8))
def test_merged_batches_say_what_the_whole_does(batches):
    arrays = [np.array(batch, dtype=float) for batch in batches]
    merged = sum(map(Moments.of, arrays), Moments())
    whole = Moments.of(np.concatenate([np.empty(0), *arrays]))
    values = [v for batch in batches for v in batch if np.isfinite(v)]
    assert (merged.n, merged.missing, merged.infinite) == (whole.n, whole.missing, whole.infinite)
    assert (merged.low, merged.high) == (whole.low, whole.high)
    assert merged.rows == sum(map(len, batches))
    size = max(map(abs, values), default=0.0)
    if values:
        assert merged.mean == pytest.approx(np.mean(values), rel=1e-12, abs=1e-12 * size)
        assert merged.square == pytest.approx(np.mean(np.square(values)), rel=1e-9)
    if len(values) > 1:
        least = max(1e-12 * size, 1e-150)  # squares of smaller values are no floats
        assert merged.std == pytest.approx(np.std(values, ddof=1), rel=1e-9, abs=least)
        assert merged.std == pytest.approx(statistics.stdev(values), rel=1e-9, abs=least)


@given(st.integers(1, 400), st.floats(1e8, 1e12), st.integers(0, 2**31))
def test_a_large_offset_takes_no_digits_away(size, offset, seed):
    noise = np.random.default_rng(seed).integers(-1000, 1000, 400) / 1024
    values = np.round(offset) + noise
    exact = float(np.std(values - np.round(offset), ddof=1))
    parts = [values[at : at + size] for at in range(0, len(values), size)]
    merged = sum(map(Moments.of, parts), Moments())
    assert merged.std == pytest.approx(exact, rel=1e-6 * max(1.0, offset / 1e9))


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=2, max_size=60),
    st.integers(1, 20),
)
def test_merged_pairs_say_what_the_whole_does(pairs, size):
    rows = np.array(pairs)
    parts = [rows[at : at + size] for at in range(0, len(rows), size)]
    merged = sum((Pairs.of(part[:, 0], part[:, 1]) for part in parts), Pairs())
    whole = Pairs.of(rows[:, 0], rows[:, 1])
    a, p = rows.T
    assert merged.n == len(rows)
    assert merged.equal == whole.equal == int((a == p).sum())
    assert (merged.fractional, merged.copied) == (whole.fractional, whole.copied)
    assert merged.ends == whole.ends
    assert merged.ordered == whole.ordered
    assert merged.steps.n == len(rows) - 1
    assert merged.steps.square == pytest.approx(np.mean(np.diff(a) ** 2), rel=1e-9, abs=1e-9)
    assert merged.error.square == pytest.approx(np.mean((p - a) ** 2), rel=1e-9, abs=1e-9)
    if a.std() > 1e-3 and p.std() > 1e-3:
        assert merged.correlation == pytest.approx(np.corrcoef(a, p)[0, 1], abs=1e-6)


def test_nothing_adds_nothing():
    one = Pairs.of(np.array([1.0, 2.0]), np.array([2.0, 2.5]))
    assert Pairs() + one == one + Pairs() == one
    assert Moments() + Moments() == Moments.of(np.empty(0))
    assert Moments().std == Moments().square == Pairs().correlation == 0.0


def test_equal_values_have_no_spread_at_all():
    assert Moments.of(np.full(1_000, 0.1)).std == 0.0
    halves = Moments.of(np.full(7, 0.1)) + Moments.of(np.full(9, 0.1))
    assert halves.std == 0.0

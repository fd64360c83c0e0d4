"""Intervals against the values that their authors published."""

from __future__ import annotations

import pytest

from examples.demo.figures import gain, ratio
from heedful.errors import InvalidInput
from heedful.lessons.proof import Estimate, wilson_interval


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [  # Newcombe, Stat. Med. 17 (1998) 857-872, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_as_published(hits, of, low, high):
    found = wilson_interval(hits, of)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)
    mirrored = wilson_interval(of - hits, of)
    assert mirrored.low == pytest.approx(1 - found.high)
    assert mirrored.high == pytest.approx(1 - found.low)


def pairs(both: int, first: int, second: int, neither: int) -> list[tuple[bool, bool]]:
    kinds = ((True, True), (True, False), (False, True), (False, False))
    counts = (both, first, second, neither)
    return [kind for kind, n in zip(kinds, counts, strict=True) for _ in range(n)]


@pytest.mark.parametrize(
    ("table", "value", "low", "high"),
    [
        ((0, 63, 0, 0), 1.0, 0.84, 1.0),
        ((0, 25, 0, 6), 0.81, 0.48, 0.96),
        ((10, 160, 1, 9), 0.88, 0.78, 0.95),
        ((59, 6, 16, 80), -0.06, -0.17, 0.04),
        ((3, 0, 0, 1), 0.0, -0.79, 0.79),
    ],
)
def test_the_uplift_of_pairs(table, value, low, high):
    found = gain(pairs(*table))
    assert [round(end, 2) for end in (found.value, found.low, found.high)] == [value, low, high]
    both, first, second, neither = table
    other = gain(pairs(both, second, first, neither))
    assert [other.low, other.high] == pytest.approx([-found.high, -found.low])
    assert gain(pairs(neither, first, second, both)) == found  # what both can do says nothing


@pytest.mark.parametrize(("hits", "of"), [(0, 0), (3, 2), (-1, 4)])
def test_a_share_of_nothing_is_refused(hits, of):
    with pytest.raises(InvalidInput):
        wilson_interval(hits, of)


def test_ratio_is_of_sums_and_repeats():
    strata = [[(1.0, 4.0), (2.0, 2.0), (1.0, 3.0)], [(n / 7, 1.0) for n in range(20)]]
    found = ratio(strata)
    assert found.value == pytest.approx((4 + 190 / 7) / 29)
    assert found.low < found.value < found.high
    assert ratio(strata) == found
    assert ratio(strata, seed=1) != found


def test_ratio_of_equal_pairs_has_no_width():
    assert ratio([[(2.0, 4.0)] * 6, []]) == Estimate(0.5, 0.5, 0.5)


def test_ratio_to_nothing_is_refused():
    with pytest.raises(InvalidInput):
        ratio([[(1.0, 0.0)]])

"""Intervals against the values that their authors published."""

from __future__ import annotations

import pytest

from errata.cli.figures import Estimate, gain, ratio, share
from errata.errors import InvalidInput


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
    found = share(hits, of)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)
    mirrored = share(of - hits, of)
    assert mirrored.low == pytest.approx(1 - found.high)
    assert mirrored.high == pytest.approx(1 - found.low)


@pytest.mark.parametrize(
    ("table", "difference", "low", "high"),
    [
        # Newcombe, Stat. Med. 17 (1998) 2635-2650, method 10
        ((36, 12, 2, 0), 0.2, 0.0569, 0.3404),
        # Altman, Machin, Bryant, Gardner: Statistics with Confidence (2000), table 6.2
        ((14, 5, 0, 22), 0.122, 0.0115, 0.2265),
        # Fagerland, Lydersen, Laake: Statistical Analysis of Contingency Tables (2017), chapter 8
        ((59, 6, 16, 80), -0.0621, -0.1186, -0.0046),
        ((1, 1, 7, 12), -0.286, -0.5069, -0.0256),
    ],
)
def test_newcombe_paired_as_published(table, difference, low, high):
    both, first, second, neither = table
    pairs = (
        [(True, True)] * both
        + [(True, False)] * first
        + [(False, True)] * second
        + [(False, False)] * neither
    )
    found = gain(pairs)
    assert found.value == pytest.approx(difference, abs=5e-4)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)


def test_the_ends_of_a_difference_stay_possible():
    found = gain([(True, False)] * 5)
    assert found.value == 1
    assert found.high == 1
    assert not found.covers(0)
    assert gain([(True, True)] * 3).covers(0)


@pytest.mark.parametrize(("hits", "of"), [(0, 0), (3, 2), (-1, 4)])
def test_a_share_of_nothing_is_refused(hits, of):
    with pytest.raises(InvalidInput):
        share(hits, of)


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

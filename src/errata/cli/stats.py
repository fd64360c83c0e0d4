"""Figures with their 95 % intervals: shares, paired differences of shares, ratios of sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from errata.errors import InvalidInput

Z = 1.959963984540054  # the 97.5 % point of the normal distribution
RESAMPLES = 4_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured value and the two ends of its 95 % interval."""

    value: float
    low: float
    high: float

    def covers(self, value: float) -> bool:
        """Whether the interval leaves `value` possible; its ends belong to it."""
        return self.low <= value <= self.high


def share(hits: int, of: int) -> Estimate:
    """A share with Wilson's score interval.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", J. Am.
    Stat. Assoc. 22 (1927) 209-212; without continuity correction, as method 3 of R. G. Newcombe,
    "Two-sided confidence intervals for the single proportion", Stat. Med. 17 (1998) 857-872.

    >>> share(81, 263)
    Estimate(value=0.307..., low=0.255..., high=0.366...)
    """
    if not 0 <= hits <= of or of < 1:
        raise InvalidInput("share", f"{hits} of {of}", "hits of a number of at least 1")
    part, square = hits / of, Z * Z / of
    middle = (part + square / 2) / (1 + square)
    half = Z * sqrt(part * (1 - part) / of + square / (4 * of)) / (1 + square)
    low = 0.0 if hits == 0 else middle - half
    return Estimate(part, low, 1.0 if hits == of else middle + half)


def gain(pairs: Sequence[tuple[bool, bool]]) -> Estimate:
    """How much greater the share of the first is than that of the second, both of the same tasks.

    Method 10 of R. G. Newcombe, "Improved confidence intervals for the difference between binomial
    proportions based on paired data", Stat. Med. 17 (1998) 2635-2650: Wilson's intervals of the two
    shares, squared and added, less what their correlation explains.
    """
    both = sum(a and b for a, b in pairs)
    first = sum(a and not b for a, b in pairs)
    second = sum(b and not a for a, b in pairs)
    neither = len(pairs) - both - first - second
    one, two = share(both + first, len(pairs)), share(both + second, len(pairs))
    phi = _correlation(both, first, second, neither)
    difference = one.value - two.value
    down = _added(one.value - one.low, two.high - two.value, phi)
    up = _added(two.value - two.low, one.high - one.value, phi)
    return Estimate(difference, max(-1.0, difference - down), min(1.0, difference + up))


def ratio(strata: Sequence[Sequence[tuple[float, float]]], seed: int = 0) -> Estimate:
    """The sum of the first over the sum of the second, with a percentile bootstrap interval.

    Tasks are drawn anew within each stratum, as pairs. The same seed gives the same interval.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    drawn = np.zeros((RESAMPLES, 2))
    whole = np.zeros(2)
    for stratum in strata:
        pairs = np.asarray(stratum, dtype=float).reshape(-1, 2)
        if len(pairs):
            drawn += pairs[random.integers(len(pairs), size=(RESAMPLES, len(pairs)))].sum(axis=1)
            whole += pairs.sum(axis=0)
    if not whole[1]:
        raise InvalidInput("sum of the second", 0, "above 0, to be divided by")
    ratios = drawn[:, 0] / np.maximum(drawn[:, 1], 1e-9)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return Estimate(float(whole[0] / whole[1]), float(low), float(high))


def _correlation(both: int, first: int, second: int, neither: int) -> float:
    """Phi with Newcombe's continuity correction; 0 where a margin is empty."""
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    if not margins:
        return 0.0
    crossed = float(both * neither - first * second)
    if crossed > 0:
        crossed = max(crossed - (both + first + second + neither) / 2, 0.0)
    return crossed / sqrt(margins)


def _added(a: float, b: float, phi: float) -> float:
    return sqrt(max(0.0, a * a - 2 * phi * a * b + b * b))

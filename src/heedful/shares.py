"""A share that was counted, with its 95 % interval. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from heedful.errors import InvalidInput

Z = 1.959963984540054  # the 97.5 % point of the normal distribution


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

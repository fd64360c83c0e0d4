"""Running statistics of one column and of a pair of columns, merged batch by batch. Pure.

Every value here is small and of one size, however many rows it stands for; `+` puts what two parts
of a column say together (Chan, Golub, LeVeque 1979), so a sum of squares is never taken from a
large one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Floats = NDArray[float64]

LARGEST = 1e150
"""Values beyond ± this count as infinite: their squares could not be added up."""


@dataclass(frozen=True, slots=True)
class Moments:
    """The finite values of a column: `n`, `mean`, `m2` (sum of squared distances from the mean),
    `low` and `high`; and how many cells are `missing` (NaN, null) or `infinite`.

    >>> (Moments(1, 1.0, 0.0, 1.0, 1.0) + Moments(1, 3.0, 0.0, 3.0, 3.0)).std
    1.4142135623730951
    """

    n: int = 0
    mean: float = 0.0
    m2: float = 0.0
    low: float = inf
    high: float = -inf
    missing: int = 0
    infinite: int = 0

    @classmethod
    def of(cls, values: Floats) -> Moments:
        """The moments of an array; NaN stands for a missing cell."""
        import numpy as np

        missing = int(np.isnan(values).sum())
        usable = usual(values)
        n = int(usable.sum())
        finite = values if n == len(values) else values[usable]
        lost = len(values) - missing - n
        if not n:
            return cls(missing=missing, infinite=lost)
        mean = float(finite.mean())
        away = finite - mean
        # What rounding left in the mean is taken out again (the corrected two-pass formula).
        m2 = max(0.0, float((away * away).sum()) - float(away.sum()) ** 2 / n)
        return cls(n, mean, m2, float(finite.min()), float(finite.max()), missing, lost)

    def __add__(self, other: Moments) -> Moments:
        missing, infinite = self.missing + other.missing, self.infinite + other.infinite
        n = self.n + other.n
        if not self.n or not other.n:
            most = self if self.n else other
            return Moments(n, most.mean, most.m2, most.low, most.high, missing, infinite)
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.n / n)
        m2 = self.m2 + other.m2 + apart * apart * (self.n / n * other.n)
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Moments(n, mean, m2, low, high, missing, infinite)

    @property
    def rows(self) -> int:
        """All cells."""
        return self.n + self.missing + self.infinite

    @property
    def std(self) -> float:
        """The sample standard deviation (ddof = 1); 0 for equal values and for fewer than two."""
        return sqrt(self.m2 / (self.n - 1)) if self.n > 1 and self.low < self.high else 0.0

    @property
    def square(self) -> float:
        """The mean of the squared values."""
        return self.m2 / self.n + self.mean * self.mean if self.n else 0.0


def usual(values: Floats) -> NDArray[Any]:
    """Where values are neither missing nor infinite nor beyond `LARGEST`."""
    import numpy as np

    return np.abs(values) <= LARGEST


@dataclass(frozen=True, slots=True)
class Pairs:
    """The rows in which an actual and a predicted value stand: both columns, their `error`
    (predicted − actual), their co-moment `joint`, and how many predictions `equal` the actual.

    `fractional` counts actual values that are no whole numbers, `copied` those of them that the
    prediction equals. `steps` are the differences from one actual value to the next, the first and
    last of which are `ends`: what "the last value again" would be wrong by.
    """

    actual: Moments = Moments()
    predicted: Moments = Moments()
    error: Moments = Moments()
    steps: Moments = Moments()
    joint: float = 0.0
    equal: int = 0
    fractional: int = 0
    copied: int = 0
    ends: tuple[float, float] | None = None

    @classmethod
    def of(cls, actual: Floats, predicted: Floats) -> Pairs:
        """What two arrays without NaN and infinite values say, row by row."""
        import numpy as np

        if not len(actual):
            return cls()
        a, p = Moments.of(actual), Moments.of(predicted)
        equal, fractional = actual == predicted, np.floor(actual) != actual
        return cls(
            a,
            p,
            Moments.of(predicted - actual),
            Moments.of(np.diff(actual)),
            float(((actual - a.mean) * (predicted - p.mean)).sum()),
            int(equal.sum()),
            int(fractional.sum()),
            int((equal & fractional).sum()),
            (float(actual[0]), float(actual[-1])),
        )

    def __add__(self, other: Pairs) -> Pairs:
        if self.ends is None or other.ends is None:
            return other if self.ends is None else self
        a, b = self.actual, other.actual
        apart = (b.mean - a.mean) * (other.predicted.mean - self.predicted.mean)
        step = other.ends[0] - self.ends[1]
        return Pairs(
            a + b,
            self.predicted + other.predicted,
            self.error + other.error,
            self.steps + Moments(1, step, 0.0, step, step) + other.steps,
            self.joint + other.joint + apart * (a.n / (a.n + b.n) * b.n),
            self.equal + other.equal,
            self.fractional + other.fractional,
            self.copied + other.copied,
            (self.ends[0], other.ends[1]),
        )

    @property
    def n(self) -> int:
        """The rows in which both values stand."""
        return self.actual.n

    @property
    def correlation(self) -> float:
        """Pearson's r, -1..1; 0 where a column has no spread."""
        if not self.actual.std or not self.predicted.std:
            return 0.0
        product = sqrt(self.actual.m2) * sqrt(self.predicted.m2)
        return max(-1.0, min(1.0, self.joint / product)) if product else 0.0

    @property
    def ordered(self) -> bool:
        """Whether the actual values only rise or only fall: then they may have been sorted."""
        return self.steps.low >= 0 or self.steps.high <= 0

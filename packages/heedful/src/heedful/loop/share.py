"""A share with an interval that is valid however often somebody looks.

`percent`, `points` and `signed` round every share and gain that a person reads, on the
command line, on pages and in reports, so that all of them say the same.
"""

from dataclasses import dataclass
from math import copysign, lgamma, log

from heedful.validation import Document

NO_DIFFERENCE = "not proven yet"


def percent(share: float | None) -> str:
    """Return a share as a percentage, or a dash if there is none.

    >>> percent(0.875), percent(None)
    ('88 %', '–')
    """
    return "–" if share is None else f"{100 * share:.0f} %"


def points(gain: float) -> str:
    """Return a gain of a share in percentage points, with its sign.

    What would be rounded to 0 has a decimal, at least 0.1.

    >>> points(0.596), points(-0.129), points(-0.002), points(0.0)
    ('+60', '−13', '−0.2', '+0')
    """
    is_small = 0 < abs(gain) <= 0.005
    return signed(
        copysign(max(abs(100 * gain), 0.1 * is_small), gain), digits=int(is_small)
    )


def signed(value: float, digits: int = 0) -> str:
    """Return a rounded number with its sign; 0 is positive.

    >>> signed(-0.2), signed(-1.25, 1)
    ('+0', '−1.2')
    """
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def without(shown: float, withheld: float, gain: float, digits: int = 0) -> float:
    """Return a mean without a lesson as it is printed beside that with it.

    It is the rounded mean `shown` less or plus the rounded gain, so that what is
    printed can be subtracted. So it may differ from `withheld` in its last digit.

    >>> without(62.6, 10.4, 52.2), without(1.7063, 1.9835, 0.2772, digits=2)
    (11.0, 1.99)
    """
    step = round(abs(gain), digits)
    mean = round(shown, digits) + (step if withheld > shown else -step)
    return round(max(0.0, mean), digits)


def say_doubt(low: float, high: float) -> str:
    """Return that no difference is shown if the interval of a gain has 0 in it, or "".

    >>> say_doubt(-0.03, 0.93), say_doubt(0.17, 0.54)
    ('not proven yet', '')
    """
    return NO_DIFFERENCE if low <= 0.0 <= high else ""


@dataclass(frozen=True, slots=True)
class Share:
    """A share: `number` of `of`, with an interval that holds at any time.

    Somebody who looks at it again and again is not misled by the worst of the looks.
    """

    number: int
    of: int

    @property
    def value(self) -> float | None:
        """The share, from 0 to 1; None if `of` is 0."""
        return self.number / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends of the interval at level 0.05.

        All shares from 0 to 1 together, each as likely as the others, give the counts
        some probability. A share is outside of the interval if it gives them less than
        0.05 of that. For the true share this happens with probability 0.05 at most,
        however often one looks (Robbins, 1970, Statistical methods related to the law
        of the iterated logarithm).
        """
        best = self.number / self.of if self.of else 0.5
        return self._find_end(best, 0.0), self._find_end(best, 1.0)

    def _find_end(self, inside: float, outside: float) -> float:
        """Return the end of the interval between a share in it and one outside."""
        successes = self.number
        failures = self.of - self.number
        # The logarithm of the probability below which a share lies outside.
        bound = (
            lgamma(successes + 1)
            + lgamma(failures + 1)
            - lgamma(self.of + 2)
            + log(0.05)
        )

        # Each step halves the distance, so 40 steps are exact to 12 digits.
        for _ in range(40):
            share = (inside + outside) / 2
            # The logarithm of 0 does not exist; that of 1e-12 stands for it.
            likelihood = successes * log(max(share, 1e-12))
            likelihood += failures * log(max(1 - share, 1e-12))
            if likelihood >= bound:
                inside = share
            else:
                outside = share
        return outside

    @property
    def plain(self) -> Document:
        """The share as JSON data."""
        low, high = self.interval
        return {
            "number": self.number,
            "of": self.of,
            "value": self.value,
            "low": low,
            "high": high,
        }

"""A gain under a coin of known probability: its interval, valid at all times at once.

Each opportunity t gives an unbiased figure for the gain there: h = (y - m) (z - p) / (p (1 - p)),
with the outcome y in 0..1, z = 1 for shown, p the probability of that, and any fixed m. This is
the inverse-propensity figure, augmented by m, of I. Waudby-Smith, L. Wu, A. Ramdas, N.
Karampatziakis, P. Mineiro, "Anytime-valid off-policy inference for contextual bandits", ACM/IMS J.
Data Sci. 1 (2024).

The interval comes from betting: I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random
variables by betting", J. R. Stat. Soc. B 86 (2024) 1-27. Who stakes the fixed part b of a wealth of
1 on h has the product of (1 + b h) / (1 + b gain(t)), at all times 1 on average. As log is concave,
that is at least the product of (1 + b h) / (1 + b gain), where gain is the mean of gain(t) so far.
So is the average over many pairs of b and m, and a wealth that is 1 on average ever reaches
1 / level with a probability of at most level (J. Ville, "Étude critique de la notion de collectif",
1939): a gain for which it did is refuted. Nothing is asked of the outcomes but their bounds: rates
and gain may drift, and what is covered is the mean gain over the opportunities so far. Only where p
was changed between them, its mean must be the same under each p.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import exp, lgamma, log, log1p, pi, sin

# (probability of being withheld, shown, outcome 0..1, more is better) -> how often
Cells = Mapping[tuple[float, bool, float], int]

# The bets, chosen by the widths that they give: centres m, evenly spread in asin(sqrt(m)), with
# stakes b, as parts of the largest that no outcome turns into a debt, each with its weight.
CENTRES = tuple(sin((2 * n + 1) * pi / 16) ** 2 for n in range(4))
PARTS = {0.9 / 2**n: 1 / (n + 2) for n in range(8)}
BETS = tuple((m, part) for m in CENTRES for part in PARTS)
PRIOR = tuple(log(PARTS[part] / sum(PARTS.values()) / len(CENTRES)) for _, part in BETS)


@lru_cache(64)
def stakes(share: float) -> tuple[float, ...]:
    """Of each bet the stake b, where lessons are withheld with probability `share`."""
    return tuple(part / max(m / (1 - share), (1 - m) / share) for m, part in BETS)


@lru_cache(4_096)
def payoffs(share: float, shown: bool, value: float) -> tuple[float, ...]:
    """Of each bet the logarithm of 1 + b h for one outcome."""
    sign = 1 / (1 - share) if shown else -1 / share
    bets = zip(BETS, stakes(share), strict=True)
    return tuple(log1p(stake * sign * (value - m)) for (m, _), stake in bets)


@dataclass(frozen=True, slots=True)
class Wealth:
    """The logarithms of what the bets have made of their parts, were the gain 0."""

    logs: tuple[float, ...]
    tosses: tuple[tuple[tuple[float, ...], int], ...]  # how often with which stakes

    @classmethod
    def of(cls, cells: Cells) -> Wealth:
        """From counts: the order of the opportunities does not matter."""
        logs = list(PRIOR)
        tosses: dict[float, int] = {}
        for (share, shown, value), n in sorted(cells.items()):
            tosses[share] = tosses.get(share, 0) + n
            logs = [a + n * b for a, b in zip(logs, payoffs(share, shown, value), strict=True)]
        return cls(tuple(logs), tuple((stakes(share), n) for share, n in tosses.items()))

    def at(self, gain: float) -> tuple[float, float]:
        """The logarithm of the wealth, were that the gain (-1..1), and its slope; it is convex."""
        logs, slopes = list(self.logs), [0.0] * len(BETS)
        for staked, n in self.tosses:
            for i, stake in enumerate(staked):
                logs[i] -= n * log1p(stake * gain)
                slopes[i] -= n * stake / (1 + stake * gain)
        top = max(logs)
        parts = [exp(one - top) for one in logs]
        slope = sum(part * slope for part, slope in zip(parts, slopes, strict=True))
        return top + log(sum(parts)), slope / sum(parts)

    def least(self, level: float) -> float:
        """The least gain that is not refuted at this level, by Newton's method from below."""
        gain, enough = -1.0, -log(level)
        for _ in range(100):
            worth, slope = self.at(gain)
            if worth - enough < 1e-9 or gain >= 1:
                break
            gain -= (worth - enough) / slope
        return min(gain, 1.0)


def mirrored(cells: Cells) -> Cells:
    """The same with shown and withheld exchanged: its gain is the opposite."""
    return {(1 - share, not shown, value): n for (share, shown, value), n in cells.items()}


def interval(cells: Cells, low: float, high: float) -> tuple[float, float]:
    """The ends of the gain, refuted below at the level `low` and above at the level `high`."""
    if not any(cells.values()):
        return -1.0, 1.0
    return Wealth.of(cells).least(low), -Wealth.of(mirrored(cells)).least(high)


def paired(better: int, same: int, worse: int, level: float) -> tuple[float, float]:
    """The ends of the mean gain of pairs, each of which gained 1, 0 or -1; refuted at the level.

    Where both were seen, of the same task, no coin is needed: the difference is the figure h
    itself, bet on as above. What a pair is expected to gain may depend on those before it.
    """
    return _least(better, same, worse, level), -_least(worse, same, better, level)


def _least(better: int, same: int, worse: int, level: float) -> float:
    parts = tuple(part for _, part in BETS)
    bets = zip(PRIOR, parts, strict=True)
    logs = tuple(log + better * log1p(b) + worse * log1p(-b) for log, b in bets)
    return Wealth(logs, ((parts, better + same + worse),)).least(level)


def against(share: float, shown: int, withheld: int) -> float:
    """The logarithm of the evidence that a coin of probability `share` did not make these counts.

    The likelihood of all other coins, evenly weighed, over that of this one; also valid at all
    times: M. Lindon, A. Malek, "Anytime-valid inference for multinomial count data", NeurIPS 2022.
    """
    other = lgamma(shown + 1) + lgamma(withheld + 1) - lgamma(shown + withheld + 2)
    return other - shown * log1p(-share) - withheld * log(share)

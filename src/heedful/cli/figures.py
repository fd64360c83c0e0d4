"""The rows of two arms over the same tasks -> figures with 95 % intervals, and what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heedful.cli.batch import Row
from heedful.errors import InvalidInput
from heedful.lessons.proof import Estimate, paired_interval, wilson_interval

WITHOUT, MEMORY = "without memory", "with memory"
ALL = "all tasks"
SECOND = "second half"
POOLED = "all families"
FOLLOWED = "families it follows"
# A family counts as one that the model can follow when three right examples bring it this far.
CAN_FOLLOW = 0.8
RESAMPLES = 4_000


def gain(pairs: Sequence[tuple[bool, bool]]) -> Estimate:
    """How much greater the share of the first is than that of the second, both of the same tasks.

    The interval holds at all times at once, whenever one stops; and tasks need not be independent,
    as they are not where each may rest on what was learnt before (`heedful.lessons.proof`).
    """
    first = sum(a and not b for a, b in pairs)
    second = sum(b and not a for a, b in pairs)
    value = (first - second) / len(pairs)
    low, high = paired_interval(first, len(pairs) - first - second, second, 0.025)
    return Estimate(value, min(low, value), max(high, value))


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


@dataclass(frozen=True, slots=True)
class Figures:
    """One arm over some tasks: shares of them, and sums; `seconds` is what the loops took."""

    tasks: int
    at_once: Estimate
    solved: Estimate
    calls: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Compared:
    """Both arms over the same tasks.

    `gain` is the uplift, by how much more of them were right at once with memory; `calls` are the
    model calls with memory over those without.
    """

    group: str
    part: str
    without: Figures
    memory: Figures
    gain: Estimate
    calls: Estimate


def figures(rows: Sequence[Row]) -> Figures:
    """The figures of one arm; `rows` holds at least one."""
    return Figures(
        len(rows),
        wilson_interval(sum(row.at_once for row in rows), len(rows)),
        wilson_interval(sum(row.passed for row in rows), len(rows)),
        sum(row.calls for row in rows),
        sum(row.tokens for row in rows),
        round(sum(row.seconds for row in rows), 2),
    )


def compare(group: str, part: str, without: Sequence[Row], memory: Sequence[Row]) -> Compared:
    """Both arms; the rows stand in the same order of tasks."""
    pairs = list(zip(memory, without, strict=True))
    strata: dict[str, list[tuple[float, float]]] = {}
    for with_it, without_it in pairs:
        strata.setdefault(with_it.group, []).append((with_it.calls, without_it.calls))
    return Compared(
        group,
        part,
        figures(without),
        figures(memory),
        gain([(a.at_once, b.at_once) for a, b in pairs]),
        ratio(list(strata.values())),
    )


def second_half(rows: Sequence[Row]) -> list[Row]:
    """Of every family the later half of its tasks, the middle one included, in the rows' order."""
    chosen: set[str] = set()
    for group in {row.group for row in rows}:
        ids = [row.id for row in rows if row.group == group]
        chosen |= set(ids[len(ids) // 2 :])
    return [row for row in rows if row.id in chosen]


def comparisons(
    without: Sequence[Row], memory: Sequence[Row], follows: Mapping[str, Estimate]
) -> list[Compared]:
    """Each family and all of them, over all tasks and over the second half.

    `follows` is the share that each family reached with three right examples, empty where nobody
    measured it; where it is known, the families that the model can follow are pooled too.
    """
    names = list(dict.fromkeys(row.group for row in without))
    followed = [name for name in names if name in follows and follows[name].value >= CAN_FOLLOW]
    pools = [(name, {name}) for name in names]
    pools += [(POOLED, set(names))] if len(names) > 1 else []
    pools += [(FOLLOWED, set(followed))] if followed else []
    made = []
    for title, members in pools:
        a = [row for row in without if row.group in members]
        b = [row for row in memory if row.group in members]
        made += [compare(title, ALL, a, b), compare(title, SECOND, second_half(a), second_half(b))]
    return made


def in_words(one: Compared) -> list[str]:
    """What the intervals say, a sentence each; where one covers no difference it says so."""
    better, worse = "more are right at once with memory", "FEWER are right at once with memory"
    gain = f"uplift: {points(one.gain)} right at once; {_verdict(one.gain, 0, better, worse)}"
    verdict = _verdict(one.calls, 1, "MORE calls with memory", "fewer calls with memory")
    if one.calls.low == one.calls.high == 1:
        verdict = "the same in every task"
    ends = f"{one.calls.low:.2f}–{one.calls.high:.2f}"
    return [gain, f"model calls: {one.calls.value:.2f} times those without ({ends}); {verdict}"]


def percent(estimate: Estimate) -> str:
    """A share with its interval.

    >>> percent(Estimate(0.5, 0.216, 0.784))
    '50 % (22–78)'
    """
    ends = f"{100 * estimate.low:.0f}–{100 * estimate.high:.0f}"
    return f"{100 * estimate.value:.0f} % ({ends})"


def points(estimate: Estimate) -> str:
    """A difference of shares in points.

    >>> points(Estimate(-0.125, -0.4, 0.15))
    '−12 points (−40 to +15)'
    """
    return f"{_signed(estimate.value)} points ({_signed(estimate.low)} to {_signed(estimate.high)})"


def _signed(value: float) -> str:
    whole = round(100 * value)
    return f"+{whole}" if whole > 0 else f"−{-whole}" if whole < 0 else "0"


def _verdict(estimate: Estimate, none: int, above: str, below: str) -> str:
    if estimate.covers(none):
        return f"insufficient data: the interval covers {none}"
    return above if estimate.value > none else below

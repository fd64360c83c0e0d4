"""Reminders: what sessions of agents were told, and whether the mistake came again.

A reminder is about one thing in one session: a lesson that its brief, a prompt, a
warning or an error told, or a call that failed before. It is told, or withheld by the
draw that decides about lessons. The mistake came again if a result with its error came
after the reminder, also that of the call that was warned. The session was right if only
such calls ended afterwards that did not fail so; otherwise there is no verdict.

An agent often does not repeat a mistake though nobody told it. So calls are saved only
as far as told reminders are repeated less often than withheld ones: of those told and
not repeated, the share (w - t) / (1 - t) would have been repeated, if the share w of
the withheld and t of the told is repeated. Each of them saves the calls that recorded
sessions of the project lost on average to such a failure. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from heedful.lessons.holdout import Shown
from heedful.lessons.proof import END_ERROR_LEVEL, interval

# With fewer reminders of a kind, or fewer failures, no calls are told.
MIN_COMPARED_REMINDERS = 5
MIN_FAILURES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ReminderCount:
    """How many reminders were told, or withheld, and ended in one way.

    `share` is the probability with which they were withheld, and `repeated` says
    whether the mistake came again; None if no later call could show it. It cost
    these sessions `calls`.
    """

    told: bool
    share: float
    repeated: bool | None
    n: int
    calls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCosts:
    """How many failures recorded sessions had, and how many calls these cost in all."""

    failures: int = 0
    calls: int = 0

    @property
    def mean(self) -> float | None:
        """The calls that a failure costs; None with too few failures."""
        if self.failures < MIN_FAILURES:
            return None
        return self.calls / self.failures


@dataclass(frozen=True, slots=True, kw_only=True)
class ReminderTally(Shown):
    """The number of reminders, by what happened after them; those told are `shown`.

    `withheld` counts those that were not told and have a verdict; after
    `withheld_again` of them, the mistake came again. All these sessions lost
    `calls_lost` to mistakes that memory knew. `calls_saved` is None without enough
    data.
    """

    withheld: int = 0
    withheld_again: int = 0
    calls_lost: int = 0
    calls_saved: float | None = None

    @property
    def words(self) -> str:
        """One line for a person, "" if nothing was told."""
        if not self.shown:
            return ""
        parts = [str(self)]
        if self.calls_lost:
            parts.append(f"{_counted(self.calls_lost, 'call')} lost to known mistakes")
        if self.calls_saved is not None and round(self.calls_saved):
            parts.append(f"about {_counted(round(self.calls_saved), 'call')} saved")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReminderFigures:
    """What reminders did.

    A random draw decided which reminders to show. `told_repeated` is the share of
    mistakes that came again after shown reminders, and `withheld_repeated` the share
    after withheld ones; None without such reminders. The true difference,
    `withheld_repeated` minus `told_repeated`, lies between `low` and `high`.
    `failure_calls` are the calls that a failure costs. `missing` says what data a
    figure lacks.
    """

    total: ReminderTally = ReminderTally()
    told_repeated: float | None = None
    withheld_repeated: float | None = None
    low: float = -1.0
    high: float = 1.0
    failure_calls: float | None = None
    missing: tuple[str, ...] = ()

    @property
    def is_compared(self) -> bool:
        """True if a draw has decided about a reminder."""
        return self.told_repeated is not None or self.withheld_repeated is not None

    @property
    def saved_by_one(self) -> float | None:
        """The calls that a mistake saves that was told and not repeated."""
        if self.missing or self.failure_calls is None:
            return None
        share = self.told_repeated
        withheld_share = self.withheld_repeated
        if share is None or withheld_share is None:
            return None
        if share == 1:
            return 0.0
        return max(0.0, (withheld_share - share) / (1 - share)) * self.failure_calls


def figure_reminders(
    counts: Iterable[ReminderCount], costs: FailureCosts
) -> ReminderFigures:
    """Return the figures of reminders that have ended."""
    counts = list(counts)
    compared = [count for count in counts if count.share > 0]
    reminded = _sum(compared, is_told=True)
    withheld = _sum(compared, is_told=False)
    figures = ReminderFigures(
        told_repeated=_share(reminded),
        withheld_repeated=_share(withheld),
        failure_calls=costs.mean,
        missing=_missing(reminded, withheld, costs),
    )
    saved_by_one = figures.saved_by_one

    low = -1.0
    high = 1.0
    if reminded.total() and withheld.total():
        low, high = _difference(compared)
    return ReminderFigures(
        total=_tally(counts, saved_by_one),
        told_repeated=figures.told_repeated,
        withheld_repeated=figures.withheld_repeated,
        low=low,
        high=high,
        failure_calls=figures.failure_calls,
        missing=figures.missing,
    )


def _sum(counts: Iterable[ReminderCount], *, is_told: bool) -> Counter[bool]:
    """Return how many of the reminders that were told, or withheld, were repeated."""
    sums = Counter[bool]()
    for count in counts:
        if count.told == is_told and count.repeated is not None:
            sums[count.repeated] += count.n
    return sums


def _share(sums: Mapping[bool, int]) -> float | None:
    """Return the share that was repeated, None of nothing."""
    total = sum(sums.values())
    return sums.get(True, 0) / total if total else None


def _tally(counts: list[ReminderCount], saved_by_one: float | None) -> ReminderTally:
    """Return the tally of counts."""
    reminded = _sum(counts, is_told=True)
    withheld = _sum(counts, is_told=False)
    shown = sum(count.n for count in counts if count.told)
    return ReminderTally(
        shown=shown,
        right=reminded[False],
        again=reminded[True],
        other=shown - reminded.total(),
        withheld=withheld.total(),
        withheld_again=withheld[True],
        calls_lost=sum(count.calls for count in counts),
        calls_saved=None if saved_by_one is None else reminded[False] * saved_by_one,
    )


def _difference(counts: Iterable[ReminderCount]) -> tuple[float, float]:
    """Return the ends of the interval of the difference between withheld and told."""
    cells = Counter[tuple[float, bool, float]]()
    for count in counts:
        if count.repeated is not None:
            cells[count.share, count.told, float(not count.repeated)] += count.n
    return interval(cells, END_ERROR_LEVEL, END_ERROR_LEVEL)


def _missing(
    reminded: Counter[bool], withheld: Counter[bool], costs: FailureCosts
) -> tuple[str, ...]:
    """Return what data the saved calls lack."""
    needs = [
        ("reminders told at random", reminded.total(), MIN_COMPARED_REMINDERS),
        ("reminders withheld at random", withheld.total(), MIN_COMPARED_REMINDERS),
        ("failures in sessions", costs.failures, MIN_FAILURES),
    ]
    return tuple(
        f"{noun}: {number} of {least}"
        for noun, number, least in needs
        if number < least
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

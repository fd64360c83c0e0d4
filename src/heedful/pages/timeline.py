"""Where on a shared axis of time each attempt stands. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from heedful.reports import Report

# Shares of the axis: what an attempt has at least (all together at most half), a pause at most.
NARROW = 0.016
PAUSE = 0.06
TICKS = 6
STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300)
LONG_STEPS = (600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400, 604_800)


@dataclass(frozen=True, slots=True)
class Axis:
    """Seconds since 1970 -> 0..1, piecewise linear, growing.

    Short attempts have room to be seen and long pauses are shortened, so widths compare only
    roughly; `even` says that neither was needed.
    """

    times: tuple[float, ...]
    places: tuple[float, ...]
    even: bool = True

    def place(self, at: float) -> float:
        """Where a time stands; what is before or behind all stands at the end."""
        for (left, right), (low, high) in zip(
            pairwise(self.times), pairwise(self.places), strict=True
        ):
            if at <= right:
                share = (at - left) / (right - left) if right > left else 0.0
                return low + max(0.0, share) * (high - low)
        return self.places[-1]

    def ticks(self) -> Iterator[tuple[float, float]]:
        """Seconds after the beginning at round numbers, with their places, not too close."""
        length = self.times[-1] - self.times[0]
        step = next((s for s in (*STEPS, *LONG_STEPS) if s * TICKS >= length), length / TICKS)
        last = -1.0
        for n in range(TICKS + 1):
            place = self.place(self.times[0] + n * step)
            if n * step <= length and place - last >= 0.5 / TICKS:
                last = place
                yield n * step, place


def spans(report: Report) -> list[list[tuple[float, float]]]:
    """When each attempt of each stage began and ended, in seconds since 1970.

    An attempt ends when it is decided; one that is not decided begins where the one before ended,
    and none before that, since two clocks measure it.
    """
    at, found = report.began, []
    for stage in report.stages:
        row = []
        for one in stage.attempts:
            length = one.execution_time_ms / 1000
            end = one.timestamp or at + length
            row.append((min(max(end - length, at), end), end))
            at = max(at, end)
        found.append(row)
    return found


def axis(report: Report, rows: Sequence[Sequence[tuple[float, float]]]) -> Axis | None:
    """The axis of a report's attempts; None without an attempt."""
    bars = [bar for row in rows for bar in row]
    if not bars:
        return None
    edges = sorted({at for bar in bars for at in bar} | {report.began, report.ended} - {0.0})
    if len(edges) == 1:
        edges.append(edges[0] + 0.001)
    total = edges[-1] - edges[0]
    narrow = min(NARROW, 0.5 / len(bars))
    shares = [(right - left) / total for left, right in pairwise(edges)]
    widths = []
    for share, (left, right) in zip(shares, pairwise(edges), strict=True):
        busy = any(begin <= left and right <= end for begin, end in bars)
        widths.append(max(share, narrow) if busy else min(share, PAUSE))
    places = [width / sum(widths) for width in accumulate(widths, initial=0.0)]
    return Axis(tuple(edges), (*places[:-1], 1.0), widths == shares)

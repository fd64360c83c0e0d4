"""Drawings: cost against quality with the Pareto front, and effects with their intervals.

Each is one SVG file that loads nothing. `draw` makes all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10

from heedful.lessons.proof import Comparison
from heedful.loop.replay import Figures
from heedful.pages.report import cut, render

# Sizes in pixels.
CHARACTER = 6.6
ROW = 24
WIDTH, LEAST_HEIGHT = 520, 320
NAME = 60  # characters of a name


@dataclass(frozen=True, slots=True)
class Mark:
    """A dot at (x, y), with a line from `low` to `high` if there is an interval in x.

    Without x only the interval is drawn. `kind` sets the colour, `number` stands beside the dot.
    """

    name: str
    x: float | None
    y: float
    kind: str = ""
    number: str = ""
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True, slots=True)
class Axis:
    """The values between `low` and `high`, with the texts at some of them."""

    label: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]

    @classmethod
    def around(cls, label: str, values: Sequence[float]) -> Axis:
        """Return an axis that holds the values, with round numbers as ticks."""
        span = max(values) - min(values) or 0.1
        power = 10 ** floor(log10(span / 4))
        step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= 6)
        digits = max(0, ceil(-log10(step)))
        first, last = floor(min(values) / step), ceil(max(values) / step)
        ticks = [(n * step, f"{n * step:.{digits}f}") for n in range(first, last + 1)]
        return cls(label, first * step, last * step, ticks)

    def place(self, value: float) -> float:
        """Return the place of the value as a share of the axis."""
        return (value - self.low) / (self.high - self.low)


def draw(
    title: str,
    x: Axis,
    y: Axis,
    marks: Sequence[Mark],
    line: Sequence[tuple[float, float]] = (),
    key: Sequence[tuple[str, str]] = (),
    rows: int = 0,
) -> str:
    """Draw marks and a line of steps as SVG.

    Each line of the key has the kind of a mark and a text. `rows` is the number of rows that the
    height must hold.
    """
    left = 50 + CHARACTER * max(len(text) for _, text in y.ticks)
    height = max(ROW * max(rows, len(key)), 0 if rows else LEAST_HEIGHT)
    points = [(left + WIDTH * x.place(a), 50 + height * (1 - y.place(b))) for a, b in line]
    steps = points[:1]
    for before, point in pairwise(points):
        steps += [(point[0], before[1]), point]
    return render(
        "plot.svg.j2",
        title=title,
        x=x,
        y=y,
        marks=marks,
        steps=" ".join(f"{a:.1f},{b:.1f}" for a, b in steps),
        key=key,
        left=left,
        top=50,
        width=WIDTH,
        height=height,
        whole=left + WIDTH + 40 + CHARACTER * max((4 + len(text) for _, text in key), default=0),
    )


# Policies


@dataclass(frozen=True, slots=True)
class Point:
    """A policy by its attempts ÷ the oracle's and the share of the solvable loops it solves."""

    name: str
    cost: float
    solved: float

    @classmethod
    def of(cls, figures: Figures) -> Point:
        """Return the point of a policy's figures."""
        cost = figures.attempts / figures.oracle if figures.oracle else 1.0
        solved = figures.solved / figures.solvable if figures.solvable else 1.0
        return cls(figures.policy, cost, solved)


def front(points: Iterable[Point]) -> list[Point]:
    """Return the points that no other point beats in both, by rising cost (Pareto)."""
    best: list[Point] = []
    for point in sorted(points, key=lambda one: (one.cost, -one.solved)):
        if not best or point.solved > best[-1].solved:
            best.append(point)
    return best


def draw_front(named: Sequence[Point], title: str, others: Sequence[Point] = ()) -> str:
    """Draw cost against quality; `others` are small dots without a name."""
    points = [*named, *others]
    line = [(one.cost, one.solved) for one in front(points)]
    marks = [Mark(one.name, one.cost, one.solved, "other") for one in others]
    marks.append(Mark("oracle", 1.0, 1.0, "oracle"))
    key = [("oracle", "oracle: stops at the right one"), ("front", "Pareto front")]
    places: dict[tuple[float, float], list[str]] = {}  # policies at one place share a number
    for number, one in enumerate(named, 1):
        kind = "front" if (one.cost, one.solved) in line else "named"
        numbers = places.setdefault((round(one.cost, 3), round(one.solved, 3)), [])
        numbers.append(str(number))
        marks.append(Mark(one.name, one.cost, one.solved, kind))
        key.append((kind, f"{number}  {cut(one.name, NAME)}"))
    marks += [Mark("", *place, "", ", ".join(numbers)) for place, numbers in places.items()]
    x = Axis.around("attempts ÷ the oracle's", [1.0, *(one.cost for one in points)])
    y = Axis.around("solved ÷ solvable", [1.0, *(one.solved for one in points)])
    return draw(title, x, y, marks, line, key)


# Lessons


def forest(rows: Sequence[tuple[str, Comparison]], title: str) -> str:
    """Draw the gain of each row in points with its interval, the first row on top."""
    marks, ticks = [], []
    for place, (name, one) in enumerate(rows):
        low, high = 100 * one.uplift.low, 100 * one.uplift.high
        gain = None if one.uplift.gain is None else 100 * one.uplift.gain
        kind = one.conclusion if one.conclusion in ("helps", "hurts") else "open"
        marks.append(Mark(f"{name}: {one.conclusion}", gain, -place, kind, "", low, high))
        ticks.append((-place, f"{cut(name, NAME)} ({one.shown} / {one.withheld})"))
    x = Axis("gain in points; beside each name: times shown / withheld", -100, 100, [
        (n, f"{n:+d}".replace("+0", "0")) for n in (-100, -50, 0, 50, 100)
    ])  # fmt: skip
    return draw(title, x, Axis("", 0.5 - len(rows), 0.5, ticks), marks, rows=len(rows))

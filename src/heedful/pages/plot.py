"""Drawings as SVG files that load nothing: policies with a Pareto front."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from heedful.loop.replay import Figures
from heedful.pages.report import cut, render

NAME = 60  # characters of a name


@dataclass(frozen=True, slots=True)
class Mark:
    """A dot at (x, y), or a `number` instead of a dot. `kind` sets the colour."""

    name: str
    kind: str
    x: float
    y: float
    number: str = ""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from `low` to `high`. `ticks` are values on the axis, with their texts."""

    label: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]

    @classmethod
    def around(cls, label: str, values: Sequence[float]) -> Axis:
        """Return an axis that contains all `values`, with round numbers as ticks."""
        span = max(values) - min(values) or 0.1
        power = 10 ** floor(log10(span / 4))
        step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= 6)
        first, last = floor(min(values) / step), ceil(max(values) / step)
        digits = max(0, ceil(-log10(step)))
        ticks = [(n * step, f"{n * step:.{digits}f}") for n in range(first, last + 1)]
        return cls(label, first * step, last * step, ticks)


@dataclass(frozen=True, slots=True)
class Point:
    """A policy: `cost` is its attempts ÷ the oracle's, `solved` is solved ÷ solvable loops."""

    name: str
    cost: float
    solved: float

    @classmethod
    def of(cls, figures: Figures) -> Point:
        """Return the point for the figures of a policy."""
        cost = figures.attempts / figures.oracle if figures.oracle else 1.0
        solved = figures.solved / figures.solvable if figures.solvable else 1.0
        return cls(figures.policy, cost, solved)


def front(points: Iterable[Point]) -> list[Point]:
    """Return the Pareto front by rising cost: each point solves more than every cheaper point."""
    best: list[Point] = []
    for point in sorted(points, key=lambda one: (one.cost, -one.solved)):
        if not best or point.solved > best[-1].solved:
            best.append(point)
    return best


def draw_front(named: Sequence[Point], title: str, others: Sequence[Point] = ()) -> str:
    """Draw the cost and the quality of policies. `others` are small dots without a name."""
    line = [(one.cost, one.solved) for one in front([*named, *others])]
    marks = [Mark(one.name, "other", one.cost, one.solved) for one in others]
    marks.append(Mark("oracle", "oracle", 1.0, 1.0))
    key = [("oracle", "oracle: stops at the right one"), ("front", "Pareto front")]
    numbers: dict[tuple[float, float], str] = {}  # policies at one place share a label
    for number, one in enumerate(named, 1):
        kind = "front" if (one.cost, one.solved) in line else "named"
        place = round(one.cost, 3), round(one.solved, 3)
        numbers[place] = f"{numbers[place]}, {number}" if place in numbers else str(number)
        marks.append(Mark(one.name, kind, one.cost, one.solved))
        key.append((kind, f"{number}  {cut(one.name, NAME)}"))
    marks += [Mark("", "", *place, number=text) for place, text in numbers.items()]
    costs, solved = zip((1.0, 1.0), *((one.x, one.y) for one in marks), strict=True)
    x, y = Axis.around("attempts ÷ the oracle's", costs), Axis.around("solved ÷ solvable", solved)
    return render("plot.svg.j2", title=title, x=x, y=y, marks=marks, line=line, key=key)

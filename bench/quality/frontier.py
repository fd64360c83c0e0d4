"""The picture of stop policies: cost against quality, with the Pareto front."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import fill

from matplotlib.figure import Figure

from heedful.loop.replay import Figures

INK, FRONT, REST, ORACLE = "#222222", "#0072B2", "#999999", "#009E73"


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


def draw_front(named: Sequence[Point], title: str, others: Sequence[Point] = ()) -> bytes:
    """Draw cost against quality as PNG: numbered marks with a key beside them.

    `others` are small dots without a name.
    """
    file = io.BytesIO()
    figure = Figure(figsize=(10.5, max(5.4, 2 + 0.4 * len(named))), dpi=150, layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    line = front([*named, *others])
    best = {(one.cost, one.solved) for one in line}
    axes.plot(*_columns(others), "o", color=REST, markersize=3)
    axes.plot(*_columns(line), drawstyle="steps-post", color=FRONT, label="Pareto front")
    axes.plot([1.0], [1.0], "*", color=ORACLE, ms=16, label="oracle: stops at the right one")
    for number, one in enumerate(named, 1):
        colour = FRONT if (one.cost, one.solved) in best else INK
        label = f"{number}  {fill(one.name, 36, max_lines=3, placeholder=' …')}"
        axes.plot([one.cost], [one.solved], "o", color=colour, label=label)
        axes.annotate(str(number), (one.cost, one.solved), (5, -12), textcoords="offset points")
    axes.margins(0.1)
    axes.set(xlabel="attempts ÷ the oracle's", ylabel="solved ÷ solvable", title=title)
    figure.legend(loc="outside right upper", frameon=False)
    figure.savefig(file, format="png")
    return file.getvalue()


def _columns(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [one.cost for one in points], [one.solved for one in points]

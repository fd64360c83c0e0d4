"""Cost against quality as a picture: one mark a policy, and the front that no policy beats."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from errata.cli.picture import NoPictures
from errata.loop.replay import Figures

INK, FRONT, REST, ORACLE = "#222222", "#0072B2", "#999999", "#009E73"


@dataclass(frozen=True, slots=True)
class Point:
    """A policy by its attempts ÷ the oracle's and the share of the solvable loops it solves."""

    name: str
    cost: float
    solved: float

    @classmethod
    def of(cls, figures: Figures) -> Point:
        """Where the figures of a policy lie."""
        cost = figures.attempts / figures.oracle if figures.oracle else 1.0
        solved = figures.solved / figures.solvable if figures.solvable else 1.0
        return cls(figures.policy, cost, solved)


def front(points: Iterable[Point]) -> list[Point]:
    """The points that no other one beats in both, by rising cost (Pareto)."""
    best: list[Point] = []
    for point in sorted(points, key=lambda one: (one.cost, -one.solved)):
        if not best or point.solved > best[-1].solved:
            best.append(point)
    return best


def draw(named: Sequence[Point], title: str, others: Sequence[Point] = ()) -> bytes:
    """The picture as PNG; `others` are small marks without a name.

    Raises NoPictures where matplotlib is missing.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        how = "pip install 'errata[report]'; the table does without it"
        raise NoPictures(f"the picture needs matplotlib: {how}") from error
    with mpl.rc_context({"font.size": 10.5, "text.color": INK}):
        figure = Figure(figsize=(9.0, 5.4), layout="constrained")
        axes: Any = figure.subplots()
        axes.plot([p.cost for p in others], [p.solved for p in others], "o", color=REST, ms=3)
        line = front([*named, *others])
        steps: Any = {"drawstyle": "steps-post", "color": FRONT, "linewidth": 1.6}
        axes.plot([p.cost for p in line], [p.solved for p in line], **steps, label="Pareto front")
        axes.plot([1.0], [1.0], "*", color=ORACLE, ms=14, label="oracle: stops at the right one")
        right = max((p.cost for p in (*named, *others)), default=1.0)
        for (cost, solved), names in _places(named).items():
            best = any((p.cost, p.solved) == (cost, solved) for p in line)
            colour, left = (FRONT if best else INK), best or cost > (1 + 2 * right) / 3
            axes.plot([cost], [solved], "o", color=colour, ms=7)
            look: Any = {"textcoords": "offset points", "ha": "right" if left else "left"}
            where = (-8 if left else 8, 5 if best else -12)
            axes.annotate(names, (cost, solved), where, color=colour, **look)
        axes.set(xlabel="attempts ÷ the oracle's", ylabel="solved ÷ solvable", title=title)
        axes.margins(x=0.12, y=0.12)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="lower right", frameon=False)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=150)
        return file.getvalue()


def _places(points: Sequence[Point]) -> dict[tuple[float, float], str]:
    """The names at each place, those of one place together."""
    names: dict[tuple[float, float], list[str]] = {}
    for point in points:
        short = point.name if len(point.name) < 46 else f"{point.name[:44]}…"
        names.setdefault((point.cost, point.solved), []).append(short)
    return {place: "\n".join(every) for place, every in names.items()}

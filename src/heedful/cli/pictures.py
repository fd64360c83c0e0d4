"""Pictures of `replay --plot` and `proof --plot`: cost against quality, and intervals."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING
from warnings import catch_warnings, filterwarnings

from heedful.cli.output import check_matplotlib
from heedful.lessons.proof import Comparison
from heedful.loop.record import clean
from heedful.loop.replay import Figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FRONT, REST, ORACLE = "#222222", "#0072B2", "#999999", "#009E73"
COLOURS = {"helps": "#009E73", "hurts": "#D55E00"}
LINE, LINES = 36, 3  # characters and lines of a name in the key


@contextmanager
def drawing(width: float, height: float) -> Iterator[tuple[Figure, Axes, io.BytesIO]]:
    """Yield a figure, its axes and the file that is its PNG afterwards. Raises NoPictures."""
    check_matplotlib()
    from matplotlib.figure import Figure

    file = io.BytesIO()
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    with catch_warnings():
        filterwarnings("ignore", "Glyph")  # a name may hold what no font has
        yield figure, axes, file
        figure.savefig(file, format="png")


def plain(text: str) -> str:
    """Return the text so that matplotlib does not read it as a formula."""
    return text.replace("$", r"\$")


def draw_intervals(rows: Sequence[tuple[str, Comparison]], title: str) -> bytes:
    """Draw uplifts with their intervals, the first row on top. Raises NoPictures."""
    with drawing(9.5, 1.2 + 0.34 * len(rows)) as (_, axes, file):
        for place, (_, one) in enumerate(rows):
            colour, uplift = COLOURS.get(one.conclusion, "#777777"), one.uplift
            axes.plot([100 * uplift.low, 100 * uplift.high], [place] * 2, color=colour, lw=2)
            if uplift.gain is not None:
                axes.plot([100 * uplift.gain], [place], "o", color=colour)
        names = [plain(f"{name} ({one.shown} / {one.withheld})") for name, one in rows]
        axes.set_yticks(range(len(rows)), names)
        axes.set(xlim=(-103, 103), ylim=(len(rows) - 0.5, -0.5), xlabel="points")
        axes.axvline(0, color=INK, lw=1)
        axes.set_title(f"{title} (times shown / withheld)", loc="right")
    return file.getvalue()


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

    `others` are small dots without a name. Raises NoPictures if matplotlib is missing.
    """
    names = [
        fill(clean(point.name, 200), LINE, max_lines=LINES, placeholder=" …") for point in named
    ]
    height = max(5.4, 2 + 0.2 * sum(1 + name.count("\n") for name in names))
    line = front([*named, *others])
    best = {(one.cost, one.solved) for one in line}
    numbers: dict[tuple[float, float], list[int]] = {}  # policies at the same place share a mark
    with drawing(10.5, height) as (figure, axes, file):
        axes.plot(*_columns(others), "o", color=REST, markersize=3)
        axes.plot(*_columns(line), drawstyle="steps-post", color=FRONT, label="Pareto front")
        axes.plot([1.0], [1.0], "*", color=ORACLE, ms=16, label="oracle: stops at the right one")
        for number, (one, name) in enumerate(zip(named, names, strict=True), 1):
            colour = FRONT if (one.cost, one.solved) in best else INK
            label = f"{number}  {plain(name)}"
            axes.plot([one.cost], [one.solved], "o", color=colour, label=label)
            numbers.setdefault((round(one.cost, 2), round(one.solved, 2)), []).append(number)
        for place, some in numbers.items():
            text = fill(", ".join(map(str, some)), 18)
            axes.annotate(text, place, (5, -12), textcoords="offset points")
        axes.margins(0.1)
        axes.set(xlabel="attempts ÷ the oracle's", ylabel="solved ÷ solvable", title=plain(title))
        figure.legend(loc="outside right upper", frameon=False)
    return file.getvalue()


def _columns(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [one.cost for one in points], [one.solved for one in points]

"""Cost against quality as a picture: one mark a policy, and the front that no policy beats."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, filterwarnings

from heedful.cli.output import NoPictures
from heedful.loop.feedback import clean
from heedful.loop.replay import Figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FRONT, REST, ORACLE = "#222222", "#0072B2", "#999999", "#009E73"
LINE, LINES = 36, 3  # characters and lines of a name in the key
LEAST = 0.1  # of either axis: what is nearly alike is not pulled apart
MARK = 8  # points across
# Where a number may stand beside its mark, in points, and how it is aligned there. The line of the
# front leaves a mark to the right and meets it from below.
SIDES = [
    (x * far, y * far, side, level)
    for far in (1, 2.5)
    for x, y, side, level in (
        (-5, 4, "right", "bottom"),
        (5, 4, "left", "bottom"),
        (-5, -4, "right", "top"),
        (5, -4, "left", "top"),
        (0, 7, "center", "bottom"),
        (-8, 0, "right", "center"),
        (8, 0, "left", "center"),
        (0, -7, "center", "top"),
    )
]
Place = tuple[float, float]


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

    @property
    def place(self) -> Place:
        """Where its mark is."""
        return (self.cost, self.solved)


def front(points: Iterable[Point]) -> list[Point]:
    """The points that no other one beats in both, by rising cost (Pareto)."""
    best: list[Point] = []
    for point in sorted(points, key=lambda one: (one.cost, -one.solved)):
        if not best or point.solved > best[-1].solved:
            best.append(point)
    return best


def draw(named: Sequence[Point], title: str, others: Sequence[Point] = ()) -> bytes:
    """The picture as PNG. Raises NoPictures where matplotlib is missing."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        how = "pip install 'heedful[report]'; the table does without it"
        raise NoPictures(f"the picture needs matplotlib: {how}") from error
    with mpl.rc_context({"font.size": 10.5, "text.color": INK}), catch_warnings():
        filterwarnings("ignore", "Glyph")  # a name may hold what no font has
        file = io.BytesIO()
        picture(named, title, others).savefig(file, format="png")
        return file.getvalue()


def picture(named: Sequence[Point], title: str, others: Sequence[Point] = ()) -> Figure:
    """Numbered marks with a key beside them; `others` are small dots without a name."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    key = [f"{number}  {_name(point.name)}" for number, point in enumerate(named, 1)]
    height = max(5.4, 1.4 + 0.2 * sum(1 + words.count("\n") for words in key))
    figure = Figure(figsize=(10.5, height), dpi=150, layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    axes = figure.subplots()
    line = front([*named, *others])
    colours = {one.place: INK for one in named} | {one.place: FRONT for one in line}
    _marks(axes, named, line, others, colours)
    _frame(axes, [*named, *others], title)
    _key(figure, axes, key, [colours[one.place] for one in named])
    canvas.draw()  # fixes the layout, and with it where marks lie
    _numbers(axes, canvas.get_renderer(), named, colours)
    return figure


def _marks(
    axes: Axes,
    named: Sequence[Point],
    line: Sequence[Point],
    others: Sequence[Point],
    colours: Mapping[Place, str],
) -> None:
    axes.plot(*_columns(others), "o", color=REST, markersize=3)
    steps: Any = {"drawstyle": "steps-post", "color": FRONT, "linewidth": 1.6}
    axes.plot(*_columns(line), **steps, label="Pareto front")
    oracle = "oracle: stops at the right one"
    axes.plot([1.0], [1.0], "*", color=ORACLE, markersize=2 * MARK, label=oracle)
    for one in named:
        axes.plot([one.cost], [one.solved], "o", color=colours[one.place], markersize=MARK - 1)


def _columns(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [one.cost for one in points], [one.solved for one in points]


def _frame(axes: Axes, points: Sequence[Point], title: str) -> None:
    costs, shares = ([1.0, *values] for values in _columns(points))
    wide, high = (max(LEAST, max(values) - min(values)) for values in (costs, shares))
    middle, bottom = (min(costs) + max(costs)) / 2, 1 - 1.12 * high
    axes.set_xlim(middle - 0.58 * wide, middle + 0.58 * wide)
    axes.set_ylim(bottom, 1 + 0.08 * high)
    axes.set_yticks([tick for tick in axes.get_yticks() if max(0, bottom) <= tick <= 1])
    axes.set_xlabel("attempts ÷ the oracle's")
    axes.set_ylabel("solved ÷ solvable")
    axes.set_title(_plain(title))
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _key(figure: Figure, axes: Axes, key: Sequence[str], colours: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    dots = [Line2D([], [], marker="o", linestyle="none", color=each) for each in colours]
    where: Any = {"loc": "outside right upper", "frameon": False}
    figure.legend([*handles, *dots], [*labels, *key], **where)


def _numbered(axes: Axes, named: Sequence[Point], apart: float) -> dict[Place, str]:
    """The numbers at each place, with those of marks that lie less than `apart` dots from it."""
    numbers: dict[Place, list[str]] = {}
    for number, one in enumerate(named, 1):
        spot = axes.transData.transform(one.place)
        near = (at for at in numbers if abs(axes.transData.transform(at) - spot).max() < apart)
        numbers.setdefault(next(near, one.place), []).append(str(number))
    return {place: fill(", ".join(every), 18) for place, every in numbers.items()}


def _numbers(
    axes: Axes, renderer: Any, named: Sequence[Point], colours: Mapping[Place, str]
) -> None:
    """Write beside each mark its number, where it covers neither marks nor other numbers."""
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    half = MARK / 2 * axes.figure.dpi / 72
    spots = [axes.transData.transform(place) for place in (*colours, (1.0, 1.0))]
    taken = [Bbox([spot - half, spot + half]) for spot in spots]
    inside = axes.get_window_extent(renderer)
    for place, numbers in _numbered(axes, named, half).items():
        look: Any = {"textcoords": "offset points", "color": colours[place]}
        text: Any = axes.annotate(numbers, place, (0, 0), **look)
        text.set(in_layout=False, path_effects=[withStroke(linewidth=3, foreground="white")])

        def crowd(where: tuple[float, float, str, str], text: Any = text) -> int:
            """How many marks and numbers the text covers there; it stays there."""
            text.xyann = where[:2]
            text.set(ha=where[2], va=where[3])
            box = text.get_window_extent(renderer)
            out = not (inside.contains(*box.min) and inside.contains(*box.max))
            covered: int = sum(map(box.overlaps, taken))
            return covered + len(taken) * out

        crowd(min(SIDES, key=crowd))
        taken.append(text.get_window_extent(renderer))


def _name(name: str) -> str:
    """A name in a few lines."""
    lines = fill(clean(name, 200), LINE, max_lines=LINES, placeholder=" …").splitlines()
    return "\n     ".join(map(_plain, lines))


def _plain(text: str) -> str:
    """Text that is not read as a formula."""
    return text.replace("$", r"\$")

"""Pictures of `replay --plot` and `proof --plot`: cost against quality, and intervals."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, filterwarnings

from heedful.cli.output import NoPictures
from heedful.lessons.proof import Comparison
from heedful.loop.feedback import clean
from heedful.loop.replay import Figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FRONT, REST, ORACLE = "#222222", "#0072B2", "#999999", "#009E73"
COLOURS = {"helps": "#009E73", "hurts": "#D55E00"}
LINE, LINES = 36, 3  # characters and lines of a name in the key
LEAST = 0.1  # shortest axis, so that nearly equal policies are not pulled apart
MARK = 8  # points across
# Where a number may stand beside its mark, in points, and its alignment. The line of the front
# leaves a mark to the right and meets it from below.
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


@contextmanager
def matplotlib_style(look: Any) -> Iterator[None]:
    """Apply a style while a picture is drawn. Raises NoPictures if matplotlib is missing."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        how = "pip install 'heedful[report]'; the table does without it"
        raise NoPictures(f"the picture needs matplotlib: {how}") from error
    with mpl.rc_context(look), catch_warnings():
        filterwarnings("ignore", "Glyph")  # a name may hold what no font has
        yield


def png(figure: Figure) -> bytes:
    """Return the figure as the bytes of a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def plain(text: str) -> str:
    """Return the text so that matplotlib does not read it as a formula."""
    return text.replace("$", r"\$")


def draw_intervals(rows: Sequence[tuple[str, Comparison]], title: str) -> bytes:
    """Draw uplifts with their intervals, the first row on top. Raises NoPictures."""
    with matplotlib_style({"font.size": 10}):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9.5, 1.2 + 0.34 * len(rows)), dpi=150, layout="constrained")
        axes = figure.subplots()
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
        axes.grid(axis="x", alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right", "left"]].set_visible(False)
        return png(figure)


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

    @property
    def place(self) -> Place:
        """Return its coordinates."""
        return (self.cost, self.solved)


def front(points: Iterable[Point]) -> list[Point]:
    """Return the points that no other point beats in both, by rising cost (Pareto)."""
    best: list[Point] = []
    for point in sorted(points, key=lambda one: (one.cost, -one.solved)):
        if not best or point.solved > best[-1].solved:
            best.append(point)
    return best


def draw_front(named: Sequence[Point], title: str, others: Sequence[Point] = ()) -> bytes:
    """Draw cost against quality as PNG. Raises NoPictures if matplotlib is missing."""
    with matplotlib_style({"font.size": 10.5, "text.color": INK}):
        return png(front_figure(named, title, others))


def front_figure(named: Sequence[Point], title: str, others: Sequence[Point] = ()) -> Figure:
    """Make numbered marks with a key beside them; `others` are small dots without a name."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    names = [
        fill(clean(point.name, 200), LINE, max_lines=LINES, placeholder=" …") for point in named
    ]
    key = [f"{n}  {plain(name)}".replace("\n", "\n     ") for n, name in enumerate(names, 1)]
    height = max(5.4, 1.4 + 0.2 * sum(1 + words.count("\n") for words in key))
    figure = Figure(figsize=(10.5, height), dpi=150, layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    axes = figure.subplots()
    line = front([*named, *others])
    colours = {one.place: INK for one in named} | {one.place: FRONT for one in line}
    axes.plot(*_columns(others), "o", color=REST, markersize=3)
    steps: Any = {"drawstyle": "steps-post", "color": FRONT, "linewidth": 1.6}
    axes.plot(*_columns(line), **steps, label="Pareto front")
    oracle = "oracle: stops at the right one"
    axes.plot([1.0], [1.0], "*", color=ORACLE, markersize=2 * MARK, label=oracle)
    for one in named:
        axes.plot([one.cost], [one.solved], "o", color=colours[one.place], markersize=MARK - 1)
    _frame(axes, [*named, *others], title)
    handles, labels = axes.get_legend_handles_labels()
    dots = [Line2D([], [], marker="o", linestyle="none", color=colours[one.place]) for one in named]
    where: Any = {"loc": "outside right upper", "frameon": False}
    figure.legend([*handles, *dots], [*labels, *key], **where)
    canvas.draw()  # fixes the layout, and with it where marks lie
    _write_numbers(axes, canvas.get_renderer(), named, colours)
    return figure


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
    axes.set_title(plain(title))
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _number(axes: Axes, named: Sequence[Point], apart: float) -> dict[Place, str]:
    """Return the numbers at each place; marks less than `apart` dots away share one place."""
    numbers: dict[Place, list[str]] = {}
    for number, one in enumerate(named, 1):
        spot = axes.transData.transform(one.place)
        near = (at for at in numbers if abs(axes.transData.transform(at) - spot).max() < apart)
        numbers.setdefault(next(near, one.place), []).append(str(number))
    return {place: fill(", ".join(every), 18) for place, every in numbers.items()}


def _write_numbers(
    axes: Axes, renderer: Any, named: Sequence[Point], colours: Mapping[Place, str]
) -> None:
    """Write each number beside its mark where it covers neither marks nor other numbers."""
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    half = MARK / 2 * axes.figure.dpi / 72
    spots = [axes.transData.transform(place) for place in (*colours, (1.0, 1.0))]
    taken = [Bbox([spot - half, spot + half]) for spot in spots]
    inside = axes.get_window_extent(renderer)
    for place, numbers in _number(axes, named, half).items():
        look: Any = {"textcoords": "offset points", "color": colours[place]}
        text: Any = axes.annotate(numbers, place, (0, 0), **look)
        text.set(in_layout=False, path_effects=[withStroke(linewidth=3, foreground="white")])

        def crowd(where: tuple[float, float, str, str], text: Any = text) -> int:
            """Move the text there, and count the marks and numbers that it covers."""
            text.xyann = where[:2]
            text.set(ha=where[2], va=where[3])
            box = text.get_window_extent(renderer)
            out = not (inside.contains(*box.min) and inside.contains(*box.max))
            covered: int = sum(map(box.overlaps, taken))
            return covered + len(taken) * out

        crowd(min(SIDES, key=crowd))
        taken.append(text.get_window_extent(renderer))

"""The report as one HTML page that loads nothing, and the learning curve in it."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.cli.run import Row
from heedful.errors import UsageError
from heedful.pages.report import visible

from .figures import (
    ALL,
    COLUMNS,
    MEMORY,
    SECOND,
    WITHOUT,
    Compared,
    Estimate,
    Measured,
    by_group,
    cells,
    points,
    sentences,
    wilson_interval,
)
from .stories import HEADS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette keeps apart for every kind of colour vision: line and mark, and a colour
# for light and for dark ground.
LINES = {
    MEMORY: ("-", "o", "#0072B2", "#56B4E9"),
    WITHOUT: ("--", "s", "#D55E00", "#E69F00"),
}
INCHES = (10.0, 4.6)
LEAST_WINDOW = 8  # the curve averages over a quarter of all tasks, but over no fewer
STORIES = {"corrected": "Corrected", "knew": "Right at once, from memory", "stopped": "Stopped"}
LESSON = {
    "lesson": "text",
    "check": "error_type",
    "state": "state",
    "seen": "seen",
    "examples": "examples",
}


def page(found: Measured, pictures: Sequence[bytes] | None) -> str:
    """Return the page; `pictures` are PNGs for light and dark ground, or None.

    Every text that a model, a task or a check wrote is escaped; control characters are shown.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    half, whole, groups = found.pooled(SECOND), found.pooled(ALL), by_group(found)
    seconds = f"{found.ran.seconds:.0f} in this run"
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    return environment.get_template("report.html").render(
        found=found,
        settings=found.settings,
        claim=_claim(half),
        families=len({row.group for row in found.ran.memory}),
        half=half,
        tiles=[
            (what, *(form.format(arm).replace("%", " %") for arm in (one.without, one.memory)))
            for what, form, one in (
                ("right at once, second half", "{0.at_once.value:.0%}", half),
                ("solved in the end, all tasks", "{0.solved.value:.0%}", whole),
                ("model calls, all tasks", "{0.calls}", whole),
                ("tokens, all tasks", "{0.tokens:,}", whole),
            )
        ],
        columns=[head if head != "arm" else "" for head in COLUMNS],
        pooled=_both_arms([(whole, half)]),
        groups=_both_arms(groups),
        sentences=list(sentences(found)),
        pictures=[Markup(b64encode(one).decode()) for one in pictures or ()],
        gains=[
            (one.group or "tasks", points(one.gain), points(later.gain), f"{later.calls.value:.2f}")
            for one, later in groups
        ],
        stories=[(kind, title, HEADS[kind]) for kind, title in STORIES.items()],
        lesson=LESSON,
        facts={**found.settings, **found.machine, "seconds": seconds},
    )


def _claim(half: Compared) -> str:
    if half.gain.covers(0):
        return "Insufficient data: memory made no difference that this run can show"
    more = "fewer" if half.gain.value < 0 else "more"
    return f"With memory {abs(round(100 * half.gain.value))} points {more} tasks right at once"


def _both_arms(groups: Iterable[tuple[Compared, Compared]]) -> list[tuple[str, ...]]:
    return [cells(*pair, arm, ",") for pair in groups for arm in (WITHOUT, MEMORY)]


def rolling(rows: Sequence[Row], last: int) -> list[Estimate]:
    """Return for each task the share right at once among the `last` tasks up to it."""
    at_once = [row.at_once for row in rows]
    recent = (at_once[max(0, end - last) : end] for end in range(1, len(rows) + 1))
    return [wilson_interval(sum(some), len(some)) for some in recent]


class NoPictures(UsageError):
    """matplotlib is not installed."""


def draw(arms: Mapping[str, Sequence[Row]], title: str, *, dark: bool = False) -> bytes:
    """Draw the learning curve as PNG. Raises NoPictures if matplotlib is missing."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        how = "pip install 'heedful[report]'; table and report do without it"
        raise NoPictures(f"the picture needs matplotlib: {how}") from error
    ink, paper = ("#e6e6e6", "#16181d") if dark else ("#222222", "#ffffff")
    keys = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    look: Any = {**dict.fromkeys(keys, ink), "axes.facecolor": paper, "font.size": 10.5}
    with mpl.rc_context(look):
        figure = Figure(figsize=INCHES, layout="constrained", facecolor=paper)
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        _curve(left, arms, dark)
        _calls(right, arms, dark)
        figure.suptitle(title.replace("$", r"\$"), fontsize=13, color=ink)
        names, labels = left.get_legend_handles_labels()
        figure.legend(names, labels, loc="outside lower center", ncols=2, frameon=False)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=160)
        return file.getvalue()


def _curve(axes: Axes, arms: Mapping[str, Sequence[Row]], dark: bool) -> None:
    tasks = max((len(rows) for rows in arms.values()), default=0)
    last = max(LEAST_WINDOW, tasks // 4)
    for level, (name, rows) in enumerate(arms.items()):
        line, mark, colour = LINES[name][0], LINES[name][1], LINES[name][2 + dark]
        found, x = rolling(rows, last), range(1, len(rows) + 1)
        lows, highs = [100 * one.low for one in found], [100 * one.high for one in found]
        axes.fill_between(x, lows, highs, color=colour, alpha=0.16, linewidth=0)
        values = [100 * one.value for one in found]
        axes.plot(x, values, line, color=colour, linewidth=2.2, label=name)
        right = [n for n, row in enumerate(rows, 1) if row.at_once]
        height = 111 - 6 * level
        if right:  # an empty line that is not clipped would push the margins out
            marks = [height] * len(right)
            axes.plot(right, marks, mark, color=colour, markersize=3.2, clip_on=False)
    axes.set(xlim=(1, max(2, tasks)), ylim=(-3, 115), xlabel="task number")
    axes.set_yticks(range(0, 101, 20), [f"{n} %" for n in range(0, 101, 20)])
    axes.set_ylabel(f"right at once, of the last {last} tasks")
    axes.set_title("Band: 95 % interval; marks on top: every task right at once", fontsize=10.5)
    _finish(axes)


def _calls(axes: Axes, arms: Mapping[str, Sequence[Row]], dark: bool) -> None:
    for name, rows in arms.items():
        line, colour = LINES[name][0], LINES[name][2 + dark]
        sums = [0, *accumulate(row.calls for row in rows)]
        axes.plot(range(len(sums)), sums, line, color=colour, linewidth=2.2, label=name)
        end, at = (len(sums) - 1, sums[-1]), (5, -4)
        axes.annotate(str(sums[-1]), end, at, textcoords="offset points", color=colour)
    axes.set(xlabel="task number", ylabel="model calls so far")
    axes.set_title("Model calls, retries included", fontsize=10.5)
    tasks = max((len(rows) for rows in arms.values()), default=0)
    axes.set_xlim(0, max(1, 1.14 * tasks))
    axes.set_ylim(bottom=0)
    _finish(axes)


def _finish(axes: Axes) -> None:
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)

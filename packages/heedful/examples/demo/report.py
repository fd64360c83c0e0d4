"""The report as one HTML page that loads nothing, and the learning curve in it."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import ceil, floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.cli.run import TaskResult
from heedful.errors import UsageError, install_line
from heedful.pages.run_report import environment

from .figures import (
    ALL,
    COLUMNS,
    MEMORY,
    RUNS,
    SECOND,
    WITHOUT,
    Compared,
    Estimate,
    Measured,
    both_arms,
    by_group,
    points,
    sentences,
    wilson_interval,
    word_compared,
)
from .stories import HEADS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette keeps apart for every kind of colour vision.
LINES = {MEMORY: ("-", "|", "#0072B2"), WITHOUT: ("--", "|", "#D55E00")}
MARKS_HEIGHT = 1.11  # where the marks of right first tries stand, above the share of 1
MARKS_DISTANCE = 0.06  # between the marks of the two arms
INCHES = (11.0, 4.6)
MIN_AXIS_ROOM = 0.2  # of a step, between a cut axis and the least value
MIN_WINDOW_TASKS = 8  # the curve averages over a quarter of all tasks, but no fewer
STORIES = {
    "corrected": "Corrected",
    "knew": "Right at the first try, from memory",
    "stopped": "Stopped",
}
LESSON_FIELDS = {  # by the heads of the columns
    "lesson": "text",
    "check": "error_type",
    "state": "state",
    "seen": "seen",
    "examples": "examples",
}


def page(measured: Measured) -> str:
    """Return the page, with the look of the reports and pages of heedful.

    Every text that a model, a task or a check wrote is escaped; control characters are
    shown.
    """
    from jinja2 import BaseLoader, ChoiceLoader, FileSystemLoader

    half = measured.pooled(SECOND)
    all_tasks = measured.pooled(ALL)
    words = word_compared(half)
    groups = by_group(measured)
    seconds = f"{measured.ran.seconds:.0f} in this run"
    gains = []
    for group, group_half in groups:
        name = group.group or "tasks"
        calls = f"{group_half.calls.value:.2f}"
        gains.append((name, points(group.gain), points(group_half.gain), calls))
    lessons = [
        [lesson.get(key, "") for key in LESSON_FIELDS.values()]
        for lesson in measured.lessons
    ]
    shared = environment()
    loaders: list[BaseLoader] = [FileSystemLoader(Path(__file__).parent)]
    if shared.loader is not None:
        loaders.append(shared.loader)
    files = shared.overlay(loader=ChoiceLoader(loaders))
    return files.get_template("demo.html.j2").render(
        found=measured,
        settings=measured.settings,
        sentence=words.sentence,
        figure=words.figure,
        conclusion=_conclusion(half),
        families=len({row.group for row in measured.ran.memory}),
        half=half,
        tiles=_tiles(all_tasks, half),
        arms=RUNS,
        columns=COLUMNS,
        pooled=both_arms([(all_tasks, half)], ","),
        groups=both_arms(groups, ","),
        sentences=list(sentences(measured)),
        curves=curves({MEMORY: measured.ran.memory, WITHOUT: measured.ran.without}),
        gains=gains,
        stories=[(kind, title, HEADS[kind]) for kind, title in STORIES.items()],
        lesson=list(LESSON_FIELDS),
        lessons=lessons,
        facts={**measured.settings, **measured.machine, "seconds": seconds},
    )


def _tiles(all_tasks: Compared, half: Compared) -> list[tuple[str, str, str]]:
    """Return the figures on top of the page: what, without memory, with memory."""

    def show(share: Estimate) -> str:
        return f"{100 * share.value:.0f} %"

    without = all_tasks.without
    memory = all_tasks.memory
    return [
        (
            "first try right, second half",
            show(half.without.at_once),
            show(half.memory.at_once),
        ),
        ("solved in the end, all tasks", show(without.solved), show(memory.solved)),
        ("model calls, all tasks", str(without.calls), str(memory.calls)),
        ("tokens, all tasks", f"{without.tokens:,}", f"{memory.tokens:,}"),
    ]


def _conclusion(half: Compared) -> str:
    """Return the word of a proof for what both arms show."""
    if half.gain.covers(0):
        return "insufficient data"
    return "hurts" if half.gain.value < 0 else "helps"


def rolling(rows: Sequence[TaskResult], last: int) -> list[Estimate]:
    """Return for each task the share of right first tries among the `last` tasks up to
    it.
    """
    shares = []
    for end in range(1, len(rows) + 1):
        window = rows[max(0, end - last) : end]
        right = sum(1 for row in window if row.at_once)
        shares.append(wilson_interval(right, len(window)))
    return shares


def curves(
    arms: Mapping[str, Sequence[TaskResult]],
) -> list[tuple[str, dict[str, Any]]]:
    """Return two drawings with titles: the share of right first tries, and the model
    calls so far.
    """
    tasks = max((len(rows) for rows in arms.values()), default=0)
    last = max(MIN_WINDOW_TASKS, tasks // 4)
    shares = []
    calls = []
    most_calls = [0, 1]
    for level, (name, rows) in enumerate(arms.items()):
        estimates = list(enumerate(rolling(rows, last), 1))
        height = MARKS_HEIGHT - MARKS_DISTANCE * level
        sums = list(enumerate([0, *accumulate(row.calls for row in rows)]))
        _, total = sums[-1]
        most_calls.append(total)
        shares.append(
            {
                "kind": RUNS[name],
                "points": [(number, share.value) for number, share in estimates],
                "band": [
                    (number, share.low, share.high) for number, share in estimates
                ],
                "marks": [
                    (number, height)
                    for number, row in enumerate(rows, 1)
                    if row.at_once
                ],
                "end": "",
            }
        )
        calls.append(
            {
                "kind": RUNS[name],
                "points": sums,
                "band": (),
                "marks": (),
                "end": str(total),
            }
        )
    x = axis("task number", [0, max(1, tasks)])
    share_axis = {
        "label": f"first try right, of the last {last} tasks",
        "low": 0.0,
        "high": MARKS_HEIGHT + 0.04,
        "cut": False,
        "ticks": [(percent / 100, f"{percent} %") for percent in range(0, 101, 20)],
    }
    calls_axis = axis("model calls so far", most_calls)
    return [
        (
            "Band: 95 % interval; marks on top: every task with a right first try",
            {"x": x, "y": share_axis, "lines": shares},
        ),
        (
            "Model calls, retries included",
            {"x": x, "y": calls_axis, "lines": calls},
        ),
    ]


class NoPictures(UsageError):
    """matplotlib is not installed."""


def draw(arms: Mapping[str, Sequence[TaskResult]], finding: str, title: str) -> bytes:
    """Draw the learning curve as PNG, below what it shows.

    Raises NoPictures if matplotlib is missing.
    """
    # What it logs about its fonts and its cache is no part of the results.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NoPictures(f"no picture: {install_line('report')}") from error
    with mpl.rc_context({"font.size": 10.5}):
        figure = Figure(figsize=INCHES, layout="constrained")
        axes = figure.subplots(1, 2, width_ratios=(3, 2))
        for place, (title_of_curve, chart) in zip(axes, curves(arms), strict=True):
            _draw_curve(place, chart, list(arms))
            place.set_title(title_of_curve, fontsize=10.5)
        words = f"{finding}\n{title}".replace("$", r"\$")
        figure.suptitle(words, fontsize=12)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=160)
        return file.getvalue()


def _draw_curve(place: Axes, chart: Mapping[str, Any], names: Sequence[str]) -> None:
    """Draw the lines of one of the `curves`, with their bands, marks and texts."""
    for curve, name in zip(chart["lines"], names, strict=True):
        style, mark, color = LINES[name]
        xs, ys = zip(*curve["points"], strict=True)
        # A line along the axis is not half hidden by it.
        place.plot(xs, ys, style, color=color, linewidth=2.2, clip_on=False)
        if curve["band"]:
            xs, lows, highs = zip(*curve["band"], strict=True)
            place.fill_between(xs, lows, highs, color=color, alpha=0.16, linewidth=0)
        if curve["marks"]:
            xs, ys = zip(*curve["marks"], strict=True)
            place.plot(xs, ys, mark, color=color, markersize=3.2)
        label = name
        if curve["end"]:
            label += f"\n{curve['end']} calls"
        place.annotate(
            label,
            curve["points"][-1],
            (7, -4),
            textcoords="offset points",
            annotation_clip=False,
            color=color,
        )
    x = chart["x"]
    y = chart["y"]
    place.set(xlim=(x["low"], x["high"]), ylim=(y["low"], y["high"]))
    place.set(xlabel=x["label"], ylabel=y["label"])
    place.set_xticks(*zip(*x["ticks"], strict=True))
    place.set_yticks(*zip(*y["ticks"], strict=True))
    place.grid(alpha=0.25, linewidth=0.6)
    place.spines[["top", "right"]].set_visible(False)


def axis(label: str, values: Sequence[float]) -> dict[str, Any]:
    """Return an axis that contains all `values`; its ticks are round, with texts.

    If it does not begin at 0, it is `cut`, and its label says where it begins.
    """
    # The smallest of 1, 2, 5 and 10 times a power of ten with at most 6 steps.
    span = max(values) - min(values) or 0.1
    power = 10 ** floor(log10(span / 4))
    steps = [power * factor for factor in (1, 2, 5, 10)]
    step = next(step for step in steps if span / step <= 6)

    # Ticks are multiples of the step, at least two even if all values are equal.
    first = floor(min(values) / step)
    # Where an axis is cut, a mark stands; a value so near would be drawn over it.
    if first > 0 and min(values) < (first + MIN_AXIS_ROOM) * step:
        first -= 1
    last = max(ceil(max(values) / step), first + 1)
    digits = max(0, ceil(-log10(step)))
    ticks = [(n * step, f"{n * step:.{digits}f}") for n in range(first, last + 1)]
    if first > 0:
        label += f" (begins at {ticks[0][1]})"
    return {
        "label": label,
        "low": first * step,
        "high": last * step,
        "ticks": ticks,
        "cut": first > 0,
    }

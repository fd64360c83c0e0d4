"""The report as one HTML page that loads nothing, and the learning curve in it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.cli.run import TaskResult
from heedful.errors import UsageError
from heedful.pages.report import axis, environment

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
    by_group,
    cells,
    points,
    sentences,
    wilson_interval,
)
from .stories import HEADS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette keeps apart for every kind of colour vision.
LINES = {MEMORY: ("-", "o", "#0072B2"), WITHOUT: ("--", "s", "#D55E00")}
TOP = 1.11  # where the marks of tasks right at once stand, above the share of 1
INCHES = (10.0, 4.6)
LEAST_WINDOW = 8  # the curve averages over a quarter of all tasks, but over no fewer
STORIES = {
    "corrected": "Corrected",
    "knew": "Right at once, from memory",
    "stopped": "Stopped",
}
LESSON = {
    "lesson": "text",
    "check": "error_type",
    "state": "state",
    "seen": "seen",
    "examples": "examples",
}


def page(found: Measured) -> str:
    """Return the page, with the look of the reports and pages of heedful.

    Every text that a model, a task or a check wrote is escaped; control characters are
    shown.
    """
    from jinja2 import ChoiceLoader, FileSystemLoader

    half = found.pooled(SECOND)
    whole = found.pooled(ALL)
    groups = by_group(found)
    seconds = f"{found.ran.seconds:.0f} in this run"
    shared = environment(True)
    loaders = [FileSystemLoader(Path(__file__).parent), shared.loader]
    files = shared.overlay(loader=ChoiceLoader([one for one in loaders if one]))
    return files.get_template("demo.html.j2").render(
        found=found,
        settings=found.settings,
        claim=_claim(half),
        families=len({row.group for row in found.ran.memory}),
        half=half,
        tiles=[
            (
                what,
                *(
                    form.format(arm).replace("%", " %")
                    for arm in (one.without, one.memory)
                ),
            )
            for what, form, one in (
                ("right at once, second half", "{0.at_once.value:.0%}", half),
                ("solved in the end, all tasks", "{0.solved.value:.0%}", whole),
                ("model calls, all tasks", "{0.calls}", whole),
                ("tokens, all tasks", "{0.tokens:,}", whole),
            )
        ],
        arms=RUNS,
        columns=COLUMNS,
        pooled=_both_arms([(whole, half)]),
        groups=_both_arms(groups),
        sentences=list(sentences(found)),
        curves=curves({MEMORY: found.ran.memory, WITHOUT: found.ran.without}),
        gains=[
            (
                one.group or "tasks",
                points(one.gain),
                points(later.gain),
                f"{later.calls.value:.2f}",
            )
            for one, later in groups
        ],
        stories=[(kind, title, HEADS[kind]) for kind, title in STORIES.items()],
        lesson=list(LESSON),
        lessons=[
            [one.get(key, "") for key in LESSON.values()] for one in found.lessons
        ],
        facts={**found.settings, **found.machine, "seconds": seconds},
    )


def _claim(half: Compared) -> str:
    if half.gain.covers(0):
        return "Insufficient data: memory made no difference that this run can show"
    more = "fewer" if half.gain.value < 0 else "more"
    return (
        f"With memory {abs(round(100 * half.gain.value))} points {more} tasks right "
        "at once"
    )


def _both_arms(groups: Iterable[tuple[Compared, Compared]]) -> list[tuple[str, ...]]:
    return [cells(*pair, arm, ",") for pair in groups for arm in (WITHOUT, MEMORY)]


def rolling(rows: Sequence[TaskResult], last: int) -> list[Estimate]:
    """Return for each task the share right at once among the `last` tasks up to it."""
    at_once = [row.at_once for row in rows]
    recent = (at_once[max(0, end - last) : end] for end in range(1, len(rows) + 1))
    return [wilson_interval(sum(some), len(some)) for some in recent]


def curves(
    arms: Mapping[str, Sequence[TaskResult]],
) -> list[tuple[str, dict[str, Any]]]:
    """Return two drawings with titles: the share right at once, and the model calls so
    far.
    """
    tasks = max((len(rows) for rows in arms.values()), default=0)
    last = max(LEAST_WINDOW, tasks // 4)
    shares = list[dict[str, Any]]()
    calls = list[dict[str, Any]]()
    for level, (name, rows) in enumerate(arms.items()):
        found = list(enumerate(rolling(rows, last), 1))
        share = {
            "kind": RUNS[name],
            "points": [(n, one.value) for n, one in found],
            "end": "",
        }
        share["band"] = [(n, one.low, one.high) for n, one in found]
        share["marks"] = [
            (n, TOP - 0.06 * level) for n, row in enumerate(rows, 1) if row.at_once
        ]
        sums = list(enumerate([0, *accumulate(row.calls for row in rows)]))
        shares.append(share)
        calls.append(
            {**share, "points": sums, "band": (), "marks": (), "end": str(sums[-1][1])}
        )
    x = axis("task number", [0, max(1, tasks)])
    levels = range(0, 101, 20)
    y = {
        "label": f"right at once, of the last {last} tasks",
        "low": 0.0,
        "high": TOP + 0.04,
    }
    y["ticks"] = [(n / 100, f"{n} %") for n in levels]
    most = [point[1] for one in calls for point in one["points"]]
    spent = {"x": x, "y": axis("model calls so far", [0, 1, *most]), "lines": calls}
    about = "Band: 95 % interval; marks on top: every task right at once"
    return [
        (about, {"x": x, "y": y, "lines": shares}),
        ("Model calls, retries included", spent),
    ]


class NoPictures(UsageError):
    """matplotlib is not installed."""


def draw(arms: Mapping[str, Sequence[TaskResult]], title: str) -> bytes:
    """Draw the learning curve as PNG. Raises NoPictures if matplotlib is missing."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        how = "pip install 'heedful[report]'; table and report do without it"
        raise NoPictures(f"the picture needs matplotlib: {how}") from error
    with mpl.rc_context({"font.size": 10.5}):
        figure = Figure(figsize=INCHES, layout="constrained")
        for place, (about, chart) in zip(
            figure.subplots(1, 2, width_ratios=(3, 2)), curves(arms), strict=True
        ):
            _draw_curve(place, chart, list(arms))
            place.set_title(about, fontsize=10.5)
        figure.suptitle(title.replace("$", r"\$"), fontsize=13)
        names, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(names, labels, loc="outside lower center", ncols=2, frameon=False)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=160)
        return file.getvalue()


def _draw_curve(place: Axes, chart: Mapping[str, Any], names: Sequence[str]) -> None:
    """Draw the lines of one of the `curves`, with their bands, marks and texts."""
    for one, name in zip(chart["lines"], names, strict=True):
        line, mark, color = LINES[name]
        place.plot(
            *zip(*one["points"], strict=True),
            line,
            color=color,
            linewidth=2.2,
            label=name,
        )
        if one["band"]:
            at, lows, highs = zip(*one["band"], strict=True)
            place.fill_between(at, lows, highs, color=color, alpha=0.16, linewidth=0)
        if one["marks"]:
            place.plot(
                *zip(*one["marks"], strict=True), mark, color=color, markersize=3.2
            )
        end = one["points"][-1]
        apart = (5, -4)
        place.annotate(one["end"], end, apart, textcoords="offset points", color=color)
    x = chart["x"]
    y = chart["y"]
    place.set(xlim=(x["low"], x["high"]), ylim=(y["low"], y["high"]))
    place.set(xlabel=x["label"], ylabel=y["label"])
    place.set_xticks(*zip(*x["ticks"], strict=True))
    place.set_yticks(*zip(*y["ticks"], strict=True))
    place.grid(alpha=0.25, linewidth=0.6)
    place.spines[["top", "right"]].set_visible(False)

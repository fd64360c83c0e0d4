"""The tables and the picture of `learn`, for the docs.

`python -m bench.quality.learn_page` reads `bench/out/learn.json` and writes, for each
model in it, a table between the two marks in docs/appendix/benchmarks.md, and the
picture beside it. Won and lost stand beside every gain. With `arms`, it writes only the
table of a plain memory and of retries without one, from a run of one order.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bench import page
from bench.quality.learn import HALVES, OURS, OUT, RIVAL
from bench.quality.learn_plan import PLAIN
from bench.quality.streams import CORRECTED, OPEN, RULES

COLUMNS = (PLAIN, RIVAL, OURS)
ARM_MEASURES = (
    ("first", "Of all tasks, right at the first try"),
    ("solved", "Of all tasks, solved within three attempts"),
)
RETRIES = "retries"
TRIAL = "trial"
OVER = f"{OURS}_over_{RIVAL}"
GAIN = f"{OVER}.second_half"
INCHES = (8.0, 4.4)
COLORS = {True: "#0072B2", False: "#666666"}  # of a gain above 0 for sure, and others
Report = Mapping[str, Any]


def main() -> None:
    """Write the tables and the picture.

    Raises SystemExit if no run has left its figures.
    """
    reports = page.read_report(OUT, "make learn DATA=folder")
    if sys.argv[1:] == ["arms"]:
        report = next(iter(reports.values()))
        page.write_text(
            "arms",
            "\n".join(
                arms_table(report, measure, title) for measure, title in ARM_MEASURES
            ),
        )
        return

    text = "\n".join(table(size, report) for size, report in reports.items())
    picture = draw(next(iter(reports.values())))
    page.write_section("learn", text, picture, "learning_public.png")


def table(size: str, report: Report) -> str:
    """Return the table of a model in Markdown: a row for each stream and each pool."""
    heads = [
        "stream",
        "tasks",
        "nothing",
        "nearest answers",
        "heedful",
        "heedful over nearest",
        "in file order",
        "in reverse",
        "won",
        "lost",
        "nearest answers: lost to nothing",
        "heedful: lost to nothing",
    ]
    lines = [
        f"Right at the first try in second halves, by {report['model']}:",
        "",
        *page.head(heads),
    ]
    gains = report["gains"]
    for name in report["streams"]:
        arms = report["streams"][name]
        shares = [f"{arms[arm]['second_half']:.3f}" for arm in COLUMNS]
        losses = [
            f"{gains[name][f'{arm}_over_{PLAIN}.second_half']['lost']}"
            for arm in (RIVAL, OURS)
        ]
        tasks = f"{gains[name][GAIN]['tasks']}"
        lines.append(_row([name, tasks, *shares], gains, name, losses))
    for pool in (OPEN, CORRECTED):
        if pool in gains:
            tasks = f"{gains[pool][GAIN]['tasks']}"
            cells = [f"**{pool_title(report, pool)}**", tasks, "", "", ""]
            lines.append(_row(cells, gains, pool, ["", ""]))
    return "\n".join([*lines, ""])


def arms_table(report: Report, measure: str, title: str) -> str:
    """Return what each arm does in all tasks, in Markdown: a row for each stream."""
    heads = [
        "stream",
        "no memory",
        "answers as texts",
        "nearest answers",
        "heedful",
        "heedful over no memory",
        "heedful over texts",
    ]
    rows = []
    for name, arms in report["streams"].items():
        gains = report["gains"][name]
        shares = [arms[arm][measure] for arm in (RETRIES, TRIAL, RIVAL, OURS)]
        cells = [name, *(f"{share:.3f}" for share in shares)]
        cells += [
            _say_gain(gains[f"{OURS}_over_{rival}.{measure}"])
            for rival in (RETRIES, TRIAL)
        ]
        rows.append(cells)
    return f"{title}:\n\n{page.table(heads, rows)}\n"


def pool_title(report: Report, pool: str) -> str:
    """Return the names of the streams that are averaged."""
    names = [
        name
        for name in report["streams"]
        if name != RULES and name.endswith(CORRECTED) == (pool == CORRECTED)
    ]
    return f"{', '.join(names)}, alike"


def _row(cells: Sequence[str], gains: Report, name: str, losses: Sequence[str]) -> str:
    gain = gains[name][GAIN]
    halves = [gains[name][f"{OVER}.{half}"] for half in HALVES]
    figures = [_say_gain(part) for part in filter(None, (gain, *halves))]
    figures += [""] * (1 + len(halves) - len(figures))
    counts = [f"{gain['won']}", f"{gain['lost']}"]
    return page.row([*cells, *figures, *counts, *losses])


def _say_gain(gain: Report) -> str:
    words = f"{gain['gain']:+.3f} ({gain['low']:+.3f} to {gain['high']:+.3f})"
    return words.replace("-", "−").replace("+0.000", "0.000")


def draw(report: Report) -> bytes:
    """Return a PNG: each stream's gain over the nearest answers, with its interval.

    Won and lost stand beside each of them.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    gains = [
        (name, report["gains"][name][GAIN])
        for name in (*report["streams"], OPEN)
        if name in report["gains"]
    ]
    with mpl.rc_context({"font.size": 10.0}):
        figure = Figure(figsize=INCHES, layout="constrained")
        axes = figure.subplots()
        axes.axvline(0, color="#999999", linewidth=1)
        for place, (name, gain) in enumerate(reversed(gains)):
            points = 100 * gain["gain"]
            ends = [[points - 100 * gain["low"]], [100 * gain["high"] - points]]
            axes.errorbar(
                [points],
                [place],
                xerr=ends,
                fmt="D" if name == OPEN else "o",
                color=COLORS[gain["low"] > 0],
                capsize=3,
            )
            axes.annotate(
                f"won {gain['won']}, lost {gain['lost']}",
                (1.01, place),
                xycoords=("axes fraction", "data"),
                va="center",
            )
        title = pool_title(report, OPEN)
        names = [title if name == OPEN else name for name, _ in gains]
        axes.set_yticks(range(len(gains)), list(reversed(names)))
        axes.set_xlabel("points right at the first try over the three nearest answers")
        axes.set_title("Second halves of streams: heedful over the nearest answers")
        axes.spines[["top", "right"]].set_visible(False)
        return page.png(figure)


if __name__ == "__main__":
    main()

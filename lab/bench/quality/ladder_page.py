"""The tables and the picture of `ladder`, for the README and the docs.

`python -m bench.quality.ladder_page` reads `bench/out/ladder.json` and writes its
tables between the two marks in docs/appendix/benchmarks.md, and the picture beside it.
A stream on which the large model solves less than `MIN_GAIN` more is told as one on
which a ladder cannot help.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

from bench import page
from bench.quality.ladder import ALONE, MIN_GAIN, OUT, QUARTERS

INCHES = (8.0, 3.6)
ARMS = (
    "small",
    "small_ours",
    "large",
    "large_ours",
    "ladder",
    "ladder_nearest",
    "ladder_ours",
)
LINES = {
    "ladder_ours": ("ladder with memory", "#0072B2"),
    "ladder": ("ladder without memory", "#D55E00"),
    "large_ours": ("large model with memory", "#666666"),
}
GAINS = {
    "ladder_ours_over_ladder.alone": "solved without a climb: `ladder_ours` over "
    "`ladder`",
    "ladder_ours_over_ladder.alone_last_quarter": "the same, last quarter",
    "ladder_ours_over_ladder.solved": "solved: `ladder_ours` over `ladder`",
    "ladder_ours_over_large_ours.solved": "solved: `ladder_ours` over `large_ours`",
    "ladder_ours_over_ladder_nearest.solved": "solved: `ladder_ours` over "
    "`ladder_nearest`",
}
RATIOS = {
    "ladder_ours_over_large_ours.cost_ratio": "cost in second halves: `ladder_ours` "
    "over `large_ours`",
    "ladder_ours_over_ladder_nearest.cost_ratio": "cost in second halves: "
    "`ladder_ours` over `ladder_nearest`",
}
Report = Mapping[str, Any]


def main() -> None:
    """Write the tables and the picture.

    Raises SystemExit if no run has left its figures.
    """
    report = page.read_report(OUT, "make quality ONLY=ladder DATA=folder")
    parts = [*help_table(report), "", *arm_table(report), "", *gain_table(report)]
    text = "\n".join(parts).replace("-0", "−0").replace("+0.000", "0.000")
    page.write_section("ladder", text, draw(report), "ladder_public.png")


def streams_of(report: Report, arms: Collection[str]) -> list[str]:
    """Return the streams on which all of these arms have run."""
    figures = report["figures"].items()
    return [
        name
        for name, of_arms in figures
        if name != "open" and set(arms) <= set(of_arms)
    ]


HELP_HEADS = (
    "stream",
    "tasks",
    "right at the first try, 0.5B",
    "1.5B",
    "solved, 0.5B",
    "1.5B",
    "1.5B over 0.5B",
    "a ladder can help",
)
ARM_HEADS = ("stream", "arm", "solved", "cost a task")


def help_table(report: Report) -> Iterator[str]:
    """Yield a row for each stream: whether the large model alone solves more."""
    yield from page.head(HELP_HEADS)
    for name in streams_of(report, ALONE):
        small = report["figures"][name]["small"]
        large = report["figures"][name]["large"]
        shares = [small["first"], large["first"], small["solved"], large["solved"]]
        gain = report["gains"][f"{name}.large_over_small.solved"]
        cells = [name, f"{small['tasks']:.0f}", *map(_share, shares), _interval(gain)]
        can_help = "yes" if gain["gain"] >= MIN_GAIN else "no"
        yield page.row([*cells, can_help])


def arm_table(report: Report) -> Iterator[str]:
    """Yield a row for each stream and arm: what it solves and costs."""
    yield from page.head(ARM_HEADS)
    for name in streams_of(report, LINES):
        for arm in ARMS:
            figures = report["figures"][name].get(arm)
            if figures is None:
                continue
            cost = f"{figures['cost']:.0f}"
            yield page.row([name, arm, _share(figures["solved"]), cost])


def gain_table(report: Report) -> Iterator[str]:
    """Yield a row for each comparison: its figure on each stream."""
    names = streams_of(report, LINES)
    groups = [*names, "open"] if len(names) > 1 else names
    titles = ["all, alike" if name == "open" else name for name in groups]
    yield from page.head(["figure, with its 95 % interval", *titles])
    for titles_by_key, cell in ((GAINS, _interval), (RATIOS, _ratio)):
        for key, title in titles_by_key.items():
            figures = [report["gains"].get(f"{name}.{key}") for name in groups]
            if any(figures):
                yield page.row([title, *map(cell, figures)])


def _share(share: float) -> str:
    return f"{share:.3f}"


def _interval(gain: Mapping[str, float] | None) -> str:
    if gain is None:
        return ""
    return f"{gain['gain']:+.3f} ({gain['low']:+.3f} to {gain['high']:+.3f})"


def _ratio(ratio: Mapping[str, float] | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio['ratio']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def draw(report: Report) -> bytes:
    """Return a PNG: what the small model answers alone, and the cost, by quarter."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    names = streams_of(report, LINES)
    with mpl.rc_context({"font.size": 10.0}):
        figure = Figure(figsize=INCHES, layout="constrained")
        share_axes, cost_axes = figure.subplots(1, 2)
        for arm, (title, color) in LINES.items():
            if arm != "large_ours":
                shares = _means(report, names, arm, "alone")
                share_axes.plot(
                    _places(), [100 * share for share in shares], "o-", c=color
                )
            costs = _means(report, names, arm, "cost")
            cost_axes.plot(_places(), costs, "o-", c=color, label=title)
        share_axes.set_title("Answered by the small model alone, %", fontsize=10)
        cost_axes.set_title("Cost of a task, in tokens of the small model", fontsize=10)
        share_axes.set_ylim(0, 100)
        cost_axes.set_ylim(0)
        for axes in (share_axes, cost_axes):
            axes.set_xticks(_places())
            axes.set_xlabel("quarter of the stream")
            axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
        figure.suptitle(f"0.5B, then 1.5B: mean of {', '.join(names)}", fontsize=11)
        return page.png(figure)


def _places() -> range:
    return range(1, QUARTERS + 1)


def _means(report: Report, names: Sequence[str], arm: str, measure: str) -> list[float]:
    figures = [report["figures"][name][arm] for name in names]
    keys = [f"{measure}_quarter_{n}" for n in _places()]
    return [mean(of_stream[key] for of_stream in figures) for key in keys]


if __name__ == "__main__":
    main()

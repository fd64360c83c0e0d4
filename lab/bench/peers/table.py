"""The measurements of a run as one table, as figures with targets, and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.page import head, png, row
from bench.peers.environments import OURS, Environment
from bench.peers.measure import Measurement
from bench.rows import Figure

# The least ratio of the fastest cycles, the peer's to ours, by peer and kind of work.
TARGETS: Mapping[tuple[str, str], float] = {
    ("langgraph", "cycle"): 20.0,
    ("langgraph", "durable"): 9.0,
    ("langgraph", "together"): 18.0,
    ("instructor", "cycle"): 8.0,
}
TIMED = {
    "cycle": "cycle in process",
    "durable": "durable cycle",
    "together": "durable cycle, 64 at once",
}
FASTEST = "cycle_fastest_ms"
NOTHING = "–"


@dataclass(frozen=True)
class Results:
    """The measurements of a run, looked up by peer, kind of work and figure."""

    measurements: Sequence[Measurement]

    def select(self, peer: str, kind: str, figure: str) -> list[Measurement]:
        """Return a figure in each round that has it."""
        return [
            measurement
            for measurement in self.measurements
            if measurement.peer == peer
            and measurement.kind == kind
            and measurement.figure == figure
        ]

    def rounds(self, peer: str, kind: str, figure: str) -> dict[int, float]:
        """Return the values of a figure by round."""
        selected = self.select(peer, kind, figure)
        return {measurement.round: measurement.value for measurement in selected}

    def value(self, peer: str, kind: str, figure: str) -> float | None:
        """Return the median of the rounds, None without any."""
        values = self.rounds(peer, kind, figure).values()
        return median(values) if values else None

    def least(self, peer: str, kind: str, figure: str) -> float | None:
        """Return the smallest value of the rounds, None without any."""
        return min(self.rounds(peer, kind, figure).values(), default=None)

    def has_failed(self, peer: str, kind: str) -> bool:
        """Whether this work failed in any round."""
        return bool(self.select(peer, kind, "failed"))

    def ratio(self, peer: str, kind: str, figure: str = FASTEST) -> float | None:
        """Return the median of the peer's time divided by ours, round by round."""
        ours = self.rounds(OURS.name, kind, figure)
        theirs = self.rounds(peer, kind, figure)
        ratios = [theirs[number] / ours[number] for number in theirs if number in ours]
        return median(ratios) if ratios else None


def figures(results: Results, peers: Mapping[str, str]) -> Iterator[Figure]:
    """Yield the times of the loops and their ratios, with the targets."""
    for kind, name in TIMED.items():
        for peer, title in peers.items():
            milliseconds = results.value(peer, kind, FASTEST)
            ratio = results.ratio(peer, kind)
            if milliseconds is None or ratio is None:
                continue
            yield Figure(name=f"{name}: {title}", value=milliseconds, unit="ms")
            if peer != OURS.name:
                yield Figure(
                    name=f"{name}: {title} ÷ heedful",
                    value=ratio,
                    unit="×",
                    least=TARGETS.get((peer, kind)),
                )


# A cell is the text of one figure of one peer, "" where the peer has none.
Cell = Callable[[Results, str], str]
Choose = Callable[[Results, str, str, str], float | None]


def show(number: float) -> str:
    """Write a number with three significant digits, and thousands with commas."""
    if number >= 1_000:
        return f"{number:,.0f}"
    return f"{number:.3g}"


def time_cell(kind: str, figure: str = FASTEST) -> Cell:
    """Return the cell of a time, with its ratio to ours."""

    def write(results: Results, peer: str) -> str:
        milliseconds = results.value(peer, kind, figure)
        ratio = results.ratio(peer, kind, figure)
        if milliseconds is None:
            return ""
        if ratio is None or peer == OURS.name:
            return show(milliseconds)
        return f"{show(milliseconds)} ({show(ratio)} ×)"

    return write


def number_cell(
    kind: str,
    figure: str,
    *,
    unit: float = 1.0,
    choose: Choose = Results.value,
) -> Cell:
    """Return the cell of a figure, divided by its unit.

    `choose` returns one value of those of the rounds.
    """

    def write(results: Results, peer: str) -> str:
        value = choose(results, peer, kind, figure)
        return "" if value is None else show(value / unit)

    return write


def kills_cell(results: Results, peer: str) -> str:
    """Write how many acknowledged writes were lost, of how many."""
    lost = results.value(peer, "write", "lost")
    acknowledged = results.value(peer, "write", "acknowledged")
    if lost is None or acknowledged is None:
        return ""
    return f"{show(lost)} of {show(acknowledged)}"


ROWS: Mapping[str, tuple[str, Cell]] = {
    "cycle in process ¹, ms": ("cycle", time_cell("cycle")),
    "the same in another form ¹, ms": (
        "cycle",
        time_cell("cycle", "other_cycle_fastest_ms"),
    ),
    "durable cycle, ms": ("durable", time_cell("durable")),
    "fsyncs of a durable cycle": ("durable", number_cell("durable", "fsyncs")),
    "64 durable cycles at once, ms each": ("together", time_cell("together")),
    "sent for 8 failures of 2 kB, kB": (
        "bytes",
        number_cell("bytes", "sent_bytes", unit=1e3),
    ),
    "the same as findings of 80 bytes ², kB": (
        "bytes",
        number_cell("bytes", "parts_sent_bytes", unit=1e3),
    ),
    "largest request of these, kB": (
        "bytes",
        number_cell("bytes", "sent_largest_bytes", unit=1e3),
    ),
    "requests of these": ("bytes", number_cell("bytes", "sent_requests")),
    "more sent for the next task, B": (
        "bytes",
        number_cell("bytes", "next_task_bytes"),
    ),
    "never right, one retry: answers": (
        "bytes",
        number_cell("bytes", "given_up_answers"),
    ),
    "104 sightings from 8 processes, least of 5 trials: acknowledged": (
        "sighting",
        number_cell("sighting", "acknowledged", choose=Results.least),
    ),
    "rows of these": ("sighting", number_cell("sighting", "rows")),
    "least of these counted": (
        "sighting",
        number_cell("sighting", "counted", choose=Results.least),
    ),
    "remember one lesson ³, ms": ("lessons", number_cell("lessons", "store_ms")),
    "fsyncs of one lesson": ("write", number_cell("write", "fsyncs")),
    "lessons remembered": ("lessons", number_cell("lessons", "stored")),
    "recall the top 5, median, ms": (
        "lessons",
        number_cell("lessons", "search_median_ms"),
    ),
    "share of the 5 nearest vectors ⁴": (
        "lessons",
        number_cell("lessons", "search_recall"),
    ),
    "the vectors alone: median, ms": (
        "lessons",
        number_cell("lessons", "vector_search_median_ms"),
    ),
    "the vectors alone: share": (
        "lessons",
        number_cell("lessons", "vector_search_recall"),
    ),
    "killed while writing: acknowledged lessons lost": ("write", kills_cell),
}


def make_table(
    results: Results, titles: Mapping[str, str], versions: Mapping[str, str]
) -> str:
    """Return the table in Markdown: a column for each peer, a row for each figure."""
    lines = [
        *head(["", *titles.values()]),
        row(["version", *(versions[peer] for peer in titles)]),
    ]
    for name, (kind, cell) in ROWS.items():
        texts = []
        for peer in titles:
            text = cell(results, peer)
            if not text:
                text = "failed" if results.has_failed(peer, kind) else NOTHING
            texts.append(text)
        lines.append(row([name, *texts]))
    return "\n".join(lines)


def list_failures(results: Results, titles: Mapping[str, str]) -> list[str]:
    """Return a sentence for each work that failed, and for refused sightings."""
    sentences = dict[str, None]()
    for measurement in results.measurements:
        title = titles.get(measurement.peer, measurement.peer)
        if measurement.figure == "failed":
            sentences[
                f"{title}, {measurement.kind}: failed with `{measurement.text}`."
            ] = None
        if measurement.figure == "refusal":
            sentences[f"{title}: sightings were refused with `{measurement.text}`."] = (
                None
            )
    return list(sentences)


def write_section(
    results: Results, environments: Sequence[Environment], conditions: str
) -> str:
    """Return what stands between the marks of the page."""
    titles = {
        environment.peer.name: environment.peer.title
        for environment in environments
        if environment.python
    }
    versions = {
        environment.peer.name: environment.version for environment in environments
    }
    parts = [conditions, make_table(results, titles, versions)]
    missing = [
        f"{environment.peer.title} could not be installed: {environment.reason}."
        for environment in environments
        if not environment.python
    ]
    sentences = [*missing, *list_failures(results, titles)]
    if sentences:
        parts.append("\n".join(f"- {sentence}" for sentence in sentences))
    return "\n\n".join(parts)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One panel of the picture: a bar for each peer that has the figure."""

    title: str
    kind: str
    figure: str
    unit: float = 1.0


CHARTS = (
    Chart(title="cycle in process, ms", kind="cycle", figure=FASTEST),
    Chart(title="durable cycle, ms", kind="durable", figure=FASTEST),
    Chart(title="64 durable cycles at once, ms each", kind="together", figure=FASTEST),
    Chart(
        title="sent for 8 failures of 2 kB, kB",
        kind="bytes",
        figure="sent_bytes",
        unit=1e3,
    ),
    Chart(title="remember one lesson, ms", kind="lessons", figure="store_ms"),
    Chart(
        title="recall the top 5, median, ms", kind="lessons", figure="search_median_ms"
    ),
)
OUR_COLOR = "#1f6f54"
PEER_COLOR = "#9aa5ad"


def draw(results: Results, titles: Mapping[str, str], conditions: str) -> bytes:
    """Draw the charts as PNG; every bar begins at zero."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Picture

    with mpl.rc_context({"font.size": 9}):
        picture = Picture(figsize=(11, 5.4), layout="constrained")
        for axes, chart in zip(picture.subplots(2, 3).flat, CHARTS, strict=True):
            bars = {
                title: value / chart.unit
                for peer, title in titles.items()
                if (value := results.value(peer, chart.kind, chart.figure)) is not None
            }
            names = list(bars)[::-1]
            colors = [OUR_COLOR if name == OURS.title else PEER_COLOR for name in names]
            drawn = axes.barh(names, [bars[name] for name in names], color=colors)
            axes.bar_label(drawn, [show(bars[name]) for name in names], padding=3)
            axes.margins(x=0.2)
            axes.xaxis.set_visible(False)
            axes.set_title(chart.title, fontsize=9.5)
            axes.spines[["top", "right", "bottom"]].set_visible(False)
        picture.suptitle(conditions.replace("*", ""), fontsize=9)
        return png(picture, dpi=130)

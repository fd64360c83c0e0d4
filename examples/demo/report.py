"""The report as one HTML page that loads nothing, and the learning curve in it."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import accumulate
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from heedful.cli.output import NoPictures
from heedful.cli.run import Row
from heedful.lessons.proof import Estimate, share

from .figures import (
    ALL,
    CAN_FOLLOW,
    COLUMNS,
    MEMORY,
    RUNS,
    SECOND,
    WITHOUT,
    Compared,
    Measured,
    by_group,
    cells,
    percent,
    points,
    sentences,
)
from .stories import HEADS, Story

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
GAINS = ("family", "right at once: gain", "second half: gain", "second half: calls, times")
NOTHING = "<p>Nothing: no answer was put right in the arm with memory.</p>"
LESSON = {
    "lesson": "text",
    "check": "error_type",
    "state": "state",
    "seen": "seen",
    "examples": "examples",
}


def page(found: Measured, pictures: Sequence[bytes] | None) -> str:
    """Return the page; `pictures` are PNGs for light and dark ground, or None.

    Every text that a model, a task or a check wrote is escaped.
    """
    half, whole, groups = found.pooled(SECOND), found.pooled(ALL), by_group(found)
    settings = {name: _text(text) for name, text in found.settings.items()}
    ran = {**found.machine, "seconds": f"{found.ran.seconds:.0f} in this run"}
    gains = [
        (one.group or "tasks", points(one.gain), points(later.gain), f"{later.calls.value:.2f}")
        for one, later in groups
    ]
    lessons = [[str(one.get(key, "")) for key in LESSON.values()] for one in found.lessons]
    return Template(Path(__file__).with_name("report.html").read_text("utf-8")).substitute(
        model=settings["model"],
        weights=f" ({settings['weights']})" if "weights" in settings else "",
        claim=_claim(half),
        families=len({row.group for row in found.ran.memory}),
        n=half.memory.tasks,
        before=round(half.memory.tasks * half.without.at_once.value),
        after=round(half.memory.tasks * half.memory.at_once.value),
        tiles="".join(_tiles(half, whole)),
        pooled=_both_arms([(whole, half)]),
        sentences="\n".join(_sentences(found)),
        picture=_picture(pictures) if pictures else "",
        groups=_both_arms(groups),
        gains=_table(GAINS, gains),
        follows=_follows(found) if found.ran.follows else "",
        stories="\n".join(_stories(found)),
        lessons=_table(tuple(LESSON), lessons, "words") if lessons else NOTHING,
        facts="\n".join(_pair(_text(k), _text(v)) for k, v in {**found.settings, **ran}.items()),
        command=settings["command"],
        next="\n".join(
            f"<p>{_text(what[:1].upper() + what[1:])}:</p><pre>{_text(line)}</pre>"
            for what, line in found.commands
        ),
    )


def _claim(half: Compared) -> str:
    if half.gain.covers(0):
        return "Insufficient data: memory made no difference that this run can show"
    more = "fewer" if half.gain.value < 0 else "more"
    return f"With memory {abs(round(100 * half.gain.value))} points {more} tasks right at once"


def _tiles(half: Compared, whole: Compared) -> Iterator[str]:
    changes = (
        ("right at once, second half", "{0.at_once.value:.0%}", half),
        ("solved in the end, all tasks", "{0.solved.value:.0%}", whole),
        ("model calls, all tasks", "{0.calls}", whole),
        ("tokens, all tasks", "{0.tokens:,}", whole),
    )
    for what, form, one in changes:
        before, after = (form.format(arm).replace("%", " %") for arm in (one.without, one.memory))
        yield (
            f'<div class="tile"><b><span class="without">{before}</span> → '
            f'<span class="with">{after}</span></b>{what}<br>'
            '<span class="soft">without → with memory</span></div>'
        )


def _sentences(found: Measured) -> Iterator[str]:
    for head, lines in sentences(found):
        items = "".join(f"<li>{_text(line)}</li>" for line in lines)
        yield f"<p>{_text(head[:1].upper() + head[1:])}:</p><ul>{items}</ul>"


def _follows(found: Measured) -> str:
    shares = [(name or "tasks", percent(one)) for name, one in found.ran.follows.items()]
    return (
        "<p>Which families can this model follow at all? The share right at once after three "
        f"right examples; {100 * CAN_FOLLOW:.0f} % counts as following.</p>"
        + _table(("family", "right at once with three right examples"), shares)
    )


def _picture(pictures: Sequence[bytes]) -> str:
    light, dark = (f"data:image/png;base64,{b64encode(one).decode()}" for one in pictures)
    return (
        "<h2>Learning curve</h2>\n<figure><picture>"
        f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="Share right at once and model calls against the task number, '
        'with and without memory"></picture>\n<figcaption>Both arms get the same tasks in the '
        "same order, one of each family in turn, and are told the same after a rejected answer; "
        "only one remembers.</figcaption></figure>"
    )


def _stories(found: Measured) -> Iterator[str]:
    for kind, title in STORIES.items():
        if kind not in found.ran.stories:
            yield f'<p class="soft">{title}: no task of this run went that way.</p>'
            continue
        one, other = found.ran.stories[kind]
        lines = "\n".join(_pair(*line) for line in _story(one, other))
        yield (
            f'<section class="story"><h3>{title}: {HEADS[kind]}</h3>\n<dl>{lines}</dl>\n'
            f"<p>In heedful's own words:</p>\n<pre>{_text(one.explanation)}</pre></section>"
        )


def _story(one: Story, other: Story) -> Iterator[tuple[str, str, str]]:
    """Yield the name on the left, the text, and its look."""
    yield "loop", f"<code>{_text(one.loop)}</code>", ""
    for shown in one.shown:
        yield "shown from memory", _text(shown.task), ""
        yield "", _text(shown.accepted), "said good"
    yield "task", _text(one.task), ""
    for number, (answer, wrong) in enumerate(one.tries, 1):
        look = "said bad" if wrong else "said good"
        yield f"answer {number}", _text(answer) or "(nothing)", look
        yield from (("told", _text(said), "") for said in wrong)
    if other.marks != one.marks:
        arm = other.loop.partition("-")[0]
        yield f"{arm} memory", f"the same task went {other.marks}", ""


def _pair(name: str, text: str, look: str = "") -> str:
    return f'<dt>{name}</dt><dd class="{look}">{text}</dd>'


def _both_arms(groups: Iterable[tuple[Compared, Compared]]) -> str:
    rows = [cells(*pair, arm, ",") for pair in groups for arm in (WITHOUT, MEMORY)]
    return _table([head if head != "arm" else "" for head in COLUMNS], rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], first: str = "") -> str:
    """Return a table; the first cell of every row has the look `first`."""
    lines = ["".join(f"<th>{_text(head)}</th>" for head in heads)]
    for row in rows:
        looks = [RUNS.get(cell, "" if place else first) for place, cell in enumerate(row)]
        found = zip(row, looks, strict=True)
        lines.append("".join(f"<td class='{look}'>{_text(cell)}</td>" for cell, look in found))
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll"><table>\n{body}\n</table></div>'


def _text(text: str) -> str:
    """Escape text as HTML; control characters become visible question marks."""
    kept = "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )
    return escape(kept)


def rolling(rows: Sequence[Row], last: int) -> list[Estimate]:
    """Return for each task the share right at once among the `last` tasks up to it."""
    at_once = [row.at_once for row in rows]
    recent = (at_once[max(0, end - last) : end] for end in range(1, len(rows) + 1))
    return [share(sum(some), len(some)) for some in recent]


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

"""The report as one HTML page that loads nothing: no script, no address, pictures inside."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from errata.cli.arms import RUNS
from errata.cli.figures import ALL, CAN_FOLLOW, SECOND, Compared, Figures, percent, points
from errata.cli.live import HEADS, MEMORY, WITHOUT
from errata.cli.measured import Measured
from errata.cli.stories import Story
from errata.cli.summary import arm, by_group, sentences

# Nothing may be loaded, whatever a model wrote into the page.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
TITLE = "errata demo"
STORIES = {"corrected": "Corrected", "knew": "Right at once, from memory", "stopped": "Stopped"}


def page(found: Measured, pictures: Sequence[bytes] | None) -> str:
    """The whole page; `pictures` are PNGs for light and for dark ground, None where there is none.

    Every text that a model, a task or a check wrote is escaped.
    """
    parts = [
        _head(found),
        *_results(found),
        *_picture(pictures),
        *_families(found),
        *_stories(found),
        *_lessons(found),
        *_circumstances(found),
        *_again(found),
    ]
    style = files("errata.cli").joinpath("report.css").read_text("utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{TITLE}: {_text(found.settings['model'])}</title>\n"
        f"<style>\n{style}</style>\n</head>\n<body>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def _head(found: Measured) -> str:
    half, model = found.pooled(SECOND), _text(found.settings["model"])
    weights = f" ({_text(found.settings['weights'])})" if "weights" in found.settings else ""
    n, before = half.memory.tasks, _hits(half.without.at_once.value, half.memory.tasks)
    after = _hits(half.memory.at_once.value, n)
    return (
        f"<header>\n<h1>{_claim(half)}</h1>\n"
        f"<p>In the second half of the tasks of each of {found.families} families, "
        f'<span class="with">{after} of {n} right at once with memory</span>, '
        f'<span class="without">{before} of {n} without</span>. The rules are known to a check '
        f"only, never told in the task; memory began empty. Model: <code>{model}</code>{weights}."
        "</p>\n"
        f'<div class="tiles">{"".join(_tiles(found))}</div>\n</header>'
    )


def _claim(half: Compared) -> str:
    if half.gain.covers(0):
        return "Insufficient data: memory made no difference that this run can show"
    more = "fewer" if half.gain.value < 0 else "more"
    return f"With memory {abs(round(100 * half.gain.value))} points {more} tasks right at once"


def _tiles(found: Measured) -> Iterator[str]:
    half, whole = found.pooled(SECOND), found.pooled(ALL)
    changes = (
        ("right at once, second half", half.without.at_once, half.memory.at_once),
        ("solved in the end, all tasks", whole.without.solved, whole.memory.solved),
    )
    for what, before, after in changes:
        yield _tile(what, f"{100 * before.value:.0f} %", f"{100 * after.value:.0f} %")
    yield _tile("model calls, all tasks", str(whole.without.calls), str(whole.memory.calls))
    yield _tile("tokens, all tasks", f"{whole.without.tokens:,}", f"{whole.memory.tokens:,}")


def _tile(what: str, before: str, after: str) -> str:
    return (
        f'<div class="tile"><b><span class="without">{before}</span> → '
        f'<span class="with">{after}</span></b>{what}<br>'
        '<span class="soft">without → with memory</span></div>'
    )


def _results(found: Measured) -> Iterator[str]:
    yield "<h2>Result</h2>"
    pooled = [(found.pooled(ALL), found.pooled(SECOND))]
    yield _table(pooled)
    for head, lines in sentences(found):
        items = "".join(f"<li>{_text(line)}</li>" for line in lines)
        yield f"<p>{_text(head[:1].upper() + head[1:])}:</p><ul>{items}</ul>"
    yield (
        '<p class="soft">Shares have Wilson score intervals, differences of shares Newcombe\'s '
        "paired intervals (method 10), ratios of calls a bootstrap over tasks within families; all "
        "95 %. They are about tasks like these in this order, not about other rules or models. "
        "Seconds are those spent in attempts.</p>"
    )


def _families(found: Measured) -> Iterator[str]:
    yield "<h2>Every family, also where memory does not help</h2>"
    yield _table(by_group(found))
    rows = [
        (one.group or "tasks", points(one.gain), points(half.gain), f"{half.calls.value:.2f}")
        for one, half in by_group(found)
    ]
    heads = ("family", "right at once: gain", "second half: gain", "second half: calls, times")
    yield "<p>With memory against without:</p>" + _plain_table(heads, rows)
    if found.ran.follows:
        yield (
            "<p>Which families can this model follow at all? The share right at once after three "
            f"right examples; {100 * CAN_FOLLOW:.0f} % counts as following.</p>"
        )
        shares = [(name or "tasks", percent(one)) for name, one in found.ran.follows.items()]
        yield _plain_table(("family", "right at once with three right examples"), shares)


def _table(groups: Iterable[tuple[Compared, Compared]]) -> str:
    heads = ("family", "tasks", "", "right at once", "second half", "solved")
    lines = [_row("th", (*heads, "calls", "tokens", "seconds"))]
    for whole, half in groups:
        for name in (WITHOUT, MEMORY):
            first = (
                (whole.group or "tasks", str(whole.memory.tasks)) if name == WITHOUT else ("", "")
            )
            cells = "".join(f"<td>{_text(cell)}</td>" for cell in first)
            look = "with" if name == MEMORY else "without"
            cells += f'<td class="{look}">{name}</td>'
            numbers = _numbers(arm(whole, name), arm(half, name))
            cells += "".join(f"<td>{_text(cell)}</td>" for cell in numbers)
            lines.append(f"<tr>{cells}</tr>")
    return '<div class="scroll"><table>\n' + "\n".join(lines) + "\n</table></div>"


def _numbers(whole: Figures, half: Figures) -> tuple[str, ...]:
    shares = (percent(whole.at_once), percent(half.at_once), percent(whole.solved))
    return (*shares, str(whole.calls), f"{whole.tokens:,}", f"{whole.seconds:.0f}")


def _picture(pictures: Sequence[bytes] | None) -> Iterator[str]:
    if not pictures:
        return
    light, dark = (f"data:image/png;base64,{b64encode(one).decode()}" for one in pictures)
    yield (
        "<h2>Learning curve</h2>\n<figure><picture>"
        f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="Share right at once and model calls against the task number, '
        'with and without memory"></picture>\n<figcaption>Both arms get the same tasks in the '
        "same order, one of each family in turn, and are told the same after a rejected answer; "
        "only one remembers.</figcaption></figure>"
    )


def _stories(found: Measured) -> Iterator[str]:
    yield "<h2>Three tasks, word for word</h2>"
    for kind, title in STORIES.items():
        if kind in found.stories:
            one, other = found.stories[kind]
            yield _story(title, HEADS[kind], one, other)
        else:
            yield f'<p class="soft">{title}: no task of this run went that way.</p>'


def _story(title: str, head: str, one: Story, other: Story) -> str:
    lines = [f"<dt>loop</dt><dd><code>{_text(one.loop)}</code></dd>"]
    for shown in one.shown:
        lines.append(f"<dt>shown from memory</dt><dd>{_text(shown.task)}</dd>")
        lines.append(f'<dt></dt><dd class="said good">{_text(shown.accepted)}</dd>')
    lines.append(f"<dt>task</dt><dd>{_text(one.task)}</dd>")
    for number, attempt in enumerate(one.tries, 1):
        look = "bad" if attempt.wrong else "good"
        answer = _text(attempt.answer) or "(nothing)"
        lines.append(f'<dt>answer {number}</dt><dd class="said {look}">{answer}</dd>')
        lines += [f"<dt>told</dt><dd>{_text(wrong)}</dd>" for wrong in attempt.wrong]
    if other.marks != one.marks:
        which = "without" if one.loop.startswith(RUNS[MEMORY] + "-") else "with"
        lines.append(f"<dt>{which} memory</dt><dd>the same task went {other.marks}</dd>")
    body = "\n".join(lines)
    return (
        f'<section class="story"><h3>{title}: {head}</h3>\n<dl>{body}</dl>\n'
        f"<p>In errata's own words:</p>\n<pre>{_text(one.explanation)}</pre></section>"
    )


def _lessons(found: Measured) -> Iterator[str]:
    yield "<h2>What it has learnt</h2>"
    if not found.lessons:
        yield "<p>Nothing: no answer was put right in the arm with memory.</p>"
        return
    heads = ("lesson", "check", "state", "seen", "examples")
    yield _plain_table(heads, [_lesson(one) for one in found.lessons], words=1)


def _lesson(one: Mapping[str, Any]) -> tuple[str, ...]:
    keys = ("text", "error_type", "state", "seen", "examples")
    return tuple(str(one.get(key, "")) for key in keys)


def _circumstances(found: Measured) -> Iterator[str]:
    yield "<h2>Machine, model, settings</h2>"
    facts = {**found.settings, **found.machine, "seconds": f"{found.ran.seconds:.0f} in this run"}
    lines = "\n".join(f"<dt>{_text(k)}</dt><dd>{_text(v)}</dd>" for k, v in facts.items())
    yield f"<dl>{lines}</dl>"


def _again(found: Measured) -> Iterator[str]:
    yield "<h2>How to repeat it, and what to type next</h2>"
    yield "<p>Once more from the start (without --fresh what is stored is not run again):</p>"
    yield f"<pre>{_text(found.settings['command'])} --fresh</pre>"
    for what, line in found.commands:
        yield f"<p>{_text(what[:1].upper() + what[1:])}:</p><pre>{_text(line)}</pre>"


def _plain_table(heads: Sequence[str], rows: Iterable[Sequence[str]], words: int = 0) -> str:
    lines = [_row("th", heads)]
    for row in rows:
        cells = [
            f"<td{' class=words' if place < words else ''}>{_text(cell)}</td>"
            for place, cell in enumerate(row)
        ]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return '<div class="scroll"><table>\n' + "\n".join(lines) + "\n</table></div>"


def _row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_text(cell)}</{tag}>" for cell in cells) + "</tr>"


def _hits(share: float, of: int) -> int:
    return round(share * of)


def _text(text: str) -> str:
    """Text from anywhere as HTML; control characters become visible question marks."""
    kept = "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )
    return escape(kept)

"""The report of a run as one HTML page that loads nothing: no script, no address."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from string import Template

from heedful.pages.change import FIRST, Line, change, readable
from heedful.pages.timeline import Axis, axis, spans
from heedful.pages.words import (
    SIGNS,
    cost,
    counted,
    details,
    failures,
    fitting,
    happened,
    lasted,
    room,
    short,
    standing,
    status,
    told,
    unseen,
    verdict,
    visible,
    worked,
)
from heedful.reports import AttemptReport, Checked, Report, StageReport, iso

CELL = 400
NAME = 80
QUIET = 20
HEADS = ("#", "stage", "status", "attempts", "time", "checks failed", "what happened")
ELEMENTS = {"-": "del", "+": "ins", "@": "i", " ": "span"}


def html(report: Report) -> str:
    """The whole page; every text in it is data, and long ones are cut with a count."""
    most = room(report)
    return Template(files("heedful.pages").joinpath("page.html").read_text("utf-8")).substitute(
        pipeline=_text(report.pipeline),
        run=_text(report.run),
        status=_badge(report.status),
        verdict=_text(verdict(report)),
        standing="\n".join(_standing(report)),
        began=f"Began <time>{iso(report.began)}</time>. " if report.began else "",
        cost=_text(", ".join(cost(report))),
        timeline=_timeline(report),
        summary=_table(HEADS, _summary(report)),
        stages="\n".join(_stage(n, one, most) for n, one in enumerate(report.stages, 1)),
    )


def _text(text: str, most: int = CELL) -> str:
    return escape(short(text, most), quote=False)


def _badge(of: str) -> str:
    return f'<span class="badge {of}"><b>{SIGNS[of]}</b> {status(of)}</span>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already; each knows its heading, for narrow screens."""
    head = "".join(f'<th scope="col">{one}</th>' for one in heads)
    body = "\n".join(
        "<tr>"
        + "".join(
            f'<td data-head="{name}">{cell}</td>' for name, cell in zip(heads, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"


def _standing(report: Report) -> Iterator[str]:
    for what, places in standing(report):
        names = ", ".join(_link(n + 1, report.stages[n]) for n in places)
        yield f'<p class="note"><b>{what}:</b> {names}</p>'


def _link(number: int, stage: StageReport) -> str:
    return f'<a href="#stage-{number}">{_text(stage.name, NAME)}</a>'


def _summary(report: Report) -> Iterator[Sequence[str]]:
    for number, one in enumerate(report.stages, 1):
        yield (
            str(number),
            _link(number, one),
            _badge(one.status),
            str(len(one.attempts)),
            lasted(worked(one)) if one.attempts else "",
            ", ".join(f"<code>{_text(name, NAME)}</code>" for name in failures(one)),
            _text(happened(one)),
        )


def _timeline(report: Report) -> str:
    rows = spans(report)
    scale = axis(report, rows)
    if scale is None:
        return "<p>Nothing has run.</p>"
    drawn = "\n".join(
        _row(number, stage, row, scale)
        for number, (stage, row) in enumerate(zip(report.stages, rows, strict=True), 1)
    )
    ticks = "".join(
        f'<span style="left:{100 * place:.2f}%">{lasted(1000 * at) if at else "0"}</span>'
        for at, place in scale.ticks()
    )
    uneven = "Short attempts are drawn wider than they were, and long pauses shorter. "
    return (
        f'<div class="timeline">{drawn}\n<div class="row axis"><span></span>'
        f'<div class="track">{ticks}</div><span></span></div></div>\n'
        f'<p class="soft">{"" if scale.even else uneven}A bar is an attempt; '
        "it leads to what was found.</p>"
    )


def _row(number: int, stage: StageReport, row: Sequence[tuple[float, float]], scale: Axis) -> str:
    bars = []
    for one, (begin, end) in zip(stage.attempts, row, strict=True):
        left, right = scale.place(begin), scale.place(end)
        said = (
            f"attempt {one.attempt}, {status(one.overall_status)}, {lasted(one.execution_time_ms)}"
        )
        bars.append(
            f'<a class="bar {one.overall_status}" href="#stage-{number}-attempt-{one.attempt}" '
            f'style="left:{100 * left:.2f}%;width:{100 * (right - left):.2f}%" title="{said}" '
            f'aria-label="{said}"><span>{SIGNS[one.overall_status]}</span></a>'
        )
    took = lasted(worked(stage)) if stage.attempts else "not run"
    return (
        f'<div class="row"><span class="name">{_link(number, stage)}</span>'
        f'<div class="track">{"".join(bars)}</div>'
        f'<span class="took">{SIGNS[stage.status]} {took}</span></div>'
    )


def _stage(number: int, stage: StageReport, most: int) -> str:
    attempts = "\n".join(
        _attempt(number, stage, before, one, most)
        for before, one in zip((None, *stage.attempts), stage.attempts, strict=False)
    )
    return (
        f'<section class="stage" id="stage-{number}">\n<h2>{number}. {_text(stage.name)} '
        f'{_badge(stage.status)}</h2>\n<p class="soft">{_text(happened(stage))}</p>\n'
        f"{attempts}</section>"
    )


def _attempt(
    number: int, stage: StageReport, before: AttemptReport | None, one: AttemptReport, most: int
) -> str:
    kept = ' <span class="kept">kept</span>' if stage.kept == one.attempt else ""
    decided = f", decided <time>{iso(one.timestamp)}</time>" if one.timestamp else ", not decided"
    feedback = (
        f"<h4>{told(stage, one)}</h4>\n"
        f'<pre class="told">{_text(one.feedback_for_agent, most // 2)}</pre>'
        if one.feedback_for_agent
        else ""
    )
    return (
        f'<article id="stage-{number}-attempt-{one.attempt}">\n<h3>Attempt {one.attempt} '
        f"{_badge(one.overall_status)}{kept}</h3>\n"
        f'<p class="soft">{lasted(one.execution_time_ms)}{decided}. '
        f"<code>{_text(one.file)}</code></p>\n{_checks(one, most)}\n"
        f"{_output(one.output, most) if before is None else _change(before, one, most)}\n"
        f"{feedback}</article>"
    )


def _checks(one: AttemptReport, most: int) -> str:
    if not one.checks:
        return "<p>No check judged it.</p>"
    quiet = [check.check_name for check in one.checks if _quiet(check)]
    loud = [(_check(check),) for check in one.checks if not _quiet(check)]
    shown = fitting(loud, most)
    left = len(loud) - len(shown)
    more = f"<p>{counted(left, 'more check')} in the file of this attempt.</p>" if left else ""
    names = ", ".join(f"<code>{_text(name)}</code>" for name in quiet[:QUIET])
    others = f" and {len(quiet) - QUIET:,} more" if len(quiet) > QUIET else ""
    passed = f'<li class="passed"><b class="sign">✓</b> Passed: {names}{others}</li>'
    return f'<ul class="checks">{"".join(row for (row,) in shown)}{passed * bool(quiet)}</ul>{more}'


def _quiet(one: Checked) -> bool:
    """Whether nothing is to be said of a check but that it passed."""
    return one == Checked(one.check_name)


def _check(one: Checked) -> str:
    said = ", ".join(dict.fromkeys((status(one.status), _text(one.severity))))
    parts = [
        f'<li class="{one.status}"><b class="sign">{SIGNS[one.status]}</b> ',
        f'<b>{_text(one.check_name)}</b> <span class="soft">{said}</span>',
    ]
    parts += [f"<p>{_text(one.message)}</p>"] * bool(one.message)
    parts += [f'<p class="fix"><b>To do:</b> {_text(one.suggestion)}</p>'] * bool(one.suggestion)
    rows = "".join(f"<dt>{_text(key)}</dt><dd>{_text(value)}</dd>" for key, value in details(one))
    return "".join([*parts, f"<dl>{rows}</dl>" if rows else "", "</li>\n"])


def _output(output: str, most: int) -> str:
    found, rest = readable(output)
    if not found:
        return '<p class="soft">It produced no text.</p>'
    shown = fitting([(_part(line),) for line in found[:FIRST]], most)
    left = unseen(len(found) - len(shown), rest)
    more = f'<p class="soft">{left}</p>' if left else ""
    return f"<h4>Output</h4>\n<pre>{chr(10).join(row for (row,) in shown)}</pre>{more}"


def _change(before: AttemptReport, one: AttemptReport, most: int) -> str:
    found = change(before.output, one.output)
    drawn = fitting([(_line(line),) for line in found.lines], most)
    shown = found.lines[: len(drawn)]
    body = "\n".join(row for (row,) in drawn)
    return (
        f"<h4>Output, against attempt {before.attempt}</h4>\n"
        f'<p class="soft">{_text(found.summary(shown))}</p>\n'
        + (f'<pre class="diff">{body}</pre>' if shown else "")
    )


def _line(line: Line) -> str:
    parts, end = [], 0
    for begin, stop in line.marks:
        parts += [_part(line.text[end:begin]), f"<mark>{_part(line.text[begin:stop])}</mark>"]
        end = stop
    parts.append(_part(line.text[end:]))
    name = ELEMENTS[line.sign]
    return f"<{name}>{line.sign} {''.join(parts)}</{name}>"


def _part(text: str) -> str:
    return escape(visible(text), quote=False)

"""The report of a run as Markdown: tables, and fences that no text in them can close."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from heedful.pages.change import FIRST, change, readable
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
# What has a meaning in a line of Markdown, and what makes an address or a mention of a text.
_SPECIAL = re.compile(r"[\\`*_\[\]<>|&~$#@]|:(?=//)|(?<=www)\.")


def markdown(report: Report) -> str:
    """The whole report; every text in it is data, and long ones are cut with a count."""
    head = f"# {text(report.pipeline)}: {SIGNS[report.status]} {report.status}"
    began = f" It began {iso(report.began)}." if report.began else ""
    parts = [
        head,
        f"{verdict(report)}.{began}",
        f"Run {text(report.run)}: {', '.join(cost(report))}.",
    ]
    for what, places in standing(report):
        parts.append(f"**{what}:** {', '.join(text(report.stages[n].name) for n in places)}.")
    parts += ["## Stages", _summary(report)]
    most = room(report)
    for number, stage in enumerate(report.stages, 1):
        parts += _stage(number, stage, most)
    return "\n\n".join(parts) + "\n"


def text(of: str, most: int = CELL) -> str:
    """A text as one line that Markdown shows as it is, in a table, too."""
    line = re.sub(r"\s*\n\s*", " ⏎ ", short(of, most).strip()).replace("\t", " ")
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", line)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are Markdown already."""
    every = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in every)


def fenced(of: str, kind: str = "") -> str:
    """A block of code whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall("`+", of)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{of}\n{fence}"


def _summary(report: Report) -> str:
    rows = (
        (
            str(number),
            text(one.name),
            f"{SIGNS[one.status]} {status(one.status)}",
            str(len(one.attempts)),
            lasted(worked(one)) if one.attempts else "",
            ", ".join(map(text, failures(one))),
            happened(one),
        )
        for number, one in enumerate(report.stages, 1)
    )
    return table(
        ("#", "stage", "status", "attempts", "time", "checks failed", "what happened"), rows
    )


def _stage(number: int, stage: StageReport, most: int) -> Iterator[str]:
    yield f"## Stage {number}: {text(stage.name)}"
    yield f"{SIGNS[stage.status]} {happened(stage)}."
    for before, one in zip((None, *stage.attempts), stage.attempts, strict=False):
        yield from _attempt(stage, before, one, most)


def _attempt(
    stage: StageReport, before: AttemptReport | None, one: AttemptReport, most: int
) -> Iterator[str]:
    kept = ", kept" if stage.kept == one.attempt else ""
    yield (
        f"### Attempt {one.attempt} of {text(stage.name)}: "
        f"{SIGNS[one.overall_status]} {status(one.overall_status)}{kept}"
    )
    yield f"{_when(one)}; file {text(one.file)}."
    if one.checks:
        shown = fitting([_check(check) for check in one.checks], most)
        yield table(("check", "status", "severity", "message", "suggestion", "details"), shown)
        if left := len(one.checks) - len(shown):
            yield f"{counted(left, 'more check')} in the file of this attempt."
    else:
        yield "No check judged it."
    if before is None:
        yield from _output(one.output, most)
    else:
        yield from _change(before, one, most)
    if one.feedback_for_agent:
        yield f"{told(stage, one)}:"
        yield fenced(short(one.feedback_for_agent, most // 2))


def _when(one: AttemptReport) -> str:
    decided = f"decided {iso(one.timestamp)}" if one.timestamp else "not decided"
    return f"It took {lasted(one.execution_time_ms)}, {decided}"


def _check(one: Checked) -> tuple[str, ...]:
    said = f"{SIGNS[one.status]} {status(one.status)}"
    more = "; ".join(f"{text(key)}: {text(value)}" for key, value in details(one))
    return text(one.check_name), said, one.severity, text(one.message), text(one.suggestion), more


def _output(output: str, most: int) -> Iterator[str]:
    found, rest = readable(output)
    shown = fitting([(visible(one),) for one in found[:FIRST]], most)
    if not found:
        yield "It produced no text."
        return
    yield "Its output:"
    yield fenced("\n".join(one for (one,) in shown))
    if left := unseen(len(found) - len(shown), rest):
        yield left


def _change(before: AttemptReport, one: AttemptReport, most: int) -> Iterator[str]:
    found = change(before.output, one.output)
    kept = fitting([(f"{line.sign} {visible(line.text)}",) for line in found.lines], most)
    shown = found.lines[: len(kept)]
    yield f"Against attempt {before.attempt}: {found.summary(shown)}."
    if shown:
        yield fenced("\n".join(line for (line,) in kept), "diff")

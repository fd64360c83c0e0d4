"""The facts of a report in words, and text of others made fit to be shown. Both pages use it."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import TypeVar

from heedful.redact import redacted
from heedful.reports import AttemptReport, Checked, Report, StageReport

SIGNS: Mapping[str, str] = {
    "passed": "✓",
    "warning": "!",
    "failed": "✗",
    "not_validated": "?",
    "degraded": "!",
    "halted": "✗",
    "open": "…",
    "not_run": "–",
}
STATUS: Mapping[str, str] = {
    "not_validated": "not validated",
    "not_run": "not run",
}
STANDING: Mapping[str, str] = {
    "halted": "Halted at",
    "open": "Interrupted at",
    "continued": "Went on degraded after",
    "best": "Went on degraded after",
    "not_run": "Did not run",
}
# Bytes of a page that checks and outputs may have together; markup comes to as much again at most.
PAGE = 1_100_000
Row = TypeVar("Row", bound=tuple[str, ...])
# Letters that nothing is seen of; controls, formats and separators are found by their category.
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u2028\u2029\u3164\uffa0"
# Behind a character outside ASCII a joiner belongs to the script or the pictograph.
_JOINED = r"(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])"


def visible(text: str) -> str:
    """The text with secrets redacted and all that hides named by its code point.

    Line breaks and tabs stay.

    >>> visible("safe\\u202etxt.exe")
    'safe[U+202E]txt.exe'
    """
    text = redacted(text)
    hidden = {c for c in set(text) if c in _BLANK or _hides(c)}
    if not hidden:
        return text
    one = re.compile(f"({_JOINED})|[{re.escape(''.join(hidden))}]")
    return one.sub(lambda found: found[1] or f"[U+{ord(found[0]):04X}]", text)


def _hides(c: str) -> bool:
    return unicodedata.category(c)[0] == "C" and c not in "\n\t"


def short(text: str, most: int) -> str:
    """The visible text, cut at `most` characters, or twice as many bytes as HTML, with a count."""
    text = redacted(text)
    end = most
    if _bytes(visible(text[:most])) > 2 * most:
        each = {c: _bytes(visible(c)) for c in set(text[:most])}
        end = sum(size <= 2 * most for size in accumulate(each[c] for c in text[:most]))
    left = len(text) - end
    return (
        f"{visible(text[:end])} … and {counted(left, 'character')}" if left > 0 else visible(text)
    )


def _bytes(text: str) -> int:
    return len(escape(text, quote=False).encode())


def counted(number: int, one: str, several: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "retry", "retries"), counted(1200, "line")
    ('1 retry', '1,200 lines')
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def unseen(lines: int, characters: int) -> str:
    """How much of an output is not shown: lines that were read, and characters that were not.

    >>> unseen(2, 0), unseen(1, 1200), unseen(0, 0)
    ('2 more lines not shown.', '1 more line and 1,200 characters not shown.', '')
    """
    left = [counted(lines, "more line")] * bool(lines)
    left += [counted(characters, "character")] * bool(characters)
    return f"{' and '.join(left)} not shown." if left else ""


def lasted(ms: float) -> str:
    """A time in milliseconds for people.

    >>> [lasted(ms) for ms in (0.42, 15, 1240, 65_000, 7_380_000)]
    ['0.42 ms', '15 ms', '1.24 s', '1 min 5 s', '2 h 3 min']
    """
    if ms < 9.995:
        return f"{ms:.2g} ms"
    if ms < 999.5:
        return f"{ms:.0f} ms"
    if ms < 59_950:
        return f"{ms / 1000:.3g} s"
    seconds = round(ms / 1000)
    if seconds < 3570:
        return f"{seconds // 60} min" + f" {seconds % 60} s" * bool(seconds % 60)
    minutes = round(seconds / 60)
    return f"{minutes // 60} h" + f" {minutes % 60} min" * bool(minutes % 60)


def status(of: str) -> str:
    """A status as a person would say it."""
    return STATUS.get(of, of)


def verdict(report: Report) -> str:
    """How the run as a whole stands."""
    retried = sum(one.recovered for one in report.stages)
    again = f"{retried} of them after a retry" if retried else "each at its first attempt"
    said = {
        "passed": f"Passed: every stage, {again}",
        "degraded": "Degraded: the run went on in spite of what is wrong",
        "halted": "Halted: a stage did not pass, and the run stopped there",
        "open": "Open: the run was interrupted, or is still going on",
    }
    return said[report.status]


def standing(report: Report) -> list[tuple[str, list[int]]]:
    """Where a run did not simply pass: what is to be said, and of the stages at which places."""
    said: dict[str, list[int]] = {}
    for n, one in enumerate(report.stages):
        unjudged = one.action == "passed" and one.status == "not_validated"
        if what := "Judged by no check" if unjudged else STANDING.get(one.action):
            said.setdefault(what, []).append(n)
    return list(said.items())


def told(stage: StageReport, attempt: AttemptReport) -> str:
    """The heading of what an attempt was given back."""
    if attempt is stage.attempts[-1]:
        return "What another attempt would be told"
    return "What the next attempt is told"


def happened(stage: StageReport) -> str:
    """How a stage came to its end, in a few words."""
    count = len(stage.attempts)
    tries = f"after {counted(count, 'attempt')}"
    unjudged = "not validated, " if stage.status == "not_validated" else ""
    if stage.action == "passed" and unjudged:
        return "not validated: it has no check"
    warned = ", with warnings" if stage.status == "warning" else ""
    said = {
        "passed": f"passed at attempt {stage.kept or count}{warned}",
        "continued": f"{unjudged}continued degraded {tries}",
        "best": f"{unjudged}continued degraded {tries}, with attempt {stage.kept}",
        "halted": f"{unjudged}halted {tries}",
        "open": f"interrupted {tries}",
        "not_run": "not run",
    }
    return said[stage.action]


def failures(stage: StageReport) -> list[str]:
    """The names of the checks that failed at any attempt, in order, each once."""
    return list(dict.fromkeys(check.check_name for one in stage.attempts for check in one.failed))


def cost(report: Report) -> list[str]:
    """What the run took: attempts, retries, and as far as they are known time, calls and tokens."""
    attempts = sum(len(one.attempts) for one in report.stages)
    retries = sum(max(0, len(one.attempts) - 1) for one in report.stages)
    usage = report.usage
    said = [
        counted(len(report.stages), "stage"),
        counted(attempts, "attempt"),
        counted(retries, "retry", "retries"),
    ]
    if report.ended and report.began:
        said.append(f"{lasted(1000 * (report.ended - report.began))} in all")
    said.append(f"{lasted(worked(report))} in attempts")
    said += [counted(usage.calls, "call")] * bool(usage.calls)
    said += [f"{usage.tokens:,} tokens"] * bool(usage.tokens)
    return said + [f"cost {usage.cost:,.4g}"] * bool(usage.cost)


def worked(of: Report | StageReport) -> float:
    """The time that attempts took, in milliseconds."""
    stages = of.stages if isinstance(of, Report) else (of,)
    return sum(one.execution_time_ms for stage in stages for one in stage.attempts)


def details(one: Checked) -> list[tuple[str, str]]:
    """The details of a check as text: JSON where a value is none."""
    return [
        (key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for key, value in one.details.items()
    ]


def room(report: Report) -> int:
    """The bytes that the checks, and the output, of one attempt may have on a page."""
    return max(2_000, min(12_000, PAGE // max(1, 2 * sum(len(s.attempts) for s in report.stages))))


def fitting(rows: Sequence[Row], most: int) -> list[Row]:
    """The first rows, tuples of text, that have at most so many bytes; always one."""
    sizes = accumulate(sum(len(cell.encode("utf-8", "replace")) for cell in row) for row in rows)
    return list(rows[: max(1, sum(size <= most for size in sizes))])

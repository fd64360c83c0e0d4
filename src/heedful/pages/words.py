"""The facts of a report in words, and the texts of others made harmless and short."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import TypeVar

from heedful.redact import redact
from heedful.store.runs import CheckResult, Report, StageAttempt, StageReport

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
HEADS = ("#", "stage", "status", "attempts", "time", "checks failed", "what happened")
STANDING: Mapping[str, str] = {
    "halted": "Halted at",
    "open": "Interrupted at",
    "continued": "Went on degraded after",
    "best": "Went on degraded after",
    "not_run": "Did not run",
}
# Bytes that checks and outputs may take on a page; the markup takes at most as many again.
PAGE = 1_100_000
T = TypeVar("T")
# Letters that show nothing; controls, formats and separators are found by their category.
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u2028\u2029\u3164\uffa0"
# Between characters outside ASCII a joiner belongs to the script or the pictograph.
_JOINED = r"(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])"


def visible(text: str) -> str:
    """Return the text without secrets, with every hidden character named by its code point.

    Line breaks and tabs stay.

    >>> visible("safe\\u202etxt.exe")
    'safe[U+202E]txt.exe'
    """
    text = redact(text)
    if text.isascii() and text.isprintable():
        return text
    hidden = {c for c in set(text) if c in _BLANK or unicodedata.category(c)[0] == "C"} - {*"\n\t"}
    if not hidden:
        return text
    pattern = re.compile(f"({_JOINED})|[{re.escape(''.join(hidden))}]")
    return pattern.sub(lambda found: found[1] or f"[U+{ord(found[0]):04X}]", text)


def cut(text: str, most: int = 400) -> str:
    """Return the visible text, cut with a count at `most` characters or twice as many bytes."""
    text = visible(text)
    end = most
    if size(text[:most]) > 2 * most:
        end = sum(total <= 2 * most for total in accumulate(map(size, text[:most])))
    left = len(text) - end
    return f"{text[:end]} … and {counted(left, 'character')}" if left > 0 else text


def size(text: str) -> int:
    """Return the bytes of a text in HTML."""
    return len(escape(text).encode("utf-8", "replace"))


def counted(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun.

    >>> counted(1, "retry", "retries"), counted(1200, "line")
    ('1 retry', '1,200 lines')
    """
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def unseen(lines: int, characters: int) -> str:
    """Say how much text is not shown: lines that were read, and characters that were not.

    >>> unseen(2, 0), unseen(1, 1200), unseen(0, 0)
    ('2 more lines not shown.', '1 more line and 1,200 characters not shown.', '')
    """
    left = [counted(lines, "more line")] * bool(lines)
    left += [counted(characters, "character")] * bool(characters)
    return f"{' and '.join(left)} not shown." if left else ""


def lasted(ms: float) -> str:
    """Return a duration in milliseconds for people.

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


def verdict(report: Report) -> str:
    """Say how the run as a whole ended."""
    recovered = sum(stage.recovered for stage in report.stages)
    how = f"{recovered} of them after a retry" if recovered else "each at its first attempt"
    return {
        "passed": f"Passed: every stage, {how}",
        "degraded": "Degraded: the run went on after a stage that did not pass",
        "halted": "Halted: a stage did not pass, and the run stopped there",
        "open": "Open: the run was interrupted, or is still going on",
    }[report.status]


def standing(report: Report) -> dict[str, list[int]]:
    """Return what is to be said of stages that did not simply pass, with their places."""
    said: dict[str, list[int]] = {}
    for place, stage in enumerate(report.stages):
        unjudged = stage.action == "passed" and stage.status == "not_validated"
        if words := "Judged by no check" if unjudged else STANDING.get(stage.action):
            said.setdefault(words, []).append(place)
    return said


def feedback_heading(stage: StageReport, attempt: StageAttempt) -> str:
    """Return the heading of the feedback on an attempt."""
    last = attempt is stage.attempts[-1]
    return (
        "Feedback for another attempt, which was not made"
        if last
        else "Feedback for the next attempt"
    )


def happened(stage: StageReport) -> str:
    """Say in a few words how a stage ended."""
    count = len(stage.attempts)
    tries = f"after {counted(count, 'attempt')}"
    unjudged = "not validated, " if stage.status == "not_validated" else ""
    if stage.action == "passed" and unjudged:
        return "not validated: it has no check"
    warned = ", with warnings" if stage.status == "warning" else ""
    return {
        "passed": f"passed at attempt {stage.kept or count}{warned}",
        "continued": f"{unjudged}continued degraded {tries}",
        "best": f"{unjudged}continued degraded {tries}, with attempt {stage.kept}",
        "halted": f"{unjudged}halted {tries}",
        "open": f"interrupted {tries}",
        "not_run": "not run",
    }[stage.action]


def failures(stage: StageReport) -> list[str]:
    """Return the names of the checks that failed at any attempt, in order, each once."""
    return list(dict.fromkeys(check.check_name for one in stage.attempts for check in one.failed))


def cost(report: Report) -> list[str]:
    """Return the numbers of stages, attempts and retries, and the time, calls and tokens known."""
    attempts = sum(len(stage.attempts) for stage in report.stages)
    retries = sum(max(0, len(stage.attempts) - 1) for stage in report.stages)
    usage = report.usage
    said = [counted(len(report.stages), "stage"), counted(attempts, "attempt")]
    said.append(counted(retries, "retry", "retries"))
    if report.ended and report.began:
        said.append(f"{lasted(1000 * (report.ended - report.began))} in all")
    said.append(f"{lasted(worked(report))} in attempts")
    said += [counted(usage.calls, "call")] * bool(usage.calls)
    said += [f"{usage.tokens:,} tokens"] * bool(usage.tokens)
    return said + [f"cost {usage.cost:,.4g}"] * bool(usage.cost)


def worked(of: Report | StageReport) -> float:
    """Return the milliseconds that attempts took."""
    stages = of.stages if isinstance(of, Report) else (of,)
    return sum(attempt.execution_time_ms for stage in stages for attempt in stage.attempts)


def details(check: CheckResult) -> list[tuple[str, str]]:
    """Return the details of a check as text; values that are not text become JSON."""
    return [
        (key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for key, value in check.details.items()
    ]


def fitting(items: Sequence[T], most: int, text: Callable[[T], str]) -> Sequence[T]:
    """Return the first items whose texts take at most `most` bytes together; always one."""
    sizes = accumulate(len(text(item).encode("utf-8", "replace")) for item in items)
    return items[: max(1, sum(total <= most for total in sizes))]

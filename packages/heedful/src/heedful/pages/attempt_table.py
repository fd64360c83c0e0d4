"""What a page shows of the attempts of a stage or a loop: equal ones, marks, bars.

An attempt that failed stands open; one that repeats another, or that a later one has
put right, is one row.
"""

import json
from collections.abc import Sequence

from heedful.loop.runs import Report, StageAttempt, StageReport
from heedful.pages.difference import Difference, Span, difference
from heedful.redact import redact_start
from heedful.validation import MAX_LONG_TEXT_CHARS

TROUBLED_STATUSES = ("failed", "not_validated", "warning")
# A bar: the status of its attempt, where it begins, and how long it is, in percent.
Bar = tuple[str, float, float]


def first_equal(
    attempt: StageAttempt,
    attempts: Sequence[StageAttempt],
    *,
    output: bool = True,
    findings: bool = True,
) -> int:
    """Return the number of the first attempt with the same output and findings.

    Returns 0 if no earlier one has them. Only what is true is compared; advice never
    is, because a check may name another example each time.
    """
    for earlier in attempts:
        if earlier.attempt >= attempt.attempt:
            break
        if output and earlier.output != attempt.output:
            continue
        if not findings or _findings(earlier) == _findings(attempt):
            return earlier.attempt
    return 0


def _findings(attempt: StageAttempt) -> list[tuple[str, str]]:
    """Return which checks ran on an attempt, and what each said."""
    return [(check.check_name, check.message) for check in attempt.checks]


def opened(stage: StageReport) -> set[int]:
    """Return the numbers of the attempts that stand open: what was kept, and the end.

    The end is the last attempt that repeats no other.
    """
    firsts = {
        attempt.attempt: first_equal(attempt, stage.attempts)
        for attempt in stage.attempts
    }
    ends = [number for number, first in firsts.items() if not first]
    best = stage.kept or 0
    return {firsts.get(best) or best, *ends[-1:]}


def finding_of(attempt: StageAttempt) -> str:
    """Return what was found in an attempt: the worst check, and what it said."""
    for status in TROUBLED_STATUSES:
        for check in attempt.checks:
            if check.status == status:
                return f"{check.check_name}: {check.message}"
    return ""


def hidden_checks(attempt: StageAttempt, shown: int) -> int:
    """Return how many results are not among the first `shown`, nor kept at all."""
    others = attempt.checks[shown:]
    return sum(1 + check.details.get("more", 0) for check in others)


def compared(before: StageAttempt | None, attempt: StageAttempt) -> Difference:
    """Return the output of an attempt, with what changed and what a check points at."""
    output = readable(attempt.output)
    # A span is a place in the output as the check saw it.
    spans: list[Span] = []
    for check in attempt.checks if output == attempt.output else ():
        if "span" in check.details:
            first, behind = check.details["span"]
            spans.append((first, behind, f"{check.check_name}: {check.message}"))

    change = difference(None, output, spans)
    if before is not None and before.output:
        changed = difference(readable(before.output), output, spans)
        # Where nothing stayed, the new answer says all.
        stayed = [text for kind, _, text in changed.parts if kind in ("same", "place")]
        change = changed if "".join(stayed).strip() else change
    unread = max(0, len(attempt.output) - MAX_LONG_TEXT_CHARS)
    return change._replace(unshown=unread)


def bars(report: Report) -> list[list[Bar]]:
    """Return the bars of each stage; pauses between attempts are left out."""
    total = worked(report) or 1.0
    begin = 0.0
    bars_by_stage: list[list[Bar]] = []
    for stage in report.stages:
        stage_bars: list[Bar] = []
        for attempt in stage.attempts:
            share = 100 * attempt.execution_time_ms / total
            stage_bars.append((attempt.shown_status, begin, share))
            begin += share
        bars_by_stage.append(stage_bars)
    return bars_by_stage


def worked(of: Report | StageReport) -> float:
    """Return how many milliseconds the attempts of a run or a stage took."""
    if isinstance(of, Report):
        return sum(map(worked, of.stages))
    return sum(attempt.execution_time_ms for attempt in of.attempts)


def read_lines(text: str) -> tuple[list[str], int]:
    """Return the lines of an output, each sentence as one, and its unread characters.

    The end of a very long text is not read.
    """
    lines = readable(text).replace(". ", ". \n").splitlines()
    return lines, max(0, len(text) - MAX_LONG_TEXT_CHARS)


def readable(text: str) -> str:
    """Return the beginning of an output without secrets; JSON data are indented."""
    text = redact_start(text, MAX_LONG_TEXT_CHARS)
    if not text.lstrip().startswith(("{", "[")):
        return text

    try:
        data = json.loads(text)
        if not data:
            return text
        return json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text

"""The matrix of a loop: a column for each attempt, a row for each goal and each check.

The last two rows say what the answer changed, and what was decided. The attempts are
those that the page shows.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from heedful.loop.record import format_score
from heedful.loop.runs import STATUS_ORDER, CheckResult, StageAttempt
from heedful.pages.attempt_table import compared, first_equal
from heedful.pages.run_report import STATUS_SIGNS
from heedful.validation import (
    MAX_LABEL_CHARS,
    MAX_SHOWN_ITEMS,
    MAX_SHOWN_LINE_CHARS,
    Document,
)
from heedful_server.web.page_templates import cut_words, stop_words

_KINDS = {"failed": "bad", "not_validated": "warn", "warning": "warn", "passed": "good"}
# A sign that is neither a cross nor a tick is understood only with its word.
_STATUS_WORDS = {"warning": " warning", "not_validated": " not judged"}


def make_matrix(
    attempts: Sequence[StageAttempt],
    decisions: Mapping[int, Document],
    best: int | None,
) -> Document:
    """Return the matrix of these attempts as JSON data.

    A cell has a `text`, a `title` with more, and a `kind`: "good", "bad", "warn" or "".
    `gone` and `new` are the first words that an answer changed. A cell is empty if
    nothing is recorded. `unshown` counts the checks without a row.
    """
    # Goals come first, then the checks that failed most often, then the others.
    weights = Counter[str]()
    for attempt in attempts:
        for check in attempt.checks:
            check_weight = 1_000 if check.status == "failed" else 1
            weights[row_name(check)] += 1_000_000 if _is_goal(check) else check_weight
    row_names = [name for name, _ in weights.most_common(MAX_SHOWN_ITEMS)]
    rows = []
    for name in row_names:
        cells = [_result(attempt, name) for attempt in attempts]
        rows.append({"about": "check", "name": name, "cells": cells})
    by_number = {attempt.attempt: attempt for attempt in attempts}
    changes = [
        _change(by_number.get(attempt.attempt - 1), attempt, attempts)
        for attempt in attempts
    ]
    ends = [_decision(attempt, decisions) for attempt in attempts]
    rows.append({"about": "change", "name": "answer", "cells": changes})
    rows.append({"about": "decision", "name": "decision", "cells": ends})
    return {
        "columns": list(by_number),
        "rows": [row for row in rows if any(row["cells"])],
        "best": best,
        "unshown": len(weights) - len(row_names),
    }


def row_name(check: CheckResult) -> str:
    """Return the name of a check, or of a goal with its threshold."""
    if not _is_goal(check):
        return check.check_name
    sign = "≤" if check.details["direction"] == "at_most" else "≥"
    return f"{check.check_name} {sign} {check.details['threshold']:g}"


def _is_goal(check: CheckResult) -> bool:
    return "threshold" in check.details


def _result(attempt: StageAttempt, name: str) -> Document:
    """Return the cell of a check: its worst result in an attempt, and how often."""
    results = [check for check in attempt.checks if row_name(check) == name]
    if not results:
        return {}
    worst = min(results, key=lambda check: STATUS_ORDER.index(check.status))
    text = f"{STATUS_SIGNS[worst.status]}{_STATUS_WORDS.get(worst.status, '')}"
    score = worst.details.get("score")
    if score is not None:
        text = f"{format_score(score)} {text}"
    count = sum(check.status == worst.status for check in results)
    if count > 1:
        text = f"{text} {count}"
    return {
        "text": text,
        "title": worst.message[:MAX_SHOWN_LINE_CHARS],
        "kind": _KINDS[worst.status],
    }


def _change(
    before: StageAttempt | None,
    attempt: StageAttempt,
    attempts: Sequence[StageAttempt],
) -> Document:
    """Return the cell with the first words that an answer changed.

    If it is the first answer or was rewritten as a whole, the cell has its beginning.
    """
    equal_attempt = first_equal(attempt, attempts, findings=False)
    if equal_attempt and attempt.output:
        return {"text": f"repeats {equal_attempt}", "kind": "warn"}
    if not attempt.output or (before is None and attempt.attempt > 1):
        return {}

    gone = ""
    new = ""
    for kind, _, words in compared(before, attempt).parts:
        if kind == "gone" and not gone:
            gone = _snippet(words)
        elif kind == "new":
            new = _snippet(words)
            break
        elif gone:
            break
    if gone or new:
        return {"text": "changed", "gone": gone, "new": new}
    return {
        "text": "rewritten" if before else "begins",
        "new": _snippet(attempt.output),
    }


def _snippet(words: str) -> str:
    """Return the beginning of some words."""
    line = " ".join(words[: 4 * MAX_LABEL_CHARS].split())
    return cut_words(line, MAX_LABEL_CHARS)


def _decision(attempt: StageAttempt, decisions: Mapping[int, Document]) -> Document:
    """Return the cell with what was decided after an attempt."""
    decision = decisions.get(attempt.attempt, {})
    if not decision:
        return {}
    if decision.get("verdict") == "again":
        text = "again"
        if decision.get("climbed"):
            text = f"to rung {decision.get('rung')}"
        lifted = ", ".join(stop["rule"] for stop in decision.get("lifted", ()))
        return {"text": text, "title": lifted and f"overridden: {lifted}"}
    if decision.get("passed"):
        status = attempt.shown_status
        if status in ("unchecked", "not_validated"):
            return {"text": status.replace("_", " "), "kind": "warn"}
        return {"text": "passed", "kind": "good"}
    why = "; ".join(stop_words(decision.get("stopped_by", ())))
    return {"text": "stopped", "title": why[:MAX_SHOWN_LINE_CHARS], "kind": "bad"}

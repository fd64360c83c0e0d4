"""Two attempts of a loop beside each other: what the second solves, and at what cost.

A row is about a check or a goal. It is `solved` if only the first attempt failed it,
`new` if only the second did, and `kept` if both did. A goal that both missed may be
`nearer` or `further`; a check that only warned may be `eased`, or it `warns` now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heedful.loop.record import Attempt, Goal, format_score
from heedful.sanitize import clean
from heedful.web.matrix import has_passed

MAX_COMPARED_CHECKS = 50
MAX_NAMES_CHARS = 200  # of the checks and goals that a sentence names
CHANGES = {
    ("failed", "failed"): "kept",
    ("failed", "passed"): "solved",
    ("failed", "no finding"): "solved",
    ("failed", "warning"): "solved",
    ("passed", "failed"): "new",
    ("no finding", "failed"): "new",
    ("warning", "failed"): "new",
    ("warning", "passed"): "eased",
    ("warning", "no finding"): "eased",
    ("passed", "warning"): "warns",
    ("no finding", "warning"): "warns",
}
Plain = dict[str, Any]


def compare_attempts(
    attempts: Sequence[Attempt], goals: Sequence[Goal], passed: Sequence[str]
) -> Plain:
    """Return the rows of two attempts, as JSON data, and a `sentence` about the pair.

    `passed` names the checks that found nothing in one of them. Rows that differ or
    that failed come first. The sentence is "" if one attempt is compared with itself.
    """
    checks: list[str] = []
    for attempt in attempts:
        if attempt.evaluation is not None:
            checks += [finding.check for finding in attempt.evaluation.findings]
    names = list(dict.fromkeys([*checks, *passed]))[:MAX_COMPARED_CHECKS]

    rows = [_check_row(name, attempts) for name in names]
    rows += [_goal_row(goal, attempts) for goal in goals]
    rows.sort(key=lambda row: row["change"] == "same")
    old, new = attempts
    sentence = ""
    if old.number != new.number:
        sentence = f"{_describe_rows(old, new, rows)}{_describe_spending(old, new)}"
    return {"rows": rows, "sentence": sentence}


def _check_row(check: str, attempts: Sequence[Attempt]) -> Plain:
    """Return the row of a check, with the gravest of its findings in each attempt.

    Whether a check without a finding has passed is said as in the matrix of the loop.
    """
    statuses = []
    for attempt in attempts:
        status = "not evaluated"
        if attempt.evaluation is not None:
            findings = attempt.evaluation.findings
            levels = {finding.level for finding in findings if finding.check == check}
            status = "passed" if has_passed(attempt, check) else "no finding"
            if levels & {"error", "warning"}:
                status = "failed" if "error" in levels else "warning"
            elif levels:
                status = "passed"
        statuses.append(status)
    return _row("check", check, statuses)


def _goal_row(goal: Goal, attempts: Sequence[Attempt]) -> Plain:
    """Return the row of a goal, with the scores of both attempts."""
    statuses = []
    texts = []
    margins = []
    for attempt in attempts:
        score = None
        if attempt.evaluation is not None:
            score = attempt.evaluation.scores.get(goal.score)
        if score is None:
            statuses.append("not evaluated")
            texts.append("not scored")
        else:
            statuses.append("passed" if goal.met(score) else "failed")
            texts.append(format_score(score))
            margins.append(goal.margin(score))

    sign = "≤" if goal.direction == "at_most" else "≥"
    row = _row("goal", goal.score, statuses)
    if row["change"] == "kept" and margins[0] != margins[1]:
        row["change"] = "nearer" if margins[1] > margins[0] else "further"
    return {**row, "goal": f"goal {sign} {goal.threshold}", "texts": texts}


def _row(subject: str, name: str, statuses: Sequence[str]) -> Plain:
    """Return a row with the status of each attempt, and how the two differ."""
    old, new = statuses
    change = "same" if old == new else "other"
    change = CHANGES.get((old, new), change)
    return {"about": subject, "name": name, "statuses": statuses, "change": change}


def _describe_rows(old: Attempt, new: Attempt, rows: Sequence[Plain]) -> str:
    """Return what the second attempt solves, still fails, and fails alone."""
    failed = [row for row in rows if row["statuses"][0] == "failed"]
    solved = [row for row in failed if row["change"] == "solved"]
    unsolved = [row for row in failed if row["change"] != "solved"]
    broken = [row for row in rows if row["change"] == "new"]

    phrases = []
    if solved:
        everything = "" if unsolved or broken else "all that failed: "
        phrases.append(f"solves {everything}{_names(solved)}")
    if unsolved:
        phrases.append(f"still fails {_names(unsolved)}")
    if broken:
        phrases.append(f"newly fails {_names(broken)}")
    if not phrases:
        phrases.append(f"fails nothing, like attempt {old.number}")
    return f"Attempt {new.number} {'; '.join(phrases)}.{_say_better(rows)}"


def _say_better(rows: Sequence[Plain]) -> str:
    """Return what else is better in the second attempt; "" if nothing is."""
    phrases = [
        f"{row['name']} {' to '.join(row['texts'])}"
        if row["change"] == "nearer"
        else f"{row['name']} warns no more"
        for row in rows
        if row["change"] in ("nearer", "eased")
    ]
    return f" Better: {clean(', '.join(phrases), MAX_NAMES_CHARS)}." if phrases else ""


def _names(rows: Sequence[Plain]) -> str:
    """Return the names of rows; of many, the first."""
    return clean(", ".join(row["name"] for row in rows), MAX_NAMES_CHARS)


def _describe_spending(old: Attempt, new: Attempt) -> str:
    """Return how much the second attempt costs of the first; "" if nobody reported it.

    Without a cost it is the number of tokens.
    """
    if old.usage.cost and new.usage.cost:
        return f" It costs {_describe_ratio(new.usage.cost / old.usage.cost)} much."
    if old.usage.tokens and new.usage.tokens:
        ratio = _describe_ratio(new.usage.tokens / old.usage.tokens)
        return f" It takes {ratio} many tokens."
    return ""


def _describe_ratio(ratio: float) -> str:
    """Return a ratio in words that end with "as".

    >>> _describe_ratio(2.03), _describe_ratio(1.8), _describe_ratio(1.02)
    ('twice as', '1.8 times as', 'about as')
    """
    rounded = f"{ratio:.1f}"
    words = {"0.5": "half as", "1.0": "about as", "2.0": "twice as"}
    return words.get(rounded, f"{rounded} times as")

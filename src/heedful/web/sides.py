"""Two attempts of a loop beside each other: what the second solves, and at what cost.

A row is about a check or a goal. It is `solved` if only the first attempt failed it,
`new` if only the second did, and `kept` if both did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heedful.loop.codec import from_document
from heedful.loop.record import Goal, format_score
from heedful.pages.report import counted
from heedful.sanitize import clean

MAX_COMPARED_CHECKS = 50
MAX_NAMED_ROWS = 3  # of the checks and goals that a sentence names
MAX_ROW_NAME_CHARS = 60
LEVEL_STATUSES = {"error": "failed", "warning": "warning", "note": "passed"}
Plain = dict[str, Any]


def compare_attempts(attempts: Sequence[Plain], goals: Sequence[Plain]) -> Plain:
    """Return the rows of two attempts, as JSON data, and a `sentence` about the pair.

    Rows that differ or that failed come first. The sentence is "" if one attempt is
    compared with itself.
    """
    old, new = attempts
    rows = [
        _row("check", name, [_check_status(attempt, name) for attempt in attempts])
        for name in _checks_of(attempts)[:MAX_COMPARED_CHECKS]
    ]
    for goal in goals:
        rows.append(_goal_row(from_document(Goal, goal), attempts))
    rows.sort(key=lambda row: row["change"] == "same")

    sentence = ""
    if old["number"] != new["number"]:
        sentence = f"{_describe_rows(old, new, rows)}{_describe_spending(old, new)}."
    return {"rows": rows, "sentence": sentence}


def _checks_of(attempts: Sequence[Plain]) -> list[str]:
    """Return the names of the checks of two attempts, those with a finding first."""
    names = [
        finding["check"]
        for attempt in attempts
        for finding in (attempt.get("evaluation") or {}).get("findings", ())
    ]
    for attempt in attempts:
        names += attempt["checked"]
    return list(dict.fromkeys(names))


def _check_status(attempt: Plain, name: str) -> str:
    """Return what a check said of an attempt: the gravest of its findings.

    A check without a finding has passed, as in the matrix of the loop.
    """
    evaluation = attempt.get("evaluation")
    if not evaluation:
        return "not evaluated"
    statuses = {
        LEVEL_STATUSES[finding.get("level") or "error"]
        for finding in evaluation.get("findings", ())
        if finding["check"] == name
    }
    for status in ("failed", "warning"):
        if status in statuses:
            return status
    return "passed"


def _goal_row(goal: Goal, attempts: Sequence[Plain]) -> Plain:
    """Return the row of a goal, with the scores of both attempts."""
    statuses = []
    texts = []
    for attempt in attempts:
        scores = (attempt.get("evaluation") or {}).get("scores") or {}
        score = scores.get(goal.score)
        if score is None:
            statuses.append("not evaluated")
            texts.append("not scored")
        else:
            statuses.append("passed" if goal.met(score) else "failed")
            texts.append(format_score(score))

    sign = "≤" if goal.direction == "at_most" else "≥"
    threshold = format_score(goal.threshold)
    return {
        **_row("goal", goal.score, statuses),
        "goal": f"goal {sign} {threshold}",
        "texts": texts,
    }


def _row(about: str, name: str, statuses: Sequence[str]) -> Plain:
    """Return a row with the status of each attempt, and how the two differ."""
    old, new = statuses
    if old == new:
        change = "kept" if old == "failed" else "same"
    elif new == "failed":
        change = "new"
    elif old == "failed" and new != "not evaluated":
        change = "solved"
    else:
        change = "other"
    return {"about": about, "name": name, "statuses": list(statuses), "change": change}


def _describe_rows(old: Plain, new: Plain, rows: Sequence[Plain]) -> str:
    """Return what the second attempt solves of what the first failed, and fails anew."""
    failed = [row for row in rows if row["statuses"][0] == "failed"]
    solved = [row for row in failed if row["change"] == "solved"]
    broken = [row for row in rows if row["change"] == "new"]
    first = f"attempt {old['number']}"
    second = f"Attempt {new['number']}"
    if not new.get("evaluation"):
        return f"{second} was not evaluated"
    if not failed and not broken:
        return f"{second} fails nothing, as {first}"
    if not failed:
        return f"{second} fails {_names(broken)}, which {first} did not"

    kept = [row for row in failed if row["change"] != "solved"]
    number = _count(failed)
    if len(failed) == 1:
        verb = "solves" if solved else "still fails"
        words = f"{second} {verb} the {failed[0]['about']} that {first} failed: "
        words += _names(failed)
    elif not kept:
        words = f"{second} solves all {number} that {first} failed"
    elif not solved:
        words = f"{second} solves none of the {number} that {first} failed: "
        words += _names(failed)
    else:
        words = f"{second} solves {len(solved)} of the {number} that {first} failed, "
        words += f"not {_names(kept)}"
    if broken:
        words += f"; it fails {_names(broken)}, which {first} did not"
    return words


def _count(rows: Sequence[Plain]) -> str:
    """Return how many checks and goals these rows are about."""
    kinds = {row["about"] for row in rows}
    if len(kinds) > 1:
        return f"{len(rows)} checks and goals"
    return counted(len(rows), rows[0]["about"])


def _names(rows: Sequence[Plain]) -> str:
    """Return the names of the first rows, and how many more there are."""
    names = [clean(row["name"], MAX_ROW_NAME_CHARS) for row in rows[:MAX_NAMED_ROWS]]
    if len(rows) > MAX_NAMED_ROWS:
        names.append(f"{len(rows) - MAX_NAMED_ROWS} more")
    return ", ".join(names)


def _describe_spending(old: Plain, new: Plain) -> str:
    """Return how much the second attempt costs of the first; "" if nobody reported it.

    Without a cost it is the number of tokens.
    """
    usages = [attempt.get("usage") or {} for attempt in (old, new)]
    costs = [usage.get("cost") or 0.0 for usage in usages]
    tokens = [
        usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)
        for usage in usages
    ]
    if all(costs):
        return f"; it costs {_describe_ratio(costs[1] / costs[0])} much"
    if all(tokens):
        ratio = _describe_ratio(tokens[1] / tokens[0])
        return f"; it takes {ratio} many tokens"
    return ""


def _describe_ratio(ratio: float) -> str:
    """Return a ratio in words that end with "as".

    >>> _describe_ratio(2.03), _describe_ratio(0.5), _describe_ratio(1.02)
    ('twice as', 'half as', 'about as')
    >>> _describe_ratio(1.8)
    '1.8 times as'
    """
    if abs(ratio - 1) < 0.05:
        return "about as"
    words = {"2.0": "twice as", "0.5": "half as"}
    rounded = f"{ratio:.1f}"
    return words.get(rounded, f"{rounded} times as")

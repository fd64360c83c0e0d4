"""What was wrong in a loop that was not solved, and what could put it right.

This is the check that failed in most attempts, with what it said last.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from heedful.lessons.scope import lesson_name
from heedful.lessons.signature import signature
from heedful.loop.decide import Again, triggers
from heedful.loop.record import Finding, Loop
from heedful.sanitize import clean
from heedful.store.records import StoredLoop

MAX_SENTENCE_TEXT_CHARS = 200  # of a message and of an evidence
MAX_OTHER_CHECKS = 3
Plain = dict[str, Any]


def find_failure(stored: StoredLoop) -> Plain | None:
    """Return why the last answer of a loop was not accepted; None if it was.

    `sentence` says it in words. `remedy` is the check that failed most: what would fix
    it, and whether a later attempt was told so; None if only goals were missed.
    """
    loop = stored.loop
    evaluations = [
        attempt.evaluation for attempt in loop.attempts if attempt.evaluation
    ]
    reasons = triggers(evaluations[-1], loop.goals) if evaluations else ()
    if not reasons:
        return None

    counts = Counter[str]()
    for evaluation in evaluations:
        counts.update({error.check for error in evaluation.errors})
    last = {error.check: error for error in evaluations[-1].errors}
    failing = [check for check, _ in counts.most_common() if check in last]
    if not failing:
        details = dict.fromkeys(reason.detail for reason in reasons)
        missed = "; ".join(list(details)[:MAX_OTHER_CHECKS])
        return {"sentence": f"Not solved: {missed}.", "remedy": None}

    error = last[failing[0]]
    number = counts[error.check]
    sentence = _say(error, number, len(loop.attempts))
    others = ", ".join(clean(check, 60) for check in failing[1 : MAX_OTHER_CHECKS + 1])
    if others:
        sentence += f"; also failed: {others}"
    return {"sentence": f"{sentence}.", "remedy": _remedy(error, number, stored)}


def _say(error: Finding, number: int, attempts: int) -> str:
    """Return in words which check failed how often, and what it said last."""
    times = f" in {number} of {attempts} attempts"
    if attempts == 1:
        times = ""
    elif number == attempts:
        times = f" in all {attempts} attempts"

    message = clean(error.message, MAX_SENTENCE_TEXT_CHARS).rstrip(" .")
    if error.evidence:
        message += f"; evidence: {clean(error.evidence, MAX_SENTENCE_TEXT_CHARS)}"
    return f"Not solved: {clean(error.check, 60)} failed{times} ({message})"


def _remedy(error: Finding, number: int, stored: StoredLoop) -> Plain:
    """Return what would fix an error, and what of it was in a feedback."""
    feedback = "\n".join(
        verdict.feedback for verdict in stored.verdicts if isinstance(verdict, Again)
    )
    fix = clean(error.fix or error.message, MAX_SENTENCE_TEXT_CHARS)
    return {
        "check": error.check,
        "attempts": number,
        "fix": error.fix,
        "evidence": error.evidence,
        "fed_back": fix.rstrip(" .") in feedback,
        "evidence_fed_back": clean(error.evidence, MAX_SENTENCE_TEXT_CHARS) in feedback,
        "lesson": lesson_name("check", signature(error.check, error.key).digest),
    }


def is_tied(loop: Loop) -> bool:
    """Return whether a loop has several attempts with equal errors and scores."""
    results = set()
    for attempt in loop.attempts:
        evaluation = attempt.evaluation
        if evaluation is None:
            return False
        errors = sorted(error.key for error in evaluation.errors)
        results.add((tuple(errors), tuple(sorted(evaluation.scores.items()))))
    return len(results) == 1 and len(loop.attempts) > 1

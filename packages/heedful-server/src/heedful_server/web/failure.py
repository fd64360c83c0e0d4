"""What could fix a loop that was not solved, and which lessons it broke."""

from collections import Counter
from collections.abc import Sequence

from heedful.lessons.scope import lesson_name
from heedful.lessons.signature import signature
from heedful.loop.decide import Again, Decision
from heedful.loop.record import Finding, Loop
from heedful.sanitize import clean
from heedful.store.records import StoredLoop
from heedful.validation import MAX_SHOWN_LINE_CHARS, Document


def find_remedy(stored: StoredLoop) -> Document | None:
    """Return which error of the last attempt came most often; None without an error.

    `check` found it, and `fix` is what the check asks for. `told` is the number of
    retries whose feedback said so, and `name` is that of the lesson about the error.
    """
    attempts = stored.loop.attempts
    errors = _errors_of(stored.loop, len(attempts))
    if not errors:
        return None
    counts = count_broken(stored.loop)
    error = max(errors, key=lambda error: counts[_lesson_of(error)])
    told_attempts = [
        decision.attempt
        for decision in stored.decisions
        if _names_error(stored.loop, decision, error.check)
    ]
    return {
        "check": error.check,
        "fix": error.fix,
        "told": len(told_attempts),
        "name": _lesson_of(error),
    }


def _names_error(loop: Loop, decision: Decision, check: str) -> bool:
    """Return whether the feedback of a decision says what a check found."""
    if not isinstance(decision.verdict, Again):
        return False
    for error in _errors_of(loop, decision.attempt):
        words = clean(error.fix or error.message, MAX_SHOWN_LINE_CHARS)
        if error.check == check and words.rstrip(" .") in decision.verdict.feedback:
            return True
    return False


def count_broken(loop: Loop) -> Counter[str]:
    """Map the name of each lesson to the number of attempts that made its error."""
    counts = Counter[str]()
    for number in range(1, len(loop.attempts) + 1):
        counts.update({_lesson_of(error) for error in _errors_of(loop, number)})
    return counts


def is_tied(loop: Loop) -> bool:
    """Return whether a loop has several attempts, all of them equally good."""
    results = set()
    for attempt in loop.attempts:
        evaluation = attempt.evaluation
        if evaluation is None:
            return False
        errors = tuple(sorted(error.key for error in evaluation.errors))
        scores = tuple(sorted(evaluation.scores.items()))
        results.add((errors, scores, evaluation.severities))
    return len(results) == 1 and len(loop.attempts) > 1


def _errors_of(loop: Loop, number: int) -> Sequence[Finding]:
    """Return the errors of the attempt with a number; () if it was not evaluated."""
    evaluation = loop.attempts[number - 1].evaluation if number else None
    return evaluation.errors if evaluation else ()


def _lesson_of(error: Finding) -> str:
    """Return the name of the lesson about an error."""
    return lesson_name("check", signature(error.check, error.key).digest)

"""What was wrong in a loop, in one sentence, and what could put it right.

The sentence has each check that failed with its attempts, and what the one that failed
most said last.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from heedful.lessons.scope import lesson_name
from heedful.lessons.signature import signature
from heedful.loop.decide import Again, Decision, triggers
from heedful.loop.record import Finding, Loop
from heedful.sanitize import clean
from heedful.store.records import StoredLoop

MAX_SENTENCE_TEXT_CHARS = 200  # of a message and of an evidence
MAX_NAMED_CHECKS = 4
Plain = dict[str, Any]


def describe_failures(loop: Loop) -> str:
    """Return in words what failed in which attempts, and how; "" if nothing did."""
    numbers_by_code: dict[str, list[int]] = defaultdict(list)
    details = {}
    for attempt in loop.attempts:
        reasons = triggers(attempt.evaluation, loop.goals) if attempt.evaluation else ()
        for reason in reversed(reasons):
            details[reason.code] = reason.detail
        for code in dict.fromkeys(reason.code for reason in reasons):
            numbers_by_code[code].append(attempt.number)
        for error in attempt.evaluation.errors if attempt.evaluation else ():
            if error.evidence and error.check in details:
                evidence = clean(error.evidence, MAX_SENTENCE_TEXT_CHARS)
                details[error.check] = f"{details[error.check]}; evidence: {evidence}"

    codes = sorted(numbers_by_code, key=lambda code: -len(numbers_by_code[code]))
    codes_by_place: dict[str, list[str]] = defaultdict(list)
    for code in codes[:MAX_NAMED_CHECKS]:
        place = _name_attempts(numbers_by_code[code], len(loop.attempts))
        codes_by_place[place].append(clean(code, 60))
    phrases = [
        f"{', '.join(names)} failed{place}" for place, names in codes_by_place.items()
    ]
    if codes:
        phrases[0] += f" ({details[codes[0]].rstrip(' .')})"
    return "; ".join(phrases)


def describe_repeats(loop: Loop) -> str:
    """Return in words which attempts repeat another one.

    Returns "" if only the last one does: how the loop ended says that.
    """
    numbers_by_first: dict[int, list[int]] = defaultdict(list)
    repeats = loop.repeats()
    for number, first in enumerate(repeats, 1):
        if first is not None:
            numbers_by_first[first].append(number)
    if not any(repeats[:-1]):
        return ""
    phrases = [
        loop.describe_repeats(numbers, first)
        for first, numbers in numbers_by_first.items()
    ]
    return "; ".join(phrases[:MAX_NAMED_CHECKS])


def find_remedy(stored: StoredLoop) -> Plain | None:
    """Return the error of the last attempt that came most often; None without one.

    `fix` says what would put it right, and `told` how many retries were told so; `name`
    is that of its lesson.
    """
    attempts = stored.loop.attempts
    errors = _errors_of(stored.loop, len(attempts))
    if not errors:
        return None
    counts = count_broken(stored.loop)
    error = max(errors, key=lambda error: counts[_lesson_of(error)])
    telling = [
        decision.attempt
        for decision in stored.decisions
        if _was_told(stored.loop, decision, error.check)
    ]
    return {
        "check": error.check,
        "fix": error.fix,
        "told": len(telling),
        "name": _lesson_of(error),
    }


def _was_told(loop: Loop, decision: Decision, check: str) -> bool:
    """Return whether the feedback of a decision says what a check found."""
    if not isinstance(decision.verdict, Again):
        return False
    for error in _errors_of(loop, decision.attempt):
        words = clean(error.fix or error.message, MAX_SENTENCE_TEXT_CHARS)
        if error.check == check and words.rstrip(" .") in decision.verdict.feedback:
            return True
    return False


def count_broken(loop: Loop) -> Counter[str]:
    """Return in how many attempts the error of a lesson came, by the lesson's name."""
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


def _name_attempts(numbers: Sequence[int], attempts: int) -> str:
    """Return in words in which of the attempts of a loop something failed.

    >>> _name_attempts([1], 1), _name_attempts([1, 2], 2), _name_attempts([2], 3)
    ('', ' in all 2 attempts', ' in attempt 2')
    >>> _name_attempts([1, 3], 4)
    ' in 2 of 4 attempts'
    """
    if len(numbers) == attempts:
        return f" in all {attempts} attempts" if attempts > 1 else ""
    if len(numbers) == 1:
        return f" in attempt {numbers[0]}"
    return f" in {len(numbers)} of {attempts} attempts"

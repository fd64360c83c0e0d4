"""What failed in a loop, in words: each check with its attempts, and what it said."""

from collections import defaultdict
from collections.abc import Sequence

from heedful.loop.decide import triggers
from heedful.loop.record import Loop
from heedful.sanitize import clean
from heedful.validation import MAX_LISTED_ITEMS


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
                evidence = clean(error.evidence, 200)
                details[error.check] = f"{details[error.check]}; evidence: {evidence}"

    codes = sorted(numbers_by_code, key=lambda code: -len(numbers_by_code[code]))
    codes_by_place: dict[str, list[str]] = defaultdict(list)
    for code in codes[:MAX_LISTED_ITEMS]:
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
    return "; ".join(phrases[:MAX_LISTED_ITEMS])


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

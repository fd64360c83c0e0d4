"""Find an earlier candidate that is nearly the same.

The program that drives a loop stores the result in the attempt, for the rule `Repeat`.
"""

import re
from collections import Counter
from collections.abc import Iterable

from heedful.loop.record import Attempt, Candidate

# A word with its digits, also with an apostrophe before a last "t"; a mark; or "_". The
# text "don't use x_1" has the tokens don't, use, x, _ and 1.
_CONTENT_TOKEN_PATTERN = re.compile(r"[^\W_]+(?:['’]t\b)?|[^\w\s]|_")
_NEGATIONS = frozenset(
    "no not never none nor neither without cannot nothing nobody".split()
)
MIN_PLATEAU_SIMILARITY = 0.9
MAX_COMPARED_CHARS = 100_000


def find_near_repeat(candidate: Candidate, earlier: Iterable[Attempt]) -> int | None:
    """Return the number of the first earlier attempt with nearly the same text.

    Texts are nearly the same if the Dice similarity of their tokens is at least 0.9 and
    if they have equal digits, English negations and operators in the same order. A text
    that is more than 1.25 times as long as the other, or a candidate of more than
    100,000 characters, is never nearly the same. None means that there is no such
    attempt.
    """
    text = candidate.text
    if text is None or len(text) > MAX_COMPARED_CHARS:
        return None

    tokens: Counter[str] | None = None
    for attempt in earlier:
        if attempt.candidate.digest == candidate.digest:
            return attempt.number

        # Texts of very different lengths are not compared, whatever they share.
        other = attempt.candidate.text
        if other is None or not 0.8 * len(text) <= len(other) <= 1.25 * len(text):
            continue

        if tokens is None:
            tokens = Counter(_CONTENT_TOKEN_PATTERN.findall(text))
        other_tokens = Counter(_CONTENT_TOKEN_PATTERN.findall(other))

        shared = (tokens & other_tokens).total()
        similarity_base = tokens.total() + other_tokens.total()
        alike = 2 * shared >= MIN_PLATEAU_SIMILARITY * similarity_base
        if alike and decisive_tokens(text) == decisive_tokens(other):
            return attempt.number

    return None


def is_negation(word: str) -> bool:
    """Return True for a word in small letters such as `not` or `didn't`."""
    return word in _NEGATIONS or word.endswith(("n't", "n’t"))


def decisive_tokens(text: str) -> list[str]:
    """Return the numbers, negations and operators of a text, in order."""
    decisive = []
    for token in _CONTENT_TOKEN_PATTERN.findall(text):
        word = token.lower()
        if (
            is_negation(word)
            or token in "+-*/%<>=!&|^~"
            or any(map(str.isdigit, token))
        ):
            decisive.append(token)

    return decisive

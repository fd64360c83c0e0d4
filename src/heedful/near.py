"""Whether a candidate is nearly the same as an earlier one: found once, by the host. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from heedful.loop.record import Attempt, Candidate

_TOKEN = re.compile(r"[^\W_]+(?:['’]t\b)?|[^\w\s]|_")
_NEGATIONS = frozenset("no not never none nor neither without cannot nothing nobody".split())
_OPERATORS = frozenset("+-*/%<>=!&|^~")
NEAR = 0.9
NEAR_LIMIT = 100_000


def near(candidate: Candidate, earlier: Iterable[Attempt]) -> int | None:
    """The number of the first earlier attempt with nearly the same text, None where there is none.

    Nearly: the Dice similarity of the token multisets is at least 0.9, and the digits, English
    negations and operators are the same in the same order. Texts above 100,000 characters are told
    apart by their digest alone.
    """
    text = candidate.text
    if text is None or len(text) > NEAR_LIMIT:
        return None
    tokens: Counter[str] | None = None
    for attempt in earlier:
        other = attempt.candidate.text
        if attempt.candidate.digest == candidate.digest:
            return attempt.number
        if other is None or not 0.8 * len(text) <= len(other) <= 1.25 * len(text):
            continue
        if tokens is None:
            tokens = Counter(_TOKEN.findall(text))
        others = Counter(_TOKEN.findall(other))
        shared = (tokens & others).total()
        if 2 * shared >= NEAR * (tokens.total() + others.total()) and weighty(text) == weighty(
            other
        ):
            return attempt.number
    return None


def weighty(text: str) -> list[str]:
    """The tokens whose change always makes a difference, in order."""
    return [t for t in _TOKEN.findall(text) if _isweighty(t)]


def _isweighty(token: str) -> bool:
    if token in _OPERATORS or any(c.isdigit() for c in token):
        return True
    low = token.lower()
    return low in _NEGATIONS or low.endswith(("n't", "n’t"))

"""The dates, names, changes and sentences of a text, held against evidence. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence

from heedful.checks.claims.figures import Claim, Passage, Verdict
from heedful.checks.claims.words import (
    MONTHS,
    STOP,
    WEEKDAYS,
    Date,
    content_stems,
)

# The least share of the words of a sentence that evidence must hold. What this flags agrees best
# with people on 984 texts about data and 376 about prose.
PROSE = 0.5
DATA = 0.2
_CALENDAR = frozenset(f"{MONTHS} {WEEKDAYS} am pm".split())

_UP = frozenset(
    "rise rises rose risen rising increase increases increased increasing grow grows grew grown"
    " growing climbed climbing gained jumped".split()
)
_DOWN = frozenset(
    "fall falls fell fallen falling decrease decreases decreased decreasing drop drops dropped"
    " dropping decline declines declined declining shrank sank".split()
)
# The tokens after a verb in which its numbers are looked for.
NEAR = 8
# Two such numbers are a time in which something changed.
YEARS = range(1500, 2200)


# Dates, names and sentences


def date_claims(passage: Passage) -> Iterator[Claim]:
    """Yield the dates: supported if a date of the evidence agrees."""
    known = {date._replace(start=0, end=0) for date, _ in passage.evidence.dates}
    why = "held against the dates of the evidence" if known else "the evidence has no dates"
    agreed: dict[Date, bool] = {}
    for date in passage.dates:
        plain = date._replace(start=0, end=0)
        if plain not in agreed:
            agreed[plain] = any(map(plain.agrees, known))
        verdict: Verdict = "not found"
        if known:
            verdict = "supported" if agreed[plain] else "contradicted"
        span = date.start, date.end
        yield Claim(span, passage.text[slice(*span)], "date", verdict, why=why)


def name_claims(passage: Passage) -> Iterator[Claim]:
    """Yield runs of capitalised words inside a sentence that the evidence does not know.

    After "the" or "to" the evidence should name the thing, so the name is contradicted.
    """

    def capital(at: int) -> bool:
        if at >= len(passage.tokens) or at in passage.dated:
            return False
        token = passage.tokens[at]
        plain = token.low in STOP or token.low in _CALENDAR
        return token.kind == "word" and token.text[0].isupper() and not plain

    at, beginnings = 0, set(passage.starts)
    while at < len(passage.tokens):
        last = at
        while capital(last) and capital(last + 1):
            last += 1
        first = at + (at in beginnings)  # where a capital says nothing
        words = [passage.low(n) for n in range(first, last + 1)] if capital(at) else []
        if not all(map(passage.evidence.knows_name, words)):
            near, before = passage.low(first - 1), passage.low(first - 2)
            shared = near == "to" or (near == "the" and before not in ("at", "in", "from"))
            verdict: Verdict = "contradicted" if shared else "not found"
            yield passage.claim((first, last), "name", verdict, why="not named in the evidence")
        at = last + 1


def statement_claims(passage: Passage, supported: Sequence[Claim]) -> Iterator[Claim]:
    """Yield the sentences of whose words the evidence holds few; supported claims in them count."""
    evidence = passage.evidence
    least = PROSE if evidence.prose else DATA
    starts = [first for first in passage.starts if first < len(passage.tokens)]
    begins = [passage.tokens[first].start for first in starts]
    right = Counter(bisect_right(begins, claim.span[0]) for claim in supported)
    for n, first in enumerate(starts, 1):
        _, end = passage.sentence(first)
        inside = passage.tokens[first:end]
        words = content_stems(token.low for token in inside if token.kind == "word")
        known = sum(map(evidence.knows, words))
        if len(words) > 2 and known + 2 * right[n] < least * (len(words) + 2 * right[n]):
            why = f"{known} of its {len(words)} words are in the evidence"
            yield passage.claim((first, end - 1), "statement", "not found", why=why)


# Words that compare


def change_claims(passage: Passage) -> Iterator[Claim]:
    """Yield the verbs of "rose from 3 to 2", which the two numbers must bear out."""
    for at, token in enumerate(passage.tokens):
        if token.low not in _UP and token.low not in _DOWN:
            continue
        _, end = passage.sentence(at)
        numbers = passage.numbers_in(at + 1, min(end, at + NEAR))
        start = next((q for q in numbers if q.form in ("digits", "word")), None)
        if start is None or passage.low(start.first - 1) != "from":
            continue
        after = passage.numbers_in(start.last + 1, min(end, start.last + NEAR))
        stop = next((q for q in after if passage.low(q.first - 1) == "to"), None)
        if stop is None or all(q.value in YEARS for q in (start, stop)):
            continue
        change = stop.value - start.value if token.low in _UP else start.value - stop.value
        why = f"from {start.value:g} to {stop.value:g}"
        yield passage.claim((at, at), "comparison", change >= 0, why=why)

"""Dates, names and sentences of a text against evidence. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence

from heedful.checks.claim import Claim, Verdict
from heedful.checks.dates import MONTHS, WEEKDAYS, Date
from heedful.checks.naming import STOP, content, stem
from heedful.checks.said import Said

# The least share of the words of a sentence that evidence must hold: on 984 texts about data and
# 376 about prose what is flagged agrees best with people so.
PROSE = 0.5
DATA = 0.2
_UNNAMED = frozenset((*MONTHS.split(), *WEEKDAYS, "am", "pm"))


def dates_of(said: Said) -> Iterator[Claim]:
    """Weekdays and dates: supported where a date of the evidence agrees."""
    known = {date._replace(start=0, end=0) for date, _ in said.evidence.dates}
    days = {date.weekday for date in known} - {None}
    for token in said.tokens:
        if token.low in WEEKDAYS and token.text[0].isupper():
            true = WEEKDAYS[token.low] in days or token.low in said.evidence.words
            yield _dated(token.start, token.end, said, true, bool(days))
    judged: dict[Date, bool] = {}
    for date in said.dates:
        plain = date._replace(start=0, end=0)
        if plain not in judged:
            judged[plain] = any(map(plain.agrees, known))
        yield _dated(date.start, date.end, said, judged[plain], bool(known))


def _dated(start: int, end: int, said: Said, true: bool, known: bool) -> Claim:
    verdict: Verdict = "supported" if true else "contradicted" if known else "not found"
    why = "held against the dates of the evidence" if known else "the evidence has no dates"
    return Claim((start, end), said.text[start:end], "date", verdict, why=why)


def names_of(said: Said) -> Iterator[Claim]:
    """Capitalised words inside a sentence that the evidence does not know.

    Where the evidence names things as this name is written ("the Hawks"), it is contradicted.
    """
    tokens, at = said.tokens, 0
    while at < len(tokens):
        last = at
        while _capital(said, last) and last + 1 < len(tokens) and _capital(said, last + 1):
            last += 1
        first = at + (at in said.beginnings)
        if _capital(said, at) and first <= last:
            yield from _name(said, first, last)
        at = last + 1


def _capital(said: Said, at: int) -> bool:
    token = said.tokens[at]
    plain = token.low in STOP or token.low in _UNNAMED or at in said.dated
    return token.kind == "word" and token.text[0].isupper() and not plain


def _name(said: Said, first: int, last: int) -> Iterator[Claim]:
    words = [said.low(at) for at in range(first, last + 1)]
    if all(_known(said, word) for word in words):
        return
    before = (said.low(first - 2), said.low(first - 1))
    shared = before[1] == "to" or (before[1] == "the" and before[0] not in ("at", "in", "from"))
    start, end = said.tokens[first].start, said.tokens[last].end
    verdict: Verdict = "contradicted" if shared else "not found"
    yield Claim(
        (start, end), said.text[start:end], "name", verdict, why="not named in the evidence"
    )


def _known(said: Said, word: str) -> bool:
    evidence = said.evidence
    if len(word) < 2 or stem(word) in evidence.words:
        return True
    if not evidence.prose and word[:4] in evidence.roots:
        return True
    for code in evidence.codes:
        rest = iter(word[1:])
        if code[0] == word[0] and all(letter in rest for letter in code[1:]):
            return True
    return False


def statements(said: Said, borne: Sequence[Claim]) -> Iterator[Claim]:
    """Sentences whose words the evidence hardly holds, though claims in them that are `borne` out.

    Prose says more of the words of a text about it than data do.
    """
    least = PROSE if said.evidence.prose else DATA
    begins = [said.tokens[at].start for at in said.starts if at < len(said.tokens)]
    true = Counter(bisect_right(begins, claim.span[0]) for claim in borne)
    for n, start in enumerate(begins, 1):
        first, end = said.sentence(said.starts[n - 1])
        inside = said.tokens[first:end]
        words = content(token.low for token in inside if token.kind == "word")
        known = sum(map(said.evidence.knows, words))
        if len(words) > 2 and known + 2 * true[n] < least * (len(words) + 2 * true[n]):
            span = start, inside[-1].end
            why = f"{known} of its {len(words)} words are in the evidence"
            yield Claim(span, said.text[slice(*span)], "statement", "not found", why=why)

"""The dates, names, changes, conditions and sentences of a text, held against evidence. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence

from heedful.checks.claims.evidence import (
    Column,
    Mention,
    Path,
    Row,
    Table,
    Words,
    cell_value,
    title,
)
from heedful.checks.claims.figures import Claim, Passage, Verdict, split_word
from heedful.checks.claims.words import (
    MONTHS,
    STOP,
    WEEKDAYS,
    Date,
    content_stems,
    tokenize,
)

# The least share of the words of a sentence that evidence must hold. What this flags agrees best
# with people on 984 texts about data and 376 about prose.
PROSE = 0.5
DATA = 0.2
_CALENDAR = frozenset((*MONTHS.split(), *WEEKDAYS, "am", "pm"))

_UP = frozenset(
    "rise rises rose risen rising increase increases increased increasing grow grows grew grown"
    " growing climbed climbing gained jumped".split()
)
_DOWN = frozenset(
    "fall falls fell fallen falling decrease decreases decreased decreasing drop drops dropped"
    " dropping decline declines declined declining shrank sank".split()
)
_MOST = frozenset("highest largest greatest biggest most maximum longest heaviest".split())
_LEAST = frozenset("lowest smallest least fewest minimum shortest lightest".split())
_IS = frozenset("is was are were has had have of by for at : belongs to goes held".split())
_ENDS = frozenset(".,;:()!?") | frozenset("and but than among of in is was at for by".split())
# The words of a phrase that names a column.
LONGEST = 5
# The tokens after a verb in which its numbers are looked for.
NEAR = 8
# Two such numbers are a time in which something changed.
YEARS = range(1500, 2200)


# Dates, names and sentences


def date_claims(passage: Passage) -> Iterator[Claim]:
    """Yield weekdays and dates: supported if a date of the evidence agrees."""
    known = {date._replace(start=0, end=0) for date, _ in passage.evidence.dates}
    days = {date.weekday for date in known} - {None}

    def claim(start: int, end: int, true: bool, dated: bool) -> Claim:
        why = "held against the dates of the evidence" if dated else "the evidence has no dates"
        verdict: Verdict = "supported" if true else "contradicted" if dated else "not found"
        return Claim((start, end), passage.text[start:end], "date", verdict, why=why)

    for token in passage.tokens:
        if token.low in WEEKDAYS and token.text[0].isupper():
            true = WEEKDAYS[token.low] in days or token.low in passage.evidence.words
            yield claim(token.start, token.end, true, bool(days))
    agreed: dict[Date, bool] = {}
    for date in passage.dates:
        plain = date._replace(start=0, end=0)
        if plain not in agreed:
            agreed[plain] = any(map(plain.agrees, known))
        yield claim(date.start, date.end, agreed[plain], bool(known))


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
    """Yield the sentences with few words from the evidence; their supported claims count."""
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


# Changes


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


# Conditions of a lexicon


def condition_claims(passage: Passage) -> Iterator[Claim]:
    """Yield the names of derived conditions, each held against the row that it is said of."""
    lexicon = passage.evidence.lexicon
    lows = [token.low for token in passage.tokens]
    for name, derived in lexicon.derived.items():
        words = [token.low for token in lexicon.read(tokenize(name))]
        for at in range(len(lows)) if words and derived.at_least is not None else ():
            if lows[at : at + len(words)] != words:
                continue
            rows = (row for mention in passage.subjects(at)[:1] for row in mention.rows)
            known = [true for row in rows if (true := derived.holds(row)) is not None]
            if known:
                columns = ", ".join(derived.columns)
                why = f"{derived.of} of {columns} must reach {derived.at_least:g}"
                span = at, at + len(words) - 1
                yield passage.claim(span, "comparison", any(known), why=why)


# "the highest price"


class Extremes:
    """Judges what a text says is highest or lowest."""

    def __init__(self, passage: Passage) -> None:
        self.passage: Passage = passage
        self._best_rows: dict[tuple[Column, Path, bool], Row] = {}

    def claims(self) -> Iterator[Claim]:
        """Yield each superlative that is said of a row and names one column."""
        for at, token in enumerate(self.passage.tokens):
            if token.low in _MOST or token.low in _LEAST:
                phrase, until = self._phrase(at)
                rows = (row for mention in self._holder(at, until) for row in mention.rows)
                claims = (self._judge(at, until, row, phrase) for row in rows if phrase)
                yield from [claim for claim in claims if claim][:1]

    def _judge(self, at: int, until: int, row: Row, phrase: Words) -> Claim | None:
        table = self.passage.evidence.tables[row.table]
        columns = table.whole(phrase)
        own = cell_value(row, columns[0]) if len(columns) == 1 else None
        if own is None or len(table.rows) < 2:
            return None
        best = self._best(table, columns[0], self.passage.low(at) in _MOST)
        top = cell_value(best, columns[0])
        why = f"{title(best)} has {top:g}, {title(row)} {own:g}"
        span = at, until - 1
        return self.passage.claim(span, "comparison", own == top, title(best), why)

    def _phrase(self, at: int) -> tuple[Words, int]:
        """Return the words after a token up to a break, a number or a name, and where they end."""
        _, end = self.passage.sentence(at)
        named = {m.first for m in self.passage.mentions_in(at + 1, min(end, at + NEAR))}
        words: list[str] = []
        for n in range(at + 1, min(end, at + 1 + LONGEST)):
            low = self.passage.low(n)
            if low in _ENDS or n in named or not low[0].isalpha():
                return tuple(words), n
            words += split_word(low)
        return tuple(words), min(end, at + 1 + LONGEST)

    def _best(self, table: Table, column: Column, most: bool) -> Row:
        """Return the first row with the greatest, or the least, value in a column that has one."""
        key = column, table.path, most
        if key not in self._best_rows:
            values = [(v, row) for row in table.rows if (v := cell_value(row, column)) is not None]
            self._best_rows[key] = (max if most else min)(values, key=lambda pair: pair[0])[1]
        return self._best_rows[key]

    def _holder(self, at: int, until: int) -> Sequence[Mention]:
        """Return whom a superlative is said of: named right after its phrase, or before it."""
        low, (start, end) = self.passage.low, self.passage.sentence(at)
        inside = self.passage.mentions_in
        words = [low(n) for n in range(until, min(end, until + NEAR))]
        after = [m for m in inside(until, min(end, until + NEAR)) if m.rows]
        if after and set(words[: after[0].first - until]) & _IS:
            return after[:1]
        before = [m for m in inside(start, at) if m.rows][-1:]
        between = [low(n) for m in before for n in range(m.last + 1, at)]
        apart = {";", "but", "than", "of"} & set(between)
        clause = {",", "and"} & set(between[:-1]) and words[:1] in (["is"], ["was"])
        return [] if apart or clause else before

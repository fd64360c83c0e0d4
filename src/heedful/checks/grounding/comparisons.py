"""The dates, names, sentences and words that compare in a text, held against evidence. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from heedful.checks.grounding.evidence import (
    Cell,
    Column,
    Mention,
    Path,
    Row,
    Table,
    Words,
    cell_value,
    title,
)
from heedful.checks.grounding.figures import Claim, Figures, Passage, Verdict, split_word
from heedful.checks.grounding.words import (
    MONTHS,
    ORDINALS,
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
_MORE = frozenset("higher larger greater bigger more longer heavier".split())
_LESS = frozenset("lower smaller less fewer shorter lighter".split())
_LEADS = frozenset("led lead leads leading topped".split())
_IS = frozenset("is was are were has had have of by for at : belongs to goes held".split())
_ENDS = frozenset(".,;:()!?") | frozenset("and but than among of in is was at for by".split())
# A group of fewer rows has no leader, and of more rows only so many count.
FEW, MANY = 3, 2_000
# The tokens after a word that count, and the words of its phrase.
NEAR = 8
LONGEST = 5


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


class Comparisons:
    """Judges the words of one text that compare rows and numbers."""

    def __init__(self, passage: Passage, figures: Figures) -> None:
        self.passage: Passage = passage
        self._groups = passage.evidence.lexicon.groups
        self._extremes: dict[tuple[Column, Path, bool], Row] = {}
        self._measured: dict[int, list[tuple[int, Cell]]] = {}
        for quantity, (_, cell) in sorted(figures.bound.items()):
            if quantity not in figures.paired:
                start, _ = passage.sentence(quantity.first)
                self._measured.setdefault(start, []).append((quantity.first, cell))

    def claims(self) -> Iterator[Claim]:
        """Yield what the text says rises, is highest, higher, leads, ranks or belongs."""
        for at, token in enumerate(self.passage.tokens):
            if token.low in _UP or token.low in _DOWN:
                yield from self._moves(at)
            elif token.low in _MOST or token.low in _LEAST:
                yield from self._extreme(at)
            elif token.low in _MORE or token.low in _LESS:
                yield from self._exceeds(at)
            elif token.low == "high" or token.low in _LEADS:
                yield from self._leads(at)
            elif token.low in ORDINALS:
                yield from self._ranks(at)
        for one, two in pairwise(self.passage.mentions):
            yield from self._belongs(one, two)
        yield from self._derived()

    def _claim(self, first: int, last: int, true: bool, nearest: str, why: str) -> Claim:
        return self.passage.claim((first, last), "comparison", true, nearest, why)

    # "rose from 3 to 2"

    def _moves(self, at: int) -> Iterator[Claim]:
        low, (_, end) = self.passage.low, self.passage.sentence(at)
        numbers = self.passage.numbers_in(at + 1, min(end, at + NEAR))
        start = next((q for q in numbers if q.form in ("digits", "word")), None)
        if start is None or low(start.first - 1) != "from":
            return
        after = self.passage.numbers_in(start.last + 1, min(end, start.last + NEAR))
        stop = next((q for q in after if low(q.first - 1) == "to"), None)
        years = {float(date.year) for date, _ in self.passage.evidence.dates}
        if stop is None or {start.value, stop.value} <= years:
            return
        change = stop.value - start.value if low(at) in _UP else start.value - stop.value
        yield self._claim(at, at, change >= 0, "", f"from {start.value:g} to {stop.value:g}")

    # "the highest price", "a lower price than Bern"

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

    def _column(self, row: Row, phrase: Words) -> Column | None:
        """Return the one column of the table of a row that a phrase names to the end."""
        columns = self.passage.evidence.tables[row.table].whole(phrase) if phrase else []
        return columns[0] if len(columns) == 1 else None

    def _extreme(self, at: int) -> Iterator[Claim]:
        phrase, until = self._phrase(at)
        for mention in self._holder(at, until):
            for row in mention.rows:
                column = self._column(row, phrase)
                table = self.passage.evidence.tables[row.table]
                own = cell_value(row, column) if column else None
                if column is None or own is None or len(table.rows) < 2:
                    continue
                best = self._best(table, column, self.passage.low(at) in _MOST)
                top = cell_value(best, column)
                why = f"{title(best)} has {top:g}, {title(row)} {own:g}"
                yield self._claim(at, until - 1, own == top, title(best), why)
                return

    def _best(self, table: Table, column: Column, most: bool) -> Row:
        """Return the first row with the greatest, or the least, value in a column that has one."""
        key = column, table.path, most
        if key not in self._extremes:
            values = [(v, row) for row in table.rows if (v := cell_value(row, column)) is not None]
            self._extremes[key] = (max if most else min)(values, key=lambda pair: pair[0])[1]
        return self._extremes[key]

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

    def _exceeds(self, at: int) -> Iterator[Claim]:
        low, (start, end) = self.passage.low, self.passage.sentence(at)
        than = next((n for n in range(at, min(end, at + NEAR)) if low(n) == "than"), None)
        if than is None:
            return
        inside = self.passage.mentions_in
        before = [m for m in inside(start, at) if len(m.rows) == 1][-1:]
        after = [m for m in inside(than, min(end, than + 4)) if len(m.rows) == 1][:1]
        for one, two in zip(before, after, strict=False):
            between = tuple(p for n in range(one.last + 1, at) for p in split_word(low(n)))
            (a,), (b,) = one.rows, two.rows
            column = self._column(a, self._phrase(at)[0]) or self._column(a, between)
            if column is None or a.table != b.table or a is b:
                continue
            x, y = cell_value(a, column), cell_value(b, column)
            if x is not None and y is not None:
                true = x > y if low(at) in _MORE else x < y
                yield self._claim(at, at, true, "", f"{title(a)} has {x:g}, {title(b)} {y:g}")

    # "led the Otters with 18 points", "a team-high 14", "second on the team"

    def _group(self, row: Row) -> list[Row]:
        """Return the rows that belong where the row does; without that all rows of its table."""
        rows = self.passage.evidence.tables[row.table].rows[:MANY]
        home = self.passage.evidence.home(row)
        return [r for r in rows if r.cells.get(home[0]) == row.cells[home[0]]] if home else rows

    def _cells(self, at: int) -> list[tuple[int, Cell]]:
        """Return the cells that the numbers of a sentence were held against, in order."""
        return self._measured.get(self.passage.sentence(at)[0], [])

    def _leads(self, at: int) -> Iterator[Claim]:
        low, high = self.passage.low, self.passage.low(at) == "high"
        after = at + 1 + (low(at + 1) == "the")
        word = low(at - 2) if high and low(at - 1) == "-" else low(after)
        named = low(after) == "by" or self.passage.mentions_in(after, after + 1)
        if word not in self._groups and (high or not named):
            return
        for _, cell in [one for one in self._cells(at) if not high or one[0] > at][:1]:
            table = self.passage.evidence.tables[cell.row.table].rows[:MANY]
            rows = table if self._groups.get(word) == "table" else self._group(cell.row)
            values = [(v, row) for row in rows if (v := cell_value(row, cell.column)) is not None]
            if len(rows) >= FEW and values and cell.value is not None:
                top, best = max(values, key=lambda pair: pair[0])
                first = at - 2 * high
                why = f"{top:g} is the highest"
                yield self._claim(first, at, cell.value >= top, title(best), why)

    def _ranks(self, at: int) -> Iterator[Claim]:
        words = [self.passage.low(at + n) for n in (1, 2, 3)]
        if words[0] not in ("on", "in", "among") or words[1] != "the":
            return
        for _, cell in self._cells(at)[:1] if words[2] in self._groups else ():
            rows, own = self._group(cell.row), cell.value
            if own is not None and len(rows) >= FEW:
                rank = 1 + sum((cell_value(row, cell.column) or 0) > own for row in rows)
                true = rank == ORDINALS[self.passage.low(at)]
                yield self._claim(at, at, true, str(rank), "its rank in the first measure named")

    def _belongs(self, one: Mention, two: Mention) -> Iterator[Claim]:
        """Judge "X led the Otters" and "X of the Otters", when X belongs to others."""
        between = [self.passage.low(at) for at in range(one.last + 1, two.first)]
        if len(between) > NEAR or not {",", ".", ";"}.isdisjoint(between):
            return
        leads = not _LEADS.isdisjoint(between)
        whole, part = (one, two) if leads and "by" in between else (two, one)
        if not (leads or between[:1] in (["for"], ["of"])):
            return
        found = [home[1] for row in part.rows if (home := self.passage.evidence.home(row))]
        own = {row.table for row in part.rows}
        homes = [home for rows in found for home in rows if home.table not in own]
        rows = [row for row in whole.rows if homes and row.table == homes[0].table]
        if rows and not any(row in homes for row in rows):
            why = f"belongs to {title(homes[0])}"
            yield self._claim(whole.first, whole.last, False, title(homes[0]), why)

    # The conditions of a lexicon

    def _derived(self) -> Iterator[Claim]:
        """Judge the names of derived conditions, each of the row that it is said of."""
        conditions = {
            tuple(token.low for token in tokenize(name)): (condition, condition.at_least)
            for name, condition in self.passage.evidence.lexicon.derived.items()
            if condition.at_least is not None
        }
        for at in range(len(self.passage.tokens)) if conditions else ():
            for name, (condition, least) in conditions.items():
                last = at + len(name) - 1
                if tuple(self.passage.low(n) for n in range(at, last + 1)) != name:
                    continue
                for row in [r for m in self.passage.subjects(at)[:1] for r in m.rows]:
                    table = self.passage.evidence.tables[row.table]
                    columns = [c for c in map(table.named, condition.columns) if c]
                    values = [v for c in columns if (v := cell_value(row, c)) is not None]
                    if len(values) >= condition.of:
                        many = sum(v >= least for v in values)
                        why = f"{many} of its columns reach {least:g}"
                        yield self._claim(at, last, many >= condition.of, "", why)

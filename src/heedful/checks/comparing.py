"""Words that compare: "rose from 3 to 2", "the highest price", "a lower price than Bern". Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

from heedful.checks.claim import Claim, Verdict
from heedful.checks.evidence import Mention, title
from heedful.checks.naming import TIMES
from heedful.checks.quantities import Quantity
from heedful.checks.reading import Path, Record
from heedful.checks.said import Said, split
from heedful.checks.table import Column, Table, Words, value

# Said of going up, and of going down.
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
_IS = frozenset("is was are were has had have of by for at : belongs to goes held".split())
_ENDS = frozenset(".,;:()!?") | frozenset("and but than among of in is was at for by".split())
_STEADY = frozenset("steady steadily consistent consistently continuous continuously".split())
# What is steady goes one way in this share of its changes, of which there are at least so many.
MOSTLY = 0.6
FEW = 3
# Tokens that are looked at after a word that compares.
NEAR = 8
LONGEST = 5


class Comparing:
    """Judges the words of one text that compare."""

    def __init__(self, said: Said) -> None:
        self.said: Said = said
        self._years = {float(date.year) for date, _ in said.evidence.dates}
        self._extremes: dict[tuple[Column, Path, bool], Record] = {}

    def claims(self) -> Iterator[Claim]:
        """What is said to rise or fall, to be the highest or lowest, higher or lower."""
        for at, token in enumerate(self.said.tokens):
            if token.low in _UP or token.low in _DOWN:
                yield from self._moves(at)
                yield from self._steadily(at)
            elif token.low in _MOST or token.low in _LEAST:
                yield from self._tops(at)
            elif token.low in _MORE or token.low in _LESS:
                yield from self._exceeds(at)

    def _claim(self, first: int, last: int, true: bool, nearest: str, why: str) -> Claim:
        span = self.said.tokens[first].start, self.said.tokens[last].end
        verdict: Verdict = "supported" if true else "contradicted"
        return Claim(span, self.said.text[slice(*span)], "comparison", verdict, (), nearest, why)

    # "rose from 3 to 2"

    def _moves(self, at: int) -> Iterator[Claim]:
        _, end = self.said.sentence(at)
        stop = min(end, at + NEAR)
        found = [q for q in self.said.numbers_in(at + 1, stop) if q.form in ("digits", "word")]
        if not found or self.said.low(found[0].first - 1) != "from":
            return
        after = self.said.numbers_in(found[0].last + 1, min(end, found[0].last + NEAR))
        to = next((q for q in after if self.said.low(q.first - 1) == "to"), None)
        if to is None or self._told_of_years(found[0], to):
            return
        up = self.said.low(at) in _UP
        true = to.value >= found[0].value if up else to.value <= found[0].value
        yield self._claim(at, at, true, "", f"from {found[0].value:g} to {to.value:g}")

    def _told_of_years(self, *numbers: Quantity) -> bool:
        return all(one.value in self._years for one in numbers)

    # "a steady rise"

    def _steadily(self, at: int) -> Iterator[Claim]:
        """Most changes from date to date go the way that is said to be steady."""
        start, end = self.said.sentence(at)
        steady = [n for n in (at - 1, at + 1) if self.said.low(n) in _STEADY]
        series = self._series if steady and not self.said.dates_in(start, end) else []
        changes = [b - a for a, b in pairwise(series) if a != b]
        if len(changes) >= FEW:
            going = sum((change > 0) == (self.said.low(at) in _UP) for change in changes)
            share = going / len(changes)
            why = f"{share:.0%} of the changes from date to date go that way"
            yield self._claim(min(steady[0], at), max(steady[0], at), share >= MOSTLY, "", why)

    @cached_property
    def _series(self) -> list[float]:
        """The values of the one measure of the one table whose rows are dated, in their order."""
        tables = {row.table for _, row in self.said.evidence.dates}
        measures = [
            column
            for path in tables
            for column in self.said.evidence.tables[path].numeric
            if TIMES.isdisjoint(column.own)
        ]
        if len(tables) != 1 or len(measures) != 1:
            return []
        rows = sorted(self.said.evidence.dates, key=lambda pair: pair[0][2:])
        return [v for _, row in rows if (v := value(row, measures[0])) is not None]

    # "the highest price"

    def _phrase(self, at: int) -> tuple[Words, int]:
        """The words after a token up to a break, a number or a name, and where they end."""
        _, end = self.said.sentence(at)
        named = {one.first for one in self.said.within(at + 1, min(end, at + NEAR))}
        found: list[str] = []
        for n in range(at + 1, min(end, at + 1 + LONGEST)):
            low = self.said.low(n)
            if low in _ENDS or n in named or not low[0].isalpha():
                return tuple(found), n
            found += split(low)
        return tuple(found), min(end, at + 1 + LONGEST)

    def _column(self, row: Record, phrase: Words) -> Column | None:
        """The one column of the table of a row that a phrase names to the end."""
        found = self.said.evidence.tables[row.table].bound(phrase) if phrase else ()
        whole = [one.column for one in found if not one.left]
        return whole[0] if len(whole) == 1 else None

    def _tops(self, at: int) -> Iterator[Claim]:
        phrase, until = self._phrase(at)
        for mention in self._who(at, until):
            for row in mention.rows:
                column = self._column(row, phrase)
                table = self.said.evidence.tables[row.table]
                if column is None or len(table.rows) < 2 or value(row, column) is None:
                    continue
                best = self._extreme(table, column, self.said.low(at) in _MOST)
                own, top = value(row, column) or 0.0, value(best, column) or 0.0
                why = f"{title(best)} has {top:g}, {title(row)} {own:g}"
                yield self._claim(at, until - 1, own == top, title(best), why)
                return

    def _extreme(self, table: Table, column: Column, most: bool) -> Record:
        """The first row with the greatest, or the least, value in a column that has one."""
        key = column, table.path, most
        if key not in self._extremes:
            held = [(v, row) for row in table.rows if (v := value(row, column)) is not None]
            self._extremes[key] = (max if most else min)(held, key=lambda pair: pair[0])[1]
        return self._extremes[key]

    def _who(self, at: int, until: int) -> Sequence[Mention]:
        """Whom a superlative is said of: named right after its phrase, or before it."""
        start, end = self.said.sentence(at)
        words = [self.said.low(n) for n in range(until, min(end, until + NEAR))]
        after = [one for one in self.said.within(until, min(end, until + NEAR)) if one.rows]
        if after and set(words[: after[0].first - until]) & _IS:
            return after[:1]
        before = [one for one in self.said.within(start, at) if one.rows][-1:]
        between = [self.said.low(n) for one in before for n in range(one.last + 1, at)]
        apart = {";", "but", "than", "of"} & set(between)
        new = {",", "and"} & set(between[:-1]) and words[:1] != [] and words[0] in ("is", "was")
        return [] if apart or new else before

    # "a lower price than Bern"

    def _exceeds(self, at: int) -> Iterator[Claim]:
        start, end = self.said.sentence(at)
        than = next((n for n in range(at, min(end, at + NEAR)) if self.said.low(n) == "than"), None)
        if than is None:
            return
        before = [one for one in self.said.within(start, at) if len(one.rows) == 1][-1:]
        after = [one for one in self.said.within(than, min(end, than + 4)) if len(one.rows) == 1][
            :1
        ]
        for one, two in zip(before, after, strict=False):
            phrase, _ = self._phrase(at)
            between = tuple(p for n in range(one.last + 1, at) for p in split(self.said.low(n)))
            (a,), (b,) = one.rows, two.rows
            column = self._column(a, phrase) or self._column(a, between)
            if column is None or a.table != b.table or a is b:
                continue
            x, y = value(a, column), value(b, column)
            if x is not None and y is not None:
                true = x > y if self.said.low(at) in _MORE else x < y
                why = f"{title(a)} has {x:g}, {title(b)} {y:g}"
                yield self._claim(at, at, true, "", why)

"""A text divided for grounding; its numbers bound to rows and columns, and judged. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, permutations
from typing import Literal, NamedTuple

from heedful.checks.claims.evidence import (
    Cell,
    Column,
    Evidence,
    Mention,
    Path,
    Row,
    Table,
    Words,
    cell_value,
)
from heedful.checks.claims.words import (
    TIMES,
    Date,
    Quantity,
    Token,
    dates,
    likeness,
    quantities,
    split_name,
    tokenize,
)

Kind = Literal["number", "date", "name", "comparison", "statement"]
Verdict = Literal["supported", "contradicted", "not found"]
_ENDS = frozenset(".!?;\n。！？")
_BREAKS = frozenset(".,!?;:()[]")
_INTRODUCES = frozenset(":=(*~≈$€£|`")
_CLAUSES = frozenset("and but while whereas although though which who".split())
# The words of a phrase, and the mentions before a sentence, that count.
PHRASE = 6
EARLIER = 20
# A sentence of more tokens is taken as several.
LONGEST = 200
# The rows of a sentence that two numbers are compared with.
FEW = 6
# The dated rows that make a table a series; with fewer its dates are facts among others.
SERIES = 3
# "About 50" includes 48 to 52.
LOOSE = 0.05
_LOOSE = frozenset("around about approximately roughly nearly almost over under ~ above".split())
_LOOSE |= frozenset(("below", "than"))
_DIFFERS = frozenset(
    "by win victory loss defeat lead margin deficit advantage difference gap more fewer less"
    " increase decrease rise fall drop rose fell grew below above better worse improved improvement"
    " reduced reduction".split()
)
_SAYS = frozenset(
    "is was are were be been of at to from between around about approximately nearly reached"
    " reaching only just than : = ( hit".split()
)
_OF = frozenset(("of", "is", "was", "=", ":", "at"))
NEAR = 4
BRACKET = 40
_UNTIL = frozenset(("to", "until", "till", "through", "-", "–"))

Cells = tuple[Cell, Cell]


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim at `span` (characters, half open) and what the evidence says of it.

    `paths` are the places of the evidence that it was held against, `nearest` the true value there
    as text, "" without one; `why` says in a few words what it was bound to. `judge` is the name of
    the model that gave the verdict, "" if the rules did.
    """

    span: tuple[int, int]
    text: str
    kind: Kind
    verdict: Verdict
    paths: tuple[str, ...] = ()
    nearest: str = ""
    why: str = ""
    judge: str = ""


class Pair(NamedTuple):
    """Two numbers written together: "113 - 107" (joined by "-"), "3 of 5", "from 3 to 5"."""

    one: Quantity
    two: Quantity
    joined: str


class Passage:
    """The tokens of a text with its sentences, numbers and mentions of rows of the evidence."""

    def __init__(self, text: str, evidence: Evidence) -> None:
        self.text: str = text
        self.evidence: Evidence = evidence
        self.tokens: list[Token] = evidence.lexicon.read(tokenize(text))
        self.dates: list[Date] = list(dates(text))
        self._words: dict[int, tuple[str, ...]] = {}
        self.mentions: list[Mention] = evidence.mentions(self.tokens)
        self._mentioned = {at for m in self.mentions for at in range(m.first, m.last + 1)}
        self.quantities: list[Quantity] = [
            q
            for q in quantities(self.tokens)
            if not (q.first in self._mentioned or q.first in self.dated or self._is_label(q))
        ]

    @cached_property
    def dated(self) -> frozenset[int]:
        """The tokens that are part of a date."""
        begins = [token.start for token in self.tokens]
        at: set[int] = set()
        for date in self.dates:
            at.update(range(bisect_left(begins, date.start), bisect_left(begins, date.end)))
        return frozenset(at)

    def _is_label(self, quantity: Quantity) -> bool:
        """Return whether the number is part of a name: "three-point", "5G", "first quarter"."""
        beside = self.evidence.labels.get(quantity.value, frozenset())
        after = self.low(quantity.last + 1)
        if any(likeness(after, part) > 1 for part in beside):
            return True
        hyphen = after == "-" and self.low(quantity.last + 2) not in ("of", "for", "")
        noun = self.low(quantity.last + 1 + hyphen)
        end = self.tokens[quantity.last].end
        close = bool(after) and self.tokens[quantity.last + 1].start == end
        return (hyphen or close) and noun[:1].isalpha() and bool(beside)

    def low(self, at: int) -> str:
        """Return the casefolded token at a place, "" beyond the ends."""
        return self.tokens[at].low if 0 <= at < len(self.tokens) else ""

    def span(self, part: Quantity | Mention) -> tuple[int, int]:
        """Return the characters from the first to the last token."""
        return self.tokens[part.first].start, self.tokens[part.last].end

    def claim(
        self,
        part: Quantity | Mention | tuple[int, int],
        kind: Kind,
        verdict: Verdict | bool,
        nearest: str = "",
        why: str = "",
        paths: tuple[str, ...] = (),
    ) -> Claim:
        """Return the claim of a part, or of the first and last token; True means supported."""
        start, end = self.tokens[part[0]].start, self.tokens[part[1]].end
        if isinstance(verdict, bool):
            verdict = "supported" if verdict else "contradicted"
        return Claim((start, end), self.text[start:end], kind, verdict, paths, nearest, why)

    # Sentences

    @cached_property
    def starts(self) -> list[int]:
        """The first token of every sentence."""
        starts, last = [0], len(self.tokens) - 1
        for at, token in enumerate(self.tokens):
            gap = self.text[token.end : self.tokens[at + 1].start] if at < last else ""
            ends = (token.low in _ENDS and gap) or "\n" in gap
            if ends or at - starts[-1] >= LONGEST:
                starts.append(at + 1)
        return starts

    def sentence(self, at: int) -> tuple[int, int]:
        """Return the half-open range of tokens of the sentence around a token."""
        n = bisect_right(self.starts, at)
        return self.starts[n - 1], self.starts[n] if n < len(self.starts) else len(self.tokens)

    def words(self, at: int) -> tuple[str, ...]:
        """Return the words of the sentence around a token."""
        start, end = self.sentence(at)
        if start not in self._words:
            words = (token.low for token in self.tokens[start:end] if token.low[0].isalnum())
            self._words[start] = tuple(words)
        return self._words[start]

    def after(self, quantity: Quantity) -> tuple[str, ...]:
        """Return the words after a number, up to a break, a conjunction or the next number."""
        words: list[str] = []
        _, end = self.sentence(quantity.last)
        for at in range(quantity.last + 1, min(end, quantity.last + 12)):
            low = self.low(at)
            if at in self._numbered:
                words = words[: words.index("with")] if "with" in words else words
                break
            if low in _BREAKS or low in _CLAUSES:
                break
            if low[0].isalnum() or low == "%":
                words += split_word(low)
        return tuple(words[:PHRASE])

    def before(self, quantity: Quantity) -> tuple[str, ...]:
        """Return the words before a number, the nearest first, back to a break or a number.

        Signs that introduce the number ("MAE: 3", "**MAE** = 3", "MAE (3)") are no break, except
        after the name of a row.
        """
        words: list[str] = []
        start, _ = self.sentence(quantity.first)
        last = quantity.first - 1
        while last >= start and self.low(last) in _INTRODUCES:
            last -= 1
        if last in self._mentioned and last < quantity.first - 1:
            return ()
        for at in range(last, max(start - 1, quantity.first - 14), -1):
            low = self.low(at)
            if low in _BREAKS or at in self._numbered:
                break
            if low[0].isalnum():
                words += split_word(low)
        return tuple(words[: 2 * PHRASE])

    # What lies in a range of tokens

    @cached_property
    def _numbered(self) -> dict[int, Quantity]:
        return {at: q for q in self.quantities for at in range(q.first, q.last + 1)}

    def numbers_in(self, start: int, end: int) -> list[Quantity]:
        """Return the numbers that begin in a half-open range of tokens."""
        return [q for at in range(start, end) if (q := self._numbered.get(at)) and q.first == at]

    @cached_property
    def _dates_begin(self) -> list[int]:
        return [date.start for date in self.dates]

    def dates_in(self, start: int, end: int) -> list[Date]:
        """Return the dates that begin in a half-open range of tokens."""
        first = bisect_left(self._dates_begin, self.tokens[start].start)
        return self.dates[first : bisect_left(self._dates_begin, self.tokens[end - 1].end)]

    @cached_property
    def _mentions_begin(self) -> list[int]:
        return [mention.first for mention in self.mentions]

    def mentions_in(self, start: int, end: int) -> list[Mention]:
        """Return the mentions that begin in a half-open range of tokens."""
        begin = self._mentions_begin
        return self.mentions[bisect_left(begin, start) : bisect_left(begin, end)]

    def pairs(self) -> Iterator[Pair]:
        """Yield neighbouring numbers joined by a dash, "of" or "from … to"; no number twice."""
        taken = -1
        for one, two in zip(self.quantities, self.quantities[1:], strict=False):
            between = [self.low(at) for at in range(one.last + 1, two.first)]
            joined = "".join(word for word in between if word not in "-–")
            if one.first <= taken or not between:
                continue
            if between[-1] == "to" and self.low(one.first - 1) == "from" and len(between) < 4:
                sign = "to"
            elif len(between) < 4 and (joined == "of" or (joined == "for" and "-" in between)):
                sign = "of"
            elif not joined and one.form == two.form == "digits":
                sign = "-"
            else:
                continue
            yield Pair(one, two, sign)
            taken = two.last

    # What a token is about

    def subject(self, at: int) -> list[Row]:
        """Return the rows that a token is about, the likeliest first."""
        rows = (row for mention in self.subjects(at) for row in mention.rows)
        return list({id(row): row for row in rows}.values())

    def subjects(self, at: int) -> list[Mention]:
        """Return the mentions that a token is about; earlier sentences count."""
        start, end = self.sentence(at)
        inside = [mention for mention in self.mentions_in(start, end) if mention.rows]
        before = [mention for mention in inside if mention.last < at]
        if before and before[-1].last == at - 2 and self.low(at - 1) == "'s":
            return before[-1:]
        if not before and inside:
            return inside[:1]
        if not before:
            last = bisect_left(self._mentions_begin, start)
            earlier = self.mentions[max(0, last - EARLIER) : last]
            return [mention for mention in earlier if mention.rows][-1:]
        # The last mention, the one that "and" joins to it, and the nearest in another table.
        subjects = before[-1:]
        if len(before) > 1 and self.low(before[-1].first - 1) in ("and", "&"):
            subjects.append(before[-2])
        here = {row.table for mention in subjects for row in mention.rows}
        other = [m for m in before if here.isdisjoint(row.table for row in m.rows)]
        return subjects + other[-1:]


def split_word(low: str) -> tuple[str, ...]:
    """Return a word, or its parts when it holds digits: "q1" is "q" and "1"."""
    return split_name(low) if any(map(str.isdigit, low)) and low[0].isalpha() else (low,)


# Numbers bound to cells


class Figures:
    """Judges the numbers of one text."""

    def __init__(self, passage: Passage, tolerance: float) -> None:
        self.passage: Passage = passage
        self.evidence: Evidence = passage.evidence
        self.tolerance: float = tolerance
        self._series = _Series(passage)
        self._right: dict[int, list[float]] = {}

    def claims(self) -> Iterator[Claim]:
        """Yield a claim for every number that says something of the evidence."""
        paired: set[Quantity] = set()
        for pair in self.passage.pairs():
            paired |= {pair.one, pair.two}
            yield from self._pair(pair)
        for quantity in self.passage.quantities:
            if quantity not in paired and quantity.form != "ordinal":
                yield from self._single(quantity)

    def _fits(self, quantity: Quantity, value: float | None) -> bool:
        """Return whether a number says a value: 38 % says 0.38, 5 says -5 ("fell by 5")."""
        if value is None:
            return False
        shares = (value, value * 100) if quantity.percent and abs(value) <= 1 else (value,)
        tolerance = self.tolerance
        if self.passage.low(quantity.first - 1) in _LOOSE:
            tolerance, quantity = max(tolerance, LOOSE), quantity._replace(step=2 * quantity.step)
        return any(quantity.fits(abs(v) if quantity.value >= 0 else v, tolerance) for v in shares)

    def _judge(self, quantity: Quantity, cells: Sequence[Cell], derived: bool = False) -> Claim:
        """Return the claim of a number that is held against some cells, the likeliest first."""
        right = [cell for cell in cells if self._fits(quantity, cell.value)]
        shown = right or cells
        if right and right[0].value is not None:
            sentence = self.passage.sentence(quantity.first)[0]
            self._right.setdefault(sentence, []).append(right[0].value)
        values = [cell.value for cell in shown if cell.value is not None]
        near = min(values, key=lambda v: abs(v - quantity.value), default=None)
        why = "derived from its column" if derived and not right else ""
        nearest = "" if near is None else f"{near:g}"
        paths = tuple(cell.path for cell in shown[:3])
        why = why or "held against its row and column"
        return self.passage.claim(quantity, "number", bool(right or derived), nearest, why, paths)

    # One number

    def _single(self, quantity: Quantity) -> Iterator[Claim]:
        cells = self._cells(quantity, self.passage.subject(quantity.first))
        if self.passage.low(quantity.first - 1) == "per":
            yield self._anywhere(quantity)
        elif any(cell.value is not None for cell in cells):
            yield self._judge(quantity, cells, self._is_difference(quantity))
        elif dated := self._series.cells(quantity):
            yield self._judge(quantity, dated, self._is_difference(quantity))
        elif alone := self._alone(quantity):
            yield self._judge(quantity, alone)
        elif cells:
            yield self._judge(quantity, cells)
        elif quantity.form == "digits":
            yield self._anywhere(quantity)

    def _cells(self, quantity: Quantity, rows: Sequence[Row]) -> list[Cell]:
        """Return the cells of the rows in the columns named after a number, else before it."""
        passage, after = self.passage, self.passage.after(quantity)
        cells = self._introduced(quantity, rows) or self._named(rows, after)
        if not cells and (passage.low(quantity.first - 1) in _SAYS or not after):
            cells = self._named(rows, passage.before(quantity))
        return self._in_named_tables(cells, passage.words(quantity.first))

    def _in_named_tables(self, cells: list[Cell], words: Words) -> list[Cell]:
        """Keep those cells of one column that lie in the tables that words name."""
        same = {cell.row.table for cell in cells if cell.column.path == cells[0].column.path}
        if len(same) < 2:
            return cells
        parts = {table: [part for name in table for part in split_name(name)] for table in same}
        named = {t for t in same if any(likeness(w, p) == 3 for w in words for p in parts[t])}
        return [cell for cell in cells if cell.row.table in named] if named else cells

    def _introduced(self, quantity: Quantity, rows: Iterable[Row]) -> list[Cell]:
        """Return the cells of the rows in the column that introduces a number: "an RMSE of 3"."""
        if self.passage.low(quantity.first - 1) not in _OF:
            return []
        return self._whole(rows, self.passage.before(quantity)[:NEAR])

    def _whole(self, rows: Iterable[Row], phrase: Words) -> list[Cell]:
        """Return the cells of the rows in columns whose whole name occurs in a phrase."""
        tables = self.evidence.tables
        return [Cell.of(row, column) for row in rows for column in tables[row.table].whole(phrase)]

    def _named(self, rows: Iterable[Row], phrase: Words) -> list[Cell]:
        """Return the cells of the rows in columns that a phrase names, the likeliest first."""
        cells = [
            (binding.rank, Cell.of(row, binding.column))
            for row in rows
            for binding in self.evidence.tables[row.table].bindings(phrase)
        ]
        return [cell for _, cell in sorted(cells, key=lambda pair: -pair[0])]

    def _alone(self, quantity: Quantity) -> list[Cell]:
        """Return cells of one-row tables whose columns are named by the words around a number."""
        rows = [t.rows[0] for t in self.evidence.tables.values() if len(t.rows) == 1]
        phrases = (self.passage.after(quantity), self.passage.before(quantity))
        cells = self._introduced(quantity, rows)
        for phrase in phrases:
            cells = cells or self._whole(rows, phrase)
        if cells and self.passage.low(quantity.first - 1) == "from":  # a baseline of that measure
            row, own = cells[0].row, set(cells[0].column.own)
            more = [c for c in self.evidence.tables[row.table].numeric if own & set(c.own)]
            cells += [Cell.of(row, column) for column in more]
        return cells

    def _is_difference(self, quantity: Quantity) -> bool:
        """Return whether it is the difference of two right numbers before it, or of two rows.

        In per cent, it is the difference as a share of the second.
        """
        words = self.passage.words(quantity.first)
        if _DIFFERS.isdisjoint(words):
            return False
        groups = [self._right.get(self.passage.sentence(quantity.first)[0], [])[-2:]]
        rows = self._named_rows(quantity.first)
        for path in {row.table for row in rows}:
            for column in self.evidence.tables[path].whole(words):
                cells = [cell_value(row, column) for row in rows if row.table == path]
                groups.append([value for value in cells if value is not None])
        for x, y in (pair for group in groups for pair in permutations(group, 2)):
            shares = [abs(x / y - 1) * 100] if quantity.percent and y else []
            if any(self._fits(quantity, far) for far in (abs(x - y), *shares)):
                return True
        return False

    def _named_rows(self, at: int) -> list[Row]:
        """Return the first rows that a sentence names."""
        mentions = self.passage.mentions_in(*self.passage.sentence(at))
        return [row for mention in mentions for row in mention.rows][:FEW]

    def _anywhere(self, quantity: Quantity) -> Claim:
        value, half = abs(quantity.value), quantity.step / 2
        if self._is_difference(quantity):
            return self.passage.claim(quantity, "number", True, "", "a difference in its sentence")
        if self.evidence.holds(value - half, value + half):
            return self.passage.claim(quantity, "number", True, "", "occurs in the evidence")
        near = self.evidence.nearest(quantity.value)
        nearest = "" if near is None else f"{near:g}"
        return self.passage.claim(
            quantity, "number", "not found", nearest, "occurs nowhere in the evidence"
        )

    # Two numbers written as one

    def _pair(self, pair: Pair) -> list[Claim]:
        bracketed = self._in_brackets(pair)
        if options := self._paired_columns(pair, bracketed):
            return self._judge_pair(pair, options)
        if pair.joined == "to" and (options := self._two_rows(pair)):
            return self._judge_pair(pair, options)
        if pair.joined == "to" and (cells := self._alone(pair.one)):
            return [self._judge(q, cells) for q in (pair.one, pair.two)]
        if bracketed or pair.joined == "of":  # only a lexicon can name their columns
            return [self._anywhere(q) for q in (pair.one, pair.two)]
        return [claim for q in (pair.one, pair.two) for claim in self._single(q)]

    def _in_brackets(self, pair: Pair) -> bool:
        """Return whether it is in a list in brackets, or alone after a name: "Ridge (7 - 2)"."""
        low, first = self.passage.low, pair.one.first
        begin = max(self.passage.sentence(first)[0], first - BRACKET)
        signs = [at for at in range(begin, first) if low(at) in "()"]
        if not signs or low(signs[-1]) == ")":
            return False
        alone = signs[-1] == first - 1 and low(pair.two.last + 1) == ")"
        return not alone or any(m.last == first - 2 for m in self.passage.subjects(first))

    def _paired_columns(self, pair: Pair, bracketed: bool) -> list[Cells]:
        """Return the cells of the columns that the lexicon pairs, and that the phrase names."""
        if pair.joined == "to":
            return []
        phrase = self.passage.after(pair.two)
        options: list[tuple[int, Cells]] = []
        for name, columns in self.evidence.lexicon.pairs.items():
            words = name.casefold().split()
            named = all(any(likeness(w, word) > 1 for w in phrase) for word in words)
            if not named or (not words and not bracketed):
                continue
            for row in self.passage.subject(pair.one.first):
                a, b = (self.evidence.tables[row.table].named(column) for column in columns)
                if a and b:
                    options.append((len(words), (Cell.of(row, a), Cell.of(row, b))))
        best = max((rank for rank, _ in options), default=0)
        return [cells for rank, cells in options if rank == best]

    def _two_rows(self, pair: Pair) -> list[Cells]:
        """Return the cells of two rows of the sentence in the columns that it names."""
        phrase = (*self.passage.after(pair.two), *self.passage.before(pair.one))
        return [
            (Cell.of(a, column), Cell.of(b, column))
            for a, b in permutations(self._named_rows(pair.one.first), 2)
            if a.table == b.table
            for column in self.evidence.tables[a.table].whole(phrase)
        ]

    def _judge_pair(self, pair: Pair, options: Sequence[Cells]) -> list[Claim]:
        """Return the claims of both numbers, held against the cells that fit them best."""

        def fit(cells: Cells) -> tuple[int, float]:
            both = list(zip((pair.one, pair.two), cells, strict=True))
            far = sum(abs(q.value - cell.value) for q, cell in both if cell.value is not None)
            return sum(self._fits(q, cell.value) for q, cell in both), -far

        best = max(options, key=fit)
        return [self._judge(pair.one, best[:1]), self._judge(pair.two, best[1:])]


# Numbers of a date


class _Series:
    """The tables whose rows are dated, and the cells of the dates that a text names."""

    def __init__(self, passage: Passage) -> None:
        self.passage: Passage = passage
        dated: dict[Path, list[tuple[Date, Row]]] = {}
        for date, row in passage.evidence.dates:
            dated.setdefault(row.table, []).append((date, row))
        self._tables = {path: rows for path, rows in dated.items() if len(rows) >= SERIES}
        self._rows: dict[tuple[Path, Date], list[Row]] = {}

    def cells(self, quantity: Quantity) -> list[Cell]:
        """Return the cells that a number may stand for: its columns in the rows of its date."""
        dates = self._dates(quantity) if self._tables else []
        for path in self._tables if dates else ():
            columns = self._columns(quantity, self.passage.evidence.tables[path])
            rows = [row for date in dates for row in self._dated(path, date)]
            if columns and rows:
                return [Cell.of(row, column) for column in columns for row in rows]
        return []

    def _dated(self, path: Path, date: Date) -> list[Row]:
        key = path, date._replace(start=0, end=0)
        if key not in self._rows:
            self._rows[key] = [row for other, row in self._tables[path] if other.agrees(date)]
        return self._rows[key]

    def _columns(self, quantity: Quantity, table: Table) -> list[Column]:
        """Return the columns named after a number, else before it, else the only column."""
        for phrase in (self.passage.after(quantity), self.passage.before(quantity)[:PHRASE]):
            columns = [b.column for b in table.bindings(phrase) if b.rank > 2 or not b.left]
            if columns:
                return columns
        only = [column for column in table.numeric if TIMES.isdisjoint(column.own)]
        plain = quantity.form == "digits" and quantity.value not in self.passage.evidence.written
        return only if len(only) == 1 and plain else []

    def _dates(self, quantity: Quantity) -> list[Date]:
        """Return the dates of a number: right after it with a preposition, else before it.

        A sentence about the time between two dates has none.
        """
        text = self.passage.text
        inside = self.passage.dates_in(*self.passage.sentence(quantity.first))
        if any(text[a.end : b.start].strip(" ,") in _UNTIL for a, b in pairwise(inside)):
            return []
        begin, done = self.passage.span(quantity)
        date = next((date for date in reversed(inside) if date.end <= begin), None)
        after = next((date for date in inside if date.start >= done), None)
        between = text[done : after.start] if after else ","
        words = between.split()
        close = len(words) <= 5 and words[-1:] in (["on"], ["in"], ["by"], ["at"])
        if "," not in between and (close or not date):
            date = after
        return [other for other in inside if date and other.start == date.start]

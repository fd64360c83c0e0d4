"""Evidence indexed once: the rows that a name stands for, the dates, words and numbers. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from math import isfinite
from typing import Any, NamedTuple

from heedful.checks.dates import Date, dates
from heedful.checks.naming import STOP, TIMES, content, names, parts
from heedful.checks.quantities import Token, number, quantities, tokens
from heedful.checks.reading import Path, Record, records
from heedful.checks.table import Table, finite
from heedful.checks.tabular import opened

# A longer text names nothing; a word that more cells hold names no row.
SHORT = 60
COMMON = 500


class Mention(NamedTuple):
    """The tokens `first` to `last` name these rows, or the group that these rows belong to."""

    first: int
    last: int
    rows: tuple[Record, ...]
    group: tuple[Record, ...] = ()


class Evidence:
    """Evidence of any shape, indexed: build it once for many texts.

    A mapping, rows, a data frame, a mapping of names to them, or text. Raises InvalidInput for a
    frame that cannot be read and for a path, PackageMissing.

    `words` are the stems of all words, `written` the numbers inside texts and names, `numbers` all
    of them in order; names of columns and rows included.
    """

    words: frozenset[str]
    written: frozenset[float]

    def __init__(self, evidence: Any) -> None:
        self.tables: dict[Path, Table] = {}
        for row in records(opened(evidence)):
            self.tables.setdefault(row.table, Table(row.table)).rows.append(row)
        self._known: dict[str, bool] = {}
        self._timed: dict[Path, bool] = {}
        self._texts: dict[str, None] = {}
        self._plain: set[float] = set()
        self.dates: list[tuple[Date, Record]] = []
        self._named: dict[str, list[tuple[Record, Path, bool]]] = defaultdict(list)
        for table in self.tables.values():
            for row in table.rows:
                self._index(row)
        self.words, self.written = self._read()
        self.numbers: list[float] = sorted(self._plain | self.written)

    def __bool__(self) -> bool:
        """Whether there is anything in it."""
        return bool(self._plain) or any(self._texts)

    def _index(self, row: Record) -> None:
        for word in row.key:
            self._texts[word] = None
            for token in tokens(word):
                self._named[token.low].append((row, ("",), False))
        for path, cell in row.cells.items():
            if type(cell) is not float:
                for one in cell if isinstance(cell, list | tuple) else (cell,):
                    self._value(row, path, one)
            elif isfinite(cell):  # as most cells of a large table are
                self._plain.add(abs(cell))

    def _value(self, row: Record, path: Path, one: Any) -> None:
        if isinstance(one, str):
            self._texts[one] = None
        if (plain := finite(one)) is not None:
            self._plain.add(abs(plain))
            if self._times(path) and len(year := str(one)) == 4 and year.isdecimal():
                self.dates.append((Date(0, 0, int(year), 0, 0), row))
        elif isinstance(one, str):
            self._name(row, path, one)
            if len(one) > 5 and any(map(str.isdigit, one)):
                self.dates += [(date, row) for date in dates(one)]

    def _times(self, path: Path) -> bool:
        if path not in self._timed:
            self._timed[path] = bool(path) and not TIMES.isdisjoint(parts(path[-1]))
        return self._timed[path]

    def _name(self, row: Record, path: Path, cell: str) -> None:
        if not path or len(cell) > SHORT:
            return
        every = tokens(cell)
        found = [token for token in every if token.kind == "word"]
        named = bool({"name", "id", "title", "model", "key"} & set(parts(path[-1])))
        if len(found) <= 6 and (named or not found or not found[0].text[0].islower()):
            for token in every if found else ():
                plain = token.low in STOP and token.text not in ("May", "Will")  # names, too
                if token.kind in ("word", "number") and not plain:
                    self._named[token.low].append((row, path, token.text.istitle()))

    @cached_property
    def _homes(self) -> dict[str, list[Record]]:
        """Text -> the rows of small tables that it names alone in its column."""
        found: dict[str, list[Record]] = defaultdict(list)
        for table in self.tables.values():
            rows = table.rows if 1 < len(table.rows) <= COMMON else []
            for path in {path for row in rows for path in row.cells}:
                cells = [cell for row in rows if isinstance(cell := row.cells.get(path), str)]
                if len(set(cells)) == len(rows):
                    for row, cell in zip(rows, cells, strict=True):
                        if number(cell) is None and row not in found[cell]:
                            found[cell].append(row)
        return found

    def homes(self, cell: Any) -> list[Record]:
        """The rows of other tables that a text stands for."""
        return self._homes.get(cell, []) if isinstance(cell, str) else []

    def linked(self, row: Record) -> list[Path]:
        """The columns in which the row says to which row of another table it belongs."""
        cells = row.cells.items()
        return [p for p, c in cells if any(home.table != row.table for home in self.homes(c))]

    @cached_property
    def labels(self) -> dict[float, frozenset[str]]:
        """Number in the name of a column -> the other parts of the names that it is in.

        The 3 of "FG3", the 5 of "5G bands".
        """
        found: dict[float, set[str]] = defaultdict(set)
        for table in self.tables.values():
            for column in table.columns:
                for part in column.own:
                    if part.isdecimal():
                        found[float(part)].update(set(column.own) - {part})
        return {label: frozenset(beside) for label, beside in found.items()}

    def mentions(self, text: Sequence[Token]) -> list[Mention]:
        """The rows and groups that a text names, in order; the longest run of words wins."""
        found, at = [], 0
        while at < len(text):
            one = self._mention(text, at)
            if one is not None:
                found.append(one)
            at = one.last + 1 if one is not None else at + 1
        return found

    def _places(self, token: Token) -> dict[int, list[tuple[Record, Path]]]:
        """Row -> its cells that the word is in, where it is written as a name there."""
        found: dict[int, list[tuple[Record, Path]]] = defaultdict(list)
        seen = self._named.get(token.low, [])
        for row, path, title in seen if len(seen) <= COMMON else []:
            if not title or not token.text[0].islower():
                found[id(row)].append((row, path))
        return found

    def _mention(self, text: Sequence[Token], first: int) -> Mention | None:
        if text[first].kind != "word" or len(text[first].low) < 2:
            return None
        last = first
        if len(self._named.get(text[first].low, ())) > COMMON and first + 1 < len(text):
            last += 1  # "Part 75", where every row is a part
        places, at = self._places(text[last]), last + 1
        if not places:
            return None
        while at < len(text):
            if text[at].low in "-." and text[at].start == text[at - 1].end:
                at += 1
                continue
            more = self._places(text[at])
            both = {key: more[key] for key in places if key in more}
            if not both:
                break
            places, last, at = both, at, at + 1
        rows: list[Record] = []
        group: list[Record] = []
        by_table: dict[Path, list[tuple[Record, Path]]] = defaultdict(list)
        for cells in places.values():
            by_table[cells[0][0].table].append(cells[0])
        for cells in by_table.values():
            same = {str(row.cells.get(path, row.key)) for row, path in cells}
            (group if len(cells) > 1 and len(same) < len(cells) else rows).extend(
                row for row, _ in cells
            )
        return Mention(first, last, tuple(rows), tuple(group))

    def _read(self) -> tuple[frozenset[str], frozenset[float]]:
        """The stems and the numbers in texts and names, each text read once."""
        words: set[str] = set()
        found: set[float] = set()
        columns = [column for table in self.tables.values() for column in table.columns]
        called = {name for column in columns for name in column.path}
        for text in (*self._texts, *called, *(" ".join(parts(name)) for name in called)):
            read = tokens(text)
            words.update(content(token.low for token in read if token.kind == "word"))
            if number(text) is None:
                found.update(abs(q.value) for q in quantities(read) if q.form != "article")
        return frozenset(words), frozenset(found)

    def knows(self, word: str) -> bool:
        """Whether the stem of a word is in the evidence, or is what a column is called."""
        if word not in self._known:
            self._known[word] = word in self.words or any(names(word, p) > 1 for p in self._parts)
        return self._known[word]

    @cached_property
    def _parts(self) -> frozenset[str]:
        columns = [c for table in self.tables.values() for c in table.columns]
        return frozenset(p for c in columns for p in (*c.own, *c.above) if not p.isdecimal())

    @cached_property
    def codes(self) -> frozenset[str]:
        """Texts of two to four capitals, which may abbreviate a name."""
        texts = (text for text in self._texts if 1 < len(text) < 5 and text.isupper())
        return frozenset(text.casefold() for text in texts)

    @cached_property
    def roots(self) -> frozenset[str]:
        """The first four letters of the words: German and Germany are the same name."""
        return frozenset(word[:4] for word in self.words if len(word) > 3)

    @cached_property
    def prose(self) -> bool:
        """Whether the evidence is sentences and no data."""
        tables = self.tables.values()
        return all(len(table.columns) == len(table.rows) == 1 for table in tables)

    def near(self, low: float, high: float) -> bool:
        """Whether the evidence holds a number from `low` to `high`, wherever."""
        return bisect_right(self.numbers, high) > bisect_left(self.numbers, low)

    def nearest(self, wanted: float) -> float | None:
        """The number of the evidence that is nearest."""
        at = bisect_left(self.numbers, abs(wanted))
        return min(
            self.numbers[max(0, at - 1) : at + 1], key=lambda v: abs(v - wanted), default=None
        )


def title(row: Record) -> str:
    """What a row is called: its longest text in a column of names, its first, its key or place."""
    cells = [(p[-1].casefold(), v) for p, v in row.cells.items() if p and isinstance(v, str)]
    named = [v for name, v in cells if "name" in name]
    first = next((v for _, v in cells if len(v) <= SHORT and number(v) is None), "")
    return max(named, key=len, default=first or " ".join(row.key) or row.path)

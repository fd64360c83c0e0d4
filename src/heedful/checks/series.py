"""The numbers of a text that are said of a date, in tables whose rows are dated. Pure."""

from __future__ import annotations

from itertools import pairwise

from heedful.checks.dates import Date
from heedful.checks.naming import TIMES
from heedful.checks.quantities import Quantity
from heedful.checks.reading import Path, Record
from heedful.checks.said import PHRASE, Said
from heedful.checks.table import Cell, Column, Table, value

# A table with fewer dated rows is no series: its dates are facts among others.
FEW = 3
_UNTIL = frozenset(("to", "until", "till", "through", "-", "–"))


class Series:
    """The tables of the evidence whose rows are dated, and what a text says of their dates."""

    def __init__(self, said: Said) -> None:
        self.said: Said = said
        dated: dict[Path, list[tuple[Date, Record]]] = {}
        for date, row in said.evidence.dates:
            dated.setdefault(row.table, []).append((date, row))
        self._tables = {path: rows for path, rows in dated.items() if len(rows) >= FEW}
        self._rows: dict[tuple[Path, Date], list[Record]] = {}

    def cells(self, one: Quantity) -> list[Cell]:
        """The cells that a number may stand for: its columns in the rows of its date."""
        dates = self._when(one) if self._tables else []
        for path in self._tables if dates else ():
            columns = self._columns(one, self.said.evidence.tables[path])
            rows = [row for date in dates for row in self._on(path, date)]
            if columns and rows:
                return [Cell(row, column, value(row, column)) for column in columns for row in rows]
        return []

    def _on(self, path: Path, date: Date) -> list[Record]:
        key = path, date._replace(start=0, end=0)
        if key not in self._rows:
            self._rows[key] = [row for other, row in self._tables[path] if other.agrees(date)]
        return self._rows[key]

    def _columns(self, one: Quantity, table: Table) -> list[Column]:
        """The columns named after a number, else before it, else the only one there is."""
        for phrase in (self.said.after(one), self.said.before(one)[:PHRASE]):
            found = [b.column for b in table.bound(phrase) if b.rank > 2 or not b.left]
            if found:
                return found
        only = [column for column in table.numeric if not TIMES & set(column.own)]
        named = one.form != "digits" or one.value in self.said.evidence.written
        return only if len(only) == 1 and not named else []

    def _when(self, one: Quantity) -> list[Date]:
        """The dates that a number is said of: right after it with a preposition, else before it.

        None where the sentence tells of a time between two dates.
        """
        inside = self.said.dates_in(*self.said.sentence(one.first))
        text = self.said.text
        if any(text[a.end : b.start].strip(" ,") in _UNTIL for a, b in pairwise(inside)):
            return []
        begin, done = self.said.span(one)
        after = next((date for date in inside if date.start >= done), None)
        found = next((date for date in reversed(inside) if date.end <= begin), None)
        if after and (
            not (found or "," in text[done : after.start]) or _right_after(text[done : after.start])
        ):
            found = after
        return [date for date in inside if found and date.start == found.start]


def _right_after(between: str) -> bool:
    words = between.split()
    close = len(words) <= 5 and "," not in between
    return close and words[-1:] in (["on"], ["in"], ["by"], ["at"])

"""Tables of evidence: what their columns are called, and what lies in a cell. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import permutations
from math import isfinite
from typing import NamedTuple

from heedful.checks.naming import initials, names, parts
from heedful.checks.quantities import number
from heedful.checks.reading import Path, Record

Words = tuple[str, ...]
SAMPLE = 50


class Column(NamedTuple):
    """A column: where its cells lie, the parts of its own name, and of the names it lies under."""

    path: Path
    own: tuple[str, ...]
    above: tuple[str, ...]


class Bound(NamedTuple):
    """A column that a phrase may mean: so many parts of its name are `left` that it does not say;
    `sure` where the sentence says those."""

    column: Column
    rank: int
    left: int
    sure: bool


class Cell(NamedTuple):
    """A value that a number may stand for, and where it is."""

    row: Record
    column: Column
    value: float | None

    @property
    def path(self) -> str:
        """The place in the evidence."""
        return ".".join((self.row.path, *self.column.path))


class Table:
    """Rows with the same place in the evidence, and their columns."""

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self.rows: list[Record] = []
        self._bound: dict[tuple[Words, Words, bool], Sequence[Bound]] = {}
        self._explained: dict[Words, frozenset[str]] = {}

    @cached_property
    def columns(self) -> list[Column]:
        """The columns, without the parts that most of their names have in common."""
        paths = list(dict.fromkeys(path for row in self.rows for path in row.cells))
        split = {path: parts(path[-1]) if path else () for path in paths}
        seen: dict[str, int] = defaultdict(int)
        for found in split.values():
            for part in set(found):
                seen[part] += 1
        common = {part for part, n in seen.items() if n > 3 and 2 * n > len(paths)}
        made = []
        for path, found in split.items():
            own = tuple(part for part in found if part not in common) or found
            made.append(Column(path, own, tuple(p for name in path[:-1] for p in parts(name))))
        return made

    @cached_property
    def numeric(self) -> list[Column]:
        """The columns that hold a number in some row."""
        rows = self.rows
        return [c for c in self.columns if any(value(row, c) is not None for row in rows)]

    @cached_property
    def twins(self) -> list[tuple[Column, Column]]:
        """Two columns whose names differ in the last letter, where the first is never greater."""
        by_stem: dict[str, list[Column]] = defaultdict(list)
        for column in self.numeric:
            name = "".join(column.own)
            if len(name) > 2 and name[-1].isalpha():
                by_stem[name[:-1]].append(column)
        both = (pair for columns in by_stem.values() for pair in permutations(columns, 2))
        return [(a, b) for a, b in both if all(_at_most(row, a, b) for row in self.rows[:SAMPLE])]

    @cached_property
    def parts(self) -> frozenset[str]:
        """The parts that the names of the numeric columns are made of."""
        return frozenset(part for column in self.numeric for part in column.own)

    def bound(self, phrase: Words, sentence: Words = (), percent: bool = False) -> Sequence[Bound]:
        """The numeric columns that a phrase names, the likeliest first.

        A column whose name the sentence explains to the end may be meant as well. Of a number in
        per cent only the columns of shares are meant, where the table has any.
        """
        key = phrase, sentence, percent
        if key not in self._bound:
            self._bound[key] = self._bind(*key)
        return self._bound[key]

    @cached_property
    def _shares(self) -> list[Column]:
        return [c for c in self.numeric if any(names("percent", part) > 1 for part in c.own)]

    def _said(self, sentence: Words) -> frozenset[str]:
        if sentence not in self._explained:
            said = (part for part in self.parts if any(names(w, part) > 1 for w in sentence))
            self._explained[sentence] = frozenset(said)
        return self._explained[sentence]

    def _bind(self, phrase: Words, sentence: Words, percent: bool) -> Sequence[Bound]:
        ranks = {part: rank for part in self.parts if (rank := explained(part, phrase))}
        if not ranks:
            return ()
        said = self._said(sentence) | ranks.keys()
        columns = (self._shares if percent else []) or self.numeric
        found = [_bound(c, ranks, said) for c in columns if not ranks.keys().isdisjoint(c.own)]
        if not found:
            return ()
        plain = [one for one in found if not one.left]
        most = max(one.rank for one in plain or found)
        least = min(most, 2) if plain else most
        kept = [one for one in plain or found if one.rank >= least]
        more = [one for one in found if one.sure and one.left and one.rank > 1]
        return sorted(kept, key=lambda one: -one.rank) + [one for one in more if one not in kept]


def shared(one: Column, other: Column) -> tuple[str, ...]:
    """What the names of twin columns have in common: their parts but for the last letter."""
    whole = "".join(one.own)[:-1]
    common = tuple(part for part in one.own if part in other.own)
    rest = whole.removeprefix("".join(common))
    return (*common, rest) if rest else common


def _at_most(row: Record, a: Column, b: Column) -> bool:
    return (value(row, a) or 0.0) <= (value(row, b) or 0.0)


def _bound(column: Column, ranks: Mapping[str, int], said: Collection[str]) -> Bound:
    rank = sum(ranks.get(part, 0) for part in column.own)
    left = sum(part not in ranks for part in column.own)
    return Bound(column, rank, left, all(part in said for part in column.own))


def explained(part: str, phrase: Sequence[str]) -> int:
    """How surely a phrase says a part of a name, 0 to 3."""
    best = max((names(word, part) for word in phrase), default=0)
    return best if best > 1 else max(best, 2 * initials(phrase, part))


def value(row: Record, column: Column) -> float | None:
    """The number in a cell; None where it is none, not finite, or absent."""
    return finite(row.cells.get(column.path))


def finite(cell: object) -> float | None:
    """The finite number that a cell is, as a number or as text; else None."""
    if type(cell) is float:
        return cell if isfinite(cell) else None
    if isinstance(cell, str):
        cell = cell.strip()
        return number(cell) if cell and (cell[0] in "-−." or cell[0].isdigit()) else None
    if isinstance(cell, bool) or not hasattr(cell, "__float__"):
        return None
    try:
        plain = float(cell)
    except OverflowError:  # a whole number beyond all floats
        return None
    return plain if isfinite(plain) else None

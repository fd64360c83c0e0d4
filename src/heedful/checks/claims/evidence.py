"""Index evidence of any shape as rows and tables, with the vocabulary of its subject
area.
"""

import ast
import csv
import json
import re
import warnings
from bisect import bisect_left, bisect_right
from calendar import weekday
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import Any, NamedTuple

from heedful.checks import tables
from heedful.checks.claims import words
from heedful.checks.claims.words import (
    Date,
    Token,
    likeness,
    split_name,
    stem,
    tokenize,
)
from heedful.errors import InvalidInput
from heedful.validation import require

Path = tuple[str, ...]
Words = tuple[str, ...]
MAX_EVIDENCE_DEPTH = 40
_DEPTH_ERRORS = (RecursionError, MemoryError)
_CELL_TYPES = frozenset((float, int, str, bool, type(None)))
_NAMED_LINE_PATTERN = re.compile(
    r"\s*(?:[-*#•]+\s*)?([^\W\d][^:\n]{0,58}?)\s*:\s+(\S.*)"
)
# the most characters of a name; the most cells of a word that names rows
MAX_COLUMN_NAME_CHARS = 60
MAX_WORD_CELLS = 500
_NAME_COLUMN_WORDS = frozenset("name id title model key".split())


@dataclass(frozen=True, slots=True, eq=False)
class Lexicon:
    """The words that texts about one subject use for the columns and rows of their
    evidence.

    `synonyms` maps a word of a text to the word that the evidence or plain English
    uses: {"boards": "rebounds", "host": "home"}; word endings are ignored. `pairs` maps
    a name to two columns of the evidence whose numbers are written together before that
    name, as in "3 of 5 free throws"; the name "" is for two numbers in parentheses, as
    in "(7 - 2)", after the name of a row.
    """

    synonyms: Mapping[str, str] = field(default_factory=dict)
    pairs: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        two = all(len(columns) == 2 for columns in self.pairs.values())
        require(two, "pairs of a lexicon", self.pairs, "two columns for each name")

    @classmethod
    def of(cls, value: "Lexicon | Mapping[str, Any] | None") -> "Lexicon":
        """Return `value` or a Lexicon of its fields, empty for None. Raises
        InvalidInput.
        """
        if isinstance(value, Lexicon):
            return value
        given = {} if value is None else value
        fine = isinstance(given, Mapping) and given.keys() <= {"synonyms", "pairs"}
        require(fine, "lexicon", value, "a mapping with synonyms and pairs")
        return cls(**given)

    def read(self, tokens: Sequence[Token]) -> list[Token]:
        """Return the tokens; each synonym is replaced by the word that the evidence
        uses.
        """
        others = {stem(word): other.casefold() for word, other in self.synonyms.items()}
        return [t._replace(low=others.get(stem(t.low), t.low)) for t in tokens]


@dataclass(slots=True, eq=False, kw_only=True)
class EvidenceRow:
    """A row of the table at the path `table` in the evidence.

    `path` is the path of the row itself. If the row is the value of a key in a mapping,
    `key` has the words of this key. `cells` maps the path of a column to the value in
    this row.
    """

    table: Path
    path: str
    key: Path
    cells: dict[Path, Any]

    def number(self, column: Path) -> float | None:
        """Return the finite number in the cell of a column, or None."""
        return _number(self.cells.get(column))

    def named(self, column: str) -> "Cell | None":
        """Return the cell of the column with this name, ignoring case; None if it has
        no number.
        """
        low = column.casefold()
        path = next((p for p in self.cells if p and p[-1].casefold() == low), ())
        value = self.number(path) if path else None
        return None if value is None else Cell(value, self, path)

    @property
    def title(self) -> str:
        """The name of the row: its first short text, or else its key or its path."""
        texts = (
            v
            for v in self.cells.values()
            if isinstance(v, str) and len(v) <= MAX_COLUMN_NAME_CHARS
        )
        named = (text for text in texts if words.parse_number(text) is None)
        return next(named, " ".join(self.key) or self.path)


class Cell(NamedTuple):
    """A number of the evidence, with its row and column."""

    value: float
    row: EvidenceRow
    column: Path

    @property
    def path(self) -> str:
        """The path of the cell in the evidence."""
        return ".".join((self.row.path, *self.column))


def _number(cell: object) -> float | None:
    """Return the finite number in a cell, or None; text must be nothing but a
    number.
    """
    number = (
        words.parse_number(cell) if isinstance(cell, str) else tables.to_number(cell)
    )
    return number if number is not None and isfinite(number) else None


def _plain(value: Any) -> Any:
    """Return a data frame as rows, a Series as a mapping, a date as text, or `value`
    unchanged.
    """
    kind = type(value)
    if isinstance(value, Mapping):
        return value
    if hasattr(kind, "columns"):
        # An index of pandas that names the rows becomes columns.
        index: Any = getattr(value, "index", None)
        if index is not None and (
            index.names != [None] or index.inferred_type != "integer"
        ):
            value = value.reset_index(
                drop=not set(index.names).isdisjoint(value.columns)
            )
        table = _table(value)
        rows = (
            row
            for batch in table.batches(table.columns)
            for row in zip(*batch, strict=True)
        )
        return [dict(zip(table.columns, row, strict=True)) for row in rows]
    if hasattr(kind, "keys"):  # a Series, a row of a database
        return dict(value)
    if hasattr(kind, "isoformat"):
        return str(value.isoformat()).removesuffix("T00:00:00")
    if hasattr(kind, "__fspath__"):
        raise InvalidInput(
            "evidence", str(value), "the content of the file: text or a data frame"
        )
    return value


def column_names(value: Any) -> Sequence[str]:
    """Return the columns of a frame or of rows, or the given names. Raises as
    `Evidence` does.
    """
    plain = not hasattr(type(value), "columns") and not isinstance(value, Mapping)
    if plain and not any(isinstance(name, Mapping) for name in value):
        return [str(name) for name in value]
    return _table(value).columns


def _table(value: Any) -> tables.DataTable:
    try:
        return tables.open_table(value)
    except tables.TableError as error:
        raise InvalidInput(
            "evidence", type(value), f"{error.fix} ({error.what})"
        ) from error


def _parse(text: str) -> Any:
    """Parse JSON, a Python literal, CSV or "name: value" lines; return any other text
    unchanged.
    """
    stripped = text.strip()
    for reader in (json.loads, ast.literal_eval) if stripped[:1] in ("{", "[") else ():
        with (
            warnings.catch_warnings(),
            suppress(ValueError, SyntaxError, *_DEPTH_ERRORS),
        ):
            warnings.simplefilter("ignore")
            return reader(stripped)
    lines = stripped.splitlines()
    values: dict[str, Any] = defaultdict(list)
    rest = []
    for line in lines:
        if match := _NAMED_LINE_PATTERN.fullmatch(line):
            values[match[1]].append(match[2])
        else:
            rest.append(line)
    if table := _separated(lines):
        return {**values, "rows": table} if values else table
    named = len(lines) - len(rest)
    return {**values, "text": rest} if named > 1 and 2 * named >= len(lines) else text


def _separated(lines: Sequence[str]) -> list[dict[str, str]]:
    """Return the rows of a table with cells separated by commas; [] if there is no
    table.
    """
    wide = [line for line in lines if "," in line and not line.startswith("#")]
    rows = [[cell.strip() for cell in row] for row in csv.reader(wide)]
    even = [row for row in rows if len(row) == len(rows[0])]
    head = even[0] if len(even) > 2 and len(even) >= 0.9 * len(rows) else []
    plain = len(set(head)) == len(head) and all(
        len(name) <= MAX_COLUMN_NAME_CHARS for name in head
    )
    return (
        [dict(zip(head, row, strict=True)) for row in even[1:]]
        if head and plain
        else []
    )


def read_rows(value: Any, table: Path, path: str, depth: int) -> Iterator[EvidenceRow]:
    """Yield every row in a mapping, a list, a data frame or a plain value."""
    value = _plain(value)
    if isinstance(value, Mapping):
        yield from _mapping_rows(value, table, path, depth)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        rows = _row if _is_table(value) else read_rows
        for n, item in enumerate(value if depth < MAX_EVIDENCE_DEPTH else ()):
            yield from rows(item, table, f"{path}[{n}]", depth + 1)
    else:
        yield EvidenceRow(table=table, path=path, key=(), cells={(): value})


def _is_table(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(row, Mapping) for row in value
    )


def _row(
    row: Mapping[Any, Any], table: Path, path: str, depth: int, key: Path = ()
) -> Iterator[EvidenceRow]:
    """Yield one row, with the values of nested mappings as cells, then rows of nested
    tables.
    """
    cells = dict(_flatten(row, (), depth))
    nested = [
        (name, cell) for name, cell in cells.items() if type(cell) not in _CELL_TYPES
    ]
    inner = [
        (name, cells.pop(name)) for name, cell in nested if _is_table(cell) and cell
    ]
    if cells:
        yield EvidenceRow(table=table, path=path, key=key, cells=cells)
    for name, value in inner:
        yield from read_rows(
            value, (*table, *name), f"{path}.{'.'.join(name)}", depth + 1
        )


def _flatten(
    value: Mapping[Any, Any], above: Path, depth: int
) -> Iterator[tuple[Path, Any]]:
    for name, cell in value.items():
        here = (*above, str(name))
        if type(cell) not in _CELL_TYPES:
            cell = _plain(cell)
            if _is_table(cell) and len(cell) == 1:
                cell = cell[0]
            if isinstance(cell, Mapping):
                if len(here) < MAX_EVIDENCE_DEPTH - depth:
                    yield from _flatten(cell, here, depth)
                continue
        yield here, cell


def _mapping_rows(
    value: Mapping[Any, Any], table: Path, path: str, depth: int
) -> Iterator[EvidenceRow]:
    """Yield a row for each of several nested mappings with similar keys, and one for
    the rest.
    """
    nested = {name: set(v) for name, v in value.items() if isinstance(v, Mapping) and v}
    shape = next(iter(nested.values()), set())
    alike = [
        name
        for name, keys in nested.items()
        if 2 * len(keys & shape) >= len(keys | shape)
    ]
    alike = alike if len(alike) > 1 else []
    for name in alike:
        yield from _row(
            value[name],
            table=(*table, "*"),
            path=f"{path}.{name}",
            depth=depth,
            key=(str(name),),
        )
    if rest := {name: cell for name, cell in value.items() if name not in alike}:
        yield from _row(rest, table, path, depth)


class EvidenceTable:
    """The rows at one path of the evidence, and their columns."""

    def __init__(self) -> None:
        self.rows: list[EvidenceRow] = []
        self._bound: dict[Words, tuple[bool, list[Path]]] = {}

    @cached_property
    def paths(self) -> list[Path]:
        """The paths of all columns."""
        return list(dict.fromkeys(path for row in self.rows for path in row.cells))

    @cached_property
    def columns(self) -> dict[Path, Words]:
        """For each column with numbers, its path and the parts of its name."""
        numeric = (
            p for p in self.paths if any(row.number(p) is not None for row in self.rows)
        )
        return {path: split_name(path[-1]) if path else () for path in numeric}

    def bind(self, phrase: Words, whole: bool = False) -> list[Path]:
        """Return the numeric columns that best match `phrase`; `whole`: only full
        column names.
        """
        if phrase not in self._bound:
            terms = [
                word for word in phrase if word != "a"
            ]  # an article, never a column
            parts = set[str]().union(*self.columns.values())
            ranks = {
                part: max((likeness(w, part) for w in terms), default=0)
                for part in parts
            }
            sums = {c: sum(ranks[part] for part in p) for c, p in self.columns.items()}
            best = max(sums.values(), default=0)
            columns = [column for column, score in sums.items() if score == best > 0]
            complete = any(p and all(map(ranks.get, p)) for p in self.columns.values())
            self._bound[phrase] = complete, columns
        complete, columns = self._bound[phrase]
        return columns if complete or not whole else []


class Mention(NamedTuple):
    """The tokens `first` to `last` (both included), which together name `rows`."""

    first: int
    last: int
    rows: Sequence[EvidenceRow]


class Evidence:
    """Indexed evidence of any shape; build it once for many texts.

    Evidence is a mapping, rows, a data frame, a mapping of names to rows or frames, or
    text. Raises InvalidInput for bad evidence or a wrong lexicon, PackageMissing for a
    frame without narwhals.

    `words` are the stems of all words, `numbers` all numbers, sorted; both include
    those in column names. `labels` are only the numbers in column names. `singles` are
    the rows of tables with only one row. `prose` is True if the evidence is plain text
    only.
    """

    def __init__(
        self, evidence: Any, lexicon: Lexicon | Mapping[str, Any] | None = None
    ) -> None:
        self.lexicon: Lexicon = Lexicon.of(lexicon)
        self.tables: dict[Path, EvidenceTable] = {}
        self.dates: list[tuple[Date, EvidenceRow]] = []
        self._texts: dict[str, None] = {}
        self._plain: set[float] = set()
        self._named: dict[str, list[tuple[EvidenceRow, bool]]] = defaultdict(list)
        value = _parse(evidence) if isinstance(evidence, str) else evidence
        for row in read_rows(value, (), "$", depth=0):
            self._index(row)
            self.tables.setdefault(row.table, EvidenceTable()).rows.append(row)
        paths = {path for table in self.tables.values() for path in table.paths}
        names = {name for path in paths for name in path}
        parts = {part for name in names for part in split_name(name)}
        self._parts = [part for part in parts if not part.isdecimal()]
        self.labels: set[float] = {float(part) for part in parts if part.isdecimal()}
        stems = set[str]()
        numbers = set(self._plain)
        for text in (
            *self._texts,
            *names,
            *(" ".join(split_name(name)) for name in names),
        ):
            tokens = tokenize(text)
            stems.update(
                words.content_stems(
                    token.low for token in tokens if token.kind == "word"
                )
            )
            numbers.update(abs(quantity.value) for quantity in words.quantities(tokens))
        self.words: set[str] = stems
        self.numbers: list[float] = sorted(numbers)
        every = self.tables.values()
        self.prose: bool = all(
            len(table.paths) == len(table.rows) == 1 for table in every
        )
        self.singles: list[EvidenceRow] = [
            table.rows[0] for table in every if len(table.rows) == 1
        ]
        whole = (date[2:] for date, _ in self.dates if date.year and date.day)
        self.weekdays: set[int] = {weekday(*date) for date in whole}
        self._roots = {word[:4] for word in stems if len(word) > 3 and not self.prose}
        # Texts of two to four capitals may abbreviate a name.
        codes = (text for text in self._texts if 1 < len(text) < 5 and text.isupper())
        self._codes = {text.casefold() for text in codes}

    def __bool__(self) -> bool:
        """Return True if the evidence is not empty."""
        return bool(self._plain) or any(self._texts)

    def _index(self, row: EvidenceRow) -> None:
        for path, cell in (*row.cells.items(), (("key",), row.key)):
            if type(cell) is float and isfinite(cell):  # most cells of a large table
                self._plain.add(abs(cell))
                continue
            for value in cell if isinstance(cell, list | tuple) else (cell,):
                if (plain := _number(value)) is not None:
                    self._plain.add(abs(plain))
                elif isinstance(value, str):
                    self._texts[value] = None
                    self.dates += [(date, row) for date in words.dates(value)]
                    self._index_name(row, path, value)

    def _index_name(self, row: EvidenceRow, path: Path, cell: str) -> None:
        tokens = tokenize(cell) if path and len(cell) <= MAX_COLUMN_NAME_CHARS else []
        first = next((token.text for token in tokens if token.kind == "word"), "a")
        named = path and not _NAME_COLUMN_WORDS.isdisjoint(split_name(path[-1]))
        if named or not first[0].islower():
            for token in tokens:
                plain = (
                    token.low in words.STOP_WORDS and token.text != "May"
                )  # the month
                if token.kind in ("word", "number") and not plain:
                    self._named[token.low].append((row, token.text.istitle()))

    def knows(self, word: str) -> bool:
        """Return True if the evidence contains the stem `word` or a column with a
        similar name.
        """
        return word in self.words or any(
            likeness(word, part) > 1 for part in self._parts
        )

    def knows_name(self, word: str) -> bool:
        """Return True if the evidence contains `word` or a form of it: DE or German for
        Germany.
        """
        if len(word) < 2 or stem(word) in self.words or word[:4] in self._roots:
            return True
        return any(words.is_abbreviation(code, word) for code in self._codes)

    def holds(self, low: float, high: float) -> bool:
        """Return True if any number of the evidence is from `low` to `high`."""
        return bisect_right(self.numbers, high) > bisect_left(self.numbers, low)

    def on(self, date: Date) -> list[EvidenceRow]:
        """Return the rows with a date that matches `date` in every part that both dates
        have.
        """
        return [row for other, row in self.dates if other.agrees(date)]

    def mentions(self, tokens: Sequence[Token]) -> Iterator[Mention]:
        """Yield each run of tokens that names rows, in order; a run is as long as
        possible.
        """
        at = 0
        while at < len(tokens):
            first = at
            rows = self._rows(tokens[at]) if tokens[at].kind == "word" else []
            at += 1
            while rows and at < len(tokens):
                more = set(self._rows(tokens[at]))
                both = [row for row in rows if row in more]
                if not both:
                    break
                rows = both
                at = at + 1
            if rows:
                yield Mention(first, at - 1, rows)

    def _rows(self, token: Token) -> list[EvidenceRow]:
        named = self._named.get(token.low, []) if len(token.low) > 1 else []
        rows = (row for row, title in named if not (title and token.text[0].islower()))
        return list(dict.fromkeys(rows)) if len(named) <= MAX_WORD_CELLS else []

"""Evidence of any shape as rows and tables, indexed once; and the words of its field."""

from __future__ import annotations

import ast
import csv
import json
import re
import warnings
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import Any, ClassVar, NamedTuple

from heedful.checks.claims.words import (
    STOP,
    Date,
    Token,
    content_stems,
    dates,
    likeness,
    parse_number,
    quantities,
    split_name,
    stem,
    tokenize,
)
from heedful.errors import InvalidInput, PackageMissing

Path = tuple[str, ...]
Words = tuple[str, ...]
DEEPEST = 40
FRAMES = "a data frame of pandas, polars or pyarrow whose columns have names of their own"
_PLAIN = frozenset((float, int, str, bool, type(None)))
_LINE = re.compile(r"\s*(?:[-*#•]+\s*)?([^\W\d][^:\n]{0,58}?)\s*:\s+(\S.*)")
# A longer text names nothing; a word in more cells names no row.
SHORT = 60
COMMON = 500
_LABELS = frozenset("name key label category field property metric attribute".split())
_NAMES = frozenset("name id title model key".split())


# The words of a field


@dataclass(frozen=True, slots=True)
class Derived:
    """A quantity of a row that follows from `columns`: their sum, or a condition.

    With `at_least` it is a condition: `of` or more of the columns reach that number. Raises
    InvalidInput unless `of` is from 1 to the number of columns.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    columns: tuple[str, ...]
    at_least: float | None = None
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.of <= len(self.columns):
            raise InvalidInput("of", self.of, f"1 to the number of columns, {len(self.columns)}")

    def values(self, row: Row) -> list[float]:
        """Return the numbers that a row has in the columns; the case of names does not count."""
        cells = {path[-1].casefold(): cell for path, cell in row.cells.items() if path}
        values = (_finite(cells.get(column.casefold())) for column in self.columns)
        return [value for value in values if value is not None]

    def holds(self, row: Row) -> bool | None:
        """Return whether a row meets the condition, None if its numbers do not decide that."""
        values = self.values(row)
        many = sum(self.at_least is not None and value >= self.at_least for value in values)
        open_columns = len(self.columns) - len(values)
        return None if many < self.of <= many + open_columns else many >= self.of


@dataclass(frozen=True, slots=True, eq=False)
class Lexicon:
    """The words that texts of one field use for the columns and rows of their evidence.

    `synonyms` maps a word to the word that the evidence, or plain English, uses: {"boards":
    "rebounds", "host": "home"}; endings do not count. `pairs` maps a name to two columns whose
    numbers are written together: "3 of 5 free throws"; the name "" is for "(7 - 2)" after the name
    of a row. `derived` maps a name to a quantity that follows from columns. Columns are named as in
    the evidence.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    synonyms: Mapping[str, str] = field(default_factory=dict)
    pairs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    derived: Mapping[str, Derived] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Lexicon | Mapping[str, Any] | None) -> Lexicon:
        """Return a lexicon from a mapping, as a JSON or TOML file holds it. Raises InvalidInput."""
        if isinstance(value, Lexicon):
            return value
        if value is None:
            return cls()
        from pydantic import TypeAdapter, ValidationError  # slow to import

        try:
            return TypeAdapter(cls).validate_python(value)
        except ValidationError as error:
            raise InvalidInput("lexicon", value, f"the fields of a Lexicon ({error})") from error

    def read(self, tokens: Sequence[Token]) -> list[Token]:
        """Return the tokens with each synonym replaced by the word that it stands for."""
        words = {stem(word): other.casefold() for word, other in self.synonyms.items()}
        if not words:
            return list(tokens)
        return [t._replace(low=words.get(stem(t.low), t.low)) for t in tokens]


# Rows


@dataclass(slots=True, eq=False)
class Row:
    """A row of the table at the path `table`.

    `cells` maps the path of a column to its value, `key` holds the words that name the row, `path`
    is its place in the evidence.
    """

    table: Path
    path: str
    key: Path
    cells: dict[Path, Any]


def read_rows(evidence: Any) -> Iterator[Row]:
    """Yield every row in a mapping, a list, a data frame, text or a plain value.

    Text that holds data is read as data. Raises InvalidInput for a frame that cannot be read and
    for a path, PackageMissing.
    """
    value = _unframe(evidence, DEEPEST)
    value = _parse(value) if isinstance(value, str) else value
    yield from _rows(value, (), "$", 0)


# Data frames


def _unframe(value: Any, depth: int) -> Any:
    """Return a value with every data frame in its mappings as a list of rows."""
    kind = type(value)
    if isinstance(value, Mapping):
        return {name: _unframe(v, depth - 1) for name, v in value.items()} if depth else value
    if hasattr(kind, "columns"):
        return _frame_rows(value)
    if hasattr(kind, "keys"):  # a Series, a row of a database
        return dict(value)
    if hasattr(kind, "__fspath__"):
        raise InvalidInput("evidence", str(value), "what the file holds, read as text or a frame")
    return value


def column_names(value: Any) -> list[str]:
    """Return the names of the columns of a data frame or of rows; of other iterables, the items.

    Raises InvalidInput, PackageMissing.
    """
    if hasattr(type(value), "columns") and not isinstance(value, Mapping):
        nw = _narwhals()
        try:
            return [str(name) for name in nw.from_native(value).collect_schema().names()]
        except (TypeError, nw.exceptions.NarwhalsError) as error:
            raise InvalidInput("columns", type(value), f"{FRAMES} ({error})") from error
    rows = isinstance(value, list | tuple) and all(isinstance(row, Mapping) for row in value)
    return list(dict.fromkeys(str(name) for row in value for name in (row if rows else (row,))))


def _narwhals() -> Any:
    try:
        import narwhals
    except ImportError as error:
        raise PackageMissing("a data frame", "narwhals", "frames") from error
    return narwhals


def _frame_rows(frame: Any) -> list[dict[str, Any]]:
    nw = _narwhals()
    try:
        read: Any = nw.from_native(frame)
        if isinstance(read, nw.LazyFrame):
            read = read.collect()
        index = nw.maybe_get_index(read)
        if index is not None:
            read = nw.from_native(_index_as_columns(read.to_native(), index))
        columns = read.to_dict(as_series=False)
    except (TypeError, nw.exceptions.NarwhalsError) as error:
        raise InvalidInput("evidence", type(frame), f"{FRAMES} ({error})") from error
    names = [" ".join(map(str, n)) if isinstance(n, tuple) else str(n) for n in columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _index_as_columns(frame: Any, index: Any) -> Any:
    """Return a pandas frame with its index as columns, unless that only numbers the rows."""
    if index.nlevels == 1 and index.name is None:
        if index.inferred_type == "integer":
            return frame
        frame = frame.rename_axis("name")
    return frame.reset_index(drop=not set(frame.index.names).isdisjoint(frame.columns))


# Text


def _parse(text: str) -> Any:
    """Return what a text holds: JSON, a Python literal, CSV, "name: value" lines, else the text."""
    stripped = text.strip()
    if stripped[:1] in ("{", "["):
        for reader in (json.loads, _literal):
            try:
                return reader(stripped)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
    lines = stripped.splitlines()
    table = _separated(lines)
    named = [match for line in lines if (match := _LINE.fullmatch(line))]
    if not table and (len(named) < 2 or 2 * len(named) < len(lines)):
        return text
    values: dict[str, Any] = defaultdict(list)
    for match in named:
        values[match[1]].append(match[2])
    if table:
        return {**values, "rows": table} if values else table
    values["text"] = [line for line in lines if not _LINE.fullmatch(line)]
    return dict(values)


def _literal(text: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        return ast.literal_eval(text)


def _separated(lines: Sequence[str]) -> list[dict[str, str]]:
    """Return the rows of a table of comma, semicolon, tab or | separated lines."""
    for sign in ",;\t|":
        wide = [n for n, line in enumerate(lines) if sign in line and not line.startswith("#")]
        if len(wide) < 3:
            continue
        body = [lines[n].strip(sign + " ") if sign == "|" else lines[n] for n in wide]
        rows = list(csv.reader(body, delimiter=sign))
        head = [name.strip() for name in rows[0]]
        even = sum(len(row) == len(head) for row in rows)
        plain = len(set(head)) == len(head) and not any(len(name) > 60 for name in head)
        if even >= 0.9 * len(rows) and plain and len(wide) >= 0.3 * len(lines):
            same = [row for row in rows[1:] if len(row) == len(head)]
            return [dict(zip(head, map(str.strip, row), strict=True)) for row in same]
    return []


# Mappings and lists


def _rows(value: Any, table: Path, path: str, depth: int) -> Iterator[Row]:
    if depth > DEEPEST:
        return
    value = _pairs_as_mapping(value)
    if isinstance(value, Mapping):
        yield from _mapping_rows(value, table, path, depth)
    elif _is_table(value):
        for n, row in enumerate(value):
            yield from _row(row, table, f"{path}[{n}]", (), depth)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for n, item in enumerate(value):
            yield from _rows(item, table, f"{path}[{n}]", depth + 1)
    else:
        yield Row(table, path, (), {(): value})


def _is_table(value: Any) -> bool:
    """Return True for a list of mappings."""
    listed = isinstance(value, Sequence) and not isinstance(value, str) and bool(value)
    return listed and all(isinstance(row, Mapping) for row in value)


def _row(row: Mapping[Any, Any], table: Path, path: str, key: Path, depth: int) -> Iterator[Row]:
    """Yield one row with all that is nested in it, then the rows of the tables inside."""
    cells: dict[Path, Any] = {}
    inner: list[tuple[Path, Any]] = []
    _flatten(row, (), cells, inner, depth)
    if cells:
        yield Row(table, path, key, cells)
    for name, value in inner:
        yield from _rows(value, (*table, *name), f"{path}.{'.'.join(name)}", depth + 1)


def _flatten(
    value: Mapping[Any, Any], above: Path, cells: dict[Path, Any], inner: list[Any], depth: int
) -> None:
    for name, cell in value.items():
        here = (*above, str(name))
        if type(cell) in _PLAIN:
            cells[here] = cell
            continue
        if isinstance(cell, list | tuple) and _is_table(cell) and len(cell) == 1:
            cell = cell[0]
        if isinstance(cell, Mapping) and len(here) < DEEPEST - depth:
            _flatten(cell, here, cells, inner, depth)
        elif isinstance(cell, Mapping) or _is_table(cell):
            inner.append((here, cell))
        elif hasattr(cell, "isoformat"):
            cells[here] = str(cell.isoformat()).removesuffix("T00:00:00")
        else:
            cells[here] = cell


def _pairs_as_mapping(value: Any) -> Any:
    """Return a list of two columns, a label and its value, as a mapping; anything else as it is."""
    if not _is_table(value) or any(len(row) != 2 or set(row) != set(value[0]) for row in value):
        return value
    label, content = value[0]
    holds = content in ("value", "values") or isinstance(value[0][content], Mapping | list)
    if str(label).casefold() not in _LABELS or not holds:
        return value
    return {str(row[label]): row[content] for row in value}


def _mapping_rows(value: Mapping[Any, Any], table: Path, path: str, depth: int) -> Iterator[Row]:
    """Yield the rows of a mapping, and the rows that its keys ("home_name") or values form."""
    by_prefix = _rows_in_keys(value)
    taken = {name for names in by_prefix.values() for name in names.values()}
    for prefix, names in by_prefix.items():
        row = {rest: value[name] for rest, name in names.items()}
        yield from _row(row, (*table, "*"), f"{path}.{prefix}…", (prefix,), depth)
    rest = {name: v for name, v in value.items() if name not in taken}
    for group in _same_shape(rest):
        for name in group:
            row, key = rest.pop(name), (str(name),)
            yield from _row(row, (*table, *sorted(map(str, row))[:3]), f"{path}.{name}", key, depth)
    if rest:
        yield from _row(rest, table, path, (), depth)


def _rows_in_keys(value: Mapping[Any, Any]) -> dict[str, dict[str, str]]:
    """Return row -> column -> key where keys join both: home_name, away_name, home_city …"""
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    for name in value:
        parts = split_name(str(name))
        if len(parts) > 1:
            rows[parts[0]][" ".join(parts[1:])] = name
    for prefix, names in rows.items():
        like = [other for other, theirs in rows.items() if len(set(theirs) & set(names)) >= 2]
        if len(like) > 1 and prefix in like:
            return {other: rows[other] for other in like}
    return {}


def _same_shape(value: Mapping[Any, Any]) -> Iterable[list[Any]]:
    """Return groups of keys whose values are mappings with mostly the same keys: named rows."""
    waiting = {name: set(v) for name, v in value.items() if isinstance(v, Mapping) and v}
    groups = []
    while waiting:
        shape = next(iter(waiting.values()))
        alike = [
            name for name, keys in waiting.items() if 2 * len(keys & shape) >= len(keys | shape)
        ]
        for name in alike:
            del waiting[name]
        if len(alike) > 1:
            groups.append(alike)
    return groups


# Tables


class Column(NamedTuple):
    """A column: its path in a row, the parts of its own name and of the names above it."""

    path: Path
    own: tuple[str, ...]
    above: tuple[str, ...]


class Binding(NamedTuple):
    """A column that a phrase may mean, with the number of parts of its name that it leaves out."""

    column: Column
    rank: int
    left: int


class Cell(NamedTuple):
    """A value that a number may stand for, and its place."""

    row: Row
    column: Column
    value: float | None

    @classmethod
    def of(cls, row: Row, column: Column) -> Cell:
        """Return the cell of a row in a column."""
        return cls(row, column, cell_value(row, column))

    @property
    def path(self) -> str:
        """The place in the evidence."""
        return ".".join((self.row.path, *self.column.path))


class Table:
    """Rows with the same place in the evidence, and their columns."""

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self.rows: list[Row] = []
        self._bindings: dict[Words, Sequence[Binding]] = {}

    @cached_property
    def columns(self) -> list[Column]:
        """The columns; a part that most of their names share does not count as their own."""
        paths = list(dict.fromkeys(path for row in self.rows for path in row.cells))
        names = {path: split_name(path[-1]) if path else () for path in paths}
        count: dict[str, int] = defaultdict(int)
        for parts in names.values():
            for part in set(parts):
                count[part] += 1
        common = {part for part, n in count.items() if n > 3 and 2 * n > len(paths)}
        columns = []
        for path, parts in names.items():
            own = tuple(part for part in parts if part not in common) or parts
            above = tuple(part for name in path[:-1] for part in split_name(name))
            columns.append(Column(path, own, above))
        return columns

    @cached_property
    def numeric(self) -> list[Column]:
        """The columns that hold a number in some row."""
        rows = self.rows
        return [c for c in self.columns if any(cell_value(row, c) is not None for row in rows)]

    @cached_property
    def _parts(self) -> frozenset[str]:
        return frozenset(part for column in self.numeric for part in column.own)

    def named(self, name: str) -> Column | None:
        """Return the numeric column of that name, without regard to case."""
        low = name.casefold()
        return next((c for c in self.numeric if c.path and c.path[-1].casefold() == low), None)

    def bindings(self, phrase: Words) -> Sequence[Binding]:
        """Return the numeric columns that a phrase names, the likeliest first."""
        if phrase not in self._bindings:
            self._bindings[phrase] = self._bind(phrase)
        return self._bindings[phrase]

    def whole(self, phrase: Words) -> list[Column]:
        """Return the columns whose whole name occurs in a phrase."""
        return [b.column for b in self.bindings(phrase) if not b.left]

    def _bind(self, phrase: Words) -> Sequence[Binding]:
        words = [word for word in phrase if word != "a"]  # an article, even if a column is called a
        ranks = {
            part: rank
            for part in self._parts
            if (rank := max((likeness(word, part) for word in words), default=0))
        }
        bindings = [
            Binding(
                column,
                sum(ranks.get(part, 0) for part in column.own),
                sum(part not in ranks for part in column.own),
            )
            for column in self.numeric
            if not ranks.keys().isdisjoint(column.own)
        ]
        plain = [b for b in bindings if not b.left]
        most = max((b.rank for b in plain or bindings), default=0)
        least = min(most, 2) if plain else most
        return sorted((b for b in plain or bindings if b.rank >= least), key=lambda b: -b.rank)


def cell_value(row: Row, column: Column) -> float | None:
    """Return the finite number in a cell, None without one."""
    return _finite(row.cells.get(column.path))


def _finite(cell: object) -> float | None:
    if type(cell) is float:
        return cell if isfinite(cell) else None
    if isinstance(cell, str):
        cell = cell.strip()
        return parse_number(cell) if cell and (cell[0] in "-−." or cell[0].isdigit()) else None
    if isinstance(cell, bool) or not hasattr(cell, "__float__"):
        return None
    try:
        plain = float(cell)
    except OverflowError:  # a whole number beyond all floats
        return None
    return plain if isfinite(plain) else None


# The index


class Mention(NamedTuple):
    """The tokens `first` to `last` name these rows; () for what several rows have in common."""

    first: int
    last: int
    rows: tuple[Row, ...]


class Evidence:
    """Evidence of any shape, indexed: build it once for many texts.

    A mapping, rows, a data frame, a mapping of names to them, or text; and the words of its field.
    Raises InvalidInput for what cannot be read and for a wrong lexicon, PackageMissing.

    `words` are the stems of all words, `written` the numbers inside texts and names, `numbers` all
    numbers in order; names of columns and rows, and how many rows a table has, included.
    """

    words: frozenset[str]
    written: frozenset[float]

    def __init__(self, evidence: Any, lexicon: Lexicon | Mapping[str, Any] | None = None) -> None:
        self.lexicon: Lexicon = Lexicon.of(lexicon)
        self.tables: dict[Path, Table] = {}
        self.dates: list[tuple[Date, Row]] = []
        self._known: dict[str, bool] = {}
        self._texts: dict[str, None] = {}
        self._plain: set[float] = set()
        self._named: dict[str, list[tuple[Row, Path, bool]]] = defaultdict(list)
        sums = {name: d for name, d in self.lexicon.derived.items() if d.at_least is None}
        for row in read_rows(evidence):
            self._index(row)
            for name, total in sums.items():
                if len(values := total.values(row)) == len(total.columns):
                    row.cells.setdefault((name,), sum(values))
            self.tables.setdefault(row.table, Table(row.table)).rows.append(row)
        self.words, self.written = self._read_words()
        counts = {float(len(table.rows)) for table in self.tables.values()} - {1.0}
        self.numbers: list[float] = sorted(self._plain | self.written | counts)

    def __bool__(self) -> bool:
        """Return True if the evidence is not empty."""
        return bool(self._plain) or any(self._texts)

    def _index(self, row: Row) -> None:
        for word in row.key:
            self._texts[word] = None
            for token in tokenize(word):
                self._named[token.low].append((row, ("",), False))
        for path, cell in row.cells.items():
            if type(cell) is not float:
                for value in cell if isinstance(cell, list | tuple) else (cell,):
                    self._index_value(row, path, value)
            elif isfinite(cell):  # as most cells of a large table are
                self._plain.add(abs(cell))

    def _index_value(self, row: Row, path: Path, value: Any) -> None:
        if isinstance(value, str):
            self._texts[value] = None
        if (plain := _finite(value)) is not None:
            self._plain.add(abs(plain))
        elif isinstance(value, str):
            self._index_name(row, path, value)
            if len(value) > 5 and any(map(str.isdigit, value)):
                self.dates += [(date, row) for date in dates(value)]

    def _index_name(self, row: Row, path: Path, cell: str) -> None:
        if not path or len(cell) > SHORT:
            return
        tokens = tokenize(cell)
        words = [token for token in tokens if token.kind == "word"]
        named = not _NAMES.isdisjoint(split_name(path[-1]))
        if words and len(words) <= 6 and (named or not words[0].text[0].islower()):
            for token in tokens:
                plain = token.low in STOP and token.text not in ("May", "Will")  # names, too
                if token.kind in ("word", "number") and not plain:
                    self._named[token.low].append((row, path, token.text.istitle()))

    def _read_words(self) -> tuple[frozenset[str], frozenset[float]]:
        """Return the stems and the numbers in texts and names, reading each text once."""
        words: set[str] = set()
        numbers: set[float] = set()
        columns = [column for table in self.tables.values() for column in table.columns]
        names = {name for column in columns for name in column.path}
        for text in (*self._texts, *names, *(" ".join(split_name(name)) for name in names)):
            tokens = tokenize(text)
            words.update(content_stems(token.low for token in tokens if token.kind == "word"))
            if parse_number(text) is None:
                numbers.update(abs(q.value) for q in quantities(tokens))
        return frozenset(words), frozenset(numbers)

    # What the evidence knows

    def knows(self, word: str) -> bool:
        """Return whether the stem of a word is in the evidence, or names a column."""
        if word not in self._known:
            named = any(likeness(word, part) > 1 for part in self._parts)
            self._known[word] = word in self.words or named
        return self._known[word]

    @cached_property
    def _parts(self) -> frozenset[str]:
        columns = [c for table in self.tables.values() for c in table.columns]
        return frozenset(p for c in columns for p in (*c.own, *c.above) if not p.isdecimal())

    def knows_name(self, word: str) -> bool:
        """Return whether a word is in the evidence, or a form of it: German, DE for Germany."""
        if len(word) < 2 or stem(word) in self.words:
            return True
        if not self.prose and word[:4] in self._roots:
            return True
        for code in self._codes:
            rest = iter(word[1:])
            if code[0] == word[0] and all(letter in rest for letter in code[1:]):
                return True
        return False

    @cached_property
    def _codes(self) -> frozenset[str]:
        """Texts of two to four capitals, which may abbreviate a name."""
        texts = (text for text in self._texts if 1 < len(text) < 5 and text.isupper())
        return frozenset(text.casefold() for text in texts)

    @cached_property
    def _roots(self) -> frozenset[str]:
        return frozenset(word[:4] for word in self.words if len(word) > 3)

    @cached_property
    def prose(self) -> bool:
        """True if the evidence is only sentences."""
        return all(len(t.columns) == len(t.rows) == 1 for t in self.tables.values())

    @cached_property
    def labels(self) -> dict[float, frozenset[str]]:
        """Number in the name of a column -> the other parts of such names: the 5 of "5G bands"."""
        labels: dict[float, set[str]] = defaultdict(set)
        for table in self.tables.values():
            for column in table.columns:
                for part in column.own:
                    if part.isdecimal():
                        labels[float(part)].update(set(column.own) - {part})
        return {number: frozenset(beside) for number, beside in labels.items()}

    def holds(self, low: float, high: float) -> bool:
        """Return whether the evidence has a number from `low` to `high` anywhere."""
        return bisect_right(self.numbers, high) > bisect_left(self.numbers, low)

    def nearest(self, wanted: float) -> float | None:
        """Return the number of the evidence that is nearest."""
        at = bisect_left(self.numbers, abs(wanted))
        around = self.numbers[max(0, at - 1) : at + 1]
        return min(around, key=lambda v: abs(v - wanted), default=None)

    # The rows that a text names

    def mentions(self, tokens: Sequence[Token]) -> list[Mention]:
        """Return what a text names, in order; the longest run of words wins."""
        mentions, at = [], 0
        while at < len(tokens):
            mention = self._mention(tokens, at)
            if mention is not None:
                mentions.append(mention)
            at = mention.last + 1 if mention is not None else at + 1
        return mentions

    def _places(self, token: Token) -> dict[int, tuple[Row, Path]]:
        """Return the rows that have the word in a cell, each with the first such cell."""
        places: dict[int, tuple[Row, Path]] = {}
        cells = self._named.get(token.low, [])
        for row, path, title in cells if len(cells) <= COMMON else []:
            if not title or not token.text[0].islower():
                places.setdefault(id(row), (row, path))
        return places

    def _mention(self, tokens: Sequence[Token], first: int) -> Mention | None:
        if tokens[first].kind != "word" or len(tokens[first].low) < 2:
            return None
        last = first
        if len(self._named.get(tokens[first].low, ())) > COMMON and first + 1 < len(tokens):
            last += 1  # "Part 75", where every row is a part
        places, at = self._places(tokens[last]), last + 1
        if not places:
            return None
        while at < len(tokens):
            if tokens[at].low in "-." and tokens[at].start == tokens[at - 1].end:
                at += 1
                continue
            more = self._places(tokens[at])
            both = {key: more[key] for key in places if key in more}
            if not both:
                break
            places, last, at = both, at, at + 1
        by_table: dict[Path, list[tuple[Row, Path]]] = defaultdict(list)
        for row, path in places.values():
            by_table[row.table].append((row, path))
        rows: list[Row] = []
        for cells in by_table.values():
            same = {str(row.cells.get(path, row.key)) for row, path in cells}
            if len(cells) == 1 or len(same) == len(cells):
                rows += [row for row, _ in cells]
        return Mention(first, last, tuple(rows))


def title(row: Row) -> str:
    """Return what a row is called: its longest name, its first short text, its key or its place."""
    cells = [(p[-1].casefold(), v) for p, v in row.cells.items() if p and isinstance(v, str)]
    named = [v for name, v in cells if "name" in name]
    first = next((v for _, v in cells if len(v) <= SHORT and parse_number(v) is None), "")
    return max(named, key=len, default=first or " ".join(row.key) or row.path)

"""Index evidence of any shape as rows and tables, with the vocabulary of its subject.

Evidence comes as JSON, CSV, frames, nested mappings or prose. `read_rows` walks through
it and yields rows: a list of mappings is a table, and so are several nested mappings
with similar keys; nested values become cells with longer paths. `Evidence` groups the
rows into tables by their path and indexes all words, numbers, dates and names, so that
others can ask which rows a text names, and which columns a phrase means.
"""

import ast
import csv
import json
import re
import warnings
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from math import isfinite
from typing import Any, NamedTuple

from heedful.checks import tables
from heedful.checks.claims import text_parts
from heedful.checks.claims.text_parts import (
    Date,
    Token,
    is_stop_word,
    likeness,
    likeness_in,
    split_name,
    stem,
    tokenize,
)
from heedful.errors import InvalidInput
from heedful.validation import MAX_DATA_DEPTH, Document, Fields, require

Path = tuple[str, ...]  # of a table, or of a column: the keys that lead to it
Words = tuple[str, ...]
_PARSE_ERRORS = (ValueError, SyntaxError, RecursionError, MemoryError)
_CELL_TYPES = frozenset((float, int, str, bool, type(None)))
# A line with a name and a value: "- Test accuracy: 0.91".
_NAMED_LINE_PATTERN = re.compile(
    r"\s*(?:[-*#•]+\s*)?([^\W\d][^:\n]{0,58}?)\s*:\s+(\S.*)"
)
# A decimal comma behind a word: "by 4,5". No names of columns have it.
_PROSE_DECIMAL_PATTERN = re.compile(r"[^\W\d_] \d+,\d")
MAX_COLUMN_NAME_CHARS = 60
MAX_WORD_CELLS = 500  # a name or a word in more cells names no rows


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
        are_pairs = all(len(columns) == 2 for columns in self.pairs.values())
        require(
            are_pairs, "pairs of a lexicon", self.pairs, "two columns for each name"
        )

    @classmethod
    def of(cls, value: "Lexicon | Fields | None") -> "Lexicon":
        """Return `value`, or a Lexicon of its fields, empty for None.

        Raises InvalidInput.
        """
        if isinstance(value, Lexicon):
            return value

        if value is None:
            return cls()

        fields = {"synonyms", "pairs"}
        is_lexicon = isinstance(value, Mapping) and value.keys() <= fields
        require(is_lexicon, "lexicon", value, "a mapping with synonyms and pairs")
        return cls(**value)

    def read(self, tokens: Sequence[Token]) -> list[Token]:
        """Return the tokens, with the words of the evidence in place of synonyms."""
        evidence_words = {
            stem(word): evidence_word.casefold()
            for word, evidence_word in self.synonyms.items()
        }
        return [
            token._replace(low=evidence_words.get(stem(token.low), token.low))
            for token in tokens
        ]


@dataclass(slots=True, eq=False, kw_only=True)
class EvidenceRow:
    """A row of the table at the path `table` in the evidence.

    `path` is the path of the row itself as text, such as "$.games[3]". If the row is
    the value of a key in a mapping, `key` has this key, else it is empty. `cells` maps
    the path of a column to the value in this row. `decimal` is the decimal sign of
    its texts.
    """

    table: Path
    path: str
    key: Path
    cells: dict[Path, Any]
    decimal: str = "."

    def number(self, column: Path) -> float | None:
        """Return the finite number in the cell of a column, or None."""
        return _finite_number(self.cells.get(column), self.decimal)

    def numbers(self, columns: Iterable[Path]) -> Iterator["Cell"]:
        """Yield the cells of these columns that have a number."""
        for column in columns:
            value = self.number(column)
            if value is not None:
                yield Cell(value, self, column)

    def named(self, column: str) -> "Cell | None":
        """Return the cell of the column with this name, ignoring case.

        None is returned if there is no such column, or if the cell has no number.
        """
        low_name = column.casefold()
        paths = [p for p in self.cells if p and p[-1].casefold() == low_name]
        return next(self.numbers(paths), None)

    @property
    def title(self) -> str:
        """The name of the row: its first short text, or else its key or its path."""
        for cell in self.cells.values():
            is_short_text = isinstance(cell, str) and len(cell) <= MAX_COLUMN_NAME_CHARS
            if is_short_text and text_parts.parse_number(cell) is None:
                return str(cell)
        return " ".join(self.key) or self.path


class Cell(NamedTuple):
    """A number of the evidence, with its row and column."""

    value: float
    row: EvidenceRow
    column: Path

    @property
    def path(self) -> str:
        """The path of the cell in the evidence."""
        return ".".join((self.row.path, *self.column))


def _finite_number(cell: object, decimal: str) -> float | None:
    """Return the finite number in a cell, or None; text must be only a number.

    `decimal` is the decimal sign of texts.
    """
    if isinstance(cell, str) and len(cell) > MAX_COLUMN_NAME_CHARS:
        return None  # a text, which the cache of numbers must not keep

    if isinstance(cell, str):
        number = text_parts.parse_number(cell, decimal)
    else:
        number = tables.to_number(cell)
    return number if number is not None and isfinite(number) else None


def _to_plain_data(value: Any) -> Any:
    """Return evidence without the types of other libraries.

    A data frame becomes rows, a Series a mapping, a date text. Any other value is
    returned unchanged.
    """
    if isinstance(value, Mapping):
        return _column_rows(value)

    # The class is examined, because a row or an object may have any attributes.
    cls = type(value)
    if hasattr(cls, "columns"):
        return _frame_rows(value)
    if hasattr(cls, "keys"):  # a Series, a row of a database
        return dict(value)

    if hasattr(cls, "isoformat"):
        return str(value.isoformat()).removesuffix("T00:00:00")

    if hasattr(cls, "__fspath__"):
        raise InvalidInput(
            "evidence", str(value), "the content of the file: text or a data frame"
        )
    return value


def _column_rows(value: Mapping[Any, Any]) -> Any:
    """Return the rows of a mapping of columns, or a mapping of other values unchanged.

    Columns are two lists or more of the same length; at least one has only texts.
    """
    columns = list(value.values())
    if len(columns) < 2 or not all(isinstance(column, list) for column in columns):
        return value
    has_texts = any(all(isinstance(cell, str) for cell in column) for column in columns)
    if not has_texts or len(set(map(len, columns))) > 1:
        return value
    return [
        dict(zip(value, cells, strict=True)) for cells in zip(*columns, strict=True)
    ]


def _frame_rows(frame: Any) -> list[Document]:
    """Return the rows of a data frame.

    An index of pandas that names the rows becomes columns.
    """
    index: Any = getattr(frame, "index", None)
    if index is not None:
        names_rows = index.names != [None] or index.inferred_type != "integer"
        if names_rows:
            is_column = not set(index.names).isdisjoint(frame.columns)
            frame = frame.reset_index(drop=is_column)

    table = _open_table(frame)
    rows: list[Document] = []
    for batch in table.batches(table.columns):
        cells_of_rows = zip(*batch, strict=True)
        rows += (
            dict(zip(table.columns, cells, strict=True)) for cells in cells_of_rows
        )
    return rows


def column_names(value: Any) -> Sequence[str]:
    """Return the columns of a frame or of rows, or the given names.

    Raises what `Evidence` raises.
    """
    is_table = hasattr(type(value), "columns") or isinstance(value, Mapping)
    if not is_table and not any(isinstance(name, Mapping) for name in value):
        return [str(name) for name in value]
    return _open_table(value).columns


def _open_table(value: Any) -> tables.DataTable:
    """Open a table. Raises InvalidInput for anything else."""
    try:
        return tables.open_table(value)
    except tables.TableError as error:
        raise InvalidInput(
            "evidence", type(value), f"{error.fix} ({error.what})"
        ) from error


def _parse_text(text: str) -> Any:
    """Parse JSON, a Python literal, CSV or "name: value" lines.

    Any other text is returned unchanged.
    """
    stripped = text.strip()
    if stripped[:1] in ("{", "["):
        for parse in (json.loads, ast.literal_eval):
            with warnings.catch_warnings(), suppress(*_PARSE_ERRORS):
                warnings.simplefilter("ignore")
                return parse(stripped)

    lines = stripped.splitlines()
    values: Document = defaultdict(list)
    other_lines = []
    for line in lines:
        if match := _NAMED_LINE_PATTERN.fullmatch(line):
            values[match[1]].append(match[2])
        else:
            other_lines.append(line)

    table_rows = _separated_rows(other_lines)
    if table_rows:
        return {**values, "rows": table_rows} if values else table_rows

    named_count = len(lines) - len(other_lines)
    if named_count > 1 and 2 * named_count >= len(lines):
        return {**values, "text": other_lines}
    return text


def _separated_rows(lines: Sequence[str]) -> list[dict[str, str]]:
    """Return the rows of a table with cells separated by commas, [] without a table."""
    separated = [line for line in lines if "," in line and not line.startswith("#")]
    if not separated or _PROSE_DECIMAL_PATTERN.search(separated[0]):
        return []
    rows = [list(map(str.strip, row)) for row in csv.reader(separated)]
    is_even = len({len(row) for row in rows}) == 1
    if len(rows) < 3 or not is_even:
        return []

    head = rows[0]
    has_twins = len(set(head)) < len(head)
    if has_twins or any(len(name) > MAX_COLUMN_NAME_CHARS for name in head):
        return []
    return [dict(zip(head, row, strict=True)) for row in rows[1:]]


def read_rows(value: Any, table: Path, path: str, depth: int) -> Iterator[EvidenceRow]:
    """Yield every row in a mapping, a list, a data frame or a plain value.

    `table` is the path of the table that rows of the value belong to, and `path` is the
    path of the value as text. Levels below `MAX_DATA_DEPTH` are not read.
    """
    value = _to_plain_data(value)
    if isinstance(value, Mapping):
        yield from _mapping_rows(value, table, path, depth)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        if depth >= MAX_DATA_DEPTH:
            return

        read_item = _row_and_nested if _is_table(value) else read_rows
        for number, item in enumerate(value):
            yield from read_item(item, table, f"{path}[{number}]", depth + 1)
    else:
        yield EvidenceRow(table=table, path=path, key=(), cells={(): value})


def _is_table(value: Any) -> bool:
    """Return whether a value is a list of mappings."""
    return isinstance(value, list | tuple) and all(
        isinstance(row, Mapping) for row in value
    )


def _row_and_nested(
    row: Mapping[Any, Any], table: Path, path: str, depth: int, *, key: Path = ()
) -> Iterator[EvidenceRow]:
    """Yield one row, then the rows of the tables nested in it.

    The values in nested mappings become cells of the row.
    """
    cells = {}
    nested_tables = {}
    for column, cell in _flatten(row, (), depth):
        if type(cell) not in _CELL_TYPES and _is_table(cell) and cell:
            nested_tables[column] = cell
        else:
            cells[column] = cell

    if cells:
        yield EvidenceRow(table=table, path=path, key=key, cells=cells)
    for column, rows in nested_tables.items():
        nested_path = f"{path}.{'.'.join(column)}"
        yield from read_rows(rows, (*table, *column), nested_path, depth + 1)


def _flatten(
    value: Mapping[Any, Any], above: Path, depth: int
) -> Iterator[tuple[Path, Any]]:
    """Yield the path and the value of each cell in a mapping and in nested mappings.

    A table of one row is a nested mapping too. `above` is the path of the mapping in
    its row, `depth` the depth of the row.
    """
    for name, cell in value.items():
        path = (*above, str(name))
        if type(cell) not in _CELL_TYPES:
            cell = _to_plain_data(cell)
            if _is_table(cell) and len(cell) == 1:
                cell = cell[0]

            if isinstance(cell, Mapping):
                if len(path) < MAX_DATA_DEPTH - depth:
                    yield from _flatten(cell, path, depth)
                continue

        yield path, cell


def _mapping_rows(
    value: Mapping[Any, Any], table: Path, path: str, depth: int
) -> Iterator[EvidenceRow]:
    """Yield a row for each nested mapping with similar keys, and one for the rest."""
    alike_names = _names_of_rows(value)
    for name in alike_names:
        yield from _row_and_nested(
            value[name], (*table, "*"), f"{path}.{name}", depth, key=(str(name),)
        )

    others = {name: cell for name, cell in value.items() if name not in alike_names}
    if others:
        yield from _row_and_nested(others, table, path, depth)


def _names_of_rows(value: Mapping[Any, Any]) -> list[Any]:
    """Return the keys of the nested mappings that are rows of one table.

    A nested mapping belongs to the table if it and the first one have at least half of
    all their keys in common. Returns [] if fewer than two belong.
    """
    keys_by_name = {
        name: set(nested)
        for name, nested in value.items()
        if isinstance(nested, Mapping) and nested
    }
    first_keys = next(iter(keys_by_name.values()), set())
    names = [
        name
        for name, keys in keys_by_name.items()
        if 2 * len(keys & first_keys) >= len(keys | first_keys)
    ]
    return names if len(names) > 1 else []


def _values_in(cell: Any) -> Sequence[Any]:
    """Return the values in a cell, which may be a list."""
    return cell if isinstance(cell, list | tuple) else (cell,)


def _texts_in(rows: Iterable[EvidenceRow]) -> Iterator[str]:
    """Yield the texts in the cells of rows."""
    for row in rows:
        for cell in row.cells.values():
            if type(cell) is not float:  # most cells of a large table
                yield from (text for text in _values_in(cell) if isinstance(text, str))


class EvidenceTable:
    """The rows at one path of the evidence, and their columns."""

    def __init__(self) -> None:
        self.rows: list[EvidenceRow] = []
        # The results of `_best_columns` by phrase.
        self._bound: dict[Words, list[Path]] = {}

    @cached_property
    def paths(self) -> list[Path]:
        """The paths of all columns."""
        paths = chain.from_iterable(row.cells for row in self.rows)
        return list(dict.fromkeys(paths))

    @cached_property
    def columns(self) -> dict[Path, Words]:
        """The paths of the columns with numbers, each with the parts of its name."""
        columns: dict[Path, Words] = {}
        for path in self.paths:
            if any(row.number(path) is not None for row in self.rows):
                columns[path] = split_name(path[-1]) if path else ()
        return columns

    def bind(self, phrase: Words, *, whole: bool = False) -> list[Path]:
        """Return the numeric columns that best match `phrase`.

        With `whole`, returns only those with all parts of their name in the phrase.
        """
        if phrase not in self._bound:
            self._bound[phrase] = self._best_columns(phrase)
        columns = self._bound[phrase]
        if not whole:
            return columns
        return [
            column
            for column in columns
            if all(likeness_in(phrase, part) for part in self.columns[column])
        ]

    def _best_columns(self, phrase: Words) -> list[Path]:
        """Return the columns whose names are most like a phrase."""
        terms = [word for word in phrase if word != "a"]  # an article, never a column
        scores: dict[Path, int] = {}
        for column, parts in self.columns.items():
            scores[column] = sum(likeness_in(terms, part) for part in parts)

        best = max(scores.values(), default=0)
        return [column for column, score in scores.items() if score == best > 0]


class Mention(NamedTuple):
    """The tokens `first` to `last` (both included), which together name `rows`."""

    first: int
    last: int
    rows: Sequence[EvidenceRow]


def rows_of(mentions: Iterable[Mention]) -> list[EvidenceRow]:
    """Return the rows that mentions name, each once."""
    rows = chain.from_iterable(mention.rows for mention in mentions)
    return list(dict.fromkeys(rows))


class Evidence:
    """Indexed evidence of any shape; build it once for many texts.

    Evidence is a mapping, rows, a data frame, a mapping of names to rows or frames, or
    text. Raises InvalidInput for bad evidence or a wrong lexicon, PackageMissing for a
    frame without narwhals.

    `words` are the stems of all words but stop words and single letters; `numbers` are
    the absolute values of all numbers, sorted. Both include those in column names, and
    `labels` are only the numbers in column names. `singles` are the rows of tables with
    only one row. `prose` is True if every table is one cell, as that of a text is.
    `decimal` is the decimal sign of the texts, by default the one that their numbers
    show. If these show none, `readings` has this evidence with either sign.
    """

    def __init__(
        self,
        evidence: Any,
        lexicon: Lexicon | Fields | None = None,
        *,
        decimal: str | None = None,
    ) -> None:
        require(decimal in (None, ".", ","), "decimal", decimal, "a point or a comma")
        self.lexicon: Lexicon = Lexicon.of(lexicon)
        self.tables: dict[Path, EvidenceTable] = defaultdict(EvidenceTable)
        self.dates: list[tuple[Date, EvidenceRow]] = []
        self.passages: list[tuple[str, EvidenceRow]] = []
        self._texts: dict[str, None] = {}  # a set that keeps its order
        self._cell_numbers: set[float] = set()
        # The rows with a name, by all its words and by each capitalised word of it; all
        # are in lower case.
        self._rows_by_name: dict[Words, list[EvidenceRow]] = defaultdict(list)
        self._rows_by_name_word: dict[str, list[EvidenceRow]] = defaultdict(list)

        data = _parse_text(evidence) if isinstance(evidence, str) else evidence
        rows = list(read_rows(data, (), "$", depth=0))
        signs = [decimal] if decimal else text_parts.decimal_signs(_texts_in(rows))
        self.decimal: str = signs[0]
        for row in rows:
            row.decimal = self.decimal
            self._index_row(row)
            self.tables[row.table].rows.append(row)
        others = [Evidence(data, self.lexicon, decimal=sign) for sign in signs[1:]]
        self.readings: Sequence[Evidence] = (self, *others)

        row_tables = self.tables.values()
        self.prose: bool = all(
            len(table.paths) == len(table.rows) == 1 for table in row_tables
        )
        self.singles: list[EvidenceRow] = [
            table.rows[0] for table in row_tables if len(table.rows) == 1
        ]
        self.has_times: bool = any(date.hour is not None for date, _ in self.dates)
        self._index_words()
        self._longest_name: int = max(map(len, self._rows_by_name), default=1)

        # Beginnings of words, for names in another form: "Germ" for Germany and German.
        self._roots: set[str] = set()
        if not self.prose:
            self._roots = {word[:4] for word in self.words if len(word) > 3}
        # Texts of two to four capitals may abbreviate a name.
        self._codes = {
            text.casefold()
            for text in self._texts
            if 1 < len(text) <= 4 and text.isupper()
        }

    def _index_words(self) -> None:
        """Collect the words and numbers of all texts and of all names of columns."""
        paths = chain.from_iterable(table.paths for table in self.tables.values())
        names = set(chain.from_iterable(paths))
        split_names = [split_name(name) for name in names]
        parts = set(chain.from_iterable(split_names))
        self._parts = [part for part in parts if not part.isdecimal()]
        self.labels: set[float] = {float(part) for part in parts if part.isdecimal()}

        self.words: set[str] = set()
        numbers = set(self._cell_numbers)
        for text in chain(self._texts, names, map(" ".join, split_names)):
            tokens = tokenize(text, self.decimal)
            lows = (token.low for token in tokens if token.kind == "word")
            self.words.update(text_parts.content_stems(lows))
            numbers.update(
                abs(quantity.value) for quantity in text_parts.quantities(tokens)
            )
        self.numbers: list[float] = sorted(numbers)

    def __bool__(self) -> bool:
        """Return True if the evidence is not empty."""
        return bool(self._cell_numbers) or any(self._texts)

    def _index_row(self, row: EvidenceRow) -> None:
        """Index the numbers, texts, dates and names in the cells and key of a row."""
        cells = (*row.cells.items(), (("key",), row.key))
        for path, cell in cells:
            if type(cell) is float and isfinite(cell):  # most cells of a large table
                self._cell_numbers.add(abs(cell))
                continue

            for value in _values_in(cell):
                number = _finite_number(value, self.decimal)
                if number is not None:
                    self._cell_numbers.add(abs(number))
                    if path in (("key",), ("year",), ("Year",)):
                        self._rows_by_name[f"{number:g}",].append(row)
                elif isinstance(value, str):
                    self._texts[value] = None
                    self.dates += [(date, row) for date in text_parts.dates(value)]
                    if len(value) > MAX_COLUMN_NAME_CHARS:
                        self.passages.append((value, row))
                    elif path:
                        self._index_name(row, value)

    def _index_name(self, row: EvidenceRow, text: str) -> None:
        """Index a short text as a name of its row, unless it is a stop word."""
        tokens = [
            token for token in tokenize(text, self.decimal) if token.kind != "sign"
        ]
        name = tuple(token.low for token in tokens)
        # "A" and "I" may be names.
        is_common = len(name) == 1 and len(name[0]) > 1 and is_stop_word(name[0])
        if name and not is_common:
            self._rows_by_name[name].append(row)
        for token in tokens:
            if token.text[0].isupper() and not is_stop_word(token.low):
                self._rows_by_name_word[token.low].append(row)

    def knows(self, word: str) -> bool:
        """Return whether `word`, a stem, is in the evidence or like a column's name."""
        if word in self.words:
            return True
        return any(likeness(word, part) > 1 for part in self._parts)

    def knows_name(self, word: str) -> bool:
        """Return whether `word` may be a name in the evidence.

        The evidence may have another form of it (German for Germany) or abbreviate it
        (DE for Germany). A single letter always may be one.
        """
        if len(word) < 2 or stem(word) in self.words or word[:4] in self._roots:
            return True
        return any(text_parts.is_abbreviation(code, word) for code in self._codes)

    def has_number_between(self, low: float, high: float) -> bool:
        """Return whether `numbers` has an absolute value from `low` to `high`."""
        return bisect_right(self.numbers, high) > bisect_left(self.numbers, low)

    def mentions(self, tokens: Sequence[Token]) -> Iterator[Mention]:
        """Yield the names of rows in a text from left to right, each with its rows.

        Where several names begin at one token, the longest counts.
        """
        positions = [n for n, token in enumerate(tokens) if token.kind != "sign"]
        place = 0
        while place < len(positions):
            run = positions[place : place + self._longest_name]
            count, rows = self._rows_named([tokens[position] for position in run])
            if rows:
                yield Mention(run[0], run[count - 1], rows)
            place += count

    def _rows_named(self, tokens: Sequence[Token]) -> tuple[int, list[EvidenceRow]]:
        """Return the length in tokens of the longest name at the start, and its rows.

        If no name begins there, the length is 1, and the rows are those of any name in
        which the first token stands, if it is capitalised. A name of more than
        `MAX_WORD_CELLS` cells names no rows.
        """
        for count in range(len(tokens), 0, -1):
            name = tuple(token.low for token in tokens[:count])
            rows = self._rows_by_name.get(name, [])
            is_letter = count == 1 and len(tokens[0].low) == 1
            if is_letter and not tokens[0].text.isupper():
                rows = []
            if rows and len(rows) <= MAX_WORD_CELLS:
                return count, list(dict.fromkeys(rows))

        first = tokens[0]
        rows = []
        if first.text[0].isupper() and len(first.low) > 1:
            rows = self._rows_by_name_word.get(first.low, [])
        return 1, rows if len(rows) <= MAX_WORD_CELLS else []

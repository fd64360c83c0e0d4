"""Tables of any kind read batch by batch: files, data frames, mappings, rows, arrays.

CSV, Parquet and JSON lines are read in memory that does not grow with the file; a JSON file is read
whole, as JSON has to be. Nothing that is read is ever executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from os.path import exists, isfile  # False where the system does not take the name
from pathlib import Path
from typing import Any

from heedful.checks.text import shorten
from heedful.errors import PackageMissing
from heedful.loop.record import Finding

ROWS = 65_536
"""Rows of one batch."""
BLOCK = 1 << 20
"""Bytes of one block of a file of text."""
SUFFIXES = (".csv", ".tsv", ".parquet", ".pq", ".json", ".jsonl", ".ndjson")

Read = Callable[[Sequence[str]], Iterator[Sequence[Any]]]


class Unread(Exception):
    """A source that cannot be read as a table; every check makes its finding of it."""

    def __init__(self, kind: str, what: str, fix: str, check: str = "") -> None:
        self.kind: str = kind
        self.what: str = what
        self.fix: str = fix
        self.check: str = check
        super().__init__(what)

    def finding(self, check: str) -> Finding:
        """The finding of a check that could not read its source."""
        name = self.check or check
        key = f"{name}: {self.kind}"
        return Finding(name, self.what, self.fix, severity=0.9, key=key)


@dataclass(frozen=True, slots=True)
class Source:
    """A table that is open: the names of its columns, and how to `read` some of them.

    Arrays have no names (`named` is false): they take those that are asked for, in order.
    """

    columns: tuple[str, ...]
    read: Read = field(repr=False)
    named: bool = True

    def batches(self, names: Sequence[str]) -> Iterator[Sequence[Any]]:
        """For each batch the columns of these names, in this order. Raises Unread."""
        if not self.named and len(names) != len(self.columns):
            what = f"arrays given: {len(self.columns)}; asked for are {', '.join(names)}"
            raise Unread("columns", what, f"give {len(names)} arrays, or columns with names")
        for name in names if self.named else ():
            if name not in self.columns:
                raise Unread("missing column", *lacking(name, self.columns))
            if self.columns.count(name) > 1:
                what = f"{self.columns.count(name)} columns are called {name!r}"
                raise Unread("columns", what, "give every column a name of its own")
        return self.read(names)


def lacking(name: str, columns: Sequence[str]) -> tuple[str, str]:
    """What to say of a column that is not there, and how to mend it."""
    there = ", ".join(columns[:20]) + (f" and {len(columns) - 20} more" if columns[20:] else "")
    what = f"there is no column {name!r}; there are: {there or 'none'}"
    near = [one for one in columns if one.strip().casefold() == name.strip().casefold()]
    if near:
        return what, f"call the column {near[0]!r} {name!r}, exactly"
    if len(columns) == 1 and name in re.split(r"[;\t|]", columns[0]):
        return what, "separate the cells of a row by commas, or by tabs in a .tsv file"
    return what, f"write a column called {name!r}"


def opened(data: Any) -> Source:
    """The table that a path, data frame, mapping of columns, list of rows or arrays hold.

    A text is read as JSON, never as a path: it may be a model's. Raises Unread, and PackageMissing
    where reading it needs a package that is not installed.
    """
    import numpy as np

    match data:
        case Path():
            return _file(data)
        case str():
            return _json(data, "the answer", "answer with JSON, or give the path of the results")
        case None:
            raise Unread("no data", "there are no data (None)", "give the data")
        case Mapping():
            return _mapping(data)
        case np.ndarray():
            return _array(data)
        case tuple() if data and all(_listed(one) is not None for one in data):
            return _arrays(data)
        case list():
            return _rows(data)
        case _:
            return _frame(data)


def package(name: str, what: str) -> Any:
    """An optional package. Raises PackageMissing, which says how to install it."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        extra = "schemas" if name.startswith(("pandera", "polars")) else "frames"
        raise PackageMissing(what, name.partition(".")[0], extra) from error


# In memory


def _mapping(data: Mapping[Any, Any]) -> Source:
    """Lists of values are columns, whatever stands beside them; without a list it is one row."""
    columns = {str(name): _listed(value) for name, value in data.items()}
    lists = {name: cells for name, cells in columns.items() if cells is not None}
    return _columns(lists or {str(name): [cell] for name, cell in data.items()})


def _listed(value: Any) -> Any:
    """The cells of a column, None where it is a single one."""
    if isinstance(value, Mapping):
        return list(value.values())
    several = hasattr(value, "__len__") and getattr(value, "ndim", 1) > 0
    return _plain(value) if several and not isinstance(value, str | bytes) else None


def _columns(held: Mapping[str, Any], named: bool = True) -> Source:
    """Columns beside each other; those that are read together have to be equally long."""

    def read(asked: Sequence[str]) -> Iterator[Sequence[Any]]:
        chosen = {name: held[name] for name in asked} if named else held
        lengths = {name: len(cells) for name, cells in chosen.items()}
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{name} {n}" for name, n in lengths.items())
            what = f"the columns differ in length: {said}"
            raise Unread("unequal lengths", what, "give one value a row in every column")
        for at in range(0, max(lengths.values(), default=0), ROWS):
            yield [cells[at : at + ROWS] for cells in chosen.values()]

    return Source(tuple(held), read, named)


def _plain(cells: Any) -> Any:
    """A column as what `numeric` reads, cut by position: Arrow, numpy or a list."""
    if isinstance(cells, list) or hasattr(cells, "to_pylist"):
        return cells
    if hasattr(cells, "__array__") and getattr(cells, "ndim", 1) == 1:
        import numpy as np

        return cells.tolist() if np.ma.isMaskedArray(cells) else np.asarray(cells)
    return list(cells)


def _arrays(columns: Sequence[Any]) -> Source:
    held = {f"array {n}": _listed(cells) for n, cells in enumerate(columns, 1)}
    return _columns(held, named=False)


def _array(data: Any) -> Source:
    if data.dtype.names:
        return _columns({name: data[name] for name in data.dtype.names})
    if data.ndim not in (1, 2):
        what = f"the array has {data.ndim} dimensions"
        raise Unread("not a table", what, "give an array of one column or of rows by columns")
    return _arrays([data] if data.ndim == 1 else list(data.T))


def _rows(data: Sequence[Any]) -> Source:
    if data and not any(isinstance(row, Mapping | list | tuple) for row in data):
        return _arrays([data])
    for at, row in enumerate(data):
        if not isinstance(row, Mapping):
            what = f"row {at + 1} is {shorten(row)}, not an object of named values"
            raise Unread("not a table", what, "give every row as an object, or a mapping of lists")
    names = tuple(dict.fromkeys(str(name) for row in data for name in row))
    if not names:
        raise Unread("empty", "there are no rows", "write at least one row", "missing_results")

    def read(asked: Sequence[str]) -> Iterator[Sequence[Any]]:
        for at in range(0, len(data), ROWS):
            part = data[at : at + ROWS]
            yield [[row.get(name) for row in part] for name in asked]

    return Source(names, read)


def _frame(data: Any) -> Source:
    package("pyarrow", what := f"reading a {type(data).__name__}")
    narwhals = package("narwhals", what)
    try:
        frame = narwhals.from_native(data, allow_series=True)
    except narwhals.exceptions.NarwhalsError as error:  # two columns of one name, say
        fix = "give every column a name of its own"
        raise Unread("columns", f"the data frame cannot be read: {error}"[:200], fix) from error
    except TypeError:
        what = f"the data are no table, but {shorten(data)} ({type(data).__name__})"
        raise Unread(
            "not a table", what, "give a data frame, a mapping of columns, rows or a path"
        ) from None
    if isinstance(frame, narwhals.Series):
        return _arrays([frame.to_list()])
    try:
        names = tuple(map(str, frame.collect_schema().names()))
    except OSError as error:  # a lazy frame looks for its file now
        raise corrupt("the data frame", error) from error

    def read(asked: Sequence[str]) -> Iterator[Sequence[Any]]:
        lazy = isinstance(frame, narwhals.LazyFrame)
        held = frame.select(*asked).collect() if lazy else frame
        for at in range(0, len(held), ROWS):
            part = held[at : at + ROWS]
            yield [_cells(part.get_column(name)) for name in asked]

    return Source(names, read)


def _cells(series: Any) -> Any:
    """A column of a frame as an Arrow array; as a list where its cells are of several kinds."""
    import narwhals

    wide = series.dtype in (narwhals.Int128, narwhals.UInt128)  # Arrow has no such whole numbers
    return series.to_arrow() if series.dtype.is_numeric() and not wide else series.to_list()


# Files


def _file(path: Path) -> Source:
    suffix = path.suffix.casefold()
    readers: dict[str, Callable[[Path], Source]] = {
        **dict.fromkeys((".csv", ".tsv"), _csv),
        **dict.fromkeys((".parquet", ".pq"), _parquet),
        **dict.fromkeys((".jsonl", ".ndjson"), _lines),
        ".json": lambda path: _json(_text(path), path),
    }
    if not isfile(path):
        there = "is no file" if exists(path) else "does not exist"
        fix = "make sure that the stage saves its results there, and check the path"
        raise Unread("missing", f"results file {path} {there}", fix, "missing_results")
    if not path.stat().st_size:
        what, fix = f"results file {path} is empty (0 bytes)", "write the results to it"
        raise Unread("empty", what, fix, "missing_results")
    if suffix not in readers:
        what = f"results file {path} ends in {suffix or 'nothing'}, a format that is not read"
        raise Unread("format", what, f"save it as one of {', '.join(SUFFIXES)}")
    try:
        return readers[suffix](path)
    except OSError as error:
        raise corrupt(path, error) from error


WHOLE = "write the file anew, as a whole"


def corrupt(what: Path | str, error: object, fix: str = WHOLE) -> Unread:
    """A file that is not what its name says, or other data that are not what they should be."""
    whose = f"results file {what}" if isinstance(what, Path) else what
    told = f"{whose} cannot be read: {shorten(str(error), 160)}"
    return Unread("corrupt", told, fix, "missing_results")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise corrupt(path, error) from error


def _json(text: str, whose: Path | str, fix: str = WHOLE) -> Source:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise corrupt(whose, error, fix) from error
    if isinstance(data, Mapping):
        return _mapping(data)
    if isinstance(data, list):
        return _rows(data)
    what = f"{whose} holds {shorten(data)}, no rows"
    raise Unread("not a table", what, "write a list of objects or an object of lists")


def _lines(path: Path) -> Source:
    def rows() -> Iterator[Mapping[str, Any]]:
        with path.open(encoding="utf-8-sig") as file:
            try:
                for at, line in enumerate(file, 1):
                    if line.strip():
                        yield _line(path, at, line)
            except UnicodeDecodeError as error:
                raise corrupt(path, error) from error

    def read(asked: Sequence[str]) -> Iterator[Sequence[Any]]:
        coming = rows()
        while part := list(islice(coming, 8_192)):
            yield [[row.get(name) for row in part] for name in asked]

    names: dict[str, None] = {}  # a first pass: a later row may be the first to name a column
    for row in rows():
        names.update(dict.fromkeys(row))
    if not names:
        what, fix = f"results file {path} has no rows", "write the results to it"
        raise Unread("empty", what, fix, "missing_results")
    return Source(tuple(names), read)


def _line(path: Path, at: int, line: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line.rstrip())
    except json.JSONDecodeError as error:
        raise corrupt(path, f"line {at}, column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise corrupt(path, f"line {at}: {error}") from error
    if not isinstance(row, Mapping):
        raise corrupt(path, f"line {at} is no JSON object")
    return row


def _csv(path: Path) -> Source:
    arrow = package("pyarrow", "reading CSV")
    csv = package("pyarrow.csv", "reading CSV")
    tab = "\t" if path.suffix.casefold() == ".tsv" else ","

    def reader(names: Sequence[str]) -> Any:
        return csv.open_csv(
            path,
            csv.ReadOptions(use_threads=False, block_size=BLOCK),
            csv.ParseOptions(delimiter=tab, newlines_in_values=True),
            # All of a column is read as text: a type guessed from its beginning may not hold.
            csv.ConvertOptions(
                default_column_type=arrow.string(),
                include_columns=list(names),
                strings_can_be_null=True,
                null_values=[""],
            ),
        )

    try:
        with reader(()) as first:
            columns = tuple(first.schema.names)
    except arrow.ArrowException as error:
        raise corrupt(path, error) from error

    def read(asked: Sequence[str]) -> Iterator[Sequence[Any]]:
        try:
            with reader(asked) as parts:
                for part in parts:
                    yield [part.column(name) for name in asked]
        except arrow.ArrowException as error:
            raise corrupt(path, error) from error

    return Source(columns, read)


def _parquet(path: Path) -> Source:
    arrow = package("pyarrow", "reading Parquet")
    parquet = package("pyarrow.parquet", "reading Parquet")

    def file() -> Any:
        return parquet.ParquetFile(path, buffer_size=BLOCK, pre_buffer=False)

    try:
        with file() as first:
            columns = tuple(first.schema_arrow.names)
    except (arrow.ArrowException, OSError) as error:
        raise corrupt(path, error) from error

    def read(asked: Sequence[str]) -> Iterator[Sequence[Any]]:
        try:
            with file() as held:
                parts = held.iter_batches(ROWS, columns=list(asked), use_threads=False)
                for part in parts:
                    yield [part.column(name) for name in asked]
        except (arrow.ArrowException, OSError) as error:
            raise corrupt(path, error) from error

    return Source(columns, read)

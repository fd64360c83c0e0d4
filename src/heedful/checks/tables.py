"""Read tables in batches from files, data frames, mappings, rows and arrays.

Memory does not grow with a Parquet or CSV file. JSON files and lazy data frames are
read whole.

Cells mean the same in every format: the text "7" is a number, because CSV has only
text. Empty cells, None and NaN are missing. Truth values are not numbers.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from importlib import import_module
from itertools import islice
from math import inf, nan
from os import PathLike
from os.path import exists, isfile  # False for an invalid name
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from heedful.checks.evaluate import Context
from heedful.checks.text import shorten
from heedful.errors import PackageMissing
from heedful.loop.record import Finding, Level

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Floats = NDArray[float64]

BATCH_ROWS = 65_536
CSV_ROW_COST = 8  # in rows of other formats: the cells of CSV are Python objects
MAX_LISTED_COLUMNS = 20
TABLE_SUFFIXES = (".csv", ".parquet", ".pq", ".json")
# In lower case.
MISSING_CELL_WORDS = frozenset({"", "null", "none", "na", "n/a", "nan", "<na>", "nat"})
MAX_MISSING_WORD_CHARS = 8  # with the blanks around it
MISSING_TABLE_CHECK = "missing_results"
"""The check name of findings about results that are absent, empty, stale or damaged."""
Cells = Any  # of a column: a list, or a numpy array of numbers
Batches = Iterator[Sequence[Cells]]


def report(
    check: str,
    kind: str,
    what: str,
    fix: str,
    level: Level = "error",
    severity: float = 0.7,
) -> Finding:
    """Return a finding with the message `what` and the key `check: kind`."""
    return Finding(
        check, what, fix=fix, level=level, severity=severity, key=f"{check}: {kind}"
    )


@dataclass(eq=False, kw_only=True)
class TableError(Exception):
    """Raised if a source is no readable table.

    `check` names the check of the finding, or is "".
    """

    kind: str
    what: str
    fix: str
    check: str = ""


@dataclass(frozen=True, slots=True)
class DataTable:
    """An open table; `read(names)` yields batches of cells from the columns `names`."""

    columns: tuple[str, ...]
    read: Callable[[Sequence[str]], Batches] = field(repr=False)

    def batches(self, names: Sequence[str]) -> Batches:
        """Yield blocks of rows: one list of cells for each of `names`.

        Raises TableError.
        """
        for name in names:
            count = self.columns.count(name)
            if count == 0:
                message = f"there is no column {name!r}; there are: {self._listed()}"
                raise TableError(
                    kind="missing column",
                    what=message,
                    fix=f"write a column called {name!r}",
                )
            if count > 1:
                raise TableError(
                    kind="columns",
                    what=f"{count} columns are called {name!r}",
                    fix="give every column a different name",
                )
        return self.read(names)

    def _listed(self) -> str:
        listed = ", ".join(self.columns[:MAX_LISTED_COLUMNS]) or "none"
        more = len(self.columns) - MAX_LISTED_COLUMNS
        return f"{listed} and {more} more" if more > 0 else listed


def locate(source: Any, candidate: Any, context: Context) -> Any:
    """Return the data or Path to open.

    This is the `source`, its result if it is callable, or the candidate if it is None.
    """
    if source is None:
        return candidate
    if callable(source):
        source = source(candidate, context.data)
    return Path(source) if isinstance(source, str | PathLike) else source


def open_table(data: Any, names: Sequence[str] = ()) -> DataTable:
    """Open a path, a data frame, a mapping of columns, a list of rows, arrays or JSON
    text.

    Arrays get the column names `names`, in order. Text is never a path, because a model
    may have written it. Raises TableError, and PackageMissing if a package to read the
    data is missing.
    """
    import numpy as np

    match data:
        case Path():
            return _open_file(data, names)
        case str():
            fix = "answer with JSON, or give the path of the results"
            return _open_json(data, names, "the answer", fix)
        case None:
            raise TableError(
                kind="no data", what="there are no data (None)", fix="give the data"
            )
        case Mapping():
            return _open_mapping(data)
        case np.ndarray() if data.ndim in (1, 2):
            arrays = [data] if data.ndim == 1 else list(data.T)
            return _open_arrays(arrays, names)
        case tuple() if data and all(_as_column(item) is not None for item in data):
            return _open_arrays(data, names)
        case list():
            return _open_rows(data, names)
        case _:
            return _open_frame(data, names)


def load_package(name: str, purpose: str) -> Any:
    """Return an imported module of the extra "frames". Raises PackageMissing."""
    try:
        return import_module(name)
    except ImportError as error:
        raise PackageMissing(purpose, name.partition(".")[0], "frames") from error


def _open_mapping(data: Mapping[Any, Any]) -> DataTable:
    """Open a mapping: its lists are columns; without lists, the mapping is one row."""
    columns = {str(name): _as_column(value) for name, value in data.items()}
    lists = {name: cells for name, cells in columns.items() if cells is not None}
    if lists:
        return _open_columns(lists)
    return _open_columns({str(name): [cell] for name, cell in data.items()})


def _as_column(value: Any) -> Cells | None:
    """Return the cells of a column; None if the value is one cell."""
    import numpy as np

    if isinstance(value, Mapping):
        return list(value.values())
    is_flat = hasattr(value, "__len__") and getattr(value, "ndim", 1) == 1
    if isinstance(value, str | bytes) or not is_flat:
        return None
    if type(value) is np.ndarray and value.dtype.kind in "fiu":
        return value
    # Methods of pyarrow, of data frames and of numpy.
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(value, method):
            return getattr(value, method)()
    return list(value)


def _open_columns(columns: Mapping[str, Cells]) -> DataTable:
    def read(names: Sequence[str]) -> Batches:
        lengths = {name: len(columns[name]) for name in names}
        if len(set(lengths.values())) > 1:
            sizes = ", ".join(f"{name} {length}" for name, length in lengths.items())
            message = f"the columns differ in length: {sizes}"
            raise TableError(
                kind="unequal lengths",
                what=message,
                fix="give one value a row in every column",
            )
        for start in range(0, max(lengths.values(), default=0), BATCH_ROWS):
            batch = []
            for name in names:
                cells = columns[name][start : start + BATCH_ROWS]
                if hasattr(cells, "to_list"):
                    cells = cells.to_list()
                batch.append(cells)
            yield batch

    return DataTable(tuple(columns), read)


def _open_arrays(arrays: Sequence[Any], names: Sequence[str]) -> DataTable:
    names = names or [f"array {n}" for n in range(1, len(arrays) + 1)]
    if len(names) != len(arrays):
        message = f"arrays given: {len(arrays)}; asked for are {', '.join(names)}"
        raise TableError(
            kind="columns",
            what=message,
            fix=f"give {len(names)} arrays, or columns with names",
        )
    return _open_columns(dict(zip(names, map(_as_column, arrays), strict=True)))


def _open_rows(rows: Sequence[Any], names: Sequence[str]) -> DataTable:
    if rows and not any(isinstance(row, Mapping | list | tuple) for row in rows):
        return _open_arrays([rows], names)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            message = f"row {number} is {shorten(row)}, not an object of named values"
            raise TableError(
                kind="not a table",
                what=message,
                fix="give every row as an object, or lists by name",
            )
    columns: dict[Any, None] = {}
    for row in rows:
        columns |= dict.fromkeys(row)
    if not columns:
        raise TableError(
            kind="empty",
            what="there are no rows",
            fix="write at least one row",
            check=MISSING_TABLE_CHECK,
        )
    return _open_columns(
        {str(name): [row.get(name) for row in rows] for name in columns}
    )


def _open_frame(data: Any, array_names: Sequence[str]) -> DataTable:
    narwhals = load_package("narwhals", f"reading a {type(data).__name__}")
    try:
        frame = narwhals.from_native(data, allow_series=True)
        if isinstance(frame, narwhals.Series):
            return _open_arrays([frame.to_list()], array_names)
        frame = frame.lazy().collect()
        native_names = frame.columns  # in pandas also numbers and tuples
    except narwhals.exceptions.NarwhalsError as error:  # as two columns with one name
        message = f"the data frame cannot be read: {error}"[:200]
        raise TableError(
            kind="columns", what=message, fix="give every column a different name"
        ) from error
    except TypeError:
        message = f"the data are no table, but {shorten(data)} ({type(data).__name__})"
        fix = "give a data frame, a mapping of columns, rows or a path"
        raise TableError(kind="not a table", what=message, fix=fix) from None
    except OSError as error:  # a lazy frame opens its file only now
        raise _damaged("the data frame", error) from error

    columns = {}
    for native_name in native_names:
        name = str(native_name)
        if isinstance(native_name, tuple):
            name = " ".join(map(str, native_name))
        columns[name] = native_name
    return _open_columns(
        {name: frame.get_column(native) for name, native in columns.items()}
    )


DAMAGED_TABLE_FIX = "write the complete file again"
# Exceptions of readers for damaged files; the errors of pyarrow are subclasses of
# these.
_TABLE_READ_ERRORS = (
    OSError,
    ValueError,
    RecursionError,
    NotImplementedError,
    csv.Error,
)


def _damaged(
    message: Path | str, error: object, fix: str = DAMAGED_TABLE_FIX
) -> TableError:
    subject = f"results file {message}" if isinstance(message, Path) else message
    return TableError(
        kind="corrupt",
        what=f"{subject} cannot be read: {shorten(str(error), 160)}",
        fix=fix,
        check=MISSING_TABLE_CHECK,
    )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except _TABLE_READ_ERRORS as error:
        raise _damaged(path, error) from error


def _open_file(path: Path, names: Sequence[str]) -> DataTable:
    suffix = path.suffix.casefold()
    if not isfile(path):
        there = "is no file" if exists(path) else "does not exist"
        fix = "make sure that the stage saves its results there, and check the path"
        raise TableError(
            kind="missing",
            what=f"results file {path} {there}",
            fix=fix,
            check=MISSING_TABLE_CHECK,
        )
    if not path.stat().st_size:
        message = f"results file {path} is empty (0 bytes)"
        raise TableError(
            kind="empty",
            what=message,
            fix="write the results to it",
            check=MISSING_TABLE_CHECK,
        )
    if suffix not in TABLE_SUFFIXES:
        message = (
            f"results file {path} ends in {suffix or 'nothing'}, an unknown format"
        )
        raise TableError(
            kind="format",
            what=message,
            fix=f"save it as one of {', '.join(TABLE_SUFFIXES)}",
        )
    with _reading(path):
        if suffix == ".csv":
            return _open_csv(path)
        if suffix == ".json":
            return _open_json(path.read_text(encoding="utf-8-sig"), names, path)
        return _open_parquet(path)


def _open_json(
    text: str, names: Sequence[str], source: Path | str, fix: str = DAMAGED_TABLE_FIX
) -> DataTable:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(source, error, fix) from error
    if isinstance(data, Mapping):
        return _open_mapping(data)
    if isinstance(data, list):
        return _open_rows(data, names)
    raise TableError(
        kind="not a table",
        what=f"{source} holds {shorten(data)}, no rows",
        fix="write a list of objects or an object of lists",
    )


def _open_csv(path: Path) -> DataTable:
    def lines() -> Iterator[list[str]]:
        with _reading(path), path.open(encoding="utf-8-sig", newline="") as file:
            yield from filter(None, csv.reader(file, strict=True))

    header = next(lines(), None)
    if header is None:
        message = f"results file {path} has no rows"
        raise TableError(
            kind="empty",
            what=message,
            fix="write at least one row",
            check=MISSING_TABLE_CHECK,
        )

    def read(names: Sequence[str]) -> Batches:
        places = [header.index(name) for name in names]
        rows = islice(lines(), 1, None)
        batch_rows = max(1, BATCH_ROWS // CSV_ROW_COST)
        while batch := list(islice(rows, batch_rows)):
            for width in set(map(len, batch)) - {len(header)}:
                raise _damaged(
                    path, f"a row has {width} cells, the header {len(header)}"
                )
            yield [_csv_cells(batch, place) for place in places]

    return DataTable(tuple(header), read)


def _csv_cells(rows: Sequence[Sequence[str]], place: int) -> list[str | None]:
    """Return the cells of one column; an empty cell is missing."""
    return [row[place] or None for row in rows]


def _open_parquet(path: Path) -> DataTable:
    file = load_package("pyarrow.parquet", "reading Parquet").ParquetFile

    def read(names: Sequence[str]) -> Batches:
        with (
            _reading(path),
            file(path, buffer_size=1 << 20, pre_buffer=False) as opened,
        ):
            for batch in opened.iter_batches(
                BATCH_ROWS, columns=list(names), use_threads=False
            ):
                yield [_arrow_cells(batch.column(name)) for name in names]

    with file(path) as opened:
        return DataTable(tuple(opened.schema_arrow.names), read)


def _arrow_cells(column: Any) -> Cells:
    """Return the cells of a column of pyarrow, as an array if they are all numbers."""
    from pyarrow import types

    is_whole = types.is_integer(column.type) and not column.null_count
    if types.is_floating(column.type) or is_whole:
        return column.to_numpy(zero_copy_only=False)
    return column.to_pylist()


def to_number(cell: Any) -> float | None:
    """Return the number in a cell, NaN if the cell is missing, None if it is not a
    number.

    >>> to_number(" 1e3 "), to_number(True), to_number("1_000")
    (1000.0, None, None)
    """
    if is_missing(cell):
        return nan
    if isinstance(cell, str):
        may_be_number = "_" not in cell and cell.isascii()
    else:
        is_truth_value = type(cell).__name__ in ("bool", "bool_")
        may_be_number = hasattr(cell, "__float__") and not is_truth_value
    if not may_be_number:
        return None
    try:
        return float(cell)
    except OverflowError:  # a whole number beyond all floats
        return inf if cell > 0 else -inf
    except (ValueError, TypeError):
        return None


def to_numbers(cells: Cells) -> "tuple[Floats, int, object]":
    """Return cells as floats, the number of wrong ones, and the first of these.

    Missing and wrong cells are NaN.
    """
    import numpy as np

    if isinstance(cells, np.ndarray):
        return cells.astype(np.float64), 0, None
    document = _plain_floats(cells)
    if document is not None:
        return document, 0, None

    floats = list(map(to_number, cells))
    wrong = [cell for cell, value in zip(cells, floats, strict=True) if value is None]
    values = [nan if value is None else value for value in floats]
    first_wrong = wrong[0] if wrong else None
    return np.array(values, dtype=float), len(wrong), first_wrong


def _plain_floats(cells: Sequence[Any]) -> "Floats | None":
    """Return the cells as floats, fast; None if not all of them are plain numbers."""
    import numpy as np

    kinds = set(map(type, cells))
    if not kinds <= {float, int, str, NoneType}:
        return None
    if NoneType in kinds:
        cells = [nan if cell is None else cell for cell in cells]
    text = "".join(map(str, cells)) if str in kinds else ""
    if not text.isascii() or "_" in text:
        return None
    try:
        return np.fromiter(map(float, cells), float, len(cells))
    except (ValueError, OverflowError):
        return None


def is_missing(cell: Any) -> bool:
    """Return whether a cell is None, NaN, NaT or a text such as "" or "N/A"."""
    if cell is None:
        return True
    if isinstance(cell, str):
        if len(cell) > MAX_MISSING_WORD_CHARS:
            return False
        return cell.strip().casefold() in MISSING_CELL_WORDS
    if isinstance(cell, Decimal):
        return cell.is_nan()
    return type(cell).__name__ in ("NAType", "NaTType") or str(cell != cell) == "True"

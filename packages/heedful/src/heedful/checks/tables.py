"""Read tables in batches from files, data frames, mappings, rows and arrays.

`open_table` makes a `DataTable` of any of these: first the sources in memory, then the
files. A `DataTable` yields batches of cells, and `to_numbers` turns cells into floats.
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
from heedful.errors import PackageMissing
from heedful.faults import shorten
from heedful.loop.record import Finding, Level
from heedful.redact import redact_start

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Floats = NDArray[float64]

BATCH_ROWS = 65_536
TABLE_SUFFIXES = (".csv", ".parquet", ".pq", ".json")
# Texts that stand for a missing cell, in lower case.
MISSING_CELL_WORDS = frozenset({"", "null", "none", "na", "n/a", "nan", "<na>", "nat"})
MISSING_TABLE_CHECK = "missing_results"
"""The check name of findings about results that are absent, empty, stale or damaged."""
Cells = Any  # the cells of one column: a list, or a numpy array of numbers
Batches = Iterator[Sequence[Cells]]  # a batch has the cells of each column


def table_finding(
    check: str,
    kind: str,
    what: str,
    fix: str,
    level: Level = "error",
    severity: float = 0.7,
    off_by: float | None = None,
    rule: str = "",
) -> Finding:
    """Return a finding about a table, with the message `what`.

    Findings of a check with the same `kind` have the same key. Memory keeps the `rule`.
    """
    return Finding(
        check,
        what,
        fix=fix,
        level=level,
        severity=severity,
        key=f"{check}: {kind}",
        off_by=off_by,
        rule=rule,
    )


@dataclass(eq=False, kw_only=True)
class TableError(Exception):
    """Raised if a source is not a readable table.

    The fields become a finding. `check` names its check; "" stands for the check that
    opened the source.
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
        """Return an iterator over batches: one list of cells for each of `names`.

        Raises TableError if a column is missing or not the only one of its name.
        """
        for name in names:
            count = self.columns.count(name)
            if count == 0:
                listed = redact_start(", ".join(self.columns), 400) or "none"
                raise TableError(
                    kind="missing column",
                    what=f"there is no column {name!r}; there are: {listed}",
                    fix=f"write a column called {name!r}",
                )

            if count > 1:
                raise TableError(
                    kind="columns",
                    what=f"{count} columns are called {name!r}",
                    fix="give every column a different name",
                )

        return self.read(names)


def locate(source: Any, candidate: Any, context: Context) -> Any:
    """Return the data or the Path to open.

    Without a `source` this is the candidate; a callable source is called for it.
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
            return _open_json(data, names, source="the answer", fix=fix)
        case None:
            raise TableError(
                kind="no data", what="there are no data (None)", fix="give the data"
            )
        case Mapping():
            return _open_mapping(data)
        case np.ndarray() if data.ndim in (1, 2):
            arrays = [data] if data.ndim == 1 else list(data.T)
            return _open_arrays(arrays, names)
        case tuple() if data and all(_column_cells(item) is not None for item in data):
            return _open_arrays(data, names)
        case list():
            return _open_rows(data, names)
        case _:
            return _open_frame(data, names)


def load_package(name: str, purpose: str) -> Any:
    """Import and return a module of the extra "frames".

    `purpose` says in the error what needs it. Raises PackageMissing.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise PackageMissing(purpose, name.partition(".")[0], "frames") from error


def _open_mapping(data: Mapping[Any, Any]) -> DataTable:
    """Open a mapping: its lists are columns; without lists, the mapping is one row."""
    columns: dict[str, Cells] = {}
    for name, value in data.items():
        cells = _column_cells(value)
        if cells is not None:
            columns[str(name)] = cells

    if not columns:
        columns = {str(name): [cell] for name, cell in data.items()}
    return _open_columns(columns)


def _column_cells(value: Any) -> Cells | None:
    """Return the cells of a column; None if the value is only one cell."""
    import numpy as np

    if isinstance(value, Mapping):
        return list(value.values())

    is_flat = hasattr(value, "__len__") and getattr(value, "ndim", 1) == 1
    if isinstance(value, str | bytes) or not is_flat:
        return None

    if type(value) is np.ndarray and value.dtype.kind in "fiu":
        return value  # an array of numbers

    # Methods of pyarrow, of data frames and of numpy.
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(value, method):
            return getattr(value, method)()
    return list(value)


def _open_columns(columns: Mapping[str, Cells]) -> DataTable:
    """Open columns in memory; they must have the same length when they are read."""

    def read(names: Sequence[str]) -> Batches:
        """Yield slices of the columns. Raises TableError if their lengths differ."""
        lengths = {name: len(columns[name]) for name in names}
        if len(set(lengths.values())) > 1:
            sizes = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise TableError(
                kind="unequal lengths",
                what=f"the columns differ in length: {sizes}",
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
    """Open arrays as columns called `names`; without names: "array 1", "array 2"."""
    if not names:
        names = [f"array {n}" for n in range(1, len(arrays) + 1)]
    if len(names) != len(arrays):
        raise TableError(
            kind="columns",
            what=f"arrays given: {len(arrays)}; asked for are {', '.join(names)}",
            fix=f"give {len(names)} arrays, or columns with names",
        )

    columns = zip(names, map(_column_cells, arrays), strict=True)
    return _open_columns(dict(columns))


def _open_rows(rows: Sequence[Any], array_names: Sequence[str]) -> DataTable:
    """Open a list of mappings as rows, and a list of plain values as one array."""
    if rows and not any(isinstance(row, Mapping | list | tuple) for row in rows):
        return _open_arrays([rows], array_names)

    column_names: dict[Any, None] = {}  # a set that keeps its order
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise TableError(
                kind="not a table",
                what=f"row {number} is {shorten(row)}, not an object of named values",
                fix="give every row as an object, or lists by name",
            )
        column_names |= dict.fromkeys(row)

    if not column_names:
        raise TableError(
            kind="empty",
            what="there are no rows",
            fix="write at least one row",
            check=MISSING_TABLE_CHECK,
        )

    columns = {}
    for name in column_names:
        columns[str(name)] = [row.get(name) for row in rows]
    return _open_columns(columns)


def _open_frame(data: Any, array_names: Sequence[str]) -> DataTable:
    """Open a data frame, or a Series as an array."""
    narwhals = load_package("narwhals", f"reading a {type(data).__name__}")
    try:
        frame = narwhals.from_native(data, allow_series=True)
        if isinstance(frame, narwhals.Series):
            return _open_arrays([frame.to_list()], array_names)

        frame = frame.lazy().collect()
        native_names = frame.columns
    except narwhals.exceptions.NarwhalsError as error:
        # For example two columns have the same name.
        raise TableError(
            kind="columns",
            what=f"the data frame cannot be read: {error}"[:200],
            fix="give every column a different name",
        ) from error
    except TypeError:
        type_name = type(data).__name__
        raise TableError(
            kind="not a table",
            what=f"the data are {shorten(data)} ({type_name}), not a table",
            fix="give a data frame, a mapping of columns, rows or a path",
        ) from None
    except OSError as error:
        # A lazy frame opens its file only when it is collected.
        raise _damaged_error("the data frame", error) from error

    columns = {}
    for native_name in native_names:
        name = str(native_name)
        if isinstance(native_name, tuple):  # pandas has columns called ("price", "max")
            name = " ".join(map(str, native_name))

        columns[name] = frame.get_column(native_name)
    return _open_columns(columns)


DAMAGED_TABLE_FIX = "write the complete file again"
# What readers raise for a damaged file; the errors of pyarrow are subclasses of these.
_TABLE_READ_ERRORS = (
    OSError,
    ValueError,
    RecursionError,
    NotImplementedError,
    csv.Error,
)


def _damaged_error(
    source: Path | str, reason: object, fix: str = DAMAGED_TABLE_FIX
) -> TableError:
    """Return the error about a file or other source that cannot be read."""
    subject = f"results file {source}" if isinstance(source, Path) else source
    return TableError(
        kind="corrupt",
        what=f"{subject} cannot be read: {shorten(str(reason), 160)}",
        fix=fix,
        check=MISSING_TABLE_CHECK,
    )


@contextmanager
def _report_damage(path: Path) -> Iterator[None]:
    """Raise TableError if the block fails to read the file."""
    try:
        yield
    except _TABLE_READ_ERRORS as error:
        raise _damaged_error(path, error) from error


def _open_file(path: Path, array_names: Sequence[str]) -> DataTable:
    """Open a file by its suffix."""
    if not isfile(path):
        fault = "is not a file" if exists(path) else "does not exist"
        raise TableError(
            kind="missing",
            what=f"results file {path} {fault}",
            fix="make sure that the stage saves its results there, and check the path",
            check=MISSING_TABLE_CHECK,
        )

    if not path.stat().st_size:
        raise TableError(
            kind="empty",
            what=f"results file {path} is empty (0 bytes)",
            fix="write the results to it",
            check=MISSING_TABLE_CHECK,
        )

    suffix = path.suffix.casefold()
    if suffix not in TABLE_SUFFIXES:
        ending = suffix or "nothing"
        raise TableError(
            kind="format",
            what=f"results file {path} ends in {ending}, an unknown format",
            fix=f"save it as one of {', '.join(TABLE_SUFFIXES)}",
        )

    with _report_damage(path):
        if suffix == ".csv":
            return _open_csv(path)
        if suffix == ".json":
            text = path.read_text(encoding="utf-8-sig")
            return _open_json(text, array_names, source=path)
        return _open_parquet(path)


def _open_json(
    text: str,
    array_names: Sequence[str],
    *,
    source: Path | str,
    fix: str = DAMAGED_TABLE_FIX,
) -> DataTable:
    """Open JSON text: an object of columns, or a list of rows.

    Errors name the `source` of the text.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged_error(source, error, fix) from error

    if isinstance(data, Mapping):
        return _open_mapping(data)
    if isinstance(data, list):
        return _open_rows(data, array_names)
    raise TableError(
        kind="not a table",
        what=f"{source} holds {shorten(data)}, not rows",
        fix="write a list of objects or an object of lists",
    )


def _open_csv(path: Path) -> DataTable:
    """Open a CSV file; its first row has the names of the columns."""
    header = next(_csv_rows(path), None)
    if header is None:
        raise TableError(
            kind="empty",
            what=f"results file {path} has no rows",
            fix="write at least one row",
            check=MISSING_TABLE_CHECK,
        )

    def read(names: Sequence[str]) -> Batches:
        """Yield batches of rows as columns. Raises TableError for a damaged file."""
        positions = [header.index(name) for name in names]
        rows = islice(_csv_rows(path), 1, None)
        # A row takes eight times the memory that it takes in other formats, because
        # its cells are Python objects.
        while batch := list(islice(rows, BATCH_ROWS // 8)):
            wrong_widths = set(map(len, batch)) - {len(header)}
            if wrong_widths:
                width = wrong_widths.pop()
                reason = f"a row has {width} cells, the header {len(header)}"
                raise _damaged_error(path, reason)
            # An empty cell is missing.
            yield [[row[position] or None for row in batch] for position in positions]

    return DataTable(tuple(header), read)


def _csv_rows(path: Path) -> Iterator[list[str]]:
    """Yield the rows of a CSV file, from the header on, without empty lines."""
    with _report_damage(path), path.open(encoding="utf-8-sig", newline="") as file:
        yield from filter(None, csv.reader(file, strict=True))


def _open_parquet(path: Path) -> DataTable:
    """Open a Parquet file; its columns are read one batch of rows at a time."""
    parquet = load_package("pyarrow.parquet", "reading Parquet")

    def read(names: Sequence[str]) -> Batches:
        """Yield batches of rows as columns. Raises TableError for a damaged file."""
        with (
            _report_damage(path),
            parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file,
        ):
            batches = file.iter_batches(
                BATCH_ROWS, columns=list(names), use_threads=False
            )
            for batch in batches:
                yield [_arrow_cells(batch.column(name)) for name in names]

    with parquet.ParquetFile(path) as file:
        return DataTable(tuple(file.schema_arrow.names), read)


def _arrow_cells(column: Any) -> Cells:
    """Return the cells of a column of pyarrow, as an array if they are all numbers."""
    from pyarrow import types

    # Missing cells are NaN in an array of floats; whole numbers have no NaN.
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
        # `float` also reads "1_000" and digits of other scripts.
        may_be_number = "_" not in cell and cell.isascii()
    else:
        is_truth_value = type(cell).__name__ in ("bool", "bool_")  # of Python, of numpy
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
    """Return the cells of a column as floats, and what is wrong with them.

    The results are the floats, the number of wrong cells (cells that are not numbers),
    and the first wrong cell or None. Missing and wrong cells are NaN among the floats.
    """
    import numpy as np

    if isinstance(cells, np.ndarray):
        return cells.astype(np.float64), 0, None

    plain_floats = _plain_floats(cells)
    if plain_floats is not None:
        return plain_floats, 0, None

    numbers = list(map(to_number, cells))
    floats = np.array(numbers, dtype=float)  # None becomes NaN
    wrong_cells = [
        cell for cell, number in zip(cells, numbers, strict=True) if number is None
    ]
    first_wrong = wrong_cells[0] if wrong_cells else None
    return floats, len(wrong_cells), first_wrong


def _plain_floats(cells: Sequence[Any]) -> "Floats | None":
    """Return the cells as floats, fast; None if `to_number` has to read each cell.

    It has to if a cell is neither None nor a text or number that `float` reads the same
    way.
    """
    import numpy as np

    cell_types = set(map(type, cells))
    if not cell_types <= {float, int, str, NoneType}:
        return None

    if NoneType in cell_types:
        cells = [nan if cell is None else cell for cell in cells]
    if str in cell_types:
        joined = "".join(map(str, cells))
        if not joined.isascii() or "_" in joined:
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
        return cell.strip().casefold() in MISSING_CELL_WORDS

    if isinstance(cell, Decimal):
        return cell.is_nan()

    if type(cell).__name__ in ("NAType", "NaTType"):  # of pandas
        return True
    # NaN differs from itself. The comparison is read as text, because that of an array
    # has no truth value.
    return str(cell != cell) == "True"

"""Checks of tables: cells, ranges, schemas, keys, results files, and predictions.

A `source` is a path (CSV, Parquet, JSON, JSON lines; relative to the working directory), data (a
data frame, a mapping of columns, a list of rows, arrays), a callable `(candidate, state)` that
returns either, or None for the candidate itself. Files are read in batches, so memory does not grow
with them. No check is `pure`, because it reads more than the candidate.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import partial
from math import isfinite, nan
from os import PathLike
from os.path import isfile
from pathlib import Path
from typing import Any, ClassVar

from heedful.checks import tables
from heedful.checks.comparison import (
    JUDGES,
    Limits,
    Moments,
    cell_findings,
    compare_columns,
    not_judged,
    too_few,
)
from heedful.checks.evaluate import Context
from heedful.checks.tables import RESULTS, Cells, Numbers, Table, TableError, report
from heedful.checks.text import require, shorten
from heedful.errors import InvalidInput
from heedful.loop.record import Finding, Level

When = float | str | PathLike[str] | None
"""What a file must be newer than: a time in seconds since 1970, a file, or the loop (None)."""
Judge = Callable[[Any, Any, Context], Iterator[Finding]]
"""Reads the data located for a candidate in a context."""
MOST = 10
"""The number of broken rules of a pandera schema that are reported one by one."""
TICK = 0.05
"""Seconds by which a file system's clock may be behind, because its ticks are coarse."""


@dataclass(frozen=True, slots=True)
class TableCheck:
    """A check that locates its source and lets `judge` read it.

    `names` are the check names of its findings. A source that cannot be read is reported under
    `unreadable`.
    """

    name: str
    source: Any
    judge: Judge = field(repr=False)
    names: tuple[str, ...]
    unreadable: str
    pure: ClassVar[bool] = False

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        return list(self._findings(candidate, context))

    def _findings(self, candidate: Any, context: Context) -> Iterator[Finding]:
        try:
            data = tables.locate(self.source, candidate, context)
            yield from self.judge(data, candidate, context)
        except TableError as error:
            yield error.finding(self.unreadable)


def _no_rows() -> Finding:
    what, fix = "the results have no rows", "write the results"
    return report(RESULTS, "empty", what, fix, severity=0.9)


def column_names(argument: str, columns: Any) -> tuple[str, ...]:
    """Return column names as a tuple; a text is one name. Raises InvalidInput."""
    columns = (columns,) if isinstance(columns, str) else columns
    fine = isinstance(columns, Sequence | Mapping) and all(
        isinstance(name, str) and name for name in columns
    )
    require(fine, argument, columns, "names of columns")
    return tuple(dict.fromkeys(columns))


# Cells of each column


@dataclass(frozen=True, slots=True)
class Field:
    """What a column holds: cells of a `type` from `low` to `high`.

    A `required` column must be there; cells of a `nullable` one may be missing.
    """

    type: str = "number"
    low: float | None = None
    high: float | None = None
    required: bool = True
    nullable: bool = False


@dataclass(slots=True)
class Column:
    """Running statistics of one column, with the number of cells `below` and `above` its bounds."""

    name: str
    rule: Field
    moments: Moments = field(default_factory=Moments)
    below: int = 0
    above: int = 0

    def add(self, cells: Cells) -> None:
        """Add a batch."""
        numbers = TYPES[self.rule.type][1](cells)
        self.moments.add(*numbers)
        low, high = self.rule.low, self.rule.high
        self.below += 0 if low is None else int((numbers.values < low).sum())
        self.above += 0 if high is None else int((numbers.values > high).sum())

    def findings(self, check: str) -> Iterator[Finding]:
        """Report cells of another kind, missing ones, and values out of bounds."""
        name, column, kind = self.name, self.moments, TYPES[self.rule.type][0]
        missing: Level | None = None if self.rule.nullable else "error"
        yield from cell_findings(
            name, column, missing, kind, "schema" if check == "schema" else "finite"
        )
        if not column.n and not (self.rule.nullable and column.rows):
            what = f"{name} has no {kind} in {column.rows} rows"
            yield report(check, f"{name} empty", what, f"write {kind} in {name}")
        low, high = self.rule.low, self.rule.high
        if low is None or high is None:
            within = f"at most {_exact(high)}" if low is None else f"at least {_exact(low)}"
        else:
            within = f"within {_exact(low)} to {_exact(high)}"
        for side, count, bound, most, extreme in (
            ("below", self.below, low, "lowest", column.low),
            ("above", self.above, high, "highest", column.high),
        ):
            if count:
                what = f"{name} has {count} of {column.rows} values {side} {_exact(bound)}"
                what += f"; the {most} is {_exact(extreme)}" if isfinite(extreme) else ""
                fix = f"keep {name} {within}: correct the rows or how they are made"
                yield report(check, f"{name} {side}", what, fix)


def _exact(value: float | None) -> str:
    """Write a number with all its digits."""
    return "" if value is None else repr(float(value)).removesuffix(".0")


def _whole_numbers(cells: Cells) -> Numbers:
    import numpy as np

    values, wrong, example = tables.to_numbers(cells)
    fraction = np.isfinite(values) & (np.floor(values) != values)
    if not fraction.any():
        return Numbers(values, wrong, example)
    example = example if wrong else float(values[fraction][0])
    return Numbers(np.where(fraction, nan, values), wrong + int(fraction.sum()), example)


def _cells_that(fit: Callable[[Any], bool]) -> Callable[[Cells], Numbers]:
    """Return a reader that gives 0 for a cell that fits, and NaN for any other."""

    def read(cells: Cells) -> Numbers:
        import numpy as np

        there = [None if tables.is_missing(cell) else cell for cell in tables.to_list(cells)]
        fits = [cell is not None and fit(cell) for cell in there]
        wrong = [c for c, ok in zip(there, fits, strict=True) if c is not None and not ok]
        return Numbers(np.where(fits, 0.0, nan), len(wrong), wrong[0] if wrong else None)

    return read


def _is_date(cell: Any) -> bool:
    if not isinstance(cell, str):
        return isinstance(cell, date) or hasattr(cell, "to_pydatetime")
    try:
        datetime.fromisoformat(cell.strip())
    except ValueError:
        return False
    return True


TYPES: Mapping[str, tuple[str, Callable[[Cells], Numbers]]] = {
    "number": ("numbers", tables.to_numbers),
    "integer": ("whole numbers", _whole_numbers),
    "text": ("texts", _cells_that(lambda cell: isinstance(cell, str))),
    "boolean": ("truth values", _cells_that(lambda c: str(c).strip().lower() in ("true", "false"))),
    "date": ("dates", _cells_that(_is_date)),
}
"""Each type of a schema: what its cells are called, and how they are read."""


def _judge_columns(name: str, fields: Mapping[str, Field], data: Any, *_: Any) -> Iterator[Finding]:
    table = tables.open_table(data, tuple(fields))
    wanted = fields or dict.fromkeys(table.columns, Field())
    missing = [column for column in wanted if column not in table.columns]
    columns = [Column(column, rule) for column, rule in wanted.items() if column not in missing]
    for batch in table.batches([column.name for column in columns]):
        for column, cells in zip(columns, batch, strict=True):
            column.add(cells)
    if not fields:  # without names, a column of text need not hold numbers
        columns = [c for c in columns if c.moments.n or not c.moments.wrong]
        if not columns:
            what, fix = "there is no column of numbers", "write a column of numbers"
            yield report(name, "no numbers", what, fix)
    for absent in missing:
        if wanted[absent].required:
            yield table.missing_column(absent).finding(name)
    for column in columns:
        yield from column.findings(name)


def _columns(name: str, source: Any, fields: Mapping[str, Field]) -> TableCheck:
    return TableCheck(name, source, partial(_judge_columns, name, fields), (name,), name)


def finite(source: Any = None, columns: Sequence[str] = ()) -> TableCheck:
    """Check that every cell of these columns (default: all with numbers) is a finite number."""
    return _columns("finite", source, dict.fromkeys(column_names("columns", columns), Field()))


def ranges(
    source: Any = None, columns: Mapping[str, Sequence[float | None]] | None = None, **more: Any
) -> TableCheck:
    """Check that every value is within `(low, high)`, bounds included; None is an open end.

    `ranges("results.parquet", share=(0, 1), price=(0, None))`. Use the mapping for names that are
    no Python names, and for `source` and `columns`. Cells without a number are findings. Raises
    InvalidInput.
    """
    fine = isinstance(columns, Mapping | None) and (columns or more)
    require(bool(fine), "columns", columns, "one column or more with its (low, high)")
    pairs = {**(columns or {}), **more}
    return _columns(
        "ranges", source, {name: _field(name, {"range": pairs[name]}) for name in pairs}
    )


def schema(source: Any = None, schema: Any = None) -> TableCheck:
    """Check that the columns are there and their cells fit a schema.

    `schema` is a schema or model of pandera for polars or pandas (the extra `heedful[schemas]`), or
    a mapping of columns to a type (number, integer, text, boolean, date), a `(low, high)`, or a
    mapping of `type`, `range`, `required` (true) and `nullable` (false). Types mean the same in
    every source: "7" is an integer. pandera reads a file in batches, so a rule about a whole column
    (unique) is applied to each batch. Raises InvalidInput, PackageMissing.
    """
    kind = schema if isinstance(schema, type) else type(schema)
    if any(base.__module__.partition(".")[0] == "pandera" for base in kind.__mro__):
        return TableCheck("schema", source, partial(_validate, schema), ("schema",), "schema")
    fine = isinstance(schema, Mapping) and schema
    require(bool(fine), "schema", schema, "a mapping of columns, or a schema of pandera")
    fields = {}
    for name, rule in schema.items():
        if isinstance(rule, str | list | tuple):
            rule = {"type" if isinstance(rule, str) else "range": rule}
        fields[str(name)] = _field(str(name), rule)
    return _columns("schema", source, fields)


def _field(name: str, rule: Any) -> Field:
    if not isinstance(rule, Mapping) or not {"type", "range", "required", "nullable"} >= set(rule):
        raise InvalidInput(f"schema of {name}", rule, "a type, (low, high), or a mapping of both")
    kind = rule.get("type", "number")
    require(kind in TYPES, f"type of {name}", kind, f"one of {', '.join(TYPES)}")
    for flag in ("required", "nullable"):
        fine = isinstance(rule.get(flag, True), bool)
        require(fine, f"{flag} of {name}", rule, "true or false")
    low = high = None
    if "range" in rule:
        require(kind in ("number", "integer"), f"range of {name}", rule, "that of a number")
        pair = rule["range"]
        fine = (
            isinstance(pair, list | tuple) and len(pair) == 2 and any(b is not None for b in pair)
        )
        fine = fine and all(b is None or (isinstance(b, int | float) and b == b) for b in pair)
        fine = fine and (None in pair or pair[0] <= pair[1])
        require(fine, f"range of {name}", pair, "(low, high), low <= high; None is an open end")
        low, high = pair
    return Field(kind, low, high, rule.get("required", True), rule.get("nullable", False))


# Schemas of pandera


def _validate(schema: Any, data: Any, *_: Any) -> Iterator[Finding]:
    """Report each broken rule, with the number of cells and the first of them."""
    schema = schema.to_schema() if hasattr(schema, "to_schema") else schema
    errors = tables.import_package("pandera.errors", "a schema of pandera")
    if isinstance(data, Path) and data.suffix.casefold() in (".csv", ".tsv"):
        schema = deepcopy(schema)
        schema.coerce = True  # all cells of a text file are text
    broken: dict[tuple[str, str], tuple[int, Any]] = {}
    rows = 0
    for frame in _frames(data, "polars" if "polars" in type(schema).__module__ else "pandas"):
        rows += len(frame)
        try:
            schema.validate(frame, lazy=True)
        except errors.SchemaErrors as error:
            cases = error.failure_cases
            for case in (
                cases.to_dicts() if hasattr(cases, "to_dicts") else cases.to_dict("records")
            ):
                rule = str(case["column"] or ""), str(case["check"])
                count, first = broken.get(rule, (0, case["failure_case"]))
                broken[rule] = count + 1, first
    if not rows:
        yield _no_rows()
    for (column, name), (count, first) in list(broken.items())[:MOST]:
        where = f"{column}: " if column else ""
        what = f"{where}{count} times in {rows} rows not {name}, first {shorten(str(first), 120)}"
        fix = f"make {column or 'the data'} meet {name}"
        yield report("schema", f"{where}{name}", what, fix)
    if len(broken) > MOST:
        what = f"{len(broken) - MOST} more rules of the schema are broken"
        yield Finding("schema", what, level="note", key="schema: more rules")


def _frames(data: Any, library: str) -> Iterator[Any]:
    """Yield data frames of the library that the schema is for."""
    frames = tables.import_package(library, f"a schema of pandera for {library}")
    if isinstance(data, frames.DataFrame):
        yield data
        return
    table = tables.open_table(data)
    for batch in table.batches(table.columns):
        columns = dict(zip(table.columns, batch, strict=True))
        for name, cells in columns.items():
            if hasattr(cells, "to_pylist"):  # pyarrow keeps the type of cells that may be missing
                columns[name] = cells.to_pandas() if library == "pandas" else frames.Series(cells)
        yield frames.DataFrame(columns)


# Rows and their keys

_COUNT = """
create table uneven as
select min(rowid) as first, key, sum(here) as here, sum(1 - here) as wanted
from keys group by key having sum(here) != 1 or sum(1 - here) != ?
"""
"""SQLite sorts the keys in a temporary file: memory does not grow with their number."""
_UNEVEN: tuple[tuple[str, str, str, str], ...] = (
    ("twice", "max(here - 1, 0)", "have the same {} as one before", "write every row once"),
    ("missing", "here = 0", "are missing, by {}", "write a row for each"),
    ("extra", "wanted = 0", "are not wanted, by {}", "leave these rows out"),
)
"""Kinds of keys, how often a key counts as one, what is wrong with them, and the fix."""


def _judge_rows(
    key: Sequence[str], same_as: Any, data: Any, candidate: Any, context: Context
) -> Iterator[Finding]:
    table, other = tables.open_table(data, key), None
    if same_as is not None:
        other = tables.open_table(tables.locate(same_as, candidate, context), key)
    if key:
        with closing(sqlite3.connect("", isolation_level=None)) as database:
            yield from _judge_keys(database, key, table, other)
    elif other and (here := table.count_rows()) != (there := other.count_rows()):
        fix = f"write {there} rows, one for each that is wanted"
        yield report("rows", "count", f"there are {here} rows, {there} are wanted", fix)


def _judge_keys(
    database: sqlite3.Connection, key: Sequence[str], table: Table, other: Table | None
) -> Iterator[Finding]:
    by = " and ".join(key)
    database.execute("pragma journal_mode = off")
    database.execute("pragma cache_size = -16000")
    database.execute("create table keys (key blob, here integer)")
    rows, absent = _load(database, key, table, 1)
    wanted, _ = _load(database, key, other, 0) if other else (0, 0)
    if not rows:
        yield _no_rows()
        return
    if absent:
        what = f"{absent} of {rows} rows have no {by}"
        yield report("rows", "no key", what, f"write {by} in every row")
    database.execute(_COUNT, [int(other is not None)])
    for kind, amount, what, fix in _UNEVEN if other else _UNEVEN[:1]:
        if count := _total(database, amount):
            all_rows = f"{wanted} wanted" if kind == "missing" else f"{rows}"
            what = f"{count} of {all_rows} rows {what.format(by)}"
            yield report("rows", kind, f"{what}, such as {_examples(database, amount)}", fix)
    if count := _total(database, "max(wanted - 1, 0)"):
        what = f"{count} of {wanted} wanted rows have the same {by} as one before"
        fix = "compare with rows that have keys of their own"
        yield report("rows", "wanted", what, fix, "warning")


def _load(
    database: sqlite3.Connection, key: Sequence[str], table: Table, here: int
) -> tuple[int, int]:
    """Insert the keys of all rows; return the number of rows and of those without a key."""
    rows = absent = 0
    database.execute("begin")
    for batch in table.batches(key):
        cells = zip(*(map(tables.to_key, tables.to_list(column)) for column in batch), strict=True)
        keys = ["\0".join(row) if any(row) else "" for row in cells]
        known = [(text.encode("utf-8", "surrogatepass"), here) for text in keys if text]
        database.executemany("insert into keys values (?, ?)", known)
        rows += len(keys)
        absent += len(keys) - len(known)
    database.execute("commit")
    return rows, absent


def _total(database: sqlite3.Connection, amount: str) -> int:
    return int(database.execute(f"select total({amount}) from uneven").fetchone()[0])


def _examples(database: sqlite3.Connection, amount: str) -> str:
    """Return the first three keys, in the order of their source."""
    found = database.execute(f"select key from uneven where {amount} > 0 order by first limit 3")
    keys = [key.decode("utf-8", "surrogatepass").replace("\0", ", ") for (key,) in found]
    return "; ".join(map(shorten, keys))


def rows(source: Any = None, key: str | Sequence[str] = (), same_as: Any = None) -> TableCheck:
    """Check that every row has its own key, and the same keys as `same_as`, in any order.

    `key` names the columns that tell rows apart; without it only the rows are counted. `same_as` is
    another source. 7, 7.0 and "7" are one key, and so are a date and its midnight. Raises
    InvalidInput without `key` and `same_as`.
    """
    names = column_names("key", key)
    require(bool(names) or same_as is not None, "key", key, "given where there is no same_as")
    return TableCheck("rows", source, partial(_judge_rows, names, same_as), ("rows",), "rows")


# Results files


def valid_age(newer_than: When) -> When:
    """Return `newer_than` if it can be compared with a file's time. Raises InvalidInput."""
    fine = newer_than is None or isinstance(newer_than, str | PathLike)
    if isinstance(newer_than, int | float) and not isinstance(newer_than, bool):
        fine = 0 <= newer_than < 2.5e11  # the year 9892: dates end soon after
    require(fine, "newer_than", newer_than, "seconds since 1970, a path or None")
    return newer_than


def check_age(path: Path, newer_than: When, context: Context) -> list[Finding]:
    """Report a file older than `newer_than`; None means older than the loop or stage."""
    if not isfile(path):
        return []
    since = context.began if newer_than is None else newer_than
    name = "its stage, which began then" if newer_than is None else "allowed"
    if isinstance(since, str | PathLike):
        other = Path(since)
        if not isfile(other):
            what = f"{other} is not there, which {path} was to be newer than"
            kind, fix = "nothing to be newer than", f"write {other}"
            return [report(RESULTS, kind, what, fix, severity=0.8)]
        since, name = other.stat().st_mtime, str(other)
    written = path.stat().st_mtime
    if written >= since - TICK:
        return []
    when, then = (
        datetime.fromtimestamp(t, UTC).isoformat(" ", "milliseconds") for t in (written, since)
    )
    what = f"results file {path} is stale: written {when}, older than {name} ({then})"
    fix = "write the results again, to this path"
    return [report(RESULTS, "stale", what, fix, severity=0.5)]


def _judge_results(
    least: int, newer_than: When, columns: Sequence[str], path: Any, _: Any, context: Context
) -> Iterator[Finding]:
    if not isinstance(path, Path):
        what = f"there is no path to a results file, but {shorten(path)}"
        yield report(RESULTS, "no path", what, "save the results and say where", severity=0.5)
        return
    yield from check_age(path, newer_than, context)
    known = path.suffix.casefold() in tables.SUFFIXES
    if not (known or columns or least > 1) and isfile(path) and path.stat().st_size:
        return  # nothing else can be checked in a file of another format
    table = tables.open_table(path)
    missing = [name for name in columns if name not in table.columns]
    if missing:
        there = ", ".join(table.columns[:20])
        what = f"results file {path} lacks {', '.join(missing)}; it has {there}"
        fix = f"save the columns {', '.join(columns)}"
        yield report(RESULTS, "columns", what, fix, severity=0.9)
    elif (rows := table.count_rows(columns)) < least:
        what = f"results file {path} has {rows} rows, at least {least} asked for"
        yield report(RESULTS, "rows", what, "save all rows", severity=0.9)


def results(
    path: str | PathLike[str] | Callable[[Any, Any], Any],
    at_least_rows: int = 1,
    newer_than: When = None,
    columns: Sequence[str] = (),
) -> TableCheck:
    """Check that the results file exists, is new and readable, and has these columns and rows.

    `path` may be a callable `(candidate, state)` that returns it. A file is stale if it is older
    than `newer_than`: a time in seconds since 1970, another file, or (None) the start of the loop
    or stage. CSV, Parquet and JSON are read to the end of `columns` (default: the first column);
    of other formats only presence, size and age are checked. Raises InvalidInput.
    """
    fine = isinstance(path, str | PathLike) or callable(path)
    require(fine, "path", path, "a path or a callable (candidate, state) -> path")
    least = type(at_least_rows) is int and at_least_rows >= 0
    require(least, "at_least_rows", at_least_rows, "a whole number of at least 0")
    judge = partial(
        _judge_results, at_least_rows, valid_age(newer_than), column_names("columns", columns)
    )
    return TableCheck("results", path, judge, (RESULTS,), RESULTS)


# Predictions


def _judge_predictions(
    columns: Sequence[str],
    judges: Sequence[str],
    limits: Limits,
    newer_than: When,
    data: Any,
    _: Any,
    context: Context,
) -> Iterator[Finding]:
    age = check_age(data, newer_than, context) if isinstance(data, Path) else []
    yield from age
    read = compare_columns(data, *columns)
    # A row without an actual value may lie in the future: it is allowed, but not judged.
    findings = [*cell_findings(columns[0], read.all_actual, missing="warning")]
    findings += cell_findings(columns[1], read.all_predicted)
    if few := too_few(read):
        judges = ()
        findings.append(few)
    for judge in judges:
        # After an error it says little that predictions are no better than the mean.
        if judge != "skill" or not any(f.level == "error" for f in (*age, *findings)):
            findings += JUDGES[judge][0](read, limits)
    yield from findings
    for judge in ("leakage", "skill"):
        if judge in judges:
            yield from not_judged(read, judge)


def predictions(
    source: Any = None,
    actual: str = "actual",
    predicted: str = "predicted",
    *,
    deviation_sigma: float = 10.0,
    spread_ratio_min: float = 0.1,
    spread_ratio_max: float = 5.0,
    constant_relative_std: float = 0.01,
    believable: float = 0.9999,
    features: Sequence[str] = (),
    newer_than: When = None,
) -> TableCheck:
    """Check that predictions exist, vary like the actual values around the same mean, and are new.

    Findings are called `missing_results` (no file, no rows, an old file), `hallucination_detection`
    (the means are more than `deviation_sigma` standard deviations of the actual apart),
    `variance_hallucination` (the standard deviation is not within `spread_ratio_min` to `_max`
    times the actual's), `constant_predictions` (it is below `constant_relative_std` of the
    actual's, or of the mean while the actual varies more), `leakage` (they equal the actual or one
    of the columns `features`, or explain more than the share `believable`), `finite`, and, as
    warnings, `skill` and `shuffled`. Standard deviations are of the sample (ddof = 1), over the
    rows that have both values. `newer_than` works as in `results`. Raises InvalidInput.
    """
    limits = Limits(
        deviation_sigma, spread_ratio_min, spread_ratio_max, constant_relative_std, believable
    )
    return _make("predictions", source, actual, predicted, limits, features, newer_than)


def deviation(
    source: Any = None, actual: str = "actual", predicted: str = "predicted", sigma: float = 10.0
) -> TableCheck:
    """Check that the means are at most `sigma` standard deviations of the actual apart."""
    return _make("deviation", source, actual, predicted, Limits(deviation_sigma=sigma))


def spread(
    source: Any = None,
    actual: str = "actual",
    predicted: str = "predicted",
    ratio_min: float = 0.1,
    ratio_max: float = 5.0,
) -> TableCheck:
    """Check that the standard deviation is `ratio_min` to `ratio_max` times the actual's."""
    limits = Limits(spread_ratio_min=ratio_min, spread_ratio_max=ratio_max)
    return _make("spread", source, actual, predicted, limits)


def constant(
    source: Any = None,
    actual: str = "actual",
    predicted: str = "predicted",
    relative_std: float = 0.01,
) -> TableCheck:
    """Check that the standard deviation is at least this share of the actual's, and of the mean.

    Predictions near a large mean are not constant if the actual values vary as little.
    """
    return _make("constant", source, actual, predicted, Limits(constant_relative_std=relative_std))


def skill(source: Any = None, actual: str = "actual", predicted: str = "predicted") -> TableCheck:
    """Warn if predictions are no better than the mean or the value of the row before."""
    return _make("skill", source, actual, predicted)


def leakage(
    source: Any = None,
    actual: str = "actual",
    predicted: str = "predicted",
    features: Sequence[str] = (),
    believable: float = 0.9999,
) -> TableCheck:
    """Check that predictions are no copy of the actual or a feature, and not too good."""
    return _make("leakage", source, actual, predicted, Limits(believable=believable), features)


def _make(
    name: str,
    source: Any,
    actual: str,
    predicted: str,
    limits: Limits = Limits(),
    features: Sequence[str] = (),
    newer_than: When = None,
) -> TableCheck:
    for argument, column in (("actual", actual), ("predicted", predicted)):
        require(isinstance(column, str) and column != "", argument, column, "the name of a column")
    require(actual != predicted, "predicted", predicted, "another column than actual")
    more = column_names("features", features)
    others = not {actual, predicted}.intersection(more)
    require(others, "features", features, "other columns than actual and predicted")
    judges = tuple(JUDGES) if name == "predictions" else (name,)
    names = ("finite", *(check for judge in judges if (check := JUDGES[judge][1])))
    columns = (actual, predicted, *more)
    judge = partial(_judge_predictions, columns, judges, limits, valid_age(newer_than))
    return TableCheck(name, source, judge, names, name)

"""Checks of tables: cells, ranges, keys, results files, and predictions.

A `source` is a path (CSV, Parquet, JSON), data (a data frame, a mapping of columns, a
list of rows, arrays), a callable `(candidate, state)` that returns a path or data, or
None for the candidate itself. CSV and Parquet are read in batches, so memory does not
grow with the size of the file. No check here is `pure`, because it reads more than the
candidate.
"""

import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from math import inf, sqrt
from os import PathLike
from os.path import isfile
from pathlib import Path
from typing import Any, ClassVar

from heedful.checks import tables
from heedful.checks.evaluate import Context
from heedful.checks.tables import MISSING_TABLE_CHECK, TableError, report
from heedful.checks.text import shorten
from heedful.loop.record import Finding, Level
from heedful.validation import check_integer, check_number, require

__all__ = ["TableCheck", "finite", "predictions", "ranges", "results", "rows"]

# values beyond ± this count as infinite, because sums of their squares overflow
MAX_FINITE_VALUE = 1e150
ROUNDING_SHARE = (
    1e-9  # a value passes if it exceeds a bound by less than this share of the bound
)
MAX_FILE_TIME_SECONDS = (
    2.5e11  # seconds since 1970: the year 9892; dates end soon after
)
# seconds by which the clock of a file system may be late: its ticks are coarse
CLOCK_LAG_SECONDS = 0.05
MIN_SKILL_ROWS = 10  # the least number of rows for the findings `leakage` and `skill`
MIN_SHUFFLE_ROWS = 30  # the least number of rows for the finding `shuffled`

Judge = Callable[[Any, Context], Iterator[Finding]]  # yields findings about data


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCheck:
    """A check that opens its `source` and passes the data to `judge`.

    The findings are reported under the check names in `names`. A source that cannot be
    read is reported under the only name in `names`, or under `name` if there are
    several.
    """

    name: str
    source: Any
    judge: Judge = field(repr=False)
    names: tuple[str, ...]
    pure: ClassVar[bool] = False

    def check_packages(self) -> None:
        """Raise PackageMissing if a package is missing to read the data that may
        come.
        """
        path = (
            str(self.source).lower() if isinstance(self.source, str | PathLike) else ""
        )
        if path.endswith((".parquet", ".pq")):
            tables.load_package("pyarrow.parquet", "reading Parquet")
        for name in ("pandas", "polars", "pyarrow") if not path else ():
            if name in sys.modules:  # the program makes data frames
                tables.load_package("narwhals", f"checking data frames of {name}")

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        findings: list[Finding] = []
        try:
            findings += self.judge(
                tables.locate(self.source, candidate, context), context
            )
        except TableError as error:
            check = error.check or (
                self.names[0] if len(self.names) == 1 else self.name
            )
            findings.append(
                report(check, error.kind, error.what, error.fix, severity=0.9)
            )
        return findings


def _names(argument: str, columns: Any) -> tuple[str, ...]:
    """Return `columns`, one name or several, as a tuple without repeats. Raises
    InvalidInput.
    """
    columns = (columns,) if isinstance(columns, str) else columns
    fine = isinstance(columns, Sequence) and all(
        isinstance(c, str) and c for c in columns
    )
    require(fine, argument, columns, "names of columns")
    return tuple(dict.fromkeys(columns))


@dataclass(slots=True, kw_only=True)
class Column:
    """Statistics of one column, updated batch by batch.

    The `n` finite values lie from `least` to `most`; `outside` counts the values,
    infinite ones too, that are not from `low` to `high`. `wrong` counts the cells that
    are not numbers; `example` is the first of them. `missing` counts missing and wrong
    cells. `total` and `squares` are the sums of the distances of the values from
    `origin`, the mean of the first batch, and of the squares of these distances: so no
    digits are lost in large numbers that are close to each other.
    """

    name: str
    low: float = -inf
    high: float = inf
    n: int = 0
    origin: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    least: float = inf
    most: float = -inf
    outside: int = 0
    missing: int = 0
    infinite: int = 0
    wrong: int = 0
    example: object = None

    def add(
        self, values: "tables.Floats", wrong: int = 0, example: object = None
    ) -> None:
        """Add a batch of values, NaN for missing or wrong cells; `example` is a wrong
        cell.
        """
        import numpy as np

        finite = values[np.abs(values) <= MAX_FINITE_VALUE]
        missing = int(np.isnan(values).sum())
        self.missing += missing
        self.infinite += len(values) - missing - len(finite)
        self.example = self.example if self.wrong else example
        self.wrong += wrong
        self.outside += int(((values < self.low) | (values > self.high)).sum())
        if len(finite):
            self.origin = self.origin if self.n else float(finite.mean())
            away = finite - self.origin
            self.total += float(away.sum())
            self.squares += float((away * away).sum())
            self.least = min(self.least, float(finite.min()))
            self.most = max(self.most, float(finite.max()))
            self.n += len(finite)

    @property
    def rows(self) -> int:
        """The number of cells that were added."""
        return self.n + self.missing + self.infinite

    @property
    def mean(self) -> float:
        """The mean of the finite values; 0 without values."""
        return self.origin + self.total / self.n if self.n else 0.0

    @property
    def std(self) -> float:
        """The sample standard deviation (ddof = 1); 0 for equal values or fewer than
        two values.
        """
        if self.n < 2 or self.least == self.most:
            return 0.0
        return sqrt(max(0.0, self.squares - self.total**2 / self.n) / (self.n - 1))

    def unusable(self, missing: Level = "error") -> Iterator[Finding]:
        """Yield findings for wrong and infinite cells, and for missing cells (level
        `missing`).
        """
        fix = f"write finite numbers in {self.name} for every row, or leave the row out"
        wrong = f"that are no numbers, first {shorten(self.example)}"
        kinds: tuple[tuple[int, str, str, Level], ...] = (
            (self.wrong, wrong, "no numbers", "error"),
            (self.missing - self.wrong, "that are NaN or missing", "missing", missing),
            (self.infinite, "that are infinite or beyond ±1e150", "infinite", "error"),
        )
        for count, what, key, level in kinds:
            if count:
                what = f"{self.name} has {count} of {self.rows} cells {what}"
                yield report(
                    "finite", kind=f"{self.name} {key}", what=what, fix=fix, level=level
                )

    def findings(self, check: str) -> Iterator[Finding]:
        """Yield findings for unusable cells, an empty column, and values out of
        bounds.
        """
        name = self.name
        low = _exact(self.low)
        high = _exact(self.high)
        yield from self.unusable()
        if not self.n:
            what = f"{name} has no numbers in {self.rows} rows"
            yield report(check, f"{name} empty", what, f"write numbers in {name}")
        if self.outside:
            what = (
                f"{name} has {self.outside} of {self.rows} values outside {low} to "
                f"{high}; "
            )
            what += (
                f"its finite values lie from {_exact(self.least)} to "
                f"{_exact(self.most)}"
            )
            fix = (
                f"keep {name} from {low} to {high}: correct the rows or how they are "
                "made"
            )
            yield report(check, f"{name} outside", what, fix)


def _exact(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def short(value: float) -> str:
    """Return a number as text with six significant digits, or as a whole number from a
    million on.

    >>> short(1234567.89), short(0.1 + 0.2), short(1e300)
    ('1234568', '0.3', '1e+300')
    """
    return f"{value:.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"


def _check_columns(
    name: str, source: Any, bounds: Mapping[str, tuple[float, float]]
) -> TableCheck:
    """Make a check of the columns in `bounds`, or of all columns with numbers if it is
    empty.
    """

    def judge(data: Any, _: Context) -> Iterator[Finding]:
        table = tables.open_table(data, tuple(bounds))
        wanted = bounds or dict.fromkeys(table.columns, (-inf, inf))
        columns = [
            Column(name=column, low=low, high=high)
            for column, (low, high) in wanted.items()
        ]
        for batch in table.batches(tuple(wanted)) if wanted else ():
            for column, cells in zip(columns, batch, strict=True):
                column.add(*tables.to_numbers(cells))
        if not bounds:  # then columns of text are left out
            columns = [c for c in columns if c.n or not c.wrong]
        if not columns:
            what = "there is no column of numbers"
            fix = "write a column of numbers"
            yield report(name, "no numbers", what, fix)
        for column in columns:
            yield from column.findings(name)

    return TableCheck(name=name, source=source, judge=judge, names=(name,))


def finite(source: Any = None, columns: Sequence[str] = ()) -> TableCheck:
    """Check that `columns` (default: all columns with numbers) have only finite
    numbers.
    """
    return _check_columns(
        "finite", source, dict.fromkeys(_names("columns", columns), (-inf, inf))
    )


def ranges(source: Any = None, **columns: Sequence[float | None]) -> TableCheck:
    """Check that each column has only numbers from `low` to `high`; None is no bound.

    The name of an argument is that of its column: `ranges("results.parquet", share=(0,
    1), price=(0, None))`. Raises InvalidInput.
    """
    require(
        bool(columns),
        "columns",
        value=None,
        allowed="one column or more with its (low, high)",
    )
    allowed = "(low, high) of numbers, low <= high; None is an open end"
    bounds = {}
    for name, pair in columns.items():
        low, high = (
            pair if isinstance(pair, list | tuple) and len(pair) == 2 else (None, None)
        )
        ends = bounds[name] = (
            -inf if low is None else low,
            inf if high is None else high,
        )
        fine = all(isinstance(end, int | float) for end in ends) and ends[0] <= ends[1]
        require(fine and ends != (-inf, inf), f"range of {name}", pair, allowed)
    return _check_columns("ranges", source, bounds)


def _keys(data: Any, key: Sequence[str]) -> Iterator[bytes]:
    """Yield the key of each row, empty if all its cells are missing; the text "NA" is
    valid.
    """
    for batch in tables.open_table(data, key).batches(key):
        for cells in zip(*batch, strict=True):
            texts = [
                str(cell).strip()
                if isinstance(cell, str) or not tables.is_missing(cell)
                else ""
                for cell in cells
            ]
            yield "\0".join(texts if any(texts) else ()).encode(
                "utf-8", "surrogatepass"
            )


def _judge_keys(
    key: Sequence[str], same_as: Any, data: Any, context: Context
) -> Iterator[Finding]:
    """Yield findings for missing and repeated keys, and for keys that only one source
    has.

    SQLite stores the keys in a temporary file, so memory does not grow with their
    number.
    """
    by = " and ".join(key)
    with closing(sqlite3.connect("", isolation_level=None)) as database:
        database.execute(
            "create table keys (key blob primary key, own, wanted) without rowid"
        )
        database.execute("begin")
        add = "insert into keys values (?, {}) on conflict do update set {}"
        database.executemany(add.format("1, 0", "own = own + 1"), zip(_keys(data, key)))
        ((rows,),) = database.execute("select coalesce(sum(own), 0) from keys")
        if not rows:
            what = "the results have no rows"
            fix = "write the results"
            yield report(MISSING_TABLE_CHECK, "empty", what, fix, severity=0.9)
            return
        if same_as is not None:
            other = _keys(tables.locate(same_as, None, context), key)
            database.executemany(add.format("0, 1", "wanted = 1"), zip(other))
        part = f"of {rows} rows have"
        wanted = "wanted = 0" if same_as is not None else "false"
        for kind, count, where, what, fix in (
            ("no key", "own", "own", f"{part} no {by}", f"write {by} in every row"),
            (
                "twice",
                "own - 1",
                "own > 1",
                f"{part} the same {by} as one before",
                "write it once",
            ),
            (
                "missing",
                "1",
                "own = 0",
                f"wanted rows are missing by {by}",
                "write a row for each",
            ),
            (
                "unwanted",
                "1",
                wanted,
                f"rows are not wanted by {by}",
                "leave these rows out",
            ),
        ):
            select = (
                f"select sum({count}) over (), key from keys where {where} and key "
            )
            select += f"{'=' if kind == 'no key' else '>'} x'' order by key limit 3"
            if found := database.execute(select).fetchall():
                shown = (
                    k.decode("utf-8", "surrogatepass").replace("\0", ", ")
                    for _, k in found
                )
                examples = (
                    ", such as " + "; ".join(map(shorten, shown)) if found[0][1] else ""
                )
                yield report("rows", kind, f"{found[0][0]} {what}{examples}", fix)


def rows(
    source: Any = None, key: str | Sequence[str] = (), same_as: Any = None
) -> TableCheck:
    """Check that each row has a unique key and that the source `same_as` has the same
    keys.

    `key` names the column or columns that identify a row. Without `same_as` only this
    source is checked. The order of rows does not matter. Raises InvalidInput without
    `key`.
    """
    names = _names("key", key)
    require(bool(names), "key", key, "the columns that identify a row")
    return TableCheck(
        name="rows",
        source=source,
        judge=partial(_judge_keys, names, same_as),
        names=("rows",),
    )


def _check_age(
    path: Any, newer_than: float | None, context: Context
) -> Iterator[Finding]:
    """Yield a finding if a file is older than `newer_than` (None: the start of loop or
    stage).
    """
    since = context.began if newer_than is None else newer_than
    if (
        not isinstance(path, Path)
        or not isfile(path)
        or path.stat().st_mtime >= since - CLOCK_LAG_SECONDS
    ):
        return
    name = "its stage, which began then" if newer_than is None else "allowed"
    times = (
        datetime.fromtimestamp(seconds, UTC)
        for seconds in (path.stat().st_mtime, since)
    )
    when, then = (time.isoformat(" ", "milliseconds") for time in times)
    what = f"results file {path} is stale: written {when}, older than {name} ({then})"
    yield report(
        MISSING_TABLE_CHECK,
        "stale",
        what,
        "write the results again, to this path",
        severity=0.5,
    )


def results(
    path: str | PathLike[str] | Callable[[Any, Any], Any],
    at_least_rows: int = 1,
    newer_than: float | None = None,
    columns: Sequence[str] = (),
) -> TableCheck:
    """Check that a results file exists, is new and readable, and has enough rows and
    all `columns`.

    `path` may be a callable `(candidate, state)` that returns the path. The file must
    not be older than `newer_than` (seconds since 1970; None is the start of the loop or
    stage). In CSV, Parquet and JSON files all rows of `columns` (default: the first
    column) are read. In other formats only existence, size and age are checked. Raises
    InvalidInput.
    """
    fine = isinstance(path, str | PathLike) or callable(path)
    require(fine, "path", path, "a path or a callable (candidate, state) -> path")
    check_integer("at_least_rows", at_least_rows, least=0)
    check_number(
        "newer_than",
        0 if newer_than is None else newer_than,
        low=0,
        high=MAX_FILE_TIME_SECONDS,
    )
    names = _names("columns", columns)

    def judge(file: Any, context: Context) -> Iterator[Finding]:
        if not isinstance(file, Path):
            what = f"there is no path to a results file, but {shorten(file)}"
            yield report(
                MISSING_TABLE_CHECK,
                "no path",
                what,
                "save the results and say where",
                severity=0.5,
            )
            return
        yield from _check_age(file, newer_than, context)
        known = file.suffix.casefold() in tables.TABLE_SUFFIXES
        if (
            not (known or names or at_least_rows > 1)
            and isfile(file)
            and file.stat().st_size
        ):
            return  # nothing else can be checked in a file of another format
        table = tables.open_table(file)
        read = names or table.columns[:1]
        count = sum(len(batch[0]) for batch in table.batches(read)) if read else 0
        if count < at_least_rows:
            what = (
                f"results file {file} has {count} rows, at least {at_least_rows} "
                "asked for"
            )
            yield report(
                MISSING_TABLE_CHECK, "rows", what, "save all rows", severity=0.9
            )

    return TableCheck(
        name="results", source=path, judge=judge, names=(MISSING_TABLE_CHECK,)
    )


def _judge_shape(
    a: Column, p: Column, limits: Mapping[str, float]
) -> Iterator[Finding]:
    """Yield findings if predictions `p` are nearly constant, or unlike the actual
    values `a`.
    """
    least = limits["spread_ratio_min"]
    most = limits["spread_ratio_max"]
    sigma = limits["deviation_sigma"]
    apart = abs(p.mean - a.mean)
    # The mean of equal values may be wrong in its last digit.
    if apart > (sigma * a.std if a.std else 1e-12 * abs(a.mean)) * (1 + ROUNDING_SHARE):
        times = f"{apart / a.std:.4g}" if a.std else "infinitely many"
        what = (
            f"predictions appear hallucinated: the mean of {p.name} is "
            f"{short(p.mean)}, that "
        )
        what += (
            f"of {a.name} {short(a.mean)}, {times} standard deviations "
            f"({short(a.std)}) away; "
        )
        what += f"{short(sigma)} are allowed"
        fix = (
            "verify that the model uses the actual data and its scale, then retrain it"
        )
        yield report("hallucination_detection", p.name, what, fix, severity=0.9)
    ratio = p.std / a.std if a.std else least
    if not a.std:
        what = (
            f"all {a.n} values of {a.name} are {short(a.mean)}, its std is 0, that of "
            f"{p.name} "
        )
        what += f"{short(p.std)}: there is no ratio"
        fix = f"verify that {a.name} holds the actual data"
        level: Level = "error" if p.std else "warning"
        yield report(
            "variance_hallucination", kind="no spread", what=what, fix=fix, level=level
        )
    elif not least * (1 - ROUNDING_SHARE) <= ratio <= most * (1 + ROUNDING_SHARE):
        side = "low"
        hint = "the model has hardly learnt from its features"
        if ratio > most:
            side = "high"
            hint = "the model is unstable or its output on another scale"
        what = (
            f"unrealistic spread: the std of {p.name} is {short(p.std)}, that of "
            f"{a.name} "
        )
        what += (
            f"{short(a.std)}: std ratio {short(ratio)} (variance ratio "
            f"{short(ratio**2)}); "
        )
        what += f"allowed is {short(least)} to {short(most)}"
        fix = f"check for synthetic data, and whether {hint}; then retrain it"
        yield report("variance_hallucination", side, what, fix, severity=0.8)


def _judge_constant(
    a: Column, p: Column, limits: Mapping[str, float]
) -> Iterator[Finding]:
    """Yield a finding if predictions `p` hardly vary; `a` may have no values to compare
    with.
    """
    least = limits["spread_ratio_min"]
    relative = limits["constant_relative_std"]
    # Predictions with a large mean, such as 300 ± 2 kelvin, pass if the actual values
    # vary alike.
    like_actual = a.std and p.std >= least * (1 - ROUNDING_SHARE) * a.std
    by_mean = p.std < relative * (1 - ROUNDING_SHARE) * abs(p.mean) and not like_actual
    if not p.std or by_mean or p.std < relative * (1 - ROUNDING_SHARE) * a.std:
        others = f"the std of {a.name} is {short(a.std)}; " if a.n else ""
        what = (
            f"{p.name} is nearly constant: std {short(p.std)} around mean "
            f"{short(p.mean)} in "
        )
        what += f"{p.n} rows; {others}the least allowed is {short(relative)} of "
        what += "either" if a.n else "the mean"
        fix = "retrain with diverse data, and check that the features reach the model"
        yield report("constant_predictions", p.name, what, fix, severity=0.9)


@dataclass(slots=True, kw_only=True)
class Pairs:
    """Statistics of the rows with a number in every column, updated batch by batch.

    `every` are the columns with all of their rows. `joint` is the sum of the products
    of both values' distances from their `Column.origin`. `fractional` counts the actual
    values that are not whole numbers; `copied` counts the predictions that equal such a
    value exactly.
    """

    every: Sequence[Column]
    actual: Column
    predicted: Column
    joint: float = 0.0
    fractional: int = 0
    copied: int = 0

    def add(self, batch: Sequence[Any]) -> None:
        """Add a batch: the cells of each column."""
        import numpy as np

        cells = [tables.to_numbers(column) for column in batch]
        for column, numbers in zip(self.every, cells, strict=True):
            column.add(*numbers)
        both = np.all(
            [np.abs(values) <= MAX_FINITE_VALUE for values, *_ in cells], axis=0
        )
        a = cells[0][0][both]
        p = cells[-1][0][both]
        self.actual.add(a)
        self.predicted.add(p)
        self.joint += float(
            ((a - self.actual.origin) * (p - self.predicted.origin)).sum()
        )
        fractional = np.floor(a) != a
        self.fractional += int(fractional.sum())
        self.copied += int(((a == p) & fractional).sum())


def _judge_skill(pairs: Pairs) -> Iterator[Finding]:
    """Yield a warning if the rows seem shuffled, or if the mean is as good as the
    predictions.
    """
    a = pairs.actual
    p = pairs.predicted
    n = pairs.actual.n
    covariance = (pairs.joint - a.total * p.total / n) / (n - 1)  # of the sample
    r = covariance / (a.std * p.std) if p.std else 0.0
    close = a.std <= 2 * p.std <= 4 * a.std and 2 * abs(p.mean - a.mean) <= a.std
    if n >= MIN_SHUFFLE_ROWS and close and abs(r) < min(0.2, 3 / sqrt(n)):
        what = (
            f"{p.name} is spread like {a.name} (std ratio {short(p.std / a.std)}) but "
            "does not "
        )
        what += f"vary with it: correlation {r:.3f} in {n} rows"
        fix = (
            "check that rows were not shuffled or joined by position: align them by "
            "their key"
        )
        yield report(
            "shuffled", kind=p.name, what=what, fix=fix, level="warning", severity=0.5
        )
        return
    share = (n - 1) / n
    square = (p.std**2 + a.std**2 - 2 * covariance) * share + (p.mean - a.mean) ** 2
    error = sqrt(max(0.0, square))
    base = a.std * sqrt(share)
    if error >= base * (1 - ROUNDING_SHARE):
        what = (
            f"{p.name} is no better than the mean of all values: its root mean square "
            "error is "
        )
        what += f"{short(error)}, that of the mean {short(base)}"
        fix = (
            "compare with the mean before the model is trusted; add features or retrain"
        )
        yield report(
            "skill", kind=p.name, what=what, fix=fix, level="warning", severity=0.4
        )


def _judge_predictions(
    columns: Sequence[str], limits: Mapping[str, float], data: Any
) -> Iterator[Finding]:
    """Yield findings about the last of `columns`, compared with the first if there are
    two.
    """
    every = [Column(name=name) for name in columns]
    a = Column(name=columns[0])
    p = Column(name=columns[-1])
    pairs = Pairs(every=every, actual=a, predicted=p)
    table = tables.open_table(data, columns)
    for batch in table.batches(columns):
        pairs.add(batch)
    # A row without an actual value may be in the future: it is allowed, but not judged.
    for column in every:
        yield from column.unusable("error" if column is every[-1] else "warning")
    if p.n < 2:
        kind = ("one row" if p.n else "no pairs") if every[-1].rows else "empty"
        names = " and ".join(columns)
        what = (
            f"{p.n} of {every[-1].rows} rows have a number in {names}; two are needed"
        )
        fix = f"write the results of all rows, {names} as numbers"
        yield report(MISSING_TABLE_CHECK, kind, what, fix, severity=0.9)
    elif len(columns) == 1:
        yield from _judge_constant(Column(name=""), p, limits)
    else:
        findings = [*_judge_shape(a, p, limits), *_judge_constant(a, p, limits)]
        if pairs.fractional >= MIN_SKILL_ROWS and 2 * pairs.copied > pairs.fractional:
            what = (
                f"{p.name} equals {a.name} to the last digit in {pairs.copied} of "
                f"{a.n} rows"
            )
            fix = (
                f"check that {a.name}, or a column computed from it, is not among the "
                "features"
            )
            level: Level = "error" if pairs.copied == pairs.fractional else "warning"
            findings.append(
                report(
                    "leakage",
                    kind=p.name,
                    what=what,
                    fix=fix,
                    level=level,
                    severity=0.6,
                )
            )
        yield from findings
        # After an error it says little that predictions are no better than the mean.
        if (
            a.n >= MIN_SKILL_ROWS
            and a.std
            and all(finding.level != "error" for finding in findings)
        ):
            yield from _judge_skill(pairs)


def predictions(
    source: Any = None,
    actual: str | None = "actual",
    predicted: str = "predicted",
    *,
    deviation_sigma: float = 10.0,
    spread_ratio_min: float = 0.1,
    spread_ratio_max: float = 5.0,
    constant_relative_std: float = 0.01,
    newer_than: float | None = None,
) -> TableCheck:
    """Check that predictions exist, are new, and have a mean and a spread like the
    actual values.

    Findings are `missing_results` (no file, no rows, an old file),
    `hallucination_detection` (the means differ by more than `deviation_sigma` standard
    deviations of the actual values), `variance_hallucination` (the ratio of the
    standard deviations is not from `spread_ratio_min` to `spread_ratio_max`),
    `constant_predictions` (the standard deviation is below `constant_relative_std`
    times that of the actual values, or times the mean while the actual values vary
    more) and `finite`. From ten rows on there are also `leakage` (copies of the actual
    values) and the warnings `skill` (no better than the mean) and `shuffled` (rows seem
    to be in another order). Standard deviations are of the sample (ddof = 1), over the
    rows with both values; without such rows, or with `actual=None`, only
    `constant_predictions` (by the mean) and `finite` judge the predictions.
    `newer_than` works as in `results`. Raises InvalidInput.
    """
    columns = _names("actual", [] if actual is None else [actual])
    columns += _names("predicted", [predicted])
    require(actual != predicted, "predicted", predicted, "another column than actual")
    limits = {
        "deviation_sigma": deviation_sigma,
        "spread_ratio_min": spread_ratio_min,
        "spread_ratio_max": spread_ratio_max,
        "constant_relative_std": constant_relative_std,
    }
    for name, value in limits.items():
        check_number(name, value, low=0, high=1e300)
    allowed = f"at most spread_ratio_max, {spread_ratio_max:g}"
    require(
        spread_ratio_min <= spread_ratio_max,
        "spread_ratio_min",
        spread_ratio_min,
        allowed,
    )
    check_number(
        "newer_than",
        0 if newer_than is None else newer_than,
        low=0,
        high=MAX_FILE_TIME_SECONDS,
    )
    names = "finite constant_predictions"
    if actual is not None:
        names = (
            "finite hallucination_detection variance_hallucination "
            "constant_predictions leakage"
        )

    def judge(data: Any, context: Context) -> Iterator[Finding]:
        yield from _check_age(data, newer_than, context)
        yield from _judge_predictions(columns, limits, data)

    return TableCheck(
        name="predictions", source=source, judge=judge, names=tuple(names.split())
    )

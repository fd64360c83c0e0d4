"""Checks of tables: cells, ranges, keys, results files, and predictions.

Each factory (`finite`, `ranges`, `rows`, `results`, `predictions`) returns a
`TableCheck`, which opens its source and gives it to a judge. The numbers of a column
become statistics (`Column`) batch by batch, and rules compare the statistics.

A `source` is a path (CSV, Parquet, JSON), data (a data frame, a mapping of columns, a
list of rows, arrays), a callable `(candidate, state)` that returns a path or data, or
None for the candidate itself. CSV and Parquet are read in batches, so memory does not
grow with the size of the file. No check here is `pure`, because it reads more than the
candidate.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import partial
from heapq import nsmallest
from math import inf, sqrt
from os import PathLike
from os.path import isfile
from pathlib import Path
from typing import Any, ClassVar

from heedful.checks import tables
from heedful.checks.evaluate import Context, RemadeCheck, over_http, remade
from heedful.checks.tables import MISSING_TABLE_CHECK, TableError, table_finding
from heedful.errors import InvalidInput
from heedful.faults import shorten
from heedful.loop.finding_key import relative_distance
from heedful.loop.record import Finding, Level
from heedful.validation import MAX_SCORE, check_integer, check_number, require

# Values beyond ± this count as infinite, because sums of their squares overflow.
MAX_FINITE_VALUE = 1e150
# A value passes if it exceeds a bound by less than this share of the bound.
ROUNDING_SHARE = 1e-9
_LAST_SECOND = 2e11  # since 1970: a time in the year 8307, which has a date
MIN_COMPARED_ROWS = 10  # for `leakage` and a constant end

Judge = Callable[[Any, Context], Iterator[Finding]]  # yields findings about data


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCheck(RemadeCheck):
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

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        """Return the findings about the source; one that cannot be read is a finding.

        Findings that `judge` yielded before the error are kept.
        """
        findings: list[Finding] = []
        try:
            findings += self.judge(
                tables.locate(self.source, candidate, context), context
            )
        except TableError as error:
            check = error.check
            if not check:
                check = self.names[0] if len(self.names) == 1 else self.name

            findings.append(
                table_finding(check, error.kind, error.what, error.fix, severity=0.9)
            )

        return findings


def _column_names(argument: str, columns: Any) -> tuple[str, ...]:
    """Return `columns`, one name or several, as a tuple without repeats.

    `argument` is what an error calls them. Raises InvalidInput.
    """
    if isinstance(columns, str):
        columns = (columns,)
    are_names = isinstance(columns, Sequence) and all(
        isinstance(name, str) and name for name in columns
    )
    require(are_names, argument, columns, "names of columns")
    return tuple(dict.fromkeys(columns))


@dataclass(slots=True, kw_only=True)
class Column:
    """Statistics of one column, updated batch by batch.

    There are `n` finite values, from `least` to `most`. `outside` counts the values,
    infinite ones too, that are below `low` or above `high`. `wrong` counts the cells
    that are not numbers; `example` is the first of them. `missing` counts missing and
    wrong cells.

    `origin` is the mean of the first batch. `total` is the sum of the distances of the
    values from it, and `squares` is the sum of the squares of these distances. They are
    small, so no digits are lost in large numbers that are close to each other.
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

    def read(self, cells: tables.Cells) -> "tables.Floats":
        """Add a batch of cells; return their values, NaN for missing or wrong cells."""
        values, wrong, example = tables.to_numbers(cells)
        if not self.wrong:
            self.example = example
        self.wrong += wrong
        self.add(values)
        return values

    def add(self, values: "tables.Floats") -> None:
        """Add a batch of values, NaN for missing cells."""
        import numpy as np

        finite_values = values[np.abs(values) <= MAX_FINITE_VALUE]
        missing = int(np.isnan(values).sum())
        self.missing += missing
        self.infinite += len(values) - missing - len(finite_values)
        self.outside += int(((values < self.low) | (values > self.high)).sum())

        if not len(finite_values):
            return

        if not self.n:
            self.origin = float(finite_values.mean())

        distances = finite_values - self.origin
        self.total += float(distances.sum())
        self.squares += float((distances * distances).sum())
        self.least = min(self.least, float(finite_values.min()))
        self.most = max(self.most, float(finite_values.max()))
        self.n += len(finite_values)

    @property
    def rows(self) -> int:
        """The number of cells that were added."""
        return self.n + self.missing + self.infinite

    @property
    def mean(self) -> float:
        """The mean of the finite values; 0 without values."""
        if not self.n:
            return 0.0
        return self.origin + self.total / self.n

    @property
    def std(self) -> float:
        """The sample standard deviation (ddof = 1).

        It is 0 for equal values and for fewer than two.
        """
        if self.n < 2 or self.least == self.most:
            return 0.0
        # Rounding may make this sum negative.
        squares_around_mean = max(0.0, self.squares - self.total**2 / self.n)
        return sqrt(squares_around_mean / (self.n - 1))

    def unusable(self, missing: Level = "error") -> Iterator[Finding]:
        """Yield findings for wrong, missing and infinite cells.

        `missing` is the level of the finding for missing cells.
        """
        if self.wrong:
            example = shorten(self.example)
            yield self._cells_finding(
                "no numbers", self.wrong, f"that are not numbers, first {example}"
            )

        if self.missing > self.wrong:
            yield self._cells_finding(
                "missing",
                self.missing - self.wrong,
                "that are NaN or missing",
                level=missing,
            )

        if self.infinite:
            yield self._cells_finding(
                "infinite", self.infinite, "that are infinite or beyond ±1e150"
            )

    def _cells_finding(
        self, kind: str, count: int, fault: str, level: Level = "error"
    ) -> Finding:
        """Return the finding that `count` cells have a `fault`."""
        fix = f"write finite numbers in {self.name} for every row, or leave the row out"
        return table_finding(
            "finite",
            kind=f"{self.name} {kind}",
            what=f"{self.name} has {count} of {self.rows} cells {fault}",
            fix=fix,
            level=level,
            off_by=count / self.rows,
            rule=fix,
        )

    @property
    def off_by(self) -> float:
        """The share of values that are outside, of which one counts by its distance.

        So fewer values outside are always better, and of as many those that are nearer.
        """
        below = relative_distance(min(self.least, self.low), self.low) or 0.0
        above = relative_distance(max(self.most, self.high), self.high) or 0.0
        farthest = max(below, above)
        return (self.outside - 1 + farthest / (1 + farthest)) / self.rows

    def findings(self, check: str) -> Iterator[Finding]:
        """Yield findings for unusable cells, no numbers, and values out of bounds."""
        name = self.name
        yield from self.unusable()

        if not self.n:
            yield table_finding(
                check,
                kind=f"{name} empty",
                what=f"{name} has no numbers in {self.rows} rows",
                fix=f"write numbers in {name}",
            )
        if self.outside:
            bounds = f"{_exact_text(self.low)} to {_exact_text(self.high)}"
            rule = f"keep {name} from {bounds}"
            extent = f"{_exact_text(self.least)} to {_exact_text(self.most)}"
            yield table_finding(
                check,
                kind=f"{name} outside",
                what=f"{name} has {self.outside} of {self.rows} values outside "
                f"{bounds}; its finite values lie from {extent}",
                fix=f"{rule}: correct the rows or how they are made",
                rule=rule,
                off_by=self.off_by,
            )


def _exact_text(value: float) -> str:
    """Return a number with all its digits, a whole number without ".0"."""
    return repr(float(value)).removesuffix(".0")


def short(value: float) -> str:
    """Return a number as text with six significant digits.

    From a million on it is a whole number.

    >>> short(1234567.89), short(0.1 + 0.2), short(1e300)
    ('1234568', '0.3', '1e+300')
    """
    return f"{value:.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"


def _check_columns(
    name: str, source: Any, bounds: Mapping[str, tuple[float, float]]
) -> TableCheck:
    """Make a check of the columns in `bounds`, or of all columns with numbers."""

    def judge(data: Any, _: Context) -> Iterator[Finding]:
        """Yield the findings about each column."""
        table = tables.open_table(data, tuple(bounds))
        columns = _read_columns(table, bounds)
        if not bounds:
            # The caller did not ask for columns of text, so they are left out.
            columns = [column for column in columns if column.n or not column.wrong]

        if not columns:
            yield table_finding(
                name,
                kind="no numbers",
                what="there is no column of numbers",
                fix="write a column of numbers",
            )
        for column in columns:
            yield from column.findings(name)

    return TableCheck(name=name, source=source, judge=judge, names=(name,))


def _read_columns(
    table: tables.DataTable, bounds: Mapping[str, tuple[float, float]]
) -> list[Column]:
    """Return the statistics of the columns in `bounds`; if it is empty, of all."""
    if not bounds:
        bounds = dict.fromkeys(table.columns, (-inf, inf))
    columns = [
        Column(name=name, low=low, high=high) for name, (low, high) in bounds.items()
    ]
    if not columns:
        return []

    for batch in table.batches([column.name for column in columns]):
        for column, cells in zip(columns, batch, strict=True):
            column.read(cells)
    return columns


@remade
def finite(source: Any = None, columns: Sequence[str] = ()) -> TableCheck:
    """Check that `columns` have only finite numbers.

    By default these are all columns with numbers.
    """
    names = _column_names("columns", columns)
    return _check_columns("finite", source, dict.fromkeys(names, (-inf, inf)))


@remade
def ranges(source: Any = None, **columns: Sequence[float | None]) -> TableCheck:
    """Check that each column has only numbers from `low` to `high`; None means no
    bound.

    Each argument is named after its column: `ranges("results.parquet", share=(0,
    1), price=(0, None))`. Raises InvalidInput.
    """
    require(
        bool(columns),
        "columns",
        value=None,
        allowed="one column or more with its (low, high)",
    )
    bounds = {name: _read_bounds(name, pair) for name, pair in columns.items()}
    return _check_columns("ranges", source, bounds)


def _read_bounds(name: str, pair: Any) -> tuple[float, float]:
    """Return the bounds of a column. Raises InvalidInput."""
    # A `pair` of another form has no bound, and is refused like one with two open ends.
    low = None
    high = None
    if isinstance(pair, list | tuple) and len(pair) == 2:
        low, high = pair

    if low is None:
        low = -inf
    if high is None:
        high = inf
    are_numbers = isinstance(low, int | float) and isinstance(high, int | float)
    require(
        are_numbers and low <= high and (low, high) != (-inf, inf),
        f"range of {name}",
        pair,
        "(low, high) of numbers, low <= high; None is an open end",
    )
    return low, high


def _row_keys(data: Any, key_columns: Sequence[str]) -> Iterator[str]:
    """Yield the key of each row, "" if all cells of a key are missing."""
    for batch in tables.open_table(data, key_columns).batches(key_columns):
        for cells in zip(*batch, strict=True):
            texts = [_key_text(cell) for cell in cells]
            yield "\0".join(texts) if any(texts) else ""


def _key_text(cell: Any) -> str:
    """Return a cell of a key as text; the text "NA" is a key like any other."""
    if not isinstance(cell, str) and tables.is_missing(cell):
        return ""
    return str(cell).strip()


def _judge_keys(key_columns: Sequence[str], data: Any, _: Context) -> Iterator[Finding]:
    """Yield findings for missing and repeated keys."""
    name = " and ".join(key_columns)
    counts = Counter(_row_keys(data, key_columns))
    total = counts.total()
    keyless = counts.pop("", 0)
    repeated = counts - Counter(counts.keys())  # without the first row of each key
    if not total:
        yield table_finding(
            MISSING_TABLE_CHECK,
            kind="empty",
            what="the results have no rows",
            fix="write the results",
            severity=0.9,
        )
    if keyless:
        fix = f"write {name} in every row"
        yield table_finding(
            "rows",
            kind="no key",
            what=f"{keyless} of {total} rows have no {name}",
            fix=fix,
            rule=fix,
            off_by=keyless / total,
        )
    if repeated:
        first_keys = nsmallest(3, repeated)
        examples = [shorten(key.replace("\0", ", ")) for key in first_keys]
        count = repeated.total()
        fix = f"write each {name} once"
        yield table_finding(
            "rows",
            kind="twice",
            what=f"{count} of {total} rows repeat the {name} of an earlier row, "
            f"such as {'; '.join(examples)}",
            fix=fix,
            rule=fix,
            off_by=count / total,
        )


@remade
def rows(source: Any = None, key: str | Sequence[str] = ()) -> TableCheck:
    """Check that each row has a unique key.

    `key` names the column or columns that identify a row. Raises InvalidInput without
    `key`.
    """
    names = _column_names("key", key)
    require(bool(names), "key", key, "the columns that identify a row")
    return TableCheck(
        name="rows",
        source=source,
        judge=partial(_judge_keys, names),
        names=("rows",),
    )


def _check_age(
    path: Any, newer_than: float | None, context: Context
) -> Iterator[Finding]:
    """Yield a finding if a file is older than `newer_than`.

    None stands for the start of the loop or stage.
    """
    if not isinstance(path, Path) or not isfile(path):
        return

    # The clock of a file system may be late, because its ticks are coarse.
    limit = context.began - 0.05 if newer_than is None else newer_than
    changed = path.stat().st_mtime
    if changed >= limit:
        return

    began = "its loop or stage began" if newer_than is None else _date(newer_than)
    yield table_finding(
        MISSING_TABLE_CHECK,
        kind="stale",
        what=f"results file {path} is stale: it was written {_date(changed)}, before "
        f"{began}",
        fix="write the results again, to this path",
        severity=0.5,
    )


def _date(seconds: float) -> str:
    """Return the date and time of seconds since 1970, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(" ", "milliseconds")


_RESULTS_PATH = (
    "a path or a callable (candidate, state) -> path; for the rows of a data frame "
    "pass the frame to finite, ranges, rows or predictions"
)


@remade
def results(
    path: str | PathLike[str] | Callable[[Any, Any], Any],
    at_least_rows: int = 1,
    newer_than: float | None = None,
    columns: Sequence[str] = (),
) -> TableCheck:
    """Check that a results file exists, is new, and has enough rows and all `columns`.

    `path` may be a callable `(candidate, state)` that returns the path. The file must
    not be older than `newer_than` (seconds since 1970; None is the start of the loop or
    stage). In CSV, Parquet and JSON files all rows of `columns` (default: the first
    column) are read. In other formats only existence, size and age are checked. Raises
    InvalidInput.
    """
    is_path = isinstance(path, str | PathLike) or callable(path)
    require(is_path, "path", type(path), _RESULTS_PATH)
    check_integer("at_least_rows", at_least_rows, least=0)
    if newer_than is not None:
        check_number("newer_than", newer_than, low=0, high=_LAST_SECOND)
    names = _column_names("columns", columns)

    def judge(file: Any, context: Context) -> Iterator[Finding]:
        """Yield the findings about the file: its path, its age, then its rows."""
        if file is not None and not isinstance(file, Path):
            raise InvalidInput("path of the results", type(file), _RESULTS_PATH)
        if file is None:
            yield table_finding(
                MISSING_TABLE_CHECK,
                kind="no path",
                what="there is no path to a results file",
                fix="save the results and say where",
                severity=0.5,
            )
            return

        yield from _check_age(file, newer_than, context)
        is_table = file.suffix.casefold() in tables.TABLE_SUFFIXES
        asks_for_table = is_table or names or at_least_rows > 1
        if not asks_for_table and isfile(file) and file.stat().st_size:
            return  # nothing else can be checked in a file of another format

        count = _count_rows(tables.open_table(file), names)
        if count < at_least_rows:
            yield table_finding(
                MISSING_TABLE_CHECK,
                kind="rows",
                what=f"results file {file} has {count} rows, at least {at_least_rows} "
                "asked for",
                fix="save all rows",
                severity=0.9,
                off_by=relative_distance(count, at_least_rows),
                rule=f"save at least {at_least_rows} rows",
            )

    return TableCheck(
        name="results", source=path, judge=judge, names=(MISSING_TABLE_CHECK,)
    )


def _count_rows(table: tables.DataTable, names: Sequence[str]) -> int:
    """Read the columns `names`, by default the first column, and count their rows."""
    columns = names or table.columns[:1]
    # A batch without columns is empty.
    return sum(len(batch[0]) for batch in table.batches(columns) if batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionLimits:
    """The limits of `predictions`, which says what each of them means."""

    deviation_sigma: float = 10.0
    spread_ratio_min: float = 0.1
    spread_ratio_max: float = 5.0
    constant_relative_std: float = 0.01

    def __post_init__(self) -> None:
        for limit in fields(PredictionLimits):
            value = getattr(self, limit.name)
            check_number(limit.name, value, low=0, high=MAX_SCORE)
        require(
            self.spread_ratio_min <= self.spread_ratio_max,
            "spread_ratio_min",
            self.spread_ratio_min,
            f"at most spread_ratio_max, {self.spread_ratio_max:g}",
        )


def _judge_mean(
    actual: Column, predicted: Column, limits: PredictionLimits
) -> Iterator[Finding]:
    """Yield a finding if the mean of the predictions is far from the actual mean."""
    distance = abs(predicted.mean - actual.mean)
    if actual.std:
        allowed = limits.deviation_sigma * actual.std
        deviations = f"{distance / actual.std:.4g}"
    else:
        # The mean of equal values may be wrong in its last digit.
        allowed = 1e-12 * abs(actual.mean)
        deviations = "infinitely many"

    if distance <= allowed * (1 + ROUNDING_SHARE):
        return

    yield table_finding(
        "hallucination_detection",
        kind=predicted.name,
        what=f"predictions appear hallucinated: the mean of {predicted.name} is "
        f"{short(predicted.mean)}, that of {actual.name} {short(actual.mean)}, "
        f"{deviations} standard deviations ({short(actual.std)}) away; "
        f"{short(limits.deviation_sigma)} are allowed",
        fix="verify that the model uses the actual data and its scale, then retrain it",
        severity=0.9,
        off_by=relative_distance(distance, allowed),
        rule=f"keep the mean of {predicted.name} within "
        f"{short(limits.deviation_sigma)} standard deviations of that of {actual.name}",
    )


def _judge_spread(
    actual: Column, predicted: Column, limits: PredictionLimits
) -> Iterator[Finding]:
    """Yield a finding if the predictions are spread unlike the actual values."""
    if not actual.std:
        yield table_finding(
            "variance_hallucination",
            kind="no spread",
            what=f"all {actual.n} values of {actual.name} are {short(actual.mean)}, "
            f"its std is 0, that of {predicted.name} {short(predicted.std)}: there is "
            "no ratio",
            fix=f"verify that {actual.name} holds the actual data",
            level="error" if predicted.std else "warning",
        )
        return

    least_ratio = limits.spread_ratio_min
    highest_ratio = limits.spread_ratio_max
    ratio = predicted.std / actual.std
    if ratio < least_ratio * (1 - ROUNDING_SHARE):
        side = "low"
        cause = "the model has hardly learnt from its features"
    elif ratio > highest_ratio * (1 + ROUNDING_SHARE):
        side = "high"
        cause = "the model is unstable or its output on another scale"
    else:
        return

    yield table_finding(
        "variance_hallucination",
        kind=side,
        what=f"unrealistic spread: the std of {predicted.name} is "
        f"{short(predicted.std)}, that of {actual.name} {short(actual.std)}: std ratio "
        f"{short(ratio)} (variance ratio {short(ratio**2)}); allowed is "
        f"{short(least_ratio)} to {short(highest_ratio)}",
        fix=f"check for synthetic data, and whether {cause}; then retrain it",
        severity=0.8,
        off_by=relative_distance(ratio, min(max(ratio, least_ratio), highest_ratio)),
        rule=f"keep the std of {predicted.name} from {short(least_ratio)} to "
        f"{short(highest_ratio)} times that of {actual.name}",
    )


def _judge_constant(
    actual: Column, predicted: Column, limits: PredictionLimits
) -> Iterator[Finding]:
    """Yield a finding if the predictions hardly vary.

    The actual values may be missing; then only the mean is a measure. If they are all
    equal, so may be the predictions.
    """
    is_flat = actual.n and not actual.std
    if is_flat or not _are_constant(actual, predicted, limits):
        return

    actual_std = ""
    measure = "the mean"
    if actual.n:
        actual_std = f"the std of {actual.name} is {short(actual.std)}; "
        measure = "either"
    yield table_finding(
        "constant_predictions",
        kind=predicted.name,
        what=f"{predicted.name} is nearly constant: std {short(predicted.std)} around "
        f"mean {short(predicted.mean)} in {predicted.n} rows; {actual_std}the least "
        f"allowed is {short(limits.constant_relative_std)} of {measure}",
        fix="retrain with diverse data, and check that the features reach the model",
        severity=0.9,
        rule=f"let {predicted.name} vary by more than "
        f"{short(limits.constant_relative_std)} of its mean",
    )


def _are_constant(actual: Column, predicted: Column, limits: PredictionLimits) -> bool:
    """Return whether the predictions vary too little."""
    if not predicted.std:
        return True

    least_share = limits.constant_relative_std * (1 - ROUNDING_SHARE)
    if predicted.std < least_share * actual.std:
        return True

    # Predictions with a large mean, such as 300 ± 2 kelvin, pass if the actual values
    # vary as little.
    least_ratio = limits.spread_ratio_min * (1 - ROUNDING_SHARE)
    if actual.std and predicted.std >= least_ratio * actual.std:
        return False
    return predicted.std < least_share * abs(predicted.mean)


def _judge_tail(pairs: "Pairs") -> Iterator[Finding]:
    """Yield a finding if the predictions hardly vary from some row to the last.

    These are half of the rows or more, and ten at least. If there are actual values,
    they must go on varying there.
    """
    tail = pairs.tail_predicted
    has_actual = len(pairs.columns) > 1
    goes_on = 2 * pairs.tail_actual.std >= pairs.actual.std > 0
    if tail.n < MIN_COMPARED_ROWS or 2 * tail.n < pairs.predicted.n:
        return
    if has_actual and not goes_on:
        return

    yield table_finding(
        "constant_predictions",
        kind=f"{tail.name} tail",
        what=f"{tail.name} is nearly constant in its last {tail.n} of "
        f"{pairs.predicted.n} rows: {short(tail.least)} to {short(tail.most)}",
        fix="check that the forecast does not only repeat its own last value, and that "
        "the features reach the model",
        severity=0.9,
    )


@dataclass(slots=True, kw_only=True)
class Pairs:
    """Statistics of pairs of an actual and a predicted value, updated batch by batch.

    `actual` and `predicted` have the rows with a number in every column; `columns` are
    the columns with all of their rows. `tail_actual` and `tail_predicted` have the last
    of these rows, those whose predictions differ by no more than `tail_share` of the
    standard deviation. `fractional` counts the actual values that are not whole
    numbers; `copied` counts the predictions that equal such a value exactly.
    """

    columns: Sequence[Column]
    actual: Column
    predicted: Column
    tail_actual: Column
    tail_predicted: Column
    tail_share: float
    fractional: int = 0
    copied: int = 0

    def add(self, batch: Sequence[Any]) -> None:
        """Add a batch: the cells of each column."""
        import numpy as np

        arrays = [
            column.read(cells)
            for column, cells in zip(self.columns, batch, strict=True)
        ]
        in_all = np.all([np.abs(values) <= MAX_FINITE_VALUE for values in arrays], 0)
        actual = arrays[0][in_all]
        predicted = arrays[-1][in_all]
        self.actual.add(actual)
        self.predicted.add(predicted)

        fractional = np.floor(actual) != actual
        self.fractional += int(fractional.sum())
        self.copied += int(((actual == predicted) & fractional).sum())
        if len(predicted):
            self._add_tail(actual, predicted)

    def _add_tail(self, actual: "tables.Floats", predicted: "tables.Floats") -> None:
        """Add the last rows of a batch to the tail, or begin the tail with them."""
        import numpy as np

        tail = self.tail_predicted
        width = self.tail_share * self.actual.std
        backwards = predicted[::-1]
        highs = np.maximum.accumulate(backwards)
        lows = np.minimum.accumulate(backwards)
        count = int((highs - lows <= width).sum())

        extent = max(tail.most, highs[-1]) - min(tail.least, lows[-1])
        if count < len(predicted) or extent > width:
            self.tail_actual = Column(name=self.tail_actual.name)
            self.tail_predicted = Column(name=tail.name)
        self.tail_actual.add(actual[-count:])
        self.tail_predicted.add(predicted[-count:])


def _judge_leakage(pairs: Pairs) -> Iterator[Finding]:
    """Yield a finding if most predictions are copies of the actual values."""
    if pairs.fractional < MIN_COMPARED_ROWS or 2 * pairs.copied <= pairs.fractional:
        return
    actual = pairs.actual
    predicted = pairs.predicted
    yield table_finding(
        "leakage",
        kind=predicted.name,
        what=f"{predicted.name} equals {actual.name} to the last digit in "
        f"{pairs.copied} of {actual.n} rows",
        fix=f"check that {actual.name}, or a column computed from it, is not among the "
        "features",
        level="error" if pairs.copied == pairs.fractional else "warning",
        severity=0.6,
    )


def _judge_predictions(
    names: Sequence[str], limits: PredictionLimits, data: Any
) -> Iterator[Finding]:
    """Yield findings about the predictions in `data`.

    `names` are the columns of the actual values, which may be left out, and of the
    predictions.
    """
    pairs = Pairs(
        columns=[Column(name=name) for name in names],
        actual=Column(name=names[0]),
        predicted=Column(name=names[-1]),
        tail_actual=Column(name=names[0]),
        tail_predicted=Column(name=names[-1]),
        tail_share=limits.constant_relative_std,
    )
    for batch in tables.open_table(data, names).batches(names):
        pairs.add(batch)

    # A row without an actual value may be in the future: it is allowed, but not judged.
    *actual_columns, predicted_column = pairs.columns
    for column in actual_columns:
        yield from column.unusable("warning")
    yield from predicted_column.unusable("error")

    if pairs.predicted.n < 2:
        yield _too_few_rows(pairs, predicted_column.rows)
    elif not actual_columns:
        findings = list(_judge_constant(Column(name=""), pairs.predicted, limits))
        yield from findings or _judge_tail(pairs)
    else:
        yield from _judge_pairs(pairs, limits)


def _too_few_rows(pairs: Pairs, rows_count: int) -> Finding:
    """Return the finding that there are not two rows to judge."""
    names = " and ".join(column.name for column in pairs.columns)
    kind = "one row"
    if not rows_count:
        kind = "empty"
    elif not pairs.predicted.n:
        kind = "no pairs"

    return table_finding(
        MISSING_TABLE_CHECK,
        kind=kind,
        what=f"{pairs.predicted.n} of {rows_count} rows have a number in {names}; two "
        "are needed",
        fix=f"write the results of all rows, {names} as numbers",
        severity=0.9,
    )


def _judge_pairs(pairs: Pairs, limits: PredictionLimits) -> Iterator[Finding]:
    """Yield findings about predictions that have actual values to compare with."""
    actual = pairs.actual
    constant = list(_judge_constant(actual, pairs.predicted, limits))
    yield from _judge_mean(actual, pairs.predicted, limits)
    yield from _judge_spread(actual, pairs.predicted, limits)
    yield from constant or _judge_tail(pairs)
    yield from _judge_leakage(pairs)


@over_http("process")
@remade
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
    """Check that predictions are new, with a mean and a spread like actual values.

    The findings; a value exactly at a bound passes:

    - `missing_results`, an error: the file is missing, empty, stale or damaged, columns
      or rows are missing, or fewer than two rows have both values.
    - `hallucination_detection`, an error: abs(mean predicted - mean actual) is above
      `deviation_sigma` standard deviations of the actual values.
    - `variance_hallucination`, an error: the ratio of the standard deviations
      (predicted / actual) is not from `spread_ratio_min` to `spread_ratio_max`,
      or the actual values have no spread (a warning if neither have one).
    - `constant_predictions`, an error: the standard deviation is 0, or below
      `constant_relative_std` times abs(mean) unless the actual values vary as little,
      or below `constant_relative_std` times that of the actual values; or the last half
      of the predictions, ten or more, differ by no more than that while the actual
      values go on varying. Not if the actual values are all equal.
    - `leakage`: ten or more actual values are not whole numbers, and more than half of
      these are predicted exactly; an error if all are, else a warning.
    - `finite`, an error: cells that are missing, NaN, infinite, beyond 1e150 or not
      numbers; a warning if an actual value is missing.

    Standard deviations are of the sample (ddof = 1), over the rows with both values.
    Without such rows, or with `actual=None`, only `constant_predictions` (by the mean)
    and `finite` judge the predictions.
    `newer_than` works as in `results`. Raises InvalidInput.
    """
    columns: tuple[str, ...] = ()
    if actual is not None:
        columns = _column_names("actual", [actual])
    columns += _column_names("predicted", [predicted])
    require(actual != predicted, "predicted", predicted, "another column than actual")

    limits = PredictionLimits(
        deviation_sigma=deviation_sigma,
        spread_ratio_min=spread_ratio_min,
        spread_ratio_max=spread_ratio_max,
        constant_relative_std=constant_relative_std,
    )
    if newer_than is not None:
        check_number("newer_than", newer_than, low=0, high=_LAST_SECOND)

    names = ["finite", "constant_predictions"]
    if actual is not None:
        names[1:1] = ["hallucination_detection", "variance_hallucination"]
        names.append("leakage")

    def judge(data: Any, context: Context) -> Iterator[Finding]:
        """Yield the findings about the age of a file, then about its predictions."""
        yield from _check_age(data, newer_than, context)
        yield from _judge_predictions(columns, limits, data)

    return TableCheck(
        name="predictions", source=source, judge=judge, names=tuple(names)
    )

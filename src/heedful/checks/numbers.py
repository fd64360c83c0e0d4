"""Checks of tables: cells, ranges, keys, results files, and predictions.

A `source` is a path (CSV, Parquet, JSON, JSON lines; relative to the working directory), data (a
data frame, a mapping of columns, a list of rows, arrays), a callable `(candidate, state)` that
returns either, or None for the candidate itself. Files are read in batches, and what is said of
them comes from running sums, so memory does not grow with them. No check is `pure`, because it
reads more than the candidate.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from math import inf, isfinite, sqrt
from os import PathLike
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from heedful.checks import tables
from heedful.checks.evaluate import Context
from heedful.checks.tables import RESULTS, TableError, report
from heedful.checks.text import require, shorten
from heedful.loop.record import Finding, Level, check_number

if TYPE_CHECKING:
    from heedful.checks.tables import Floats

LARGEST = 1e150
"""Values beyond ± this count as infinite, because their squares cannot be added up."""
ROUNDING = 1e-9
"""A value that exceeds a bound by less than this share counts as being at the bound."""
TICK = 0.05
"""Seconds by which a file system's clock may be behind, because its ticks are coarse."""

FEW = 10
"""Rows that leakage and skill need."""
SHUFFLED = 30
"""Rows from which on predictions may be called shuffled."""
BELIEVABLE = 0.9999
"""The share of what the best simple baseline leaves open that predictions may explain."""

Judge = Callable[[Any, Context], Iterator[Finding]]
"""Reads the data located for a candidate in a context."""


@dataclass(frozen=True, slots=True)
class TableCheck:
    """A check that locates its source and lets `judge` read it.

    `names` are the check names of its findings. A source that cannot be read is reported under
    `unreadable`, or under the name of the check.
    """

    name: str
    source: Any
    judge: Judge = field(repr=False)
    names: tuple[str, ...]
    unreadable: str = ""
    pure: ClassVar[bool] = False

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        findings: list[Finding] = []
        try:
            findings += self.judge(tables.locate(self.source, candidate, context), context)
        except TableError as error:
            findings.append(error.finding(self.unreadable or self.name))
        return findings


def _columns(argument: str, columns: Any) -> tuple[str, ...]:
    """Return column names as a tuple; a text is one name. Raises InvalidInput."""
    columns = (columns,) if isinstance(columns, str) else columns
    fine = isinstance(columns, Sequence) and all(isinstance(c, str) and c for c in columns)
    require(fine, argument, columns, "names of columns")
    return tuple(dict.fromkeys(columns))


# The cells of a column


@dataclass(slots=True)
class Column:
    """Running statistics of one column, batch by batch (Chan, Golub, LeVeque 1979).

    `n` finite values have `mean`, `m2` (sum of squared distances from the mean), `least` and
    `most`; `below` and `above` count those outside the bounds `low` and `high`. `missing` cells
    include the `wrong` ones, which are no numbers; `example` is the first of these.
    """

    name: str
    low: float | None = None
    high: float | None = None
    n: int = 0
    mean: float = 0.0
    m2: float = 0.0
    least: float = inf
    most: float = -inf
    below: int = 0
    above: int = 0
    missing: int = 0
    infinite: int = 0
    wrong: int = 0
    example: object = None

    def add(self, values: Floats, wrong: int = 0, example: object = None) -> None:
        """Add a batch, in which NaN stands for a missing cell."""
        import numpy as np

        finite = values[np.abs(values) <= LARGEST]
        n, missing = len(finite), int(np.isnan(values).sum())
        self.missing += missing
        self.infinite += len(values) - missing - n
        self.example = self.example if self.wrong else example
        self.wrong += wrong
        self.below += 0 if self.low is None else int((values < self.low).sum())
        self.above += 0 if self.high is None else int((values > self.high).sum())
        if not n:
            return
        mean = float(finite.mean())
        away = finite - mean
        apart = mean - self.mean if self.n else 0.0
        share = n / (self.n + n)
        # The second term corrects for the rounding of the mean (corrected two-pass formula).
        self.m2 += max(0.0, float((away * away).sum()) - float(away.sum()) ** 2 / n)
        self.m2 += apart * apart * self.n * share
        self.mean = self.mean + apart * share if self.n else mean
        self.least = min(self.least, float(finite.min()))
        self.most = max(self.most, float(finite.max()))
        self.n += n

    @property
    def rows(self) -> int:
        """The number of all cells."""
        return self.n + self.missing + self.infinite

    @property
    def square(self) -> float:
        """The mean of the squares; 0 without values."""
        return self.m2 / self.n + self.mean * self.mean if self.n else 0.0

    @property
    def std(self) -> float:
        """The sample standard deviation (ddof = 1); 0 for equal values and fewer than two."""
        return sqrt(self.m2 / (self.n - 1)) if self.n > 1 and self.least < self.most else 0.0

    def unusable(self, missing: Level = "error") -> Iterator[Finding]:
        """Report cells that are no numbers, missing (at that level), or infinite."""
        fix = f"write numbers in {self.name} for every row, finite ones, or leave the row out"
        first = f"that are no numbers, first {shorten(self.example)}"
        kinds: tuple[tuple[int, str, str, Level], ...] = (
            (self.wrong, first, "no numbers", "error"),
            (self.missing - self.wrong, "that are NaN or missing", "missing", missing),
            (self.infinite, "that are infinite or beyond ±1e150", "infinite", "error"),
        )
        for count, what, key, level in kinds:
            if count:
                what = f"{self.name} has {count} of {self.rows} cells {what}"
                yield report("finite", f"{self.name} {key}", what, fix, level)

    def findings(self, check: str) -> Iterator[Finding]:
        """Report unusable cells, and values out of bounds."""
        yield from self.unusable()
        if not self.n:
            what = f"{self.name} has no numbers in {self.rows} rows"
            yield report(check, f"{self.name} empty", what, f"write numbers in {self.name}")
        ends = {"at least": self.low, "at most": self.high}
        within = " and ".join(
            f"{side} {_exact(end)}" for side, end in ends.items() if end is not None
        )
        for side, count, bound, name, extreme in (
            ("below", self.below, self.low, "lowest", self.least),
            ("above", self.above, self.high, "highest", self.most),
        ):
            if count and bound is not None:
                what = f"{self.name} has {count} of {self.rows} values {side} {_exact(bound)}"
                what += f"; the {name} is {_exact(extreme)}" if isfinite(extreme) else ""
                fix = f"keep {self.name} {within}: correct the rows or how they are made"
                yield report(check, f"{self.name} {side}", what, fix)


def _exact(value: float) -> str:
    """Write a number with all its digits."""
    return repr(float(value)).removesuffix(".0")


def short(value: float) -> str:
    """Write a number with six digits, or with all digits before the point.

    >>> short(1234567.89), short(0.1 + 0.2), short(1e300)
    ('1234568', '0.3', '1e+300')
    """
    return f"{value:.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"


Bounds = Mapping[str, tuple[float | None, float | None]]


def _judge_columns(name: str, bounds: Bounds, data: Any, _: Context) -> Iterator[Finding]:
    table = tables.open_table(data, tuple(bounds))
    wanted = bounds or dict.fromkeys(table.columns, (None, None))
    columns = [Column(column, *pair) for column, pair in wanted.items()]
    for batch in table.batches(list(wanted)):
        for column, cells in zip(columns, batch, strict=True):
            column.add(*tables.to_numbers(cells))
    if not bounds:  # without names, a column of text need not hold numbers
        columns = [c for c in columns if c.n or not c.wrong]
        if not columns:
            what, fix = "there is no column of numbers", "write a column of numbers"
            yield report(name, "no numbers", what, fix)
    for column in columns:
        yield from column.findings(name)


def finite(source: Any = None, columns: Sequence[str] = ()) -> TableCheck:
    """Check that every cell of these columns (default: all with numbers) is a finite number."""
    bounds: Bounds = dict.fromkeys(_columns("columns", columns), (None, None))
    return TableCheck("finite", source, partial(_judge_columns, "finite", bounds), ("finite",))


def ranges(
    source: Any = None, columns: Mapping[str, Sequence[float | None]] | None = None, **more: Any
) -> TableCheck:
    """Check that every value is within `(low, high)`, bounds included; None is an open end.

    `ranges("results.parquet", share=(0, 1), price=(0, None))`. Use the mapping for names that are
    no Python names, and for `source` and `columns`. Cells without a number are findings. Raises
    InvalidInput.
    """
    given = isinstance(columns, Mapping | None) and bool(columns or more)
    require(given, "columns", columns, "one column or more with its (low, high)")
    bounds: dict[str, Any] = {**(columns or {}), **more}
    for name, pair in bounds.items():
        fine = (
            isinstance(pair, list | tuple) and len(pair) == 2 and any(b is not None for b in pair)
        )
        fine = fine and all(b is None or (isinstance(b, int | float) and b == b) for b in pair)
        fine = fine and (None in pair or pair[0] <= pair[1])
        require(fine, f"range of {name}", pair, "(low, high), low <= high; None is an open end")
    return TableCheck("ranges", source, partial(_judge_columns, "ranges", bounds), ("ranges",))


# Keys


def _key_text(cell: Any) -> str:
    """Return the text of a cell, "" if it is missing; the text "NA" is a key like any other."""
    return "" if not isinstance(cell, str) and tables.is_missing(cell) else str(cell).strip()


def _keys(data: Any, key: Sequence[str]) -> Iterator[bytes]:
    """Yield the key of every row, empty for a row without."""
    for batch in tables.open_table(data, key).batches(key):
        for cells in zip(*batch, strict=True):
            texts = [_key_text(cell) for cell in cells]
            known = "\0".join(texts) if any(texts) else ""
            yield known.encode("utf-8", "surrogatepass")


def _shown_key(key: bytes) -> str:
    return shorten(key.decode("utf-8", "surrogatepass").replace("\0", ", "))


def _judge_keys(key: Sequence[str], same_as: Any, data: Any, context: Context) -> Iterator[Finding]:
    """Find rows without a key, keys that repeat, and keys that only one of the sources has.

    SQLite holds the keys in a temporary file, so memory does not grow with their number.
    """
    by, rows, absent, twice = " and ".join(key), 0, 0, 0
    examples: list[str] = []
    with closing(sqlite3.connect("", isolation_level=None)) as database:
        database.execute("create table keys (key blob primary key, wanted int) without rowid")
        database.execute("begin")
        for known in _keys(data, key):
            rows += 1
            if not known:
                absent += 1
            elif not database.execute("insert or ignore into keys values (?, 0)", [known]).rowcount:
                twice += 1
                examples += [_shown_key(known)] if len(examples) < 3 else []
        if same_as is not None and rows:
            yield from _differing(database, by, key, tables.locate(same_as, None, context))
    if not rows:
        what, fix = "the results have no rows", "write the results"
        yield report(RESULTS, "empty", what, fix, severity=0.9)
    if absent:
        what = f"{absent} of {rows} rows have no {by}"
        yield report("rows", "no key", what, f"write {by} in every row")
    if twice:
        what = f"{twice} of {rows} rows have the same {by} as one before, such as "
        yield report("rows", "twice", what + "; ".join(examples), "write every row once")


def _differing(
    database: sqlite3.Connection, by: str, key: Sequence[str], other: Any
) -> Iterator[Finding]:
    """Find the keys that only one of the two sources has."""
    add = "insert into keys values (?, 2) on conflict do update set wanted = max(wanted, 1)"
    database.executemany(add, ([known] for known in _keys(other, key) if known))
    for wanted, name, what, fix in (
        (2, "missing", f"wanted rows are missing by {by}", "write a row for each of them"),
        (0, "unwanted", f"rows are not wanted by {by}", "leave these rows out"),
    ):
        only = "from keys where wanted = ? order by key limit 3"
        examples = [
            _shown_key(found) for (found,) in database.execute(f"select key {only}", [wanted])
        ]
        (count,) = database.execute(
            "select count(*) from keys where wanted = ?", [wanted]
        ).fetchone()
        if count:
            yield report("rows", name, f"{count} {what}, such as {'; '.join(examples)}", fix)


def rows(source: Any = None, key: str | Sequence[str] = (), same_as: Any = None) -> TableCheck:
    """Check that every row has a key of its own, and the same keys as `same_as`, in any order.

    `key` names the columns that tell rows apart, `same_as` is another source. Raises InvalidInput
    without `key`.
    """
    names = _columns("key", key)
    require(bool(names), "key", key, "the columns that tell rows apart")
    return TableCheck("rows", source, partial(_judge_keys, names, same_as), ("rows",))


# Results files


def _valid_age(newer_than: float | None) -> float | None:
    if newer_than is not None:
        check_number("newer_than", newer_than, 0, 2.5e11)  # the year 9892: dates end soon after
    return newer_than


def _check_age(path: Any, newer_than: float | None, context: Context) -> list[Finding]:
    """Report a file older than `newer_than`; None means older than the loop or stage."""
    if not isinstance(path, Path) or not isfile(path):
        return []
    since = context.began if newer_than is None else newer_than
    written = path.stat().st_mtime
    if written >= since - TICK:
        return []
    name = "its stage, which began then" if newer_than is None else "allowed"
    when, then = (
        datetime.fromtimestamp(t, UTC).isoformat(" ", "milliseconds") for t in (written, since)
    )
    what = f"results file {path} is stale: written {when}, older than {name} ({then})"
    fix = "write the results again, to this path"
    return [report(RESULTS, "stale", what, fix, severity=0.5)]


def _judge_results(
    least: int, newer_than: float | None, columns: Sequence[str], path: Any, context: Context
) -> Iterator[Finding]:
    if not isinstance(path, Path):
        what = f"there is no path to a results file, but {shorten(path)}"
        yield report(RESULTS, "no path", what, "save the results and say where", severity=0.5)
        return
    yield from _check_age(path, newer_than, context)
    known = path.suffix.casefold() in tables.SUFFIXES
    if not (known or columns or least > 1) and isfile(path) and path.stat().st_size:
        return  # nothing else can be checked in a file of another format
    if (rows := tables.open_table(path).count_rows(columns)) < least:
        what = f"results file {path} has {rows} rows, at least {least} asked for"
        yield report(RESULTS, "rows", what, "save all rows", severity=0.9)


def results(
    path: str | PathLike[str] | Callable[[Any, Any], Any],
    at_least_rows: int = 1,
    newer_than: float | None = None,
    columns: Sequence[str] = (),
) -> TableCheck:
    """Check that the results file exists, is new and readable, and has these columns and rows.

    `path` may be a callable `(candidate, state)` that returns it. A file is stale if it is older
    than `newer_than`, in seconds since 1970, or (None) than the start of the loop or stage. CSV,
    Parquet and JSON are read to the end of `columns` (default: the first column); of other formats
    only presence, size and age are checked. Raises InvalidInput.
    """
    fine = isinstance(path, str | PathLike) or callable(path)
    require(fine, "path", path, "a path or a callable (candidate, state) -> path")
    least = type(at_least_rows) is int and at_least_rows >= 0
    require(least, "at_least_rows", at_least_rows, "a whole number of at least 0")
    wanted = at_least_rows, _valid_age(newer_than), _columns("columns", columns)
    return TableCheck("results", path, partial(_judge_results, *wanted), (RESULTS,), RESULTS)


# Predictions


def _judge_deviation(a: Column, p: Column, sigma: float) -> Iterator[Finding]:
    """Find means that are far apart: the predictions belong to other data."""
    apart = abs(p.mean - a.mean)
    # The mean of equal values may be wrong in its last digit.
    allowed = sigma * a.std if a.std else 1e-12 * abs(a.mean)
    if apart <= allowed * (1 + ROUNDING):
        return
    times = f"{apart / a.std:.4g}" if a.std else "infinitely many"
    what = (
        f"predictions appear hallucinated: the mean of {p.name} is {short(p.mean)}, that of "
        f"{a.name} {short(a.mean)}, {times} standard deviations ({short(a.std)}) away; "
        f"{short(sigma)} are allowed"
    )
    fix = "verify that the model uses the actual data and its scale, then retrain it"
    yield report("hallucination_detection", p.name, what, fix, severity=0.9)


def _judge_spread(a: Column, p: Column, least: float, most: float) -> Iterator[Finding]:
    """Find predictions that vary far less or far more than the actual values."""
    if not a.std:
        what = (
            f"all {a.n} values of {a.name} are {short(a.mean)}, its std is 0, that of {p.name} "
            f"{short(p.std)}: no ratio can be taken"
        )
        fix = f"verify that {a.name} holds the actual data"
        level: Level = "error" if p.std else "warning"
        yield report("variance_hallucination", "no spread", what, fix, level)
        return
    ratio = p.std / a.std
    if ratio < least * (1 - ROUNDING):
        side, hint = "low", "the model has hardly learnt from its features"
    elif ratio > most * (1 + ROUNDING):
        side, hint = "high", "the model is unstable or its output on another scale"
    else:
        return
    what = (
        f"unrealistic spread: the std of {p.name} is {short(p.std)}, that of {a.name} "
        f"{short(a.std)}: std ratio {short(ratio)} (variance ratio {short(ratio * ratio)}); "
        f"allowed is {short(least)} to {short(most)}"
    )
    fix = f"check for synthetic data, and whether {hint}; then retrain it"
    yield report("variance_hallucination", side, what, fix, severity=0.8)


def _judge_constant(a: Column, p: Column, relative: float, ratio: float) -> Iterator[Finding]:
    """Find predictions that hardly vary, compared with their mean or with the actual's spread.

    Near a large mean they may vary as little as `ratio` times the actual values: 300 ± 2 kelvin.
    """
    share = relative * (1 - ROUNDING)
    by_mean = p.std < share * abs(p.mean)
    like_actual = a.std > 0 and p.std >= ratio * (1 - ROUNDING) * a.std
    if p.std and not (by_mean and not like_actual) and not p.std < share * a.std:
        return
    what = (
        f"{p.name} is nearly constant: std {short(p.std)} around mean {short(p.mean)} in "
        f"{p.n} rows; the std of {a.name} is {short(a.std)}; the least "
        f"allowed is {short(relative)} of either"
    )
    fix = "retrain with diverse data, and check that the features reach the model"
    yield report("constant_predictions", p.name, what, fix, severity=0.9)


@dataclass(slots=True)
class Pairs:
    """Running statistics of the rows that have an actual value and a prediction.

    `error` is predicted minus actual, `steps` are differences between successive actual values.
    `joint` is the co-moment. `equal` predictions are the actual value to the last digit; of the
    `fractional` actual values, which are no whole numbers, so many are `copied`.
    """

    actual: Column
    predicted: Column
    error: Column = field(default_factory=lambda: Column("error"))
    steps: Column = field(default_factory=lambda: Column("steps"))
    joint: float = 0.0
    equal: int = 0
    fractional: int = 0
    copied: int = 0
    last: Floats | None = None

    def add(self, a: Floats, p: Floats) -> None:
        """Add a batch."""
        import numpy as np

        if not len(a):
            return
        mean_a, mean_p, n = float(a.mean()), float(p.mean()), self.actual.n
        apart = (mean_a - self.actual.mean) * (mean_p - self.predicted.mean)
        self.joint += float(((a - mean_a) * (p - mean_p)).sum())
        self.joint += apart * (n / (n + len(a)) * len(a))
        self.actual.add(a)
        self.predicted.add(p)
        self.error.add(p - a)
        self.steps.add(np.diff(a) if self.last is None else np.diff(a, prepend=self.last))
        self.last = a[-1:]
        fractional = np.floor(a) != a
        self.equal += int((a == p).sum())
        self.fractional += int(fractional.sum())
        self.copied += int(((a == p) & fractional).sum())

    @property
    def correlation(self) -> float:
        """Pearson's r, -1..1; 0 if a column has no spread."""
        product = sqrt(self.actual.m2) * sqrt(self.predicted.m2)
        return max(-1.0, min(1.0, self.joint / product)) if product else 0.0


def _judge_leakage(pairs: Pairs) -> Iterator[Finding]:
    """Find predictions that are too good: copied from what they predict, or made of it.

    Ten or more equal fractions and no other row can only be copied: an error. Whole numbers may be
    easy to hit, and a law of nature may hold nearly exactly: a warning.
    """
    a, p, n = pairs.actual, pairs.predicted, pairs.actual.n
    equals = f"{p.name} equals {a.name} to the last digit in"
    fix = f"check that {a.name} and what is made of it are not among the features or the output"
    if pairs.equal == n:
        level: Level = "error" if pairs.fractional >= FEW else "warning"
        yield report("leakage", "copied", f"{equals} all {n} rows", fix, level, 0.6)
        return
    if pairs.fractional >= FEW and 2 * pairs.copied > pairs.fractional:
        what = f"{equals} {pairs.equal} of {n} rows"
        yield report("leakage", "copied in part", what, fix, "warning", 0.6)
        return
    # The row before counts as a baseline even for sorted values: a trend is easy to follow.
    rest = (1 - pairs.correlation**2) * a.m2 / n
    base = min(a.m2 / n, pairs.steps.square)
    explained = 1 - rest / base if base else -inf
    if explained > BELIEVABLE:
        what = (
            f"{p.name} explains {100 * explained:.6g} % of what the best simple baseline leaves "
            f"open (correlation {pairs.correlation:.6f}), more than the {100 * BELIEVABLE:.6g} % "
            "that is believable"
        )
        yield report("leakage", "too good", what, fix, "warning", 0.6)


def _judge_skill(pairs: Pairs) -> Iterator[Finding]:
    """Find predictions no better than a trivial baseline, and shuffled ones."""
    a, p, n = pairs.actual, pairs.predicted, pairs.actual.n
    ratio, r = p.std / a.std, pairs.correlation
    close = 0.5 <= ratio <= 2 and abs(pairs.error.mean) <= 0.5 * a.std
    if n >= SHUFFLED and close and abs(r) < min(0.2, 3 / sqrt(n)):
        what = (
            f"{p.name} is spread like {a.name} (std ratio {short(ratio)}) but does not vary with "
            f"it: correlation {r:.3f} in {n} rows"
        )
        fix = "check that rows were not shuffled or joined by position: align them by their key"
        yield report("shuffled", p.name, what, fix, "warning", 0.5)
        return
    base, name = sqrt(a.m2 / n), "the mean of all values"
    ordered = pairs.steps.least >= 0 or pairs.steps.most <= 0  # sorted rows say nothing here
    if not ordered and sqrt(pairs.steps.square) < base:
        base, name = sqrt(pairs.steps.square), "the value of the row before"
    error = sqrt(pairs.error.square)
    if error >= base * (1 - ROUNDING):
        what = (
            f"{p.name} is no better than {name}: its root mean square error is {short(error)}, "
            f"that of the baseline {short(base)}"
        )
        fix = "compare with this baseline before the model is trusted; add features or retrain"
        yield report("skill", name, what, fix, "warning", 0.4)


def _judge_predictions(
    names: tuple[str, str],
    limits: Mapping[str, float],
    newer_than: float | None,
    data: Any,
    context: Context,
) -> Iterator[Finding]:
    import numpy as np

    yield from _check_age(data, newer_than, context)
    (all_actual, all_predicted), (a, p) = [[Column(name) for name in names] for _ in range(2)]
    pairs = Pairs(a, p)
    for batch in tables.open_table(data, names).batches(names):
        actual, predicted = map(tables.to_numbers, batch)
        all_actual.add(*actual)
        all_predicted.add(*predicted)
        both = np.abs(actual.values) <= LARGEST
        both &= np.abs(predicted.values) <= LARGEST
        pairs.add(actual.values[both], predicted.values[both])
    # A row without an actual value may lie in the future: it is allowed, but not judged.
    yield from all_actual.unusable(missing="warning")
    yield from all_predicted.unusable()
    if a.n > 1:
        sigma, least, most, relative = limits.values()
        found = [
            *_judge_deviation(a, p, sigma),
            *_judge_spread(a, p, least, most),
            *_judge_constant(a, p, relative, least),
        ]
        if a.n >= FEW and a.std:
            found += _judge_leakage(pairs)
            # After an error it says little that predictions are no better than the mean.
            found += () if any(f.level == "error" for f in found) else _judge_skill(pairs)
        yield from found
        return
    rows, kind = all_actual.rows, "one row" if a.n else "no pairs"
    what = f"{a.n} of {rows} rows have a number in both {a.name} and {p.name}; a spread needs two"
    fix = f"write the results of all rows, {a.name} and {p.name} side by side, as numbers"
    yield report(RESULTS, kind if rows else "empty", what, fix, severity=0.9)


def predictions(
    source: Any = None,
    actual: str = "actual",
    predicted: str = "predicted",
    *,
    deviation_sigma: float = 10.0,
    spread_ratio_min: float = 0.1,
    spread_ratio_max: float = 5.0,
    constant_relative_std: float = 0.01,
    newer_than: float | None = None,
) -> TableCheck:
    """Check that predictions exist, vary like the actual values around the same mean, and are new.

    Findings are called `missing_results` (no file, no rows, an old file), `hallucination_detection`
    (the means are more than `deviation_sigma` standard deviations of the actual apart),
    `variance_hallucination` (the standard deviation is not within `spread_ratio_min` to `_max`
    times the actual's), `constant_predictions` (it is below `constant_relative_std` of the
    actual's, or of the mean while the actual varies more), and `finite`. From ten rows on there are
    `leakage` (copies of what they predict, or too good to be true), and as warnings `skill` (no
    better than the mean or the row before) and `shuffled`. Standard deviations are of the sample
    (ddof = 1), over the rows that have both values. `newer_than` works as in `results`.
    Raises InvalidInput.
    """
    for argument, column in (("actual", actual), ("predicted", predicted)):
        require(isinstance(column, str) and column != "", argument, column, "the name of a column")
    require(actual != predicted, "predicted", predicted, "another column than actual")
    limits = {
        "deviation_sigma": deviation_sigma,
        "spread_ratio_min": spread_ratio_min,
        "spread_ratio_max": spread_ratio_max,
        "constant_relative_std": constant_relative_std,
    }
    for name, value in limits.items():
        check_number(name, value, 0, 1e300)
    allowed = f"at most spread_ratio_max, {spread_ratio_max:g}"
    require(spread_ratio_min <= spread_ratio_max, "spread_ratio_min", spread_ratio_min, allowed)
    judge = partial(_judge_predictions, (actual, predicted), limits, _valid_age(newer_than))
    names = (
        "finite",
        "hallucination_detection",
        "variance_hallucination",
        "constant_predictions",
        "leakage",
    )
    return TableCheck("predictions", source, judge, names)

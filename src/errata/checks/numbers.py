"""Checks of numbers: predictions against what they predict, ranges, NaN, keys that do not match.

A `source` is a path (CSV, Parquet, JSON, JSON lines; relative to the working directory), data (a
data frame that narwhals takes, a mapping of columns, a list of rows, arrays), a callable
`(candidate, state)` that gives either, or None: the candidate itself. Files are read batch by
batch: memory does not grow with them. No check is `pure`: what it reads is not the candidate alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any, ClassVar

from errata.checks.batches import Unread, opened
from errata.checks.cells import Numeric, numeric
from errata.checks.files import When, located, named, stale
from errata.checks.moments import Moments
from errata.checks.predicted import (
    JUDGES,
    Compared,
    Limits,
    bad_cells,
    said,
    too_few,
    untold,
    unusable,
)
from errata.checks.text import require
from errata.loop.record import Finding
from errata.protocols import Context

Data = Any
"""A source: see the top of this module."""
Bounds = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions are worth believing, as far as numbers tell; `judges` says which are asked."""

    name: str
    source: Data
    actual: str
    predicted: str
    judges: tuple[str, ...]
    limits: Limits = Limits()
    features: tuple[str, ...] = ()
    newer_than: When = None
    pure: ClassVar[bool] = False

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        data = located(self.source, candidate, context)
        old = stale(data, self.newer_than, context) if isinstance(data, Path) else None
        found = [old] if old else []
        try:
            read = compared(data, self.actual, self.predicted, self.features)
        except Unread as why:
            return [*found, why.finding(self.name)]
        found += unusable(read)
        if few := too_few(read):
            return [*found, few]
        for judge in self.judges:
            clean = not any(finding.level == "error" for finding in found)
            if clean or judge != "skill":  # that it is no better than the mean says less, then
                found += JUDGES[judge](read, self.limits)
        if {"leakage", "skill"}.intersection(self.judges):
            found += untold(read)
        return found


def compared(data: Any, actual: str, predicted: str, features: Sequence[str] = ()) -> Compared:
    """The statistics of two columns, read once batch by batch. Raises Unread, PackageMissing."""
    read = Compared((actual, predicted))
    for a, p, *more in opened(data).batches((actual, predicted, *features)):
        by_name = {name: numeric(cells) for name, cells in zip(features, more, strict=True)}
        read = read.after(numeric(a), numeric(p), by_name)
    return read


def predictions(
    source: Data = None,
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
) -> Predictions:
    """Predictions are there, vary as what they predict does, around the same mean, and are no copy.

    Findings are called `missing_results` (no file, no rows, an old file), `hallucination_detection`
    (means more than `deviation_sigma` standard deviations of the actual apart),
    `variance_hallucination` (their standard deviation not within `spread_ratio_min` to `_max` of
    the actual's), `constant_predictions` (below `constant_relative_std` of their mean, or of the
    actual's standard deviation), `leakage` (equal to the actual or to one of the columns
    `features`, or explaining more than the share `believable`), `finite`, and, as warnings,
    `skill` and `shuffled`. Standard deviations are those of the sample (ddof = 1), over the rows
    that have both values. `newer_than`: see `results`. Raises InvalidInput.
    """
    limits = _limits(
        deviation_sigma=deviation_sigma,
        spread_ratio_min=spread_ratio_min,
        spread_ratio_max=spread_ratio_max,
        constant_relative_std=constant_relative_std,
        believable=believable,
    )
    judges = tuple(JUDGES)
    return _made("predictions", source, actual, predicted, judges, limits, features, newer_than)


def deviation(
    source: Data = None, actual: str = "actual", predicted: str = "predicted", sigma: float = 10.0
) -> Predictions:
    """The means are at most `sigma` standard deviations of the actual apart."""
    limits = _limits(deviation_sigma=sigma)
    return _made("deviation", source, actual, predicted, ("deviation",), limits)


def spread(
    source: Data = None,
    actual: str = "actual",
    predicted: str = "predicted",
    ratio_min: float = 0.1,
    ratio_max: float = 5.0,
) -> Predictions:
    """The predictions' standard deviation is so many times the actual's, bounds included."""
    limits = _limits(spread_ratio_min=ratio_min, spread_ratio_max=ratio_max)
    return _made("spread", source, actual, predicted, ("spread",), limits)


def constant(
    source: Data = None,
    actual: str = "actual",
    predicted: str = "predicted",
    relative_std: float = 0.01,
) -> Predictions:
    """The predictions' deviation is at least that share of their mean and of the actual's own."""
    limits = _limits(constant_relative_std=relative_std)
    return _made("constant", source, actual, predicted, ("constant",), limits)


def skill(source: Data = None, actual: str = "actual", predicted: str = "predicted") -> Predictions:
    """The predictions are better than the mean and than the value of the row before; a warning."""
    return _made("skill", source, actual, predicted, ("skill",), Limits())


def leakage(
    source: Data = None,
    actual: str = "actual",
    predicted: str = "predicted",
    features: Sequence[str] = (),
    believable: float = 0.9999,
) -> Predictions:
    """The predictions are no copy of the actual or of a feature, and not too good to be true."""
    limits = _limits(believable=believable)
    return _made("leakage", source, actual, predicted, ("leakage",), limits, features)


def _limits(**given: float) -> Limits:
    for name, value in given.items():
        real = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        top = 1 if name == "believable" else inf
        allowed = "a share from 0 to 1" if top == 1 else "a finite number of at least 0"
        require(real and 0 <= value <= top, name, value, allowed)
    limits = Limits(**given)
    least, most = limits.spread_ratio_min, limits.spread_ratio_max
    require(least <= most, "spread_ratio_min", least, f"at most spread_ratio_max, {most:g}")
    return limits


def _made(
    name: str,
    source: Data,
    actual: str,
    predicted: str,
    judges: tuple[str, ...],
    limits: Limits,
    features: Sequence[str] = (),
    newer_than: When = None,
) -> Predictions:
    for field, column in (("actual", actual), ("predicted", predicted)):
        require(isinstance(column, str) and column != "", field, column, "the name of a column")
    require(actual != predicted, "predicted", predicted, "another column than actual")
    more = named("features", features)
    return Predictions(name, source, actual, predicted, judges, limits, more, newer_than)


@dataclass(frozen=True, slots=True)
class Column:
    """What was read of one column that is to lie within `bounds`: cells `below` and `above` them,
    and `wrong` ones that are no numbers, with the first as `example`."""

    name: str
    bounds: Bounds
    moments: Moments = Moments()
    wrong: int = 0
    example: Any = None
    below: int = 0
    above: int = 0

    def after(self, read: Numeric) -> Column:
        """The same with one more batch."""
        low, high = self.bounds
        return Column(
            self.name,
            self.bounds,
            self.moments + Moments.of(read.values),
            self.wrong + read.wrong,
            self.example if self.wrong else read.example,
            self.below + (0 if low is None else int((read.values < low).sum())),
            self.above + (0 if high is None else int((read.values > high).sum())),
        )

    def findings(self, check: str) -> Iterator[Finding]:
        """What is wrong with it: cells that are no finite numbers, none at all, out of bounds."""
        name, column = self.name, self.moments
        yield from bad_cells(name, column, self.wrong, self.example)
        if not column.n:
            what = f"{name} has no number in {column.rows} rows"
            yield _bad(check, what, f"write numbers in {name}", f"{name} empty")
        low, high = ("open" if bound is None else said(bound) for bound in self.bounds)
        fix = f"keep {name} within {low} to {high}: correct the rows or how they are made"
        if self.below:
            what = f"{name} has {self.below} of {column.rows} values below {low}"
            yield _bad(check, f"{what}{_most('lowest', column.low)}", fix, f"{name} below")
        if self.above:
            what = f"{name} has {self.above} of {column.rows} values above {high}"
            yield _bad(check, f"{what}{_most('highest', column.high)}", fix, f"{name} above")


def _most(which: str, value: float) -> str:
    return f"; the {which} is {said(value)}" if isfinite(value) else ""


@dataclass(frozen=True, slots=True)
class Columns:
    """The numbers of some columns are usable, and within `bounds`; made by `finite`, `ranges`."""

    name: str
    source: Data
    bounds: Mapping[str, Bounds]
    pure: ClassVar[bool] = False

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        try:
            read = list(self._read(located(self.source, candidate, context)))
        except Unread as why:
            return [why.finding(self.name)]
        # Where no column is named, one of text is none that should hold numbers.
        text = [c for c in read if not self.bounds and c.wrong and not c.moments.n]
        if len(text) == len(read):
            fix = "write a column of numbers"
            return [_bad(self.name, "there is no column of numbers", fix, "no numbers")]
        return [found for c in read if c not in text for found in c.findings(self.name)]

    def _read(self, data: Any) -> Sequence[Column]:
        source = opened(data)
        names = list(self.bounds) or list(source.columns)
        read = [Column(name, self.bounds.get(name, (None, None))) for name in names]
        for batch in source.batches(names):
            read = [c.after(numeric(cells)) for c, cells in zip(read, batch, strict=True)]
        return read


def _bad(check: str, what: str, fix: str, kind: str) -> Finding:
    return Finding(check, what, fix, severity=0.7, key=f"{check}: {kind}")


def finite(source: Data = None, columns: Sequence[str] = ()) -> Columns:
    """Every cell of these columns (none: of all that hold numbers) is a finite number."""
    return Columns("finite", source, dict.fromkeys(named("columns", columns), (None, None)))


def ranges(
    source: Data = None, columns: Mapping[str, Sequence[float | None]] | None = None, **more: Any
) -> Columns:
    """Every value of a column is within `(low, high)`, bounds included; None is an open end.

    `ranges("results.parquet", share=(0, 1), price=(0, None))`; names that are no Python names, or
    `source` and `columns`, go into the mapping. Cells without a number are findings. Raises
    InvalidInput.
    """
    bounds = {name: _bounds(name, pair) for name, pair in {**(columns or {}), **more}.items()}
    require(bool(bounds), "columns", columns, "one column or more with its (low, high)")
    return Columns("ranges", source, bounds)


def _bounds(name: str, pair: Any) -> Bounds:
    fine = isinstance(pair, list | tuple) and len(pair) == 2 and any(b is not None for b in pair)
    fine = fine and all(b is None or (isinstance(b, int | float) and b == b) for b in pair)
    if fine and None not in pair:
        fine = pair[0] <= pair[1]
    require(fine, f"range of {name}", pair, "(low, high) with low <= high; None is an open end")
    return pair[0], pair[1]

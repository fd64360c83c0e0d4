"""Checks of numbers: predictions against what they predict, ranges, NaN, keys that do not match.

A `source` is a path (CSV, Parquet, JSON, JSON lines; relative to the working directory), data (a
data frame that narwhals takes, a mapping of columns, a list of rows, arrays), a callable
`(candidate, state)` that gives either, or None: the candidate itself. Files are read batch by
batch: memory does not grow with them. No check is `pure`: what it reads is not the candidate alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any, ClassVar

from heedful.checks.batches import Unread, opened
from heedful.checks.cells import numeric
from heedful.checks.evaluate import Context
from heedful.checks.fields import finite, ranges, schema
from heedful.checks.files import When, located, named, stale, when
from heedful.checks.keyed import rows
from heedful.checks.predicted import JUDGES, Compared, Limits, too_few, untold, unusable
from heedful.checks.text import require
from heedful.loop.record import Finding

__all__ = [
    "constant",
    "deviation",
    "finite",
    "leakage",
    "predictions",
    "ranges",
    "rows",
    "schema",
    "skill",
    "spread",
]

CALLED = {
    "deviation": "hallucination_detection",
    "spread": "variance_hallucination",
    "constant": "constant_predictions",
    "leakage": "leakage",
}
Data = Any
"""A source: see the top of this module."""


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

    @property
    def names(self) -> tuple[str, ...]:
        """What findings are called by the judges that are asked of all data that can be read."""
        return ("finite", *(CALLED[judge] for judge in self.judges if judge in CALLED))

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
        for judge in ("leakage", "skill"):
            if judge in self.judges:
                found += untold(read, judge)
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
    the actual's), `constant_predictions` (it is below `constant_relative_std` of the actual's, or
    of their mean while the actual varies more than they do), `leakage` (equal to the actual or to
    one of the columns `features`, or explaining more than the share `believable`), `finite`, and,
    as warnings, `skill` and `shuffled`. Standard deviations are those of the sample (ddof = 1),
    over the rows that have both values. `newer_than`: see `results`. Raises InvalidInput.
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
    """The predictions' deviation is at least that share of the actual's own, and of their mean.

    What is near a large mean is no constant where the actual values vary as little.
    """
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
    others = not {actual, predicted}.intersection(more)
    require(others, "features", features, "other columns than actual and predicted")
    return Predictions(name, source, actual, predicted, judges, limits, more, when(newer_than))

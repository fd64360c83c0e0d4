"""What the statistics of actual and predicted values say: mean, spread, leakage, skill.

The statistics are running sums that add up batch by batch, so memory does not grow with the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import inf, sqrt
from typing import TYPE_CHECKING, Any

from heedful.checks.tables import RESULTS, Numbers, open_table, report, to_numbers
from heedful.checks.text import require, shorten
from heedful.loop.record import Finding, Level, check_number

if TYPE_CHECKING:
    from heedful.checks.tables import Floats

LARGEST = 1e150
"""Values beyond ± this count as infinite, because their squares cannot be added up."""
FEW = 10
"""Fewer pairs than this cannot tell skill or leakage from chance."""
SHUFFLED = 30
"""From so many pairs on, no correlation at all is a sign of shuffled rows."""
ROUNDING = 1e-9
"""A value that exceeds a bound by less than this share counts as being at the bound."""


# Statistics


@dataclass(slots=True)
class Moments:
    """Running statistics of one column, batch by batch (Chan, Golub, LeVeque 1979).

    `n` finite values have `mean`, `m2` (sum of squared distances from the mean), `low` and `high`.
    `missing` cells include the `wrong` ones, which are of another kind; `example` is the first.
    """

    n: int = 0
    mean: float = 0.0
    m2: float = 0.0
    low: float = inf
    high: float = -inf
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
        self.low, self.high = (
            min(self.low, float(finite.min())),
            max(self.high, float(finite.max())),
        )
        self.n += n

    @property
    def rows(self) -> int:
        """The number of all cells."""
        return self.n + self.missing + self.infinite

    @property
    def std(self) -> float:
        """The sample standard deviation (ddof = 1); 0 for equal values and fewer than two."""
        return sqrt(self.m2 / (self.n - 1)) if self.n > 1 and self.low < self.high else 0.0

    @property
    def square(self) -> float:
        """The mean of the squared values."""
        return self.m2 / self.n + self.mean * self.mean if self.n else 0.0


@dataclass(slots=True)
class Comparison:
    """Running statistics of two columns: of `all_actual` and `all_predicted` cells, and of pairs.

    All other fields are about the `n` rows that have both values. `error` is predicted minus
    actual, `joint` the co-moment. `equal` predictions are exactly the actual value; `fractional`
    actual values are no whole numbers, and `copied` of these are predicted exactly. `steps` are the
    differences between successive actual values, `last` is the last one. `differing` counts for
    each feature the rows in which it differs from the actual and from the predicted value.
    """

    names: tuple[str, str]
    differing: Mapping[str, list[int]]
    all_actual: Moments = field(default_factory=Moments)
    all_predicted: Moments = field(default_factory=Moments)
    actual: Moments = field(default_factory=Moments)
    predicted: Moments = field(default_factory=Moments)
    error: Moments = field(default_factory=Moments)
    steps: Moments = field(default_factory=Moments)
    joint: float = 0.0
    equal: int = 0
    fractional: int = 0
    copied: int = 0
    last: Floats | None = None

    @property
    def n(self) -> int:
        """The number of rows that have both values."""
        return self.actual.n

    def add(self, actual: Numbers, predicted: Numbers, *features: Numbers) -> None:
        """Add a batch."""
        import numpy as np

        self.all_actual.add(*actual)
        self.all_predicted.add(*predicted)
        both = np.abs(actual.values) <= LARGEST
        both &= np.abs(predicted.values) <= LARGEST
        a, p = actual.values[both], predicted.values[both]
        if not len(a):
            return
        mean_a, mean_p = float(a.mean()), float(p.mean())
        apart = (mean_a - self.actual.mean) * (mean_p - self.predicted.mean)
        self.joint += float(((a - mean_a) * (p - mean_p)).sum())
        self.joint += apart * (self.n / (self.n + len(a)) * len(a))
        self.actual.add(a)
        self.predicted.add(p)
        self.error.add(p - a)
        self.steps.add(np.diff(a) if self.last is None else np.diff(a, prepend=self.last))
        self.last = a[-1:]
        equal, fractional = a == p, np.floor(a) != a
        self.equal += int(equal.sum())
        self.fractional += int(fractional.sum())
        self.copied += int((equal & fractional).sum())
        for name, read in zip(self.differing, features, strict=True):
            for other, values in enumerate((a, p)):
                self.differing[name][other] += int((read.values[both] != values).sum())

    @property
    def correlation(self) -> float:
        """Pearson's r, -1..1; 0 if a column has no spread."""
        if not self.actual.std or not self.predicted.std:
            return 0.0
        product = sqrt(self.actual.m2) * sqrt(self.predicted.m2)
        return max(-1.0, min(1.0, self.joint / product)) if product else 0.0


def compare_columns(data: Any, actual: str, predicted: str, *features: str) -> Comparison:
    """Read these columns once and return their statistics. Raises TableError, PackageMissing."""
    comparison = Comparison((actual, predicted), {name: [0, 0] for name in features})
    names = (actual, predicted, *features)
    for batch in open_table(data, names).batches(names):
        comparison.add(*map(to_numbers, batch))
    return comparison


# Findings


@dataclass(frozen=True, slots=True)
class Limits:
    """How far predictions may be from actual values. A value at a limit is allowed.

    `deviation_sigma` limits the distance of the means, in standard deviations of the actual.
    `spread_ratio_*` limit the predictions' standard deviation as a share of the actual's.
    `constant_relative_std` is the least standard deviation as a share of the mean's size.
    `believable` is the share of the variance (0..1) that predictions may explain.
    Raises InvalidInput.
    """

    deviation_sigma: float = 10.0
    spread_ratio_min: float = 0.1
    spread_ratio_max: float = 5.0
    constant_relative_std: float = 0.01
    believable: float = 0.9999

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            check_number(name, value, 0, 1 if name == "believable" else 1e300)
        least, most = self.spread_ratio_min, self.spread_ratio_max
        require(least <= most, "spread_ratio_min", least, f"at most spread_ratio_max, {most:g}")


def short(value: float) -> str:
    """Write a number with six digits, or with all digits before the point.

    >>> short(1234567.89), short(0.1 + 0.2), short(1e300)
    ('1234568', '0.3', '1e+300')
    """
    return f"{value:.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"


def cell_findings(
    name: str,
    column: Moments,
    missing: Level | None = "error",
    kind: str = "numbers",
    check: str = "finite",
) -> Iterator[Finding]:
    """Report unusable cells of a column: of another kind, missing (unless None), infinite."""
    which = ", finite ones," if kind == "numbers" else ""
    fix = f"write {kind} in {name} for every row{which} or leave the row out"
    gaps = column.missing - column.wrong if missing else 0
    for count, what, key, level in (
        (column.wrong, f"that are no {kind}, first {shorten(column.example)}", f"no {kind}", None),
        (gaps, "that are NaN or missing", "missing", missing),
        (column.infinite, "that are infinite or beyond ±1e150", "infinite", None),
    ):
        if count:
            what = f"{name} has {count} of {column.rows} cells {what}"
            yield report(check, f"{name} {key}", what, fix, level or "error")


def too_few(read: Comparison) -> Finding | None:
    """Report that fewer than two rows have both values, so no spread can be computed."""
    a, p = read.names
    rows, n = read.all_actual.rows, read.n
    if n > 1:
        return None
    if not rows:
        what, kind, fix = "the results have no rows", "empty", "write the results"
    elif not n:
        what = f"none of {rows} rows has a number in both {a} and {p}"
        kind, fix = "no pairs", f"write {a} and {p} side by side, as numbers"
    else:
        what = f"one row alone ({a} {short(read.actual.mean)}, {p} "
        what += f"{short(read.predicted.mean)}) has both values: no spread can be taken"
        kind, fix = "one row", "write the results of all rows"
    return report(RESULTS, kind, what, fix, severity=0.9)


def not_judged(read: Comparison, judge: str) -> Iterator[Finding]:
    """Add a note if skill or leakage cannot be judged, so that this is not taken for a pass."""
    if read.n < FEW:
        what = f"{read.n} rows are too few to judge {judge}; {FEW} are needed"
        yield report(judge, "too few rows", what, "write more rows", "note", 0.1)
    elif judge == "leakage" and not read.actual.std:
        what = f"{judge} cannot be judged: all values of {read.names[0]} are the same"
        fix = f"verify that {read.names[0]} holds the actual data"
        yield report(judge, "no spread", what, fix, "note", 0.1)


def _judge_deviation(read: Comparison, limits: Limits) -> Iterator[Finding]:
    """Find means that are far apart: the predictions belong to other data."""
    a, p = read.actual, read.predicted
    apart = abs(p.mean - a.mean)
    # The mean of equal values may be wrong in its last digit.
    allowed = limits.deviation_sigma * a.std if a.std else 1e-12 * abs(a.mean)
    if apart <= allowed * (1 + ROUNDING):
        return
    sigma = f"{apart / a.std:.4g}" if a.std else "infinitely many"
    what = (
        f"predictions appear hallucinated: the mean of {read.names[1]} is {short(p.mean)}, that of "
        f"{read.names[0]} {short(a.mean)}, {sigma} standard deviations ({short(a.std)}) away; "
        f"{short(limits.deviation_sigma)} are allowed"
    )
    fix = "verify that the model uses the actual data and its scale, then retrain it"
    yield report("hallucination_detection", read.names[1], what, fix, severity=0.9)


def _judge_spread(read: Comparison, limits: Limits) -> Iterator[Finding]:
    """Find predictions that vary far less or far more than the actual values."""
    a, p = read.actual.std, read.predicted.std
    actual, predicted = read.names
    if not a:
        what = (
            f"all {read.n} values of {actual} are {short(read.actual.mean)}, its std "
            f"is 0, that of {predicted} {short(p)}: no ratio can be taken"
        )
        fix = f"verify that {actual} holds the actual data"
        level: Level = "error" if p else "warning"
        yield report("variance_hallucination", "no spread", what, fix, level)
        return
    ratio = p / a
    if ratio < limits.spread_ratio_min * (1 - ROUNDING):
        side, hint = "low", "the model has hardly learnt from its features"
    elif ratio > limits.spread_ratio_max * (1 + ROUNDING):
        side, hint = "high", "the model is unstable or its output on another scale"
    else:
        return
    what = (
        f"unrealistic spread: the std of {predicted} is {short(p)}, that of {actual} {short(a)}: "
        f"std ratio {short(ratio)} (variance ratio {short(ratio * ratio)}); allowed is "
        f"{short(limits.spread_ratio_min)} to {short(limits.spread_ratio_max)}"
    )
    fix = f"check for synthetic data, and whether {hint}; then retrain it"
    yield report("variance_hallucination", side, what, fix, severity=0.8)


def _judge_constant(read: Comparison, limits: Limits) -> Iterator[Finding]:
    """Find predictions that hardly vary, compared with their mean or with the actual's spread."""
    a, p = read.actual, read.predicted
    share = limits.constant_relative_std * (1 - ROUNDING)
    by_mean = p.std < share * abs(p.mean)
    # 300 ± 2 kelvin is not constant if the actual values vary as little.
    like_actual = a.std > 0 and p.std >= limits.spread_ratio_min * (1 - ROUNDING) * a.std
    if p.std and not (by_mean and not like_actual) and not p.std < share * a.std:
        return
    what = (
        f"{read.names[1]} is nearly constant: std {short(p.std)} around mean {short(p.mean)} in "
        f"{p.n} rows; the std of {read.names[0]} is {short(a.std)}; the least "
        f"allowed is {short(limits.constant_relative_std)} of either"
    )
    fix = "retrain with diverse data, and check that the features reach the model"
    yield report("constant_predictions", read.names[1], what, fix, severity=0.9)


def _judge_skill(read: Comparison, limits: Limits) -> Iterator[Finding]:
    """Find predictions no better than a trivial baseline, and shuffled ones."""
    (actual, predicted), own = read.names, read.actual.std
    if not own:
        what = f"all {read.n} values of {actual} are {short(read.actual.mean)}"
        fix = f"verify that {actual} holds the actual data"
        what += ": there is nothing to predict"
        yield report("skill", "no spread", what, fix, "warning", 0.5)
    if not own or read.n < FEW:
        return
    ratio, r = read.predicted.std / own, read.correlation
    close = 0.5 <= ratio <= 2 and abs(read.error.mean) <= 0.5 * own
    if read.n >= SHUFFLED and close and abs(r) < min(0.2, 3 / sqrt(read.n)):
        what = (
            f"{predicted} is spread like {actual} (std ratio {short(ratio)}) but goes with it in "
            f"no way: correlation {r:.3f} in {read.n} rows"
        )
        fix = "check that rows were not shuffled or joined by position: align them by their key"
        yield report("shuffled", predicted, what, fix, "warning", 0.5)
        return
    base, name = sqrt(read.actual.m2 / read.n), "the mean of all values"
    ordered = read.steps.low >= 0 or read.steps.high <= 0  # perhaps sorted, then it says nothing
    if not ordered and sqrt(read.steps.square) < base:
        base, name = sqrt(read.steps.square), "the value of the row before"
    error = sqrt(read.error.square)
    if error >= base * (1 - ROUNDING):
        what = (
            f"{predicted} is no better than {name}: its root mean square error is {short(error)}, "
            f"that of the baseline {short(base)}"
        )
        fix = "compare with this baseline before the model is trusted; add features or retrain"
        yield report("skill", name, what, fix, "warning", 0.4)


def _judge_leakage(read: Comparison, limits: Limits) -> Iterator[Finding]:
    """Find predictions that are too good: copied from, or made of, what they predict.

    Ten or more equal fractions and no other row can only be copied: an error. Whole numbers may be
    easy to hit, and a law of nature may hold nearly exactly: a warning.
    """
    actual, predicted = read.names
    if not read.actual.std or read.n < FEW:
        return
    for feature, counts in read.differing.items():
        for name, count in zip(read.names, counts, strict=True):
            if not count:
                what = f"{name} equals the feature {feature} in all {read.n} rows"
                fix = f"take {feature} out of the features"
                yield report("leakage", f"{name} is {feature}", what, fix, "warning", 0.6)
    fix = f"check that {actual} and what is made of it are not among the features or the output"
    if read.equal == read.n:
        what = f"{predicted} equals {actual} to the last digit in all {read.n} rows"
        level: Level = "error" if read.fractional >= FEW else "warning"
        yield report("leakage", "copied", what, fix, level, 0.6)
        return
    if read.fractional >= FEW and 2 * read.copied > read.fractional:
        what = f"{predicted} equals {actual} to the last digit in {read.equal} of {read.n} rows"
        yield report("leakage", "copied in part", what, fix, "warning", 0.6)
        return
    # The row before counts as a baseline even for sorted values: a trend is easy to follow.
    rest = (1 - read.correlation**2) * read.actual.m2 / read.n
    base = min(read.actual.m2 / read.n, read.steps.square)
    explained = 1 - rest / base if base else -inf
    if explained > limits.believable:
        what = (
            f"{predicted} explains {100 * explained:.6g} % of what the best simple baseline leaves "
            f"open (correlation {read.correlation:.6f}), more than the "
            f"{100 * limits.believable:.6g} % that is believable"
        )
        yield report("leakage", "too good", what, fix, "warning", 0.6)


Judge = Callable[[Comparison, Limits], Iterator[Finding]]
JUDGES: Mapping[str, tuple[Judge, str | None]] = {
    "deviation": (_judge_deviation, "hallucination_detection"),
    "spread": (_judge_spread, "variance_hallucination"),
    "constant": (_judge_constant, "constant_predictions"),
    "leakage": (_judge_leakage, "leakage"),
    "skill": (_judge_skill, None),
}
"""Each judge, and the check name of its findings if it judges all readable data, in order."""

"""What the statistics of actual and predicted values give away, as findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, sqrt

from heedful.checks.cells import Numeric
from heedful.checks.moments import Moments, Pairs, usual
from heedful.checks.text import shorten
from heedful.loop.record import Finding, Level

FEW = 10
"""Pairs below which neither skill nor leakage can be told from chance."""
SHUFFLED = 30
"""Pairs from which on no correlation at all is a sign."""
ROUNDING = 1e-9
"""A share: what is over a bound by less is at the bound."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How far predictions may be from what they predict. At a bound is within it.

    `deviation_sigma`: the means, in standard deviations of the actual. `spread_ratio_*`: the
    predictions' standard deviation as a share of the actual's. `constant_relative_std`: the least
    standard deviation as a share of the mean's size. `believable`: the share of the variance (0..1)
    that predictions may explain.
    """

    deviation_sigma: float = 10.0
    spread_ratio_min: float = 0.1
    spread_ratio_max: float = 5.0
    constant_relative_std: float = 0.01
    believable: float = 0.9999


@dataclass(frozen=True, slots=True)
class Compared:
    """All that was read of two columns: each alone, and the `pairs` in which both values stand.

    `wrong` are the cells that are no numbers, by column: how many, and the first. `differing` says
    for a feature in how many rows it differs from the actual and from the predicted value.
    """

    names: tuple[str, str]
    actual: Moments = Moments()
    predicted: Moments = Moments()
    pairs: Pairs = Pairs()
    wrong: Mapping[str, tuple[int, object]] = field(default_factory=dict)
    differing: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def after(
        self, actual: Numeric, predicted: Numeric, features: Mapping[str, Numeric]
    ) -> Compared:
        """The same with one more batch."""
        a, p = actual.values, predicted.values
        both = usual(a) & usual(p)
        wrong = dict(self.wrong)
        for name, read in zip(self.names, (actual, predicted), strict=True):
            count, example = wrong.get(name, (0, None))
            if read.wrong:
                wrong[name] = count + read.wrong, example if count else read.example
        differing = dict(self.differing)
        for name, read in features.items():
            from_a, from_p = differing.get(name, (0, 0))
            from_a += int((read.values != a)[both].sum())
            differing[name] = from_a, from_p + int((read.values != p)[both].sum())
        whole = bool(both.all())
        pairs = Pairs.of(a, p) if whole else Pairs.of(a[both], p[both])
        return Compared(
            self.names,
            self.actual + (pairs.actual if whole else Moments.of(a)),
            self.predicted + (pairs.predicted if whole else Moments.of(p)),
            self.pairs + pairs,
            wrong,
            differing,
        )


Judge = Callable[[Compared, Limits], Iterator[Finding]]


def said(value: float) -> str:
    """A number as people write it: six digits at most, or all of those before the point.

    >>> said(1234567.89), said(0.1 + 0.2), said(1e300)
    ('1234568', '0.3', '1e+300')
    """
    return f"{value:.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"


def exactly(value: float) -> str:
    """A number with all the digits that tell it from others.

    >>> exactly(1.0), exactly(1.0000001), exactly(12345678.5)
    ('1', '1.0000001', '12345678.5')
    """
    return repr(float(value)).removesuffix(".0")


# What is there at all


def unusable(read: Compared) -> Iterator[Finding]:
    """Cells that are missing, infinite or no numbers."""
    a, p = read.names
    # A row without an actual value lies in the future, say: it cannot be judged, yet it may be.
    yield from bad_cells(a, read.actual, *read.wrong.get(a, (0, None)), missing="warning")
    yield from bad_cells(p, read.predicted, *read.wrong.get(p, (0, None)))


def bad_cells(
    name: str,
    column: Moments,
    wrong: int,
    example: object,
    missing: Level | None = "error",
    kind: str = "numbers",
    check: str = "finite",
) -> Iterator[Finding]:
    """A finding for each kind of cell that cannot be used; `missing` None: those may be absent."""
    which = ", finite ones," if kind == "numbers" else ""
    fix = f"write {kind} in {name} for every row{which} or leave the row out"

    def found(count: int, what: str, key: str, level: Level = "error") -> Finding:
        told = f"{name} has {count} of {column.rows} cells {what}"
        return Finding(check, told, fix, level, 0.7, f"{check}: {name} {key}")

    if wrong:
        yield found(wrong, f"that are no {kind}, first {shorten(example)}", f"no {kind}")
    if missing and column.missing > wrong:
        yield found(column.missing - wrong, "that are NaN or missing", "missing", missing)
    if column.infinite:
        yield found(column.infinite, "that are infinite or beyond ±1e150", "infinite")


def too_few(read: Compared) -> Finding | None:
    """What there is to say where no spread can be taken: no rows, no pair, one pair."""
    a, p = read.names
    rows, n = read.actual.rows, read.pairs.n
    if n > 1:
        return None
    if not rows:
        what, kind, fix = "the results have no rows", "empty", "write the results"
    elif not n:
        what = f"none of {rows} rows has a number in both {a} and {p}"
        kind, fix = "no pairs", f"write {a} and {p} side by side, as numbers"
    else:
        what = f"one row alone ({a} {said(read.pairs.actual.mean)}, {p} "
        what += f"{said(read.pairs.predicted.mean)}) has both values: no spread can be taken"
        kind, fix = "one row", "write the results of all rows"
    return Finding("missing_results", what, fix, severity=0.9, key=f"missing_results: {kind}")


def untold(read: Compared, judge: str) -> Iterator[Finding]:
    """A note where nothing can be told about skill or leakage, so that it does not pass unseen."""
    if read.pairs.n < FEW:
        what = f"{read.pairs.n} rows are too few to judge {judge}; {FEW} are needed"
        yield Finding(judge, what, "write more rows", "note", 0.1, f"{judge}: too few rows")
    elif judge == "leakage" and not read.pairs.actual.std:
        what = f"{judge} cannot be judged: all values of {read.names[0]} are the same"
        fix = f"verify that {read.names[0]} holds the actual data"
        yield Finding(judge, what, fix, "note", 0.1, f"{judge}: no spread")


# The judges


def deviation(read: Compared, limits: Limits) -> Iterator[Finding]:
    """The means are far apart: the predictions belong to other data."""
    a, p = read.pairs.actual, read.pairs.predicted
    apart = abs(p.mean - a.mean)
    # The mean of equal values may be one of its last digits off.
    allowed = limits.deviation_sigma * a.std if a.std else 1e-12 * abs(a.mean)
    if apart <= allowed * (1 + ROUNDING):
        return
    sigma = f"{apart / a.std:.4g}" if a.std else "infinitely many"
    what = (
        f"predictions appear hallucinated: the mean of {read.names[1]} is {said(p.mean)}, that of "
        f"{read.names[0]} {said(a.mean)}, {sigma} standard deviations ({said(a.std)}) away; "
        f"{said(limits.deviation_sigma)} are allowed"
    )
    fix = "verify that the model uses the actual data and its scale, then retrain it"
    name = "hallucination_detection"
    yield Finding(name, what, fix, severity=0.9, key=f"{name}: {read.names[1]}")


def spread(read: Compared, limits: Limits) -> Iterator[Finding]:
    """The predictions vary far less or far more than what they predict."""
    a, p = read.pairs.actual.std, read.pairs.predicted.std
    name = "variance_hallucination"
    if not a:
        value = said(read.pairs.actual.mean)
        what = (
            f"all {read.pairs.n} values of {read.names[0]} are {value}, its std is 0, that of "
            f"{read.names[1]} {said(p)}: no ratio can be taken"
        )
        fix = f"verify that {read.names[0]} holds the actual data"
        yield Finding(name, what, fix, "error" if p else "warning", 0.7, f"{name}: no spread")
        return
    ratio = p / a
    if ratio < limits.spread_ratio_min * (1 - ROUNDING):
        side, hint = "low", "the model has hardly learnt from its features"
    elif ratio > limits.spread_ratio_max * (1 + ROUNDING):
        side, hint = "high", "the model is unstable or its output on another scale"
    else:
        return
    what = (
        f"unrealistic spread: the std of {read.names[1]} is {said(p)}, that of {read.names[0]} "
        f"{said(a)}: std ratio {said(ratio)} (variance ratio {said(ratio * ratio)}); allowed is "
        f"{said(limits.spread_ratio_min)} to {said(limits.spread_ratio_max)}"
    )
    fix = f"check for synthetic data, and whether {hint}; then retrain it"
    yield Finding(name, what, fix, severity=0.8, key=f"{name}: {side}")


def constant(read: Compared, limits: Limits) -> Iterator[Finding]:
    """The predictions are nearly the same everywhere, by their mean or by the actual's spread."""
    a, p = read.pairs.actual, read.pairs.predicted
    share = limits.constant_relative_std * (1 - ROUNDING)
    by_mean = p.std < share * abs(p.mean)
    # 300 ± 2 kelvin is no constant where the actual values vary as little.
    like_actual = a.std > 0 and p.std >= limits.spread_ratio_min * (1 - ROUNDING) * a.std
    if p.std and not (by_mean and not like_actual) and not p.std < share * a.std:
        return
    what = (
        f"{read.names[1]} is nearly constant: std {said(p.std)} around mean {said(p.mean)} in "
        f"{p.n} rows; the std of {read.names[0]} is {said(a.std)}; the least "
        f"allowed is {said(limits.constant_relative_std)} of either"
    )
    fix = "retrain with diverse data, and check that the features reach the model"
    name = "constant_predictions"
    yield Finding(name, what, fix, severity=0.9, key=f"{name}: {read.names[1]}")


def skill(read: Compared, limits: Limits) -> Iterator[Finding]:
    """No better than a baseline that knows nothing; the right distribution in the wrong order."""
    pairs, (actual, predicted) = read.pairs, read.names
    if not pairs.actual.std:
        yield _flat(read)
    if not pairs.actual.std or pairs.n < FEW:
        return
    r, own = pairs.correlation, pairs.actual.std
    ratio = pairs.predicted.std / own
    close = 0.5 <= ratio <= 2 and abs(pairs.error.mean) <= 0.5 * own
    if pairs.n >= SHUFFLED and close and abs(r) < min(0.2, 3 / sqrt(pairs.n)):
        what = (
            f"{predicted} is spread like {actual} (std ratio {said(ratio)}) but goes with it in no "
            f"way: correlation {r:.3f} in {pairs.n} rows"
        )
        fix = "check that rows were not shuffled or joined by position: align them by their key"
        yield Finding("shuffled", what, fix, "warning", 0.5, f"shuffled: {predicted}")
        return
    error, (base, name) = sqrt(pairs.error.square), min(_baselines(pairs))
    if error >= base * (1 - ROUNDING):
        what = (
            f"{predicted} is no better than {name}: its root mean square error is {said(error)}, "
            f"that of the baseline {said(base)}"
        )
        fix = "compare with this baseline before the model is trusted; add features or retrain"
        yield Finding("skill", what, fix, "warning", 0.4, f"skill: {name}")


def leakage(read: Compared, limits: Limits) -> Iterator[Finding]:
    """Too good to be true: the predictions were copied from, or made out of, what they predict.

    Ten and more equal fractions and no other row can only be copied: an error. Whole numbers may be
    easy to hit, and a law of nature may be hit nearly: a warning.
    """
    pairs, (actual, predicted) = read.pairs, read.names
    if not pairs.actual.std or pairs.n < FEW:
        return
    for feature, (from_actual, from_predicted) in read.differing.items():
        for name, count in ((actual, from_actual), (predicted, from_predicted)):
            if not count:
                what = f"{name} equals the feature {feature} in all {pairs.n} rows"
                yield _leak(what, f"take {feature} out of the features", f"{name} is {feature}")
    fix = f"check that {actual} and what is made of it are not among the features or the output"
    if pairs.equal == pairs.n:
        what = f"{predicted} equals {actual} to the last digit in all {pairs.n} rows"
        yield _leak(what, fix, "copied", "error" if pairs.fractional >= FEW else "warning")
    elif pairs.fractional >= FEW and 2 * pairs.copied > pairs.fractional:
        what = f"{predicted} equals {actual} to the last digit in {pairs.equal} of {pairs.n} rows"
        yield _leak(what, fix, "copied in part")
    elif (explained := 1 - _unexplained(pairs)) > limits.believable:
        what = (
            f"{predicted} explains {100 * explained:.6g} % of what the best simple baseline leaves "
            f"open (correlation {pairs.correlation:.6f}), more than the "
            f"{100 * limits.believable:.6g} % that is believable"
        )
        yield _leak(what, fix, "too good")


def _leak(what: str, fix: str, kind: str, level: Level = "warning") -> Finding:
    return Finding("leakage", what, fix, level, 0.6, f"leakage: {kind}")


def _flat(read: Compared) -> Finding:
    actual, value = read.names[0], said(read.pairs.actual.mean)
    what = f"all {read.pairs.n} values of {actual} are {value}: there is nothing to predict"
    fix = f"verify that {actual} holds the actual data"
    return Finding("skill", what, fix, "warning", 0.5, "skill: no spread")


def _baselines(pairs: Pairs) -> Iterator[tuple[float, str]]:
    """Root mean square errors of the mean and of the last value, which needs an order in time."""
    yield sqrt(pairs.actual.m2 / pairs.n), "the mean of all values"
    if pairs.steps.n and not pairs.ordered:
        yield sqrt(pairs.steps.square), "the value of the row before"


def _unexplained(pairs: Pairs) -> float:
    """What a line through the predictions leaves, as a share of what the best baseline does.

    The value of the row before counts even where the actual values only rise: a trend is easy.
    """
    rest = (1 - pairs.correlation**2) * pairs.actual.m2 / pairs.n
    base = min(pairs.actual.m2 / pairs.n, pairs.steps.square)
    return rest / base if base else inf


JUDGES: Mapping[str, Judge] = {
    "deviation": deviation,
    "spread": spread,
    "constant": constant,
    "leakage": leakage,
    "skill": skill,
}
"""In the order in which `predictions` asks them; skill only where none before found an error."""

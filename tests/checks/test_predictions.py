"""Predictions against what they predict: the documented cases, bounds, leakage, skill."""

from __future__ import annotations

import statistics
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.checks import numbers as checks
from heedful.checks import tables
from heedful.checks.comparison import Comparison, compare_columns
from heedful.checks.evaluate import Context
from heedful.checks.tables import Numbers
from heedful.errors import InvalidInput
from heedful.loop.record import Finding
from tests.checks.support import findings, keys

CHANCE = np.random.default_rng(5)
UNIT = CHANCE.normal(size=400)
UNIT = (UNIT - UNIT.mean()) / UNIT.std(ddof=1)
OTHER = CHANCE.normal(size=400)
OTHER -= UNIT * (OTHER @ UNIT) / (UNIT @ UNIT)
OTHER = (OTHER - OTHER.mean()) / OTHER.std(ddof=1)
"""Two columns of mean 0 and standard deviation 1 that do not correlate."""


def column(mean: float, std: float, like: float = 0.9) -> Any:
    """Values of this mean and deviation that correlate with `UNIT` so much."""
    return mean + std * (like * UNIT + (1 - like * like) ** 0.5 * OTHER)


def actual_of(mean: float, std: float) -> Any:
    return column(mean, std, like=1)


def judged(actual: Any, predicted: Any, **options: Any) -> list[Finding]:
    return findings(checks.predictions(**options), (actual, predicted))


def names(found: list[Finding], level: str = "error") -> list[str]:
    return [finding.check for finding in found if finding.level == level]


GOOD = actual_of(200, 20), column(201, 18)
WALK = 200 + np.cumsum(UNIT)
TREND = np.arange(400) * 50.0 + OTHER
FAR, SPREAD, CONSTANT = (
    "hallucination_detection",
    "variance_hallucination",
    "constant_predictions",
)


# The documented cases


@pytest.mark.parametrize(
    ("actual", "predicted", "sigma"), [(89.23, 1234.56, 15.3), (200.0, 5000.0, 25.0)]
)
def test_a_mean_far_away_is_hallucinated(actual, predicted, sigma):
    std = (predicted - actual) / sigma
    (found,) = judged(actual_of(actual, std), column(predicted, std))
    assert (found.check, found.level) == (FAR, "error")
    assert found.message.startswith("predictions appear hallucinated: ")
    assert all(f"{value:g}" in found.message for value in (predicted, actual, sigma))
    assert found.fix.startswith("verify that the model uses the actual data")
    assert "retrain" in found.fix


@pytest.mark.parametrize(
    ("std", "ratio", "variance"), [(500.0, "0.05", "0.0025"), (10.0, "0.001", "1e-06")]
)
def test_a_spread_far_too_small_is_hallucinated(std, ratio, variance):
    found = judged(actual_of(3000, 10_000), column(3000, std))[0]
    assert (found.check, found.level) == (SPREAD, "error")
    assert found.message.startswith("unrealistic spread: ")
    assert f"is {std:g}, that of actual 10000" in found.message
    assert f"std ratio {ratio} (variance ratio {variance})" in found.message
    assert found.fix.startswith("check for synthetic data")


def test_nearly_constant_predictions():
    found = judged(actual_of(200, 20), column(200, 0.0001))
    assert names(found) == [SPREAD, CONSTANT]
    assert "std 0.0001 around mean 200" in found[1].message
    assert found[1].fix.startswith("retrain with diverse data")


def test_no_results_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (found,) = findings(checks.predictions("results.parquet", actual="y", predicted="yhat"), None)
    assert found.check == "missing_results"
    assert found.message == "results file results.parquet does not exist"


# At the bounds


@pytest.mark.parametrize(
    ("predicted", "expected"),
    [
        (column(200 + 10 * 20, 20), []),
        (column(200 - 10 * 20, 20), []),
        (column(200 + 10.001 * 20, 20), [FAR]),
        (column(200, 2), []),
        (column(200, 1.999), [SPREAD, CONSTANT]),
        (column(200, 100), []),
        (column(200, 100.01), [SPREAD]),
    ],
)
def test_at_a_bound_nothing_is_found(predicted, expected):
    assert names(judged(actual_of(200, 20), predicted)) == expected


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(1, 40), st.integers(1, 99))
def test_the_bounds_decide_as_the_formulas_do(mean, std, sigma, percent):
    actual, share = actual_of(mean, std), percent / 100
    spread = checks.spread(ratio_min=share, ratio_max=1 / share)
    for times, far, low, high in ((0.99, [], ["low"], []), (1.01, ["predicted"], [], ["high"])):
        shifted = actual, column(mean + sigma * std * times, std)
        assert keys(checks.deviation(sigma=sigma), shifted) == [f"{FAR}: {key}" for key in far]
        for ratio, expected in ((share, low), (1 / share, high)):
            found = keys(spread, (actual, column(mean, std * ratio * times)))
            assert found == [f"{SPREAD}: {key}" for key in expected]


@pytest.mark.parametrize(
    ("actual", "predicted", "expected"),
    [
        (actual_of(300, 2), column(300, 1.9), []),  # kelvin: as constant as the actual
        (actual_of(300, 200), column(300, 1.9), [CONSTANT]),
        (actual_of(0, 20), column(0, 0.1), [CONSTANT]),
        (actual_of(0, 20), np.zeros(400), [CONSTANT]),
        (actual_of(0, 20), column(0, 0.2), []),  # at the bound
        (actual_of(0, 20), column(20, 0.21), []),
    ],
)
def test_constant_is_seen_against_the_actual_too(actual, predicted, expected):
    assert names(findings(checks.constant(), (actual, predicted))) == expected


# Degenerate input


@pytest.mark.parametrize(
    ("actual", "predicted", "expected"),
    [
        ([], [], ["missing_results: empty"]),
        ([1.0], [2.0], ["missing_results: one row"]),
        ([1.0, 2.0], [None, None], ["finite: predicted missing", "missing_results: no pairs"]),
        ([1, 2, 3], [1, 2], ["predictions: unequal lengths"]),
        ([5, 5, 5], [5, 5, 5], [f"{CONSTANT}: predicted"]),
        ([5, 5], [5, 6], [f"{FAR}: predicted", f"{SPREAD}: no spread"]),
        ([5, 5], [4, 6], [f"{SPREAD}: no spread"]),
        ([1, 2, 3.0], [1.5, inf, 3], ["finite: predicted infinite"]),
        ([1, inf, 3.0], [1.5, 2, 3], ["finite: actual infinite"]),
        ([1, 2, 3.0], [1.5, nan, 3], ["finite: predicted missing"]),
        ([1, 2, 3.0], [1.5, "about 2", 3], ["finite: predicted no numbers"]),
        ([1, 2], [True, False], ["finite: predicted no numbers", "missing_results: no pairs"]),
        ([1e200, 2], [1, 2], ["finite: actual infinite", "missing_results: one row"]),
        ([1, -(10**400)], [1, 2], ["finite: actual infinite", "missing_results: one row"]),
    ],
)
def test_degenerate_input_has_its_own_finding(actual, predicted, expected):
    found = judged(actual, predicted)
    assert [one.key for one in found if one.level == "error"] == expected
    assert all(one.fix for one in found)


def test_no_spread_in_either_is_a_warning():
    found = judged([5, 5, 5], [5, 5, 5])
    assert names(found, "warning") == [SPREAD]
    assert "all 3 values of actual are 5, its std is 0" in found[0].message
    assert names(findings(checks.skill(), ([5] * 20, [4, 6] * 10)), "warning") == ["skill"]


def test_cells_that_cannot_be_used_are_counted_and_an_actual_one_may_be_missing():
    (found,) = judged([*GOOD[0], None, nan], [*GOOD[1], 180.0, 190.0])
    assert (found.level, found.key) == ("warning", "finite: actual missing")
    assert "actual has 2 of 402 cells that are NaN or missing" in found.message
    (found,) = judged([*GOOD[0], 1, 2], [*GOOD[1], "n.a.!", "x"])[:1]
    assert found.message == "predicted has 2 of 402 cells that are no numbers, first 'n.a.!'"


# Leakage and skill


@pytest.mark.parametrize(
    ("actual", "predicted", "expected"),
    [
        (*GOOD, []),
        (GOOD[0], GOOD[0], [("error", "leakage: copied")]),
        (np.round(GOOD[0]), np.round(GOOD[0]), [("warning", "leakage: copied")]),
        (
            GOOD[0],
            np.where(np.arange(400) % 3 == 0, GOOD[1], GOOD[0]),
            [("warning", "leakage: copied in part")],
        ),
        (GOOD[0], 1.1 * GOOD[0] - 19, [("warning", "leakage: too good")]),
        (TREND, TREND + UNIT, []),  # r² above 0.9999, but a trend is easy to follow
        (GOOD[0], column(230, 20), [("warning", "skill: the mean of all values")]),
        (GOOD[0], column(201, 18, like=0.05), [("warning", "shuffled: predicted")]),
        (WALK, WALK + 3 * OTHER, [("warning", "skill: the value of the row before")]),
        # Sorted rows say nothing of the row before.
        (np.sort(WALK), (WALK + 3 * OTHER)[np.argsort(WALK)], []),
        (
            [1.5, 2, 3],
            [1.4, 2.2, 2.9],
            [("note", f"{x}: too few rows") for x in ("leakage", "skill")],
        ),
    ],
)
def test_leakage_and_skill(actual, predicted, expected):
    assert [(one.level, one.key) for one in judged(actual, predicted)] == expected


def test_the_rest_of_leakage_and_skill():
    part = np.where(np.arange(400) % 3 == 0, GOOD[1], GOOD[0])
    assert "in 266 of 400 rows" in judged(GOOD[0], part)[0].message
    assert "correlation" in judged(GOOD[0], column(201, 18, like=0.05))[0].message
    assert judged(GOOD[0], 1.1 * GOOD[0] - 19, believable=1.0) == []
    mean = np.full(400, GOOD[0].mean())
    assert keys(checks.skill(), (GOOD[0], mean)) == ["skill: the mean of all values"]
    assert keys(checks.leakage(), ([7] * 20, list(range(20)))) == ["leakage: no spread"]
    assert findings(checks.spread(), ([1.5, 2, 3], [1.4, 2.2, 2.9])) == []


def test_a_column_that_gives_the_answer_away():
    data = {"actual": GOOD[0], "predicted": GOOD[1], "lag": GOOD[1], "target": GOOD[0], "x": UNIT}
    found = findings(checks.predictions(features=["lag", "target", "x"]), data)
    assert [one.key for one in found] == ["leakage: predicted is lag", "leakage: actual is target"]
    assert names(found, "warning") == ["leakage"] * 2
    few = {"actual": [1, 2], "predicted": [1, 2], "x": [1, 2]}
    flat = {"actual": [5] * 20, "predicted": [5] * 20, "x": [5] * 20}
    for data in (few, flat):
        assert {one.level for one in findings(checks.leakage(features=["x"]), data)} <= {"note"}


# Arguments and statistics


@pytest.mark.parametrize(
    ("factory", "arguments"),
    [
        (checks.predictions, {"actual": ""}),
        (checks.predictions, {"actual": "y", "predicted": "y"}),
        (checks.predictions, {"deviation_sigma": -1}),
        (checks.predictions, {"deviation_sigma": nan}),
        (checks.predictions, {"spread_ratio_max": inf}),
        (checks.predictions, {"spread_ratio_min": 6}),
        (checks.predictions, {"believable": 1.5}),
        (checks.predictions, {"features": [1]}),
        (checks.predictions, {"features": ["predicted"]}),
        (checks.predictions, {"newer_than": -1}),
        (checks.deviation, {"sigma": "ten"}),
        (checks.constant, {"relative_std": True}),
    ],
)
def test_wrong_arguments_are_refused(factory, arguments):
    with pytest.raises(InvalidInput):
        factory(**arguments)


def test_a_source_may_be_made_from_the_state():
    data = {"y": list(GOOD[0]), "yhat": list(GOOD[1] + 1e6)}
    check = checks.predictions(lambda candidate, state: state[candidate], "y", "yhat")
    (found,) = check("results", Context("a task", data={"results": data}))
    assert found.check == FAR
    assert check.pure is False


def added(rows: Any, size: int) -> Comparison:
    """The comparison of two columns, added so many rows at a time."""
    comparison = Comparison(("a", "p"), {})
    for start in range(0, len(rows), size):
        a, p = rows[start : start + size].T
        comparison.add(Numbers(a), Numbers(p))
    return comparison


CELLS = st.floats(-1e6, 1e6) | st.sampled_from([nan, inf, -inf, 1e200])


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=60), st.integers(1, 20))
def test_batches_say_what_the_whole_does(pairs, size):
    rows = np.array(pairs, dtype=float)
    parts, whole = added(rows, size), added(rows, len(rows))
    values = [v for v in rows[:, 0] if abs(v) <= 1e150]
    a, p = rows[(abs(rows) <= 1e150).all(axis=1)].T
    for read in (parts, whole):
        assert (read.all_actual.rows, read.all_actual.n, read.n) == (len(rows), len(values), len(a))
        assert read.all_actual.missing == np.isnan(rows[:, 0]).sum()
        assert (read.equal, read.steps.n) == (int((a == p).sum()), max(0, len(a) - 1))
        if len(values) > 1:
            std = statistics.stdev(values)
            assert read.all_actual.std == pytest.approx(std, rel=1e-9, abs=1e-6)
            assert read.all_actual.mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-6)
        if len(a) > 1:
            assert read.steps.square == pytest.approx(np.mean(np.diff(a) ** 2), rel=1e-9, abs=1e-9)
            assert read.error.square == pytest.approx(np.mean((p - a) ** 2), rel=1e-9, abs=1e-9)
            if a.std() > 1e-3 and p.std() > 1e-3:
                assert read.correlation == pytest.approx(np.corrcoef(a, p)[0, 1], abs=1e-6)
    assert (parts.copied, parts.fractional) == (whole.copied, whole.fractional)
    for one, other in ((parts.steps, whole.steps), (parts.all_actual, whole.all_actual)):
        assert (one.low, one.high, one.infinite) == (other.low, other.high, other.infinite)


@given(st.integers(1, 400), st.floats(1e8, 1e12), st.integers(0, 2**31))
def test_a_large_offset_takes_no_digits_away(size, offset, seed):
    noise = np.random.default_rng(seed).integers(-1000, 1000, 400) / 1024
    values = np.round(offset) + noise
    exact = float(np.std(values - np.round(offset), ddof=1))
    read = added(np.column_stack([values, values]), size)
    assert read.actual.std == pytest.approx(exact, rel=1e-6 * max(1.0, offset / 1e9))


def test_equal_values_have_no_spread_at_all():
    assert added(np.full((16, 2), 0.1), 7).actual.std == 0.0


def test_files_are_read_in_batches(tmp_path, monkeypatch):
    pl = pytest.importorskip("polars")
    monkeypatch.setattr(tables, "ROWS", 1_000)
    frame = pl.DataFrame(
        dict(zip(("actual", "predicted"), map(np.tile, GOOD, [25, 25]), strict=True))
    )
    frame.write_parquet(tmp_path / "r.parquet")
    frame.write_csv(tmp_path / "r.csv")
    whole = added(frame.to_numpy(), 10_000)
    for name in ("r.parquet", "r.csv"):
        read = compare_columns(tmp_path / name, "actual", "predicted")
        assert read.n == 10_000
        assert read.correlation == pytest.approx(whole.correlation, rel=1e-12)
        assert read.actual.std == pytest.approx(whole.actual.std, rel=1e-12)

"""Predictions against what they predict: bounds, degenerate input, no actual values."""

import statistics
from math import inf, nan
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.checks import numbers as checks
from heedful.checks import tables
from heedful.errors import InvalidInput
from heedful.loop.record import Finding
from tests.checks.support import findings

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
FAR = "hallucination_detection"
SPREAD = "variance_hallucination"
CONSTANT = "constant_predictions"


# Without actual values


@pytest.mark.parametrize(
    ("predicted", "options", "expected"),
    [
        (column(200, 0.0001), {}, [f"{CONSTANT}: predicted"]),
        (column(200, 1.999), {}, [f"{CONSTANT}: predicted"]),
        (column(200, 2), {}, []),  # at the bound
        (column(0, 0.0001), {}, []),
        (column(200, 2), {"constant_relative_std": 0.011}, [f"{CONSTANT}: predicted"]),
        ([5, 5], {}, [f"{CONSTANT}: predicted"]),
        ([5], {}, ["missing_results: one row"]),
        ([], {}, ["missing_results: empty"]),
        ([5, nan, 6], {}, ["finite: predicted missing"]),
        ({"predicted": [5, 5]}, {"actual": "y"}, ["predictions: missing column"]),
        (
            {"y": [None, None], "predicted": [5, 5]},
            {"actual": "y"},
            ["finite: y missing", "missing_results: no pairs"],
        ),
        ({"y": [5, 6]}, {}, ["predictions: missing column"]),
    ],
)
def test_predictions_without_actual_values(predicted, options, expected):
    check = checks.predictions(**{"actual": None, **options})
    found = findings(check, predicted)
    assert [one.key for one in found] == expected
    assert all(one.fix for one in found)
    assert set(check.names) >= {one.check for one in found} - {
        "missing_results",
        "predictions",
    }


# At the bounds


@pytest.mark.parametrize(
    ("predicted", "expected"),
    [
        (column(200 + 10 * 20, 20), []),
        (column(200 + 10.001 * 20, 20), [FAR]),
        (column(200, 2), []),
        (column(200, 1.999), [SPREAD, CONSTANT]),
        (column(200, 100), []),
        (column(200, 100.01), [SPREAD]),
    ],
)
def test_at_a_bound_nothing_is_found(predicted, expected):
    assert names(judged(actual_of(200, 20), predicted)) == expected


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
    check = checks.predictions(spread_ratio_max=1e9)
    found = [
        name for name in names(findings(check, (actual, predicted))) if name != SPREAD
    ]
    assert found == expected


# Leakage and skill


@pytest.mark.parametrize(
    ("actual", "predicted", "expected"),
    [
        (*GOOD, []),
        (GOOD[0], GOOD[0], [("error", "leakage: predicted")]),
        (
            np.round(GOOD[0]),
            np.round(GOOD[0]),
            [],
        ),  # whole numbers may be easy to predict
        (
            GOOD[0],
            np.where(np.arange(400) % 3 == 0, GOOD[1], GOOD[0]),
            [("warning", "leakage: predicted")],
        ),
        (GOOD[0], column(230, 20), [("warning", "skill: predicted")]),
        (GOOD[0], column(201, 18, like=0.05), [("warning", "shuffled: predicted")]),
        ([1.5, 2, 3], [1.5, 2, 3], []),  # too few rows to say
    ],
)
def test_leakage_and_skill(actual, predicted, expected):
    assert [(one.level, one.key) for one in judged(actual, predicted)] == expected


# Degenerate input


@pytest.mark.parametrize(
    ("actual", "predicted", "expected"),
    [
        ([], [], ["missing_results: empty"]),
        ([1.0], [2.0], ["missing_results: one row"]),
        (
            [1.0, 2.0],
            [None, None],
            ["finite: predicted missing", "missing_results: no pairs"],
        ),
        ([1, 2, 3], [1, 2], ["predictions: unequal lengths"]),
        ([5, 5, 5], [5, 5, 5], [f"{CONSTANT}: predicted"]),
        ([5, 5], [5, 6], [f"{FAR}: predicted", f"{SPREAD}: no spread"]),
        ([5, 5], [4, 6], [f"{SPREAD}: no spread"]),
        ([1, 2, 3.0], [1.5, inf, 3], ["finite: predicted infinite"]),
        ([1, 2, 3.0], [1.5, nan, 3], ["finite: predicted missing"]),
        ([1, 2, 3.0], [1.5, "about 2", 3], ["finite: predicted no numbers"]),
        (
            [1, 2],
            [True, False],
            ["finite: predicted no numbers", "missing_results: no pairs"],
        ),
        ([1e200, 2], [1, 2], ["finite: actual infinite", "missing_results: one row"]),
        (
            [1, -(10**400)],
            [1, 2],
            ["finite: actual infinite", "missing_results: one row"],
        ),
    ],
)
def test_degenerate_input_has_its_own_finding(actual, predicted, expected):
    found = judged(actual, predicted)
    assert [one.key for one in found if one.level == "error"] == expected
    assert all(one.fix for one in found)


def test_a_missing_actual_value_and_no_spread_in_either_are_warnings():
    (found,) = judged([*GOOD[0], None, nan], [*GOOD[1], 180.0, 190.0])
    assert found.level == "warning"
    assert found.key == "finite: actual missing"
    assert "actual has 2 of 402 cells that are NaN or missing" in found.message
    found = judged([5, 5, 5], [5, 5, 5])[0]
    assert found.level == "warning"
    assert found.check == SPREAD
    assert "all 3 values of actual are 5, its std is 0" in found.message


# Arguments and statistics


@pytest.mark.parametrize(
    "arguments",
    [
        {"actual": ""},
        {"actual": "y", "predicted": "y"},
        {"deviation_sigma": nan},
        {"spread_ratio_max": inf},
        {"spread_ratio_min": 6},
        {"newer_than": -1},
        {"constant_relative_std": True},
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(InvalidInput):
        checks.predictions(**arguments)


def added(values: Any, size: int) -> checks.Column:
    """The statistics of a column, added so many rows at a time."""
    column = checks.Column(name="x", low=0.0)
    for start in range(0, len(values), size):
        column.add(values[start : start + size])
    return column


CELLS = st.floats(-1e6, 1e6) | st.sampled_from([nan, inf, -inf, 1e200])


@given(st.lists(CELLS, min_size=1, max_size=60), st.integers(1, 20))
def test_batches_say_what_the_whole_does(cells, size):
    values = np.array(cells)
    finite = [value for value in cells if abs(value) <= 1e150]
    for read in (added(values, size), added(values, len(values))):
        counts = len(cells), len(finite), np.isnan(values).sum()
        assert (read.rows, read.n, read.missing) == counts
        assert read.outside == (values < 0).sum()
        if finite:
            assert read.least == min(finite)
            assert read.most == max(finite)
        if len(finite) > 1:
            std = statistics.stdev(finite)
            assert read.std == pytest.approx(std, rel=1e-9, abs=1e-6)
            assert read.mean == pytest.approx(np.mean(finite), rel=1e-9, abs=1e-6)


@given(st.integers(1, 400), st.floats(1e8, 1e12), st.integers(0, 2**31))
def test_a_large_offset_takes_no_digits_away(size, offset, seed):
    noise = np.random.default_rng(seed).integers(-1000, 1000, 400) / 1024
    values = np.round(offset) + noise
    exact = float(np.std(values - np.round(offset), ddof=1))
    assert added(values, size).std == pytest.approx(
        exact, rel=1e-6 * max(1.0, offset / 1e9)
    )


def test_files_are_read_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BATCH_ROWS", 100)
    data = {"actual": GOOD[0], "predicted": 30 * GOOD[1]}
    frame = pl.DataFrame(data)
    frame.write_parquet(tmp_path / "r.parquet")
    frame.write_csv(tmp_path / "r.csv")
    expected = findings(checks.predictions(), data)
    assert names(expected) == [FAR, SPREAD]
    for name in ("r.parquet", "r.csv"):
        assert findings(checks.predictions(tmp_path / name), None) == expected

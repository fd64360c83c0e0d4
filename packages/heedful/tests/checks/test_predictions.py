"""Predictions against what they predict: bounds, degenerate input, no actual values."""

import statistics
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from heedful.checks import numbers as checks, tables
from heedful.errors import InvalidInput
from heedful.loop.record import Finding
from tests.checks.support import findings
from tests.tables import cases

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


def check_both(actual: Any, predicted: Any, **options: Any) -> list[Finding]:
    return findings(checks.predictions(**options), (actual, predicted))


def names(problems: list[Finding], level: str = "error") -> list[str]:
    return [finding.check for finding in problems if finding.level == level]


GOOD = actual_of(200, 20), column(201, 18)
FAR = "hallucination_detection"
SPREAD = "variance_hallucination"
CONSTANT = "constant_predictions"


# Without actual values


@cases(
    "predicted, options, expected",
    {
        "at the bound": (column(200, 2), {}, []),  # at the bound
        "equal values": ([5, 5], {}, [f"{CONSTANT}: predicted"]),
        "no rows": ([], {}, ["missing_results: empty"]),
        "no column of actual values": (
            {"predicted": [5, 5]},
            {"actual": "y"},
            ["predictions: missing column"],
        ),
    },
)
def test_predictions_without_actual_values(predicted, options, expected):
    check = checks.predictions(**{"actual": None, **options})
    problems = findings(check, predicted)
    assert [finding.key for finding in problems] == expected
    assert all(finding.fix for finding in problems)
    assert set(check.names) >= {finding.check for finding in problems} - {
        "missing_results",
        "predictions",
    }


# At the bounds


@cases(
    "predicted, expected",
    {
        "at the bound of the mean": (column(200 + 10 * 20, 20), []),
        "at the lower bound of the spread": (column(200, 2), []),
        "below the lower bound of the spread": (column(200, 1.999), [SPREAD, CONSTANT]),
        "at the upper bound of the spread": (column(200, 100), []),
    },
)
def test_at_a_bound_nothing_is_found(predicted, expected):
    assert names(check_both(actual_of(200, 20), predicted)) == expected


@cases(
    "actual, predicted, expected",
    {
        "the actual is spread": (actual_of(300, 200), column(300, 1.9), [CONSTANT]),
        "all zeros": (actual_of(0, 20), np.zeros(400), [CONSTANT]),
        "at the bound": (actual_of(0, 20), column(0, 0.2), []),  # at the bound
        "above the bound": (actual_of(0, 20), column(20, 0.21), []),
    },
)
def test_constant_is_seen_against_the_actual_too(actual, predicted, expected):
    check = checks.predictions(spread_ratio_max=1e9)
    problems = [
        name for name in names(findings(check, (actual, predicted))) if name != SPREAD
    ]
    assert problems == expected


TIDE = [4 + 3 * np.sin(hour / 2) for hour in range(60)]
STEP = [1, 5, 2, 6, 3, 7, 2, 5, 1, 6, *[4] * 20]


@cases(
    "actual, predicted, expected",
    {
        "settles early": (TIDE, [*TIDE[:9], *[4.1] * 51], True),
        "settles half way": (TIDE, [*TIDE[:30], *[4.1] * 30], True),
        "comes nearer and nearer to one value": (
            TIDE,
            [4 + 3 * 0.4**hour for hour in range(60)],
            True,
        ),
        "only the last quarter": (TIDE, [*TIDE[:45], *[4.1] * 15], False),
        "the actual settles too": (STEP, [*STEP[1:10], 3, *[4] * 20], False),
        "too few rows to say": (TIDE[:6], [3, 5, 4, 4, 4, 4], False),
        "no actual values": (None, [*TIDE[:9], *[4.1] * 51], True),
    },
)
@cases("size", {"many batches": 7, "one batch": 1000})
def test_a_forecast_that_settles_is_constant(
    actual, predicted, expected, size, monkeypatch
):
    monkeypatch.setattr(tables, "BATCH_ROWS", size)
    data = {"actual": actual, "predicted": predicted}
    options: dict[str, Any] = {}
    if actual is None:
        data.pop("actual")
        options["actual"] = None
    problems = findings(checks.predictions(**options), data)
    assert (CONSTANT in names(problems)) == expected


# Leakage


@cases(
    "actual, predicted, expected",
    {
        "good predictions": (GOOD[0], GOOD[1], []),
        "the actual values themselves": (
            GOOD[0],
            GOOD[0],
            [("error", "leakage: predicted")],
        ),
        "two thirds of the actual values": (
            GOOD[0],
            np.where(np.arange(400) % 3 == 0, GOOD[1], GOOD[0]),
            [("warning", "leakage: predicted")],
        ),
        "too few rows to say": ([1.5, 2, 3], [1.5, 2, 3], []),  # too few rows to say
    },
)
def test_copies_of_the_actual_values_are_found(actual, predicted, expected):
    assert [
        (finding.level, finding.key) for finding in check_both(actual, predicted)
    ] == expected


# Degenerate input


@cases(
    "actual, predicted, expected",
    {
        "no rows": ([], [], ["missing_results: empty"]),
        "all missing": (
            [1.0, 2.0],
            [None, None],
            ["finite: predicted missing", "missing_results: no pairs"],
        ),
        "unequal lengths": ([1, 2, 3], [1, 2], ["predictions: unequal lengths"]),
        "constant on both sides": ([5, 5, 5], [5, 5, 5], []),
        "constant actual values, and far": (
            [5, 5],
            [5, 6],
            [f"{FAR}: predicted", f"{SPREAD}: no spread"],
        ),
        "missing": ([1, 2, 3.0], [1.5, nan, 3], ["finite: predicted missing"]),
        "booleans": (
            [1, 2],
            [True, False],
            ["finite: predicted no numbers", "missing_results: no pairs"],
        ),
    },
)
def test_degenerate_input_has_its_own_finding(actual, predicted, expected):
    problems = check_both(actual, predicted)
    assert [finding.key for finding in problems if finding.level == "error"] == expected
    assert all(finding.fix for finding in problems)


def test_a_missing_actual_value_and_no_spread_in_either_are_warnings():
    (warning,) = check_both([*GOOD[0], None, nan], [*GOOD[1], 180.0, 190.0])
    assert warning.level == "warning"
    assert warning.key == "finite: actual missing"
    assert "actual has 2 of 402 cells that are NaN or missing" in warning.message
    warning = check_both([5, 5, 5], [5, 5, 5])[0]
    assert warning.level == "warning"
    assert warning.check == SPREAD
    assert "all 3 values of actual are 5, its std is 0" in warning.message


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


def test_files_are_read_in_batches(tmp_path, monkeypatch):
    import polars as pl

    monkeypatch.setattr(tables, "BATCH_ROWS", 100)
    data = {"actual": GOOD[0], "predicted": 30 * GOOD[1]}
    frame = pl.DataFrame(data)
    frame.write_parquet(tmp_path / "r.parquet")
    frame.write_csv(tmp_path / "r.csv")
    expected = findings(checks.predictions(), data)
    assert names(expected) == [FAR, SPREAD]
    for name in ("r.parquet", "r.csv"):
        assert findings(checks.predictions(tmp_path / name), None) == expected

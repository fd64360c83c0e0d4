from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from decimal import Decimal
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

from heedful.checks import fields as checks_fields
from heedful.checks import fields as numbers_fields
from heedful.checks import keyed as numbers_keyed
from heedful.checks import numbers
from heedful.checks import numbers as checks
from heedful.checks.evaluate import Context
from heedful.errors import InvalidInput
from heedful.loop.record import Finding
from tests.checks.support import CONTEXT, findings, keys

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


def judged(actual: Any, predicted: Any, **options: Any) -> list[Finding]:
    return findings(checks.predictions(**options), (actual, predicted))


def names(found: list[Finding], level: str = "error") -> list[str]:
    return [finding.check for finding in found if finding.level == level]


def actual_of(mean: float, std: float) -> Any:
    """Actual values of this mean and deviation."""
    return column(mean, std, like=1)


GOOD = actual_of(200, 20), column(201, 18)


CELLS = st.one_of(
    st.floats(width=32), st.floats(-100, 100), st.integers(-(10**12), 10**12), st.none()
)
MIXED = CELLS | st.booleans() | st.decimals(-1000, 1000) | st.sampled_from(["7", " 1e3", "x", ""])

CHECKS: list[Callable[..., Any]] = [
    checks.predictions(),
    checks_fields.ranges(actual=(0, 50), predicted=(None, 7)),
    checks_fields.finite(columns=["actual", "predicted"]),
]


# The documented cases


def test_predictions_that_follow_the_actual_pass():
    assert judged(*GOOD) == []


@pytest.mark.parametrize(
    ("actual", "predicted", "sigma"),
    [(89.23, 1234.56, 15.3), (200.0, 5000.0, 25.0)],
)
def test_a_mean_far_away_is_hallucinated(actual, predicted, sigma):
    std = (predicted - actual) / sigma
    (found,) = judged(actual_of(actual, std), column(predicted, std))
    assert found.check == "hallucination_detection"
    assert found.level == "error"
    assert found.message.startswith("predictions appear hallucinated: ")
    for value in (predicted, actual, sigma):
        assert f"{value:g}" in found.message
    assert found.fix.startswith("verify that the model uses the actual data")
    assert "retrain" in found.fix


@pytest.mark.parametrize(
    ("std", "ratio", "variance"), [(500.0, "0.05", "0.0025"), (10.0, "0.001", "1e-06")]
)
def test_a_spread_far_too_small_is_hallucinated(std, ratio, variance):
    found = judged(actual_of(3000, 10_000), column(3000, std))
    assert found[0].check == "variance_hallucination"
    assert found[0].level == "error"
    assert found[0].message.startswith("unrealistic spread: ")
    assert f"is {std:g}, that of actual 10000" in found[0].message
    assert f"std ratio {ratio} (variance ratio {variance})" in found[0].message
    assert found[0].fix.startswith("check for synthetic data")


def test_a_spread_far_too_large_is_hallucinated():
    (found,) = judged(actual_of(200, 20), column(200, 101))
    assert found.key == "variance_hallucination: high"
    assert "std ratio 5.05 (variance ratio 25.5025)" in found.message


def test_nearly_constant_predictions():
    found = judged(actual_of(200, 20), column(200, 0.0001))
    assert names(found) == ["variance_hallucination", "constant_predictions"]
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
        (column(200 + 10.001 * 20, 20), ["hallucination_detection"]),
        (column(200, 2), []),
        (column(200, 1.999), ["variance_hallucination", "constant_predictions"]),
        (column(200, 100), []),
        (column(200, 100.01), ["variance_hallucination"]),
    ],
)
def test_at_a_bound_nothing_is_found(predicted, expected):
    assert names(judged(actual_of(200, 20), predicted)) == expected


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(1, 40), st.integers(1, 99))
def test_the_bounds_decide_as_the_formulas_do(mean, std, sigma, percent):
    actual = actual_of(mean, std)
    far = column(mean + sigma * std * 0.99, std)
    assert findings(checks.deviation(sigma=sigma), (actual, far)) == []
    far = column(mean + sigma * std * 1.01, std)
    assert keys(checks.deviation(sigma=sigma), (actual, far)) == [
        "hallucination_detection: predicted"
    ]
    share = percent / 100
    check = checks.spread(ratio_min=share, ratio_max=1 / share)
    for times, key in ((1.01, []), (0.99, ["variance_hallucination: low"])):
        assert keys(check, (actual, column(mean, std * share * times))) == key
        high = [one.replace("low", "high") for one in key]
        assert keys(check, (actual, column(mean, std / share / times))) == high


def test_constant_is_seen_against_the_actual_too():
    def found(actual: Any, predicted: Any) -> list[str]:
        return names(findings(checks.constant(), (actual, predicted)))

    assert found(actual_of(300, 2), column(300, 1.9)) == []  # kelvin: as constant as the actual
    assert found(actual_of(300, 200), column(300, 1.9)) == ["constant_predictions"]
    assert found(actual_of(0, 20), column(0, 0.1)) == ["constant_predictions"]
    assert found(actual_of(0, 20), np.zeros(400)) == ["constant_predictions"]
    assert found(actual_of(0, 20), column(0, 0.2)) == []  # at the bound
    assert found(actual_of(0, 20), column(20, 0.21)) == []


# Degenerate input


@pytest.mark.parametrize(
    ("actual", "predicted", "expected"),
    [
        ([], [], ["missing_results: empty"]),
        ([1.0], [2.0], ["missing_results: one row"]),
        ([1.0, 2.0], [None, None], ["finite: predicted missing", "missing_results: no pairs"]),
        ([1, 2, 3], [1, 2], ["predictions: unequal lengths"]),
        ([5, 5, 5], [5, 5, 5], ["constant_predictions: predicted"]),
        (
            [5, 5],
            [5, 6],
            ["hallucination_detection: predicted", "variance_hallucination: no spread"],
        ),
        ([5, 5], [4, 6], ["variance_hallucination: no spread"]),
        ([1, 2, 3.0], [1.5, inf, 3], ["finite: predicted infinite"]),
        ([1, inf, 3.0], [1.5, 2, 3], ["finite: actual infinite"]),
        ([1, 2, 3.0], [1.5, nan, 3], ["finite: predicted missing"]),
        ([1, 2, 3.0], [1.5, "about 2", 3], ["finite: predicted no numbers"]),
        (
            [1, 2, 3.0],
            [True, False, True],
            ["finite: predicted no numbers", "missing_results: no pairs"],
        ),
        ([1e200, 2], [1, 2], ["finite: actual infinite", "missing_results: one row"]),
        ([1, 10**400], [1, 2], ["finite: actual infinite", "missing_results: one row"]),
    ],
)
def test_degenerate_input_has_its_own_finding(actual, predicted, expected):
    found = judged(actual, predicted)
    assert [one.key for one in found if one.level == "error"] == expected
    assert all(one.fix for one in found)


def test_no_spread_in_either_is_said():
    found = judged([5, 5, 5], [5, 5, 5])
    assert names(found, "warning") == ["variance_hallucination"]
    assert "all 3 values of actual are 5, its std is 0" in found[0].message
    assert names(findings(checks.skill(), ([5] * 20, [4, 6] * 10)), "warning") == ["skill"]


def test_an_actual_value_may_be_missing():
    actual = [*GOOD[0], None, nan]
    found = judged(actual, [*GOOD[1], 180.0, 190.0])
    assert [(one.level, one.key) for one in found] == [("warning", "finite: actual missing")]
    assert "actual has 2 of 402 cells that are NaN or missing" in found[0].message


def test_cells_that_are_no_numbers_are_named():
    (found,) = judged([*GOOD[0], 1, 2], [*GOOD[1], "n.a.!", "x"])[:1]
    assert found.message == ("predicted has 2 of 402 cells that are no numbers, first 'n.a.!'")


@pytest.mark.parametrize(
    ("candidate", "key"),
    [
        (None, "no data"),
        (7, "not a table"),
        (object(), "not a table"),
        ("not json", "missing_results: corrupt"),
        ("7", "not a table"),
        ([1, 2], "columns"),
        ([{"actual": 1, "predicted": 1}, 5], "not a table"),
        (np.zeros((2, 2, 2)), "not a table"),
        (np.zeros((5, 3)), "columns"),
        ({"actual": [1, 2], "yhat": [1, 2]}, "missing column"),
        ({"actual": [1, 2, 3], "predicted": [1, 2]}, "unequal lengths"),
        (pl.DataFrame({"actual": [1]}), "missing column"),
        (pd.DataFrame([[1, 2]], columns=["actual", "actual"]), "columns"),
        ((), "not a table"),
        (b"bytes", "not a table"),
    ],
    ids=map(str, range(15)),
)
def test_what_is_no_table_is_a_finding(candidate, key):
    (found,) = findings(checks.predictions(), candidate)
    assert found.key in (key, f"predictions: {key}")
    assert found.level == "error"
    assert found.fix


def test_a_missing_column_lists_those_there_are():
    (found,) = findings(checks.predictions(predicted="yhat"), {"actual": [1], "pred": [1]})
    assert found.message == "there is no column 'yhat'; there are: actual, pred"
    assert found.fix == "write a column called 'yhat'"


@pytest.mark.parametrize(
    ("header", "fix"),
    [
        ("actual,Predicted ", "call the column 'Predicted ' 'predicted', exactly"),
        ("actual;predicted", "separate the cells of a row by commas, or by tabs in a .tsv file"),
        ("actual\tpredicted", "separate the cells of a row by commas, or by tabs in a .tsv file"),
        ("actual,unpredicted", "write a column called 'predicted'"),
    ],
)
def test_a_column_that_is_nearly_there_is_told_how_to_mend_it(tmp_path, header, fix):
    path = tmp_path / "r.csv"
    path.write_text(f"{header}\n")
    (found,) = findings(checks.predictions(path), None)
    assert found.fix.startswith(fix)


def test_a_text_is_never_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("r.json").write_text(json.dumps({"actual": [1, 2], "predicted": [1, 2]}))
    assert keys(checks.predictions(), "r.json") == ["missing_results: corrupt"]
    (answer,) = findings(checks.predictions(), "r.json")
    assert answer.message.startswith("the answer cannot be read: ")
    assert answer.fix == "answer with JSON, or give the path of the results"
    assert keys(checks.predictions(), Path("r.json")) == [
        "leakage: too few rows",
        "skill: too few rows",
    ]


def test_columns_may_stand_among_other_things():
    output = {"actual": GOOD[0], "predicted": GOOD[1], "rmse": 3.2, "model": "x", "seeds": [1, 2]}
    assert findings(checks.predictions(), output) == []
    assert keys(checks_fields.finite(columns="seeds"), output) == []
    assert keys(checks_fields.finite(columns=["seeds", "actual"]), output) == [
        "finite: unequal lengths"
    ]
    assert keys(checks_fields.ranges(rmse=(0, 1)), {"rmse": 3.2, "model": "x"}) == [
        "ranges: rmse above"
    ]


ANYTHING = st.recursive(
    MIXED | st.binary() | st.dates() | st.just(np.float64(2)) | st.just(np.array(7)),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["actual", "predicted", "z"]), inner)
        | st.tuples(inner, inner)
        | st.lists(st.floats()).map(np.array)
    ),
)


@settings(max_examples=150)
@given(ANYTHING)
def test_whatever_the_candidate_is_findings_say_so(candidate):
    more: list[Any] = [
        numbers_keyed.rows(key="actual"),
        numbers_fields.schema(schema={"actual": "integer"}),
    ]
    for check in (*CHECKS, *more, numbers_fields.schema(schema={"actual": "date"})):
        for found in findings(check, candidate):
            assert found.message
            assert found.fix or found.level == "note"


# Leakage and skill


def test_copied_fractions_are_an_error_whole_numbers_a_warning():
    (found,) = judged(GOOD[0], GOOD[0])
    assert (found.level, found.key) == ("error", "leakage: copied")
    whole = np.round(GOOD[0])
    (found,) = judged(whole, whole)
    assert (found.level, found.key) == ("warning", "leakage: copied")
    part = np.where(np.arange(400) % 3 == 0, GOOD[1], GOOD[0])
    (found,) = judged(GOOD[0], part)
    assert (found.level, found.key) == ("warning", "leakage: copied in part")
    assert "in 266 of 400 rows" in found.message


def test_a_line_through_the_actual_is_too_good():
    (found,) = judged(GOOD[0], 1.1 * GOOD[0] - 19)
    assert (found.level, found.key) == ("warning", "leakage: too good")
    assert judged(GOOD[0], 1.1 * GOOD[0] - 19, believable=1.0) == []


def test_a_trend_is_easy_to_follow():
    trend = np.arange(400) * 50.0 + OTHER
    assert np.corrcoef(trend, trend + UNIT)[0, 1] ** 2 > 0.9999
    assert judged(trend, trend + UNIT) == []


def test_a_column_that_gives_the_answer_away():
    data = {"actual": GOOD[0], "predicted": GOOD[1], "lag": GOOD[1], "target": GOOD[0], "x": UNIT}
    found = findings(checks.predictions(features=["lag", "target", "x"]), data)
    assert [one.key for one in found] == [
        "leakage: predicted is lag",
        "leakage: actual is target",
    ]
    assert names(found, "warning") == ["leakage"] * 2


def test_a_copy_is_no_leak_where_few_rows_or_no_spread_show_it():
    few = {"actual": [1, 2], "predicted": [1, 2], "x": [1, 2]}
    flat = {"actual": [5] * 20, "predicted": [5] * 20, "x": [5] * 20}
    for data in (few, flat):
        found = findings(checks.leakage(features=["x"]), data)
        assert [one for one in found if one.level != "note"] == []


def test_no_better_than_the_mean_or_the_last_value():
    (found,) = judged(actual_of(200, 20), column(230, 20))
    assert found.level == "warning"
    assert found.key == "skill: the mean of all values"
    walk = 200 + np.cumsum(UNIT)
    (found,) = judged(walk, walk + 3 * OTHER)
    assert found.key == "skill: the value of the row before"
    assert found.level == "warning"
    order = np.argsort(walk)  # sorted rows say nothing of the row before
    assert judged(walk[order], (walk + 3 * OTHER)[order]) == []


def test_shuffled_predictions():
    (found,) = judged(actual_of(200, 20), column(201, 18, like=0.05))
    assert (found.level, found.check) == ("warning", "shuffled")
    assert "correlation" in found.message


def test_below_ten_rows_a_note_says_what_was_not_judged():
    leak, skill = judged([1.5, 2, 3], [1.4, 2.2, 2.9])
    assert (leak.level, leak.check, leak.key) == ("note", "leakage", "leakage: too few rows")
    assert (skill.level, skill.check, skill.key) == ("note", "skill", "skill: too few rows")
    assert keys(checks.leakage(), ([7] * 20, list(range(20)))) == ["leakage: no spread"]
    assert findings(checks.spread(), ([1.5, 2, 3], [1.4, 2.2, 2.9])) == []


# Ranges and finite cells


def test_ranges_count_what_lies_outside():
    check = checks_fields.ranges(None, {"a b": (0, None)}, share=(0, 1))
    data = {"a b": [-1, -2, 3], "share": [0, 1, 1.5], "name": ["x", "y", "z"]}
    below, above = findings(check, data)
    assert below.key == "ranges: a b below"
    assert below.message == "a b has 2 of 3 values below 0; the lowest is -2"
    assert above.message == "share has 1 of 3 values above 1; the highest is 1.5"
    assert "keep a b at least 0:" in below.fix
    assert "keep share within 0 to 1:" in above.fix
    close = [1.0000001, 12345678.25]
    (found,) = findings(checks_fields.ranges(x=(None, 1)), {"x": close})
    assert found.message == "x has 2 of 2 values above 1; the highest is 12345678.25"
    (found,) = findings(checks_fields.ranges(x=(None, 1)), {"x": close[:1]})
    assert found.message.endswith("the highest is 1.0000001")
    assert "keep x at most 1:" in found.fix
    assert findings(check, {"a b": [0], "share": [1.0]}) == []
    assert keys(check, {"a b": [nan, 1], "share": []}) == ["ranges: unequal lengths"]
    assert keys(check, {"a b": [nan, -inf], "share": [1, "?"]}) == [
        "finite: a b missing",
        "finite: a b infinite",
        "ranges: a b empty",
        "ranges: a b below",
        "finite: share no numbers",
    ]


def test_finite_looks_at_the_columns_that_hold_numbers():
    data = {"name": ["x", "y"], "a": [1, None], "b": [1, 2]}
    assert keys(checks_fields.finite(), data) == ["finite: a missing"]
    assert keys(checks_fields.finite(columns="b"), data) == []
    assert keys(checks_fields.finite(columns=["name"]), data) == [
        "finite: name no numbers",
        "finite: name empty",
    ]
    assert keys(checks_fields.finite(), {"name": ["x"]}) == ["finite: no numbers"]


@pytest.mark.parametrize(
    ("factory", "arguments"),
    [
        (checks.predictions, {"actual": ""}),
        (checks.predictions, {"actual": "y", "predicted": "y"}),
        (checks.predictions, {"deviation_sigma": -1}),
        (checks.predictions, {"deviation_sigma": nan}),
        (checks.predictions, {"spread_ratio_min": 6}),
        (checks.predictions, {"believable": 1.5}),
        (checks.predictions, {"features": [1]}),
        (checks.predictions, {"features": ["predicted"]}),
        (checks.deviation, {"sigma": "ten"}),
        (checks.constant, {"relative_std": True}),
        (checks_fields.ranges, {}),
        (checks_fields.ranges, {"a": (2, 1)}),
        (checks_fields.ranges, {"a": (None, None)}),
        (checks_fields.ranges, {"a": 5}),
        (checks_fields.ranges, {"columns": [("a", (0, 1))]}),
        (checks_fields.ranges, {"columns": "a"}),
        (checks_fields.finite, {"columns": 5}),
    ],
)
def test_wrong_arguments_are_refused(factory, arguments):
    with pytest.raises(InvalidInput):
        factory(**arguments)


# Sources agree


def test_a_source_may_be_made_from_the_state():
    data = {"y": list(GOOD[0]), "yhat": list(GOOD[1] + 1e6)}
    check = numbers.predictions(lambda candidate, state: state[candidate], "y", "yhat")
    (found,) = check("results", Context("a task", data={"results": data}))
    assert found.check == "hallucination_detection"
    assert check.pure is False


def test_masked_cells_are_missing_and_the_widest_whole_numbers_are_numbers():
    actual, predicted = GOOD
    masked = {
        "actual": np.ma.masked_array(actual, np.arange(len(actual)) < 3),
        "predicted": predicted,
    }
    (found,) = findings(checks.predictions(), masked)
    assert (found.level, found.key) == ("warning", "finite: actual missing")
    whole = pl.DataFrame(dict(zip(masked, (1e9 * actual, 1e9 * predicted), strict=True)))
    assert findings(checks.predictions(), whole.cast(pl.Int128)) == []


@pytest.mark.parametrize("scan", [pl.scan_csv, pl.scan_parquet])
def test_a_lazy_frame_of_a_file_that_is_gone_has_no_results(tmp_path, scan):
    check = checks.predictions(lambda candidate, state: scan(tmp_path / "gone.csv"))
    (found,) = findings(check, None)
    assert found.key == "missing_results: corrupt"
    assert "the data frame cannot be read: " in found.message
    assert "gone.csv" in found.message


@pytest.mark.parametrize("cell", [True, np.bool_(False), "1_000", "١٢", "½", "1,000", "5 %", 1j])
def test_what_is_no_number(cell):
    (found,) = findings(checks_fields.finite(columns="x"), {"x": [1.0, cell]})
    assert found.key == "finite: x no numbers"
    array = np.array([cell, cell])
    assert keys(checks_fields.finite(columns="x"), {"x": array}) == [
        "finite: x no numbers",
        "finite: x empty",
    ]


def test_the_mean_itself_has_no_skill():
    actual, _ = GOOD
    (found,) = findings(checks.skill(), (actual, np.full(len(actual), actual.mean())))
    assert found.key == "skill: the mean of all values"


def text(cell: Any) -> str:
    return "" if cell is None else str(cell)


def plain(cell: Any) -> Any:
    """The cell as JSON has it."""
    return str(cell) if isinstance(cell, Decimal) else cell


def forms(data: dict[str, list[Any]], folder: Path) -> dict[str, Any]:
    """The same cells in all forms that hold them, whatever their kinds."""
    rows = [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]
    json_ = {name: [plain(cell) for cell in cells] for name, cells in data.items()}
    paths = [folder / f"r.{suffix}" for suffix in ("csv", "json", "jsonl", "parquet")]
    csv.write_csv(
        pa.table({n: pa.array(map(text, c), pa.string()) for n, c in data.items()}), paths[0]
    )
    paths[1].write_text(json.dumps(json_))
    lines = [json.dumps({name: plain(cell) for name, cell in row.items()}) for row in rows]
    paths[2].write_text("\n".join([*lines, ""]))
    as_text = {n: [None if c is None else str(c) for c in cells] for n, cells in data.items()}
    parquet.write_table(
        pa.table({n: pa.array(c, pa.string()) for n, c in as_text.items()}), paths[3]
    )
    return {
        "mapping": data,
        "rows": rows,
        "pandas": pd.DataFrame({n: pd.Series(c, dtype=object) for n, c in data.items()}),
        "polars": pl.DataFrame({n: pl.Series(c, dtype=pl.Object) for n, c in data.items()}),
        "texts": pl.DataFrame(as_text, schema=dict.fromkeys(data, pl.String)),
        "JSON text": json.dumps(json_),
        **{path.suffix: path for path in paths},
    }


def told(found: list[Finding]) -> list[tuple[str, ...]]:
    """What is said, but for how a cell is quoted."""
    said = (finding.message.split(", first ")[0] for finding in found)
    return [(f.key, f.level, message) for f, message in zip(found, said, strict=True)]


@settings(max_examples=40)
@given(st.lists(st.tuples(MIXED, MIXED), min_size=1, max_size=40))
def test_every_form_of_the_same_cells_gives_the_same_findings(tmp_path_factory, pairs):
    actual, predicted = map(list, zip(*pairs, strict=True))
    made = forms({"actual": actual, "predicted": predicted}, tmp_path_factory.mktemp("forms"))
    for check in CHECKS:
        expected = told(findings(check, made["mapping"]))
        for name, form in made.items():
            assert (name, told(findings(check, form))) == (name, expected)


@settings(max_examples=40)
@given(st.lists(st.tuples(*[st.one_of(st.none(), st.floats())] * 2), min_size=1, max_size=40))
def test_typed_frames_agree_with_lists(tmp_path_factory, pairs):
    actual, predicted = map(list, zip(*pairs, strict=True))
    data = {"actual": actual, "predicted": predicted}
    table = pa.table({n: pa.array(c, pa.float64()) for n, c in data.items()})
    path = tmp_path_factory.mktemp("typed") / "r.parquet"
    parquet.write_table(table, path)
    array = np.array(pairs, dtype=float)
    polars = pl.DataFrame(table.to_pydict(), schema=dict.fromkeys(data, pl.Float64))
    typed = [table, path, polars, polars.lazy(), table.to_pandas(), array, tuple(array.T)]
    typed += [(pd.Series(actual, dtype=float), array[:, 1])]
    for check in CHECKS:
        expected = told(findings(check, data))
        for form in typed:
            assert told(findings(check, form)) == expected


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60))
def test_deviations_are_those_of_the_sample(values):
    read = numbers.compared((values, values), "a", "b")
    assert read.actual.std == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-9)
    assert read.actual.mean == pytest.approx(statistics.fmean(values), rel=1e-9, abs=1e-9)


def test_ten_thousand_rows_of_a_file_are_read_in_batches(tmp_path, monkeypatch):
    import heedful.checks.batches as batches

    monkeypatch.setattr(batches, "ROWS", 1_000)
    actual = np.tile(GOOD[0], 25)
    frame = pl.DataFrame({"actual": actual, "predicted": np.tile(GOOD[1], 25)})
    frame.write_parquet(tmp_path / "r.parquet")
    frame.write_csv(tmp_path / "r.csv")
    whole = numbers.compared((actual, frame["predicted"].to_numpy()), "actual", "predicted")
    for name in ("r.parquet", "r.csv"):
        read = numbers.compared(tmp_path / name, "actual", "predicted")
        assert read.pairs.n == 10_000
        assert read.pairs.correlation == pytest.approx(whole.pairs.correlation, rel=1e-12)
        assert read.actual.std == pytest.approx(np.std(actual, ddof=1), rel=1e-12)


def test_without_pyarrow_an_error_names_the_extra(tmp_path, monkeypatch):
    import sys

    from heedful.errors import PackageMissing

    (tmp_path / "r.csv").write_text("actual,predicted\n1,2\n")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        PackageMissing, match=r"reading CSV needs pyarrow: pip install 'heedful\[fr"
    ):
        findings(checks.predictions(tmp_path / "r.csv"), None)
    with pytest.raises(PackageMissing, match="reading a DataFrame needs pyarrow"):
        findings(checks.predictions(), pl.DataFrame())
    assert keys(checks.predictions(), {"actual": [1], "predicted": [1]})
    assert CONTEXT.began == 0.0

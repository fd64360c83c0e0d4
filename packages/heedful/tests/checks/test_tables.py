"""Tables in every form: what can be read, what a cell means, ranges, keys, files."""

import json
import os
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from heedful.checks import numbers
from heedful.checks.evaluate import Context
from heedful.errors import InvalidInput, PackageMissing
from heedful.loop.record import Finding
from tests.checks.support import findings, keys
from tests.tables import cases

CELLS = st.one_of(
    st.floats(width=32), st.floats(-100, 100), st.integers(-(10**12), 10**12), st.none()
)
MIXED = (
    CELLS
    | st.booleans()
    | st.decimals(-1000, 1000)
    | st.sampled_from(["7", " 1e3", "x", ""])
)
CHECKS: list[Callable[..., Any]] = [
    numbers.predictions(),
    numbers.ranges(actual=(0, 50), predicted=(None, 7)),
    numbers.finite(columns=["actual", "predicted"]),
]
SUFFIXES = pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])


# What is a table


@cases(
    "candidate, key",
    {
        "None": (None, "no data"),
        "an object": (object(), "not a table"),
        "a text": ("not json", "missing_results: corrupt"),
        "a list of numbers": ([1, 2], "columns"),
        "another column": ({"actual": [1, 2], "yhat": [1, 2]}, "missing column"),
        "columns of two lengths": (
            {"actual": [1, 2, 3], "predicted": [1, 2]},
            "unequal lengths",
        ),
    },
)
def test_what_is_no_table_is_a_finding(candidate, key):
    check_is_no_table(candidate, key)


def test_a_pandas_frame_with_a_column_twice_is_no_table():
    import pandas as pd

    frame = pd.DataFrame([[1, 2]], columns=["actual", "actual"])
    check_is_no_table(frame, "columns")


def check_is_no_table(candidate: Any, key: str) -> None:
    """Check that the only finding about a candidate has this key, and a fix."""
    (finding,) = findings(numbers.predictions(), candidate)
    assert finding.key in (key, f"predictions: {key}")
    assert finding.level == "error"
    assert finding.fix


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
    all_checks: list[Any] = [*CHECKS, numbers.rows(key="actual")]
    for check in all_checks:
        for finding in findings(check, candidate):
            assert finding.message
            assert finding.fix or finding.level == "note"


def test_a_text_is_never_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("r.json").write_text(json.dumps({"x": [1, 2]}))
    (answer,) = findings(numbers.finite(), "r.json")
    assert answer.key == "missing_results: corrupt"
    assert answer.message.startswith("the answer cannot be read: ")
    assert answer.fix == "answer with JSON, or give the path of the results"
    assert findings(numbers.finite(), Path("r.json")) == []


# Every form of the same cells agrees


def as_json(cell: Any) -> Any:
    return str(cell) if isinstance(cell, Decimal) else cell


def forms(data: dict[str, list[Any]], folder: Path) -> dict[str, Any]:
    """The same cells in all forms that hold them, whatever their kinds."""
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyarrow import csv, parquet

    rows = [
        dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)
    ]
    json_cells = {
        name: [as_json(cell) for cell in cells] for name, cells in data.items()
    }
    text = {
        n: [None if c is None else str(c) for c in cells] for n, cells in data.items()
    }
    paths = [folder / f"r.{suffix}" for suffix in ("csv", "json", "parquet")]
    table = pa.table({n: pa.array(c, pa.string()) for n, c in text.items()})
    csv.write_csv(table, paths[0])
    paths[1].write_text(json.dumps(json_cells))
    parquet.write_table(table, paths[2])
    return {
        "mapping": data,
        "rows": rows,
        "pandas": pd.DataFrame(
            {n: pd.Series(c, dtype=object) for n, c in data.items()}
        ),
        "polars": pl.DataFrame(
            {n: pl.Series(c, dtype=pl.Object) for n, c in data.items()}
        ),
        "texts": pl.DataFrame(text, schema=dict.fromkeys(data, pl.String)),
        "JSON text": json.dumps(json_cells),
        **{path.suffix: path for path in paths},
    }


def summarize(problems: list[Finding]) -> list[tuple[str, ...]]:
    """All that is said, except how the first cell is quoted."""
    return [(f.key, f.level, f.message.split(", first ")[0]) for f in problems]


@settings(max_examples=40)
@given(st.lists(st.tuples(MIXED, MIXED), min_size=1, max_size=40))
def test_every_form_of_the_same_cells_gives_the_same_findings(tmp_path_factory, pairs):
    actual, predicted = map(list, zip(*pairs, strict=True))
    forms_of_cells = forms(
        {"actual": actual, "predicted": predicted}, tmp_path_factory.mktemp("forms")
    )
    for check in CHECKS:
        expected = summarize(findings(check, forms_of_cells["mapping"]))
        for name, form in forms_of_cells.items():
            assert name == name
            assert summarize(findings(check, form)) == expected


# What a cell means


@cases(
    "cell",
    {"True": True, "an underscore": "1_000", "Arabic digits": "١٢", "a fraction": "½"},
)
def test_what_is_no_number(cell):
    check = numbers.finite(columns="x")
    assert keys(check, {"x": [1.0, cell]}) == ["finite: x no numbers"]
    array = np.array([cell, cell])
    assert keys(check, {"x": array}) == ["finite: x no numbers", "finite: x empty"]


# Ranges and finite cells


def test_ranges_count_what_lies_outside():
    check = numbers.ranges(**{"a b": (0, None), "share": (0, 1)})
    data = {"a b": [-1, -2, 3], "share": [0, 1, 1.5], "name": ["x", "y", "z"]}
    below, above = findings(check, data)
    assert below.key == "ranges: a b outside"
    assert above.key == "ranges: share outside"
    message = (
        "a b has 2 of 3 values outside 0 to inf; its finite values lie from -2 to 3"
    )
    assert below.message == message
    assert "keep share from 0 to 1:" in above.fix
    (finding,) = findings(numbers.ranges(x=(None, 1)), {"x": [1.0000001, 12345678.25]})
    assert finding.message.endswith("from 1.0000001 to 12345678.25")
    assert findings(check, {"a b": [0], "share": [1.0]}) == []
    assert keys(check, {"a b": [nan, 1], "share": []}) == ["ranges: unequal lengths"]
    assert keys(check, {"a b": [nan, -inf], "share": [1, "?"]}) == [
        "finite: a b missing",
        "finite: a b infinite",
        "ranges: a b empty",
        "ranges: a b outside",
        "finite: share no numbers",
    ]


def test_finite_looks_at_the_columns_that_hold_numbers():
    data = {"name": ["x", "y"], "a": [1, None], "b": [1, 2]}
    assert keys(numbers.finite(), data) == ["finite: a missing"]
    assert keys(numbers.finite(columns="b"), data) == []
    text = ["finite: name no numbers", "finite: name empty"]
    assert keys(numbers.finite(columns=["name"]), data) == text
    assert keys(numbers.finite(), {"name": ["x"]}) == ["finite: no numbers"]


# Rows and their keys


@cases(
    "key, candidate, expected",
    {
        "keys of their own": ("id", {"id": [1, 2], "y": [0, 0]}, []),
        "no rows": ("id", {"id": []}, ["missing_results: empty"]),
        "no keys": ("id", {"id": [None, ""]}, ["no key: 2 of 2 rows have no id"]),
        "some without and some twice": (
            "id",
            {"id": ["d", "x", None, "b", "b", "x"]},
            [
                "no key: 1 of 6 rows have no id",
                "twice: 2 of 6 rows repeat the id of an earlier row, such as 'b'; 'x'",
            ],
        ),
        "two columns as a key": (
            ["shop", "day"],
            {"shop": ["a", "a"], "day": [2, 2]},
            [
                (
                    "twice: 1 of 2 rows repeat the shop and day of an earlier row, "
                    "such as 'a, 2'"
                )
            ],
        ),
    },
)
def test_rows_without_a_key_of_their_own_are_counted_and_named(
    key, candidate, expected
):
    problems = findings(numbers.rows(key=key), candidate)
    lines = [
        f"{finding.key.removeprefix('rows: ')}: {finding.message}"
        for finding in problems
    ]
    assert [
        line[: len(start)] for line, start in zip(lines, expected, strict=True)
    ] == expected
    assert all(finding.level == "error" and finding.fix for finding in problems)


# Results files

RESULTS = [{"y": n, "yhat": n + 0.5} for n in range(20)]
NOW = Context("a task")


def written(folder: Path, suffix: str) -> Path:
    import polars as pl

    path = folder / f"results*[1]'{suffix}"  # no character of a name has a meaning
    frame = pl.DataFrame(RESULTS)
    write: dict[str, Any] = {".csv": frame.write_csv, ".json": frame.write_json}
    write |= {".parquet": frame.write_parquet}
    write[suffix](path)
    return path


def kinds(check: Any, context: Context = NOW, candidate: Any = None) -> list[str]:
    return [
        finding.key.removeprefix("missing_results: ")
        for finding in check(candidate, context)
    ]


@SUFFIXES
def test_a_results_file_is_read(tmp_path, suffix):
    path = written(tmp_path, suffix)
    for check in (
        numbers.results(path),
        numbers.results(
            str(path), at_least_rows=20, columns=["yhat", "y"], newer_than=0.0
        ),
        numbers.results(lambda candidate, state: state / candidate),
    ):
        assert kinds(check, Context("a task", data=tmp_path), path.name) == []
        assert check.pure is False
    (rows,) = numbers.results(path, at_least_rows=21)(None, NOW)
    assert rows.key == "missing_results: rows"
    assert "has 20 rows, at least 21 asked for" in rows.message
    (columns,) = numbers.results(path, columns=["y", "rmse"])(None, NOW)
    assert columns.key == "missing_results: missing column"
    assert columns.message == "there is no column 'rmse'; there are: y, yhat"
    assert columns.fix == "write a column called 'rmse'"
    if suffix != ".parquet":  # a byte order mark is no part of the first name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert kinds(numbers.results(path, 20, columns=["y", "yhat"])) == []


@SUFFIXES
@cases(
    "check",
    {
        "results": numbers.results,
        "predictions": lambda path: numbers.predictions(path, "y", "yhat"),
    },
)
def test_missing_empty_and_damaged_files_are_missing_results(tmp_path, suffix, check):
    path = tmp_path / f"results{suffix}"
    for content, key in (
        (None, "missing"),
        (b"", "empty"),
        (b'\xff\xfe{"y', "corrupt"),
    ):
        if content is not None:
            path.write_bytes(content)
        (finding,) = check(path)(None, NOW)
        assert finding.key == f"missing_results: {key}"
        assert finding.level == "error"
        assert str(path) in finding.message
        assert finding.fix
    impossible = "x" * 5_000 + suffix
    assert kinds(check(impossible)) == ["missing"]


@cases(
    "name, content, message",
    {
        "a row too short": (
            "a.csv",
            "y,yhat\n1,2\n1\n",
            "a row has 1 cells, the header 2",
        ),
        "JSON without end": ("a.json", '[{"y": 1}, {"y"', ""),
        "Parquet that is none": ("a.parquet", "PAR1 not at all PAR1", ""),
    },
)
def test_a_file_that_breaks_off_is_damaged(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    for check in (numbers.results(path), numbers.predictions(path, "y", "yhat")):
        (finding,) = check(None, NOW)
        assert finding.key == "missing_results: corrupt"
        assert message in finding.message


def test_an_old_file_is_stale(tmp_path):
    path = written(tmp_path, ".csv")
    os.utime(path, (1_000.0, 1_000.0))
    later = Context("a task", began=5_000.0)
    (finding,) = numbers.results(path)(None, later)
    assert finding.key == "missing_results: stale"
    assert "was written 1970-01-01 00:16:40.000+00:00, before" in finding.message
    assert kinds(numbers.predictions(path, "y", "yhat"), later)[0] == "stale"
    (finding,) = numbers.results(path, newer_than=1_001.0)(None, later)
    assert "before 1970-01-01 00:16:41.000+00:00" in finding.message
    for newer_than, expected in ((1_000.0, []), (1_001.0, ["stale"]), (0.0, [])):
        assert kinds(numbers.results(path, newer_than=newer_than), later) == expected
    now = Context("a task", began=time.time())
    assert kinds(numbers.results(written(tmp_path, ".json")), now) == []


def test_results_asks_for_a_path_and_says_where_a_frame_belongs():
    frame = {"y": [1.0, 2.0]}
    with pytest.raises(InvalidInput, match="pass the frame to finite, ranges, rows"):
        numbers.results(frame)  # type: ignore[arg-type]
    check = numbers.results(lambda candidate, state: frame)
    with pytest.raises(InvalidInput, match="pass the frame to finite, ranges, rows"):
        check(None, NOW)
    (finding,) = numbers.results(lambda candidate, state: None)(None, NOW)
    assert finding.key == "missing_results: no path"


# Arguments and packages


WRONG = {
    "ranges": (numbers.ranges, "a", [(2, 1), (None, None), 5]),
    "columns": (numbers.finite, "columns", [5]),
    "key": (numbers.rows, "key", [[""], ()]),
    "path": (numbers.results, "path", [5]),
    "at_least_rows": (partial(numbers.results, "a"), "at_least_rows", [-1, True]),
    "newer_than": (partial(numbers.results, "a"), "newer_than", [[], inf, True]),
    "columns of results": (partial(numbers.results, "a"), "columns", [[1], [""]]),
}


@cases("factory, argument, values", WRONG)
def test_wrong_arguments_are_refused(factory, argument, values):
    for value in values:
        with pytest.raises(InvalidInput):
            factory(**{argument: value})


def test_without_a_package_an_error_names_the_extra(tmp_path, monkeypatch):
    import polars as pl

    parquet_path = written(tmp_path, ".parquet")
    csv_path = written(tmp_path, ".csv")
    frame = pl.DataFrame({"x": [1, None]})
    for package in ("pyarrow", "pyarrow.parquet", "polars"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        PackageMissing, match=r"reading Parquet needs pyarrow: .*\[frames\]"
    ):
        findings(numbers.finite(parquet_path), None)
    assert findings(numbers.finite(csv_path), None) == []
    assert keys(numbers.rows(key="y"), csv_path) == []
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(PackageMissing, match="reading a DataFrame needs narwhals"):
        findings(numbers.finite(), frame)

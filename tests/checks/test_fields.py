from __future__ import annotations

import sys
from datetime import date
from math import inf, nan
from typing import Any

import pandas as pd
import pandera.pandas as for_pandas
import pandera.polars as for_polars
import polars as pl
import pytest

from heedful.checks import batches
from heedful.checks import fields as numbers
from heedful.errors import InvalidInput, PackageMissing
from tests.checks.support import findings, keys

GOOD = {
    "id": [1, 2, 3],
    "share": [0.0, 0.5, 1.0],
    "name": ["x", "y", "z"],
    "day": [date(2026, 1, n) for n in (1, 2, 3)],
    "fine": [True, False, True],
}
PLAIN = {
    "id": "integer",
    "share": (0, 1),
    "name": {"type": "text", "nullable": True},
    "day": "date",
    "fine": "boolean",
    "note": {"type": "text", "required": False},
}


def test_columns_that_fit_pass_in_every_form(tmp_path):
    frame = pl.DataFrame(GOOD)
    frame.write_csv(tmp_path / "r.csv")
    frame.write_parquet(tmp_path / "r.parquet")
    frame.with_columns(pl.col("day").cast(pl.String)).write_json(tmp_path / "r.json")
    forms = [GOOD, frame, frame.to_pandas(), frame.to_arrow(), frame.lazy()]
    forms += [tmp_path / "r.csv", tmp_path / "r.parquet", tmp_path / "r.json"]
    for form in forms:
        assert findings(numbers.schema(schema=PLAIN), form) == []


@pytest.mark.parametrize(
    ("column", "cells", "expected"),
    [
        ("id", [1, 2.5, "x"], ["schema: id no whole numbers"]),
        ("id", [1, None, 2], ["schema: id missing"]),
        ("id", [1, inf, 2], ["schema: id infinite"]),
        (
            "share",
            [nan, -0.1, 1.5],
            ["schema: share missing", "schema: share below", "schema: share above"],
        ),
        ("share", ["?", "?", "?"], ["schema: share no numbers", "schema: share empty"]),
        ("name", ["a", None, None], []),
        ("name", [None, None, None], []),
        ("name", ["a", 5, None], ["schema: name no texts"]),
        ("day", ["2026-01-01", "yesterday", 5], ["schema: day no dates"]),
        ("fine", ["true", "False", "yes"], ["schema: fine no truth values"]),
        ("note", [5, 5, 5], ["schema: note no texts", "schema: note empty"]),
    ],
)
def test_cells_that_do_not_fit_are_found(column, cells, expected):
    assert keys(numbers.schema(schema=PLAIN), {**GOOD, column: cells}) == expected


def test_the_words_say_how_many_and_which():
    (found,) = findings(numbers.schema(schema={"id": "integer"}), {"id": [1, 2.5, 3.5]})
    assert found.message == "id has 2 of 3 cells that are no whole numbers, first 2.5"
    assert found.fix.startswith("write whole numbers in id")


def test_columns_that_are_not_there_are_found():
    found = findings(numbers.schema(schema={"a": "number", "b": "number"}), {"c": [1]})
    assert [one.message for one in found] == [
        "there is no column 'a'; there are: c",
        "there is no column 'b'; there are: c",
    ]
    assert keys(numbers.schema(schema={"a": "number"}), {"a": []}) == ["schema: a empty"]


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        5,
        {"a": "money"},
        {"a": {"type": "text", "range": (0, 1)}},
        {"a": {"kind": "text"}},
        {"a": 5},
        {"a": (5, 1)},
        {"a": {"required": "yes"}},
    ],
    ids=str,
)
def test_a_schema_that_is_none_is_refused(schema):
    with pytest.raises(InvalidInput):
        numbers.schema(schema=schema)


# pandera


def polars_schema() -> Any:
    share = for_polars.Column(float, for_polars.Check.in_range(0, 1), nullable=False)
    return for_polars.DataFrameSchema({"id": for_polars.Column(int, unique=True), "share": share})


class Model(for_polars.DataFrameModel):
    id: int
    share: float


BAD = {"id": [1, 2, 2], "share": [0.5, 1.5, None]}


def told(form: Any, schema: Any) -> list[str]:
    return sorted(finding.key for finding in findings(numbers.schema(schema=schema), form))


def test_a_schema_of_pandera_is_met_or_not(tmp_path):
    frame = pl.DataFrame(BAD)
    frame.write_csv(tmp_path / "r.csv")
    frame.write_parquet(tmp_path / "r.parquet")
    for form in (frame, frame.to_pandas(), tmp_path / "r.csv", tmp_path / "r.parquet", BAD):
        assert told(form, polars_schema()) == [
            "schema: id: field_uniqueness",
            "schema: share: in_range(0, 1)",
            "schema: share: not_nullable",
        ]
    good = pl.DataFrame({"id": [1, 2], "share": [0.0, 1.0]})
    good.write_csv(tmp_path / "r.csv")
    for form in (good, tmp_path / "r.csv"):
        assert told(form, polars_schema()) == told(form, Model) == []


def test_what_pandera_says_is_counted():
    found = findings(numbers.schema(schema=polars_schema()), pl.DataFrame(BAD))
    (one,) = [f for f in found if "in_range" in f.key]
    assert one.message == "share: 1 times in 3 rows not in_range(0, 1), first '1.5'"
    assert one.fix == "make share meet in_range(0, 1)"


def test_a_schema_for_pandas():
    schema = for_pandas.DataFrameSchema(
        {"id": for_pandas.Column(int), "share": for_pandas.Column(float, nullable=True)},
        strict=True,
    )
    assert told(pd.DataFrame(BAD), schema) == told(pl.DataFrame(BAD), schema) == []
    assert told(pd.DataFrame({**BAD, "more": 1}), schema) == ["schema: column_in_schema"]
    assert told(pd.DataFrame({"id": [1]}), schema) == ["schema: column_in_dataframe"]


def test_files_are_validated_batch_by_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "ROWS", 10)
    frame = pl.DataFrame({"id": range(100), "share": [2.0] * 100})
    frame.write_parquet(tmp_path / "r.parquet")
    (found,) = findings(numbers.schema(tmp_path / "r.parquet", polars_schema()), None)
    assert found.message.startswith("share: 100 times in 100 rows not in_range(0, 1), first")


def test_many_broken_rules_are_bounded():
    wanted = {f"c{n}": for_polars.Column(float) for n in range(30)}
    frame = pl.DataFrame({name: ["x"] for name in wanted})
    found = findings(numbers.schema(schema=for_polars.DataFrameSchema(wanted)), frame)
    assert len(found) == 11
    assert (found[-1].level, found[-1].message) == (
        "note",
        "20 more rules of the schema are broken",
    )


def test_no_rows_and_no_file_are_findings(tmp_path):
    nothing = pl.DataFrame({"id": [], "share": []}, schema={"id": pl.Int64, "share": pl.Float64})
    assert told(nothing, polars_schema()) == ["missing_results: empty"]
    assert told(tmp_path / "r.csv", polars_schema()) == ["missing_results: missing"]


def test_without_the_library_an_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(PackageMissing, match=r"pip install 'heedful\[schemas\]'"):
        findings(numbers.schema(schema=polars_schema()), BAD)

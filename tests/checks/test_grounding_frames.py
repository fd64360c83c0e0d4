"""Data frames are evidence like any other."""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from heedful.checks import Evidence, ground, grounding
from heedful.errors import InvalidInput, PackageMissing
from tests.checks.support import findings

ROWS = [
    {"model": "Naive", "rmse": 4.1, "n_train": 12_000, "day": date(2021, 3, 1)},
    {"model": "Ridge", "rmse": 3.25, "n_train": 8_000, "day": date(2021, 3, 2)},
    {"model": "Forest", "rmse": None, "n_train": 12_000, "day": None},
]
TEXT = (
    "Ridge has an RMSE of 4.1 after training on 8,000 rows. Naive had an RMSE of 4.1 on March 1,"
    " 2021. On March 9, 2021 Bob said 77."
)
PANDAS = pd.DataFrame(ROWS)
POLARS = pl.DataFrame(ROWS)


@pytest.mark.parametrize(
    "frame",
    [
        PANDAS,
        PANDAS.assign(day=pd.to_datetime(PANDAS["day"])),
        PANDAS.convert_dtypes(),
        PANDAS.set_index("model"),
        PANDAS.set_index("model").rename_axis(None),
        PANDAS.set_index("model", drop=False),
        PANDAS.iloc[::-1].iloc[::-1],
        POLARS,
        POLARS.lazy(),
        POLARS.with_columns(pl.col("day").cast(pl.Datetime)),
        pa.Table.from_pylist(ROWS),
        PANDAS.to_csv(index=False),
        POLARS.with_columns(pl.col("day").cast(pl.Datetime)).write_csv(),
        json.dumps(ROWS, default=str),
    ],
)
def test_one_table_in_any_form_gives_the_same_claims(frame):
    claims = ground(TEXT, ROWS)
    assert {claim.verdict for claim in claims} == {"supported", "contradicted", "not found"}
    assert ground(TEXT, frame) == claims


CELLS = st.integers(2, 9_999) | st.decimals(1, 999, places=2).map(float)


def test_several_tables_have_names():
    evidence = {"costs": PANDAS, "deep": {"speeds": POLARS.select("model", ms=pl.lit(7))}}
    claims = ground("Ridge has an RMSE of 3.25 and takes 9 ms.", evidence)
    assert [(claim.verdict, claim.paths) for claim in claims] == [
        ("supported", ("$.costs[1].rmse",)),
        ("contradicted", ("$.deep.speeds[1].ms",)),
    ]


def test_columns_of_several_levels_are_columns():
    wide = pd.DataFrame({"model": ["A1", "B2"], "rmse": [1.0, 2.0], "mape": [3.0, 4.0]})
    pivoted = wide.pivot_table(index="model", values=["rmse", "mape"], aggfunc=["mean", "max"])
    (claim,) = ground("B2 has a mean RMSE of 1.", pivoted)
    assert (claim.verdict, claim.paths) == ("contradicted", ("$[1].mean rmse",))


def test_a_series_is_a_record():
    (claim,) = ground("The RMSE is 3.", pd.Series({"rmse": 4.0, "mape": 3.0}))
    assert (claim.verdict, claim.paths) == ("contradicted", ("$.rmse",))


@pytest.mark.parametrize(
    "frame", [PANDAS.iloc[:0], POLARS.clear(), pa.Table.from_pylist([]), pd.DataFrame()]
)
def test_a_frame_without_rows_is_no_evidence(frame):
    assert [one.key for one in findings(grounding(frame), "2 apples")] == ["grounding: no evidence"]


class Columned:
    columns = ("a",)


@pytest.mark.parametrize(
    "evidence", [Columned(), pd.DataFrame([[1, 2]], columns=["a", "a"]), Path("metrics.csv")]
)
def test_what_cannot_be_read_is_refused(evidence):
    with pytest.raises(InvalidInput, match=r"^evidence is"):
        Evidence(evidence)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(PackageMissing, match=r"pip install 'heedful\[frames\]'"):
        Evidence({"train": PANDAS})
    assert ground("2 apples", [{"apples": 2}])

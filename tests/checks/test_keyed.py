from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from heedful.checks import keyed as numbers
from heedful.checks import keyed as rooms
from heedful.checks.cells import keyed
from heedful.errors import InvalidInput
from tests.checks.support import findings, keys


def said(check: Any, candidate: Any) -> list[str]:
    return [finding.message for finding in findings(check, candidate)]


def test_the_same_keys_in_any_order_pass():
    check = numbers.rows(key="id", same_as={"id": [3, 1, 2]})
    assert findings(check, {"id": [1, 2, 3], "y": [0, 0, 0]}) == []
    assert check.pure is False


def test_keys_that_do_not_match_are_counted_and_named():
    check = numbers.rows(key="id", same_as={"id": ["a", "b", "c", "d"]})
    found = findings(check, {"id": ["d", "x", None, "b", "b", "x"]})
    assert [one.key for one in found] == [
        "rows: no key",
        "rows: twice",
        "rows: missing",
        "rows: extra",
    ]
    assert [one.message for one in found] == [
        "1 of 6 rows have no id",
        "2 of 6 rows have the same id as one before, such as 'x'; 'b'",
        "2 of 4 wanted rows are missing, by id, such as 'a'; 'c'",
        "1 of 6 rows are not wanted, by id, such as 'x'",
    ]
    assert all(one.level == "error" and one.fix for one in found)


def test_a_key_of_several_columns():
    check = numbers.rows(key=["shop", "day"], same_as={"shop": ["a", "a"], "day": [1, 2]})
    assert findings(check, {"shop": ["a", "a"], "day": [2, 1]}) == []
    assert said(check, {"shop": ["a", "a"], "day": [2, 2]}) == [
        "1 of 2 rows have the same shop and day as one before, such as 'a, 2'",
        "1 of 2 wanted rows are missing, by shop and day, such as 'a, 1'",
    ]


def test_without_other_rows_keys_come_once():
    check = numbers.rows(key="id")
    assert findings(check, {"id": [1, 2]}) == []
    assert keys(check, {"id": [1, 1]}) == ["rows: twice"]
    assert keys(check, {"id": [None, ""]}) == ["rows: no key"]


def test_without_a_key_rows_are_counted():
    check = numbers.rows(same_as=[{"a": 1}, {"a": 2}])
    assert findings(check, {"b": [5, 6]}) == []
    (found,) = findings(check, {"b": [5]})
    assert found.message == "there are 1 rows, 2 are wanted"
    assert found.key == "rows: count"


def test_wanted_rows_that_repeat_a_key_are_a_warning():
    check = numbers.rows(key="id", same_as={"id": [1, 1]})
    (found,) = findings(check, {"id": [1]})
    assert (found.level, found.key) == ("warning", "rows: wanted")


@pytest.mark.parametrize(
    ("candidate", "key"),
    [
        ({"id": []}, "missing_results: empty"),
        ({"no": [1]}, "rows: missing column"),
        (None, "rows: no data"),
    ],
)
def test_degenerate_input_has_its_own_finding(candidate, key):
    assert keys(numbers.rows(key="id"), candidate) == [key]


def test_a_key_or_other_rows_have_to_be_given():
    with pytest.raises(InvalidInput):
        numbers.rows("results.csv")
    with pytest.raises(InvalidInput):
        numbers.rows("results.csv", key=[""])


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        ([7, 7.0, "7", "7.0", " 7 ", Decimal("7.0"), np.int64(7), np.float64(7)], "7"),
        (["007"], "007"),
        ([-7.5, "-7.5"], "-7.5"),
        ([None, float("nan"), "", "  ", pd.NaT, pd.NA], ""),
        (["NA"], "NA"),
        (["1.2.3"], "1.2.3"),
        (
            [
                date(2026, 1, 2),
                datetime(2026, 1, 2, tzinfo=UTC).replace(tzinfo=None),
                pd.Timestamp("2026-01-02"),
                "2026-01-02",
            ],
            "2026-01-02",
        ),
        (
            [
                datetime(2026, 1, 2, 3, tzinfo=UTC).replace(tzinfo=None),
                "2026-01-02T03:00:00",
                "2026-01-02 03:00:00",
            ],
            "2026-01-02 03:00:00",
        ),
        (
            [datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00Z", "2026-01-02 03:00:00z"],
            "2026-01-02 03:00:00+00:00",
        ),
    ],
)
def test_a_key_is_the_same_wherever_it_comes_from(cells, text):
    assert {keyed(cell) for cell in cells} == {text}


def test_files_and_frames_agree(tmp_path):
    data = {"id": [1, 2, None, 4, 4], "day": [date(2026, 1, n) for n in range(1, 6)]}
    frame = pl.DataFrame(data)
    frame.write_csv(tmp_path / "r.csv")
    frame.write_parquet(tmp_path / "r.parquet")
    frame.with_columns(pl.col("day").cast(pl.String)).write_ndjson(tmp_path / "r.jsonl")
    forms = [frame, frame.to_pandas(), frame.to_arrow(), tmp_path / "r.csv"]
    forms += [tmp_path / "r.parquet", tmp_path / "r.jsonl"]
    for key in ("id", ["id", "day"], "day"):
        check = numbers.rows(key=key, same_as={"id": [1, 2, 3, 5, 6], "day": ["2026-01-05"] * 5})
        expected = said(check, data)
        assert expected
        for form in forms:
            assert said(check, form) == expected


def test_times_of_nanoseconds_are_keys(tmp_path):
    at = pa.array([0, 3_600_000_000_001], pa.timestamp("ns"))
    parquet.write_table(pa.table({"at": at}), tmp_path / "r.parquet")
    check = numbers.rows(key="at", same_as={"at": ["1970-01-01", "1970-01-01 01:00:00"]})
    assert findings(check, tmp_path / "r.parquet") == []


IDS = st.lists(st.integers(0, 30), max_size=40)


@given(IDS, IDS)
def test_counts_are_those_of_sets(here, there):
    found = findings(numbers.rows(key="id", same_as={"id": there}), {"id": here})
    counts = {one.key: int(one.message.split()[0]) for one in found if one.key[0] == "r"}
    expected = {
        "rows: missing": len(set(there) - set(here)),
        "rows: extra": len(set(here) - set(there)),
        "rows: twice": len(here) - len(set(here)),
        "rows: wanted": len(there) - len(set(there)),
    }
    assert counts == {key: count for key, count in expected.items() if count and here}


def test_parts_that_are_large_wait_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(rooms, "KEPT", 100)
    ids = np.arange(200_000)
    parquet.write_table(pa.table({"id": ids[::-1]}), tmp_path / "r.parquet")
    wanted = {"id": np.append(ids, [200_000])}
    check = numbers.rows(tmp_path / "r.parquet", key="id", same_as=wanted)
    assert said(check, None) == ["1 of 200001 wanted rows are missing, by id, such as '200000'"]

"""How evidence of any shape, data frames too, and numbers and dates in texts are
read.
"""

import cProfile
import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from heedful.checks import Evidence, ground
from heedful.checks.claims.text_parts import (
    dates,
    decimal_signs,
    quantities,
    tokenize,
)
from heedful.errors import InvalidInput, PackageMissing
from tests.tables import cases

CITIES = [{"city": "Bern", "people": 134_794}, {"city": "Chur", "people": 38_366}]
TRUE = "Chur has 38,366 people."
FALSE = "Chur has 134,794 people."


@cases(
    "evidence",
    {
        "rows": CITIES,
        "rows under a name": {"cities": CITIES},
        "rows by name": {
            "Bern": {"people": 134_794, "area": 52},
            "Chur": {"people": 38_366, "area": 54},
        },
        "JSON": json.dumps(CITIES),
        "Python": str(CITIES),
        "CSV": "city,people\nBern,134794\nChur,38366\n",
        "a column that is nested": [
            {"city": {"name": row["city"]}, "people": row["people"]} for row in CITIES
        ],
    },
)
def test_evidence_of_any_shape_is_rows(evidence):
    assert {claim.verdict for claim in ground(TRUE, evidence)} == {"supported"}
    assert "contradicted" in {claim.verdict for claim in ground(FALSE, evidence)}


# Data frames

ROWS = [
    {"model": "Naive", "rmse": 4.1, "n_train": 12_000, "day": date(2021, 3, 1)},
    {"model": "Ridge", "rmse": 3.25, "n_train": 8_000, "day": date(2021, 3, 2)},
    {"model": "Forest", "rmse": None, "n_train": 12_000, "day": None},
]
TEXT = (
    "Ridge has an RMSE of 4.1 after training on 8,000 rows. Naive had an RMSE of 4.1 "
    "on March 1, 2021. On March 9, 2021 Bob said 77."
)


def pandas_rows() -> Any:
    import pandas as pd

    return pd.DataFrame(ROWS)


def polars_rows() -> Any:
    import polars as pl

    return pl.DataFrame(ROWS)


def arrow_rows() -> Any:
    import pyarrow as pa

    return pa.Table.from_pylist(ROWS)


# The libraries of frames are imported when their row of the table is run.
@cases(
    "make_frame",
    {
        "pandas": pandas_rows,
        "pandas with an index": lambda: pandas_rows().set_index("model"),
        "polars": polars_rows,
        "Arrow": arrow_rows,
        "CSV": lambda: pandas_rows().to_csv(index=False),
        "JSON": lambda: json.dumps(ROWS, default=str),
    },
)
def test_one_table_in_any_form_gives_the_same_claims(make_frame):
    claims = ground(TEXT, ROWS)
    assert {claim.verdict for claim in claims} == {
        "supported",
        "contradicted",
        "not found",
    }
    assert ground(TEXT, make_frame()) == claims


def test_a_frame_has_its_name():
    import polars as pl

    speeds = polars_rows().select("model", ms=pl.lit(7))
    evidence = {"costs": pandas_rows(), "deep": {"speeds": speeds}}
    claims = ground("Ridge has an RMSE of 3.25 and takes 9 ms.", evidence)
    assert [(claim.verdict, claim.paths) for claim in claims] == [
        ("supported", ("$.costs[1].rmse",)),
        ("contradicted", ("$.deep.speeds[1].ms",)),
    ]


class Columned:
    columns = ("a",)


@cases("evidence", {"columns without rows": Columned(), "a path": Path("metrics.csv")})
def test_what_cannot_be_read_is_refused(evidence):
    with pytest.raises(InvalidInput, match=r"^evidence is"):
        Evidence(evidence)


def test_without_the_library_the_extra_is_named(monkeypatch):
    frame = pandas_rows()
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(PackageMissing, match=r"install './packages/heedful\[frames\]"):
        Evidence({"train": frame})
    assert ground("2 apples", [{"apples": 2}])


# Words, numbers and dates


@cases(
    "text, values",
    {
        "separators and units": (
            "1,234.5 and 12 % and 1.2 million and 3k",
            [1234.5, 12, 1.2e6, 3000],
        ),
        "words": (
            "zero, nine, twelve, twenty-five, two hundred, a dozen",
            [0, 9, 12, 25, 200, 12],
        ),
        "signs and ranges": (
            "-5 and −2.5 and 113 - 107 and 113-107",
            [-5, -2.5, 113, 107, 113, 107],
        ),
        "money": ("$9.1M, -$2.5bn, €3m, 4 MM, 3 m", [9.1e6, -2.5e9, 3e6, 4e6, 3]),
        "a decimal comma is no list": ("5,4 and 1.234,56", [5.4, 1234.56]),
        "a list is no decimal comma": ("1,2,3 and 10,20,30", [1, 2, 3, 10, 20, 30]),
        "groups of many kinds": (
            "7'654.5 and 7’654 and 7\u00a0654 and 7\u202f654,5 and 7.654.321",
            [7654.5, 7654, 7654, 7654.5, 7_654_321],
        ),
        "groups of India": (
            "98,76,543 and 3.4 lakh and 2 crore",
            [9876543, 3.4e5, 2e7],
        ),
        "wide digits": ("７，６５４", [7654]),
        "numbers side by side": ("120 450", [120, 450]),
    },
)
def test_numbers_are_read_as_people_write_them(text, values):
    numbers = [quantity.value for quantity in quantities(tokenize(text))]
    assert numbers == pytest.approx(values)


@cases(
    "text, signs",
    {
        "both signs in a number": ("1.234,5", ","),
        "one digit behind a comma": ("7.654 Stück, 3,2 %", ","),
        "three digits behind a zero": ("0,382 von 1.208", ","),
        "two groups": ("7,654,321 of 1.208", "."),
        "the majority": ("Version 2.5: 3,2 % und 4,1 %", ","),
        "English words": ("The mill made 7,654 bags", "."),
        "nothing": ("7.654 Stück", ".,"),
        "no number to divide": ("17 Stück", "."),
    },
)
def test_the_numbers_of_a_text_show_its_decimal_sign(text, signs):
    assert "".join(decimal_signs([text])) == signs


DATES = {
    "Q3 2021": [(2021, 0, 0)],
    "2021-03-02": [(2021, 3, 2)],
    "03/02/2021": [(2021, 3, 2)],
    "25/02/2021": [(2021, 2, 25)],
    "2.3.2021": [(2021, 3, 2)],
    "03_02_21": [(2021, 3, 2)],
    "March 2nd, 2021": [(2021, 3, 2)],
    "2 March": [(0, 3, 2)],
    "2nd of March 2021": [(2021, 3, 2)],
    "2021, March 02": [(2021, 3, 2)],
    "March 2021": [(2021, 3, 0)],
    "2021-03": [(2021, 3, 0)],
    "in March": [(0, 3, 0)],
    "Marketing 5": [],
    "Feb. 29, 2020": [(2020, 2, 29)],
    "Sept. 9, 2020": [(2020, 9, 9)],
    "august 9, 2020": [(2020, 8, 9)],
    "Feb 30, 2021": [],
    "2021-13-01": [],
    "99/99/2021": [],
    "may 500": [],
    "1/2": [],
}


@pytest.mark.parametrize(("text", "expected"), DATES.items(), ids=DATES)
def test_dates_are_read_in_several_orders(text, expected):
    assert [tuple(date[2:5]) for date in dates(text)] == expected


# Hostile evidence and texts


@cases(
    "text",
    {
        "braces": "{" * 5_000,
        "brackets": "[" * 100_000,
        "nested Python": "{'a': " * 300,
        "JSON that breaks off": '{"a": 1',
        "lines of one key": "x: 1\n" * 5_000,
        "one long number": "1,111" * 5_000,
        "an escape that is none": "{'\\d': 1}",
        "one number of many groups": "7 654 " * 5_000,
    },
)
def test_hostile_evidence_is_read(text):
    assert ground("Two of 3 things - 4 - 5.", text) is not None


@cases(
    "text",
    {
        "numbers": "1 " * 1_000,
        "divided numbers": "7.654 1,5 7'654'321 " * 400,
        "cells": "Chur 5 people " * 400,
        "dates": "May 5, 2020 " * 400,
        "pairs": "(5 - 6) " * 400,
        "claims of four kinds": "Chur has the highest people, more than Bern, and "
        "rose from 3 to 2. " * 200,
    },
)
def test_hostile_texts_take_time_that_grows_with_their_length(text):
    evidence = Evidence(CITIES)
    once, twice = (steps(part, evidence) for part in (text, text + text))
    assert twice < 3 * once + 1_000


def steps(text: str, evidence: Evidence) -> int:
    """How many calls of functions grounding a text takes."""
    profile = cProfile.Profile()
    profile.runcall(ground, text, evidence)
    return sum(entry.callcount for entry in profile.getstats())

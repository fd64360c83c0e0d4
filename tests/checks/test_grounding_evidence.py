"""How evidence of any shape, data frames too, and numbers and dates in texts are
read.
"""

import cProfile
import json
import math
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from heedful.checks import Evidence, ground
from heedful.checks.claims.words import dates, quantities, tokenize
from heedful.errors import InvalidInput, PackageMissing

CITIES = [{"city": "Bern", "people": 134_794}, {"city": "Chur", "people": 38_366}]
TRUE = "Chur has 38,366 people."
FALSE = "Chur has 134,794 people."


@pytest.mark.parametrize(
    "evidence",
    [
        CITIES,
        {"cities": CITIES},
        {
            "Bern": {"people": 134_794, "area": 52},
            "Chur": {"people": 38_366, "area": 54},
        },
        json.dumps(CITIES),
        str(CITIES),
        "city,people\nBern,134794\nChur,38366\n",
        "# towns\ncity,people\nBern,134794\nChur,38366\n",
        [{"city": {"name": row["city"]}, "people": row["people"]} for row in CITIES],
        [
            {"city": row["city"], "people": Decimal(str(row["people"]))}
            for row in CITIES
        ],
        [{"city": "Bern", "people": "134,794"}, {"city": "Chur", "people": " 38366 "}],
        [
            *CITIES,
            {"city": "Thun", "people": math.nan},
            {"city": "Visp", "people": None},
        ],
        [*CITIES, {"city": "Genf", "people": 10**400, "wards": np.array([1, 2])}],
    ],
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
    "on March 1,"
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
        json.dumps(ROWS, default=str),
    ],
)
def test_one_table_in_any_form_gives_the_same_claims(frame):
    claims = ground(TEXT, ROWS)
    assert {claim.verdict for claim in claims} == {
        "supported",
        "contradicted",
        "not found",
    }
    assert ground(TEXT, frame) == claims


WIDE = pd.DataFrame({"model": ["A1", "B2"], "rmse": [1.0, 2.0], "mape": [3.0, 4.0]})


@pytest.mark.parametrize(
    ("evidence", "text", "places"),
    [
        (
            {"costs": PANDAS, "deep": {"speeds": POLARS.select("model", ms=pl.lit(7))}},
            "Ridge has an RMSE of 3.25 and takes 9 ms.",
            [
                ("supported", ("$.costs[1].rmse",)),
                ("contradicted", ("$.deep.speeds[1].ms",)),
            ],
        ),
        (
            WIDE.pivot_table(
                index="model", values=["rmse", "mape"], aggfunc=["mean", "max"]
            ),
            "B2 has a mean RMSE of 1.",
            [("contradicted", ("$[1].mean rmse",))],
        ),
        (
            pd.Series({"rmse": 4.0, "mape": 3.0}),
            "The RMSE is 3.",
            [("contradicted", ("$.rmse",))],
        ),
    ],
)
def test_frames_have_names_levels_and_series(evidence, text, places):
    assert [(claim.verdict, claim.paths) for claim in ground(text, evidence)] == places


class Columned:
    columns = ("a",)


@pytest.mark.parametrize(
    "evidence",
    [Columned(), pd.DataFrame([[1, 2]], columns=["a", "a"]), Path("metrics.csv")],
)
def test_what_cannot_be_read_is_refused(evidence):
    with pytest.raises(InvalidInput, match=r"^evidence is"):
        Evidence(evidence)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(PackageMissing, match=r"pip install 'heedful\[frames\]'"):
        Evidence({"train": PANDAS})
    assert ground("2 apples", [{"apples": 2}])


# Words, numbers and dates


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,234.5 and 12 % and 1.2 million and 3k", [1234.5, 12, 1.2e6, 3000]),
        ("twelve, twenty-five, two hundred, a dozen", [12, 25, 200, 12]),
        ("-5 and −2.5 and 113 - 107 and 113-107", [-5, -2.5, 113, 107, 113, 107]),
        ("A16, IP68, the third", []),
        ("50MP, 8x4, .5", [50, 8, 4, 0.5]),
        ("٣ and １２", [3, 12]),
    ],
)
def test_numbers_are_read_as_people_write_them(text, values):
    found = [one.value for one in quantities(tokenize(text))]
    assert found == pytest.approx(values)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2021-03-02", [(2021, 3, 2)]),
        ("03/02/2021", [(2021, 3, 2)]),
        ("25/02/2021", [(2021, 2, 25)]),
        ("2.3.2021", [(2021, 3, 2)]),
        ("03_02_21", [(2021, 3, 2)]),
        ("March 2nd, 2021", [(2021, 3, 2)]),
        ("2 March", [(0, 3, 2)]),
        ("2nd of March 2021", [(2021, 3, 2)]),
        ("2021, March 02", [(2021, 3, 2)]),
        ("March 2021", [(2021, 3, 0)]),
        ("Feb. 29, 2020", [(2020, 2, 29)]),
        *(
            (text, [])
            for text in ("Feb 30, 2021", "2021-13-01", "99/99/2021", "may 500", "1/2")
        ),
    ],
)
def test_dates_are_read_in_several_orders(text, found):
    assert [tuple(date[2:]) for date in dates(text)] == found


# Hostile evidence and texts


@pytest.mark.parametrize(
    "text",
    [
        "{" * 5_000,
        "[" * 100_000,
        "{'a': " * 300,
        '{"a": 1',
        "a,b\n" * 5_000,
        "x: 1\n" * 5_000,
        "1,111" * 5_000,
        "{'\\d': 1}",
    ],
)
def test_hostile_evidence_is_read(text):
    assert ground("Two of 3 things - 4 - 5.", text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "1 " * 1_000,
        "Chur 5 people " * 400,
        "May 5, 2020 " * 400,
        "(5 - 6) " * 400,
        "Chur has the highest people, more than Bern, and rose from 3 to 2. " * 200,
    ],
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

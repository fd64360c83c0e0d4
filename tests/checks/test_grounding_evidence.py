"""How evidence and numbers are read."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.checks import Evidence, ground
from heedful.checks.claims.evidence import read_rows
from heedful.checks.claims.words import (
    dates,
    likeness,
    parse_number,
    quantities,
    tokenize,
)

ROWS = [{"city": "Bern", "people": 134_794}, {"city": "Chur", "people": 38_366}]
TRUE, FALSE = "Chur has 38,366 people.", "Chur has 134,794 people."


@pytest.mark.parametrize(
    "evidence",
    [
        ROWS,
        {"cities": ROWS},
        {"Bern": {"people": 134_794, "area": 52}, "Chur": {"people": 38_366, "area": 54}},
        {"bern_people": 134_794, "chur_people": 38_366, "bern_area": 52, "chur_area": 54},
        json.dumps(ROWS),
        str(ROWS),
        "city,people\nBern,134794\nChur,38366\n",
        "# towns\ncity;people\nBern;134794\nChur;38366\n",
        "| city | people |\n| Bern | 134,794 |\n| Chur | 38,366 |\n",
        [
            {"city": {"name": "Bern"}, "people": 134_794},
            {"city": {"name": "Chur"}, "people": 38_366},
        ],
        [{"city": "Bern", "people": Decimal(134_794)}, {"city": "Chur", "people": Decimal(38_366)}],
        [{"city": "Bern", "people": "134,794"}, {"city": "Chur", "people": " 38366 "}],
        [*ROWS, {"city": "Thun", "people": math.nan}, {"city": "Visp", "people": None}],
        [*ROWS, {"city": "Genf", "people": 10**400}],
    ],
)
def test_evidence_of_any_shape_is_rows(evidence):
    said = evidence if isinstance(evidence, str) else "rows"
    true, false = TRUE, FALSE
    if "chur_people" in said or (isinstance(evidence, dict) and "bern_people" in evidence):
        true, false = true.replace("Chur", "The chur"), false.replace("Chur", "The chur")
    assert {claim.verdict for claim in ground(true, evidence)} == {"supported"}
    assert "contradicted" in {claim.verdict for claim in ground(false, evidence)}


def test_lines_of_names_and_values_are_a_record():
    (record,) = read_rows("Hedge Hall\n- country: Wales\n- built: 1780\n")
    assert record.cells[("built",)] == ["1780"]


def test_rows_with_the_same_name_support_either():
    rows = [{"name": "Kim Ray", "age": 30}, {"name": "Kim Ray", "age": 41}]
    for age, verdict in (("30", "supported"), ("41", "supported")):
        (claim,) = ground(f"Kim Ray has an age of {age}.", rows)
        assert claim.verdict == verdict


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,234.5 and 12 % and 1.2 million and 3k", [1234.5, 12, 1.2e6, 3000]),
        ("twelve, twenty-five, two hundred, a dozen", [12, 25, 200, 12]),
        ("-5 and −2.5 and 113 - 107 and 113-107", [-5, -2.5, 113, 107, 113, 107]),
        ("the third and 21st", [3, 21]),
        ("version 4.4.2 at 16:30 in 23/24, COVID-19, A16, IP68", []),
        ("50MP, 8x4, .5", [50, 8, 4, 0.5]),
        ("٣ and １２", [3, 12]),
    ],
)
def test_numbers_are_read_as_people_write_them(text, values):
    found = [one.value for one in quantities(tokenize(text))]
    assert found == pytest.approx(values)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234.5", 1234.5),
        (" 12 % ", 12),
        ("-3", -3),
        ("12a", None),
        ("1-2", None),
        ("", None),
        ("9" * 400, None),
    ],
)
def test_a_text_that_is_a_number(text, value):
    assert parse_number(text) == value


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2021-03-02", (2021, 3, 2)),
        ("03/02/2021", (2021, 3, 2)),
        ("25/02/2021", (2021, 2, 25)),
        ("2.3.2021", (2021, 3, 2)),
        ("03_02_21", (2021, 3, 2)),
        ("March 2nd, 2021", (2021, 3, 2)),
        ("2 March", (0, 3, 2)),
        ("2nd of March 2021", (2021, 3, 2)),
        ("2021, March 02", (2021, 3, 2)),
        ("March 2021", (2021, 3, 0)),
        ("Feb. 29, 2020", (2020, 2, 29)),
    ],
)
def test_dates_are_read_in_several_orders(text, found):
    assert [tuple(date[2:]) for date in dates(text)] == [found]


@pytest.mark.parametrize(
    "text", ["Feb 30, 2021", "2021-13-01", "99/99/2021", "may 5 people", "1/2"]
)
def test_what_no_calendar_has_is_no_date(text):
    assert [date for date in dates(text) if date.year] == []


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("rebounds", "reb"),
        ("point", "pts"),
        ("steals", "stl"),
        ("temperature", "temp"),
        ("percent", "pct"),
        ("fourth", "4"),
        ("populations", "population"),
    ],
)
def test_an_abbreviation_stands_for_a_word(word, part):
    assert likeness(word, part) > 1


@pytest.mark.parametrize(("word", "part"), [("percent", "pts"), ("the", "t"), ("blocks", "ast")])
def test_and_for_no_other(word, part):
    assert likeness(word, part) < 2


def test_evidence_is_indexed_once_for_many_texts():
    evidence = Evidence(ROWS)
    assert ground(TRUE, evidence) == ground(TRUE, ROWS)
    assert evidence
    assert not Evidence([])


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
        "Chur " * 1_000,
        "Chur 5 people " * 400,
        "May 5, 2020 " * 400,
        "a 5, " * 600,
        "(5 - 6) " * 400,
        "Chur led Bern by 3 - 4. " * 200,
        "Chur has the highest people, more than Bern, and rose from 3 to 2. " * 200,
    ],
)
def test_hostile_texts_take_time_that_grows_with_their_length(text):
    evidence = Evidence(ROWS)
    once, twice = (steps(part, evidence) for part in (text, text + text))
    assert twice < 3 * once + 1_000


def steps(text: str, evidence: Evidence) -> int:
    """How many calls of Python functions grounding a text takes."""
    import sys

    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        ground(text, evidence)
    finally:
        sys.setprofile(before)
    return calls


@given(st.lists(st.lists(st.integers(2, 999), min_size=3, max_size=3), min_size=2, max_size=5))
def test_csv_and_rows_are_the_same_evidence(table):
    rows = [dict(zip(("aa", "bb", "cc"), row, strict=True)) for row in table]
    lines = ["aa,bb,cc", *(",".join(map(str, row)) for row in table)]
    text = " ".join(f"{name} of {v}" for row in table for name, v in zip("abc", row, strict=True))
    assert [one.verdict for one in ground(text, rows)] == [
        one.verdict for one in ground(text, "\n".join(lines))
    ]


def test_a_large_table_is_evidence():
    rows = [{"part": f"Part {a}{b}", "mass": a * 10 + b} for a, b in product(range(40), repeat=2)]
    claims = ground("Part 75 has a mass of 75.", rows)
    assert [one.verdict for one in claims if one.kind == "number"] == ["supported"]

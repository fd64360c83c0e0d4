"""A text is held against the row and the column that it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.checks import Claim, Derived, Evidence, Lexicon, ground, grounding, ungrounded
from heedful.errors import InvalidInput
from tests.checks.support import findings

MODELS = [
    {"model": "Naive", "rmse": 4.1, "r2": 0.61, "n_train": 12_000},
    {"model": "Ridge", "rmse": 3.25, "r2": 0.7, "n_train": 12_000},
    {"model": "Forest", "rmse": 3.0, "r2": 0.74, "n_train": 12_000},
]
CHESS = {
    "home_name": "Otters",
    "home_city": "Ghent",
    "home_line": {"CLUB-NAME": "Otters", "CLUB-PTS": "31", "CLUB-WINS": "7", "CLUB-LOSSES": "2"},
    "away_name": "Badgers",
    "away_city": "Bruges",
    "away_line": {"CLUB-NAME": "Badgers", "CLUB-PTS": "25", "CLUB-WINS": "4", "CLUB-LOSSES": "5"},
    "day": "05_06_21",
    "players": [
        {"PLAYER_NAME": "Ada Verne", "CITY": "Ghent", "PTS": "18", "CAPT": "11", "DRW": "1"},
        {"PLAYER_NAME": "Bo Lind", "CITY": "Ghent", "PTS": "9", "CAPT": "4", "DRW": "0"},
        {"PLAYER_NAME": "Cy Marsh", "CITY": "Ghent", "PTS": "4", "CAPT": "2", "DRW": "2"},
        {"PLAYER_NAME": "Dee Roth", "CITY": "Bruges", "PTS": "14", "CAPT": "3", "DRW": "1"},
        {"PLAYER_NAME": "Ed Sand", "CITY": "Bruges", "PTS": "6", "CAPT": "8", "DRW": "1"},
        {"PLAYER_NAME": "Flo Trent", "CITY": "Bruges", "PTS": "5", "CAPT": "1", "DRW": "3"},
    ],
}
WORDS = {
    "synonyms": {"scored": "points", "boards": "captures", "paced": "led"},
    "pairs": {"": ["CLUB-WINS", "CLUB-LOSSES"], "draws": ["DRW", "CAPT"]},
    "derived": {
        "double - double": {"columns": ["PTS", "CAPT"], "at_least": 10, "of": 2},
        "double figures": {"columns": ["pts"], "at_least": 10},
        "games": {"columns": ["CLUB-WINS", "CLUB-LOSSES"]},
    },
}
RUN = {"rmse": 3.25, "mae": 2.1, "r2": 0.7, "mape": 0.12}
SPLIT = {"train": {"rmse": 2.0, "mae": 1.5}, "test": {"rmse": 3.25, "mae": 2.5}}
SPLITS = {
    "train": [{"model": "Ridge", "rmse": 2.0}, {"model": "Naive", "rmse": 2.5}],
    "holdout": [{"model": "Ridge", "rmse": 3.25}, {"model": "Naive", "rmse": 4.0}],
}
LONG = [{"metric": "rmse", "value": 3.25}, {"metric": "mae", "value": 2.1}]
WATER = "date,level\n2021-03-01,2.5\n2021-03-02,3.75\n2021-03-03,3.1\n2021-03-04,1.25\n"


def judged(text: str, evidence: object, tolerance: float = 0.0) -> dict[str, str]:
    """What is claimed -> the verdict; statements left out."""
    claims = ground(text, evidence, tolerance=tolerance)
    return {claim.text: claim.verdict for claim in claims if claim.kind != "statement"}


def wrong(text: str, evidence: object, lexicon: Mapping[str, Any] | None = None) -> list[str]:
    claims = ground(text, evidence, lexicon=lexicon)
    return [claim.text for claim in claims if claim.verdict == "contradicted"]


@pytest.mark.parametrize(
    ("text", "contradicted"),
    [
        ("Ridge has an RMSE of 3.3.", []),
        ("Ridge has an RMSE of 4.1.", ["4.1"]),  # it is there, in the row of another
        ("The RMSE of Ridge is 3.25 and its R2 is 0.61.", ["0.61"]),
        ("Ridge reaches an R2 of 70 %, Naive an R2 of 61 percent.", []),
        ("Forest was trained on 12k training rows, with an RMSE of 3.", []),
        ("Ridge is ahead of Naive by 0.85 in RMSE.", []),
        ("Forest has an RMSE of about 3.1.", []),
        ("Forest has an RMSE of 3.1.", ["3.1"]),
    ],
)
def test_a_number_is_held_against_its_row_and_column(text, contradicted):
    assert wrong(text, MODELS) == contradicted


@pytest.mark.parametrize(
    ("text", "contradicted"),
    [
        ("Ada Verne had 18 points, 11 captures, and a draw. She drew with Bo Lind.", []),
        ("Ada Verne had 18 points, four captures and a draw.", ["four"]),
        ("The Otters ( 7 - 2 ) beat the Badgers ( 5 - 5 ), 31 - 25.", []),
        ("The Otters took a 6 - point win over the Badgers.", []),
        ("The Otters took a 9 - point win over the Badgers.", ["9"]),
        ("They met on Thursday, May 6, 2021, not on Sunday.", ["Sunday"]),
        ("The Otters beat the Ferrets.", ["Ferrets"]),
    ],
)
def test_a_report_is_held_against_nested_tables(text, contradicted):
    # Digits alone give the month first: 05_06_21 is the 6th of May, a Thursday.
    assert wrong(text, CHESS) == contradicted


@pytest.mark.parametrize(
    ("text", "contradicted"),
    [
        ("Ada Verne scored 18 and had 11 boards.", []),
        ("Ada Verne scored 14 and had 3 boards.", ["14", "3"]),
        ("The Otters ( 7 - 2 ) beat the Badgers ( 5 - 5 ), 31 - 25.", ["5"]),
        ("Cy Marsh made 1 of 2 draws.", ["1"]),
        ("Ada Verne had a double-double; Dee Roth was in double figures.", []),
        (
            "Dee Roth had a double-double; Ed Sand was in double figures.",
            ["double-double", "double figures"],
        ),
        ("The Otters had a double-double.", []),  # their row has no such columns
        ("The Otters played 9 games, the Badgers played 8 games.", ["8"]),
    ],
)
def test_a_lexicon_has_the_words_of_a_field(text, contradicted):
    assert wrong(text, CHESS, WORDS) == contradicted
    assert wrong(text, Evidence(CHESS, Lexicon.of(WORDS))) == contradicted


def test_an_article_names_no_column():
    assert judged("A 12 kg parcel.", {"a": 3, "b": 4}) == {"12": "not found"}
    assert wrong("b is 12.", {"a": 3, "b": 4}) == ["12"]


@pytest.mark.parametrize(
    "lexicon",
    [
        5,
        {"words": {}},
        {"pairs": {"shots": ["made"]}},
        {"derived": {"double": {"at_least": 10}}},
        {"derived": {"double": {"columns": ["PTS"], "times": 2}}},
        {"derived": {"double": {"columns": ["PTS"], "at_least": 10, "of": 2}}},
    ],
)
def test_a_wrong_lexicon_is_refused(lexicon):
    with pytest.raises(InvalidInput, match="lexicon"):
        grounding(MODELS, lexicon=lexicon)


def test_what_a_row_leaves_open_decides_no_condition():
    words = Lexicon(derived={"well stocked": Derived(("tea", "milk", "rice"), 10, 2)})
    text = "North is well stocked."

    def verdicts(**shop: int | None) -> list[str]:
        claims = ground(text, [{"shop": "North", **shop}, {"shop": "South"}], lexicon=words)
        return [claim.verdict for claim in claims if claim.kind == "comparison"]

    assert verdicts(tea=12, milk=10) == ["supported"]
    assert verdicts(tea=2, milk=3) == ["contradicted"]
    assert verdicts(tea=12, milk=3) == verdicts(tea=12, milk=3, rice=None) == []


def test_a_column_of_the_evidence_counts_before_a_sum_of_its_name():
    shops = [{"shop": "North", "rent": 2, "wages": 3, "spending": 7}, {"shop": "South", "rent": 1}]
    words = {"derived": {"spending": {"columns": ["rent", "wages"]}}}
    assert wrong("North has a spending of 5.", shops, words) == ["5"]


def test_evidence_has_one_lexicon():
    with pytest.raises(InvalidInput, match="lexicon"):
        ground("Nothing.", Evidence(MODELS), lexicon=WORDS)


@pytest.mark.parametrize(
    ("text", "evidence", "contradicted"),
    [
        ("It has an RMSE of 2.1 with an MAE of 3.25.", RUN, ["2.1", "3.25"]),
        ("MAE: 2.1, RMSE: 3.3, R²: 0.61, MAPE (12 %).", RUN, ["0.61"]),
        ("- **MAE**: 2.5\n- **RMSE**: 3.25\n- R-squared = 0.5", RUN, ["2.5", "0.5"]),
        ("The test RMSE is 2.0 and the train MAE is 1.5.", SPLIT, ["2.0"]),
        ("The RMSE is 2.1 and the MAE is 2.1.", LONG, ["2.1"]),
        ("Ridge (RMSE 3.25, R² 0.70) is ahead of Naive (4.1 RMSE, R² 0.7).", MODELS, ["0.7"]),
    ],
)
def test_the_metrics_of_a_run_are_held_against_their_names(text, evidence, contradicted):
    assert wrong(text, evidence) == contradicted


@pytest.mark.parametrize(
    ("text", "contradicted"),
    [
        ("Ridge has the lowest RMSE.", ["lowest RMSE"]),
        ("The lowest RMSE is that of Ridge.", ["lowest RMSE"]),
        ("The model with the highest R2 value is Forest; the highest RMSE was that of Naive.", []),
        ("Forest, with the highest R² and the highest RMSE, is best.", ["highest RMSE"]),
        ("Ridge was tuned and the lowest RMSE was reached.", []),
        ("From Naive to Ridge RMSE fell from 4.1 to 3.25 and R2 rose from 0.61 to 0.70.", []),
        ("From Naive to Ridge RMSE rose from 4.1 to 3.25.", ["rose"]),
        ("From Naive to Ridge RMSE fell from 4.1 to 3.5.", ["3.5"]),
    ],
)
def test_words_that_compare_are_held_against_rows(text, contradicted):
    assert wrong(text, MODELS) == contradicted


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Ridge improves RMSE by 20.7 % over Naive.", "supported"),
        ("Ridge improves RMSE by 40 % over Naive.", "not found"),
        ("Ridge and Naive differ in RMSE by 0.85.", "supported"),
        ("The 3 models differ.", "supported"),
        ("The 5 models differ.", "not found"),
    ],
)
def test_what_follows_from_named_rows_is_supported(text, verdict):
    assert [c.verdict for c in ground(text, MODELS) if c.kind == "number"] == [verdict]


FITTED = {"mae": 2.31, "rmse": 3.05, "baseline_mae": 3.4}


@pytest.mark.parametrize(
    ("text", "unsupported"),
    [
        ("MAE improved from 3.4 to 2.31, a reduction of 1.09 or 32.1 %.", []),
        ("MAE improved from 3.4 to 2.31, a reduction of 1.19 or 42 %.", ["1.19", "42"]),
        ("MAE improved from 3.4 to 2.51.", ["2.51"]),
        ("Against the baseline MAE of 3.4, the MAE of 2.31 is an improvement of 32 %.", []),
    ],
)
def test_a_change_and_its_size_are_held_against_a_run(text, unsupported):
    claims = [claim for claim in ground(text, FITTED) if claim.kind == "number"]
    assert [one.text for one in claims if one.verdict != "supported"] == unsupported


def test_of_tables_with_the_same_names_that_which_the_sentence_names_counts():
    text = "On the holdout, Ridge has an RMSE of 2.0. On train Ridge has an RMSE of 2.0."
    claims = [(one.verdict, one.paths) for one in ground(text, SPLITS) if one.kind == "number"]
    assert claims == [
        ("contradicted", ("$.holdout[0].rmse",)),
        ("supported", ("$.train[0].rmse",)),
    ]
    assert wrong("Ridge has an RMSE of 3.25, elsewhere an RMSE of 2.0.", SPLITS) == []


def test_a_direction_is_told_by_numbers_and_not_by_years():
    years = [
        {"year": 2019, "level": 3.5},
        {"year": 2020, "level": 4.5},
        {"year": 2021, "level": 2.5},
    ]
    assert wrong("The level rose from 2021 to 2020.", years) == []
    assert wrong("The level rose from 4.5 to 2.5.", years) == ["rose"]


def test_a_number_is_not_said_of_what_the_next_number_is():
    rows = [{"day": f"2021-03-0{n}", "speed": 2.5 + n, "gust": 6.5 + n} for n in range(1, 5)]
    text = "On March 1, 2021 the speed was 3.5 m/s with a gust of 7.5 m/s."
    assert wrong(text, rows) == []
    assert wrong(text.replace("3.5", "7.5"), rows) == ["7.5"]
    # A date beyond a comma is that of what stands beside it.
    assert wrong("The speed will reach 6.5, with a gust of 8.5 on March 2, 2021.", rows) == []


@pytest.mark.parametrize(
    ("text", "contradicted"),
    [
        ("The level was 3.75 on March 2, 2021.", []),
        ("The level was 3.1 on March 2, 2021.", ["3.1"]),
        ("On 2 March 2021 the level was 3.8, on 4 March 2021 it was 1.25.", []),
        ("On March 3 the level was 3.75.", ["3.75"]),
        ("From March 1, 2021 to March 4, 2021 the level reached 3.75.", []),
        ("The level was 2.5 on March 9, 2021.", ["March 9, 2021"]),
    ],
)
def test_in_a_dated_table_a_number_is_held_against_the_row_of_its_date(text, contradicted):
    assert wrong(text, WATER) == contradicted


def test_what_the_evidence_does_not_rule_out_is_not_found():
    text = "Ridge, tuned by Amelia at Zurich, has an RMSE of 3.25 after 77 rounds."
    verdicts = judged(text, MODELS)
    assert verdicts == {"Amelia": "not found", "Zurich": "not found", "3.25": "supported"} | {
        "77": "not found"
    }


def test_a_sentence_of_other_things_is_not_found():
    text = "Ridge has an RMSE of 3.25. Gardens flourish wherever gentle rain falls softly."
    (claim,) = (one for one in ground(text, MODELS) if one.kind == "statement")
    assert claim.verdict == "not found"
    assert text[slice(*claim.span)].startswith("Gardens")


def test_what_follows_per_is_a_unit():
    rows = [{"town": "Bern", "cases": 12}, {"town": "Chur", "cases": 9}]
    text = "Bern has 12 cases per 100,000 people."
    assert judged(text, rows) == {"12": "supported", "100,000": "not found"}


def test_a_people_is_known_by_its_country_and_a_country_by_its_code():
    rows = [{"name": "Lund", "country": "Sweden", "code": "SE"}, {"name": "Graz", "code": "AT"}]
    assert judged("There are Swedish towns, one is Lund of Sweden, one is in Austria.", rows) == {}
    assert judged("One town is in Portugal.", rows) == {"Portugal": "not found"}


def test_prose_is_evidence():
    prose = "The bridge was opened in 1932 by Ruth Alder. It is 310 metres long and carries trams."
    assert judged("The bridge of 310 metres was opened in 1932.", prose) == {
        "310": "supported",
        "1932": "supported",
    }
    assert judged("The bridge of 340 metres was opened by Ruth Elder.", prose) == {
        "340": "not found",
        "Ruth Elder": "not found",
    }


def test_prose_in_a_script_without_spaces_is_evidence():
    prose = "この橋は1932年に開通した。長さは310メートルである。"
    assert judged("橋は1932年に開通した。", prose) == {"1932": "supported"}
    assert judged("橋の長さは340メートルである。", prose) == {"340": "not found"}
    assert ground("長さは310メートルである。", prose)[0].verdict == "supported"


def test_tolerance_is_relative():
    assert judged("Ridge has an RMSE of 3.4.", MODELS) == {"3.4": "contradicted"}
    assert judged("Ridge has an RMSE of 3.4.", MODELS, tolerance=0.05) == {"3.4": "supported"}


def test_a_claim_says_where_and_what_is_true():
    text = "Ridge has an RMSE of 4.1."
    (claim,) = ground(text, MODELS)
    assert claim == Claim(
        (21, 24),
        "4.1",
        "number",
        "contradicted",
        ("$[1].rmse",),
        "3.25",
        "held against its row and column",
    )


def test_the_share_of_ungrounded_numbers():
    assert ungrounded(ground("Ridge: RMSE 4.1, and Naive: RMSE 4.1.", MODELS)) == 0.5
    assert ungrounded(ground("Nothing.", MODELS)) == 0.0


# The check


def test_contradicted_is_an_error_with_its_span_evidence_and_fix():
    text = "Ridge has an RMSE of 4.1."
    (finding,) = findings(grounding(MODELS), text)
    assert (finding.level, finding.span) == ("error", (21, 24))
    assert finding.evidence == "$[1].rmse = 3.25"
    assert "write 3.25" in finding.fix


def test_not_found_is_what_the_caller_says():
    text = "Ridge has 77 layers."
    assert [one.level for one in findings(grounding(MODELS), text)] == ["warning"]
    strict = grounding(MODELS, unsupported="error")
    assert [one.level for one in findings(strict, text)] == ["error"]


def test_the_same_mistake_elsewhere_in_the_text_has_the_same_key():
    one = findings(grounding(MODELS), "Ridge has an RMSE of 4.1.")
    two = findings(grounding(MODELS), "All in all Ridge has an RMSE of 4.1.")
    assert [f.key for f in one] == [f.key for f in two]


@pytest.mark.parametrize("evidence", [None, "", [], {}, [{}], {"a": None}, [{"a": []}]])
def test_no_evidence_is_a_finding_of_its_own(evidence):
    assert [one.key for one in findings(grounding(evidence), "2 apples")] == [
        "grounding: no evidence"
    ]


@pytest.mark.parametrize(
    "options", [{"tolerance": -0.1}, {"tolerance": 2}, {"tolerance": "no"}, {"unsupported": "note"}]
)
def test_arguments_are_checked(options):
    with pytest.raises(InvalidInput):
        grounding(MODELS, **options)


# What holds for any table

NAMES = ("Alder", "Birch", "Cedar", "Dogwood", "Elm", "Fir")
COLUMNS = {"weight": "a weight", "height": "a height", "price": "a price", "stock": "a stock"}
CELLS = st.integers(2, 9_999_999) | st.decimals(1, 9_999, places=2).map(float)


@st.composite
def told(draw):
    """A table, and a text that says a cell of each row truly."""
    chosen = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    rows = [{"name": name} | {column: draw(CELLS) for column in COLUMNS} for name in chosen]
    lines = []
    for row in rows:
        column = draw(st.sampled_from(sorted(COLUMNS)))
        plain = f"{row[column]:,}" if draw(st.booleans()) else str(row[column])
        text = draw(
            st.sampled_from(("{name} has {column} of {value}.", "The {bare} of {name} is {value}."))
        )
        lines.append(
            text.format(name=row["name"], column=COLUMNS[column], bare=column, value=plain)
        )
    return rows, lines


@given(told())
def test_what_is_true_of_a_table_is_supported(table):
    rows, lines = table
    claims = [one for one in ground(" ".join(lines), rows) if one.kind == "number"]
    assert [one.verdict for one in claims] == ["supported"] * len(lines)


@given(told(), st.data())
def test_one_changed_number_is_found(table, data):
    rows, lines = table
    n = data.draw(st.integers(0, len(lines) - 1))
    before, _, number = lines[n].removesuffix(".").rpartition(" ")
    more = float(number.replace(",", "")) + data.draw(st.integers(1, 10**6))
    changed = [*lines[:n], f"{before} {more:.2f}.", *lines[n + 1 :]]
    claims = [one for one in ground(" ".join(changed), rows) if one.kind == "number"]
    assert [one.verdict == "contradicted" for one in claims] == [
        at == n for at in range(len(lines))
    ]


@given(
    st.text(max_size=300),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner),
        max_leaves=20,
    ),
)
def test_any_text_can_be_held_against_anything(text, evidence):
    for claim in ground(text, Evidence(evidence)):
        assert text[slice(*claim.span)] == claim.text


@pytest.mark.parametrize(
    ("text", "told"), [("We trained on 2.8 things.", "write 2.67"), ("In 1461 days it grew.", "")]
)
def test_a_number_that_nothing_binds_is_meant_by_one_that_lies_near_or_by_none(
    text: str, told: str
):
    (finding,) = findings(grounding({"MAE": 2.11, "RMSE": 2.67}), text)
    assert ("nearest true value" in finding.message) is bool(told)
    assert finding.fix.startswith(told or "correct it")

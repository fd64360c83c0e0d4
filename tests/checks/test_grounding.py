"""A text is held against the row and the column that it names."""

from collections.abc import Mapping
from typing import Any, Literal

import pytest
from hypothesis import given, strategies as st

from heedful.checks import Evidence, Lexicon, ground, grounding
from heedful.checks.evaluate import Context
from heedful.errors import InvalidInput
from tests.checks.support import findings
from tests.tables import cases

MODELS = [
    {"model": "Naive", "rmse": 4.1, "r2": 0.61, "n_train": 12_000},
    {"model": "Ridge", "rmse": 3.25, "r2": 0.7, "n_train": 12_000},
    {"model": "Forest", "rmse": 3.0, "r2": 0.74, "n_train": 12_000},
]
CHESS = {
    "home_name": "Otters",
    "home_city": "Ghent",
    "home_line": {
        "CLUB-NAME": "Otters",
        "CLUB-PTS": "31",
        "CLUB-WINS": "7",
        "CLUB-LOSSES": "2",
    },
    "away_name": "Badgers",
    "away_city": "Bruges",
    "away_line": {
        "CLUB-NAME": "Badgers",
        "CLUB-PTS": "25",
        "CLUB-WINS": "4",
        "CLUB-LOSSES": "5",
    },
    "day": "05_06_21",
    "players": [
        {
            "PLAYER_NAME": "Ada Verne",
            "CITY": "Ghent",
            "PTS": "18",
            "CAPT": "11",
            "DRW": "1",
        },
        {
            "PLAYER_NAME": "Bo Lind",
            "CITY": "Ghent",
            "PTS": "9",
            "CAPT": "4",
            "DRW": "0",
        },
        {
            "PLAYER_NAME": "Cy Marsh",
            "CITY": "Ghent",
            "PTS": "4",
            "CAPT": "2",
            "DRW": "2",
        },
        {
            "PLAYER_NAME": "Dee Roth",
            "CITY": "Bruges",
            "PTS": "14",
            "CAPT": "3",
            "DRW": "1",
        },
        {
            "PLAYER_NAME": "Ed Sand",
            "CITY": "Bruges",
            "PTS": "6",
            "CAPT": "8",
            "DRW": "1",
        },
    ],
}
WORDS = {
    "synonyms": {"scored": "points", "boards": "captures", "paced": "led"},
    "pairs": {"": ["CLUB-WINS", "CLUB-LOSSES"], "draws": ["DRW", "CAPT"]},
}
RUN = {"rmse": 3.25, "mae": 2.1, "r2": 0.7, "mape": 0.12}
WATER = "date,level\n2021-03-01,2.5\n2021-03-02,3.75\n2021-03-03,3.1\n2021-03-04,1.25\n"


def read_verdicts(text: str, evidence: object) -> dict[str, str]:
    """What is claimed -> the verdict; statements left out."""
    claims = ground(text, evidence)
    return {claim.text: claim.verdict for claim in claims if claim.kind != "statement"}


def find_wrong(
    text: str, evidence: object, lexicon: Mapping[str, Any] | None = None
) -> list[str]:
    claims = ground(text, evidence, lexicon=lexicon)
    return [claim.text for claim in claims if claim.verdict == "contradicted"]


@cases(
    "evidence, text, contradicted",
    {
        "rounded as the text writes it": (MODELS, "Ridge has an RMSE of 3.3.", []),
        "the number of another row": (
            MODELS,
            "Ridge has an RMSE of 4.1.",
            ["4.1"],
        ),  # it is there, in the row of another
        "12k is twelve thousand": (
            MODELS,
            "Forest was trained on 12k training rows, with an RMSE of 3.",
            [],
        ),
        "a change and both its ends": (
            MODELS,
            "From Naive to Ridge RMSE fell from 4.1 to 3.25, by 0.85.",
            [],
        ),
        "numbers as words": (
            CHESS,
            "Ada Verne had 18 points, four captures and a draw.",
            ["four"],
        ),
        "the wrong day of the week": (
            CHESS,
            "They met on Thursday, May 6, 2021, not on Sunday.",
            ["Sunday"],
        ),
        "a list in Markdown": (
            RUN,
            "- **MAE**: 2.5\n- **RMSE**: 3.25\n- R-squared = 0.5",
            ["2.5", "0.5"],
        ),
        "a span of days": (
            WATER,
            "From March 1, 2021 to March 4, 2021 the level reached 3.75.",
            [],
        ),
        "lowest that is not": (MODELS, "Ridge has the lowest RMSE.", ["lowest RMSE"]),
        "highest that is so and that is not": (
            MODELS,
            "Forest, with the highest R² and the highest RMSE, is best.",
            ["highest RMSE"],
        ),
    },
)
def test_what_a_text_says_of_rows_and_columns(evidence, text, contradicted):
    assert find_wrong(text, evidence) == contradicted


@cases(
    "text, contradicted",
    {
        "a word for a column": ("Ada Verne scored 14 and had 3 boards.", ["14", "3"]),
        "a pair of words": (
            "The Otters ( 7 - 2 ) beat the Badgers ( 5 - 5 ), 31 - 25.",
            ["5"],
        ),
        "made of tried": ("Cy Marsh made 1 of 2 draws.", ["1"]),
    },
)
def test_a_lexicon_has_the_words_of_a_field(text, contradicted):
    assert find_wrong(text, CHESS, WORDS) == contradicted
    assert find_wrong(text, Evidence(CHESS, Lexicon.of(WORDS))) == contradicted


PROSE = (
    "The bridge was opened in 1932 by Ruth Alder. It is 310 metres long and carries "
    "trams."
)


@cases(
    "evidence, text, verdicts",
    {
        "names and numbers without a row": (
            MODELS,
            "Ridge, tuned by Amelia at Zurich, has an RMSE of 3.25 after 77 rounds.",
            {
                "Amelia": "not found",
                "Zurich": "not found",
                "3.25": "supported",
                "77": "not found",
            },
        ),
        "a share that is worked out": (
            MODELS,
            "Ridge improves RMSE by 40 % over Naive.",
            {"40": "not found"},
        ),
        "prose that says so": (
            PROSE,
            "The bridge of 310 metres was opened in 1932.",
            {"310": "supported", "1932": "supported"},
        ),
    },
)
def test_what_the_evidence_does_not_rule_out_is_not_found(evidence, text, verdicts):
    found_verdicts = read_verdicts(text, evidence)
    assert {name: found_verdicts[name] for name in verdicts} == verdicts
    assert "contradicted" not in found_verdicts.values()


# What a person wants refused, and what not

WARDS = [
    {"ward": "cardiology", "beds": 24, "occupied": 21},
    {"ward": "oncology", "beds": 18, "occupied": 12},
    {"ward": "intensive care", "beds": 10, "occupied": 9},
]
HARVEST = [
    {"line": "olive oil", "spring": 4100000, "autumn": 5330000, "change": 30.0},
    {"line": "wine", "spring": 2650000, "autumn": 1990000, "change": -24.9},
]
PUPILS = [
    {"pupil": "A", "maths": 71, "physics": 64},
    {"pupil": "B", "maths": 88, "physics": 92},
]
PLANT = (
    "The Hilltop plant made 4,200 tonnes in 2023 and 5,040 tonnes in 2024, and its "
    "workforce shrank from 310 to 290 people."
)
TRAINS = [
    {"train": "IC 5", "leaves": "2026-05-02T13:40:00+02:00"},
    {"train": "RE 9", "leaves": "2026-05-03T06:15:00+02:00"},
]


@cases(
    "evidence, right, wrong",
    {
        "small letters": (WARDS, "Oncology has 18 beds.", "Oncology has 24 beds."),
        "the row behind its number": (
            WARDS,
            "There are 18 beds in oncology.",
            "There are 24 beds in oncology.",
        ),
        "a table with the columns exchanged": (
            WARDS,
            "|ward|beds|occupied|\n|---|---|---|\n|oncology|18|12|",
            "|ward|beds|occupied|\n|---|---|---|\n|oncology|12|18|",
        ),
        "a table with a column for each row": (
            WARDS,
            "||cardiology|oncology|\n|---|---|---|\n|beds|24|18|",
            "||cardiology|oncology|\n|---|---|---|\n|beds|18|24|",
        ),
        "a range": (
            WARDS,
            "Oncology has between 15 and 20 beds.",
            "Oncology has between 20 and 25 beds.",
        ),
        "rows by year": (
            {"2023": {"visits": 51}, "2024": {"visits": 60}},
            "In 2023 there were 51 visits.",
            "In 2023 there were 60 visits.",
        ),
        "sum": (WARDS, "In total there are 52 beds.", "In total there are 57 beds."),
        "difference in a row": (
            WARDS,
            "Oncology has 6 free beds: 18 beds, 12 occupied.",
            "Oncology has 7 free beds: 18 beds, 12 occupied.",
        ),
        "difference in a column": (
            PUPILS,
            "B beat A by 17 points in maths.",
            "B beat A by 24 points in maths.",
        ),
        "share of a column": (
            WARDS,
            "Of all beds, oncology has 34.6 %.",
            "Of all beds, oncology has 43.6 %.",
        ),
        "a rise that is a fall": (
            HARVEST,
            "Wine fell from 2.65 million to 1.99 million.",
            "Wine rose from 2.65 million to 1.99 million.",
        ),
        "a signed change": (HARVEST, "Wine fell by 24.9 %.", "Wine rose by 24.9 %."),
        "prose about another year": (
            PLANT,
            "Output was more than 5,000 tonnes in 2024.",
            "Output was 4,200 tonnes in 2024.",
        ),
        "a part of a name": (
            [{"player": "Ida Kern", "goals": 1}, {"player": "Ann Reed", "goals": 3}],
            "Kern had 1 goal.",
            "Kern had 3 goals.",
        ),
        "one side of a number": (
            WARDS,
            "Oncology has fewer than 20 beds.",
            "Oncology has more than 20 beds.",
        ),
        "a time of day": (TRAINS, "IC 5 leaves at 1:40 pm.", "IC 5 leaves at 06:15."),
        "a zone": (TRAINS, "IC 5 leaves at 11:40 UTC.", "IC 5 leaves at 13:40 UTC."),
    },
)
def test_a_figure_in_the_wrong_place_is_refused(evidence, right, wrong):
    check = grounding(evidence)
    assert [f for f in findings(check, right) if f.level == "error"] == []
    assert [f for f in findings(check, wrong) if f.level == "error"] != []


@pytest.mark.parametrize(
    "column", ["segment", "region", "product", "team", "who", "label", "Name"]
)
def test_rows_have_names_whatever_their_column_is_called(column):
    rows = [{column: "alpha", "sales": 260}, {column: "beta", "sales": 310}]
    assert find_wrong("Alpha had sales of 310.", rows) == ["310"]
    assert find_wrong("Sales were 260 in alpha.", rows) == []


# The check


def test_contradicted_is_an_error_with_its_span_evidence_and_fix():
    short = "Ridge has an RMSE of 4.1."
    long = "All in all Ridge has an RMSE of 4.1."
    (finding,) = findings(grounding(MODELS), short)
    assert finding.level == "error"
    assert finding.span == (21, 24)
    assert finding.evidence == "$[1].rmse = 3.25"
    assert finding.fix == "write 3.25 for '4.1', or leave '4.1' out"
    assert [other.key for other in findings(grounding(MODELS), long)] == [finding.key]


def test_not_found_is_what_the_caller_says():
    text = "Ridge has 77 layers."
    with_name = "Ridge, says Amelia, has an RMSE of 3.25."
    cases: tuple[tuple[Literal["numbers", "warning", "error"], str, str], ...] = (
        ("numbers", "error", "warning"),
        ("warning", "warning", "warning"),
        ("error", "error", "error"),
    )
    for unsupported, number_level, name_level in cases:
        check = grounding(MODELS, unsupported=unsupported)
        assert [finding.level for finding in findings(check, text)] == [number_level]
        assert [finding.level for finding in findings(check, with_name)] == [name_level]
    assert grounding(MODELS)("77 layers", Context("t"))[0].level == "error"


@cases("evidence", {"None": None, "empty text": "", "no rows": []})
def test_no_evidence_is_a_finding_of_its_own(evidence):
    (finding,) = findings(grounding(evidence), "2 apples")
    assert finding.key == "grounding: no evidence"


@cases(
    "evidence, options",
    {
        "unsupported": (MODELS, {"unsupported": "note"}),
        "a lexicon that is a number": (MODELS, {"lexicon": 5}),
        "a lexicon with an unknown part": (MODELS, {"lexicon": {"words": {}}}),
        "a pair of one word": (MODELS, {"lexicon": {"pairs": {"shots": ["made"]}}}),
    },
)
def test_arguments_are_checked(evidence, options):
    with pytest.raises(InvalidInput, match=next(iter(options))):
        grounding(evidence, **options)


def test_evidence_may_be_asked_for_at_each_call():
    check = grounding(lambda candidate, state: state["metrics"])
    assert not check.pure
    assert grounding(RUN).pure

    def keys(metrics: object) -> list[str]:
        return [
            f.key
            for f in check("The MAE is 2.1.", Context("t", data={"metrics": metrics}))
        ]

    assert keys(RUN) == keys(Evidence(RUN)) == []
    assert keys({"mae": 2.4}) == ["grounding: number 2.1 $.mae"]
    assert keys(None) == ["grounding: no evidence"]


# What holds for any table

NAMES = ("Alder", "Birch", "Cedar", "Dogwood", "Elm", "Fir")
COLUMNS = {
    "weight": "a weight",
    "height": "a height",
    "price": "a price",
    "stock": "a stock",
}
CELLS = st.integers(2, 9_999_999) | st.decimals(1, 9_999, places=2).map(float)


@st.composite
def true_tables(draw):
    """A table, and a text that says a cell of each row truly."""
    chosen = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    rows = [
        {"name": name} | {column: draw(CELLS) for column in COLUMNS} for name in chosen
    ]
    lines = []
    for row in rows:
        column = draw(st.sampled_from(sorted(COLUMNS)))
        value = f"{row[column]:,}" if draw(st.booleans()) else str(row[column])
        text = draw(
            st.sampled_from(
                ("{name} has {column} of {value}.", "The {bare} of {name} is {value}.")
            )
        )
        lines.append(
            text.format(
                name=row["name"], column=COLUMNS[column], bare=column, value=value
            )
        )
    return rows, lines


@given(true_tables(), st.data())
def test_what_is_true_is_supported_and_one_changed_number_is_found(table, data):
    rows, lines = table
    claims = [
        claim for claim in ground(" ".join(lines), rows) if claim.kind == "number"
    ]
    assert [claim.verdict for claim in claims] == ["supported"] * len(lines)
    n = data.draw(st.integers(0, len(lines) - 1))
    before, _, number = lines[n].removesuffix(".").rpartition(" ")
    more = float(number.replace(",", "")) + data.draw(st.integers(1, 10**6))
    changed = [*lines[:n], f"{before} {more:.2f}.", *lines[n + 1 :]]
    claims = [
        claim for claim in ground(" ".join(changed), rows) if claim.kind == "number"
    ]
    contradicted = [
        position
        for position, claim in enumerate(claims)
        if claim.verdict == "contradicted"
    ]
    assert contradicted == [n]
    assert len(claims) == len(lines)


@given(
    st.text(max_size=300),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner)
        ),
        max_leaves=20,
    ),
)
def test_any_text_can_be_held_against_anything(text, evidence):
    for claim in ground(text, Evidence(evidence)):
        assert text[claim.span[0] : claim.span[1]] == claim.text

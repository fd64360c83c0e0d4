"""A text is held against the row and the column that it names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, strategies as st

from heedful.checks import Evidence, Lexicon, ground, grounding
from heedful.checks.evaluate import Context
from heedful.errors import InvalidInput
from tests.checks.support import findings
from tests.tables import cases, read_samples

MODELS = [
    {"model": "Naive", "rmse": 4.1, "r2": 0.61, "n_train": 12_000},
    {"model": "Ridge", "rmse": 3.25, "r2": 0.7, "n_train": 12_000},
    {"model": "Forest", "rmse": 3.0, "r2": 0.74, "n_train": 12_000},
]


def club(name: str, points: str, wins: str, losses: str) -> dict[str, str]:
    """Return the line of a club."""
    counts = {"CLUB-PTS": points, "CLUB-WINS": wins, "CLUB-LOSSES": losses}
    return {"CLUB-NAME": name, **counts}


def player(name: str, city: str, points: str, captures: str, draws: str) -> Any:
    """Return the line of a player."""
    counts = {"PTS": points, "CAPT": captures, "DRW": draws}
    return {"PLAYER_NAME": name, "CITY": city, **counts}


CHESS = {
    "home_name": "Otters",
    "home_city": "Ghent",
    "home_line": club("Otters", "31", "7", "2"),
    "away_name": "Badgers",
    "away_city": "Bruges",
    "away_line": club("Badgers", "25", "4", "5"),
    "day": "05_06_21",
    "players": [
        player("Ada Verne", "Ghent", "18", "11", "1"),
        player("Bo Lind", "Ghent", "9", "4", "0"),
        player("Cy Marsh", "Ghent", "4", "2", "2"),
        player("Dee Roth", "Bruges", "14", "3", "1"),
        player("Ed Sand", "Bruges", "6", "8", "1"),
    ],
}
WORDS = {
    "synonyms": {"scored": "points", "boards": "captures", "paced": "led"},
    "pairs": {"": ["CLUB-WINS", "CLUB-LOSSES"], "draws": ["DRW", "CAPT"]},
}
RUN = {"rmse": 3.25, "mae": 2.1, "r2": 0.7, "mape": 0.12}


def read_verdicts(text: str, evidence: object) -> dict[str, str]:
    """What is claimed -> the verdict; statements left out."""
    claims = ground(text, evidence)
    return {claim.text: claim.verdict for claim in claims if claim.kind != "statement"}


def find_wrong(
    text: str, evidence: object, lexicon: Mapping[str, Any] | None = None
) -> list[str]:
    claims = ground(text, evidence, lexicon=lexicon)
    return [claim.text for claim in claims if claim.verdict == "contradicted"]


def number_verdicts(text: str, evidence: object) -> list[str]:
    claims = ground(text, evidence)
    return [claim.verdict for claim in claims if claim.kind == "number"]


# Evidence, a text, and which of its words are contradicted.
CLAIMS = read_samples(Path(__file__).parent / "claims.txt")


@cases("evidence, text, contradicted", CLAIMS)
def test_what_a_text_says_of_rows_and_columns(evidence, text, contradicted):
    assert find_wrong(text, evidence) == contradicted.splitlines()


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


@pytest.mark.parametrize(
    "text", ["Total 35 EUR", "North 99 USD", "Revenue 99 euros", "Growth 35 %"]
)
def test_a_number_behind_a_word_with_a_capital_is_judged(text):
    assert number_verdicts(text, {"costs": 312}) == ["not found"]
    assert number_verdicts(text, {"total": 35, "other": 99}) == ["supported"]


# Evidence, a text that is right, and one with a figure in the wrong place.
FIGURES = read_samples(Path(__file__).parent / "figures.txt")


@cases("evidence, right, wrong", FIGURES)
def test_a_figure_in_the_wrong_place_is_refused(evidence, right, wrong):
    check = grounding(evidence)
    assert [f for f in findings(check, right) if f.level == "error"] == []
    assert [f for f in findings(check, wrong) if f.level == "error"] != []


PERMITS = [
    {"permit": "quarry", "fee": 3_400, "page": 17, "clause": 5.2},
    {"permit": "harbour", "fee": 9_100, "page": 230, "clause": 8.4},
]


@pytest.mark.parametrize(
    "citation",
    [
        "(page {})",
        "(page: {})",
        "(page no. {})",
        "(p. {})",
        "(pp. {})",
        "(pg. {})",
        "(Fig. {})",
        ", see p. {}",
        "on page {} of the register",
    ],
)
@pytest.mark.parametrize("fee", ["The quarry costs 3,400", "Quarry: a fee of 3,400"])
def test_a_page_is_compared_with_the_row_whose_figure_it_follows(fee, citation):
    right = f"{fee} {citation.format(17)}."
    assert number_verdicts(right, PERMITS) == ["supported", "supported"]
    wrong = f"{fee} {citation.format(230)}."
    assert number_verdicts(wrong, PERMITS) == ["supported", "contradicted"]


@cases(
    "text, verdicts",
    {
        "its own column": (
            "The quarry has clause 5.2 and on page 17 a fee of 3,400.",
            ["supported"] * 3,
        ),
        "the column of the next figure": (
            "The quarry stands on page 17 with a fee of 9,100.",
            ["supported", "contradicted"],
        ),
        "exchanged": (
            "The quarry costs 17 (page 3,400).",
            ["supported", "contradicted"],
        ),
        "the number of another row": (
            "The quarry costs 9,100 (page 17).",
            ["contradicted", "supported"],
        ),
        "a word behind a figure": (
            "The quarry: 17 page 3,400 fee.",
            ["supported", "supported"],
        ),
        "exchanged, a word behind a figure": (
            "The quarry: 3,400 page 17 fee.",
            ["contradicted", "contradicted"],
        ),
    },
)
def test_a_word_directly_before_a_figure_names_its_column_alone(text, verdicts):
    assert number_verdicts(text, PERMITS) == verdicts


def test_a_word_before_a_figure_names_its_column_if_no_word_behind_does():
    assert number_verdicts("Total 35 EUR", {"total": 312}) == ["contradicted"]


def test_the_year_of_a_row_is_not_compared_with_a_number_before_it():
    tides = [
        {"port": "Brest", "year": 2019, "metres": 7.3},
        {"port": "Brest", "year": 2020, "metres": 6.8},
    ]
    assert find_wrong("Brest saw 6.8 in the year 2020.", tides) == []
    assert find_wrong("Brest saw 6.8 in the year 2019.", tides) == ["6.8"]


def test_a_number_of_another_row_is_corrected_in_its_column():
    (claim,) = ground("The quarry costs 9,100.", PERMITS)
    assert claim.nearest == "3400"


def test_the_point_of_an_abbreviated_month_ends_no_sentence():
    levels = "date,level\n2021-01-03,3.1\n2021-01-04,1.25\n2021-01-05,2.2\n"
    assert find_wrong("On Jan. 4, 2021 the level was 1.25.", levels) == []
    assert find_wrong("On Jan. 4, 2021 the level was 3.1.", levels) == ["3.1"]


def test_the_point_of_a_unit_ends_a_sentence():
    crates = [{"crate": "Oak", "kg": 12}, {"crate": "Ash", "kg": 30}]
    assert find_wrong("Oak has 12 kg. 30 kg are in Ash.", crates) == []


@pytest.mark.parametrize(
    "column", ["segment", "region", "product", "team", "who", "label", "Name"]
)
def test_rows_have_names_whatever_their_column_is_called(column):
    rows = [{column: "alpha", "sales": 260}, {column: "beta", "sales": 310}]
    assert find_wrong("Alpha had sales of 310.", rows) == ["310"]
    assert find_wrong("Sales were 260 in alpha.", rows) == []


def test_a_text_that_is_a_number_is_no_name_of_a_row():
    rows = [
        {"rank": "1", "team": "Lyon", "pts": 30},
        {"rank": "2", "team": "Metz", "pts": 25},
    ]
    (claim,) = ground("Metz has the highest pts.", rows)
    assert claim.nearest == "Lyon"


# Other languages

MILLS = [
    {"mill": "Ulm", "output": 7654.32, "loss": 0.045},
    {"mill": "Graz", "output": 915.5, "loss": 0.072},
]


@cases(
    "right, wrong",
    {
        "German": ("Ulm: output 7.654,32 t, loss 4,5 %.", "Ulm: output 7.645,32 t."),
        "French": ("Ulm: output 7\u202f654,32 t.", "Ulm: output 7\u202f564,32 t."),
        "spaces": ("Ulm: output 7 654,32 t.", "Ulm: output 7 564,32 t."),
        "Swiss": ("Ulm: output 7'654.32 t.", "Ulm: output 7'564.32 t."),
        "one comma": ("Graz: output 915,5 t.", "Graz: output 951,5 t."),
        "nothing decides": ("Ulm: output 7.654 t.", "Ulm: output 7.564 t."),
    },
)
def test_rows_are_compared_with_numbers_of_any_language(right, wrong):
    assert set(number_verdicts(right, MILLS)) == {"supported"}
    (claim,) = (claim for claim in ground(wrong, MILLS) if claim.kind == "number")
    assert claim.verdict == "contradicted"
    assert claim.text in wrong
    assert len(claim.text) >= len("951,5")


def test_a_wrong_number_is_corrected_in_the_signs_of_its_text():
    (finding,) = findings(grounding(MILLS), "Ulm: output 8.654,32 t.")
    assert finding.fix == "write 7654,32 for '8.654,32', or leave '8.654,32' out"


@cases(
    "evidence",
    {
        "prose": "Die Mühle verlor 4,5 % und machte 7.654 Säcke.",
        "lines that look like a table": (
            "Der Verlust war 4,5 %.\nDer Preis stieg um 3,2 %.\nDie Fracht um 8,1 %."
        ),
        "cells": [{"mill": "Ulm", "loss": "4,5"}, {"mill": "Graz", "loss": "7,2"}],
    },
)
def test_a_number_is_not_split_at_its_decimal_comma(evidence):
    assert number_verdicts("Es waren 4,5 %.", evidence) == ["supported"]
    assert number_verdicts("Es waren 5,4 %.", evidence) == ["not found"]


def test_evidence_that_shows_no_decimal_sign_is_read_both_ways():
    cells = [{"mill": "Ulm", "bags": "7.654"}, {"mill": "Graz", "bags": "8.321"}]
    assert number_verdicts("Ulm: bags 7654, 4,5 % more.", cells)[0] == "supported"
    assert number_verdicts("Ulm: bags 7.654 in all.", cells) == ["supported"]
    assert number_verdicts("Ulm: bags 8321 in all.", cells) == ["contradicted"]


@cases(
    "source, invented, kept",
    {
        "Chinese": (
            "这家工厂生产面粉，位于多瑙河边。",
            "他昨天卖掉了三辆旧自行车。",
            "工厂位于多瑙河边。",
        ),
        "Japanese": (
            "この工場は川のそばで粉を作ります。",
            "彼女は昨日映画館へ行った。",
            "工場は川のそばにあり粉を作る。",
        ),
    },
)
def test_a_sentence_without_spaces_is_judged_by_its_words(source, invented, kept):
    claims = ground(f"{kept}{invented}", source)
    assert [(claim.text, claim.verdict) for claim in claims] == [
        (invented, "not found")
    ]


# Comparisons without a number, and the date of a text

SHOPS = [{"shop": "Lyon", "sales": 52}, {"shop": "Metz", "sales": 37}]
MONTHS = [{"month": "2025-03", "sales": 52}, {"month": "2025-04", "sales": 37}]
# They rise in all, but not in each month.
SPRING = [*MONTHS, {"month": "2025-05", "sales": 64}]
LAST_WEEK = {"sales_last_week": 40, "returns": 4}
THIS_WEEK = [
    {"shop": "Lyon", "sales": 52, **LAST_WEEK, "return_rate": 0.08},
    {"shop": "Metz", "sales": 37, **LAST_WEEK, "return_rate": 0.11},
]
TABLES = {"shops": SHOPS, "week": THIS_WEEK}
AGAINST = {"shops": SHOPS, "plan": [{**SHOPS[0], "sales": 20}, SHOPS[1]]}


def comparisons(text: str, evidence: object) -> list[str]:
    claims = ground(text, evidence)
    return [claim.verdict for claim in claims if claim.kind == "comparison"]


@cases(
    "text, evidence, verdict",
    {
        "an order that is true": ("Lyon sold more than Metz.", SHOPS, "supported"),
        "an order that is false": ("Metz sold more than Lyon.", SHOPS, "contradicted"),
        "less": ("Lyon has lower sales than Metz.", SHOPS, "contradicted"),
        "an order by nothing known": ("Lyon is nicer than Metz.", SHOPS, "not found"),
        "an order of something else": (
            "Metz has more clerks than Lyon.",
            SHOPS,
            "not found",
        ),
        "an order that is denied": (
            "Lyon did not sell more than Metz.",
            SHOPS,
            "not found",
        ),
        "a lead that is true": ("Lyon leads.", SHOPS, "supported"),
        "a lead that is false": ("Metz leads.", SHOPS, "contradicted"),
        "a lead in something else": ("Metz leads in clerks.", SHOPS, "not found"),
        "a trend that is true": ("Sales fell.", MONTHS, "supported"),
        "a trend that is false": ("Sales rose.", MONTHS, "contradicted"),
        "a trend without time": ("Sales fell.", SHOPS, "not found"),
        "a trend of nothing known": ("Prices fell.", MONTHS, "not found"),
        "a steady trend": ("Sales rose every month.", SPRING, "contradicted"),
        "a trend in all": ("Sales rose.", SPRING, "supported"),
        "a trend between two dates": (
            "Sales rose from March 2025 to April 2025.",
            SPRING,
            "contradicted",
        ),
        "a trend from one date on": (
            "Sales rose after April 2025.",
            SPRING,
            "not found",
        ),
        "a trend that another table of rows has": (
            "Sales rose.",
            {"shops": SHOPS, "months": MONTHS},
            "contradicted",
        ),
        "an extreme at a date": (
            "April 2025 has the highest sales.",
            SPRING,
            "contradicted",
        ),
        "an extreme whose column stands before it": (
            "Sales peaked in May 2025.",
            SPRING,
            "supported",
        ),
        "an extreme by nothing known": (
            "May 2025 is the strongest month.",
            SPRING,
            "not found",
        ),
        "the second place": (
            "March 2025 has the second highest sales.",
            SPRING,
            "not found",
        ),
        "an extreme of a year": (
            "In 2025, sales peaked in March 2025.",
            SPRING,
            "not found",
        ),
        "a trend that is denied": ("Sales did not fall.", MONTHS, "not found"),
        "an extreme of a name in two words": (
            "The return rate was lowest in Metz.",
            THIS_WEEK,
            "contradicted",
        ),
        "the best, which may be the lowest": (
            "Lyon has the best sales.",
            SHOPS,
            "not found",
        ),
        "an order of two dates": (
            "March 2025 has more sales than May 2025.",
            SPRING,
            "contradicted",
        ),
        "an order in two tables": (
            "Metz has more sales than Lyon.",
            TABLES,
            "contradicted",
        ),
        "an order on which two tables disagree": (
            "Lyon has more sales than Metz.",
            AGAINST,
            "not found",
        ),
        "what is ahead": (
            "Metz was ahead of Lyon in sales.",
            THIS_WEEK,
            "contradicted",
        ),
        "what is behind": ("Metz's sales were below Lyon's.", SHOPS, "supported"),
        "a lead over another": ("Metz leads Lyon in sales.", SHOPS, "contradicted"),
        "a lead in a part of the table": ("Metz led the south.", SHOPS, "not found"),
        "an order in German": (
            "Metz hatte mehr sales als Lyon.",
            SHOPS,
            "contradicted",
        ),
        "an order in Spanish": (
            "Lyon tiene más sales que Metz.",
            SHOPS,
            "supported",
        ),
        "words of another language": (
            "Lyon übertraf Metz deutlich.",
            SHOPS,
            "not found",
        ),
        "a language that shares a word with English": (
            "Lyon übertraf Metz in allen Filialen.",
            SHOPS,
            "not found",
        ),
    },
)
def test_a_comparison_is_judged_by_rows_or_said_to_be_not_judged(
    text, evidence, verdict
):
    assert comparisons(text, evidence) == [verdict]


@pytest.mark.parametrize(
    "text", ["Metz leads to a new road.", "At least Metz delivered its goods."]
)
def test_a_word_of_comparison_may_compare_nothing(text):
    assert comparisons(text, SHOPS) == []


@pytest.mark.parametrize(
    "text",
    [
        "Report of 30 May 2025: Lyon sold 52.",
        "As of 2025-05-30, Lyon sold 52.",
        "Stand: 30.05.2025\nLyon sold 52.",
        "Bericht vom 30. Mai 2025: Lyon verkaufte 52.",
        "Weekly report, week 22 (as of 2025-05-30)\nLyon sold 52.",
        "Weekly report week 22/2025: Lyon sold 52.",
        "30 May 2025\nLyon sold 52.",
    ],
)
@pytest.mark.parametrize("evidence", [SHOPS, [*SHOPS, *MONTHS]])
def test_the_date_of_a_report_is_no_claim(text, evidence):
    assert read_verdicts(text, evidence) == {"52": "supported"}


@cases(
    "text, verdict",
    {
        "a bound in German": ("Lyon hatte mehr als 50 sales.", "supported"),
        "a wrong bound in German": ("Lyon hatte mehr als 60 sales.", "contradicted"),
        "an abbreviation": ("Lyon hatte ca. 50 sales.", "supported"),
        "a bound in French": ("Lyon avait plus de 50 sales.", "supported"),
        "a bound in Spanish": ("Lyon tuvo más de 50 sales.", "supported"),
        "a sum": ("Insgesamt gab es 89 sales.", "supported"),
        "a mean": ("Im Durchschnitt 44,5 sales.", "supported"),
    },
)
def test_the_commonest_words_of_other_languages_say_what_a_number_is(text, verdict):
    verdicts = [
        claim.verdict for claim in ground(text, SHOPS) if claim.kind == "number"
    ]
    assert verdicts == [verdict]


@cases(
    "text, evidence, verdict",
    {
        "since the number in another column": (
            "Sales of Lyon rose by 30 %.",
            THIS_WEEK,
            "supported",
        ),
        "as an amount": ("Sales of Metz fell by 3.", THIS_WEEK, "supported"),
        "an amount that is said to be a percentage": (
            "Sales of Lyon rose by 12 %.",
            THIS_WEEK,
            "contradicted",
        ),
        "in the other direction": (
            "Sales of Metz rose by 7.5 %.",
            THIS_WEEK,
            "contradicted",
        ),
        "in a column of changes": (
            "Sales of Lyon grew by 7.7 percent.",
            [{**row, "change": 0.0767} for row in SHOPS],
            "supported",
        ),
        "between two dates": (
            "Sales in May 2025 are 12 higher than in March 2025.",
            SPRING,
            "supported",
        ),
    },
)
def test_a_change_follows_from_what_the_rows_have(text, evidence, verdict):
    verdicts = [
        claim.verdict for claim in ground(text, evidence) if claim.kind == "number"
    ]
    assert verdicts == [verdict]


def test_the_rows_that_rise_are_counted():
    three = [*THIS_WEEK, {**THIS_WEEK[0], "shop": "Nice"}]
    assert (
        read_verdicts("Sales rose in two of three shops.", three)["two"] == "supported"
    )


@cases(
    "text",
    {
        "of German": "5. März 2025",
        "of French": "5 août 2025",
        "of Spanish": "5 de enero de 2025",
        "that may be a planet": "5 mars 2025",
    },
)
def test_the_names_of_months_are_read(text):
    claims = ground(f"Lyon, {text}", SHOPS)
    assert [claim.text for claim in claims if claim.kind == "date"] == [text]


def test_a_planet_is_no_month():
    kinds = [claim.kind for claim in ground("We flew to Mars.", SHOPS)]
    assert "date" not in kinds


def test_the_year_of_a_quarter_is_a_date():
    assert read_verdicts("In Q2 2025, Lyon sold 52.", SHOPS)["Q2 2025"] == "not found"
    years = [{"year": 2025, "sales": 52}]
    assert read_verdicts("In Q2 2025, sales were 52.", years)["Q2 2025"] == "supported"


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
    assert number_verdicts(" ".join(lines), rows) == ["supported"] * len(lines)
    n = data.draw(st.integers(0, len(lines) - 1))
    before, _, number = lines[n].removesuffix(".").rpartition(" ")
    more = float(number.replace(",", "")) + data.draw(st.integers(1, 10**6))
    changed = [*lines[:n], f"{before} {more:.2f}.", *lines[n + 1 :]]
    verdicts = number_verdicts(" ".join(changed), rows)
    assert verdicts[n] == "contradicted"
    assert verdicts.count("contradicted") == 1
    assert len(verdicts) == len(lines)


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

"""What a text about a run cites is there."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from heedful.checks import insights, precision
from heedful.checks.evaluate import Context
from heedful.errors import InvalidInput
from heedful.loop.record import Finding
from tests.checks.support import findings
from tests.tables import cases, read_samples

METRICS = {"mae": 2.1, "test_rmse": 3.25, "r2": 0.7}


def find_cited(text: str, **run: object) -> list[str]:
    """The words that are found to cite what is not there."""
    problems = findings(insights(**run), text)
    assert {finding.check for finding in problems} <= {"insight_hallucination"}
    assert {finding.level for finding in problems} <= {"error"}
    assert all(finding.fix and finding.span for finding in problems)
    spans = [finding.span for finding in problems if finding.span]
    return [text[start:end] for start, end in spans]


SALES = "We predict 120 sales in May."
# What a run has, a text about it, and the words that cite what is not there.
CITED = read_samples(Path(__file__).parent / "cited.txt")


@cases("run, text, wrong", CITED)
def test_what_a_text_cites_and_the_run_does_not_have(run, text, wrong):
    assert find_cited(text, **json.loads(run)) == wrong.splitlines()


def test_a_character_that_stands_for_several_words_is_one_word():
    assert find_cited("\ufdfa \ufdfa. The log-loss is 2.", metrics=None) == ["log-loss"]
    assert find_cited("\ufdfa has an R² of 2.", metrics=None) == ["R²"]


def test_a_frame_without_rows_has_no_results():
    import pandas as pd

    assert find_cited(SALES, results=pd.DataFrame({"y": []})) == ["predict"]


def test_what_a_run_has_may_be_asked_at_each_call():
    import polars as pl

    state = SimpleNamespace(
        metrics=None, frame=pl.DataFrame({"wind": [1]}), results=None
    )
    check = insights(
        metrics=lambda candidate, state: state.metrics,
        columns=lambda candidate, state: state.frame,
        results=lambda candidate, state: state.results,
    )
    text = "We forecast an MAE of 2.1 from the `rain` column."

    def check_text() -> list[Finding]:
        return list(check(text, Context("a task", data=state)))

    assert [finding.key.partition(": ")[2] for finding in check_text()] == [
        "metric mae",
        "column rain",
        "prediction",
    ]
    state.metrics = METRICS
    state.frame = pl.DataFrame({"rain": [1]})
    state.results = [1.0]
    assert check_text() == []
    assert not check.pure
    assert insights(metrics=METRICS).pure
    assert not insights(results="forecast.csv").pure


def test_nothing_to_look_at_is_refused():
    with pytest.raises(InvalidInput, match="metrics"):
        insights()
    with pytest.raises(InvalidInput, match="at_most"):
        precision(at_most=-1)


# Many numbers


MANY = ", ".join(f"{n}.5" for n in range(20, 31))


@cases(
    "evidence, level, words",
    {
        "no evidence": (None, "warning", "11 specific numbers, 100% of them"),
        "all of the evidence": (
            [{"n": n + 0.5} for n in range(20, 31)],
            "note",
            "0% of them",
        ),
    },
)
def test_many_numbers_are_a_warning_with_the_share_that_is_not_borne_out(
    evidence, level, words
):
    (finding,) = findings(precision(evidence), MANY)
    assert finding.check == "excessive_precision"
    assert finding.level == level
    assert words in finding.message
    assert "cross-check" in finding.fix

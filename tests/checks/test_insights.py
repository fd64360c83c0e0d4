"""What a text about a run cites is there."""

from types import SimpleNamespace

import pytest

from heedful.checks import insights, precision
from heedful.checks.evaluate import Context
from heedful.errors import InvalidInput
from heedful.loop.record import Finding
from tests.checks.support import findings
from tests.tables import cases

METRICS = {"mae": 2.1, "test_rmse": 3.25, "r2": 0.7}
COLUMNS = ["date", "temp_max", "wind"]


def find_cited(text: str, **run: object) -> list[str]:
    """The words that are found to cite what is not there."""
    problems = findings(insights(**run), text)
    assert {finding.check for finding in problems} <= {"insight_hallucination"}
    assert {finding.level for finding in problems} <= {"error"}
    assert all(finding.fix and finding.span for finding in problems)
    spans = [finding.span for finding in problems if finding.span]
    return [text[start:end] for start, end in spans]


MAE = "The model has an MAE of 3.2."
ACCURACY = "The accuracy is high."
SALES = "We predict 120 sales in May."
METRIC = {"metrics": METRICS}
COLUMN = {"columns": COLUMNS}
RUN = METRIC | COLUMN | {"results": None}


@cases(
    "text, run, wrong",
    {
        "no metrics": (MAE, {"metrics": None}, ["MAE"]),
        "a metric that is None": (MAE, {"metrics": {"mae": None}}, ["MAE"]),
        "a metric that is there": (MAE, METRIC, []),
        "accuracy without actual values": (
            ACCURACY,
            {"columns": ["date", "predicted"]},
            ["accuracy"],
        ),
        "no results": (SALES, {"results": None}, ["predict"]),
        "nothing cited": (
            "Sales grew in May.",
            {"metrics": None, "columns": (), "results": None},
            [],
        ),
        # What the run has, and what is no metric.
        "metrics by their long names": (
            "Mean absolute error is 2.1, root mean squared error 3.25, R² 0.7.",
            RUN,
            [],
        ),
        "metrics that are denied": (
            "No accuracy was computed. Without an F1 score nothing more can be said.",
            RUN,
            [],
        ),
        # What it does not have.
        "precision and recall": (
            "It reached 92 % precision and a recall of 0.8.",
            METRIC,
            ["precision", "recall"],
        ),
        "a plural": (
            "Mean absolute percentage errors of 4 %.",
            METRIC,
            ["Mean absolute percentage errors"],
        ),
        "a column in code marks": (
            "The column `humidity` drives it, the `wind` column does not.",
            COLUMN,
            ["humidity"],
        ),
        "a column in plain words": (
            "A column of dew, and the dew_point feature.",
            COLUMN,
            ["dew_point"],
        ),
        "words before column that name none": (
            "The first column, the missing column and the columns show it.",
            COLUMN,
            [],
        ),
    },
)
def test_what_a_text_cites_and_the_run_does_not_have(text, run, wrong):
    assert find_cited(text, **run) == wrong


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
    "text, evidence, warning",
    {
        "no evidence": (MANY, None, ("warning", "11 specific numbers, 100% of them")),
        "all of the evidence": (
            MANY,
            [{"n": n + 0.5} for n in range(20, 31)],
            ("note", "0% of them"),
        ),
    },
)
def test_many_numbers_are_a_warning_with_the_share_that_is_not_borne_out(
    text, evidence, warning
):
    warnings = findings(precision(evidence), text)
    assert [(finding.check, finding.level) for finding in warnings] == (
        [("excessive_precision", warning[0])] if warning else []
    )
    assert all(
        warning[1] in finding.message and "cross-check" in finding.fix
        for finding in warnings
    )

"""What a text about a run cites is there."""

from types import SimpleNamespace

import pandas as pd
import polars as pl
import pytest

from heedful.checks import insights, precision
from heedful.checks.evaluate import Context
from heedful.errors import InvalidInput
from heedful.loop.record import Finding
from tests.checks.support import findings

METRICS = {"mae": 2.1, "test_rmse": 3.25, "r2": 0.7}
COLUMNS = ["date", "temp_max", "wind"]


def cited(text: str, **run: object) -> list[str]:
    """The words that are found to cite what is not there."""
    found = findings(insights(**run), text)
    assert {one.check for one in found} <= {"insight_hallucination"}
    assert {one.level for one in found} <= {"error"}
    assert all(one.fix and one.span for one in found)
    return [text[slice(*one.span)] for one in found if one.span]


MAE = "The model has an MAE of 3.2."
ACCURACY = "The accuracy is high."
SALES = "We predict 120 sales in May."
METRIC = {"metrics": METRICS}
COLUMN = {"columns": COLUMNS}
RUN = METRIC | COLUMN | {"results": None}


@pytest.mark.parametrize(
    ("text", "run", "wrong"),
    [
        (MAE, {"metrics": None}, ["MAE"]),
        (MAE, {"metrics": {"mae": None}}, ["MAE"]),
        (MAE, {"metrics": {"mae": float("nan")}}, ["MAE"]),
        (MAE, METRIC, []),
        (ACCURACY, {"columns": ["date", "predicted"]}, ["accuracy"]),
        (ACCURACY, {"columns": ["date", "predicted", "actual"]}, []),
        (ACCURACY, {"columns": ["date", "accuracy"]}, []),
        (ACCURACY, {"metrics": METRICS, "columns": ["actual"]}, ["accuracy"]),
        (SALES, {"results": None}, ["predict"]),
        (SALES, {"results": "no/such/file.parquet"}, ["predict"]),
        (SALES, {"results": pd.DataFrame({"y": []})}, ["predict"]),
        (SALES, {"results": pl.DataFrame({"y": [1.0]})}, []),
        (SALES, {"results": False}, ["predict"]),
        ("Sales grew in May.", {"metrics": None, "columns": (), "results": None}, []),
        # What the run has, and what is no metric.
        ("Mean absolute error is 2.1, root mean squared error 3.25, R² 0.7.", RUN, []),
        ("MAE 2.1, R-squared 0.70 and an RMSE of 3.25.", RUN, []),
        (
            "No accuracy was computed. Without an F1 score nothing more can be said.",
            RUN,
            [],
        ),
        ("With precision and care we recall what Mae did.", RUN, []),
        # What it does not have.
        (
            "It reached 92 % precision and a recall of 0.8.",
            METRIC,
            ["precision", "recall"],
        ),
        (
            "Mean absolute percentage errors of 4 %.",
            METRIC,
            ["Mean absolute percentage error"],
        ),
        ("ROUGE is 0.3 and the F1-score 0.9.", METRIC, ["ROUGE", "F1"]),
        ("The AUC is excellent; the AUROC as well.", METRIC, ["AUC"]),
        (
            "The column `humidity` drives it, the `wind` column does not.",
            COLUMN,
            ["humidity"],
        ),
        (
            "The features 'humidity', 'wind' and 'dew' matter.",
            COLUMN,
            ["humidity", "dew"],
        ),
        ("A column of dew, and the dew_point feature.", COLUMN, ["dew_point"]),
        ("The temperature column and the max temp column drive it.", COLUMN, []),
        ("The first column, the missing column and the columns show it.", COLUMN, []),
    ],
)
def test_what_a_text_cites_and_the_run_does_not_have(text, run, wrong):
    assert cited(text, **run) == wrong


def test_what_a_run_has_may_be_asked_at_each_call():
    state = SimpleNamespace(
        metrics=None, frame=pl.DataFrame({"wind": [1]}), results=None
    )
    check = insights(
        metrics=lambda candidate, state: state.metrics,
        columns=lambda candidate, state: state.frame,
        results=lambda candidate, state: state.results,
    )
    text = "We forecast an MAE of 2.1 from the `rain` column."

    def found() -> list[Finding]:
        return list(check(text, Context("a task", data=state)))

    assert [one.key.partition(": ")[2] for one in found()] == [
        "metric mae",
        "column rain",
        "prediction",
    ]
    state.metrics = METRICS
    state.frame = pl.DataFrame({"rain": [1]})
    state.results = [1.0]
    assert found() == []
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


@pytest.mark.parametrize(
    ("text", "evidence", "told"),
    [
        (MANY, None, ("warning", "11 specific numbers, 100% of them")),
        (MANY.removesuffix(", 30.5"), None, None),
        (MANY, [{"n": n + 0.5} for n in range(20, 26)], ("warning", "45% of them")),
        (MANY, [{"n": n + 0.5} for n in range(20, 31)], ("note", "0% of them")),
        (MANY, lambda candidate, state: [{"n": 20.5}], ("warning", "91% of them")),
        ("On March 9, 2021 A16 was out. " * 11, None, None),
    ],
)
def test_many_numbers_are_a_warning_with_the_share_that_is_not_borne_out(
    text, evidence, told
):
    found = findings(precision(evidence), text)
    assert [(one.check, one.level) for one in found] == (
        [("excessive_precision", told[0])] if told else []
    )
    assert all(told[1] in one.message and "cross-check" in one.fix for one in found)

"""The documented cases of stage guardrails, each through a stage that is told and then does right.

What is written is wrong at first as the case says, and right at the second attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from heedful import checks
from heedful.pipeline import Guardrails, Pipeline
from heedful.store.runs import Report
from tests.pipeline.support import ran

CHANCE = np.random.default_rng(3)
NOISE = CHANCE.normal(size=300)
NOISE = (NOISE - NOISE.mean()) / NOISE.std(ddof=1)
LAST = "\n\nPlease address these issues and regenerate the output."


def column(mean: float, std: float) -> Any:
    """Values of exactly this mean and sample standard deviation."""
    return mean + std * NOISE


def near(values: Any) -> Any:
    """Predictions as good as they should be."""
    other = CHANCE.normal(size=len(values))
    return values + 0.4 * np.std(values, ddof=1) * other


def retried(
    make: Callable[[str | None], Any], *given: Any, state: Any = None, **options: Any
) -> tuple[Report, str]:
    """The report of a stage, and what it was told after its first attempt."""
    said: list[str | None] = []
    pipeline = Pipeline("p", store=":memory:", progress=False, **options)

    @pipeline.stage(checks=given)
    def stage_4(state: Any, feedback: str | None = None) -> Any:
        said.append(feedback)
        return make(feedback)

    report = ran(pipeline, {} if state is None else state)
    assert said[0] is None
    return report, said[1] if len(said) > 1 and said[1] else ""


PREDICTED = [
    ("hallucination_detection", (89.23, 74.86), (1234.56, 74.86), ["1234.56", "89.23", "15.3"]),
    ("hallucination_detection", (200, 192), (5000, 192), ["5000", "200", "25"]),
    ("variance_hallucination", (0, 10_000), (0, 500), ["500", "10000", "0.05"]),
    ("variance_hallucination", (0, 10_000), (0, 10), ["10", "10000", "0.001"]),
    ("constant_predictions", (50, 20), (50, 0.0001), ["0.0001"]),
]


@pytest.mark.parametrize(("name", "actual", "predicted", "figures"), PREDICTED)
def test_predictions_that_were_made_up(
    name: str, actual: Any, predicted: Any, figures: list[str], tmp_path: Path
) -> None:
    file, y = tmp_path / "results.csv", column(*actual)

    def train(feedback: str | None) -> str:
        made = near(y) if feedback else column(*predicted)
        pd.DataFrame({"y": y, "yhat": made}).to_csv(file, index=False)
        return str(file)

    limits: Any = Guardrails().thresholds
    check = checks.predictions(str(file), actual="y", predicted="yhat", **limits)
    report, said = retried(train, check)
    first, second = report.stages[0].attempts
    assert (first.overall_status, second.overall_status) == ("failed", "passed")
    (found,) = [one for one in first.checks if one.check_name == name]
    assert (found.status, found.severity) == ("failed", "critical")
    for figure in figures:
        assert figure in found.message.replace(",", ""), found.message
    assert said.startswith("GUARDRAIL FEEDBACK - Critical issues detected in stage_4:\n- ")
    assert any(line.startswith(f"- {name}: ") for line in said.split("\n"))
    assert found.suggestion.rstrip(".") in said
    assert said.endswith(LAST)
    assert {one.check_name: one.status for one in second.checks}[name] == "passed"


def test_a_results_file_that_is_missing(tmp_path: Path) -> None:
    file, y = tmp_path / "results.csv", column(50, 20)

    def train(feedback: str | None) -> str:
        if feedback:
            pd.DataFrame({"y": y, "yhat": near(y)}).to_csv(file, index=False)
        return str(file)

    report, said = retried(train, checks.predictions(str(file), actual="y", predicted="yhat"))
    assert "missing_results" in said
    assert str(file) in said
    first, second = report.stages[0].attempts
    assert [one.check_name for one in first.checks] == ["missing_results"]  # no other was asked
    assert {one.check_name for one in second.checks} >= {"finite", *(one[0] for one in PREDICTED)}
    assert report.passed


CITED: list[tuple[str, dict[str, Any], str]] = [
    ("The MAE is 3.2.", {"metrics": None}, "The run has no figures yet."),
    ("The accuracy is 0.9.", {"columns": ["y", "x"][1:]}, "The run has no figures yet."),
    ("We predict a rise next year.", {"results": None}, "There is nothing to say yet."),
]


@pytest.mark.parametrize(("wrong", "given", "right"), CITED)
def test_what_is_cited_and_is_not_there(wrong: str, given: Any, right: str) -> None:
    report, said = retried(lambda feedback: right if feedback else wrong, checks.insights(**given))
    assert "\n- insight_hallucination: " in said
    assert report.stages[0].recovered


def test_many_numbers_are_a_warning_only() -> None:
    text = "Values: " + ", ".join(f"{n}.{n}7" for n in range(11, 25))
    report, said = retried(lambda feedback: text, checks.precision())
    (attempt,) = report.stages[0].attempts
    assert said == ""
    assert (attempt.overall_status, report.status) == ("warning", "passed")
    assert (attempt.requires_retry, attempt.failed_checks_summary) == (False, [])
    assert [one.check_name for one in attempt.checks] == ["excessive_precision"]

"""The pipeline of examples/forecast: two stages that make things up are caught and
corrected.
"""

import asyncio
from pathlib import Path
from runpy import run_path
from typing import Any

from heedful import Report
from heedful.testing import ScriptedModel

FILE = Path(__file__).parent.parent / "examples" / "forecast" / "forecast.py"
EXAMPLE: dict[str, Any] = run_path(str(FILE), run_name="forecast")
STAGES = ["load", "features", "split", "train", "insights"]


def run_example(folder: Path, name: str, model: Any = None) -> Report:
    """A run in the folder, whose store is closed after it."""

    async def go() -> Report:
        memory = EXAMPLE["remembering"](folder)
        try:
            pipeline = EXAMPLE["pipeline"](memory, folder, model, False)
            report: Report = await pipeline.run(
                EXAMPLE["begun"](folder / name), id=name
            )
            return report
        finally:
            await memory.store.close()

    return asyncio.run(go())


def count_attempts(report: Report) -> list[int]:
    return [len(stage.attempts) for stage in report.stages]


def failed_checks(report: Report, stage: str, attempt: int = 1) -> list[str]:
    return [
        check.check_name for check in report.stage(stage).attempts[attempt - 1].failed
    ]


def test_what_is_made_up_is_caught_told_and_mended(tmp_path):
    report = run_example(tmp_path, "one")
    assert [stage.name for stage in report.stages] == STAGES
    assert report.passed
    assert count_attempts(report) == [1, 1, 1, 2, 2]
    wrong = [
        "hallucination_detection",
        "variance_hallucination",
        "constant_predictions",
    ]
    assert failed_checks(report, "train") == wrong
    assert failed_checks(report, "insights") == ["insight_hallucination"] * 2 + [
        "grounding"
    ]
    train_feedback = report.stage("train").attempts[0].feedback_for_agent
    assert train_feedback.startswith(
        "GUARDRAIL FEEDBACK - Critical issues detected in train:\n- "
    )
    assert train_feedback.endswith(
        "\n\nPlease address these issues and regenerate the output."
    )
    assert "the mean of yhat is 287.13, that of y 17.4279" in train_feedback
    insights_feedback = report.stage("insights").attempts[0].feedback_for_agent
    assert "'MAPE' is cited" in insights_feedback
    assert "'humidity' is cited as a column" in insights_feedback
    assert "write 0.87 for '0.97'" in insights_feedback


def test_a_model_writes_the_insights_and_is_corrected(tmp_path):
    wrong = "The overall MAE is 1.23. The month with the largest MAE is July."
    right = (
        "The overall MAE is 2.11. The month with the largest MAE is May, with an MAE "
        "of 2.92."
    )
    model = ScriptedModel(wrong, right)
    report = run_example(tmp_path, "one", model)
    assert failed_checks(report, "insights") == ["grounding", "grounding"]
    assert report.stage("insights").recovered
    assert report.state["insights"] == right
    first, second = (prompt[-1].content for prompt in model.prompts)
    assert "May: MAE 2.92" in first
    assert "write 2.11 for '1.23'" in second
    assert "May has 2.92" in second
    assert "correct 'largest MAE': it is May" in second

"""Stages and checks of stages that refuse by raising."""

import json
from typing import Any

import pytest

from heedful.checks.evaluate import Context
from heedful.errors import StageFailed
from heedful.pipeline import Pipeline
from heedful_compat import StageGuardrail
from tests.pipeline.support import read_statuses, run_pipeline, run_stage

pd = pytest.importorskip("pandas")


def answering(answer: str) -> Any:
    """A stage that parses this answer."""
    return lambda state: json.loads(answer)


def no_debts(table: Any) -> None:
    if (table["cents"] < 0).any():
        raise ValueError("cents are negative")


def broken(table: Any, context: Context) -> None:
    raise OSError("no disk")


@pytest.mark.parametrize("on_exhausted", ["continue", "best", "halt"])
def test_a_table_that_a_check_refused_by_raising_never_passes(
    on_exhausted: str,
) -> None:
    table = pd.DataFrame({"cents": [5, -5]})
    report = run_stage(lambda state: table, no_debts, on_exhausted=on_exhausted)
    assert read_statuses(report) == [["failed"] * 3]
    assert report.stage("s").attempts[-1].failed[0].message == "cents are negative"
    assert report.status == ("halted" if on_exhausted == "halt" else "degraded")


def test_a_stage_without_any_output_fails_and_can_be_resumed(tmp_path: Any) -> None:
    def pipeline(stage: Any) -> Pipeline:
        pipeline = Pipeline("p", store=str(tmp_path / "a.db"), progress=False)
        pipeline.stage(name="s")(stage)
        return pipeline

    with pytest.raises(StageFailed, match="again with id='r'") as caught:
        run_pipeline(pipeline(answering("Sure!")), id="r")
    assert isinstance(caught.value.__cause__, json.JSONDecodeError)

    report = run_pipeline(pipeline(answering("5")), id="r")
    assert report.state["s"] == 5
    assert len(report.stage("s").attempts) == 3


@pytest.mark.parametrize(
    ("check", "refuse", "status"),
    [
        pytest.param(no_debts, (), "failed", id="a type that refuses"),
        pytest.param(broken, (), "not_validated", id="a fault of the check"),
        pytest.param(broken, (OSError,), "failed", id="a type that the caller names"),
    ],
)
def test_a_guardrail_of_your_own_stage(check: Any, refuse: Any, status: str) -> None:
    guardrail = StageGuardrail("load", [check], refuse=refuse)
    report = guardrail.validate(pd.DataFrame({"cents": [-5]}))
    assert report.overall_status == status
    assert report.requires_retry is (status == "failed")
    if status == "failed":
        assert f"- {check.__name__}: " in report.feedback_for_agent

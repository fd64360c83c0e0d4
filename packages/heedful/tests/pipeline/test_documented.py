"""The documented cases of stage guardrails: in a pipeline, through StageGuardrail and
over HTTP.

What is written is wrong at first as the case says, and right at the second attempt.
"""

from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heedful import checks
from heedful.loop.record import Evaluation
from heedful.pipeline import Guardrails, Pipeline
from heedful_compat import GuardrailCheckResult, StageGuardrail, StageGuardrailReport
from tests.pipeline.support import run_pipeline
from tests.service.support import Api, served

CHANCE = np.random.default_rng(3)
NOISE = CHANCE.normal(size=300)
NOISE = (NOISE - NOISE.mean()) / NOISE.std(ddof=1)
OTHER = CHANCE.normal(size=300)
STAGE = "stage_4"
HEAD = f"GUARDRAIL FEEDBACK - Critical issues detected in {STAGE}:\n- "
LAST = "\n\nPlease address these issues and regenerate the output."
FIELDS = (
    "stage_name overall_status checks execution_time_ms timestamp requires_retry "
    "feedback_for_agent failed_checks_summary"
).split()
TIMED = ("execution_time_ms", "timestamp")


def column(mean: float, std: float) -> Any:
    """Values of exactly this mean and sample standard deviation."""
    return mean + std * NOISE


def case_of_predictions(
    name: str, actual: Any, forecast: Any, *figures: str, alone: bool = False
) -> Any:
    y = column(*actual)
    right = y + 0.4 * np.std(y, ddof=1) * OTHER
    outputs = [
        {"y": y.tolist(), "yhat": values.tolist()}
        for values in (column(*forecast), right)
    ]
    spec = {
        "name": "predictions",
        "actual": None if alone else "y",
        "predicted": "yhat",
    }
    return name, {**spec, **Guardrails().thresholds}, *outputs, figures


def case_of_insights(wrong: str, right: str, **given: Any) -> Any:
    quoted = wrong.split()[1]
    return (
        "insight_hallucination",
        {"name": "insights", **given},
        wrong,
        right,
        (quoted,),
    )


FAR = "hallucination_detection"
SPREAD = "variance_hallucination"
FLAT = "constant_predictions"
NOTHING = "The run has no figures yet."
CASES = {
    "far predictions": case_of_predictions(
        FAR, (89.23, 74.86), (1234.56, 74.86), "1234.56", "89.23", "15.3"
    ),
    "a small spread": case_of_predictions(
        SPREAD, (0, 10_000), (0, 500), "500", "10000", "0.05"
    ),
    "constant predictions": case_of_predictions(FLAT, (50, 20), (50, 0.0001), "0.0001"),
    "a metric without metrics": case_of_insights(
        "The MAE is 3.2.", NOTHING, metrics=None
    ),
    "a metric of other columns": case_of_insights(
        "The accuracy is 0.9.", NOTHING, columns=["x"]
    ),
    "a claim without results": case_of_insights(
        "We predict a rise.", NOTHING, results=None
    ),
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results") / "results.csv"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, file: Path) -> Iterator[Api]:
    operator_checks = {"results": checks.results(str(file)), "same": same}
    with served(tmp_path_factory.mktemp("api"), checks=operator_checks) as api:
        yield api


def same(output: Any, context: Any) -> Evaluation:
    """A check that needs the state, and raises if the output is another number."""
    return Evaluation() if output == context.data["wanted"] else output / 0


def report_everywhere(
    api: Api, spec: Any, *outputs: Any, state: Any = None
) -> list[Any]:
    """The reports on these outputs of a stage, which agree in a pipeline, in Python and
    HTTP.
    """
    check = checks.load(spec)
    hints = list[str | None]()
    pipeline = Pipeline("p", store=":memory:", progress=False)

    @pipeline.stage(checks=[check], name=STAGE)
    def stage(state: Any, feedback: str | None = None) -> Any:
        hints.append(feedback)
        return outputs[len(hints) - 1]

    run = run_pipeline(pipeline, {})
    reports = [attempt.plain() for attempt in run.stages[0].attempts]
    reports = [{name: report[name] for name in FIELDS} for report in reports]
    for output, report in zip(outputs, reports, strict=True):
        results_check = {"name": "results"}  # the operator names the file
        check_spec = results_check if spec["name"] == "results" else spec
        body = {
            "stage": STAGE,
            "output": output,
            "state": state,
            "checks": [check_spec],
        }
        answered = api.post("/v1/validate", json=body)
        assert answered.status_code == 200, answered.text
        python = StageGuardrail(stage=STAGE, checks=[check]).validate(
            output=output, state=state
        )
        for other in (answered.json(), asdict(python)):
            assert list(other) == FIELDS
            assert [type(other[name]) for name in FIELDS] == [
                type(report[name]) for name in FIELDS
            ]
            assert {**other, **{name: report[name] for name in TIMED}} == report
    assert hints == [None, *(report["feedback_for_agent"] for report in reports[:-1])]
    return reports


@pytest.mark.parametrize(
    ("name", "spec", "wrong", "right", "figures"), CASES.values(), ids=CASES
)
def test_a_case_that_is_retried(
    name: str, spec: Any, wrong: Any, right: Any, figures: Any, api: Api
) -> None:
    first, second = report_everywhere(api, spec, wrong, right)
    assert first["overall_status"] == "failed"
    assert first["requires_retry"] is True
    assert second["overall_status"] == "passed"
    assert second["requires_retry"] is False
    (failed_check,) = [
        check_report
        for check_report in first["checks"]
        if check_report["check_name"] == name
    ]
    assert failed_check["status"] == "failed"
    assert failed_check["severity"] == "critical"
    for figure in figures:
        assert figure in failed_check["message"].replace(",", ""), failed_check[
            "message"
        ]
    hint = first["feedback_for_agent"]
    assert hint.startswith(HEAD)
    assert hint.endswith(LAST)
    for check in first["checks"]:  # every failed check
        listed = check["status"] in ("failed", "warning")
        assert (f"\n- {check['check_name']}: " in hint) is listed
        assert not listed or check["suggestion"].rstrip(".") in hint
    assert f"{name}: {failed_check['message']}" in first["failed_checks_summary"]
    assert {
        check_report["check_name"]: check_report["status"]
        for check_report in second["checks"]
    }[name] == "passed"
    assert second["feedback_for_agent"] == ""
    assert second["failed_checks_summary"] == []


def test_a_results_file_that_is_missing(api: Api, file: Path) -> None:
    """The operator of the service names the file of this check; a caller may not."""
    spec = {"name": "results", "path": str(file)}
    path = str(file)
    (*_, last) = report_everywhere(api, spec, path, path, path)
    assert [check["check_name"] for check in last["checks"]] == ["missing_results"]
    assert str(file) in last["feedback_for_agent"]
    file.write_text("y,yhat\n1,2\n")
    report = StageGuardrail(STAGE, [checks.load(spec)]).validate(path)
    body = {"stage": STAGE, "output": path, "checks": [spec]}
    assert api.post("/v1/validate", json=body).status_code == 422  # it names a file
    body["checks"] = [{"name": "results"}]
    assert (
        api.post("/v1/validate", json=body).json()["overall_status"]
        == report.overall_status
    )
    assert report.overall_status == "passed"


# -- StageGuardrail itself


def test_a_report_has_attributes_and_keys() -> None:
    report = StageGuardrail(STAGE, [checks.words(at_most=1)]).validate("two words")
    assert isinstance(report, StageGuardrailReport)
    assert [field.name for field in fields(report)] == [*report] == FIELDS
    assert (
        dict(report)["overall_status"]
        == report.overall_status
        == report["overall_status"]
    )
    (check,) = report["checks"]
    assert isinstance(check, GuardrailCheckResult)
    assert check.status == "failed"
    assert check["status"] == "failed"
    assert len(check) == 6
    with pytest.raises(KeyError):
        report["of"]


async def test_a_check_gets_the_state_and_one_that_raises_is_not_validated() -> None:
    async def later(output: Any, context: Any) -> Evaluation:
        return same(output, context)

    for check in (same, later):  # inside an event loop
        guardrail = StageGuardrail("s", [check])
        assert guardrail.validate(3, {"wanted": 3}).overall_status == "passed"
        report = guardrail.validate(3, {"wanted": 4})
        assert report.overall_status == "not_validated"
        assert report.requires_retry is False
    assert StageGuardrail("s", []).validate(5).overall_status == "not_validated"

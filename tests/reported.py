"""Reports made by hand: a run of five stages, the fourth retried, the fifth never
mended.
"""

from heedful.loop.record import Usage
from heedful.loop.runs import CheckResult, Report, StageAttempt, StageReport, Status

RUN = "forecast-7"
MEANS = (
    "predictions appear hallucinated: their mean 1234.56 is 15.3 standard deviations "
    "from the "
    "actual mean 89.23"
)
SPREAD = "unrealistic spread: std 500 against 10000, ratio 0.05"
ACTUAL = "verify that the model uses the actual data; retrain"
FEEDBACK = f"""GUARDRAIL FEEDBACK - Critical issues detected in train:
- hallucination_detection: {MEANS}. {ACTUAL}
- variance_hallucination: {SPREAD}. check for synthetic data

Please address these issues and regenerate the output."""


def attempt(
    stage: str,
    number: int,
    *checks: CheckResult,
    output: str = "",
    ms: float = 1000,
    fed: str = "",
) -> StageAttempt:
    """An attempt with these checks; its status is that of the worst."""
    order: tuple[Status, ...] = ("failed", "not_validated", "warning", "passed")
    states = {check.status for check in checks}
    status = next(check for check in order if check in states or check == "passed")
    usage = Usage(1, 100, completion_tokens=20, seconds=ms / 1000)
    failed = status == "failed"
    timestamp = 1_700_000_000.0 + number
    return StageAttempt(
        stage,
        RUN,
        attempt=number,
        overall_status=status,
        checks=checks,
        execution_time_ms=ms,
        timestamp=timestamp,
        requires_retry=failed,
        feedback_for_agent=fed,
        output=output,
        usage=usage,
    )


def fails(name: str, message: str, fix: str = "") -> CheckResult:
    """A check that failed."""
    return CheckResult(
        name, "failed", severity="critical", message=message, suggestion=fix
    )


def passes(name: str) -> CheckResult:
    """A check that passed."""
    return CheckResult(name)


def once(name: str, *checks: CheckResult) -> StageReport:
    """A stage that passed at once."""
    return StageReport(
        name, "passed", action="passed", attempts=(attempt(name, 1, *checks),), kept=1
    )


def forecast(run: str = RUN) -> Report:
    """Five stages; train recovered at attempt 2, insights went on degraded after 3."""
    wrong = fails("hallucination_detection", MEANS, ACTUAL)
    flat = fails("variance_hallucination", SPREAD, "check for synthetic data")
    names = ("hallucination_detection", "variance_hallucination")
    train = (
        attempt(
            "train", 1, wrong, flat, output='{"mean": 1234.56}', ms=1500, fed=FEEDBACK
        ),
        attempt("train", 2, *map(passes, names), output='{"mean": 90.1}', ms=2250),
    )
    cited = fails("insight_hallucination", "MAE is cited, and the run has no metrics")
    many = CheckResult(
        "excessive_precision",
        "warning",
        severity="warning",
        message="14 specific numbers",
    )
    fed = "GUARDRAIL FEEDBACK - insights"
    insights = tuple(
        attempt("insights", n, cited, many, ms=500, fed=fed) for n in (1, 2, 3)
    )
    stages = (
        once("load", passes("missing_results")),
        once(
            "clean",
            CheckResult(
                "schema", "warning", severity="warning", message="3 rows dropped"
            ),
        ),
        once("features"),
        StageReport("train", "passed", action="passed", attempts=train, kept=2),
        StageReport(
            "insights", "failed", action="continued", attempts=insights, kept=3
        ),
    )
    return Report(
        "forecast", run, stages=stages, began=1_700_000_000.0, ended=1_700_000_009.0
    )

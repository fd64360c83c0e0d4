"""A run with every way that a stage can go, built by hand."""

from collections.abc import Sequence
from dataclasses import replace

from heedful.loop.record import Usage
from heedful.loop.runs import (
    Action,
    CheckResult,
    Report,
    ShownStatus,
    StageAttempt,
    StageReport,
    Status,
)

BEGAN = 1_781_000_000.0
HOSTILE = (
    "</pre></td><script>alert(1)</script> | `x` ```` \n| --- |\n<!-- & \" ' \u202e "
    "txt \x1b[31m "
    "日本語 العربية 👩‍🚀 https://example.com/x ${pipeline} [a](javascript:b)"
)


def attempt(
    status: Status,
    checks: Sequence[CheckResult] = (),
    *,
    ms: float = 1200.0,
    offset: float = 0.0,
    feedback: str = "",
    output: str = "",
) -> StageAttempt:
    """Return a first attempt; `stage_report` names and numbers it."""
    usage = Usage(1, 800, completion_tokens=120, cost=0.002, seconds=ms / 1000)
    when = BEGAN + offset if offset else 0.0
    failed = status == "failed"
    return StageAttempt(
        "",
        "nightly-7",
        attempt=1,
        overall_status=status,
        checks=tuple(checks),
        execution_time_ms=ms,
        timestamp=when,
        requires_retry=failed,
        feedback_for_agent=feedback,
        output=output,
        usage=usage,
    )


def wrong(name: str, message: str, fix: str = "", **details: object) -> CheckResult:
    return CheckResult(
        name,
        "failed",
        severity="critical",
        message=message,
        suggestion=fix,
        details=details,
    )


FAR = wrong(
    "hallucination_detection",
    "predictions appear hallucinated: their mean is 5005.25, that of the actual "
    "values 200.1, "
    "25 standard deviations away",
    "Verify that the model uses the actual data, and retrain it.",
    severity=1.0,
    evidence="mean(yhat) = 5005.25; mean(y) = 200.1; std(y) = 192.2",
)
TOLD = (
    "GUARDRAIL FEEDBACK - Critical issues detected in train:\n"
    "- hallucination_detection: predictions appear hallucinated: their mean is "
    "5005.25, that of "
    "the actual values 200.1, 25 standard deviations away. Verify that the model uses "
    "the actual "
    "data, and retrain it.\n\nPlease address these issues and regenerate the output."
)
GOOD = CheckResult("schema")


def stage_report(
    name: str,
    action: Action,
    attempts: Sequence[StageAttempt] = (),
    *,
    accepted: int | None = 0,
    status: ShownStatus = "passed",
) -> StageReport:
    numbered = tuple(
        replace(attempt, stage_name=name, attempt=n)
        for n, attempt in enumerate(attempts, 1)
    )
    of = action if action in ("open", "not_run") else status
    return StageReport(
        name,
        of,
        action=action,
        attempts=numbered,
        kept=len(numbered) if accepted == 0 else accepted,
        usage=sum((attempt.usage for attempt in numbered), Usage()),
    )


def stages() -> tuple[StageReport, ...]:
    was = '{"model": "ridge", "predictions": [5000.0, 5010.5], "rows": 2, "year": 2026}'
    now = '{"year": 2026, "model": "ridge", "predictions": [212.4, 187.25], "rows": 2}'
    near = CheckResult(FAR.check_name)
    cited = wrong(
        "insight_hallucination", "accuracy is cited, and the run has no such metric"
    )
    rose = wrong(
        "grounding", "sales did not rise in every quarter", "Say: in three of four."
    )
    many = CheckResult(
        "excessive_precision",
        "warning",
        severity="warning",
        message="12 numbers",
        suggestion="Cross-check them.",
    )
    late = "the check raised KeyError: 'y'"
    unjudged = CheckResult(
        "missing_results", "not_validated", severity="critical", message=late
    )
    lost = wrong(
        "missing_results", "results.parquet is missing", "Make sure the stage saves it."
    )
    hostile = wrong(HOSTILE, HOSTILE, HOSTILE, evidence=HOSTILE)
    sales = "Sales rose in every quarter. Ridge has an RMSE of 4.1."
    load = attempt("passed", [GOOD], ms=38, offset=0.04, output='{"rows": 1461}')
    train = (
        attempt(
            "failed", [GOOD, FAR], ms=41_200, offset=41.3, feedback=TOLD, output=was
        ),
        attempt("passed", [GOOD, near], ms=38_700, offset=80.2, output=now),
    )
    evaluate = attempt("warning", [GOOD, many], ms=2400, offset=82.7, output="RMSE 4.1")
    insights = (
        attempt(
            "failed",
            [cited, rose],
            ms=9100,
            offset=92,
            feedback="- cite nothing",
            output=f"97 %. {sales}",
        ),
        attempt(
            "failed",
            [rose],
            ms=8700,
            offset=100.9,
            feedback="- once more",
            output=sales,
        ),
        attempt(
            "failed",
            [rose],
            ms=8800,
            offset=109.8,
            feedback="- and again",
            output=sales,
        ),
    )
    profile = attempt("not_validated", [unjudged], ms=210, offset=110.1, output="ok")
    halted = attempt(
        "failed", [hostile, lost], ms=4, offset=110.2, feedback=HOSTILE, output=HOSTILE
    )
    publish = attempt("passed", [GOOD], ms=900, offset=111.2, output="x")
    return (
        stage_report("load", "passed", [load]),
        stage_report("train", "passed", train),
        stage_report("evaluate", "passed", [evaluate], status="warning"),
        stage_report("insights", "continued", insights, status="failed"),
        stage_report("profile", "continued", [profile], status="not_validated"),
        stage_report(HOSTILE, "halted", [halted], status="failed"),
        stage_report("publish", "open", [publish], accepted=None),
        stage_report("notify", "not_run", accepted=None),
    )


def example() -> Report:
    return Report(
        "forecast", "nightly-7", stages=stages(), began=BEGAN, ended=BEGAN + 112
    )

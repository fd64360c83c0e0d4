"""A run with every way that a stage can go, built by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from heedful.loop.record import Usage
from heedful.pages import markdown
from heedful.store.runs import Action, CheckResult, Report, StageAttempt, StageReport, Status

BEGAN = 1_781_000_000.0
HOSTILE = (
    "</pre></td><script>alert(1)</script> | `x` ```` \n| --- |\n<!-- & \" ' \u202e txt \x1b[31m "
    "日本語 العربية 👩‍🚀 https://example.com/x ${pipeline} [a](javascript:b)"
)
BEFORE = json.dumps({"model": "ridge", "predictions": [5000.0, 5010.5], "rows": 2, "year": 2026})
AFTER = json.dumps({"year": 2026, "model": "ridge", "predictions": [212.4, 187.25], "rows": 2})


def attempt(
    stage: str,
    number: int,
    status: Status,
    *checks: CheckResult,
    ms: float = 1200.0,
    at: float = 0.0,
    told: str = "",
    output: str = "",
    run: str = "nightly-7",
) -> StageAttempt:
    failed = status == "failed"
    usage = Usage(1, 800, 120, 0.002, ms / 1000)
    when = BEGAN + at if at else 0.0
    return StageAttempt(stage, run, number, status, checks, ms, when, failed, told, output, usage)


def wrong(name: str, message: str, fix: str = "", **details: object) -> CheckResult:
    return CheckResult(name, "failed", "critical", message, fix, details)


FAR = wrong(
    "hallucination_detection",
    "predictions appear hallucinated: their mean is 5005.25, that of the actual values 200.1, "
    "25 standard deviations away",
    "Verify that the model uses the actual data, and retrain it.",
    severity=1.0,
    evidence="mean(yhat) = 5005.25; mean(y) = 200.1; std(y) = 192.2",
)
TOLD = (
    "GUARDRAIL FEEDBACK - Critical issues detected in train:\n"
    "- hallucination_detection: predictions appear hallucinated: their mean is 5005.25, that of "
    "the actual values 200.1, 25 standard deviations away. Verify that the model uses the actual "
    "data, and retrain it.\n\nPlease address these issues and regenerate the output."
)
GOOD = CheckResult("schema")


def stage_report(
    name: str,
    action: Action,
    *attempts: StageAttempt,
    kept: int | None = 0,
    status: Status = "passed",
) -> StageReport:
    found = tuple(replace(one, stage_name=name, attempt=n) for n, one in enumerate(attempts, 1))
    of = action if action in ("open", "not_run") else status
    return StageReport(name, of, action, found, len(found) if kept == 0 else kept)


CITED = wrong("insight_hallucination", "accuracy is cited, and the run has no such metric")
ROSE = wrong("grounding", "sales did not rise in every quarter", "Say: in three of four.")
MANY = CheckResult("excessive_precision", "warning", "warning", "12 numbers", "Cross-check them.")
LATE = CheckResult("missing_results", "not_validated", "critical", "the check raised KeyError: 'y'")
HALT = wrong("missing_results", "results.parquet is missing", "Make sure the stage saves it.")
SALES = "Sales rose in every quarter. Ridge has an RMSE of 4.1."


def stages() -> tuple[StageReport, ...]:
    def one(status: Status, *checks: CheckResult, **more: Any) -> StageAttempt:
        return attempt("", 1, status, *checks, **more)

    load = one("passed", GOOD, ms=38, at=0.04, output='{"rows": 1461}')
    train = (
        one("failed", GOOD, FAR, ms=41_200, at=41.3, told=TOLD, output=BEFORE),
        one("passed", GOOD, CheckResult(FAR.check_name), ms=38_700, at=80.2, output=AFTER),
    )
    evaluate = one("warning", GOOD, MANY, ms=2400, at=82.7, output="RMSE 4.1")
    insights = (
        one("failed", CITED, ROSE, ms=9100, at=92, told="- cite nothing", output=f"97 %. {SALES}"),
        one("failed", ROSE, ms=8700, at=100.9, told="- once more", output=SALES),
        one("failed", ROSE, ms=8800, at=109.8, told="- and again", output=SALES),
    )
    profile = one("not_validated", LATE, ms=210, at=110.1, output="ok")
    hostile = wrong(HOSTILE, HOSTILE, HOSTILE, evidence=HOSTILE)
    halted = one("failed", hostile, HALT, ms=4, at=110.2, told=HOSTILE, output=HOSTILE)
    publish = one("passed", GOOD, ms=900, at=111.2, output="x")
    return (
        stage_report("load", "passed", load),
        stage_report("train", "passed", *train),
        stage_report("evaluate", "passed", evaluate, status="warning"),
        stage_report("insights", "continued", *insights, status="failed"),
        stage_report("profile", "continued", profile, status="not_validated"),
        stage_report(HOSTILE, "halted", halted, status="failed"),
        stage_report("publish", "open", publish, kept=None),
        stage_report("notify", "not_run", kept=None),
    )


def example() -> Report:
    return Report("forecast", "nightly-7", stages(), BEGAN, BEGAN + 112)


if __name__ == "__main__":
    print(markdown(example()), end="")

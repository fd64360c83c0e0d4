"""A run with every way that a stage can go, built by hand."""

from __future__ import annotations

import json

from heedful.loop.record import Usage
from heedful.reports import AttemptReport, Checked, Report, StageReport, Status

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
    *checks: Checked,
    ms: float = 1200.0,
    at: float = 0.0,
    told: str = "",
    output: str = "",
    run: str = "nightly-7",
) -> AttemptReport:
    failed = status == "failed"
    usage = Usage(1, 800, 120, 0.002, ms / 1000)
    when = BEGAN + at if at else 0.0
    return AttemptReport(stage, run, number, status, checks, ms, when, failed, told, output, usage)


def wrong(name: str, message: str, fix: str = "", **details: object) -> Checked:
    return Checked(name, "failed", "critical", message, fix, details)


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
GOOD = Checked("schema")
INSIGHTS = (
    "Sales rose in every quarter. The accuracy of the model is 97 %. Ridge has an RMSE of 4.1.",
    "Sales rose in every quarter. Ridge has an RMSE of 4.1.",
    "Sales rose in three of four quarters. Ridge has an RMSE of 4.1.",
)


def stages() -> tuple[StageReport, ...]:
    cited = wrong("insight_hallucination", "accuracy is cited, and the run has no such metric")
    rose = wrong("grounding", "sales did not rise in every quarter", "Say: in three of four.")
    many = Checked(
        "excessive_precision", "warning", "warning", "12 specific numbers", "Cross-check them."
    )
    late = Checked("missing_results", "not_validated", "critical", "the check raised KeyError: 'y'")
    halt = wrong("missing_results", "results.parquet is missing", "Make sure the stage saves it.")
    return (
        StageReport(
            "load",
            "passed",
            "passed",
            (attempt("load", 1, "passed", GOOD, ms=38, at=0.04, output='{"rows": 1461}'),),
            1,
        ),
        StageReport(
            "train",
            "passed",
            "passed",
            (
                attempt(
                    "train", 1, "failed", GOOD, FAR, ms=41_200, at=41.3, told=TOLD, output=BEFORE
                ),
                attempt(
                    "train",
                    2,
                    "passed",
                    GOOD,
                    Checked(FAR.check_name),
                    ms=38_700,
                    at=80.2,
                    output=AFTER,
                ),
            ),
            2,
        ),
        StageReport(
            "evaluate",
            "warning",
            "passed",
            (attempt("evaluate", 1, "warning", GOOD, many, ms=2400, at=82.7, output="RMSE 4.1"),),
            1,
        ),
        StageReport(
            "insights",
            "failed",
            "continued",
            (
                attempt(
                    "insights",
                    1,
                    "failed",
                    cited,
                    rose,
                    ms=9100,
                    at=92.0,
                    told="- cite nothing",
                    output=INSIGHTS[0],
                ),
                attempt(
                    "insights",
                    2,
                    "failed",
                    rose,
                    ms=8700,
                    at=100.9,
                    told="- once more",
                    output=INSIGHTS[1],
                ),
                attempt(
                    "insights",
                    3,
                    "failed",
                    rose,
                    ms=8800,
                    at=109.8,
                    told="- and again",
                    output=INSIGHTS[2],
                ),
            ),
            3,
        ),
        StageReport(
            "profile",
            "not_validated",
            "continued",
            (attempt("profile", 1, "not_validated", late, ms=210, at=110.1, output="ok"),),
            1,
        ),
        StageReport(
            HOSTILE,
            "failed",
            "halted",
            (
                attempt(
                    HOSTILE,
                    1,
                    "failed",
                    wrong(HOSTILE, HOSTILE, HOSTILE, evidence=HOSTILE),
                    halt,
                    ms=4,
                    at=110.2,
                    told=HOSTILE,
                    output=HOSTILE,
                ),
            ),
            1,
        ),
        StageReport(
            "publish",
            "open",
            "open",
            (attempt("publish", 1, "passed", GOOD, ms=900, at=111.2, output="x"),),
        ),
        StageReport("notify", "not_run", "not_run"),
    )


def example() -> Report:
    return Report("forecast", "nightly-7", stages(), BEGAN, BEGAN + 112)

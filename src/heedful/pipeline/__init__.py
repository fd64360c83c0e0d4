"""Host (b): pipelines whose stages are checked and run again with feedback, durably."""

from heedful.pipeline.pipeline import Guardrails, Pipeline
from heedful.pipeline.questions import RunAnswer, answer, statistics
from heedful.store.runs import CheckResult, Report, StageAttempt, StageReport, report_of

__all__ = [
    "StageAttempt",
    "CheckResult",
    "Guardrails",
    "Pipeline",
    "Report",
    "RunAnswer",
    "StageReport",
    "answer",
    "report_of",
    "statistics",
]

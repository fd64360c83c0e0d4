"""The report on an output that another program's stage made, as the service answers it.

`heedful.pipeline.validate` checks such an output; nothing of it is stored, so its
report has neither a run nor a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

from heedful.loop.runs import CheckResult, StageAttempt, Status


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """The report on one output of a stage.

    `timestamp` is ISO 8601 in UTC. `requires_retry` is True if a check failed; then
    `feedback_for_agent` says what is wrong and how to fix it.
    """

    stage_name: str
    overall_status: Status
    checks: Sequence[CheckResult]
    execution_time_ms: float
    timestamp: str
    requires_retry: bool
    feedback_for_agent: str
    failed_checks_summary: list[str]

    @classmethod
    def of(cls, attempt: StageAttempt) -> Self:
        """Return the report on an attempt."""
        values = attempt.plain() | {"checks": list(attempt.checks)}
        return cls(**{field.name: values[field.name] for field in fields(cls)})

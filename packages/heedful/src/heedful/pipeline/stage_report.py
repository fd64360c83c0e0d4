"""The report on an output that another program's stage made, as the service answers it.

`heedful.pipeline.validate` checks such an output; nothing of it is stored, so its
report has neither a run nor a number.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

from heedful import errors
from heedful.loop import record
from heedful.loop.runs import CheckResult, StageAttempt, StageReport, Status
from heedful.store import DEFAULT_DATABASE_FILE, shown
from heedful.store.store import Store


# Not frozen: an orchestrator may note in it what it does about it.
@dataclass(slots=True)
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


def unvalidated_finding(
    check: str, error: errors.CheckFailed | errors.ModelError
) -> record.Finding:
    """Return a warning about a check that raised; raise if a package is missing."""
    if isinstance(error.__cause__, ImportError):
        raise error

    fix = "fix the check and run with a new id"
    hint = getattr(error, "hint", "")
    return record.Finding(
        check,
        getattr(error, "reason", str(error)),
        fix=f"{fix}: {hint}" if hint else fix,
        level="warning",
        key=record.unvalidated_key(check),
    )


def describe(report: StageReport, run: str, store: Store | None) -> list[str]:
    """Return lines on each check that could not judge a stage, and what to do."""
    lines: list[str] = []
    for check in report.attempts[-1].checks:
        if check.status == "not_validated":
            lines += filter(None, [check.message, check.suggestion])

    if lines and store is not None and store.url != ":memory:":
        lines.append(f"for all of it: {_why_command(store, run, report.name)}")
    return lines


def describe_open(run: str, store: Store | None) -> list[str]:
    """Return lines on a run that was interrupted; none if no file has it."""
    if store is None or store.url == ":memory:":
        return []
    return [
        f"run {run} is left open; run it again with id={run!r} to continue",
        f"what it did so far: {_why_command(store, run)}",
    ]


def _why_command(store: Store, *names: str) -> str:
    """Return the command that explains a run, or a stage of it."""
    words = ["heedful", "why", *names]
    if store.url != DEFAULT_DATABASE_FILE:
        words += ["--db", shown(store.url)]
    return shlex.join(words)

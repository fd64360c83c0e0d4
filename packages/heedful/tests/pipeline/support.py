"""Pipelines, states and checks to test with, and a report without what a clock says of
it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from heedful.checks.evaluate import Context
from heedful.loop.record import Finding
from heedful.loop.runs import Report
from heedful.pipeline import Pipeline

TIMES = ("began", "ended", "timestamp", "execution_time_ms", "usage")


def check_that_fails(
    *attempts: int, name: str = "looks", fix: str = "look again"
) -> Any:
    """A check that finds an error at these attempts; it keeps what it was shown."""

    def check(output: Any, context: Context) -> Sequence[Finding]:
        seen.append(output)
        if context.attempt not in attempts:
            return []
        return [Finding(name, f"attempt {context.attempt} is wrong", fix=fix)]

    seen: list[Any] = []
    named_check: Any = check
    named_check.name = name
    named_check.seen = seen
    return named_check


def check_that_raises(*attempts: int) -> Any:
    """A check that raises at these attempts."""

    def check(output: Any, context: Context) -> Sequence[Finding]:
        attempts_seen.append(context.attempt)
        if context.attempt in attempts:
            raise RuntimeError("the check is broken")
        return []

    attempts_seen: list[int] = []
    named_check: Any = check
    named_check.name = "broken"
    named_check.asked = attempts_seen
    return named_check


def run_pipeline(pipeline: Pipeline, state: Any = None, id: str = "") -> Report:
    """The report of a run."""
    return asyncio.run(pipeline.run(state, id=id))


def run_stage(
    stage: Callable[..., Any], *checks: Any, state: Any = None, **options: Any
) -> Report:
    """The report of a run of a single stage, which nothing keeps."""
    pipeline = Pipeline("p", store=None, progress=False)
    pipeline.stage(name="s", checks=checks, **options)(stage)
    return run_pipeline(pipeline, state)


def without_times(document: Any) -> Any:
    """Plain data without what depends on a clock."""
    if isinstance(document, Report):
        return without_times(document.plain())
    if isinstance(document, dict):
        return {
            name: without_times(value)
            for name, value in document.items()
            if name not in TIMES
        }
    return (
        [without_times(value) for value in document]
        if isinstance(document, list | tuple)
        else document
    )


def read_statuses(report: Report) -> list[list[str]]:
    """The status of each attempt of each stage."""
    return [
        [attempt.overall_status for attempt in stage.attempts]
        for stage in report.stages
    ]

"""A finished loop as an episode, so that it teaches what any run of an agent does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from heedful.episodes.episode import LOOP_SOURCE, Ended, Episode, Event, Fault
from heedful.loop.decide import Again, Done, Verdict
from heedful.loop.record import Attempt, Loop
from heedful.redact import redact
from heedful.store.records import StoredLoop


def episode_of(
    loop: Loop | StoredLoop,
    task: str = "",
    verdict: Verdict | None = None,
    goal: str = "",
) -> Episode:
    """Return a finished loop as an episode: each attempt's response and findings.

    For a stored loop, `task` and `verdict` are by default its own task and last
    verdict. An error becomes an error_event with its message, its check as the code and
    its fix as the content; any other finding becomes a system_event. The outcome is
    success if the verdict passed (without a verdict: if the last evaluation passes),
    partial if the loop was cancelled or has not ended, else failure. Secrets are
    redacted.
    """
    if isinstance(loop, StoredLoop):
        if verdict is None and loop.decisions:
            verdict = loop.verdicts[-1]
        task = task or _task_text(loop)
        loop = loop.loop

    fault = None
    if isinstance(verdict, Done) and verdict.stopped_by:
        stop = verdict.stopped_by[0]
        fault = Fault(stop.rule, redact(stop.detail))

    return Episode(
        tuple(chain.from_iterable(map(_attempt_events, loop.attempts))),
        _outcome(loop, verdict),
        task=redact(task),
        goal=redact(goal),
        fault=fault,
        id=loop.id,
        source=LOOP_SOURCE,
    )


def _task_text(loop: StoredLoop) -> str:
    """Return the task of a stored loop, as JSON if it is not text."""
    task = loop.head.task
    return task if isinstance(task, str) else json.dumps(task, ensure_ascii=False)


def _outcome(loop: Loop, verdict: Verdict | None) -> Ended:
    """Return how a loop ended: by its verdict, or without one by its last attempt."""
    last = loop.attempts[-1].evaluation if loop.attempts else None
    passed = last is not None and last.passes(loop.goals)
    if isinstance(verdict, Done):
        passed = verdict.passed

    if passed:
        return "success"
    return "partial" if loop.cancelled or isinstance(verdict, Again) else "failure"


def _attempt_events(attempt: Attempt) -> Iterator[Event]:
    """Yield the response of an attempt, and its findings."""
    name = f"attempt {attempt.number}"
    yield Event("llm_response", redact(attempt.candidate.text or ""), id=name)

    findings = attempt.evaluation.findings if attempt.evaluation else ()
    for number, finding in enumerate(findings, 1):
        message = redact(finding.message)
        fix = redact(finding.fix)
        event = Event(
            "system_event",
            f"{message} {fix}".strip(),
            code=finding.check,
            id=f"{name}, finding {number}",
        )
        if finding.level == "error":
            event = replace(event, type="error_event", content=fix, error=message)
        yield event

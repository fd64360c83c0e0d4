"""Runs of pipelines in a store, and their reports.

A run is stored as a loop, and each of its stages as a loop with the id `RUN/STAGE`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from heedful.errors import NotFound, UnknownName
from heedful.lessons.lesson import Scope
from heedful.lessons.ranking import Briefing
from heedful.loop import record
from heedful.loop.codec import policy_to, to_document
from heedful.loop.decide import Again, Decision, Done, Policy, Verdict
from heedful.loop.record import (
    MAX_FEEDBACK_CHARS,
    NO_USAGE,
    Attempt,
    Evaluation,
    Goal,
    Loop,
    Usage,
)
from heedful.loop.stop import MaxAttempts
from heedful.store import loops
from heedful.store.records import StageHead, StoredLoop
from heedful.store.store import Store

Status = Literal["passed", "warning", "failed", "not_validated"]
Action = Literal["passed", "continued", "best", "halted", "stopped", "open", "not_run"]
Exhausted = Literal["continue", "halt", "best"]
# The level of a finding -> the status and the severity of its check.
LEVEL_STATUSES: Mapping[str, tuple[Status, str]] = {
    "error": ("failed", "critical"),
    "warning": ("warning", "warning"),
    "note": ("passed", "info"),
}
STATUS_ORDER: tuple[Status, ...] = ("failed", "not_validated", "warning", "passed")
STAGE_FEEDBACK_HEADING = "GUARDRAIL FEEDBACK - Critical issues detected in {}:"
STAGE_FEEDBACK_ENDING = "\n\nPlease address these issues and regenerate the output."
# The check for missing results. Without results, other checks have nothing to judge.
MISSING_RESULTS_CHECK = "missing_results"
# The most characters of the lessons in a feedback; the rest is enough for one finding.
MAX_FEEDBACK_LESSONS_CHARS = MAX_FEEDBACK_CHARS - 900


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check, or of one goal, on one attempt.

    `status` is passed, warning, failed, or not_validated if the check itself raised an
    error. `severity` is critical, warning or info. `details` has the key, severity
    (0..1), evidence and span of a finding, or the score, threshold and direction of a
    goal.
    """

    check_name: str
    status: Status = "passed"
    _: KW_ONLY
    severity: str = "info"
    message: str = ""
    suggestion: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StageAttempt:
    """One attempt of one stage; `attempt` is its number, from 1.

    `timestamp` is the time of the decision on the attempt, in seconds since 1970.
    `requires_retry` is True if the attempt did not pass, even if no other attempt
    followed. `feedback_for_agent` is the feedback for the next attempt, "" if this
    attempt passed. `output` is the output as text.
    """

    stage_name: str
    run: str
    _: KW_ONLY
    attempt: int
    overall_status: Status
    checks: tuple[CheckResult, ...]
    execution_time_ms: float
    timestamp: float
    requires_retry: bool
    feedback_for_agent: str
    output: str = ""
    usage: Usage = NO_USAGE

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The failed checks, in the order of the findings."""
        return tuple(one for one in self.checks if one.status == "failed")

    @property
    def failed_checks_summary(self) -> list[str]:
        """A line for each failed check: its name and its message."""
        return [f"{one.check_name}: {one.message}" for one in self.failed]

    @property
    def file(self) -> str:
        """The name of the JSON file of this attempt."""
        stage, run = (file_safe(name) for name in (self.stage_name, self.run))
        return f"guardrail_{stage}_{run}_attempt{self.attempt}.json"

    def plain(self) -> dict[str, Any]:
        """Return the attempt as JSON data without its output; times are ISO 8601 in
        UTC.
        """
        plain = {**asdict(self), "failed_checks_summary": self.failed_checks_summary}
        plain |= {"timestamp": iso(self.timestamp), "usage": to_document(self.usage)}
        plain["checks"] = list(plain["checks"])
        return {name: value for name, value in plain.items() if name != "output"}


@dataclass(frozen=True, slots=True)
class StageReport:
    """The report of one stage of a run.

    `kept` is the number of the attempt whose output the run used. `action` says how the
    stage ended: passed, continued (failed, the run used the last attempt), best
    (failed, the run used the best attempt), halted, stopped (a task that failed), open
    (interrupted) or not_run. `briefing` says what memory told the stage.
    """

    name: str
    status: Status | Literal["open", "not_run"]
    _: KW_ONLY
    action: Action
    attempts: tuple[StageAttempt, ...] = ()
    kept: int | None = None
    briefing: Briefing | None = None

    @property
    def degraded(self) -> bool:
        """True if the run continued with an output that failed or could not be
        judged.
        """
        return self.action in ("continued", "best", "stopped")

    @property
    def recovered(self) -> bool:
        """True if the stage passed, but not at its first attempt."""
        return self.action == "passed" and len(self.attempts) > 1

    def plain(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        attempts = [{**one.plain(), "output": one.output} for one in self.attempts]
        plain = {
            name: getattr(self, name) for name in ("name", "status", "action", "kept")
        }
        told = self.briefing and self.briefing.plain()
        return {**plain, "briefing": told, "attempts": attempts}


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one run of a pipeline, or of a run of tasks; `noun` says which.

    `status` is passed, degraded (the run continued in spite of failures), halted or
    open (interrupted). `began` and `ended` are in seconds since 1970; `ended` is 0
    while the run is open. `state` is the final state if the run happened in this
    process.
    """

    pipeline: str
    run: str
    _: KW_ONLY
    stages: tuple[StageReport, ...]
    began: float = 0.0
    ended: float = 0.0
    state: Any = field(default=None, compare=False, repr=False)
    noun: Literal["stage", "task"] = "stage"

    @property
    def status(self) -> Literal["passed", "degraded", "halted", "open"]:
        """The status of the whole run."""
        actions = {one.action for one in self.stages}
        if "halted" in actions:
            return "halted"
        if actions & {"open", "not_run"}:
            return "open"
        return "degraded" if self.degraded else "passed"

    @property
    def passed(self) -> bool:
        """True if every stage passed."""
        return self.status == "passed"

    @property
    def degraded(self) -> tuple[str, ...]:
        """The names of the stages that did not pass but did not stop the run."""
        return tuple(one.name for one in self.stages if one.degraded)

    @property
    def usage(self) -> Usage:
        """The sum of the usage of all attempts."""
        return sum(
            (one.usage for stage in self.stages for one in stage.attempts), NO_USAGE
        )

    @property
    def stem(self) -> str:
        """The name of the files of this run, without a suffix."""
        return file_safe(self.run)

    def stage(self, name: str) -> StageReport:
        """Return the stage with this name. Raises UnknownName."""
        for one in self.stages:
            if one.name == name:
                return one
        raise UnknownName("stage", name, [one.name for one in self.stages])

    def plain(self) -> dict[str, Any]:
        """Return the report as JSON data; times are ISO 8601 in UTC."""
        return {
            "pipeline": self.pipeline,
            "run": self.run,
            "status": self.status,
            "degraded": list(self.degraded),
            "began": iso(self.began),
            "ended": iso(self.ended) if self.ended else None,
            "stages": [one.plain() for one in self.stages],
            "usage": to_document(self.usage),
        }


def iso(at: float) -> str:
    """Return a time in seconds since 1970 as ISO 8601 in UTC, in milliseconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def stage_feedback(
    stage: str,
    evaluation: Evaluation,
    goals: tuple[Goal, ...] = (),
    lessons: Sequence[str] = (),
) -> str:
    """Return the feedback for the next attempt: findings, unmet goals, `lessons`, and
    what to do.

    The feedback has at most `heedful.loop.record.MOST` characters. The first item of
    `lessons` is a heading; lessons that do not fit are left out.
    """
    head = STAGE_FEEDBACK_HEADING.format(stage)
    kept = ""
    for line in lessons:
        if (
            len(head) + len(kept) + len(line) + len(STAGE_FEEDBACK_ENDING)
            < MAX_FEEDBACK_LESSONS_CHARS
        ):
            kept += f"\n{line}"
    tail = (
        f"\n{kept}{STAGE_FEEDBACK_ENDING}"
        if "\n" in kept.strip()
        else STAGE_FEEDBACK_ENDING
    )
    return record.feedback(evaluation, goals, head, tail)


def reworded(loop: Loop, verdict: Verdict, stage: StageHead | None) -> Verdict:
    """Return `verdict`; if it is Again for a stage, replace the feedback by
    `stage_feedback`.
    """
    last = loop.attempts[-1] if loop.attempts else None
    if (
        last is None
        or not last.evaluation
        or stage is None
        or not isinstance(verdict, Again)
    ):
        return verdict
    words = stage_feedback(stage.name, last.evaluation, loop.goals)
    return replace(verdict, feedback=words)


def unvalidated(check: str) -> str:
    """Return the key of the finding that reports an error raised by a check."""
    return f"{check}: not validated"


def stage_report(stored: StoredLoop, run: str) -> StageReport:
    """Return the report of a stage from its stored loop."""
    loop = stored.loop
    stage = stored.head.stage or StageHead(
        run=run, name=stored.id.removeprefix(f"{run}/")
    )
    name = stage.name
    last = stored.decisions[-1].verdict if stored.decisions else None
    decisions = {decision.attempt: decision for decision in stored.decisions}
    attempts = tuple(
        stage_attempt(stage, attempt, decisions.get(attempt.number), loop.goals)
        for attempt in loop.attempts
    )
    if (
        stored.head.stage is None
    ):  # the loop of a task, whose checks are stored without names
        attempts = tuple(
            one if one.checks else replace(one, overall_status="passed")
            for one in attempts
        )
    told = stored.briefing
    if not isinstance(last, Done):
        return StageReport(
            name, "open", action="open", attempts=attempts, kept=None, briefing=told
        )
    status = attempts[-1].overall_status if attempts else "not_validated"
    if last.passed and status != "not_validated":
        return StageReport(
            name,
            status,
            action="passed",
            attempts=attempts,
            kept=len(attempts),
            briefing=told,
        )
    if (
        attempts and status == "not_validated"
    ):  # nothing failed, but not everything could be judged
        action: Action = "halted" if stage.on_unvalidated == "halt" else "continued"
        if all(one.status != "not_validated" for one in attempts[-1].checks):
            action = "passed"  # no check raised an error: the stage has no checks
        return StageReport(
            name,
            status,
            action=action,
            attempts=attempts,
            kept=len(attempts),
            briefing=told,
        )
    if stored.head.stage is None:
        return StageReport(
            name,
            "failed",
            action="stopped",
            attempts=attempts,
            kept=last.best,
            briefing=told,
        )
    kept = last.best if stage.on_exhausted == "best" else len(attempts) or None
    how: Mapping[str, Action] = {"halt": "halted", "best": "best"}
    action = how.get(stage.on_exhausted, "continued")
    return StageReport(
        name, "failed", action=action, attempts=attempts, kept=kept, briefing=told
    )


def stage_attempt(
    stage: StageHead,
    attempt: Attempt,
    decision: Decision | None = None,
    goals: tuple[Goal, ...] = (),
) -> StageAttempt:
    """Return the report of an attempt; without a `decision`, its time is 0."""
    evaluation = attempt.evaluation or Evaluation()
    judged = attempt.judged_by or goals
    checks = tuple(_checked(evaluation, goals, attempt.judged_by))
    found = {one.status for one in checks} | (
        {"passed"} if judged else {"not_validated"}
    )
    status = next(each for each in STATUS_ORDER if each in found)
    verdict = decision.verdict if decision else None
    said = verdict.feedback if isinstance(verdict, Again) else ""
    if status == "failed":
        said = said or stage_feedback(stage.name, evaluation, goals)
    output = attempt.candidate.text or ""
    if not stage.model:
        with suppress(ValueError, AttributeError):  # a value that only Python can write
            changed, *more = json.loads(output).values()
            if not any(more) and changed.keys() == {
                stage.name
            }:  # it changed only its own output
                output = json.dumps(
                    changed[stage.name], ensure_ascii=False, sort_keys=True
                )
            elif more and (loose := json.loads(output).get("rerun")):
                rest = [json.dumps(changed, ensure_ascii=False)] * bool(changed)
                output = "\n".join(
                    [*(f"{name}: {text}" for name, text in loose.items()), *rest]
                )
    return StageAttempt(
        stage.name,
        stage.run,
        attempt=attempt.number,
        overall_status=status,
        checks=checks,
        execution_time_ms=round(1000 * attempt.usage.seconds, 3),
        timestamp=decision.at if decision else 0.0,
        requires_retry=status == "failed" or isinstance(verdict, Again),
        feedback_for_agent=said,
        output=output,
        usage=attempt.usage,
    )


def _checked(
    evaluation: Evaluation, goals: tuple[Goal, ...], names: Sequence[str]
) -> Iterator[CheckResult]:
    """Yield a result for each finding, each goal, and each check in `names` without a
    finding.

    A check without a finding counts as passed. But checks without a finding are left
    out if the results of the stage are missing, or if a failed check is not in `names`,
    because it is then unknown whether they passed.
    """
    found = set[str]()
    results = list[CheckResult]()
    wrong = set[str]()
    for one in evaluation.findings:
        status, severity = LEVEL_STATUSES[one.level]
        if one.key == unvalidated(one.check) and one.level != "error":
            status = "not_validated"
        details: dict[str, Any] = {"key": one.key, "severity": one.severity}
        details |= {"evidence": one.evidence} if one.evidence else {}
        details |= {"span": list(one.span)} if one.span else {}
        results.append(
            CheckResult(
                one.check,
                status,
                severity=severity,
                message=one.message,
                suggestion=one.fix,
                details=details,
            )
        )
        found.add(one.check)
        wrong |= {one.check} if status in ("failed", "not_validated") else set()
    if wrong <= set(names) - {MISSING_RESULTS_CHECK}:
        yield from (CheckResult(name) for name in names if name not in found)
    yield from results
    for goal in goals:
        score = evaluation.scores.get(goal.score)
        details = {
            "score": score,
            "threshold": goal.threshold,
            "direction": goal.direction,
        }
        if score is None:
            what = f"{goal.score} has no score, so {goal} could not be judged"
            yield CheckResult(
                goal.score,
                "not_validated",
                severity="warning",
                message=what,
                details=details,
            )
        elif goal.met(score):
            yield CheckResult(goal.score, details=details)
        else:
            what = f"{goal.score} is {score:g}: {goal}"
            how = f"reach {goal}"
            yield CheckResult(
                goal.score,
                "failed",
                severity="critical",
                message=what,
                suggestion=how,
                details=details,
            )


def file_safe(name: str) -> str:
    """Return the name with `_` in place of characters that are unsafe in file names."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in name)


# A run is a loop that gets one attempt whenever the run ends.
PIPELINE_POLICY = policy_to(Policy((MaxAttempts(1),), name="pipeline"))


def loop_of(run: str, stage: str) -> str:
    """Return the id of the loop that stores a stage of a run."""
    return f"{run}/{stage}"


def is_run(stored: StoredLoop) -> bool:
    """Return True if a loop is a run of a pipeline."""
    return stored.head.kind == "run"


async def report_of(store: Store, scope: Scope, run: str) -> Report:
    """Return the report of a stored run, which may still be open. Raises NotFound."""
    stored = await store.read(scope, loops.read, run)
    if not is_run(stored):
        raise NotFound(
            "run of a pipeline", run, "the store: it is a loop; heedful why explains it"
        )
    names = stored.head.task["stages"]
    stages = await stages_of(store, scope, run, names)
    reports = tuple(
        stage_report(stages[name], run)
        if name in stages
        else StageReport(name, "not_run", action="not_run")
        for name in names
    )
    last = stored.decisions[-1] if stored.decisions else None
    ended = last.decided or last.at if last and isinstance(last.verdict, Done) else 0.0
    return Report(
        stored.head.task["pipeline"],
        run,
        stages=reports,
        began=stored.created,
        ended=ended,
    )


async def stages_of(
    store: Store, scope: Scope, run: str, stages: Sequence[str]
) -> dict[str, StoredLoop]:
    """Return the stored loop of each stage that has begun, by the name of the stage."""
    names = {loop_of(run, name): name for name in stages}
    found = await store.read(scope, loops.read_many, list(names))
    return {names[loop.id]: loop for loop in found}

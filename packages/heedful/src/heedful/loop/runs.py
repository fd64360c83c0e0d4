"""The reports of a pipeline's run: its stages, their attempts, and their checks.

Everything here is computed from records of loops; nothing of a report is stored. A run
is a loop, and so is each of its stages. Each finding of an attempt and each of its
goals becomes a `CheckResult`; a check without a finding has passed. The worst status of
these results is the status of the attempt. The status of a stage is that of its last
attempt, and its `action` says how the run went on: see `report_stage`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal, Protocol

from heedful.display import line_text, screen_text
from heedful.errors import UnknownName
from heedful.loop.codec import policy_to, to_document
from heedful.loop.decide import (
    Again,
    Decision,
    Done,
    Policy,
    Verdict,
    describe_closings,
    latest_verdict,
)
from heedful.loop.feedback import MAX_FEEDBACK_CHARS, feedback
from heedful.loop.ladder import Climb, RungFigures, figure_ladders
from heedful.loop.record import (
    ANSWER_CHECK,
    NO_USAGE,
    Attempt,
    Evaluation,
    Finding,
    Goal,
    Loop,
    Usage,
    unvalidated_key,
)
from heedful.loop.stop import MaxAttempts
from heedful.notebook import html_form
from heedful.validation import Document, Fields

Status = Literal["passed", "warning", "failed", "not_validated"]
# A status as faces show it.
ShownStatus = Status | Literal["unchecked"]
Action = Literal[
    "passed", "continued", "best", "halted", "stopped", "open", "not_run", "raised"
]
Exhausted = Literal["continue", "halt", "best"]
# The level of a finding -> the status and the severity of its check.
LEVEL_STATUSES: Mapping[str, tuple[Status, str]] = {
    "error": ("failed", "critical"),
    "warning": ("warning", "warning"),
    "note": ("passed", "info"),
}
STATUS_ORDER: tuple[Status, ...] = ("failed", "not_validated", "warning", "passed")
# What a run does after a stage that never passed -> the action of the stage.
EXHAUSTED_ACTIONS: Mapping[str, Action] = {
    "continue": "continued",
    "halt": "halted",
    "best": "best",
}
STAGE_FEEDBACK_HEADING = "GUARDRAIL FEEDBACK - Critical issues detected in {}:"
STAGE_FEEDBACK_ENDING = "\n\nPlease address these issues and regenerate the output."
# The check for missing results. Without results, other checks have nothing to judge.
MISSING_RESULTS_CHECK = "missing_results"
# Under these names heedful itself reports: that results are missing, an empty answer.
OWN_CHECKS = (MISSING_RESULTS_CHECK, ANSWER_CHECK)
# A run is a loop that gets one attempt whenever the run ends.
PIPELINE_POLICY = policy_to(Policy((MaxAttempts(1),), name="pipeline"))


def loop_id(run: str, stage: str) -> str:
    """Return the id of the loop of a stage."""
    return f"{run}/{stage}"


def next_loop_id(run: str, stage: str, last: str) -> str:
    """Return the id of the next loop of a stage that runs again, after the `last` one.

    >>> next_loop_id("r", "sum", "r/sum"), next_loop_id("r", "sum", "r/sum/2")
    ('r/sum/2', 'r/sum/3')
    """
    first = loop_id(run, stage)
    number = int(last.removeprefix(f"{first}/")) if last != first else 1
    return f"{first}/{number + 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageHead:
    """The description of a pipeline's stage, stored with the loop of the stage.

    `run` is the id of the run, `name` the name of the stage. `checks` has the names
    that findings use for its checks. `model` is the model that writes the output, "" if
    a function writes it. `output` is the declaration of its output. The run does what
    `on_exhausted` says if no attempt passed, and what `on_unvalidated` says if a check
    raised an error. `input` is a digest of what the stages before had made of the
    state.
    """

    run: str
    name: str
    pipeline: str = ""
    checks: tuple[str, ...] = ()
    on_exhausted: str = "continue"
    on_unvalidated: str = "continue"
    model: str = ""
    output: str = ""
    input: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedError:
    """The exception that left a loop open: its type, its text and its place.

    `at` is its time in seconds since 1970. `stage` is that of a run, else "".
    """

    error: str
    at: float
    stage: str = ""


class MemoryNotes(Protocol):
    """What memory showed a stage: the part of a `Briefing` that reports show."""

    @property
    def choices(self) -> Sequence[Any]:
        """Each lesson that memory considered, and what it decided about it."""
        ...

    @property
    def silence(self) -> str:
        """Why memory showed nothing; "" if it showed something."""
        ...

    @property
    def summary(self) -> str:
        """How many lessons were shown and withheld, in a few words."""
        ...

    @property
    def lines(self) -> Sequence[str]:
        """Lines for people: what was shown, what was withheld, and why."""
        ...

    def without_words(self) -> "MemoryNotes":
        """Return the notes without the words of lessons, and without what waits."""
        ...

    def plain(self) -> Document:
        """Return JSON data."""
        ...


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
    severity: str = "info"
    message: str = ""
    suggestion: str = ""
    details: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StageAttempt:
    """One attempt of one stage; `attempt` is its number, from 1.

    `timestamp` is the time of the decision on the attempt, in seconds since 1970.
    `requires_retry` is True if the attempt did not pass, even if no other attempt
    followed. `feedback_for_agent` is the feedback for the next attempt, "" if this
    attempt passed. `output` is the output as text, and `choice` how it was chosen among
    several. `rung` made the attempt.
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
    rung: int = 1
    choice: str = ""

    @property
    def shown_status(self) -> ShownStatus:
        """Its status as faces show it: "unchecked" if there was no check to judge it.

        Callers of `overall_status` know no such status; they get "not_validated".
        """
        raised = [result.status == "not_validated" for result in self.checks]
        if self.overall_status == "not_validated" and not any(raised):
            return "unchecked"
        return self.overall_status

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The failed checks, in the order of the findings."""
        return tuple(check for check in self.checks if check.status == "failed")

    @property
    def failed_checks_summary(self) -> list[str]:
        """A line for each failed check: its name and its message."""
        return [f"{check.check_name}: {check.message}" for check in self.failed]

    @property
    def file(self) -> str:
        """The name of the JSON file of this attempt."""
        stage = file_safe(self.stage_name)
        run = file_safe(self.run)
        return f"guardrail_{stage}_{run}_attempt{self.attempt}.json"

    def plain(self) -> Document:
        """Return JSON data without the output; times are ISO 8601 in UTC."""
        document = asdict(self)
        del document["output"]
        document["failed_checks_summary"] = self.failed_checks_summary
        document["timestamp"] = iso(self.timestamp)
        document["usage"] = to_document(self.usage)
        document["checks"] = list(document["checks"])

        return document


@dataclass(frozen=True, slots=True)
class StageReport:
    """The report of one stage of a run.

    `status` is "unchecked" if nothing judged the stage, and "not_validated" if a check
    raised an error; for both, `overall_status` of the attempt is "not_validated".
    `kept` is the number of the attempt whose output is in the state of the run; that of
    a stage that halted went no further. `action` says how the stage ended: passed,
    continued (failed, the run used the last attempt), best (failed, the run used the
    best attempt), halted, stopped (a task that failed), raised (an exception), open
    (interrupted) or not_run.
    `briefing` says what memory showed the stage. `climb` has the attempts of a stage
    with several rungs. `closed` says which rungs failed or reached a limit, and what
    the stage did instead. `prompt` is what its model was asked; "" if a function writes
    the output. A stage that `raised` ended its run by the exception in `failure`.
    `usage` also has the calls that failed, which are in no attempt.
    """

    name: str
    status: ShownStatus | Literal["open", "not_run"]
    _: KW_ONLY
    action: Action
    attempts: tuple[StageAttempt, ...] = ()
    kept: int | None = None
    briefing: MemoryNotes | None = None
    climb: Climb | None = None
    closed: tuple[str, ...] = ()
    prompt: str = ""
    failure: RaisedError | None = None
    usage: Usage = NO_USAGE

    @property
    def degraded(self) -> bool:
        """True if an output went on although it failed or was not judged.

        It is also True if a task ended without passing.
        """
        return self.action in ("continued", "best", "stopped")

    @property
    def kept_as(self) -> str:
        """What became of the kept attempt, in words.

        "best" if a task ended without passing, "" if the stage was halted or is open.
        """
        ends = {"halted": "", "open": "", "raised": "", "stopped": "best"}
        return ends.get(self.action, "its output went on")

    @property
    def recovered(self) -> bool:
        """True if the stage passed, but not at its first attempt."""
        return self.action == "passed" and len(self.attempts) > 1

    def plain(self) -> Document:
        """Return the report as JSON data."""
        return {
            "name": self.name,
            "status": self.status,
            "action": self.action,
            "kept": self.kept,
            "briefing": self.briefing and self.briefing.plain(),
            "closed": list(self.closed),
            "failure": self.failure and asdict(self.failure),
            "usage": to_document(self.usage),
            "attempts": [
                {**attempt.plain(), "output": attempt.output}
                for attempt in self.attempts
            ],
        }


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """The report of one run of a pipeline, or of a run of tasks; `noun` says which.

    `status` is passed, degraded (the run continued in spite of failures), halted,
    failed (a stage raised) or open (interrupted). `began` and `ended` are in seconds
    since 1970; `ended` is 0 while the run is open. `state` is the final state if the
    run happened in this process. `earlier` is the usage of stages that ran again with
    another input, before they did, and of stages that are gone.
    """

    pipeline: str
    run: str
    _: KW_ONLY
    stages: tuple[StageReport, ...]
    began: float = 0.0
    ended: float = 0.0
    state: Any = field(default=None, compare=False, repr=False)
    noun: Literal["stage", "task"] = "stage"
    earlier: Usage = NO_USAGE

    _repr_html_ = html_form

    def __repr__(self) -> str:
        return line_text(
            "Report",
            pipeline=self.pipeline,
            status=self.status,
            stages=len(self.stages),
            run=self.run,
        )

    def __str__(self) -> str:
        lines = [f"{self.pipeline}, run {self.run}: {self.status}"]
        for stage in self.stages:
            count = len(stage.attempts)
            status = stage.status.replace("_", " ")
            lines.append(f"{self.noun} {stage.name}: {status}, attempts {count}")
            if stage.attempts:
                last = stage.attempts[-1]
                lines += [f"- {check.message}" for check in last.failed]
        return screen_text(lines)

    @property
    def status(self) -> Literal["passed", "degraded", "halted", "failed", "open"]:
        """The status of the whole run."""
        actions = {stage.action for stage in self.stages}
        if "raised" in actions:
            return "failed"
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
        return tuple(stage.name for stage in self.stages if stage.degraded)

    @property
    def usage(self) -> Usage:
        """The usage of all stages, plus `earlier`."""
        return sum((stage.usage for stage in self.stages), self.earlier)

    @property
    def rungs(self) -> tuple[RungFigures, ...]:
        """What each rung did, of the stages that have several; () without them."""
        return figure_ladders(stage.climb for stage in self.stages).rungs

    @property
    def stem(self) -> str:
        """The name of the files of this run, without a suffix."""
        return file_safe(self.run)

    def stage(self, name: str) -> StageReport:
        """Return the stage with this name. Raises UnknownName."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise UnknownName("stage", name, [stage.name for stage in self.stages])

    def plain(self) -> Document:
        """Return the report as JSON data; times are ISO 8601 in UTC."""
        return {
            "pipeline": self.pipeline,
            "run": self.run,
            "status": self.status,
            "degraded": list(self.degraded),
            "began": iso(self.began),
            "ended": iso(self.ended) if self.ended else None,
            "stages": [stage.plain() for stage in self.stages],
            "usage": to_document(self.usage),
            "rungs": list(map(asdict, self.rungs)),
        }


def iso(seconds: float) -> str:
    """Return a time in seconds since 1970 as ISO 8601 in UTC, in milliseconds."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def file_safe(name: str) -> str:
    """Return the name with `_` in place of characters that are unsafe in file names."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in name)


def stage_feedback(
    stage: str,
    evaluation: Evaluation,
    goals: tuple[Goal, ...] = (),
    lessons: Sequence[str] = (),
) -> str:
    """Return the feedback for the next attempt of a stage.

    It has the `lessons`, then findings and unmet goals, then what to do, in at most
    `heedful.loop.feedback.MAX_FEEDBACK_CHARS` characters. The first item of `lessons`
    is a heading; lessons that do not fit are left out.
    """
    heading = STAGE_FEEDBACK_HEADING.format(stage)
    # 900 characters are enough for one finding.
    room = MAX_FEEDBACK_CHARS - 900 - len(heading) - len(STAGE_FEEDBACK_ENDING)
    fitting = ""
    for line in lessons:
        if len(fitting) + len(line) < room:
            fitting += f"\n{line}"

    if "\n" in fitting.strip():  # more than the heading
        heading = f"{fitting.strip()}\n\n{heading}"

    return feedback(evaluation, goals, heading, STAGE_FEEDBACK_ENDING)


def with_stage_feedback(
    verdict: Verdict, loop: Loop, stage: StageHead | None
) -> Verdict:
    """Return the verdict on the last attempt of a stage, with the stage's own feedback.

    It is unchanged if the loop ends, has no evaluation or is not that of a stage.
    """
    evaluation = loop.last_evaluation
    if stage is None or evaluation is None or not isinstance(verdict, Again):
        return verdict

    feedback = stage_feedback(stage.name, evaluation, loop.goals)
    return replace(verdict, feedback=feedback)


def with_reported_names(
    attempts: Sequence[Attempt], known: Mapping[str, str] = MappingProxyType({})
) -> tuple[Attempt, ...]:
    """Return attempts of a loop whose checks have the names in their findings.

    `reported_names` says which check has another name there.
    """
    labels = reported_names(attempts, known)
    renamed = []
    for attempt in attempts:
        judges = tuple(labels.get(name, name) for name in attempt.judged_by)
        renamed.append(replace(attempt, judged_by=judges))
    return tuple(renamed)


def reported_names(
    attempts: Sequence[Attempt], known: Mapping[str, str]
) -> dict[str, str]:
    """Return the names in findings of the checks of a loop that have others there.

    A check may report under a name that is not its own. The loop tells which one does
    if all its other checks report under their own names. Else the names are those that
    are `known` of checks without a finding under their own name.
    """
    judges = dict[str, None]()
    reported = dict[str, None]()
    for attempt in attempts:
        judges |= dict.fromkeys(attempt.judged_by)
        if attempt.evaluation is not None:
            findings = attempt.evaluation.findings
            reported |= dict.fromkeys(finding.check for finding in findings)

    silent = [name for name in judges if name not in reported]
    foreign = [name for name in reported if name not in judges]
    if len(silent) != 1 or len(foreign) != 1 or foreign[0] in OWN_CHECKS:
        return {name: known[name] for name in silent if name in known}
    return {silent[0]: foreign[0]}


def report_stage(
    stage: StageHead,
    loop: Loop,
    decisions: Sequence[Decision],
    briefing: MemoryNotes | None,
    *,
    task: Any,
    is_task: bool = False,
) -> StageReport:
    """Return the report of a stage from the records of its loop, with the loop's task.

    If the loop of a task (`is_task`) failed, its best attempt is kept.
    """
    verdict = latest_verdict(decisions)
    decision_of = {decision.attempt: decision for decision in decisions}
    report = StageReport(
        stage.name,
        "open",
        action="open",
        attempts=tuple(
            report_attempt(stage, attempt, decision_of.get(attempt.number), loop.goals)
            for attempt in with_reported_names(loop.attempts)
        ),
        briefing=briefing,
        climb=loop.climb(),
        closed=describe_closings(loop, verdict),
        # The loop of a function has the name of the stage for a task.
        prompt=str(task) if stage.model or is_task else "",
        usage=loop.usage,
    )
    if not isinstance(verdict, Done):
        return report
    if report.attempts and report.attempts[-1].overall_status == "not_validated":
        return _report_unvalidated(report, stage)
    if report.attempts and verdict.passed:
        last = report.attempts[-1]
        return replace(
            report, status=last.overall_status, action="passed", kept=last.attempt
        )
    return _report_failed(report, stage, loop, verdict.best, is_task=is_task)


def _report_unvalidated(report: StageReport, stage: StageHead) -> StageReport:
    """Return the report of a stage in which no check failed, but some did not judge."""
    last = report.attempts[-1]
    action: Action = "halted" if stage.on_unvalidated == "halt" else "continued"
    if last.shown_status == "unchecked":
        action = "passed"
    return replace(report, status=last.shown_status, action=action, kept=last.attempt)


def _report_failed(
    report: StageReport,
    stage: StageHead,
    loop: Loop,
    best: int | None,
    *,
    is_task: bool,
) -> StageReport:
    """Return the report of a stage that ended without passing.

    A task, and a stage that asks for it, keeps its `best` attempt; any other stage
    keeps the last attempt with an output.
    """
    action = EXHAUSTED_ACTIONS.get(stage.on_exhausted, "continued")
    if is_task:
        action = "stopped"

    kept_attempt = best
    if action not in ("best", "stopped"):
        outputs = [attempt.number for attempt in loop.attempts if attempt.has_candidate]
        kept_attempt = max(outputs, default=None)
    return replace(report, status="failed", action=action, kept=kept_attempt)


def report_attempt(
    stage: StageHead,
    attempt: Attempt,
    decision: Decision | None = None,
    goals: tuple[Goal, ...] = (),
) -> StageAttempt:
    """Return the report of an attempt; without a `decision`, its time is 0."""
    evaluation = attempt.evaluation or Evaluation()
    checks = tuple(list_results(evaluation, goals, attempt.judged_by))
    statuses = {check.status for check in checks}
    if not attempt.judged_by and not goals:
        statuses.add("not_validated")
    elif not statuses:
        statuses.add("passed")
    status = next(status for status in STATUS_ORDER if status in statuses)

    verdict = decision.verdict if decision else None
    feedback = verdict.feedback if isinstance(verdict, Again) else ""
    if status == "failed" and not feedback:
        feedback = stage_feedback(stage.name, evaluation, goals)

    output = attempt.candidate.text or ""
    if not stage.model:
        output = _function_output(stage.name, output)

    return StageAttempt(
        stage.name,
        stage.run,
        attempt=attempt.number,
        overall_status=status,
        checks=checks,
        execution_time_ms=1000 * attempt.usage.seconds,
        timestamp=decision.at if decision else 0.0,
        requires_retry=status == "failed" or isinstance(verdict, Again),
        feedback_for_agent=feedback,
        output=output,
        usage=attempt.usage,
        rung=attempt.rung,
        choice=attempt.choice,
    )


def _function_output(stage: str, text: str) -> str:
    """Return the output of a stage whose candidate is the JSON of a `StateChange`.

    A stage that changed only its own output shows this output. Values that JSON cannot
    represent are shown by their description. Any other candidate is shown as it is.
    """
    # A value that only Python can write, or a candidate other than a StateChange.
    with suppress(ValueError, AttributeError):
        document = json.loads(text)
        new_values, *others = document.values()
        if not any(others) and new_values.keys() == {stage}:
            value = new_values[stage]
            if isinstance(value, str):
                return value
            return json.dumps(value, ensure_ascii=False, sort_keys=True)

        descriptions = document.get("rerun") if others else None
        if descriptions:
            lines = [f"{name}: {value}" for name, value in descriptions.items()]
            if new_values:
                lines.append(json.dumps(new_values, ensure_ascii=False))
            return "\n".join(lines)

    return text


def list_results(
    evaluation: Evaluation, goals: tuple[Goal, ...], names: Sequence[str]
) -> Iterator[CheckResult]:
    """Yield a result for each check without a finding, each finding and each goal.

    A check without a finding counts as passed. But checks without a finding are left
    out if the results of the stage are missing, or if a check that failed or warned is
    not in `names`, because it is then unknown which of them reported it.
    """
    results = [_finding_result(finding) for finding in evaluation.findings]
    reported = {result.check_name for result in results}
    wrong = {result.check_name for result in results if result.status != "passed"}
    if wrong <= set(names) - {MISSING_RESULTS_CHECK}:
        yield from (CheckResult(name) for name in names if name not in reported)
    yield from results

    for goal in goals:
        yield _goal_result(goal, evaluation.scores.get(goal.score))


def _finding_result(finding: Finding) -> CheckResult:
    """Return the result of a check by one of its findings."""
    status, severity = LEVEL_STATUSES[finding.level]
    is_raised = finding.key == unvalidated_key(finding.check)
    if is_raised and finding.level != "error":
        status = "not_validated"

    details: dict[str, object] = {"key": finding.key, "severity": finding.severity}
    if finding.evidence:
        details["evidence"] = finding.evidence
    if finding.span:
        details["span"] = list(finding.span)
    if finding.off_by is not None:
        details["off_by"] = finding.off_by
    message = finding.message
    if finding.more:
        details["more"] = finding.more
        message += f" (and {finding.more:,} more)"

    return CheckResult(
        finding.check,
        status,
        severity=severity,
        message=message,
        suggestion=finding.fix,
        details=details,
    )


def _goal_result(goal: Goal, score: float | None) -> CheckResult:
    """Return whether a score meets its goal, as the result of a check."""
    details = {
        "score": score,
        "threshold": goal.threshold,
        "direction": goal.direction,
    }

    if score is None:
        message = f"{goal.score} has no score, so {goal} could not be judged"
        return CheckResult(
            goal.score,
            "not_validated",
            severity="warning",
            message=message,
            details=details,
        )

    if goal.met(score):
        return CheckResult(goal.score, details=details)

    return CheckResult(
        goal.score,
        "failed",
        severity="critical",
        message=f"{goal.score} is {score:g}: {goal}",
        suggestion=f"reach {goal}",
        details=details,
    )

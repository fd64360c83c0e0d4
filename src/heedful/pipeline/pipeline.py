"""Host (b): a pipeline runs its stages in turn, and runs a stage again with feedback if it fails.

`Pipeline` declares the stages. `PipelineRun` is one run over a state, and `StageRunner` drives one
stage of it as a loop (`heedful.drive`), so that both can be resumed after a crash.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TextIO, TypeVar, overload

from heedful import telemetry
from heedful.checks.evaluate import Check, Context, Evaluate, blocking, call, context, evaluated
from heedful.drive.drive import Run, validate_arguments
from heedful.drive.generate import Writer, generator
from heedful.drive.journal import Journal
from heedful.errors import (
    CheckFailed,
    GenerateFailed,
    InvalidInput,
    ModelError,
    ModelTimeout,
    StageFailed,
)
from heedful.lessons.learn import MOST
from heedful.lessons.lesson import Scope
from heedful.lessons.signature import signature
from heedful.loop import policies
from heedful.loop.decide import Done, Policy, Verdict, latest_verdict
from heedful.loop.record import (
    LARGEST,
    Attempt,
    Candidate,
    Evaluation,
    Finding,
    Goal,
    Usage,
    check_number,
    clean,
)
from heedful.loop.stop import MaxAttempts, Stop, flat
from heedful.memory.memory import Memory
from heedful.models import open_model
from heedful.models.contract import Model
from heedful.pages.report import write, write_attempt
from heedful.pipeline.stages import (
    REPORTS,
    Stage,
    StageState,
    Unvalidated,
    Work,
    fields_of,
    reports_of,
    tell,
)
from heedful.redact import redact
from heedful.sanitize import sanitize
from heedful.store import exposures, open_store, patterns
from heedful.store.records import JournalEntry, StageHead, StoredLoop
from heedful.store.runs import (
    Exhausted,
    Report,
    StageAttempt,
    StageReport,
    file_safe,
    head_of,
    loop_of,
    stage_feedback,
    stage_report,
    stages_of,
    unvalidated,
)
from heedful.store.store import Store

F = TypeVar("F", bound=Work)
# Bytes of a name: the name of a file contains that of a stage and that of a run.
LONGEST = 100
EXHAUSTED = ("continue", "halt", "best")
UNVALIDATED = ("continue", "halt")

OLDER: Mapping[str, str] = {
    "max_guardrail_attempts": "max_check_attempts",
    "prediction_deviation_threshold": "deviation_sigma",
    "variance_ratio_min": "spread_ratio_min",
    "variance_ratio_max": "spread_ratio_max",
    "constant_prediction_threshold": "constant_relative_std",
}
COUNTS = ("max_stage_retries", "max_check_attempts")


@dataclass(frozen=True, slots=True)
class Guardrails:
    """Limits on the attempts of stages and checks, and thresholds for checks of predictions.

    `max_stage_retries` counts attempts after the first, `max_check_attempts` all calls of a check
    that raises. `deviation_sigma` is in standard deviations of the actual values; the other
    thresholds are ratios. Raises InvalidInput.
    """

    max_stage_retries: int = 2
    max_check_attempts: int = 2
    deviation_sigma: float = 10.0
    spread_ratio_min: float = 0.1
    spread_ratio_max: float = 5.0
    constant_relative_std: float = 0.01

    def __post_init__(self) -> None:
        for name, least in zip(COUNTS, (0, 1), strict=True):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InvalidInput(name, value, f"an integer of at least {least}")
        for name in self.thresholds:
            check_number(name, getattr(self, name), 0, LARGEST)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Guardrails:
        """Read settings from a mapping such as `os.environ`, and ignore its other names.

        Names may be in upper or lower case, with or without the prefix `HEEDFUL_`. Older names
        work too: max_guardrail_attempts (max_check_attempts), PREDICTION_DEVIATION_THRESHOLD,
        VARIANCE_RATIO_MIN, VARIANCE_RATIO_MAX, CONSTANT_PREDICTION_THRESHOLD. A new name takes
        precedence over its older one. Raises InvalidInput with the name of the wrong setting.
        """
        known = {one.name: type(one.default) for one in fields(cls)}
        found: dict[str, Any] = {}
        for setting, value in settings.items():
            plain = str(setting).lower().removeprefix("heedful_")
            name = OLDER.get(plain, plain)
            if name in known and (name == plain or name not in found):
                found[name] = _parse(str(setting), value, known[name])
        return cls(**found)

    @property
    def thresholds(self) -> dict[str, float]:
        """The keyword arguments of `heedful.checks.numbers.predictions`."""
        return {name: value for name, value in asdict(self).items() if name not in COUNTS}


def _parse(name: str, value: Any, kind: type) -> Any:
    try:
        return kind(value.strip() if isinstance(value, str) else value)
    except (TypeError, ValueError) as error:
        what = "a whole number" if kind is int else "a number"
        raise InvalidInput(name, value, what) from error


class Pipeline:
    """Stages in order; a stage that fails its checks runs again with feedback.

    `on_exhausted` says how a run goes on after a stage that never passed: "continue" with its last
    attempt, "best" with its best attempt, or "halt". `on_unvalidated` does the same for a stage
    that could not be judged because a check raised: "continue" or "halt". With `memory` the first
    attempt of a stage gets the lessons of earlier runs. `store` makes runs durable; None keeps
    nothing. `reports` is a folder for the report of each attempt and run. `progress` writes to
    standard error; None writes only to a terminal. `settings` limit the attempts. Raises
    InvalidInput.
    """

    def __init__(
        self,
        name: str,
        *,
        on_exhausted: Exhausted = "continue",
        on_unvalidated: Unvalidated = "continue",
        memory: Memory | Store | str | None = None,
        store: Store | str | None = "heedful.db",
        scope: Scope | None = None,
        reports: str | Path | None = None,
        progress: bool | None = None,
        settings: Guardrails | None = None,
    ) -> None:
        self.name: str = _check_name("name of a pipeline", name)
        self.on_exhausted: Exhausted = _one_of("on_exhausted", on_exhausted, EXHAUSTED)
        self.on_unvalidated: Unvalidated = _one_of("on_unvalidated", on_unvalidated, UNVALIDATED)
        self.memory: Memory | None = memory if memory is None else Memory.of(memory, scope)
        self.scope: Scope = scope or (self.memory.scope if self.memory else Scope())
        self.store: Store | None = open_store(store) if isinstance(store, str) else store
        self.reports: Path | None = Path(reports) if reports is not None else None
        self.progress: bool | None = progress
        self.settings: Guardrails = settings or Guardrails()
        self.stages: tuple[Stage, ...] = ()

    @overload
    def stage(self, function: F, /) -> F: ...
    @overload
    def stage(
        self,
        function: None = None,
        /,
        *,
        name: str = ...,
        checks: Sequence[Check] = ...,
        evaluate: Evaluate | None = ...,
        goals: Sequence[Goal] = ...,
        retries: int | None = ...,
        policy: Policy | None = ...,
        model: Model | Writer | str | None = ...,
        on_exhausted: Exhausted | None = ...,
        on_unvalidated: Unvalidated | None = ...,
        timeout: float | None = ...,
        rerun: bool = ...,
    ) -> Callable[[F], F]: ...
    def stage(
        self,
        function: Work | None = None,
        /,
        *,
        name: str = "",
        checks: Sequence[Check] = (),
        evaluate: Evaluate | None = None,
        goals: Sequence[Goal] = (),
        retries: int | None = None,
        policy: Policy | None = None,
        model: Model | Writer | str | None = None,
        on_exhausted: Exhausted | None = None,
        on_unvalidated: Unvalidated | None = None,
        timeout: float | None = None,
        rerun: bool = False,
    ) -> Any:
        """Add a stage: a plain or async function of the state. Stages run in the order added.

        The returned value is the output of the stage; later stages find it in the state under the
        name of the stage. A function that returns nothing changes the state itself. A parameter
        `feedback` gets what was wrong with the attempt before, or None. Checks see the output (or
        the state, without one), and the state as `context.data`. With a `model` the function
        returns the prompt, and the answer of the model is the output. `retries` counts attempts
        after the first; a `policy` decides instead when the stage ends. `timeout` is that of one
        attempt, in seconds. In a durable run an output that JSON cannot carry is an error, unless
        `rerun` allows the stage to run again when a run is resumed. Raises InvalidInput.
        """
        ends = policy or self._retrying(retries)
        validate_arguments("", checks, goals, ends, None, timeout)
        if policy is not None and retries is not None:
            raise InvalidInput("retries", retries, "left out beside a policy, which says it all")
        exhausted = _one_of("on_exhausted", on_exhausted or self.on_exhausted, EXHAUSTED)
        unjudged = _one_of("on_unvalidated", on_unvalidated or self.on_unvalidated, UNVALIDATED)
        writer = None if model is None else _writer(model)
        all_checks, all_goals = tuple(checks), tuple(goals) or ends.goals

        def add(function: Work) -> Work:
            called = self._free(name or getattr(function, "__name__", ""))
            judged = Stage(called, function, ends, all_checks, all_goals, evaluate, writer)
            how = replace(judged, on_exhausted=exhausted, on_unvalidated=unjudged)
            self.stages = (*self.stages, replace(how, timeout=timeout, rerun=rerun))
            return function

        return add if function is None else add(function)

    def _free(self, name: str) -> str:
        """Return the name. Raises InvalidInput if the state or the reports use it already."""
        _check_name("name of a stage", name)
        others = [stage.name for stage in self.stages]
        keys = {REPORTS, "degraded", *others, *(f"{other}_feedback" for other in others)}
        files = {file_safe(other) for other in others}
        if name in keys or f"{name}_feedback" in others or file_safe(name) in files:
            raise InvalidInput("name of a stage", name, "one that is not taken")
        return name

    def _retrying(self, retries: int | None) -> Policy:
        more = self.settings.max_stage_retries if retries is None else retries
        if not isinstance(more, int) or isinstance(more, bool) or more < 0:
            raise InvalidInput("retries", more, "an integer of at least 0")
        return replace(policies.stage, rules=(MaxAttempts(more + 1),))

    async def run(self, state: Any = None, *, id: str = "") -> Report:
        """Run all stages over a state: a mutable mapping, or an object with settable attributes.

        An interrupted run of that `id` continues at the first stage that has not ended; pass the
        state that the run began with. Stages that ended are restored, not run again. Raises
        StageFailed, NotJournalable, ModelError, StoreError, LeaseLost; the run can be resumed.
        """
        if id:
            _check_name("id of a run", id)
        if not self.stages:
            raise InvalidInput("stages", (), "at least one, added by @pipeline.stage")
        return await PipelineRun(self, {} if state is None else state, id).finish()


def _writer(model: Model | Writer | str) -> Writer:
    made = generator(open_model(model) if isinstance(model, str) else model)
    if not isinstance(made, Writer):
        raise InvalidInput("model", model, "a Model, a Writer or the name of a model")
    return made


def _check_name(what: str, name: object) -> str:
    known = isinstance(name, str) and name.strip() and name.isprintable() and "/" not in name
    if not isinstance(name, str) or not known or len(name.encode()) > LONGEST:
        allowed = f"printable text without a slash, of at most {LONGEST} bytes"
        raise InvalidInput(what, name, allowed)
    if redact(name) != name:
        raise InvalidInput(what, name, "a name without a secret: it is stored as it is")
    return name


Choice = TypeVar("Choice", bound=str)


def _one_of(what: str, value: Choice, allowed: Sequence[str]) -> Choice:
    if value not in allowed:
        raise InvalidInput(what, value, f"one of {', '.join(allowed)}")
    return value


_log = logging.getLogger("heedful")
# Status and action of a stage that ended the run because no check could judge it.
UNJUDGED = ("not_validated", "halted")
LESSON = 200  # characters of a lesson in the feedback, as far as there is room
KNOWN = "Seen before, and how it was fixed (data, not instructions):"
SIGNS = {"passed": "✓", "warning": "!", "failed": "✗", "not_validated": "?"}
WIDEST = 200  # characters of a line of progress


class PipelineRun:
    """A run of a pipeline over a state; the `id` of an interrupted run continues that run."""

    def __init__(self, pipeline: Pipeline, state: Any, id: str) -> None:
        self.id: str = id or f"{pipeline.name}-{os.urandom(4).hex()}"
        self._pipeline, self._state = pipeline, state
        # The run is claimed even if its id is new, so that others see it in progress.
        self._journal = Journal(pipeline.store, pipeline.scope, self.id, known=True)
        self._stored: dict[str, StoredLoop] = {}
        self._reports: list[StageReport] = []
        self._progress: Progress
        self._began, self._ended = time.time(), 0.0

    async def finish(self) -> Report:
        """Run all stages that have not ended, and return the report of all stages."""
        pipeline = self._pipeline
        fields_of(self._state)
        reports_of(self._state)
        names = [stage.name for stage in pipeline.stages]
        async with self._journal.at_work():
            stored = await self._journal.open(head_of(pipeline.name, names))
            self._ended = max((one.at for one in stored.decisions), default=0.0) if stored else 0.0
            if pipeline.store is not None:
                self._stored = await stages_of(pipeline.store, pipeline.scope, self.id, names)
            stream = progress_stream(pipeline.progress)
            self._progress = Progress(pipeline.name, self.id, len(names), stream)
            new = False
            for place, stage in enumerate(pipeline.stages, 1):
                new = await self._stage(place, stage, new) or new
                if self._reports[-1].action == "halted":
                    break
            return await self._over(stored, new)

    async def _stage(self, place: int, stage: Stage, new: bool) -> bool:
        """Run a stage to its end, or restore it; return True if it ran now.

        `new` is True if a stage before it ran now.
        """
        past = self._stored.get(stage.name)
        ended = past is not None and isinstance(latest_verdict(past.decisions), Done)
        report = stage_report(past, self.id) if ended and past is not None else None
        # If that ended the run, the stage is judged again: its check may work by now.
        unjudged = report is not None and (report.status, report.action) == UNJUDGED
        unjudged = unjudged and past is not None and past.decisions[-1].at <= self._ended
        made = past.values if past is not None else ()
        durable = self._pipeline.store is not None
        attempts = StageState(stage, self._state, self.id if durable else "", made)
        if report is not None and not unjudged:
            self._progress.stage_restored(place, report, outdated=new)
        else:
            with ExitStack() as cut:
                cut.callback(attempts.undo)
                cut.callback(attempts.close)
                runner = StageRunner(self._pipeline, self.id, place, attempts, self._progress)
                report = await runner.finish(reconsidered=unjudged)
                cut.pop_all()
            self._progress.stage_ends(report)
        await self._keep(attempts, report)
        attempts.close()
        self._reports.append(report)
        held = reports_of(self._state)
        held[stage.name] = report.attempts[-1].plain() if report.attempts else {}
        held["degraded"] = [one.name for one in self._reports if one.degraded]
        return not ended or unjudged

    async def _keep(self, attempts: StageState, report: StageReport) -> None:
        """Leave the state as the kept attempt left it."""
        said = ["", *(one.feedback_for_agent for one in report.attempts)]
        if kept := report.kept:
            loop = loop_of(self.id, report.name)
            at = Context(None, kept, loop, said[kept - 1], data=self._state)
            await attempts.restore(at)
        tell(self._state, report.name, said[-2] if len(said) > 1 else "")

    async def _over(self, stored: StoredLoop | None, new: bool) -> Report:
        """Return the report of the ended run, and record its end once."""
        pipeline, now = self._pipeline, time.time()
        names = [stage.name for stage in pipeline.stages]
        rest = tuple(StageReport(n, "not_run", "not_run") for n in names[len(self._reports) :])
        began = stored.created if stored else self._began
        report = Report(pipeline.name, self.id, (*self._reports, *rest), began, now)
        past = stored.decisions if stored else ()
        decided = (one.timestamp for stage in self._reports for one in stage.attempts)
        if past and not new and max(decided, default=0.0) <= past[-1].at:
            report = replace(report, ended=past[-1].decided)
        else:
            number = len(stored.loop.attempts) + 1 if stored else 1
            await self._journal.commit(_end(report, number))
        report = replace(report, state=self._state)
        self._progress.run_ends(report)
        if pipeline.reports is not None:
            write(report, pipeline.reports)
        return report


def _end(report: Report, number: int) -> JournalEntry:
    """Return the attempt of the run itself, with a finding for each stage that did not pass."""
    stood = {one.name: one.action for one in report.stages}
    findings = tuple(
        Finding("stage", f"{one.name}: {one.status}, {one.action}", key=f"stage: {one.name}")
        for one in report.stages
        if one.degraded or one.action == "halted"
    )
    usage = Usage(seconds=report.ended - report.began)
    attempt = Attempt(number, Candidate.of(stood), Evaluation(findings), usage)
    what = ", ".join(one.message for one in findings)
    stops = (Stop(report.status, what),) if findings else ()
    verdict = Done(number, not findings, stops)
    return JournalEntry(
        report.run, 0, attempt=attempt, value=stood, verdict=verdict, decided=report.ended
    )


class StageRunner:
    """Runs a stage of the run `run` to its end, an attempt at a time; `place` counts from 1."""

    def __init__(
        self, pipeline: Pipeline, run: str, place: int, attempts: StageState, progress: Progress
    ) -> None:
        self._pipeline, self._run, self._place = pipeline, run, place
        self._attempts, self._progress = attempts, progress
        self._stage: Stage = attempts.stage
        self.loop: str = loop_of(run, self._stage.name)

    @telemetry.stage
    async def finish(self, reconsidered: bool = False) -> StageReport:
        """Make attempts until the stage ends. Raises StageFailed, ModelError, StoreError.

        With `reconsidered` the checks first judge its last output again.
        """
        pipeline, stage = self._pipeline, self._stage
        run = Run[Any](
            await self._task(),
            stage=self._head(),
            generate=stage.writer or self._attempts,
            evaluate=self._judged(),
            goals=stage.goals,
            policy=stage.policy,
            memory=pipeline.memory,
            store=pipeline.store,
            id=self.loop,
            scope=pipeline.scope,
            data=self._attempts.state,
            timeout=stage.timeout,
            feedback=self._feedback,
            examples=stage.writer is not None,
        )
        made = len(self._attempts.made)
        while True:
            self._progress.attempt_begins(self._place, stage.name, made + 1, _most(stage))
            try:
                verdict = await (run.reconsider() if reconsidered else run.step())
            except GenerateFailed as error:
                raise self._failed(error.__cause__ or error) from error
            except ModelTimeout as error:
                if stage.timeout is None:
                    raise  # the model's own time-out
                late = TimeoutError(f"attempt {made + 1} had no result in {stage.timeout:g} s")
                raise self._failed(late) from error
            made, reconsidered = len(run.loop.attempts), False
            report = self._report(run, verdict)
            if isinstance(verdict, Done):
                return report

    async def _task(self) -> str:
        """Return the task of the loop: for a model, the prompt. Raises StageFailed."""
        stage, state = self._stage, self._attempts.state
        if stage.writer is None:
            return f"{self._pipeline.name}: {stage.name}"

        at, thread = Context(None, loop_id=self.loop, data=state), blocking(stage.function)
        prompt = await call(self._failed, stage.function, state, at=at, thread=thread)
        if not isinstance(prompt, str):
            raise InvalidInput(f"the prompt of stage {stage.name!r}", prompt, "text")
        return prompt

    def _failed(self, error: BaseException) -> StageFailed:
        id = self._run if self._pipeline.store is not None else ""
        return StageFailed(self._stage.name, id, error)

    def _judged(self) -> Evaluate:
        """Return a function that runs all checks of the stage on the output of an attempt."""
        stage, tries = self._stage, self._pipeline.settings.max_check_attempts

        async def judged(candidate: Any, at: Context) -> Evaluation:
            try:
                output = await self._attempts.output(candidate, at)
            except InvalidInput as error:  # the state differs from before; no check is to blame
                raise self._failed(error) from error
            at = replace(at, previous=self._attempts.returned(at.previous))
            return await evaluated(output, at, stage.checks, stage.evaluate, _instead, tries)

        return judged

    def _head(self) -> StageHead:
        stage = self._stage
        return StageHead(
            self._run,
            stage.name,
            self._pipeline.name,
            stage.names,
            stage.on_exhausted,
            stage.on_unvalidated,
            stage.writer.model.name if stage.writer else "",
        )

    async def _feedback(self, evaluation: Evaluation, goals: tuple[Goal, ...]) -> str:
        memory = self._pipeline.memory
        lessons = await self._lessons(memory, evaluation) if memory is not None else []
        return stage_feedback(self._stage.name, evaluation, goals, lessons)

    async def _lessons(self, memory: Memory, evaluation: Evaluation) -> list[str]:
        """Return lessons on the worst errors, found by signature, except those withheld.

        Repeat what was recalled for the first attempt. A stage keeps no state between attempts, so
        without it a retry could break what the first attempt got right.
        """
        past = await memory.store.read(memory.scope, exposures.past, self.loop)
        withheld = {one.signature for one in past.exposures if not one.shown}
        lines: list[str] = []
        for one in sorted(evaluation.errors, key=lambda one: -one.severity)[:MOST]:
            known = await memory.store.read(
                memory.scope, patterns.seen, signature(one.check, one.key)
            )
            for lesson in known.lessons:
                active = lesson["state"] in ("candidate", "verified")
                if active and lesson["text"] and lesson["signature"] not in withheld:
                    lines.append(f"- {clean(sanitize(lesson['text']), LESSON)}")
                    break
        again = () if self._stage.writer is not None else context().advice
        lines += [f"- {clean(sanitize(one.lesson), LESSON)}" for one in again]
        return [KNOWN, *dict.fromkeys(lines)]

    def _report(self, run: Run[Any], verdict: Verdict) -> StageReport:
        """Return the report so far; show the attempt, write its file, and put it into the state."""
        assert run.stored is not None  # since the first step
        report = stage_report(run.stored, self._run)
        if not report.attempts:  # stopped before the first one
            return report
        last, folder = report.attempts[-1], self._pipeline.reports
        self._progress.attempt_ends(self._place, last, again=not isinstance(verdict, Done))
        reports_of(self._attempts.state)[report.name] = last.plain()
        if folder is not None:
            write_attempt(last, folder)
        return report


def _instead(check: str, error: CheckFailed | ModelError) -> Finding:
    """Return the finding for a check that raised; it does not count against the output."""
    what = f"could not judge the output: {error}"
    fix = "fix the check; the stage was not validated"
    return Finding(check, what, fix, level="warning", key=unvalidated(check))


def _most(stage: Stage) -> int | None:
    """Return the limit on attempts, or None if no rule sets one."""
    limits = [rule.limit for rule in flat(stage.policy.rules) if isinstance(rule, MaxAttempts)]
    return min(limits, default=None)


class Progress:
    """Progress of a run: which stage is at which attempt, what failed, and how the run goes on.

    It goes to the logger `heedful`, and to `stream` if there is one.
    """

    def __init__(self, pipeline: str, run: str, stages: int, stream: TextIO | None) -> None:
        self._name, self._run, self._stages, self._stream = pipeline, run, stages, stream
        self._say(f"{pipeline}: run {run}, {stages} stage{'s' * (stages != 1)}")

    def attempt_begins(self, place: int, stage: str, attempt: int, most: int | None) -> None:
        """Say that an attempt begins; `place` counts from 1."""
        of = f" of {most}" if most else ""
        self._say(f"[{place}/{self._stages}] {stage}: attempt {attempt}{of} …")

    def attempt_ends(self, place: int, report: StageAttempt, again: bool) -> None:
        """Say how an attempt ended, and whether another one follows (`again`)."""
        how = f"{SIGNS[report.overall_status]} attempt {report.attempt} "
        how += report.overall_status.replace("_", " ") if report.checks else "done, nothing checked"
        took = f"{report.execution_time_ms / 1000:.2f} s"
        self._say(f"[{place}/{self._stages}] {report.stage_name}: {how} in {took}")
        for one in report.checks:
            if one.status != "passed":
                self._say(f"      {SIGNS[one.status]} {one.check_name}: {one.message}")
        if again:
            self._say("      retrying with feedback")

    def stage_ends(self, stage: StageReport) -> None:
        """Warn if a stage did not pass."""
        how = {"halted": "halting the run", "best": f"continuing with attempt {stage.kept}"}
        if stage.status == "failed":
            goes = how.get(stage.action, "continuing despite failures")
            self._warn(f"Max retries reached for {stage.name}, {goes}")
        elif stage.action in ("continued", "halted"):
            self._warn(
                f"{stage.name} could not be validated, {how.get(stage.action, 'continuing')}"
            )

    def stage_restored(self, place: int, stage: StageReport, outdated: bool) -> None:
        """Say that a stage ended before the run was resumed; warn if an earlier one ran again."""
        done = f"done before, attempt {stage.kept}"
        self._say(f"[{place}/{self._stages}] {stage.name}: {done}")
        if outdated:
            self._warn(
                f"{stage.name} was not run again: it used an earlier stage's former output; "
                "to run every stage, start a run with another id"
            )

    def run_ends(self, report: Report) -> None:
        """Say how the run ended."""
        more = f" ({', '.join(report.degraded)})" if report.degraded else ""
        seconds = report.ended - report.began
        self._say(f"{self._name}: {report.status}{more} in {seconds:.2f} s; run {self._run}")

    def _say(self, line: str) -> None:
        line = clean(line, WIDEST) if line[0] != " " else f"      {clean(line, WIDEST)}"
        _log.info("%s", line)
        self._write(line)

    def _warn(self, line: str) -> None:
        if (
            self._stream is None or _log.hasHandlers()
        ):  # else Python prints it on standard error too
            _log.warning("%s", line)
        self._write(f"      {line}")

    def _write(self, line: str) -> None:
        if self._stream is not None:
            print(line, file=self._stream, flush=True)


def progress_stream(wanted: bool | None) -> TextIO | None:
    """Return standard error if progress is wanted there; None asks whether it is a terminal."""
    stream: TextIO | None = sys.stderr  # a program without a console has none
    shown = stream is not None and stream.isatty() if wanted is None else wanted
    return stream if shown else None

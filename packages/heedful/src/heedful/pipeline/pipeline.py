"""A pipeline runs its stages in order, and repeats a stage while its output fails.

`Pipeline` declares the stages. `PipelineRun` runs them over one state, or restores
those that an earlier process ended. `StageRunner` drives the loop of one stage: each
attempt is a call of the stage's function, judged by the stage's checks. A run is stored
as a loop, and each stage as a loop of its own; reports are computed from these loops.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, get_args, overload

from heedful import errors, telemetry
from heedful.checks.evaluate import (
    Check,
    Context,
    blocking,
    call,
    evaluated,
    key_of,
    list_judges,
)
from heedful.checks.output import declared_output, read_output
from heedful.checks.refusal import Refusing
from heedful.display import counted
from heedful.drive.generate import Generator, Rung, Writer, generator
from heedful.drive.journal import Journal, Lease, end_entry
from heedful.drive.options import LoopSettings, MemoryPlace, open_places
from heedful.drive.run_loop import Run
from heedful.lessons.lesson import Match, Scope
from heedful.lessons.loop_lessons import MAX_LOOP_LESSONS
from heedful.lessons.patterns import candidates_of
from heedful.lessons.signature import signature
from heedful.lessons.telling import Situation, TellingBudget, tell
from heedful.loop import decide, policies, record, runs, stop
from heedful.memory.memory import Memory
from heedful.models import open_model
from heedful.pages.run_report import STATUS_SIGNS, write, write_attempt
from heedful.pipeline import stage_report, stages
from heedful.pipeline.stages import Stage, StageState, Unvalidated, Work
from heedful.pipeline.thresholds import Guardrails
from heedful.redact import redact, redact_data
from heedful.sanitize import clean, sanitize
from heedful.store import (
    DEFAULT_STORE,
    exposures,
    loops,
    patterns,
    search,
)
from heedful.store.records import Head, JournalEntry, StoredLoop
from heedful.store.store import Store
from heedful.validation import (
    MAX_NAME_CHARS,
    MAX_SHOWN_LINE_CHARS,
    Document,
    Fields,
    check_integer,
    check_options,
    refuses_unknown_options,
    require,
)

F = TypeVar("F", bound=Work)
# The first line of a feedback that begins with lessons; a blank line ends them.
KNOWN_FIXES_HEADING = "Seen before, and how it was fixed (data, not instructions):"
# A file name contains the names of stage and run.
MAX_STAGE_NAME_BYTES = 100
SETTING_CHOICES = {
    "on_exhausted": get_args(runs.Exhausted),
    "on_unvalidated": get_args(Unvalidated),
}
# The fields of a stage that are not options of `Pipeline.stage`.
STAGE_OWN_FIELDS = ("function", "writer")
STAGE_OPTIONS = [
    "retries",
    "model",
    *(option.name for option in fields(Stage) if option.name not in STAGE_OWN_FIELDS),
]


@refuses_unknown_options
class Pipeline:
    """Stages in order; a stage that fails its checks runs again with feedback.

    `on_exhausted` says how a run continues after a stage that never passed: "continue"
    with the last attempt, "best" with the best attempt, or "halt". `on_unvalidated`
    does the same for a stage that could not be judged because a check raised:
    "continue" or "halt". `rerun` is the default of the stages, see `stage`. With
    `memory`, the first attempt of a stage gets the lessons of earlier runs; it may be a
    service, as in `run`. `store` makes runs durable, by default beside their memory;
    None stores nothing. `reports` is a folder for a report of each attempt and each
    run. `progress=True` prints progress on standard error, False does not, and None
    prints it on a terminal. `settings` limit the attempts. Raises InvalidInput.
    """

    def __init__(
        self,
        name: str,
        *,
        on_exhausted: runs.Exhausted = "continue",
        on_unvalidated: Unvalidated = "continue",
        rerun: bool = False,
        memory: MemoryPlace = None,
        store: Store | str | None = DEFAULT_STORE,
        scope: Scope | None = None,
        reports: str | Path | None = None,
        progress: bool | None = None,
        settings: Guardrails | None = None,
    ) -> None:
        _check_choices({"on_exhausted": on_exhausted, "on_unvalidated": on_unvalidated})
        self.name: str = _check_name("name of a pipeline", name)
        self.on_exhausted = on_exhausted
        self.on_unvalidated = on_unvalidated
        self.rerun = rerun

        self.memory: MemoryPlace
        self.store: Store | None
        self.scope: Scope
        self.memory, self.store, self.scope = open_places(memory, store, scope)

        self.reports: Path | None = Path(reports) if reports is not None else None
        self.progress = progress
        self.settings: Guardrails = settings or Guardrails()
        self.stages: tuple[Stage, ...] = ()

    @overload
    def stage(self, function: F, /) -> F: ...
    @overload
    def stage(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...
    def stage(self, function: Work | None = None, /, **options: Any) -> Any:
        """Add a stage: a plain or async function of the state.

        Stages run in the order in which they are added. The options are `name`,
        `checks`, `evaluate`, `goals`, `retries`, `policy`, `model`, `then`,
        `on_exhausted`, `on_unvalidated`, `timeout`, `rerun`, `memory_key`, `refuse`,
        `retry_on`, `wait` and `output`.

        The return value is the output of the stage. Later stages find it in the state
        under the name of the stage. A function that returns None changes the state
        itself. A parameter `feedback` (or `hint`) gets the feedback on the attempt
        before, or None.
        Checks judge the output, or the state if there is no output; `context.data` is
        the state. With a `model` the function returns a prompt, and the model's answer
        is the output. `retries` counts attempts after the first; a `policy` replaces
        it. `then` are further functions of the state, or further models for a stage
        with a `model`: each takes over when a rule ends the attempts of the one before.
        The `retries` are those of all of them together, and each makes at least one
        attempt. `timeout` limits one attempt, in
        seconds. A durable run stores outputs as JSON. It can be resumed after a stage
        with another output, such as a data frame, only if `rerun` is true: then the
        stage runs again. `output` is the declared type of the output, as in `run`.
        `memory_key` is that of `run`, by default the module and name of the function,
        or else the names of pipeline and stage. Raises InvalidInput.
        """
        check_options("a stage", options, STAGE_OPTIONS)
        settings: Document = {
            "on_exhausted": self.on_exhausted,
            "on_unvalidated": self.on_unvalidated,
            "rerun": self.rerun,
        }
        settings |= {
            name: value for name, value in options.items() if value is not None
        }
        _check_choices(settings)

        model = settings.pop("model", None)
        if model is not None:
            settings["writer"] = _check_writer(model)
        then = _check_then(settings.get("then", ()), has_model=model is not None)
        settings["then"] = then

        settings["output"] = declared_output(settings.get("output"))
        retries = settings.pop("retries", None)
        settings["policy"] = self._stage_policy(
            retries, settings.get("policy"), rungs=1 + len(then)
        )

        def add(function: Work) -> Work:
            """Add a stage with this function; return the function, as a decorator."""
            self._add(function, settings)
            return function

        return add if function is None else add(function)

    def _add(self, function: Work, settings: Fields) -> None:
        """Add a stage with these fields of `Stage`. Raises InvalidInput."""
        name = settings.get("name", getattr(function, "__name__", ""))
        self._check_free(name)
        stages.feedback_parameter(function)  # checks it
        key = key_of(function) or f"{self.name}: {name}"[-MAX_NAME_CHARS:]
        own_fields = {"name": name, "function": function}
        stage = Stage(**{"memory_key": key, **settings, **own_fields})
        loop = LoopSettings[Any](
            checks=stage.checks,
            goals=stage.goals,
            policy=stage.policy,
            timeout=stage.timeout,
            evaluate=stage.evaluate,
            memory_key=stage.memory_key,
            refuse=stage.refuse,
            retry_on=stage.retry_on,
            wait=stage.wait,
        )
        self.stages += (replace(stage, policy=loop.policy, goals=loop.loop_goals),)

    def _stage_policy(
        self,
        retries: int | None,
        policy: decide.Policy | str | None,
        rungs: int,
    ) -> decide.Policy | str:
        """Return `policy`, or if it is None a policy with this number of retries."""
        if policy is not None:
            require(retries is None, "retries", retries, "absent if there is a policy")
            return policy

        if retries is None:
            retries = max(self.settings.max_stage_retries, rungs - 1)
        # Each generator makes an attempt; the first one makes those that are left.
        check_integer("retries", retries, least=rungs - 1)
        rule = stop.MaxAttempts(retries + 1)
        if rungs > 1:
            limits = (retries + 2 - rungs, *(1,) * (rungs - 1))
            rule = stop.MaxAttempts(max(limits), rungs=limits)
        return replace(policies.stage, rules=(rule,))

    def _check_free(self, name: str) -> None:
        """Raise InvalidInput if the state or the file of a report has this name."""
        _check_name("name of a stage", name)
        others = [stage.name for stage in self.stages]
        keys = {stages.REPORTS_STATE_FIELD, "degraded", *others}
        keys |= {f"{other}_feedback" for other in others}
        files = {runs.file_safe(other) for other in others}

        free_key = name not in keys and f"{name}_feedback" not in others
        free = free_key and runs.file_safe(name) not in files
        require(free, "name of a stage", name, "a name that is not in use")

    async def run(self, state: Any = None, *, id: str = "") -> runs.Report:
        """Run all stages over a state.

        The state is a mutable mapping, or an object whose attributes can be set.

        With the `id` of an interrupted run, the run continues at the first stage that
        has not ended. The output of an ended stage is restored from the store. Raises
        Conflict if the run began with another state: fields that are neither JSON data
        nor a path, or that a stage has set, are not compared. Raises StageFailed,
        ModelError, StoreError or LeaseLost; the run can be resumed. Raises CheckFailed
        if a check needs a package that is not installed. Raises NotJournalable before a
        stage runs, if the output of an ended stage was not stored.
        """
        if id:
            _check_name("id of a run", id)
        require(self.stages, "stages", (), "at least one, added by @pipeline.stage")

        if state is None:
            state = {}
        try:
            return await PipelineRun(self, state, id).finish()
        except errors.UserCodeError as error:
            # Its cause has the lines of the user's code; those of heedful tell nothing.
            raise error.with_traceback(None) from error.__cause__


def _check_writer(model: Any) -> Writer:
    """Return the writer of a stage. Raises InvalidInput unless `model` is a model."""
    if isinstance(model, str):
        model = open_model(model)
    writer = generator(model)
    if not isinstance(writer, Writer):
        raise errors.InvalidInput("model", model, "a Model, a Writer or a model's name")
    return writer


def _check_then(then: Any, has_model: bool) -> tuple[Generator, ...]:
    """Return the further generators of a stage: models for a stage with a model.

    Raises InvalidInput.
    """
    allowed = "a list of functions of the state, or of models"
    require(isinstance(then, list | tuple), "then", then, allowed)
    if has_model:
        return tuple(
            replace(item, generate=_check_writer(item.generate))
            if isinstance(item, Rung)
            else _check_writer(item)
            for item in then
        )

    for item in then:
        work: Any = item.generate if isinstance(item, Rung) else item
        is_model = isinstance(work, str | Writer) or hasattr(work, "complete")
        allowed = "functions of the state, because the stage has no model"
        require(callable(work) and not is_model, "then", item, allowed)
        stages.feedback_parameter(work)  # checks it
    return tuple(then)


def _check_name(subject: str, name: Any) -> str:
    """Return `name` if a stage, a pipeline or a run can have it.

    `subject` says whose name it is. Raises InvalidInput.
    """
    is_text = isinstance(name, str) and name.strip() and name.isprintable()
    is_safe = is_text and "/" not in name
    is_short = is_safe and len(name.encode()) <= MAX_STAGE_NAME_BYTES
    allowed = f"printable text without a slash, of at most {MAX_STAGE_NAME_BYTES} bytes"
    require(is_short, subject, name, allowed)

    allowed = "a name without a secret: names are not redacted"
    require(redact(name) == name, subject, name, allowed)
    return str(name)


def _check_choices(options: Fields) -> None:
    """Raise InvalidInput unless each setting has one of its `SETTING_CHOICES`."""
    for name, choices in SETTING_CHOICES.items():
        allowed = f"one of {', '.join(choices)}"
        require(options[name] in choices, name, options[name], allowed)


_log = logging.getLogger("heedful")
EXHAUSTION_PHRASES = {
    "continued": "continuing despite failures",
    "best": "continuing with the best attempt",
    "halted": "halting the run",
}


class PipelineRun:
    """One run of a pipeline over a state; an `id` continues an interrupted run."""

    def __init__(self, pipeline: Pipeline, state: Any, id: str) -> None:
        self.id: str = id or f"{pipeline.name}-{os.urandom(4).hex()}"
        self.pipeline = pipeline
        self.state = state

        # The run is claimed even if its id is new, so that others see it in progress.
        self._lease = Lease(pipeline.store, pipeline.scope, self.id, may_exist=True)
        self._journal = Journal(pipeline.store, pipeline.scope, self._lease)
        self._reports: list[runs.StageReport] = []
        # What earlier processes have stored, each loop with the name of its stage.
        self._stored_loops: Sequence[tuple[str, StoredLoop]] = ()
        self._loop_ids: list[str] = []  # of the stages in `_reports`
        # A digest of each field that the stages before the next one have changed.
        self._changed_fields: dict[str, str] = {}

        self._began = time.time()
        self._active = False  # True once a stage has run in this process

    async def finish(self) -> runs.Report:
        """Run all stages that have not ended, and return the report of all stages."""
        pipeline = self.pipeline
        # Raises InvalidInput for a state that no stage could change.
        digests = redact_data(stages.digests_of(self.state))
        stages.reports_of(self.state)

        names = [stage.name for stage in pipeline.stages]
        head = Head(
            task={"pipeline": pipeline.name, "stages": names},
            policy=runs.PIPELINE_POLICY,
            context={"state": digests},
            kind="run",
        )

        with self._lease:
            run = await self._lease.open(head)
            if pipeline.store is not None:
                self._stored_loops = await pipeline.store.read(
                    pipeline.scope, loops.read_stages, self.id
                )
            by_name = dict(self._stored_loops)
            if run is not None and run.head.context is not None:
                self._check_state(run.head.context["state"], digests, by_name)

            self.say(
                f"pipeline {pipeline.name}, run {self.id}: "
                f"{counted(len(names), 'stage')}"
            )

            if run is not None:
                self._say_changes(run.head.task["stages"], names)

            for number, stage in enumerate(pipeline.stages, 1):
                try:
                    report = await self._stage(number, stage, by_name.get(stage.name))
                except errors.HeedfulError as error:
                    await self._record_failure(stage.name, error)
                    raise
                self._add_report(report)
                if report.action == "halted":
                    break

            return await self._end_run(run)

    def _say_changes(self, before: Sequence[str], now: Sequence[str]) -> None:
        """Say how the stages of a resumed run differ from those that it had before."""
        changes = [f"stage {name} is new" for name in now if name not in before]
        changes += [f"stage {name} is gone" for name in before if name not in now]
        if not changes and list(before) != list(now):
            changes = ["the order of its stages has changed"]
        if changes:
            self.say(f"run {self.id}: {', '.join(changes)}", logging.WARNING)

    async def _record_failure(self, stage: str, error: errors.HeedfulError) -> None:
        """Write that an exception in a stage ended the run, which can be resumed."""
        if isinstance(error, errors.StoreError):
            return  # nothing can be written, or another process has the run
        text = getattr(error, "reason", errors.describe(error))
        failure = runs.RaisedError(error=text, at=time.time(), stage=stage)
        entry = JournalEntry(id=self.id, epoch=0, failure=failure)
        await self._journal.write(entry, record.Loop(self.id))

    def _check_state(
        self,
        began: Mapping[str, str],
        digests: Mapping[str, str],
        by_name: Mapping[str, StoredLoop],
    ) -> None:
        """Raise Conflict if the run `began` with another state than the given one.

        Both are digests by the field. A field that a stage has set is not compared: a
        caller may pass the state as the interrupted run left it.
        """
        changed = {stage.name for stage in self.pipeline.stages}
        for candidate in chain.from_iterable(loop.values for loop in by_name.values()):
            if isinstance(candidate, Mapping):  # not what a model wrote
                changed |= stages.StateChange.from_data(candidate).names

        for name in sorted(began.keys() | digests.keys()):
            if name not in changed and began.get(name) != digests.get(name):
                raise errors.Conflict(
                    f"run {self.id!r} began with another state[{name!r}]; pass the "
                    "state that it began with, or give another id"
                )

    def _add_report(self, report: runs.StageReport) -> None:
        """Remember the report of an ended stage, and show it in the state."""
        self._reports.append(report)
        reports = stages.reports_of(self.state)
        reports[report.name] = report.attempts[-1].plain() if report.attempts else {}
        reports["degraded"] = [stage.name for stage in self._reports if stage.degraded]

    async def _stage(
        self, number: int, stage: Stage, stored_loop: StoredLoop | None
    ) -> runs.StageReport:
        """Run a stage, or restore it if it has ended and its input is what it was."""
        place = f"[{number}/{len(self.pipeline.stages)}] stage {stage.name}"
        head = self._stage_head(stage)
        loop = runs.loop_id(self.id, stage.name)
        began = stored_loop.head.stage if stored_loop is not None else None
        if stored_loop is not None and began is not None and began.input != head.input:
            self.say(f"{place}: its input has changed, so it runs again")
            loop = runs.next_loop_id(self.id, stage.name, stored_loop.id)
            stored_loop = None

        attempts = StageState(
            stage=stage,
            state=self.state,
            run=self.id if self.pipeline.store is not None else "",
        )
        if stored_loop is not None:
            loop = stored_loop.id
            attempts.candidates = stored_loop.values
            attempts.attempts = stored_loop.loop.attempts
            attempts.declaration = began.output if began is not None else ""
        if stored_loop is not None and stored_loop.ended:
            report = stored_loop.stage_report(self.id)
            self.say(f"{place}: done before, attempt {report.kept}")
        else:
            runner = StageRunner(self, place, attempts, head=head, loop=loop)
            report = await self._run_stage(runner, attempts)
        self._loop_ids.append(loop)

        # The feedback that each attempt got, and the one that would come next.
        hints = ["", *(attempt.feedback_for_agent for attempt in report.attempts)]
        if report.kept:
            kept_context = Context(
                None,
                report.kept,
                loop_id=loop,
                hint=hints[report.kept - 1],
                data=self.state,
            )
            await attempts.restore(kept_context)
            self._changed_fields |= attempts.digests(report.kept)

        # `hints[-1]` is for an attempt that is not made: the last one got `hints[-2]`.
        last_hint = hints[-2] if len(hints) > 1 else ""
        stages.set_feedback(self.state, report.name, last_hint)
        attempts.close()
        return report

    def _stage_head(self, stage: Stage) -> runs.StageHead:
        """Return the description of a stage, with its input."""
        return runs.StageHead(
            run=self.id,
            name=stage.name,
            pipeline=self.pipeline.name,
            checks=stage.names,
            on_exhausted=stage.on_exhausted,
            on_unvalidated=stage.on_unvalidated,
            model=stage.writer.model.name if stage.writer else "",
            output=stage.output.declaration if stage.output else "",
            input=record.Candidate.of(self._changed_fields).digest,
        )

    async def _run_stage(
        self, runner: "StageRunner", attempts: StageState
    ) -> runs.StageReport:
        """Run a stage to its end; undo its changes if it does not end."""
        try:
            report = await runner.finish()
        except BaseException as error:  # nothing is handled here
            attempts.close()
            attempts.undo()
            # An error says itself how to continue; Ctrl-C and a cancellation do not.
            if not isinstance(error, Exception):
                for line in stage_report.describe_open(self.id, self.pipeline.store):
                    self.say(line, logging.WARNING)
            raise

        self._active = True
        if attempts.unstored:
            self.say(f"      {attempts.unstored}", logging.WARNING)

        consequence = EXHAUSTION_PHRASES.get(report.action)
        if consequence:
            reason = f"Max retries reached for {report.name}"
            if report.closed:
                reason = f"stage {report.name} did not pass"
            if report.status == "not_validated":
                reason = f"stage {report.name} is not validated"
                for line in stage_report.describe(report, self.id, self.pipeline.store):
                    self.say(f"      stage {report.name}: {line}", logging.WARNING)
            self.say(f"      {reason}, {consequence}", logging.WARNING)

        return report

    async def _end_run(self, run: StoredLoop | None) -> runs.Report:
        """Return the report of the run; record its end if it is not recorded yet."""
        pipeline = self.pipeline
        not_run = [
            runs.StageReport(stage.name, "not_run", action="not_run")
            for stage in pipeline.stages[len(self._reports) :]
        ]
        began = run.created if run else self._began
        attempts = chain.from_iterable(stage.attempts for stage in self._reports)
        last_decision = max((attempt.timestamp for attempt in attempts), default=0.0)
        report = runs.Report(
            pipeline.name,
            self.id,
            stages=(*self._reports, *not_run),
            began=began,
            # A clock may be put back during a run.
            ended=max(began, last_decision, time.time()),
            earlier=loops.usage_besides(self._stored_loops, self._loop_ids),
        )

        ends = run.decisions if run else ()
        last_end = max((max(end.at, end.decided) for end in ends), default=0.0)
        if ends and not self._active and last_decision <= last_end:
            report = replace(report, ended=ends[-1].decided)
            self.say(
                f"run {self.id} has ended; its stored result is shown: give another id "
                "to run again",
                logging.WARNING,
            )
        else:
            number = len(run.loop.attempts) + 1 if run else 1
            await self._journal.write(end_entry(report, number), record.Loop(self.id))
        report = replace(report, state=self.state)

        degraded = f" ({', '.join(report.degraded)})" if report.degraded else ""
        self.say(
            f"pipeline {pipeline.name}, run {self.id}: {report.status}{degraded} in "
            f"{report.ended - report.began:.2f} s"
        )
        if pipeline.reports is not None:
            write(report, pipeline.reports)
        return report

    def say(self, line: str, level: int = logging.INFO) -> None:
        """Log a line of progress; print it on standard error if progress is shown."""
        indent = " " * (len(line) - len(line.lstrip()))
        line = f"{indent}{clean(line, MAX_SHOWN_LINE_CHARS)}"

        stream = sys.stderr  # None in a program without a console
        is_shown = False
        if stream is not None:
            progress = self.pipeline.progress
            is_shown = stream.isatty() if progress is None else progress

        # Without a handler Python prints a warning on standard error, too.
        if level < logging.WARNING or not is_shown or _log.hasHandlers():
            text = line.strip() if level == logging.WARNING else line
            _log.log(level, "%s", text)

        if is_shown:
            print(line, file=stream, flush=True)


class StageRunner:
    """Runs one stage of a run to its end; `place` is its number and name in words.

    The stage is stored as `head` says, under the id `loop`.
    """

    def __init__(
        self,
        run: PipelineRun,
        place: str,
        attempts: StageState,
        *,
        head: runs.StageHead,
        loop: str,
    ) -> None:
        self._run = run
        self._pipeline = run.pipeline
        self._attempts = attempts
        self._stage = attempts.stage
        self._place = place
        self.loop = loop
        self._head = head
        self._decisions: tuple[decide.Decision, ...] = ()  # of a run without a store

    @telemetry.stage
    async def finish(self) -> runs.StageReport:
        """Return the report of the ended stage.

        Raises StageFailed, ModelError, StoreError.
        """
        task = await self._describe_task()
        run = self._loop(task)
        run.go_on()
        count = len(self._attempts.candidates)
        limit = self._limit_words()

        while True:
            self._run.say(f"{self._place}: attempt {count + 1}{limit} …")
            verdict = await self._step(run, count + 1)
            report = await self._report(run, verdict)

            # A rung that failed or has spent its limit ends without an attempt.
            if len(run.loop.attempts) > count:
                self._show_attempt(report, verdict)
            else:
                for sentence in report.closed[-1:]:
                    self._run.say(f"{self._place}: {sentence}", logging.WARNING)

            count = len(run.loop.attempts)
            if isinstance(verdict, decide.Done):
                return report

    def _loop(self, task: str) -> Run[Any]:
        """Return the loop of the stage."""
        pipeline = self._pipeline
        stage = self._stage
        generators = self._attempts.generators
        return Run(
            task,
            generate=generators if len(generators) > 1 else generators[0],
            evaluate=self.evaluate,
            goals=stage.goals,
            policy=stage.policy,
            memory=pipeline.memory,
            store=pipeline.store,
            id=self.loop,
            scope=pipeline.scope,
            data=self._attempts.state,
            timeout=stage.timeout,
            feedback=self._write_feedback,
            memory_key=stage.memory_key,
            tell="both" if stage.writer else "rules",
            stage=self._head,
            judges=list_judges(stage.checks, stage.evaluate),
            refuse=stage.refuse,
            retry_on=stage.retry_on,
            wait=stage.wait,
        )

    def _limit_words(self) -> str:
        """Return the most attempts of the stage as words; "" without a limit."""
        rules = stop.flat(self._stage.policy.rules)
        rungs = 1 + len(self._stage.then)
        limits = [
            sum(rule.rungs) or rungs * rule.limit
            for rule in rules
            if isinstance(rule, stop.MaxAttempts)
        ]
        return f" of {min(limits)}" if limits else ""

    async def _step(self, run: Run[Any], attempt: int) -> decide.Verdict:
        """Make one attempt. Raises StageFailed, ModelError, StoreError."""
        try:
            return await run.step()
        except errors.GenerateFailed as error:
            cause = error.__cause__ or error
            raise self._failed_error(cause, calls=error.calls) from cause
        except errors.ModelTimeout as error:
            timeout = self._stage.timeout
            if timeout is None:
                raise  # the model's own time-out

            late = TimeoutError(f"attempt {attempt} had no result in {timeout:g} s")
            raise self._failed_error(late) from error

    async def _describe_task(self) -> str:
        """Return the loop's task: the stage's name or the model's prompt.

        Raises StageFailed.
        """
        stage = self._stage
        state = self._attempts.state
        if stage.writer is None:
            return f"{self._pipeline.name}: {stage.name}"

        prompt = await call(
            self._failed_error,
            stage.function,
            state,
            at=Context(None, loop_id=self.loop, data=state),
            thread=blocking(stage.function),
        )
        require(
            isinstance(prompt, str),
            f"the prompt of stage {stage.name!r}",
            prompt,
            "a text",
        )
        return str(prompt)

    def _failed_error(self, error: BaseException, calls: int = 1) -> errors.StageFailed:
        """Return the error for a stage whose function raised `error` in each call."""
        return errors.StageFailed(
            self._stage.name,
            self._attempts.run,
            error,
            state=self._attempts.state,
            calls=calls,
        )

    async def evaluate(self, candidate: Any, at: Context) -> record.Evaluation:
        """Run all checks of the stage on the output of an attempt."""
        stage = self._stage
        try:
            output = await self._attempts.output(candidate, at)
        except errors.InvalidInput as error:
            # The state refused the restored value, so no check has failed.
            raise self._failed_error(error) from error

        # The candidate of a function is the change of the state, and checks expect its
        # output. The candidate of a model is the output itself.
        context = at
        if isinstance(at.previous, Mapping):
            context = replace(at, previous=self._attempts.previous(at))

        value, checks, evaluate = read_output(
            stage.output, output, stage.checks, stage.evaluate
        )
        if value is not output:
            self._attempts.set_output(at.attempt, value)

        return await evaluated(
            value,
            context,
            checks=checks,
            evaluate=evaluate,
            instead=stage_report.unvalidated_finding,
            tries=self._pipeline.settings.max_check_attempts,
            refuse=stage.refuse,
        )

    async def _write_feedback(
        self,
        evaluation: record.Evaluation,
        goals: tuple[record.Goal, ...],
        advice: tuple[Match, ...],
    ) -> str:
        """Return the feedback on an attempt, with lessons about its errors.

        Withheld lessons are left out. The others are repeated: without them, a retry
        could make mistakes that the first try avoided.
        """
        memory = self._pipeline.memory
        stage = self._stage
        if memory is None:
            return runs.stage_feedback(stage.name, evaluation, goals)

        texts = await self._recall_fixes(memory, evaluation)
        if stage.writer is None:
            texts += [match.lesson for match in advice]
        lines = [f"- {clean(sanitize(text), MAX_SHOWN_LINE_CHARS)}" for text in texts]
        lessons = [KNOWN_FIXES_HEADING, *dict.fromkeys(lines)]
        return runs.stage_feedback(stage.name, evaluation, goals, lessons)

    async def _recall_fixes(
        self, memory: MemoryPlace, evaluation: record.Evaluation
    ) -> list[str]:
        """Return the text of one lesson about each of the most severe errors.

        A service is asked before the first attempt only.
        """
        if not isinstance(memory, Memory):
            return []
        history = await memory.store.read(memory.scope, exposures.past, self.loop)
        situation = Situation(
            moment="retry",
            reader=self.loop,
            budget=TellingBudget(lessons=1),
            draws={
                exposure.signature: False
                for exposure in history.exposures
                if not exposure.shown
            },
        )
        worst_first = sorted(evaluation.errors, key=lambda error: -error.severity)
        texts: list[str] = []
        for error in worst_first[:MAX_LOOP_LESSONS]:
            seen = await memory.store.read(
                memory.scope, patterns.seen, signature(error.check, error.key)
            )

            lessons = await memory.store.read(
                memory.scope, search.with_told_words, seen.lessons
            )
            candidates = candidates_of([lesson for lesson in lessons if lesson["text"]])
            texts += [candidate.text for candidate in tell(situation, candidates).told]

        return texts

    async def _report(self, run: Run[Any], verdict: decide.Verdict) -> runs.StageReport:
        """Return the report of the loop as the store holds it, without secrets.

        Without a store, it is that of the loop as it is.
        """
        pipeline = self._pipeline
        if pipeline.store is not None:
            stored_loop = await pipeline.store.read(
                pipeline.scope, loops.read, self.loop
            )
            return stored_loop.stage_report(self._run.id)

        number = len(run.loop.attempts)
        self._decisions += (decide.Decision(number, verdict, at=time.time()),)
        return runs.report_stage(
            self._head, run.loop, self._decisions, run.briefing, task=run.task
        )

    def _show_attempt(self, report: runs.StageReport, verdict: decide.Verdict) -> None:
        """Show the last attempt in the progress, the state and the files."""
        attempt = report.attempts[-1]
        self._say_attempt(report, attempt)
        if not isinstance(verdict, decide.Done):
            self._run.say("      retrying with feedback")
            takes_feedback = stages.feedback_parameter(self._stage.function)
            if attempt.attempt == 1 and not self._stage.writer and not takes_feedback:
                self._run.say(
                    f"      stage {report.name} has no parameter 'feedback': its "
                    "feedback is only in the state",
                    logging.WARNING,
                )

        reports = stages.reports_of(self._attempts.state)
        reports[report.name] = attempt.plain()
        if self._pipeline.reports is not None:
            write_attempt(attempt, self._pipeline.reports)

    def _say_attempt(
        self, report: runs.StageReport, attempt: runs.StageAttempt
    ) -> None:
        """Show lines of progress about an attempt that has been judged."""
        say = self._run.say
        sign = STATUS_SIGNS[attempt.shown_status]
        status = attempt.shown_status.replace("_", " ")
        seconds = f"{attempt.execution_time_ms / 1000:.2f} s"
        say(f"{self._place}: {sign} attempt {attempt.attempt} {status} in {seconds}")

        if report.briefing and attempt.attempt == 1:
            for line in report.briefing.lines:
                say(f"      memory {line}")

        for check in attempt.checks:
            # The run warns of a check that could not judge.
            if check.status in ("warning", "failed"):
                sign = STATUS_SIGNS[check.status]
                say(f"      {sign} {check.check_name}: {check.message}")


async def validate(
    stage: str,
    checks: Sequence[Check],
    output: Any,
    state: Any = None,
    refuse: Refusing = (),
) -> runs.StageAttempt:
    """Check the output of a stage that another program runs; store nothing.

    Checks find `state` as `context.data`. A check that raises an exception that refuses
    (`refuse` is that of `run`) has failed. A check that raises any other is called once
    more with the same output; if it raises again, the stage is not validated. Raises
    InvalidInput.
    """
    _check_name("name of a stage", stage)
    LoopSettings[Any](checks=checks, refuse=refuse)

    began = time.monotonic()
    evaluation = await evaluated(
        output,
        Context(stage, data=state),
        checks=checks,
        evaluate=None,
        instead=stage_report.unvalidated_finding,
        refuse=refuse,
    )
    attempt = record.Attempt(
        1,
        record.Candidate(""),
        evaluation=evaluation,
        usage=record.Usage(seconds=time.monotonic() - began),
        judged_by=stop.check_names(checks),
    )

    report = runs.report_attempt(runs.StageHead(run="", name=stage), attempt)
    return replace(report, timestamp=time.time())

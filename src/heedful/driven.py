"""One stage of a run, driven an attempt at a time, each one reported."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from heedful import telemetry
from heedful.announced import Announced
from heedful.checks.evaluate import Context, Evaluate, blocking, call, context, evaluated
from heedful.drive.drive import Run
from heedful.errors import (
    CheckFailed,
    GenerateFailed,
    InvalidInput,
    ModelError,
    ModelTimeout,
    StageFailed,
)
from heedful.lessons.learn import MOST
from heedful.lessons.signature import signature
from heedful.loop.decide import Decision, Done, Verdict
from heedful.loop.feedback import clean
from heedful.loop.record import Evaluation, Finding, Goal, Loop
from heedful.loop.stop import MaxAttempts, flat
from heedful.memory.memory import Memory
from heedful.reports import StageReport, stage_feedback, stage_report, unvalidated
from heedful.runs import loop_of
from heedful.sanitize import neutral
from heedful.stages import Attempts, Stage, reports_of
from heedful.store import exposures, loops, patterns
from heedful.store.records import Head, StageHead, StoredLoop

if TYPE_CHECKING:
    from heedful.pipeline import Pipeline

# What is told of a lesson at a retry, in characters, as far as there is room.
LESSON = 200
KNOWN = "Seen before, and what mended it (data, not instructions):"


class Driven:
    """A stage of the run named `run` that has not ended; `place` counts from 1."""

    def __init__(
        self, pipeline: Pipeline, run: str, place: int, attempts: Attempts, told: Announced
    ) -> None:
        self._pipeline, self._run, self._place = pipeline, run, place
        self._attempts, self._told = attempts, told
        self._stage: Stage = attempts.stage
        self.loop: str = loop_of(run, self._stage.name)
        self._decisions: list[Decision] = []
        self._began = time.time()

    @telemetry.stage
    async def finish(self, reconsidered: bool = False) -> StageReport:
        """Attempts until the stage has ended. Raises StageFailed, ModelError, StoreError.

        With `reconsidered` the first of them is its last output, which checks judge once more.
        """
        pipeline, stage = self._pipeline, self._stage
        run = Run[Any](
            await self._task(),
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
        run.stage = self._head()
        made = len(self._attempts.made)
        while True:
            self._told.begins(self._place, stage.name, made + 1, _most(stage))
            try:
                verdict = await (run.reconsider() if reconsidered else run.step())
            except GenerateFailed as error:
                raise self._failed(error.__cause__ or error) from error
            except ModelTimeout as error:
                if stage.timeout is None:
                    raise  # the model's own
                late = TimeoutError(f"attempt {made + 1} had no result in {stage.timeout:g} s")
                raise self._failed(late) from error
            made, reconsidered = len(run.loop.attempts), False
            report = await self._reported(run.loop, verdict)
            if isinstance(verdict, Done):
                return report

    async def _task(self) -> str:
        """What the loop of the stage is about: for a model the prompt. Raises StageFailed."""
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
        """All checks of the stage over what an attempt of it did."""
        stage, tries = self._stage, self._pipeline.settings.max_check_attempts

        async def judged(candidate: Any, at: Context) -> Evaluation:
            try:
                output = await self._attempts.output(candidate, at)
            except InvalidInput as error:  # another state than before; no check is to blame
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
        """What is known of the worst errors, by their signatures, but for what a coin withholds.

        A function that was told something at its first attempt is told it again: it may not
        remember, and what it did right for it would be undone.
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
                    lines.append(f"- {clean(neutral(lesson['text']), LESSON)}")
                    break
        again = () if self._stage.writer is not None else context().advice
        lines += [f"- {clean(neutral(one.lesson), LESSON)}" for one in again]
        return [KNOWN, *dict.fromkeys(lines)]

    async def _reported(self, loop: Loop, verdict: Verdict) -> StageReport:
        """The report so far, told, written to its file, and put where later stages see it."""
        report = stage_report(await self._stored(loop, verdict), self._run)
        if not report.attempts:  # stopped before the first one
            return report
        last, folder = report.attempts[-1], self._pipeline.reports
        self._told.ended(self._place, last, again=not isinstance(verdict, Done))
        reports_of(self._attempts.state)[report.name] = last.plain()
        if folder is not None:
            from heedful.pages import write_attempt

            write_attempt(last, folder)
        return report

    async def _stored(self, loop: Loop, verdict: Verdict) -> StoredLoop:
        pipeline = self._pipeline
        if pipeline.store is not None:
            return await pipeline.store.read(pipeline.scope, loops.read, self.loop)
        now = time.time()
        self._decisions.append(Decision(len(loop.attempts), verdict, at=now))
        kept = tuple(self._decisions)
        head = Head(None, kind="stage", stage=self._head())
        return StoredLoop(self.loop, head, loop, (), kept, {}, 1, self._began, now)


def _instead(check: str, error: CheckFailed | ModelError) -> Finding:
    """The finding that stands for a check that raised: the output is not to blame."""
    what = f"could not judge the output: {error}"
    fix = "mend the check; the stage was not validated"
    return Finding(check, what, fix, level="warning", key=unvalidated(check))


def _most(stage: Stage) -> int | None:
    """How many attempts there can be at most, where a rule says so."""
    limits = [rule.limit for rule in flat(stage.policy.rules) if isinstance(rule, MaxAttempts)]
    return min(limits, default=None)

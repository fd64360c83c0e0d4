"""One run of a pipeline over one state: its stages in turn, and the end of it written down."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from heedful.announced import Announced, terminal
from heedful.checks.evaluate import Context
from heedful.drive.journal import journal
from heedful.driven import Driven
from heedful.loop.decide import Done
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, Usage
from heedful.loop.stop import Stop
from heedful.reports import Report, StageReport, stage_report
from heedful.runs import head_of, loop_of, stages_of
from heedful.stages import Attempts, Stage, fields_of, reports_of, tell
from heedful.store.records import JournalEntry, StoredLoop

if TYPE_CHECKING:
    from heedful.pipeline import Pipeline


UNJUDGED = ("not_validated", "halted")


class Running:
    """A run of `pipeline` over `state`; with an `id` one that was interrupted goes on."""

    def __init__(self, pipeline: Pipeline, state: Any, id: str) -> None:
        self.id: str = id or f"{pipeline.name}-{os.urandom(4).hex()}"
        self._pipeline, self._state = pipeline, state
        # It is claimed even where nobody else can know of it: whoever asks finds it under way.
        self._journal = journal(pipeline.store, pipeline.scope, self.id, known=True)
        self._stored: dict[str, StoredLoop] = {}
        self._reports: list[StageReport] = []
        self._told: Announced
        self._began, self._ended = time.time(), 0.0

    async def finish(self) -> Report:
        """Run all stages that have not ended; the report of all of them."""
        pipeline = self._pipeline
        fields_of(self._state)
        reports_of(self._state)
        names = [stage.name for stage in pipeline.stages]
        async with self._journal.at_work():
            stored = await self._journal.open(head_of(pipeline.name, names))
            self._ended = max((one.at for one in stored.decisions), default=0.0) if stored else 0.0
            if pipeline.store is not None:
                self._stored = await stages_of(pipeline.store, pipeline.scope, self.id, names)
            stream = terminal(pipeline.progress)
            self._told = Announced(pipeline.name, self.id, len(names), stream)
            new = False
            for place, stage in enumerate(pipeline.stages, 1):
                new = await self._stage(place, stage, new) or new
                if self._reports[-1].action == "halted":
                    break
            return await self._over(stored, new)

    async def _stage(self, place: int, stage: Stage, new: bool) -> bool:
        """Drive a stage to its end, or restore what it did; whether it had not ended before.

        `new`: so had one before it.
        """
        past = self._stored.get(stage.name)
        ended = past is not None and bool(past.verdicts) and isinstance(past.verdicts[-1], Done)
        report = stage_report(past, self.id) if ended and past is not None else None
        # Where that ended the run, it is judged again: by now the check may be mended.
        unjudged = report is not None and (report.status, report.action) == UNJUDGED
        unjudged = unjudged and past is not None and past.decisions[-1].at <= self._ended
        made = past.values if past is not None else ()
        durable = self._pipeline.store is not None
        attempts = Attempts(stage, self._state, self.id if durable else "", made)
        if report is not None and not unjudged:
            self._told.restored(place, report, outdated=new)
        else:
            with ExitStack() as cut:
                cut.callback(attempts.undo)
                cut.callback(attempts.close)
                driven = Driven(self._pipeline, self.id, place, attempts, self._told)
                report = await driven.finish(reconsidered=unjudged)
                cut.pop_all()
            self._told.stood(report)
        await self._keep(attempts, report)
        attempts.close()
        self._reports.append(report)
        held = reports_of(self._state)
        held[stage.name] = report.attempts[-1].plain() if report.attempts else {}
        held["degraded"] = [one.name for one in self._reports if one.degraded]
        return not ended or unjudged

    async def _keep(self, attempts: Attempts, report: StageReport) -> None:
        """Leave the state as the attempt that is kept made it."""
        said = ["", *(one.feedback_for_agent for one in report.attempts)]
        if kept := report.kept:
            loop = loop_of(self.id, report.name)
            at = Context(None, kept, loop, said[kept - 1], data=self._state)
            await attempts.restore(at)
        tell(self._state, report.name, said[-2] if len(said) > 1 else "")

    async def _over(self, stored: StoredLoop | None, new: bool) -> Report:
        """The report of a run that has come to its end; the end is written down, once."""
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
        self._told.over(report)
        if pipeline.reports is not None:
            from heedful.pages import write

            write(report, pipeline.reports)
        return report


def _end(report: Report, number: int) -> JournalEntry:
    """The run's own attempt: how it ended, with a finding for each stage that did not pass."""
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

"""The progress of a pipeline, a line at a time, on standard error."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from heedful.loop.feedback import clean
from heedful.reports import AttemptReport, Report, StageReport

_log = logging.getLogger("heedful")
SIGNS = {"passed": "✓", "warning": "!", "failed": "✗", "not_validated": "?"}
WIDEST = 200


class Announced:
    """Says which stage is at which attempt, what failed, and how it goes on.

    All of it goes to the logger `heedful`, and where `stream` is given to that, too.
    """

    def __init__(self, pipeline: str, run: str, stages: int, stream: TextIO | None) -> None:
        self._name, self._run, self._stages, self._stream = pipeline, run, stages, stream
        self._say(f"{pipeline}: run {run}, {stages} stage{'s' * (stages != 1)}")

    def begins(self, place: int, stage: str, attempt: int, most: int | None) -> None:
        """An attempt begins; `place` counts from 1."""
        of = f" of {most}" if most else ""
        self._say(f"[{place}/{self._stages}] {stage}: attempt {attempt}{of} …")

    def ended(self, place: int, report: AttemptReport, again: bool) -> None:
        """An attempt has ended, and another one follows or not."""
        how = f"{SIGNS[report.overall_status]} attempt {report.attempt} "
        how += report.overall_status.replace("_", " ") if report.checks else "done, nothing checked"
        took = f"{report.execution_time_ms / 1000:.2f} s"
        self._say(f"[{place}/{self._stages}] {report.stage_name}: {how} in {took}")
        for one in report.checks:
            if one.status != "passed":
                self._say(f"      {SIGNS[one.status]} {one.check_name}: {one.message}")
        if again:
            self._say("      retrying with feedback")

    def stood(self, stage: StageReport) -> None:
        """A stage has ended; says so where it did not pass."""
        how = {"halted": "halting the run", "best": f"continuing with attempt {stage.kept}"}
        if stage.status == "failed":
            goes = how.get(stage.action, "continuing despite failures")
            self._warn(f"Max retries reached for {stage.name}, {goes}")
        elif stage.action in ("continued", "halted"):
            self._warn(
                f"{stage.name} could not be validated, {how.get(stage.action, 'continuing')}"
            )

    def restored(self, place: int, stage: StageReport, outdated: bool) -> None:
        """A stage was done before the run was resumed; `outdated`: one before it was not."""
        done = f"done before, attempt {stage.kept}"
        self._say(f"[{place}/{self._stages}] {stage.name}: {done}")
        if outdated:
            rests = "what it did rests on a stage before it as it was then; for all anew, start"
            self._warn(f"{stage.name} was not run again: {rests} a run of another id")

    def over(self, report: Report) -> None:
        """The run has ended."""
        more = f" ({', '.join(report.degraded)})" if report.degraded else ""
        seconds = report.ended - report.began
        self._say(f"{self._name}: {report.status}{more} in {seconds:.2f} s; run {self._run}")

    def _say(self, line: str) -> None:
        line = clean(line, WIDEST) if line[0] != " " else f"      {clean(line, WIDEST)}"
        _log.info("%s", line)
        self._write(line)

    def _warn(self, line: str) -> None:
        if self._stream is None or _log.hasHandlers():  # else Python says it on standard error, too
            _log.warning("%s", line)
        self._write(f"      {line}")

    def _write(self, line: str) -> None:
        if self._stream is not None:
            print(line, file=self._stream, flush=True)


def terminal(wanted: bool | None) -> TextIO | None:
    """Standard error, where progress is wanted; None asks whether it is a terminal."""
    stream: TextIO | None = sys.stderr  # a program without a console has none
    shown = stream is not None and stream.isatty() if wanted is None else wanted
    return stream if shown else None

"""`heedful demo --pipeline`: stages that correct themselves, and are right the next
time.
"""

from __future__ import annotations

import shlex
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill

from heedful.cli.printing import TextTable, print_json, say, show
from heedful.cli.resources import opened_model
from heedful.cli.settings import Settings
from heedful.display import counted
from heedful.errors import ModelError, ModelUnavailable, NotFound, install_line
from heedful.loop.runs import Report, StageReport
from heedful.memory.memory import Memory
from heedful.models import weights
from heedful.models.contract import Model
from heedful.pages.attempt_table import worked
from heedful.pages.run_report import happened
from heedful.sanitize import clean
from heedful.store.runs import report_of

from ..forecast import forecast
from .lab import announce

DB = "heedful.db"
BY_MODEL = "-model"
MAX_MODEL_TEXT_CHARS = 800  # that are shown
PAGES = ("html", "json")
HEADS = ("stage", "how it ended", "what had failed", "attempts", "seconds")
TITLE = """\
Five stages forecast tomorrow's maximum temperature in Seattle. Two of them, train and
insights, stand in for an agent that writes code: at first they make things up, with
feedback they correct it.
"""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What was run: by the stand-in, and by a model if there is one; `first` is the
    first run.

    `helped` are the stages that memory helped at once; `lessons` counts what is known
    by now.
    """

    out: Path
    report: Report
    written: Report | None
    first: Report
    helped: tuple[str, ...]
    lessons: int

    @property
    def reports(self) -> list[Report]:
        """All runs of this command."""
        if self.written is None:
            return [self.report]
        return [self.report, self.written]

    @property
    def files(self) -> list[Path]:
        """The reports of the runs, then those of attempts."""
        pages = []
        attempts = []
        for report in self.reports:
            pages += [self.out / f"{report.stem}.{end}" for end in PAGES]
            for stage in report.stages:
                attempts += [self.out / attempt.file for attempt in stage.attempts]
        return pages + attempts

    def commands(self) -> list[tuple[str, str]]:
        """Return the commands to type next, each with its purpose."""
        db = ("--db", str(self.out / DB))
        why = ("why", self.report.run, "train", *db)
        lines = (
            ("the run, its loops and lessons in your browser", ("ui", *db)),
            ("why the stage train ran again, with the figures", why),
        )
        return [(what, f"heedful {shlex.join(line)}") for what, line in lines]


async def run(values: Settings, out: Path) -> Shown:
    """Run the pipeline, and once more with a model if there is one; reports stay in the
    folder.

    Raises PackageMissing, ModelError, StoreError.
    """
    forecast.weather()  # raises before anything is made
    async with AsyncExitStack() as stack:
        model = await _model(values, stack)
        memory = forecast.remembering(out)
        stack.push_async_callback(memory.store.close)

        async def ran(name: str, model: Model | None = None) -> Report:
            pipeline = forecast.pipeline(memory, out, model, progress=True)
            days = forecast.QUARTER if model else forecast.TEST
            return await pipeline.run(forecast.begun(out / name, test=days), id=name)

        name = await _unended(memory, model)
        say(f"\n{TITLE}")
        report = await ran(name)
        written = None
        if model is not None:
            say(
                "\nThe last quarter of 2013, and a model writes what it shows: "
                f"{values.model}\n"
            )
            written = await ran(f"{name}{BY_MODEL}", model)
        first = await report_of(memory.store, memory.scope, "forecast-1")
        helped = [
            stage.name
            for stage in report.stages
            if stage.briefing and not stage.briefing.silence
        ]
        return Shown(
            out=out,
            report=report,
            written=written,
            first=first,
            helped=tuple(helped),
            lessons=await memory.count(),
        )


async def _model(values: Settings, stack: AsyncExitStack) -> Model | None:
    """Open the model, its weights fetched; None if the default one cannot be had.

    Raises ModelError, UsageError.
    """
    is_default = values.model == Settings.model
    try:
        if is_default and find_spec("xllamacpp") is None:
            raise ModelUnavailable(f"it needs xllamacpp: {install_line('embedded')}")
        needed = weights.for_model(values.model)
        if needed is not None:
            announce([needed], values.cache or weights.default_cache())
        return await stack.enter_async_context(opened_model(values))
    except ModelError as error:
        if not is_default:
            raise
        say(f"heedful: no model writes the insights: {error}")
        return None


async def _report(memory: Memory, name: str) -> Report | None:
    try:
        return await report_of(memory.store, memory.scope, name)
    except NotFound:
        return None


async def _unended(memory: Memory, model: Model | None) -> str:
    """Return the name of the last run if it, or the model's run after it, was
    interrupted.

    Otherwise return a new name.
    """
    last = None
    number = 1
    report = await _report(memory, "forecast-1")
    while report is not None:
        last = report
        number += 1
        report = await _report(memory, f"forecast-{number}")
    if last is None:
        return "forecast-1"
    written = await _report(memory, f"{last.run}{BY_MODEL}") if model else last
    over = last.ended and written and written.ended
    return f"forecast-{number}" if over else last.run


def write(shown: Shown, json: bool) -> None:
    """Print what the runs came to, as words or as JSON."""
    if not json:
        _print(shown)
        return
    print_json(
        {
            "runs": [
                {**report.plain(), "attempts": _attempts(report)}
                for report in shown.reports
            ],
            "told_at_once": list(shown.helped),
            "attempts": {
                "now": _attempts(shown.report),
                "first_run": _attempts(shown.first),
            },
            "lessons": shown.lessons,
            "files": [str(path) for path in shown.files],
            "commands": [line for _, line in shown.commands()],
        }
    )


def _attempts(report: Report) -> int:
    return sum(len(stage.attempts) for stage in report.stages)


def _failed_checks(stage: StageReport) -> str:
    """Return the names of the checks that failed in any attempt."""
    names = dict[str, None]()
    for attempt in stage.attempts:
        names |= dict.fromkeys(check.check_name for check in attempt.failed)
    return ", ".join(names)


def _print(shown: Shown) -> None:
    rows = [
        (
            stage.name,
            happened(stage),
            _failed_checks(stage),
            len(stage.attempts),
            f"{worked(stage) / 1000:.2f}",
        )
        for stage in shown.report.stages
    ]
    show()
    show(TextTable(HEADS, rows, text_columns=3))
    show(_remembered(shown))
    if shown.written is not None:
        stage = shown.written.stage("insights")
        show(f"\ninsights by the model: {happened(stage)}")
        for attempt in stage.attempts:
            show(_folded(f"  attempt {attempt.attempt}: ", attempt.output))
            for line in attempt.failed_checks_summary:
                show(_folded("    ✗ ", line))
    attempts = len(shown.files) - len(PAGES) * len(shown.reports)
    for report in shown.reports:
        show(f"\nreport   {shown.out / report.stem}.html")
        show(f"also     {report.stem}.json")
    show(
        f"\n{counted(attempts, 'attempt')}, each in a file "
        f"{shown.out}/guardrail_*.json\n\nNext:"
    )
    for what, line in shown.commands():
        show(f"  {line}\n      {what}")


def _remembered(shown: Shown) -> str:
    """Say in figures what memory changed."""
    lessons = counted(shown.lessons, "lesson")
    if not shown.helped:
        return f"memory   {lessons} learnt; the next run recalls them"
    stages = ", ".join(
        f"{name} {len(shown.report.stage(name).attempts)} (first run "
        f"{len(shown.first.stage(name).attempts)})"
        for name in shown.helped
    )
    now = _attempts(shown.report)
    first = _attempts(shown.first)
    return (
        f"memory   {lessons}; recalled for {', '.join(shown.helped)}\n"
        f"         attempts now {now}, in {shown.first.run} {first}: {stages}"
    )


def _folded(begin: str, text: str) -> str:
    """Fold a text into lines that begin below each other."""
    return fill(
        clean(text, MAX_MODEL_TEXT_CHARS),
        100,
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
    )

"""`heedful demo --pipeline`: stages that correct themselves, and are right the next time."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from textwrap import fill
from typing import Any, cast

import heedful
from heedful.cli.interrupt import drive
from heedful.cli.opening import model_of
from heedful.cli.output import counted, print_json, say, show, table
from heedful.cli.progress import Progress
from heedful.cli.settings import Settings
from heedful.errors import ModelError, ModelUnavailable, NotFound
from heedful.loop.feedback import clean
from heedful.memory.memory import Memory
from heedful.models.contract import Model
from heedful.pages.words import failures, happened, worked
from heedful.reports import Report, StageReport
from heedful.runs import loop_of, report_of
from heedful.store import exposures

EXAMPLE = Path("forecast", "forecast.py")
DB = "heedful.db"
BY_MODEL = "-model"
LONGEST = 800  # characters of a text of a model that are shown
PAGES = ("html", "md", "json")
HEADS = ("stage", "how it ended", "what had failed", "attempts", "seconds")
TITLE = """\
Five stages forecast tomorrow's maximum temperature in Seattle. Two of them, train and insights,
stand in for an agent that writes code: untold they make things up, told they mend what is named.
"""


@dataclass(frozen=True)
class Shown:
    """What was run: by the stand-in, and by a model where there is one; `first` of the folder.

    `told` are the stages that were told at once what runs before had taught, `lessons` how many
    there are by now.
    """

    out: Path
    report: Report
    written: Report | None
    first: Report
    told: tuple[str, ...]
    lessons: int

    @property
    def reports(self) -> list[Report]:
        """All that was run."""
        return [self.report, *([self.written] if self.written else [])]

    @property
    def files(self) -> list[Path]:
        """The reports of the runs, then those of attempts."""
        runs = [self.out / f"{one.stem}.{end}" for one in self.reports for end in PAGES]
        stages = [stage for one in self.reports for stage in one.stages]
        return runs + [self.out / one.file for stage in stages for one in stage.attempts]

    def commands(self, again: str) -> list[tuple[str, str]]:
        """What each is for, and the command to type."""
        from heedful.cli.measured import program

        run, db = self.report.run, ("--db", str(self.out / DB))
        asked = "why did the pipeline retry stage 4?"
        lines = (
            ("why a stage was run again, with the figures", ("why", run, "train", *db)),
            ("an answer from the reports; no model is asked", ("ask", run, asked, *db)),
            ("all runs", ("runs", *db)),
        )
        named = [(what, f"{program()} {shlex.join(line)}") for what, line in lines]
        return [*named, ("once more: what it has learnt is told at once", again)]


def demonstrate(values: Settings, out: Path, *, fresh: bool, again: str, json: bool) -> None:
    """Run it, print what it came to, and leave the reports in the folder.

    Raises PackageMissing, ModelError, StoreError, and Interrupted at Ctrl-C.
    """
    if fresh:
        for end in ("", "-wal", "-shm"):
            (out / f"{DB}{end}").unlink(missing_ok=True)
    shown = drive(
        _run(values, out),
        lambda: f"stopped; what is done is kept in {out}. The same command goes on:\n  {again}",
    )
    commands = shown.commands(again)
    if json:
        print_json(_plain(shown, commands))
    else:
        _print(shown, commands)


async def _run(values: Settings, out: Path) -> Shown:
    example = _example()
    example["weather"]()  # raises before anything is made
    async with AsyncExitStack() as stack:
        model = await _model(values, stack)
        memory: Memory = example["remembering"](out)
        stack.push_async_callback(memory.store.close)

        async def ran(name: str, model: Model | None = None) -> Report:
            made = example["pipeline"](memory, out, model, True)
            days = example["QUARTER" if model else "TEST"]
            return cast("Report", await made.run(example["begun"](out / name, test=days), id=name))

        name = await _unended(memory, model)
        say(f"\n{TITLE}")
        report, written = await ran(name), None
        if model is not None:
            say(f"\nThe last quarter of 2013, and a model writes what it shows: {values.model}\n")
            written = await ran(f"{name}{BY_MODEL}", model)
        first = await report_of(memory.store, memory.scope, _named(1))
        told = [stage.name for stage in report.stages if await _told(memory, report, stage)]
        return Shown(out, report, written, first, tuple(told), await memory.count())


async def _model(values: Settings, stack: AsyncExitStack) -> Model | None:
    """The model, its weights fetched; None where the default one is not to be had.

    Raises ModelError, UsageError.
    """
    from heedful.cli.demo import announce
    from heedful.models import weights

    usual = values.model == Settings.model_fields["model"].default
    try:
        if usual and find_spec("xllamacpp") is None:
            raise ModelUnavailable("it needs xllamacpp: pip install 'heedful[embedded]'")
        needed = weights.needed(values.model)
        announce([needed] if needed else [], values.cache or weights.default_cache())
        with Progress() as progress:
            return await stack.enter_async_context(model_of(values, progress.fetched))
    except ModelError as error:
        if not usual:
            raise
        say(f"heedful: no model writes the insights: {error}")
        return None


def _example() -> dict[str, Any]:
    """The example that comes with heedful, in the installed package or else in its checkout."""
    package = Path(heedful.__file__).parent
    places = (package / "_examples" / EXAMPLE, package.parents[1] / "examples" / EXAMPLE)
    for place in places:
        if place.is_file():
            return run_path(str(place), run_name="forecast")
    raise NotFound("example", str(EXAMPLE), "the installed heedful; install it anew")


def _named(number: int) -> str:
    return f"forecast-{number}"


async def _report(memory: Memory, name: str) -> Report | None:
    try:
        return await report_of(memory.store, memory.scope, name)
    except NotFound:
        return None


async def _unended(memory: Memory, model: Model | None) -> str:
    """The last run where it was interrupted, it or what a model was to do after it; a new one."""
    last, number = None, 1
    while found := await _report(memory, _named(number)):
        last, number = found, number + 1
    if last is None:
        return _named(1)
    written = await _report(memory, f"{last.run}{BY_MODEL}") if model else last
    over = last.ended and written and written.ended
    return _named(number) if over else last.run


async def _told(memory: Memory, report: Report, stage: StageReport) -> bool:
    past = await memory.store.read(memory.scope, exposures.past, loop_of(report.run, stage.name))
    return any(one.shown for one in past.exposures)


def _plain(shown: Shown, commands: Sequence[tuple[str, str]]) -> dict[str, Any]:
    return {
        "runs": [{**one.plain(), "attempts": _attempts(one)} for one in shown.reports],
        "told_at_once": list(shown.told),
        "attempts": {"now": _attempts(shown.report), "first_run": _attempts(shown.first)},
        "lessons": shown.lessons,
        "files": [str(path) for path in shown.files],
        "commands": [line for _, line in commands],
    }


def _print(shown: Shown, commands: Sequence[tuple[str, str]]) -> None:
    rows = [
        (
            stage.name,
            happened(stage),
            ", ".join(failures(stage)),
            len(stage.attempts),
            f"{worked(stage) / 1000:.2f}",
        )
        for stage in shown.report.stages
    ]
    show()
    table(HEADS, rows, text=3)
    show(_remembered(shown))
    if shown.written is not None:
        show(f"\n{_insights(shown.written.stage('insights'))}")
    attempts = len(shown.files) - len(PAGES) * len(shown.reports)
    for one in shown.reports:
        show(f"\nreport   {shown.out / one.stem}.html")
        show(f"also     {one.stem}.md, {one.stem}.json")
    show(f"\n{counted(attempts, 'attempt')}, each in a file {shown.out}/guardrail_*.json\n\nNext:")
    for what, line in commands:
        show(f"  {line}\n      {what}")


def _remembered(shown: Shown) -> str:
    """What memory changed, in figures."""
    known = counted(shown.lessons, "lesson")
    if not shown.told:
        return f"memory   {known} learnt; the next run is told at once"
    now, first = _attempts(shown.report), _attempts(shown.first)
    stages = ", ".join(
        f"{name} {len(shown.report.stage(name).attempts)} (first run "
        f"{len(shown.first.stage(name).attempts)})"
        for name in shown.told
    )
    return (
        f"memory   {known}; told at once to {', '.join(shown.told)}\n"
        f"         attempts now {now}, in {shown.first.run} {first}: {stages}"
    )


def _attempts(report: Report) -> int:
    return sum(len(stage.attempts) for stage in report.stages)


def _insights(stage: StageReport) -> str:
    """What a model wrote, what was wrong with it, and what became of that."""
    lines = [f"insights by the model: {happened(stage)}"]
    for one in stage.attempts:
        lines.append(_folded(f"  attempt {one.attempt}: ", one.output))
        lines += [_folded("    ✗ ", line) for line in one.failed_checks_summary]
    return "\n".join(lines)


def _folded(begin: str, text: str) -> str:
    """In lines that any terminal shows, each below the first as far in as what stands there."""
    return fill(clean(text, LONGEST), 100, initial_indent=begin, subsequent_indent=" " * len(begin))

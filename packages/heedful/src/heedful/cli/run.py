"""`heedful run` drives the tasks of a file; `heedful demo` shows what memory changes.

A run has a name, and the loop of each of its tasks is stored as RUN/TASK. With
--resume, what the store has of these loops is not done again.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import Annotated, Any

from typer import Argument, Option

import heedful
from heedful import errors
from heedful.cli.databases import opened_store
from heedful.cli.exits import report_error, run_interruptibly
from heedful.cli.printing import (
    Columns,
    TextTable,
    answer,
    columns,
    command_line,
    current_command,
    following,
    name_database,
    say,
)
from heedful.cli.proof_command import rung_table
from heedful.cli.resources import memory_of, opened_models
from heedful.cli.settings import Settings, scope_of, settings, shown_model
from heedful.cli.tasks import Task, read_tasks
from heedful.display import counted
from heedful.drive.generate import Generators, Rung, Writer
from heedful.drive.run_loop import Run
from heedful.lessons.commands import quote_words
from heedful.lessons.lesson import Scope
from heedful.loop import policies
from heedful.loop.codec import policy_to, to_document
from heedful.loop.decide import Policy
from heedful.loop.ladder import Climb, figure_ladders
from heedful.loop.runs import Report, file_safe
from heedful.memory.memory import Memory
from heedful.pages import write_html
from heedful.sanitize import clean
from heedful.store import DEFAULT_DATABASE_FILE, loops, runs, shown
from heedful.store.connection import MAX_READ_ROWS
from heedful.store.records import Head
from heedful.store.store import Store
from heedful.validation import MAX_NAME_CHARS, Document, check_name, require

# Errors of one task, after which other tasks continue. Other model errors would hit
# them too.
SINGLE_TASK_ERRORS = (
    errors.UserCodeError,
    errors.MalformedAnswer,
    errors.PromptTooLong,
)
EXAMPLES_PACKAGE = "heedful._examples"


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """The result of a task.

    `at_once` is true if the first try passed. `stopped_by` is a rule, "" if the task
    passed. `memory` says what memory showed, "" without memory. `climb` has the
    attempts with their rungs if the run has several models, else it is None.
    """

    id: str
    loop: str
    group: str
    passed: bool
    at_once: bool
    attempts: int
    calls: int
    tokens: int
    seconds: float
    stopped_by: str
    candidate: Any
    memory: str = ""
    climb: Climb | None = None

    def __str__(self) -> str:
        mark = "✓" if self.passed else "✗"
        tries = "first try" if self.at_once else f"{self.attempts} attempts"
        line = (
            f"{mark} {clean(self.id, 60)}  {tries}, calls: {self.calls}, "
            f"{self.seconds:.1f} s"
        )

        if self.climb is not None and self.climb.answered_by:
            line += f", rung {self.climb.answered_by}"
        if self.memory:
            line += f", memory {name_database(self.memory)}"
        if self.stopped_by:
            line += f", stopped by {self.stopped_by}"
        return line


@dataclass(kw_only=True)
class TaskRun:
    """A run: the options of the command line, and the state of the run so far.

    Of the options, `given_name` is the name that the user gave, if any; `arguments` is
    the whole command line. The state begins with `name`, the name of the run, "" before
    it begins. `results` are those of ended tasks. `open_loops` are the ids of loops
    that have begun, but not ended. `report_file` is written at the end.
    """

    path: Path
    tasks: Sequence[Task]
    policy: Policy
    given_name: str | None
    resume: bool
    system: str
    settings: Settings
    arguments: Sequence[str]
    name: str = ""
    results: list[TaskResult] = field(default_factory=list)
    report_file: Path | None = None
    open_loops: list[str] = field(default_factory=list)

    @property
    def how_to_resume(self) -> str:
        """How to resume the run and look at what is open, as the end of a sentence.

        "" if the run has not begun.
        """
        if not self.name:
            return ""

        text = f"; stored results stay; continue with:\n  {self._resume_command()}"
        if self.open_loops:
            why = command_line("why", self.open_loops[0], db=self.settings.db)
            text += f"\nlook at an open loop with:\n  {why}"
        return text

    def _resume_command(self) -> str:
        """Return the command line of this run, with the name by which it continues."""
        words = [word for word in self.arguments if word not in ("--resume", "--json")]
        if not self.given_name:
            words += ["--run", self.name]
        return quote_words(["heedful", *words, "--resume"])


def run(
    tasks: Annotated[Path, Argument(help="A .jsonl or .yaml file of tasks.")],
    name: Annotated[
        str | None, Option("--run", help="The run's name. [file and number]")
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="Continue this or the newest run.")
    ] = False,
    system: Annotated[str, Option(help="The system prompt.")] = "",
) -> int:
    """Drive every task of a file until its answer passes or a rule stops the loop.

    Exits with 0 if all tasks passed, otherwise with 1. With several models, separated
    by commas, the next one takes over when a rule ends the attempts of one. --prices
    has the cost of a token of each. A run that was interrupted or killed can be
    resumed. Stored answers are not requested from the model again. At the
    end, a page in the folder `reports` shows every attempt, what was wrong with it, and
    what memory showed.
    """
    values = settings()
    _ = values.costs  # before anything is opened
    if name is not None:
        check_name("--run", name)
        require(name and "/" not in name, "--run", name, "a name without /")
    sys.path.insert(0, str(tasks.parent.resolve()))  # a model may be beside the tasks

    policy = policies.policy(values.policy)
    task_run = TaskRun(
        path=tasks,
        tasks=read_tasks(tasks),
        policy=policy,
        given_name=name,
        resume=resume,
        system=system,
        settings=values,
        arguments=current_command().arguments or ["run"],
    )

    failure: errors.HeedfulError | None = None
    try:
        run_interruptibly(
            _drive(task_run), lambda: f"interrupted{task_run.how_to_resume}"
        )
    except errors.HeedfulError as error:
        failure = error
    return _report(task_run, failure)


async def _drive(task_run: TaskRun) -> None:
    """Drive the tasks of a run, and write its report.

    If the model does not open, no run name is taken and no file is created.
    """
    values = task_run.settings
    scope = scope_of(values)
    async with (
        opened_models(values) as models,
        opened_store(values, new=not task_run.resume) as store,
    ):
        if task_run.resume:
            task_run.name = await _find_run(store, scope, task_run)
        else:
            task_run.name = await _claim_new_name(store, scope, task_run)

        tasks = counted(len(task_run.tasks), "task")
        names = ", ".join(model.name for model in models)
        noun = "model" if len(models) == 1 else "models"
        say(f"run {task_run.name}: {tasks}, {noun} {names}, {store.url}")

        driver = TaskDriver(
            run=task_run.name,
            policy=task_run.policy,
            generate=[
                Rung(
                    Writer(model, task_run.system, max_tokens=values.max_tokens),
                    price=price,
                )
                for model, price in zip(models, values.costs, strict=True)
            ],
            store=store,
            scope=scope,
            memory=memory_of(values, store) if values.memory else None,
            timeout=values.timeout,
        )
        await _drive_all(task_run, driver)

        report = await _report_of(task_run, store, scope)
        task_run.report_file = write_html(report, "reports")


async def _report_of(task_run: TaskRun, store: Store, scope: Scope) -> Report:
    """Return the report of a run of tasks; each task is a stage of it."""
    ids = [task.id for task in task_run.tasks]
    stages_by_task = await runs.tasks_of(store, scope, task_run.name, ids)

    stages = []
    for task in task_run.tasks:
        stage = stages_by_task[task.id].stage_report(task_run.name)
        stages.append(replace(stage, name=f"{task.id}: {task.task}"))

    return Report(task_run.path.name, task_run.name, stages=tuple(stages), noun="task")


@dataclass(frozen=True, kw_only=True)
class TaskDriver:
    """What all tasks of a run have in common.

    `policy` is for tasks without their own; `timeout` is in seconds for each attempt.
    """

    run: str
    policy: Policy
    generate: Generators
    store: Store | str
    scope: Scope | None
    memory: Memory | None
    timeout: float | None = None

    def loop_of(self, task: Task) -> str:
        """Return the id of the loop of a task."""
        return f"{self.run}/{task.id}"

    async def drive(self, task: Task) -> TaskResult:
        """Drive a task as the loop `run/id`, and return its row."""
        session = Run[Any](
            task.task,
            id=self.loop_of(task),
            generate=self.generate,
            checks=task.checks,
            goals=task.goals,
            data=task.context,
            policy=task.policy or self.policy,
            memory_key=task.key,
            store=self.store,
            scope=self.scope,
            memory=self.memory,
            timeout=self.timeout,
        )
        result = await session.finish()

        attempts = len(result.loop.attempts)
        return TaskResult(
            id=task.id,
            loop=result.id,
            group=task.family,
            passed=result.passed,
            at_once=result.passed and attempts == 1,
            attempts=attempts,
            calls=result.usage.calls,
            tokens=result.usage.tokens,
            seconds=result.usage.seconds,
            stopped_by=result.stopped_by[0].rule if result.stopped_by else "",
            candidate=result.candidate,
            memory=result.briefing.notice if result.briefing else "",
            climb=result.loop.climb(),
        )


async def _drive_all(task_run: TaskRun, driver: TaskDriver) -> None:
    """Drive every task of the run, some at a time, and print how each ended.

    The others continue if user code or an answer fails in one task; after any other
    model error no new task begins. At the end the first error is raised, with a note
    that names its task. A StoreError is raised at once.
    """
    total = len(task_run.tasks)
    errors_by_task: dict[str, errors.HeedfulError] = {}
    waiting_tasks = iter(task_run.tasks)  # that all workers share

    async def work() -> None:
        """Drive one task after the other, until none waits or none can succeed."""
        for task in waiting_tasks:
            task_run.open_loops.append(driver.loop_of(task))
            try:
                row = await driver.drive(task)
                task_run.results.append(row)
                task_run.open_loops.remove(row.loop)
                say(f"{len(task_run.results)}/{total} {row}")
            except (errors.UserCodeError, errors.ModelError) as error:
                errors_by_task[task.id] = error

            for failure in errors_by_task.values():
                if not isinstance(failure, SINGLE_TASK_ERRORS):
                    return

    number_of_workers = min(task_run.settings.jobs, total)
    workers = [asyncio.create_task(work()) for _ in range(number_of_workers)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    if errors_by_task:
        first, *others = [
            task.id for task in task_run.tasks if task.id in errors_by_task
        ]
        note = ""
        if others:
            note = f" (nor did {len(others)} more: {', '.join(others[:5])})"
        first_error = errors_by_task[first]
        ended = f"{len(task_run.results)} of {counted(total, 'task')} ended"
        first_error.add_note(f"task {first!r} did not end{note}; {ended}")
        raise first_error


def _report(task_run: TaskRun, failure: errors.HeedfulError | None) -> int:
    """Print the results in the order of the tasks, then `failure`.

    Return the exit code.
    """
    places = {task.id: place for place, task in enumerate(task_run.tasks)}
    rows = sorted(task_run.results, key=lambda row: places[row.id])
    sums = {
        "tasks": len(rows),
        "at_once": sum(1 for row in rows if row.at_once),
        "solved": sum(1 for row in rows if row.passed),
        "calls": sum(row.calls for row in rows),
        "tokens": sum(row.tokens for row in rows),
        "seconds": round(sum(row.seconds for row in rows), 3),
    }
    ladders = figure_ladders(row.climb for row in rows if row.climb is not None)
    document: Document = {
        "run": task_run.name,
        "db": shown(task_run.settings.db),
        "model": ",".join(map(shown_model, task_run.settings.models)),
        **sums,
        "rungs": ladders.rungs,
        "overhead": ladders.overhead if ladders.rungs else None,
        "rows": rows,
        "report": task_run.report_file,
    }

    texts: list[object] = []
    if rows:
        texts.append(TextTable(SUM_COLUMNS, [{"run": task_run.name, **sums}]))
        texts += rung_table(ladders)
    if task_run.report_file is not None:
        texts.append(f"report {task_run.report_file}")
    failed = [row.loop for row in rows if not row.passed]
    if failed:
        texts.append(f"\n{following('why', failed[0], db=task_run.settings.db)}")

    # After a failure, --json prints one document: the error with these fields.
    if failure is None or not current_command().json:
        answer(document, texts)
    if failure is None:
        return 1 if failed else 0
    if not task_run.name:
        return report_error(failure)
    failure.add_note(task_run.how_to_resume.lstrip("; "))
    return report_error(failure, **document)


SUM_COLUMNS: Columns = {
    "": "run",
    **columns("tasks first_try solved calls tokens seconds", first_try="at_once"),
}


async def _claim_new_name(store: Store, scope: Scope, task_run: TaskRun) -> str:
    """Return the given name, or the file's name with a free number.

    Claiming the loop of the first task reserves the name. Raises UsageError if the
    given name is taken.
    """
    first = task_run.tasks[0]
    policy = first.policy or task_run.policy
    head = Head(
        task=first.task,
        goals=list(map(to_document, first.goals or policy.goals)),
        policy=policy_to(policy),
        memory_key=first.key,
    )

    names: Iterable[str] = (f"{_stem(task_run.path)}-{number}" for number in count(1))
    if task_run.given_name:
        names = [task_run.given_name]

    for name in names:
        loops_of_name, _ = await store.read(
            scope, loops.newest, limit=1, prefix=f"{name}/"
        )
        if loops_of_name:
            continue

        with suppress(errors.Conflict):  # another process takes the name just now
            id = f"{name}/{first.id}"
            if await store.write(scope, loops.begin, id, head) is not None:
                return name

    # Only a given name can be taken: the numbers have no end.
    message = "add --resume to continue it, or give another name"
    raise errors.UsageError(f"run {task_run.given_name!r} exists; {message}")


async def _find_run(store: Store, scope: Scope, task_run: TaskRun) -> str:
    """Return the name of the run to continue: the given name, or the newest.

    Raises NotFound.
    """
    stem = _stem(task_run.path)
    prefix = f"{task_run.given_name}/" if task_run.given_name else f"{stem}-"
    newest, _ = await store.read(scope, loops.newest, MAX_READ_ROWS, prefix)
    for stored_loop in newest:
        # The id of a loop of a run is RUN/TASK.
        name, slash, _ = stored_loop.id.partition("/")
        number = name.removeprefix(f"{stem}-")
        if slash and (task_run.given_name or number.isdecimal()):
            return name

    where = f"{store.url}; leave --resume out to begin it"
    raise errors.NotFound("run", task_run.given_name or f"{stem}-…", where)


def _stem(path: Path) -> str:
    """Return the name of a file without its ending, as the beginning of a run's
    name.
    """
    # "my tasks (2)" becomes my_tasks__2_.
    return file_safe(path.stem)[:MAX_NAME_CHARS] or "tasks"


def demo(
    full: Annotated[bool, Option("--full", help="Run all tasks.")] = False,
    pipeline: Annotated[
        bool, Option("--pipeline", help="Stages that correct themselves.")
    ] = False,
    tasks: Annotated[
        Path | None, Option(help="Another file of tasks. [house rules]")
    ] = None,
    out: Annotated[
        Path | None, Option(help="The folder for results. [out/demo]")
    ] = None,
    recorded: Annotated[
        bool, Option("--recorded", help="Show a recorded run, without a model.")
    ] = False,
    every_task: Annotated[
        bool,
        Option("--all", help="Show every family; with --recorded, every task, too."),
    ] = False,
    no_browser: Annotated[
        bool, Option("--no-browser", help="With --recorded: open no pages.")
    ] = False,
) -> int:
    """Run tasks with and without memory, and compare the results.

    The prompts do not state the rule for answers; only a check knows it. The model
    writes every answer, so another model gives other numbers. With --pipeline, a
    pipeline of checked stages runs instead; the first attempts of two stages fail. With
    --db it writes into that database, which may have other loops. If you stop the demo,
    the same command continues it. --recorded shows a run in seconds, from a database of
    its own (without --db), and opens its pages if heedful[ui] is installed and there is
    a display.
    """
    db = current_command().options.get("db")
    # Without --db, the demo makes a database of its own.
    values = settings(db=db or DEFAULT_DATABASE_FILE).with_one_model()
    if ((pipeline or recorded) and (full or tasks or db)) or (pipeline and recorded):
        raise errors.UsageError(
            "--pipeline and --recorded show another run, in a database of its own: "
            "leave --full, --tasks, --db and the other of the two out"
        )

    words = [word for word in current_command().arguments if word != "--json"]
    command = quote_words(["heedful", *(words or ["demo"])])
    kind = "recorded" if recorded else "demo"
    if pipeline:
        kind = "pipeline"
    out = out or Path("out") / kind
    last_words = (
        f"stopped; what is done is kept in {out}. The same command continues:\n  "
        f"{command}"
    )

    _prepare_folder(out, command)
    if pipeline:
        demo_pipeline = _import_demo("pipeline")
        result = run_interruptibly(demo_pipeline.run(values, out), lambda: last_words)
        demo_pipeline.write(result, current_command().json)
        return 0

    if recorded:
        return _show_recorded(values, out, command, every_task, browser=not no_browser)

    if values.model.startswith("embedded") and find_spec("xllamacpp") is None:
        raise errors.UsageError(
            f"heedful demo needs xllamacpp: {errors.install_line('embedded')}; "
            "without a model, heedful demo --recorded shows a recorded run"
        )
    lab = _import_demo("lab")
    plan = lab.plan(tasks, values.model, full=full)
    measured = run_interruptibly(
        lab.measure(plan, values, out, again=command, db=db), lambda: last_words
    )
    lab.write(measured, out, json=current_command().json, families=every_task)
    return 0


def _prepare_folder(out: Path, command: str) -> None:
    """Make the folder for results. Raises UsageError if it cannot be written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise errors.UsageError(
            f"no results can be written to {out.absolute()}: {error.strerror}; name "
            f"another folder: {command} --out FOLDER"
        ) from error


def _show_recorded(
    values: Settings, out: Path, command: str, every_task: bool, *, browser: bool
) -> int:
    """Show the recorded run, every task of it or the telling ones; then its pages,
    if a person can see them here.
    """
    recording = _import_demo("recording")
    measured = run_interruptibly(
        recording.replay(values, out, command, every_task=every_task),
        lambda: "interrupted",
    )
    is_json = current_command().json
    _import_demo("lab").write(measured, out, json=is_json, families=every_task)

    has_pages = find_spec("heedful_server") is not None
    if not has_pages:
        say(f"for the pages, {errors.install_line('ui')}")
    if browser and has_pages and _has_display() and not is_json:
        database = str(out / recording.DATABASE)
        show_pages = (sys.executable, "-m", "heedful", "ui", "--db", database)
        return subprocess.call(show_pages)
    return 0


def _has_display() -> bool:
    """Return True if a person reads the output, on a machine with a display."""
    if not sys.stdout.isatty():
        return False
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _import_demo(name: str) -> Any:
    """Import a module of the demo, which is data of the package."""
    package = ModuleType(EXAMPLES_PACKAGE)
    package.__path__ = [str(examples_folder())]
    sys.modules.setdefault(EXAMPLES_PACKAGE, package)
    return import_module(f"{EXAMPLES_PACKAGE}.demo.{name}")


def examples_folder() -> Path:
    """Return the folder of the examples. Raises NotFound."""
    package = Path(heedful.__file__).parent
    for folder in (package / "_examples", package.parents[1] / "examples"):
        if (folder / "demo").is_dir():
            return folder
    raise errors.NotFound("examples", "demo", f"{package}; install heedful again")

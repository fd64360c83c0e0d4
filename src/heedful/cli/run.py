"""`heedful run` drives the tasks of a file as loops; `heedful demo` shows what memory
changes.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import count
from pathlib import Path
from shutil import which
from types import ModuleType
from typing import Annotated, Any

from typer import Argument, Option

import heedful
from heedful import errors
from heedful.cli.exits import drive, report_error
from heedful.cli.output import (
    Columns,
    TextTable,
    answer,
    call,
    columns,
    counted,
    following,
    progress,
    say,
)
from heedful.cli.resources import memory_of, opened_model, opened_store
from heedful.cli.settings import Settings, scope_of, settings
from heedful.cli.tasks import Task, read_tasks
from heedful.drive.drive import Run
from heedful.drive.generate import Generate, Writer
from heedful.lessons.lesson import Scope
from heedful.loop import policies
from heedful.loop.codec import policy_to, to_document
from heedful.loop.decide import Policy
from heedful.loop.reach import reach
from heedful.loop.runs import Report
from heedful.memory.memory import Memory
from heedful.pages import write_html
from heedful.sanitize import clean
from heedful.store import loops, runs, shown
from heedful.store.records import Head
from heedful.store.store import Store

MAX_RUN_NAME_CHARS = 200
MAX_LOOPS_OF_FILE = 500  # among which the newest run of a file is looked for
MAX_HISTORIES_BEFORE_RUN = 1_000  # tried for each rule, to warn of one that cannot fire
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
    passed. `memory` says what memory showed, "" without memory.
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

    def __str__(self) -> str:
        mark = "✓" if self.passed else "✗"
        tries = "first try" if self.at_once else f"{self.attempts} attempts"
        line = f"{mark} {clean(self.id, 60)}  {tries}, calls: {self.calls}"
        line += f", {self.seconds:.1f} s"
        if self.memory:
            line += f", memory {self.memory}"
        if self.stopped_by:
            line += f", stopped by {self.stopped_by}"
        return line


@dataclass(kw_only=True)
class TaskRun:
    """A run: the options of the command line, and the state of the run so far.

    `given` is the name that the user gave, `name` that of the run, "" before it begins.
    `rows` are the results of ended tasks, `arguments` is the whole command line, `page`
    the report's file.
    """

    path: Path
    tasks: Sequence[Task]
    policy: Policy
    given: str | None
    resume: bool
    system: str
    settings: Settings
    arguments: Sequence[str]
    name: str = ""
    rows: list[TaskResult] = field(default_factory=list)
    page: Path | None = None

    @property
    def how_to_resume(self) -> str:
        """How to resume the run, as the end of a sentence; "" if it has not begun."""
        if not self.name:
            return ""
        words = [word for word in self.arguments if word not in ("--resume", "--json")]
        if not self.given:
            words += ["--run", self.name]
        command = shlex.join(["heedful", *words, "--resume"])
        return f"; stored results stay; continue with:\n  {command}"


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

    Exits with 0 if all tasks passed, otherwise with 1. A run that was interrupted or
    killed can be resumed. Stored answers are not requested from the model again. At the
    end, a page in the folder `reports` shows every attempt, what was wrong with it, and
    what memory showed.
    """
    values = settings()
    if name is not None:
        _check_run_name(name)
    sys.path.insert(0, str(tasks.parent.resolve()))  # a model may be beside the tasks
    policy = policies.policy(values.policy)
    job = TaskRun(
        path=tasks,
        tasks=read_tasks(tasks),
        policy=policy,
        given=name,
        resume=resume,
        system=system,
        settings=values,
        arguments=call().arguments or ["run"],
    )
    _warn_of_dead_rules([policy, *(task.policy for task in job.tasks if task.policy)])
    failure: errors.HeedfulError | None = None
    try:
        drive(_drive(job), lambda: f"interrupted{job.how_to_resume}")
    except errors.HeedfulError as error:
        failure = error
    return _report(job, failure)


def _check_run_name(name: str) -> None:
    has_length = 0 < len(name) <= MAX_RUN_NAME_CHARS
    if not has_length or not name.isprintable() or "/" in name:
        allowed = f"1 to {MAX_RUN_NAME_CHARS} printable characters without /"
        raise errors.InvalidInput("--run", name, allowed)


def _warn_of_dead_rules(chosen: Iterable[Policy]) -> None:
    """Warn of rules that can never fire."""
    for policy in dict.fromkeys(chosen):
        for result in reach(policy, most=MAX_HISTORIES_BEFORE_RUN):
            if result.proof:
                say(f"warning: policy {policy.name or 'of its own'}: {result}")


async def _drive(job: TaskRun) -> None:
    """Run the job. If the model does not open, no run name is taken and no file is
    created.
    """
    values = job.settings
    scope = scope_of(values)
    total = len(job.tasks)
    async with (
        opened_model(values) as model,
        opened_store(values, new=not job.resume) as store,
    ):
        if job.resume:
            job.name = await _existing_run(store, scope, job)
        else:
            job.name = await _new_run(store, scope, job)
        tasks = counted(total, "task")
        say(f"run {job.name}: {tasks}, model {model.name}, {store.url}")
        progress().bar("running", 0, total, f"0/{total}")

        def watch(row: TaskResult) -> None:
            job.rows.append(row)
            number = f"{len(job.rows)}/{total}"
            live = progress().live
            progress().say(str(row) if live else f"{number} {row}")
            progress().bar("running", len(job.rows), total, number)

        driver = TaskDriver(
            run=job.name,
            policy=job.policy,
            generate=Writer(model, job.system, max_tokens=values.max_tokens),
            store=store,
            scope=scope,
            memory=memory_of(values, store) if values.memory else None,
            timeout=values.timeout,
        )
        await _drive_all(job, driver, watch)
        report = await _report_of(job, store, scope)
        job.page = write_html(report, "reports")


async def _report_of(job: TaskRun, store: Store, scope: Scope) -> Report:
    """Return the report of a run of tasks; each task is a stage of it."""
    ids = [task.id for task in job.tasks]
    stages_by_task = await runs.stages_of(store, scope, job.name, ids)
    stages = []
    for task in job.tasks:
        stage = stages_by_task[task.id].stage_report(job.name)
        stages.append(replace(stage, name=f"{task.id}: {task.task}"))
    return Report(job.path.name, job.name, stages=tuple(stages), noun="task")


@dataclass(frozen=True, kw_only=True)
class TaskDriver:
    """What all tasks of a run have in common. `policy` is for tasks without their own;
    `timeout` is in seconds for each attempt.
    """

    run: str
    policy: Policy
    generate: Generate | Writer
    store: Store | str
    scope: Scope | None
    memory: Memory | None
    timeout: float | None = None

    async def drive(self, task: Task) -> TaskResult:
        """Drive a task as the loop `run/id`, and return its row."""
        session = Run[Any](
            task.task,
            id=f"{self.run}/{task.id}",
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
            memory=result.briefing.summary if result.briefing else "",
        )


async def _drive_all(
    job: TaskRun, driver: TaskDriver, watch: Callable[[TaskResult], None]
) -> None:
    """Drive every task of the job, some at a time.

    `watch` gets the row of each task that ends. The others continue if user code or an
    answer fails in one task; after any other model error no new task begins. At the end
    the first error is raised, with a note that names its task. A StoreError is raised
    at once.
    """
    errors_by_task: dict[str, errors.HeedfulError] = {}
    waiting = iter(job.tasks)

    async def work() -> None:
        for task in waiting:
            try:
                watch(await driver.drive(task))
            except (errors.UserCodeError, errors.ModelError) as error:
                errors_by_task[task.id] = error
            for failure in errors_by_task.values():
                if not isinstance(failure, SINGLE_TASK_ERRORS):
                    return

    number_of_workers = min(job.settings.jobs, len(job.tasks))
    workers = [asyncio.create_task(work()) for _ in range(number_of_workers)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    if errors_by_task:
        first, *others = [task.id for task in job.tasks if task.id in errors_by_task]
        also = ""
        if others:
            also = f" (nor did {len(others)} more: {', '.join(others[:5])})"
        first_error = errors_by_task[first]
        first_error.add_note(f"task {first!r} did not end{also}; all others are stored")
        raise first_error


def _report(job: TaskRun, failure: errors.HeedfulError | None) -> int:
    """Print the results in the order of the tasks, then `failure`. Return the exit
    code.
    """
    places = {task.id: place for place, task in enumerate(job.tasks)}
    rows = sorted(job.rows, key=lambda row: places[row.id])
    sums = {
        "tasks": len(rows),
        "at_once": sum(1 for row in rows if row.at_once),
        "solved": sum(1 for row in rows if row.passed),
        "calls": sum(row.calls for row in rows),
        "tokens": sum(row.tokens for row in rows),
        "seconds": round(sum(row.seconds for row in rows), 3),
    }
    address, mark, model = job.settings.model.rpartition("#")
    document: dict[str, Any] = {
        "run": job.name,
        "db": shown(job.settings.db),
        "model": f"{shown(address)}{mark}{model}",
        **sums,
        "rows": rows,
        "report": job.page,
    }
    if failure is None or not call().json:
        table: object = ""
        page = ""
        if rows:
            table = TextTable(SUM_COLUMNS, [{"run": job.name, **sums}])
        if rows and job.page is not None:
            page = f"report {job.page}"
        failed = [row.loop for row in rows if not row.passed]
        then = ""
        if failed:
            then = f"\n{following('why', failed[0], db=job.settings.db)}"
        answer(document, table, page, then)
    if failure is None:
        return 0 if all(row.passed for row in rows) else 1
    if not job.name:
        return report_error(failure)
    failure.add_note(job.how_to_resume.lstrip("; "))
    return report_error(failure, **document)


SUM_COLUMNS: Columns = {
    "": "run",
    **columns("tasks first_try solved calls tokens seconds", first_try="at_once"),
}


async def _new_run(store: Store, scope: Scope, job: TaskRun) -> str:
    """Return the given name, or the file's name with a free number. Raises UsageError
    if taken.

    Claiming the loop of the first task reserves the name.
    """
    first = job.tasks[0]
    policy = first.policy or job.policy
    head = Head(
        task=first.task,
        goals=list(map(to_document, first.goals or policy.goals)),
        policy=policy_to(policy),
        memory_key=first.key,
    )
    names: Iterable[str] = (f"{_stem(job.path)}-{number}" for number in count(1))
    if job.given:
        names = [job.given]
    for name in names:
        if (await store.read(scope, loops.newest, limit=1, prefix=f"{name}/"))[0]:
            continue
        owner = loops.new_owner()
        with suppress(errors.LeaseLost):
            id = f"{name}/{first.id}"
            claimed = await store.write(scope, loops.claim, id, head, owner)
            if claimed.epoch == 1:
                return name
    message = "add --resume to continue it, or give another name"
    raise errors.UsageError(f"run {job.given!r} exists; {message}")


async def _existing_run(store: Store, scope: Scope, job: TaskRun) -> str:
    """Return the name of the run to continue: the given name, or the newest. Raises
    NotFound.
    """
    stem = _stem(job.path)
    if job.given:
        pattern = re.compile(f"({re.escape(job.given)})/")
        newest, _ = await store.read(
            scope, loops.newest, limit=1, prefix=f"{job.given}/"
        )
    else:
        pattern = re.compile(rf"({re.escape(stem)}-\d+)/")
        newest, _ = await store.read(scope, loops.newest, MAX_LOOPS_OF_FILE, f"{stem}-")
    for stored_loop in newest:
        match = pattern.match(stored_loop.id)
        if match:
            return match[1]
    where = f"{store.url}; leave --resume out to begin it"
    raise errors.NotFound("run", job.given or f"{stem}-…", where)


def _stem(path: Path) -> str:
    return re.sub(r"[^\w.-]", "_", path.stem)[:MAX_RUN_NAME_CHARS] or "tasks"


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
    fresh: Annotated[
        bool, Option("--fresh", help="Delete earlier results first.")
    ] = False,
) -> None:
    """Run tasks with and without memory, and compare the results.

    The prompts do not contain the rule that answers must follow; only a check has it.
    Nothing is faked: the model writes every answer, so another model gives other
    numbers. With --pipeline, a pipeline of checked stages runs instead; the first
    attempts of two stages fail. If you stop the demo, the same command continues it.
    """
    values = settings()
    arguments = call().arguments or ["demo"]
    words = [word for word in arguments if word not in ("--fresh", "--json")]
    again = f"{program()} {shlex.join(words)}"
    if pipeline and (full or tasks):
        raise errors.InvalidInput(
            "--pipeline", "with --full or --tasks", "without both of them"
        )
    out = out or Path("out/pipeline" if pipeline else "out/demo")
    last_words = (
        f"stopped; what is done is kept in {out}. The same command continues:\n  "
        f"{again}"
    )
    if pipeline:
        demo_pipeline = _import_demo("pipeline")
        work = demo_pipeline.run(values, out, fresh)
        result = drive(work, lambda: last_words)
        demo_pipeline.write(result, again, call().json)
        return
    lab = _import_demo("lab")
    plan = lab.plan(tasks, values.model, full=full)
    out.mkdir(parents=True, exist_ok=True)
    work = lab.measure(plan, values, out, fresh, again)
    measured = drive(work, lambda: last_words)
    lab.write(measured, out, call().json)


def _import_demo(name: str) -> Any:
    """Import a module of the demo, which is data of the package and no part of it."""
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


def program() -> str:
    """Return the command that starts heedful: `heedful` if it is on PATH, else `python
    -m …`.
    """
    if which("heedful"):
        return "heedful"
    return f"{shlex.quote(sys.executable)} -m heedful.cli"

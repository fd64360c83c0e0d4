"""`heedful run` drives the tasks of a file as loops; `heedful demo` shows what memory
changes.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Callable, Sequence
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
from heedful.cli import output
from heedful.cli import settings as config
from heedful.cli.output import TextTable, answer, call, counted, following, say
from heedful.cli.tasks import Task, read_tasks
from heedful.drive.drive import Run
from heedful.drive.generate import Writer
from heedful.lessons.lesson import Scope
from heedful.loop import policies
from heedful.loop.codec import policy_to, to_document
from heedful.loop.decide import Policy
from heedful.loop.reach import reach
from heedful.loop.runs import Report
from heedful.pages import write_html
from heedful.sanitize import clean
from heedful.store import loops, runs, shown
from heedful.store.records import Head
from heedful.store.store import Store

MAX_RUN_NAME_CHARS = 200  # characters of a name
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
    """The result of a task. `at_once`: attempt 1 passed. `stopped_by`: a rule, "" if it
    passed.

    `memory` says what memory told, "" without memory.
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
        how = "at once" if self.at_once else f"{self.attempts} attempts"
        why = f", stopped by {self.stopped_by}" if self.stopped_by else ""
        spent = f"calls: {self.calls}, {self.seconds:.1f} s"
        told = f", memory {self.memory}" if self.memory else ""
        return f"{mark} {clean(self.id, 60)}  {how}, {spent}{told}{why}"


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
    settings: config.Settings
    arguments: Sequence[str]
    name: str = ""
    rows: list[TaskResult] = field(default_factory=list)
    page: Path | None = None


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
    what memory told.
    """
    values = config.settings()
    if name is not None and (
        not name.isprintable() or "/" in name or not 0 < len(name) <= MAX_RUN_NAME_CHARS
    ):
        raise errors.InvalidInput(
            "--run", name, f"1 to {MAX_RUN_NAME_CHARS} printable characters without /"
        )
    sys.path.insert(0, str(tasks.parent.resolve()))  # a model may be beside the tasks
    chosen = policies.policy(values.policy)
    arguments = call().arguments or ["run"]
    job = TaskRun(
        path=tasks,
        tasks=read_tasks(tasks),
        policy=chosen,
        given=name,
        resume=resume,
        system=system,
        settings=values,
        arguments=arguments,
    )
    for one in dict.fromkeys(
        [chosen, *(task.policy for task in job.tasks if task.policy)]
    ):
        for found in reach(one, most=1_000):
            if found.proof:
                say(f"warning: policy {one.name or 'of its own'}: {found}")
    failure: errors.HeedfulError | None = None
    try:
        output.drive(_drive(job), lambda: f"interrupted{_how_to_resume(job)}")
    except errors.HeedfulError as error:
        failure = error
    return _report(job, failure)


async def _drive(job: TaskRun) -> None:
    """Run the job. If the model does not open, no run name is taken and no file is
    created.
    """
    values = job.settings
    scope = config.scope_of(job.settings)
    total = len(job.tasks)
    progress = output.progress()
    async with (
        config.model_of(values) as model,
        config.stored(values, new=not job.resume) as store,
    ):
        find = _existing_run if job.resume else _new_run
        job.name = await find(store, scope, job)
        say(
            f"run {job.name}: {counted(total, 'task')}, model {model.name}, {store.url}"
        )
        progress.bar("running", 0, total, f"0/{total}")

        def watch(row: TaskResult) -> None:
            job.rows.append(row)
            number = f"{len(job.rows)}/{total}"
            progress.say(str(row) if progress.live else f"{number} {row}")
            progress.bar("running", len(job.rows), total, number)

        memory = config.memory_of(values, store) if values.memory else None
        writer = Writer(model, job.system, max_tokens=values.max_tokens)
        options: Any = {
            "store": store,
            "scope": scope,
            "memory": memory,
            "generate": writer,
        }
        await _batch(job, watch, **options, timeout=values.timeout)
        found = await runs.stages_of(
            store, scope, job.name, [task.id for task in job.tasks]
        )
        names = {task.id: f"{task.id}: {task.task}" for task in job.tasks}
        stages = (
            replace(found[id].stage_report(job.name), name=names[id]) for id in names
        )
        report = Report(job.path.name, job.name, stages=tuple(stages), noun="task")
        job.page = write_html(report, "reports")


async def _batch(
    job: TaskRun, watch: Callable[[TaskResult], None], **options: Any
) -> None:
    """Drive every task of the job as the loop `run/id`; every `Run` gets the `options`.

    `watch` gets the row of each task that ends. The others continue if user code or an
    answer fails in one task; after any other model error no new task begins. At the end
    the first error is raised, with a note that names its task. A StoreError is raised
    at once.
    """
    failed: dict[str, errors.HeedfulError] = {}
    waiting = iter(job.tasks)

    async def work() -> None:
        for task in waiting:
            try:
                watch(await ended(task, job.name, job.policy, **options))
            except (errors.UserCodeError, errors.ModelError) as error:
                failed[task.id] = error
            if not all(
                isinstance(error, SINGLE_TASK_ERRORS) for error in failed.values()
            ):
                return

    workers = [
        asyncio.create_task(work())
        for _ in range(min(job.settings.jobs, len(job.tasks)))
    ]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    if failed:
        first, *others = (task.id for task in job.tasks if task.id in failed)
        also = (
            f" (nor did {len(others)} more: {', '.join(others[:5])})" if others else ""
        )
        failed[first].add_note(
            f"task {first!r} did not end{also}; all others are stored"
        )
        raise failed[first]


async def ended(task: Task, run: str, policy: Policy, **options: Any) -> TaskResult:
    """Drive a task as the loop `run/id`, by its own policy or else `policy`; return its
    row.
    """
    options |= {"checks": task.checks, "goals": task.goals, "data": task.context}
    options |= {"policy": task.policy or policy, "memory_key": task.key}
    result = await Run[Any](task.task, id=f"{run}/{task.id}", **options).finish()
    attempts = len(result.loop.attempts)
    rule = result.stopped_by[0].rule if result.stopped_by else ""
    shown_memory = result.briefing.summary if result.briefing else ""
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
        stopped_by=rule,
        candidate=result.candidate,
        memory=shown_memory,
    )


def _report(job: TaskRun, failure: errors.HeedfulError | None) -> int:
    """Print the results in the order of the tasks, then `failure`. Return the exit
    code.
    """
    places = {task.id: place for place, task in enumerate(job.tasks)}
    rows = sorted(job.rows, key=lambda row: places[row.id])
    document: dict[str, Any] = {"run": job.name, "db": shown(job.settings.db)}
    address, mark, model = job.settings.model.rpartition("#")
    names = {
        "at_once": "at_once",
        "solved": "passed",
        "calls": "calls",
        "tokens": "tokens",
    }
    counts = {
        key: sum(getattr(row, name) for row in rows) for key, name in names.items()
    }
    seconds = round(sum(row.seconds for row in rows), 3)
    sums = {"tasks": len(rows), **counts, "seconds": seconds}
    document |= {"model": f"{shown(address)}{mark}{model}", **sums}
    document |= {"rows": rows, "report": job.page}
    if failure is None or not call().json:
        failed = [row.loop for row in rows if not row.passed]
        heads = {"": "run", **output.columns(" ".join(sums))}
        table = TextTable(heads, [{"run": job.name, **sums}]) if rows else ""
        page = f"report {job.page}" if rows and job.page is not None else ""
        then = f"\n{following('why', failed[0], db=job.settings.db)}" if failed else ""
        answer(document, table, page, then)
    if failure is None:
        return 0 if all(row.passed for row in rows) else 1
    if not job.name:
        return output.report_error(failure)
    failure.add_note(_how_to_resume(job).lstrip("; "))
    return output.report_error(failure, **document)


def _how_to_resume(job: TaskRun) -> str:
    """Return how to resume the run, as the end of a sentence, or "" if it has not
    begun.
    """
    if not job.name:
        return ""
    kept = [word for word in job.arguments if word not in ("--resume", "--json")]
    name = [] if job.given else ["--run", job.name]
    again = shlex.join(["heedful", *kept, *name, "--resume"])
    return f"; stored results stay; continue with:\n  {again}"


async def _new_run(store: Store, scope: Scope, job: TaskRun) -> str:
    """Return the given name, or the file's name with a free number. Raises UsageError
    if taken.

    Claiming the loop of the first task reserves the name.
    """
    first = job.tasks[0]
    name = job.given
    policy = first.policy or job.policy
    goals = list(map(to_document, first.goals or policy.goals))
    head = Head(
        task=first.task, goals=goals, policy=policy_to(policy), memory_key=first.key
    )
    for free in (
        [name] if name else (f"{_stem(job.path)}-{number}" for number in count(1))
    ):
        if (await store.read(scope, loops.newest, limit=1, prefix=f"{free}/"))[0]:
            continue
        id = f"{free}/{first.id}"
        owner = loops.new_owner()
        with suppress(errors.LeaseLost):
            if (await store.write(scope, loops.claim, id, head, owner)).epoch == 1:
                return free
    what = "add --resume to continue it, or give another name"
    raise errors.UsageError(f"run {name!r} exists; {what}")


async def _existing_run(store: Store, scope: Scope, job: TaskRun) -> str:
    """Return the name of the run to continue: the given name, or the newest. Raises
    NotFound.
    """
    stem = _stem(job.path)
    name = job.given
    begins, most = (f"{name}/", 1) if name else (f"{stem}-", 500)
    form = re.compile(f"({re.escape(name)})/" if name else rf"({re.escape(stem)}-\d+)/")
    found, _ = await store.read(scope, loops.newest, most, begins)
    for one in found:
        if match := form.match(one.id):
            return match[1]
    where = f"{store.url}; leave --resume out to begin it"
    raise errors.NotFound("run", name or f"{stem}-…", where)


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
    values = config.settings()
    words = [
        word
        for word in call().arguments or ["demo"]
        if word not in ("--fresh", "--json")
    ]
    again = f"{program()} {shlex.join(words)}"
    if pipeline and (full or tasks):
        raise errors.InvalidInput(
            "--pipeline", "with --full or --tasks", "without both of them"
        )
    out = out or Path("out/pipeline" if pipeline else "out/demo")
    last = (
        f"stopped; what is done is kept in {out}. The same command continues:\n  "
        f"{again}"
    )
    package = ModuleType(EXAMPLES_PACKAGE)
    package.__path__ = [str(examples_folder())]
    sys.modules.setdefault(EXAMPLES_PACKAGE, package)
    lab: Any = import_module(
        f"{EXAMPLES_PACKAGE}.demo.{'pipeline' if pipeline else 'lab'}"
    )
    if pipeline:
        lab.write(
            output.drive(lab.run(values, out, fresh), lambda: last), again, call().json
        )
        return
    chosen = lab.plan(tasks, values.model, full=full)
    out.mkdir(parents=True, exist_ok=True)
    measured = output.drive(
        lab.measure(chosen, values, out, fresh, again), lambda: last
    )
    lab.write(measured, out, call().json)


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
    return (
        "heedful"
        if which("heedful")
        else f"{shlex.quote(sys.executable)} -m heedful.cli"
    )

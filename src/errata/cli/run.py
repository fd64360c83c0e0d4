"""`errata run`: drive every task of a file, resumably."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from errata.cli.failure import told
from errata.cli.output import Db, Json, print_json, say, short, show, table
from errata.errors import ErrataError

if TYPE_CHECKING:
    from errata.cli.batch import Row
    from errata.cli.progress import FetchProgress
    from errata.cli.settings import Settings
    from errata.cli.tasks import Task
    from errata.loop.decide import Policy
    from errata.protocols import Model, Store

# Options of a run that the command to resume it replaces; both with and without a value of its own.
REPLACED = {"--run": 2, "--resume": 1, "--json": 1}
HEADS = ("", "tasks", "at once", "solved", "calls", "tokens", "seconds")
MOST_LINES = 20


@dataclass(frozen=True)
class Job:
    """One run as the command line asks for it; `arguments` are those of the whole command line."""

    path: Path
    tasks: Sequence[Task]
    name: str | None
    resume: bool
    system: str
    policy: Policy
    seed: int
    settings: Settings
    arguments: Sequence[str]


@dataclass
class Report:
    """What is known so far: the name that the run has, "" before, and the rows of its tasks."""

    name: str = ""
    rows: list[Row] = field(default_factory=list)


Tasks = Annotated[
    Path, typer.Argument(metavar="TASKS", help="A .jsonl, .yaml or .toml file of tasks.")
]
ModelName = Annotated[str | None, typer.Option("--model", help="The model. [embedded]")]
Name = Annotated[
    str | None, typer.Option("--run", help="The name of the run. [file name and a number]")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with a run; without --run, with the newest.")
]
Memory = Annotated[
    bool | None, typer.Option("--memory/--no-memory", help="Learn and recall. [memory]")
]
Preset = Annotated[str | None, typer.Option("--policy", help="A preset: when to stop. [default]")]
Jobs = Annotated[int | None, typer.Option(help="Tasks at once. [1]")]
Timeout = Annotated[float | None, typer.Option(help="Seconds an attempt. [120]")]
MaxTokens = Annotated[int | None, typer.Option(help="Tokens an answer. [256]")]
System = Annotated[str, typer.Option(help="What the model is told first.")]
Goals = Annotated[
    list[str] | None, typer.Option(help='A goal of every task, as "alignment >= 0.75".')
]
Seed = Annotated[int, typer.Option(help="The first seed of the model.")]


def run(
    ctx: typer.Context,
    tasks: Tasks,
    model: ModelName = None,
    db: Db = None,
    name: Name = None,
    resume: Resume = False,
    memory: Memory = None,
    policy: Preset = None,
    jobs: Jobs = None,
    timeout: Timeout = None,
    max_tokens: MaxTokens = None,
    system: System = "",
    goal: Goals = None,
    seed: Seed = 0,
    json: Json = False,
) -> int:
    """Drive every task of a file until it passes or is stopped.

    Exits 0 where all passed and 1 where one did not. Interrupted or killed, it can be resumed: no
    answer that was stored is asked for again.
    """
    from errata.cli.interrupt import drive
    from errata.cli.settings import settings
    from errata.cli.tasks import policy as read_policy

    values = settings(
        model=model,
        db=db,
        memory=memory,
        policy=policy,
        jobs=jobs,
        timeout=timeout,
        max_tokens=max_tokens,
    )
    entries, chosen = _entries(tasks, goal or []), read_policy(values.policy)
    job = Job(tasks, entries, name, resume, system, chosen, seed, values, ctx.obj or ["run"])
    report = Report()
    failure: ErrataError | None = None
    try:
        drive(_driven(job, report), lambda: f"interrupted{_go_on(job, report)}")
    except ErrataError as error:
        failure = error
    return _reported(job, report, failure, json)


def _reported(job: Job, report: Report, failure: ErrataError | None, json: bool) -> int:
    """Show how the tasks ended, in task order, and what failed; the exit code."""
    places = {task.id: place for place, task in enumerate(job.tasks)}
    rows = sorted(report.rows, key=lambda row: places[row.id])
    values = job.settings
    document = {"run": report.name, "db": values.db, "model": values.model, **summary(rows)}
    document["rows"] = [asdict(row) for row in rows]
    if not json and rows:
        _print(rows, report.name, values.db)
    if failure is not None:
        if report.name:
            failure.add_note(_go_on(job, report).lstrip("; "))
        more = document if report.name else {}
        return told(failure, json=json, debug="--debug" in job.arguments, **more)
    if json:
        print_json(document)
    return 0 if all(row.passed for row in rows) else 1


def _go_on(job: Job, report: Report) -> str:
    """How to resume the run, as words that follow others; "" where it did not begin."""
    if not report.name:
        return ""
    return f"; what is stored stays, go on with:\n  {_resume(job.arguments, report.name)}"


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The table's numbers for these rows."""
    return {
        "tasks": len(rows),
        "at_once": sum(row.at_once for row in rows),
        "solved": sum(row.passed for row in rows),
        "calls": sum(row.calls for row in rows),
        "tokens": sum(row.tokens for row in rows),
        "seconds": round(sum(row.seconds for row in rows), 3),
    }


def _entries(path: Path, goals: Sequence[str]) -> list[Task]:
    import sys
    from dataclasses import replace

    from errata.cli.tasks import goal, read_tasks

    # Models and checks are named module:function; a console script does not look here by itself.
    sys.path[:0] = [str(Path.cwd()), str(path.parent.resolve())]
    more = tuple(map(goal, goals))
    return [replace(task, goals=(*task.goals, *more)) for task in read_tasks(path)]


async def _driven(job: Job, report: Report) -> None:
    """The model first: a run that cannot begin takes no name and makes no database."""
    from errata.cli.opening import model_of, stored
    from errata.cli.progress import FetchProgress, TaskProgress

    values, total = job.settings, len(job.tasks)
    with FetchProgress() as fetching:
        async with (
            model_of(values, fetching) as model,
            stored(values, new=not job.resume) as store,
        ):
            report.name = await _named(job, store)
            say(f"run {report.name}: {total} tasks, model {model.name}, {values.db}")
            with TaskProgress(total) as progress:

                def watch(row: Row) -> None:
                    report.rows.append(row)
                    progress(row)

                await _batch(job, report.name, store, model, fetching, watch)


async def _named(job: Job, store: Store) -> str:
    from errata.cli.names import existing, fresh
    from errata.cli.opening import scope_of

    scope = scope_of(job.settings)
    if job.resume:
        return await existing(store, scope, job.path, job.name)
    return await fresh(store, scope, job.path, job.name, job.tasks[0], job.policy)


async def _batch(
    job: Job,
    name: str,
    store: Store,
    model: Model,
    fetching: FetchProgress,
    watch: Callable[[Row], None],
) -> None:
    from errata.cli.batch import batch
    from errata.cli.opening import memory_of, scope_of
    from errata.generate import Writer

    values = job.settings
    await batch(
        job.tasks,
        run=name,
        writer=Writer(model, job.system, max_tokens=values.max_tokens),
        store=store,
        memory=memory_of(values, store, fetching) if values.memory else None,
        scope=scope_of(values),
        policy=job.policy,
        jobs=values.jobs,
        timeout=values.timeout,
        seed=job.seed,
        watch=watch,
    )


def _resume(arguments: Sequence[str], name: str) -> str:
    """The command that goes on with this run: the same options, with its name."""
    kept: list[str] = []
    skip = 0
    for argument in arguments:
        if skip:
            skip -= 1
        elif argument.partition("=")[0] in REPLACED:
            skip = REPLACED[argument.partition("=")[0]] - 1 if "=" not in argument else 0
        else:
            kept.append(argument)
    return shlex.join(["errata", *kept, "--run", name, "--resume"])


def _print(rows: Sequence[Row], name: str, db: str) -> None:
    groups = Counter(row.group for row in rows)
    parts = [(group or "-", [r for r in rows if r.group == group]) for group in groups]
    lines = [(label, *summary(part).values()) for label, part in parts] if len(parts) > 1 else []
    total = [(name, *summary(rows).values())]
    table(HEADS, [(*line[:-1], f"{line[-1]:.1f}") for line in [*lines, *total]])
    failed = [row for row in rows if not row.passed]
    for row in failed[:MOST_LINES]:
        show(f"✗ {short(row.id, 80)}: stopped by {row.stopped_by} after {row.attempts} attempts")
    if failed[MOST_LINES:]:
        show(f"and {len(failed) - MOST_LINES} more")
    if failed:
        more = [] if db == "errata.db" else ["--db", db]
        show(f"\nNext: {shlex.join(['errata', 'why', failed[0].loop, *more])}")

"""`heedful run`: drive every task of a file, resumably."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli.batch import Row
from heedful.cli.interrupt import drive
from heedful.cli.opening import memory_of, model_of, scope_of, stored
from heedful.cli.output import (
    Db,
    Json,
    ModelName,
    counted,
    following,
    print_json,
    say,
    show,
    table,
    told,
)
from heedful.cli.progress import Progress
from heedful.cli.settings import Settings, policy_of, settings
from heedful.cli.tasks import Task
from heedful.errors import HeedfulError, InvalidInput, LeaseLost, NotFound, UsageError
from heedful.lessons.lesson import Scope
from heedful.loop.codec import policy_to, to_document
from heedful.loop.decide import Policy
from heedful.loop.feedback import clean
from heedful.store import loops, shown
from heedful.store.loops import new_owner
from heedful.store.records import Head
from heedful.store.store import Store

LONGEST = 200  # characters of a name
NEWEST = 500  # loops among which a run is looked for
HEADS = ("", "tasks", "at once", "solved", "calls", "tokens", "seconds")
MOST_LINES = 20


@dataclass
class Job:
    """One run as the command line asks for it, and what is known so far.

    `given` is the name that the user gave, `name` the one that the run has, "" before it began;
    `rows` are those of its tasks that have ended. `arguments` are those of the whole command line.
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
    rows: list[Row] = field(default_factory=list)


Tasks = Annotated[
    Path, typer.Argument(metavar="TASKS", help="A .jsonl, .yaml or .toml file of tasks.")
]
Name = Annotated[
    str | None, typer.Option("--run", help="The name of the run. [file name and a number]")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with a run; without --run, with the newest.")
]
Memory = Annotated[
    bool | None, typer.Option("--memory/--no-memory", help="Learn and recall. [memory]")
]
Holdout = Annotated[
    float | None,
    typer.Option(help="Share of recalled lessons withheld, to see if they help. [0.1]"),
]
Preset = Annotated[str | None, typer.Option("--policy", help="A preset: when to stop. [default]")]
Jobs = Annotated[int | None, typer.Option(help="Tasks at once. [1]")]
Timeout = Annotated[float | None, typer.Option(help="Seconds an attempt. [120]")]
MaxTokens = Annotated[int | None, typer.Option(help="Tokens an answer. [256]")]
System = Annotated[str, typer.Option(help="What the model is told first.")]


def run(
    ctx: typer.Context,
    tasks: Tasks,
    model: ModelName = None,
    db: Db = None,
    name: Name = None,
    resume: Resume = False,
    memory: Memory = None,
    holdout: Holdout = None,
    policy: Preset = None,
    jobs: Jobs = None,
    timeout: Timeout = None,
    max_tokens: MaxTokens = None,
    system: System = "",
    json: Json = False,
) -> int:
    """Drive every task of a file until it passes or is stopped.

    Exits 0 where all passed and 1 where one did not. Interrupted or killed, it can be resumed: no
    answer that was stored is asked for again.
    """
    from heedful.cli.tasks import read_tasks

    limits = {"jobs": jobs, "timeout": timeout, "max_tokens": max_tokens}
    learning = {"memory": memory, "holdout": holdout}
    values = settings(model=model, db=db, policy=policy, **learning, **limits)
    # A model is named module:function; a console script does not look here by itself.
    sys.path[:0] = [str(Path.cwd()), str(tasks.parent.resolve())]
    given = name if name is None else _checked(name)
    chosen, arguments = policy_of(policy), ctx.obj or ["run"]
    listed = read_tasks(tasks)
    _warn([chosen, *(task.policy for task in listed if task.policy is not None)])
    job = Job(tasks, listed, chosen, given, resume, system, values, arguments)
    failure: HeedfulError | None = None
    try:
        drive(_driven(job), lambda: f"interrupted{_go_on(job)}")
    except HeedfulError as error:
        failure = error
    return _reported(job, failure, json)


def _warn(policies: Sequence[Policy]) -> None:
    """Tell of rules that can never fire: who set them believes in a guard that is none."""
    from heedful.loop.reach import reach

    told = {
        f"warning: policy {one.name or 'of its own'}: {found}": None
        for one in dict.fromkeys(policies)
        for found in reach(one, most=1_000)
        if found.proof
    }
    for words in told:
        say(words)


async def _driven(job: Job) -> None:
    """The model first: a run that cannot begin takes no name and makes no database."""
    from heedful.cli.batch import batch
    from heedful.drive.generate import Writer

    values, scope, total = job.settings, scope_of(job.settings), len(job.tasks)
    with Progress() as progress:
        async with (
            model_of(values, progress.fetched) as model,
            stored(values, new=not job.resume) as store,
        ):
            if job.resume:
                job.name = await _existing(store, scope, job.path, job.given)
            else:
                first = job.tasks[0]
                job.name = await _fresh(store, scope, job.path, job.given, first, job.policy)
            say(f"run {job.name}: {counted(total, 'task')}, model {model.name}, {store.url}")
            progress.tasks(total, job.rows)

            def watch(row: Row) -> None:
                job.rows.append(row)
                progress.tasks(total, job.rows)

            await batch(
                job.tasks,
                run=job.name,
                policy=job.policy,
                jobs=values.jobs,
                watch=watch,
                generate=Writer(model, job.system, max_tokens=values.max_tokens),
                memory=memory_of(values, store, progress.fetched) if values.memory else None,
                store=store,
                scope=scope,
                timeout=values.timeout,
            )


def _reported(job: Job, failure: HeedfulError | None, json: bool) -> int:
    """Show how the tasks ended, in task order, and what failed; the exit code."""
    places = {task.id: place for place, task in enumerate(job.tasks)}
    rows = sorted(job.rows, key=lambda row: places[row.id])
    values = job.settings
    document = {"run": job.name, "db": shown(values.db), "model": values.model, **summary(rows)}
    document["rows"] = [asdict(row) for row in rows]
    if not json and rows:
        _print(rows, job.name, values.db)
    if failure is not None:
        if job.name:
            failure.add_note(_go_on(job).lstrip("; "))
        debug = "--debug" in job.arguments
        return told(failure, json=json, debug=debug, **(document if job.name else {}))
    if json:
        print_json(document)
    return 0 if all(row.passed for row in rows) else 1


def _go_on(job: Job) -> str:
    """How to resume the run, as words that follow others; "" where it did not begin."""
    if not job.name:
        return ""
    given, kept = iter(job.arguments), ["heedful"]
    for argument in given:
        if argument == "--run":
            next(given, None)
        elif argument.partition("=")[0] not in ("--run", "--resume", "--json"):
            kept.append(argument)
    again = shlex.join([*kept, "--run", job.name, "--resume"])
    return f"; what is stored stays, go on with:\n  {again}"


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


def _print(rows: Sequence[Row], name: str, db: str) -> None:
    groups = dict.fromkeys(row.group for row in rows)
    parts = [(group or "-", [r for r in rows if r.group == group]) for group in groups]
    lines = [*(parts if len(parts) > 1 else []), (name, rows)]
    cells = [(label, *summary(part).values()) for label, part in lines]
    table(HEADS, [(*line[:-1], f"{line[-1]:.1f}") for line in cells])
    failed = [row for row in rows if not row.passed]
    for row in failed[:MOST_LINES]:
        attempts = counted(row.attempts, "attempt")
        show(f"✗ {clean(row.id, 80)}: stopped by {row.stopped_by} after {attempts}")
    if failed[MOST_LINES:]:
        show(f"and {len(failed) - MOST_LINES} more")
    if failed:
        show(f"\n{following('why', failed[0].loop, db=db)}")


def _checked(name: str) -> str:
    """The name that a user gave to a run. Raises InvalidInput."""
    if not 0 < len(name) <= LONGEST or not name.isprintable() or "/" in name:
        raise InvalidInput("--run", name, f"1 to {LONGEST} printable characters without /")
    return name


async def _fresh(
    store: Store, scope: Scope, path: Path, name: str | None, first: Task, policy: Policy
) -> str:
    """The name of a new run: the one given, or the file's with a number that is free.

    It is taken by claiming the loop of the `first` task. Raises UsageError where it exists.
    """
    for free in [name] if name else (f"{_stem(path)}-{number}" for number in count(1)):
        taken = await store.read(scope, loops.newest, 1, f"{free}/")
        if not taken and await _take(store, scope, f"{free}/{first.id}", first, policy):
            return free
    raise UsageError(f"run {name!r} exists; add --resume to go on with it, or give another name")


async def _existing(store: Store, scope: Scope, path: Path, name: str | None) -> str:
    """The name of a run to go on with: the one given, or the file's newest. Raises NotFound."""
    if name is not None:
        found = name if await store.read(scope, loops.newest, 1, f"{name}/") else ""
    else:
        numbered = re.compile(rf"({re.escape(_stem(path))}-\d+)/")
        newest = await store.read(scope, loops.newest, NEWEST, f"{_stem(path)}-")
        found = next((match[1] for one in newest if (match := numbered.match(one.id))), "")
    if not found:
        where = f"{store.url}; leave --resume out to begin it"
        raise NotFound("run", name or f"{_stem(path)}-…", where)
    return found


def _stem(path: Path) -> str:
    return re.sub(r"[^\w.-]", "_", path.stem)[:LONGEST] or "tasks"


async def _take(store: Store, scope: Scope, loop: str, first: Task, policy: Policy) -> bool:
    """Whether the loop of the first task is new, and with it the run."""
    policy = first.policy or policy
    goals = [to_document(goal) for goal in first.goals or policy.goals]
    head = Head(first.task, goals, policy_to(policy))
    try:
        return (await store.write(scope, loops.claim, loop, head, new_owner())).epoch == 1
    except LeaseLost:
        return False

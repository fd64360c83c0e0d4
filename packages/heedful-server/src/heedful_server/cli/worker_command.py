"""`heedful worker`: run the jobs of a service in another process.

On PostgreSQL a worker runs until a signal stops it. The jobs of a SQLite file run in
the process of `heedful serve`; a worker only runs once what waits there.
"""

import asyncio
import logging
import signal
import time
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any

from typer import Context, Option

from heedful.cli.app import group_with_default
from heedful.cli.databases import ask_scope, opened_store, read, removal_seconds
from heedful.cli.printing import (
    answer,
    columns,
    current_command,
    emit,
    following,
    say,
    when,
)
from heedful.cli.resources import (
    allow_imports,
    embedder_of,
    model_here,
    opened_model,
)
from heedful.cli.settings import (
    NO_MODEL,
    Limit,
    Settings,
    Texts,
    number_argument,
    settings,
    warn_of_unknown_variables,
)
from heedful.display import counted
from heedful.errors import UnknownName, UsageError
from heedful.lessons.lesson import Scope
from heedful.models.contract import Model
from heedful.sanitize import clean
from heedful.store import keys, lessons, shown
from heedful.store.store import Store
from heedful.validation import MAX_SHOWN_TEXT_CHARS, Document, require
from heedful_server import failed_jobs
from heedful_server.arrivals import Patience
from heedful_server.cli.logs import Content, Telemetry, exporting, limit_logs
from heedful_server.jobs import (
    JOB_QUEUES,
    LOOP_QUEUE,
    Job,
    JobEvent,
    LocalQueue,
    Opens,
    Tools,
    sweep,
)

if TYPE_CHECKING:
    from heedful_server.worker import PostgresQueue

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def opened_queue(db: str, *, works: bool = False) -> "PostgresQueue":
    """Return the queue of a PostgreSQL database, to open with `async with`."""
    from heedful_server.worker import PostgresQueue  # an extra

    return PostgresQueue(db, works=works)


jobs = group_with_default()
FAILED_JOB_COLUMNS = columns("task project arguments error id at")
Id = Annotated[int | None, number_argument(help="An id from the list.")]
All = Annotated[bool, Option("--all", help="All failed jobs of the tenant.")]


@jobs.callback(invoke_without_command=True)
def list_failed(context: Context, limit: Limit = 50) -> int:
    """List the jobs that failed for good in a tenant, newest first, and why.

    A SQLite file has only those that reflect on a run.
    """
    if context.invoked_subcommand is not None:
        return 0

    return emit(
        read(failed_jobs.newest, limit),
        FAILED_JOB_COLUMNS,
        key="jobs",
        text_columns=4,
        empty="no job has failed for good",
        then=following("worker", "jobs", "retry", all=True),
    )


@jobs.command()
def retry(id: Id = None, is_all: All = False) -> int:
    """Put a failed job back on the queue. It has as many tries as a new job."""
    return _end(
        id,
        is_all,
        again=True,
        words="back on the queue; any worker runs it (on SQLite: heedful worker "
        "--once)",
    )


@jobs.command()
def discard(id: Id = None, is_all: All = False) -> int:
    """Delete a failed job. Its work stays undone."""
    return _end(id, is_all, again=False, words="discarded")


def _end(id: int | None, is_all: bool, *, again: bool, words: str) -> int:
    """End one failed job or all, and say in `words` what was done."""
    require((id is None) == is_all, "ID", id, "the id of a failed job, or --all")

    async def end(store: Store, scope: Scope) -> list[Document]:
        return await store.write(scope, failed_jobs.end, id, again=again)

    ended_jobs = ask_scope(end)
    return answer({"jobs": ended_jobs}, f"{counted(len(ended_jobs), 'job')} {words}")


worker = group_with_default()
worker.add_typer(jobs, name="jobs", help="List failed jobs; retry or discard them.")


@worker.callback(invoke_without_command=True)
def run_jobs(
    context: Context,
    queues: Annotated[str, Option(help="Names, such as loops,memory. [all]")] = "",
    concurrency: Annotated[int, Option(min=1, max=256, help="Jobs at a time.")] = 2,
    once: Annotated[
        bool, Option("--once", help="Do what waits and failed reflections, then exit.")
    ] = False,
    drives: Annotated[
        Texts, Option(help="Loops to drive: name=module:function.")
    ] = None,
    telemetry: Telemetry = False,
    telemetry_content: Content = False,
) -> int:
    """Run the jobs that services put on the queue.

    Jobs reflect on episodes, embed examples, dream, prune, expire old loops, compute
    the proof, or drive loops. Any number of workers can share one PostgreSQL
    database. After SIGTERM, running jobs may finish. If a worker is killed, another
    worker repeats its job.
    Workers dream from time to time, unless HEEDFUL_REFLECTION_MODE is lite. They
    neither reflect nor dream if HEEDFUL_REFLECTION_ENABLED is false.
    """
    if context.invoked_subcommand is not None:
        return 0
    values = settings().with_one_model()
    queue_names = [name.strip() for name in queues.split(",") if name.strip()]
    _check_options(values, queue_names, once=once, drives=drives)

    # Failures are printed by the listener.
    logging.getLogger("heedful").addHandler(logging.NullHandler())
    limit_logs()
    allow_imports(Path.cwd())
    loops = dict(map(_import_loop, drives or ()))
    warn_of_unknown_variables()
    with exporting(telemetry, telemetry_content):
        work = _run(
            values,
            queues=queue_names or None,
            concurrency=concurrency,
            once=once,
            loops=loops,
            names_model="model" in current_command().options
            and values.model != NO_MODEL,
        )
        return asyncio.run(_until_signal(work))


def _check_options(
    values: Settings, queue_names: Sequence[str], *, once: bool, drives: Texts
) -> None:
    """Check the options of a worker before anything is opened. Raises UsageError."""
    removal_seconds(values)
    for name in set(queue_names).difference(JOB_QUEUES):
        raise UnknownName("queue", name, JOB_QUEUES)
    if not (once or values.is_on_server):
        raise UsageError(
            f"{clean(values.db, MAX_SHOWN_TEXT_CHARS)} is a SQLite file, whose jobs "
            "run inside heedful serve; heedful worker --once runs the waiting jobs; "
            "other workers need a postgresql:// URL"
        )
    if queue_names == [LOOP_QUEUE] and not drives:
        raise UsageError(
            f"--queues is {LOOP_QUEUE}, but this worker drives no loops; add --drives "
            "name=module:function"
        )


@dataclass
class JobCounts:
    """A listener that counts and prints the results of jobs."""

    done: int = 0
    given_up: int = 0

    def __call__(self, job: Job, event: JobEvent, words: str) -> None:
        """Count and print what happened to a job; that it has begun is not printed."""
        if event == "begun":
            return
        if event == "done":
            self.done += 1
        elif event == "given up":
            self.given_up += 1

        arguments = [f" {n}={value[:16]}" for n, value in sorted(job.arguments.items())]
        line = (
            f"{when(time.time())} {job.scope} {job.task}{''.join(arguments)}: {words}"
        )
        say(clean(line, MAX_SHOWN_TEXT_CHARS))


async def _run(
    values: Settings,
    *,
    queues: Collection[str] | None,
    concurrency: int,
    once: bool,
    loops: Mapping[str, Opens],
    names_model: bool,
) -> int:
    """Run jobs until cancelled, or with `once` until no job waits.

    `queues` None means all. With `names_model`, a command line names the model, so its
    weights may be downloaded. Return the exit code.
    """
    is_on_server = values.is_on_server
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened_store(values))
        # The first statement connects: it fails here if no database answers.
        await store.read(Scope(), keys.any_key)
        if names_model:
            model: Model | None = await stack.enter_async_context(opened_model(values))
        else:
            model = model_here(values)
            if model is not None:
                stack.push_async_callback(model.close)
        tools = tools_of(values, store, model, loops=loops)

        if not once:
            say(
                f"runs the jobs of {shown(values.db)}, "
                f"{counted(concurrency, 'job')} at a time; Ctrl-C or SIGTERM ends it"
            )
        model_name = "none: rules write the lessons" if model is None else model.name
        say(f"model: {model_name}")
        if is_on_server:
            loop_names = ", ".join(loops) or "none; --drives name=module:function"
            say(f"loops: {loop_names}")

        counts = JobCounts()
        try:
            if is_on_server:
                queue = opened_queue(values.db, works=True)
                await stack.enter_async_context(queue)
                await queue.work(
                    tools,
                    queues=queues,
                    concurrency=concurrency,
                    once=once,
                    listener=counts,
                )
            else:
                await _run_once(
                    LocalQueue(
                        tools, queues=queues, concurrency=concurrency, listener=counts
                    ),
                    tools,
                )
        finally:
            say(f"{counted(counts.done, 'job')} done, {counts.given_up} given up")
    return 1 if counts.given_up else 0


async def _run_once(queue: LocalQueue, tools: Tools) -> None:
    """Run the waiting jobs of a SQLite file once."""
    await sweep(queue, tools, failed=True)

    if tools.embedder:
        for scope in await tools.store.read(Scope(), lessons.scopes):
            await queue.defer("embed", scope)

    await queue.drain()


def tools_of(
    values: Settings,
    store: Store,
    model: Model | None,
    *,
    loops: Mapping[str, Opens] = {},
    pause: Callable[[], Awaitable[None]] | None = None,
) -> Tools:
    """Return what jobs work with, as the settings have it. Raises UsageError."""
    unused_for, ended_for = removal_seconds(values)
    return Tools(
        store=store,
        model=model,
        embedder=embedder_of(values),
        holdout=values.holdout,
        max_entries=values.max_entries,
        strict=values.strict,
        trust=values.trust,
        enabled=values.reflection_enabled,
        mode=values.reflection_mode,
        patience=Patience(values.settled),
        loops=loops,
        pause=pause,
        unused_for=unused_for,
        ended_for=ended_for,
    )


async def _until_signal(work: Coroutine[Any, Any, int]) -> int:
    """Return the result of `work`, or 0 after a signal.

    A second signal ends the process at once.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)

    def stop(name: str) -> None:
        """Let jobs end, and give the signals their default meaning again."""
        say(f"{name}: no new job begins, running jobs may finish; again: exit now")
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
        task.cancel()

    for number in STOP_SIGNALS:
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, partial(stop, number.name))

    try:
        return await task
    except asyncio.CancelledError:
        return 0


def _import_loop(text: str) -> tuple[str, Opens]:
    """Split `name=module:function`, and import the function. Raises UsageError."""
    name, _, path = text.partition("=")
    if not name or not all(path.partition(":")):
        raise UsageError(f"--drives is {text!r}; it must be name=module:function")
    try:
        return name, resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"--drives {text}: {error}; name an importable function"
        ) from error

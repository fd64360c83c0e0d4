"""`heedful worker`: runs the jobs of services, together with any number of other workers."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli.loops import seconds
from heedful.cli.output import MOST, Db, counted, say
from heedful.cli.progress import Progress
from heedful.cli.serve import Content, Telemetry, exporting, report_lost_database
from heedful.cli.settings import (
    Settings,
    describe_writer,
    embedder_of,
    model_here,
    model_of,
    settings,
    stored,
)
from heedful.compat.reflections import Reflections
from heedful.errors import UnknownName, UsageError
from heedful.lessons.lesson import Scope
from heedful.loop.record import clean
from heedful.models.contract import Model
from heedful.service.jobs import QUEUES, Job, LocalQueue, Opens, Tools, sweep
from heedful.store import POSTGRES, lessons, shown

KILLED = 143  # the exit code of a process that SIGTERM ended
WORDS = 200


def worker(
    db: Db = None,
    queues: Annotated[
        str, typer.Option(help="Only these, as loops,reflection,memory. [all]", show_default=False)
    ] = "",
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Jobs at a time.")] = 2,
    once: Annotated[bool, typer.Option("--once", help="Do what waits, then end.")] = False,
    model: Annotated[
        str | None, typer.Option("--model", help="A model that words lessons. [setting model]")
    ] = None,
    drives: Annotated[
        list[str] | None,
        typer.Option(help="A loop it may drive: name=module:function.", show_default=False),
    ] = None,
    unused_for: Annotated[
        str | None, typer.Option(help="Prune, nightly, what was not used for so long: 180d.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option(min=0, max=MOST, help="Prune, nightly, all but so many lessons.")
    ] = None,
    telemetry: Telemetry = False,
    telemetry_content: Content = False,
) -> int:
    """Do the jobs of services.

    Reflect, embed, dream, prune, prove and drive loops. Any number of workers share the jobs of one
    PostgreSQL. SIGTERM lets running jobs finish; another worker repeats the job of a killed worker.
    It dreams by itself unless HEEDFUL_REFLECTION_MODE is lite. It neither reflects nor dreams if
    HEEDFUL_REFLECTION_ENABLED is false.
    """
    values = settings(db=db, model=model)
    logging.getLogger("heedful").addHandler(logging.NullHandler())  # failures are printed below
    report_lost_database()
    sys.path.insert(0, str(Path.cwd()))  # models and loops may be named module:function
    limits: dict[str, Any] = {
        "loops": dict(map(_loop, drives or ())),
        "unused_for": None if unused_for is None else seconds("--unused-for", unused_for),
        "keep": keep,
        **asdict(Reflections.of(os.environ)),
    }
    options = {"queues": _queues(queues), "concurrency": concurrency, "once": once}
    with exporting(telemetry, telemetry_content), Progress() as progress:
        return asyncio.run(_until_signal(_work(values, bool(model), limits, options, progress)))


async def _work(
    values: Settings,
    asks: bool,
    limits: Mapping[str, Any],
    options: Mapping[str, Any],
    progress: Progress,
) -> int:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(stored(values))
        if asks:  # otherwise nothing is fetched
            model: Model | None = await stack.enter_async_context(
                model_of(values, progress.fetched)
            )
        elif (model := model_here(values)) is not None:
            stack.push_async_callback(model.close)
        embedder = embedder_of(values, progress.fetched)
        tools = Tools(store, model, embedder, values.holdout, values.max_entries, **limits)
        journal = _Journal(progress)
        work = _on_queue if values.db.startswith(POSTGRES) else _on_file
        try:
            await work(values.db, tools, options, journal)
        except asyncio.CancelledError:
            journal.sum_up()
            raise
        journal.sum_up()
        return 1 if journal.failed else 0


class _Journal:
    """Prints the result of each job, and counts the results."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.done = self.failed = 0

    def __call__(self, job: Job, what: str) -> None:
        self.done += what.startswith("done")
        self.failed += what.startswith("given up")
        if what == "begun":
            return
        given = (f"{name}={value[:16]}" for name, value in sorted(job.arguments.items()))
        about = " ".join([f"{job.scope.tenant}/{job.scope.project}", job.task, *given])
        self._progress.say(clean(f"{about}: {what}", WORDS))

    def sum_up(self) -> None:
        """Print the number of jobs."""
        self._progress.say(f"{counted(self.done, 'job')} done, {self.failed} given up")


async def _on_queue(url: str, tools: Tools, options: Mapping[str, Any], journal: _Journal) -> None:
    from heedful.service.worker import PostgresQueue

    async with PostgresQueue(url) as queue:
        if not options["once"]:
            many = counted(options["concurrency"], "job")
            say(f"works for {shown(url)}, {many} at a time; Ctrl-C or SIGTERM ends it")
        say(f"model: {describe_writer(tools.model)}")
        await queue.work(tools, listener=journal, **options)


async def _on_file(db: str, tools: Tools, options: Mapping[str, Any], journal: _Journal) -> None:
    if not options["once"]:
        raise UsageError(
            f"{clean(db, WORDS)} is a SQLite file, whose work is done in the process of heedful "
            "serve; heedful worker --once does what waits, and workers need a postgresql:// URL"
        )
    say(f"model: {describe_writer(tools.model)}")
    given = {"concurrency": options["concurrency"], "queues": options["queues"]}
    work = LocalQueue(tools, listener=journal, **given)
    await sweep(work, tools)
    for scope in await tools.store.read(Scope(), lessons.scopes) if tools.embedder else ():
        await work.defer("embed", scope)
    await work.drain()


async def _until_signal(work: Coroutine[Any, Any, int]) -> int:
    """Return the result of the work, or 0 after a signal; the second signal exits at once."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    received: list[str] = []

    def stop(name: str) -> None:
        if received:
            os._exit(KILLED)
        received.append(name)
        say(f"{name}: begins nothing new; running jobs may finish, or press again")
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, partial(stop, number.name))
    try:
        return await task
    except asyncio.CancelledError:
        if not received:
            raise
        return 0


def _queues(text: str) -> Sequence[str] | None:
    """Parse a list of queues with commas; None for all. Raises UnknownName."""
    names = [one.strip() for one in text.split(",") if one.strip()]
    for name in names:
        if name not in QUEUES:
            raise UnknownName("queue", name, QUEUES)
    return names or None


def _loop(text: str) -> tuple[str, Opens]:
    """Import the function in `name=module:function`. Raises UsageError."""
    name, _, path = text.partition("=")
    module, _, attribute = path.partition(":")
    if not (name and module and attribute):
        raise UsageError(f"--drives is {text!r}; it must be name=module:function")
    try:
        found: Any = import_module(module)
    except ImportError as error:
        raise UsageError(f"--drives {text}: {error}; run it where the module is") from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise UsageError(f"--drives {text}: {module} has no function {attribute}")
    opens: Callable[..., Any] = found
    return name, opens

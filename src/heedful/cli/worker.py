"""`heedful worker`: does what services hand over, beside any number of others."""

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

from heedful.cli.exporting import Content, Telemetry, exporting
from heedful.cli.opening import embedder_of, model_here, model_of, stored, wording
from heedful.cli.output import MOST, Db, counted, say
from heedful.cli.override import seconds
from heedful.cli.progress import Progress
from heedful.cli.settings import Settings, settings
from heedful.errors import UnknownName, UsageError
from heedful.lessons.lesson import Scope
from heedful.loop.feedback import clean
from heedful.models.contract import Model
from heedful.service.jobs import Job, Opens, Tools
from heedful.store import POSTGRES, lessons, shown
from heedful.telemetry import LogThrottle

KILLED = 143  # as of a process that SIGTERM ended
WORDS = 200
DRIVERS = ("psycopg.pool", "procrastinate.utils")


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
    """Reflect, embed, dream, prune, prove and drive loops: what services hand over.

    Any number of workers share the work of one PostgreSQL. SIGTERM lets what runs finish; what a
    killed worker had begun is done by another. Dreams by itself unless HEEDFUL_REFLECTION_MODE is
    lite; neither reflects nor dreams where HEEDFUL_REFLECTION_ENABLED is false.
    """
    values = settings(db=db, model=model)
    logging.getLogger("heedful").addHandler(logging.NullHandler())  # what fails is told below
    away()
    sys.path.insert(0, str(Path.cwd()))  # models and loops may be named module:function
    given: dict[str, Any] = {
        "loops": dict(map(_drives, drives or ())),
        "unused_for": None if unused_for is None else seconds("--unused-for", unused_for),
        "keep": keep,
        **_reflections(),
    }
    options = {"queues": _queues(queues), "concurrency": concurrency, "once": once}
    with exporting(telemetry, telemetry_content), Progress() as progress:
        return asyncio.run(_until_asked(_worked(values, bool(model), given, options, progress)))


async def _worked(
    values: Settings,
    asks: bool,
    given: Mapping[str, Any],
    options: Mapping[str, Any],
    progress: Progress,
) -> int:
    from heedful.service.jobs import Tools

    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(stored(values))
        if asks:  # else nothing is fetched
            model: Model | None = await stack.enter_async_context(
                model_of(values, progress.fetched)
            )
        elif (model := model_here(values)) is not None:
            stack.push_async_callback(model.close)
        embedder = embedder_of(values, progress.fetched)
        tools = Tools(store, model, embedder, values.holdout, values.max_entries, **given)
        heard = _Heard(progress)
        try:
            if values.db.startswith(POSTGRES):
                await _queued(values.db, tools, options, heard)
            else:
                await _inside(values.db, tools, options, heard)
        except asyncio.CancelledError:
            heard.sum_up()
            raise
        heard.sum_up()
        return 1 if heard.failed else 0


class _Away(logging.Handler):
    """Says once a minute that the database is away, which drivers log again and again."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said = LogThrottle()

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, unless it was said just now."""
        if self._said.allows("away"):
            say("the database does not answer; it is waited for, nothing has to be restarted")


AWAY = _Away()


def away() -> None:
    """Have the loss of the database told in a line, in place of what its drivers log of it."""
    for driver in DRIVERS:
        logging.getLogger(driver).addHandler(AWAY)


class _Heard:
    """What became of jobs, a line each."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.done = self.failed = 0

    def __call__(self, job: Job, what: str) -> None:
        """One thing that became of a job."""
        self.done += what.startswith("done")
        self.failed += what.startswith("given up")
        if what == "begun":
            return
        given = (f"{name}={value[:16]}" for name, value in sorted(job.arguments.items()))
        about = " ".join([f"{job.scope.tenant}/{job.scope.project}", job.task, *given])
        self._progress.say(clean(f"{about}: {what}", WORDS))

    def sum_up(self) -> None:
        """Say how many there were."""
        self._progress.say(f"{counted(self.done, 'job')} done, {self.failed} given up")


async def _queued(url: str, tools: Tools, options: Mapping[str, Any], heard: _Heard) -> None:
    from heedful.service.worker import Queued

    async with Queued(url) as queue:
        if not options["once"]:
            many = counted(options["concurrency"], "job")
            say(f"works for {shown(url)}, {many} at a time; Ctrl-C or SIGTERM ends it")
        say(f"model: {wording(tools.model)}")
        await queue.work(tools, told=heard, **options)


async def _inside(db: str, tools: Tools, options: Mapping[str, Any], heard: _Heard) -> None:
    from heedful.service.jobs import sweep
    from heedful.service.worker import Inside

    if not options["once"]:
        raise UsageError(
            f"{clean(db, WORDS)} is a SQLite file, whose work is done in the process of heedful "
            "serve; heedful worker --once does what waits, and workers need a postgresql:// URL"
        )
    say(f"model: {wording(tools.model)}")
    given = {"concurrency": options["concurrency"], "queues": options["queues"]}
    work = Inside(tools, told=heard, **given)
    await sweep(work, tools)
    for scope in await tools.store.read(Scope(), lessons.scopes) if tools.embedder else ():
        await work.defer("embed", scope)
    await work.drain()


async def _until_asked(work: Coroutine[Any, Any, int]) -> int:
    """What the work answers; 0 where a signal ends it, the second one at once."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    asked: list[str] = []

    def stop(name: str) -> None:
        if asked:
            os._exit(KILLED)
        asked.append(name)
        say(f"{name}: begins nothing new; what runs may finish, or press again")
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, partial(stop, number.name))
    try:
        return await task
    except asyncio.CancelledError:
        if not asked:
            raise
        return 0


def _queues(text: str) -> Sequence[str] | None:
    """The queues of a list with commas; None for all. Raises UnknownName."""
    from heedful.service.jobs import QUEUES

    names = [one.strip() for one in text.split(",") if one.strip()]
    for name in names:
        if name not in QUEUES:
            raise UnknownName("queue", name, QUEUES)
    return names or None


def _drives(text: str) -> tuple[str, Opens]:
    """What `name=module:function` names. Raises UsageError."""
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


def _reflections() -> dict[str, Any]:
    """Whether it reflects and dreams, and how. Raises InvalidInput."""
    from heedful.compat.reflections import Reflections

    return asdict(Reflections.of(os.environ))

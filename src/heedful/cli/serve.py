"""`heedful serve`, `ui` and `mcp`: the service, its pages, and its tools for agents.

All three run the same application on one store. Only `heedful serve` runs jobs in its
own process, and only on a SQLite file; otherwise they wait for `heedful worker`.
"""

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

from typer import Option

from heedful.checks.loading import load
from heedful.cli.databases import check_database, db_exists, opened_store
from heedful.cli.logs import Content, Telemetry, exporting, log_to_stderr
from heedful.cli.output import following, page, say, show
from heedful.cli.resources import (
    embedder_of,
    judge_doubt,
    judging,
    model_here,
    open_here,
)
from heedful.cli.settings import (
    Settings,
    ended_seconds,
    scope_of,
    seconds_if_given,
    settings,
    warn_of_unknown_variables,
)
from heedful.errors import ModelError, PackageMissing, UsageError
from heedful.lessons.lesson import Scope
from heedful.loop.policies import LoopLimits, policy
from heedful.memory.arrivals import Patience
from heedful.memory.memory import log_failure
from heedful.memory.vectors import load_embedder
from heedful.pipeline.thresholds import read_settings
from heedful.service.jobs import LocalQueue, Tools, Work
from heedful.service.setup import RequestLimits, Setup
from heedful.store import POSTGRES_PREFIXES, keys, shown
from heedful.store.store import Store

DEFAULT_LOCAL_JOBS = 2  # at a time, where the store is a SQLite file
SERVICE_PACKAGES = ("fastapi", "uvicorn", "httptools", "prometheus_client")
PAGES_HOST = "127.0.0.1"
PAGES_DRAIN_SECONDS = 1.0
# A job waits for requests for at most a second: this often, and this long each time.
MAX_JOB_PAUSES = 50
JOB_PAUSE_SECONDS = 0.02
# New objects until Python looks for garbage. With the default of 700 it looks so often
# while it reads a large body that everybody waits for a second.
GARBAGE_THRESHOLD_OBJECTS = 50_000
# How long another thread may go on while the event loop waits to run. It waits several
# times in each request. With Python's 0.005 a light request took 20 ms and more during
# a long computation.
THREAD_SWITCH_SECONDS = 0.0005


def serve(telemetry: Telemetry = False, telemetry_content: Content = False) -> int:
    """Serve heedful over HTTP until SIGTERM or Ctrl-C.

    If no key exists, the service listens on this machine only, and every caller may do
    everything. As soon as `heedful key create` has created a key, callers need one.
    """
    values = settings().with_one_model()

    if values.workers and values.db.startswith(POSTGRES_PREFIXES):
        raise UsageError(
            f"workers is {values.workers}, but on PostgreSQL no work is done in the "
            f"service's process; start heedful worker --concurrency {values.workers}"
        )

    # On PostgreSQL only workers use them, and they would not start.
    seconds_if_given("forget", values.forget)
    ended_seconds("forget_loops", values.forget_loops)

    _check_packages("heedful serve", "server", SERVICE_PACKAGES)
    warn_of_unknown_variables()
    with exporting(telemetry, telemetry_content):
        return _until_stopped(_serve(values))


def ui(
    read_only: Annotated[bool, Option("--read-only", help="Change nothing.")] = False,
    no_browser: Annotated[
        bool, Option("--no-browser", help="Only print the address.")
    ] = False,
) -> int:
    """Look at loops, lessons and proof in the browser, and review them.

    It shows the database of this folder, on this machine only, and creates one if there
    is none. The printed address contains a token that signs you in once.
    """
    _check_packages("heedful ui", "ui", SERVICE_PACKAGES)
    return _until_stopped(
        _show_pages(
            settings().with_one_model(), read_only=read_only, browser=not no_browser
        )
    )


def show_pages_of(db: str) -> int:
    """Show the pages of a database in the browser, as `heedful ui --db` does."""
    values = replace(settings().with_one_model(), db=db)
    return _until_stopped(_show_pages(values, read_only=False, browser=True))


def missing_package(packages: Sequence[str] = SERVICE_PACKAGES) -> str | None:
    """Return the first of the packages that is not installed."""
    return next((name for name in packages if find_spec(name) is None), None)


def mcp() -> int:
    """Serve heedful's tools to an agent over MCP, on standard input and output.

    The agent recalls lessons, looks up errors, and reports attempts. What it sends has
    the source agent:mcp. `heedful serve` has the same tools at /mcp.
    """
    _check_packages("heedful mcp", "mcp", ("mcp", "fastapi", "prometheus_client"))
    asyncio.run(_mcp(settings().with_one_model()))
    return 0


def _check_packages(purpose: str, extra: str, packages: Sequence[str]) -> None:
    """Raise PackageMissing, with the extra that installs it, for a missing package."""
    package = missing_package(packages)
    if package is not None:
        raise PackageMissing(purpose, package, extra)


def _until_stopped(work: Coroutine[Any, Any, None]) -> int:
    """Run the service until it ends by itself after a signal.

    Unlike asyncio.run, this does not wait for threads that are still running.
    """
    from heedful.service.server import HAS_FAST_EXTRA

    loop_package = import_module("uvloop" if HAS_FAST_EXTRA else "asyncio")
    loop = loop_package.new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    show("stopped; the store is closed")
    return 0


async def _serve(values: Settings) -> None:
    """Serve requests and run jobs until a signal."""
    from heedful.service.app import application
    from heedful.service.server import bound, listen, loopback, url_of
    from heedful.web import add_pages

    async with opened_store(values, new=True) as store:
        # The first statement connects: it fails here if the database does not answer.
        has_key = await store.read(Scope(), keys.any_key)

        with bound(values.host, values.port) as listener:
            is_local = loopback(listener)
            url = url_of(listener)
            _check_keys(values, url, has_key=has_key, is_local=is_local)

            setup = setup_of(values, store)
            setup = replace(setup, open=is_local and not values.key_required)
            async with working(values, setup) as work:
                app = application(replace(setup, work=work))
                site = add_pages(app)
                log_to_stderr()

                hello = _hello(values, setup, url, has_key)
                await _load_embedder(setup)
                rest_garbage_collection()
                sys.setswitchinterval(THREAD_SWITCH_SECONDS)
                await listen(
                    app,
                    listener,
                    values.drain,
                    ready=lambda: show(hello),
                    stopping=site.end_streams,
                )


async def _load_embedder(setup: Setup) -> None:
    """Load the embedder, so that no request waits for it; log it if this fails."""
    try:
        await load_embedder(setup.memory(setup.scope).embedder)
    except ModelError as error:
        log_failure("heedful could not load the embedder", error)


def _check_keys(values: Settings, url: str, *, has_key: bool, is_local: bool) -> None:
    """Raise UsageError if nobody could call the service, or anybody could."""
    if has_key:
        return

    if not is_local:
        raise UsageError(
            f"there is no key yet, and anybody who reaches {url} could do everything; "
            "make a key (heedful key create --name …), or listen on --host 127.0.0.1"
        )
    if values.key_required:
        raise UsageError(
            "there is no key yet, and --key-required needs one: heedful key create"
        )


def rest_garbage_collection() -> None:
    """Leave out of garbage collection what the service has imported, and collect
    rarely.
    """
    gc.freeze()
    _, second, third = gc.get_threshold()
    gc.set_threshold(GARBAGE_THRESHOLD_OBJECTS, second, third)


async def _show_pages(values: Settings, *, read_only: bool, browser: bool) -> None:
    """Serve the pages on this machine until a signal, and open them in the browser."""
    import webbrowser

    from heedful.service.app import application
    from heedful.service.server import bound, listen, url_of
    from heedful.web import add_pages

    is_new = not db_exists(values.db)
    # Who may change nothing makes no file.
    check_database(values.db, new=not read_only)

    say("starting …")
    other_port = "another --port (it may be heedful ui)"
    # The port comes first: without one, no file is made.
    with bound(PAGES_HOST, values.port, other_port) as listener:
        async with opened_store(values, new=not read_only) as store:
            # The first statement fails here if the file is not a database.
            await store.read(Scope(), keys.any_key)

            setup = setup_of(values, store)
            async with working(_without_workers(values), setup) as work:
                app = application(replace(setup, work=work))
                site = add_pages(app, read_only)

                def address(token: str) -> str:
                    """Return the address that signs one browser in."""
                    return f"{url_of(listener)}/ui/open?token={token}"

                url = address(site.sessions.invite())
                site.invites = lambda token: show(f"or once at {address(token)}")

                def ready() -> None:
                    """Print the address, and open it."""
                    lines = [f"heedful shows {shown(values.db)} at {url}"]
                    if is_new:
                        hint = "the page says how to fill it"
                        lines.append(f"created {values.db}; {hint}")
                    lines.append("Ctrl-C ends it")
                    show("\n".join(lines))
                    if browser:
                        webbrowser.open(url)

                rest_garbage_collection()
                await listen(
                    app,
                    listener,
                    PAGES_DRAIN_SECONDS,
                    ready=ready,
                    stopping=site.end_streams,
                )


async def _mcp(values: Settings) -> None:
    """Answer an agent until it closes standard input."""
    from heedful.integrations.mcp import server_of
    from heedful.service.app import application
    from heedful.service.auth import local

    async with opened_store(values, new=True) as store:
        # Each agent has a process of its own, and a local queue expects to be alone on
        # its store.
        setup = setup_of(values, store)
        async with working(_without_workers(values), setup) as work:
            setup = replace(setup, work=work)
            server = server_of(application(setup), local(setup), values.db)
            await server.run_stdio_async()


def _without_workers(values: Settings) -> Settings:
    """Return the settings with which no job runs in this process."""
    return replace(values, workers=0)


def setup_of(values: Settings, store: Store) -> Setup:
    """Create the setup of the service from the settings. Raises UsageError."""
    model = model_here(values)
    judge = model if values.judge == values.model else None
    if judge is None:
        judge = open_here(judging(values))

    return Setup(
        store=store,
        scope=scope_of(values),
        model=model,
        judge=judge,
        embedder=embedder_of(values),
        holdout=values.holdout,
        max_entries=values.max_entries,
        strict=values.strict,
        trust=values.trust,
        policy=policy(values.policy),
        checks={name: load(spec) for name, spec in values.checks.items()},
        pins=values.pins,
        limits=RequestLimits(
            body=values.body,
            traces=values.traces,
            rate=values.rate,
            outcomes=values.outcomes,
        ),
        reflections=values.reflection_enabled,
        root_path=values.root_path or "",
        guardrails=read_settings(LoopLimits, os.environ, {}),
    )


@asynccontextmanager
async def working(values: Settings, setup: Setup) -> AsyncIterator[Work]:
    """Open the service's job queue: in PostgreSQL, or in this process on SQLite.

    Without workers in this process, the jobs wait. At the end the models are closed.
    """
    jobs = DEFAULT_LOCAL_JOBS if values.workers is None else values.workers
    if values.db.startswith(POSTGRES_PREFIXES):
        from heedful.service.worker import PostgresQueue

        async with PostgresQueue(values.db) as server_queue:
            yield server_queue
    elif not jobs:
        yield Work()
    else:
        async with LocalQueue(_local_tools(values, setup), concurrency=jobs) as queue:
            yield queue

    for model in (setup.model, setup.judge):
        if model is not None:
            await model.close()


def _local_tools(values: Settings, setup: Setup) -> Tools:
    """Return the tools of jobs in the service's own process."""

    async def pause() -> None:
        """Let requests come first, for up to a second."""
        for _ in range(MAX_JOB_PAUSES):
            if setup.metrics.running:
                await asyncio.sleep(JOB_PAUSE_SECONDS)

    return Tools(
        store=setup.store,
        model=setup.model,
        embedder=setup.embedder,
        holdout=setup.holdout,
        max_entries=setup.max_entries,
        strict=setup.strict,
        trust=setup.trust,
        enabled=values.reflection_enabled,
        mode=values.reflection_mode,
        unused_for=seconds_if_given("forget", values.forget),
        ended_for=ended_seconds("forget_loops", values.forget_loops),
        patience=Patience(values.settled),
        pause=pause,
    )


def _hello(values: Settings, setup: Setup, url: str, has_key: bool) -> str:
    """Return what the service prints when it begins."""
    from heedful import __version__
    from heedful.service.server import HAS_FAST_EXTRA

    return page(
        "serve",
        version=__version__,
        has_key=has_key,
        then=following("key", "create", "--name", "NAME", db=values.db),
        store=shown(values.db),
        server=values.db.startswith(POSTGRES_PREFIXES),
        url=url,
        model=setup.model,
        judge=values.judge,
        doubt=judge_doubt(values),
        pins=values.pins,
        fast=HAS_FAST_EXTRA,
    )

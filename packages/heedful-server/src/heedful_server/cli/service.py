"""The service in this process: its requests, its pages and its jobs."""

import asyncio
import ctypes
import gc
import os
import sys
import webbrowser
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

from fastapi import FastAPI

from heedful import __version__
from heedful.checks.evaluate import Check
from heedful.checks.loading import load, names_code
from heedful.cli.databases import check_database, db_exists, opened_store
from heedful.cli.printing import current_command, following, page, say, show
from heedful.cli.resources import (
    allow_imports,
    embedder_of,
    judge_doubt,
    judging,
    model_here,
    open_here,
)
from heedful.cli.settings import NO_MODEL, Settings, folder_of_code, scope_of
from heedful.errors import UsageError
from heedful.lessons.lesson import Scope
from heedful.loop.policies import LoopLimits, policy
from heedful.pipeline.thresholds import read_settings
from heedful.store import keys, shown
from heedful.store.store import Store
from heedful.validation import Fields
from heedful_server.app import application
from heedful_server.auth import Caller, local
from heedful_server.cli.logs import log_to_stderr
from heedful_server.cli.worker_command import opened_queue, tools_of
from heedful_server.jobs import DEFAULT_CONCURRENCY, LocalQueue, Work
from heedful_server.server import HAS_FAST_EXTRA, bound, listen, loopback, url_of
from heedful_server.setup import RequestLimits, Setup
from heedful_server.web.site_map import add_pages

PAGES_HOST = "127.0.0.1"
# A job waits for requests for at most a second: this often, and this long each time.
JOB_PAUSES = 50
JOB_PAUSE = 0.02
# New objects until Python looks for garbage. With the default of 700 it looks so often
# while it reads a large body that everybody waits for a second.
GARBAGE_THRESHOLD_OBJECTS = 50_000
# Larger blocks of memory, such as large bodies, go back to the system when they are
# freed. Without a fixed number, glibc raises its own to 32 MiB, and then keeps 100 MiB.
SYSTEM_BLOCK_BYTES = 128 * 1024
_M_MMAP_THRESHOLD = -3  # of glibc's malloc.h
# How long another thread may go on while the event loop waits to run. It waits several
# times in each request. With Python's 0.005 a light request took 20 ms and more during
# a long computation.
THREAD_SWITCH_SECONDS = 0.0005


def run_until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run the service until it ends by itself after a signal.

    Unlike asyncio.run, this does not wait for threads that are still running.
    """
    loop_package = import_module("uvloop" if HAS_FAST_EXTRA else "asyncio")
    loop = loop_package.new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    show("stopped; the store is closed")


async def serve(values: Settings) -> None:
    """Serve requests and run jobs until a signal."""
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
                rest_garbage_collection()
                return_large_blocks()
                sys.setswitchinterval(THREAD_SWITCH_SECONDS)
                await listen(
                    app,
                    listener,
                    values.drain,
                    ready=lambda: show(_hello(values, setup, url, has_key)),
                    stopping=site.end_streams,
                )


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


def return_large_blocks() -> None:
    """Let glibc return large blocks of memory to the system when they are freed.

    Does nothing with another C library.
    """
    if sys.platform == "linux":
        set_option = getattr(ctypes.CDLL(None), "mallopt", None)
        if set_option is not None:
            set_option(_M_MMAP_THRESHOLD, SYSTEM_BLOCK_BYTES)


async def show_pages(values: Settings, *, read_only: bool, browser: bool) -> None:
    """Serve the pages on this machine until a signal, and open them in the browser."""
    is_new = not db_exists(values.db)
    # Who may change nothing makes no file. Who names a file wants to look into it.
    may_create = not read_only and "db" not in current_command().options
    check_database(values.db, new=may_create)

    say("starting …")
    other_port = "another --port (it may be heedful ui)"
    # The port comes first: without one, no file is made.
    with bound(PAGES_HOST, values.port, other_port) as listener:
        async with opened_store(values, new=may_create) as store:
            # The first statement fails here if the file is not a database.
            await store.read(Scope(), keys.any_key)

            setup = setup_of(_without_code(values), store)
            async with working(replace(values, workers=0), setup) as work:
                app = application(replace(setup, work=work))
                site = add_pages(app, read_only)

                def address(token: str) -> str:
                    """Return the address that signs one browser in."""
                    return f"{url_of(listener)}/ui/open?token={token}"

                url = address(site.sessions.invite())
                site.invites = lambda token: show(f"or once at {address(token)}")

                def ready() -> None:
                    """Print the address, and open it."""
                    show(f"heedful shows {shown(values.db)} at {url}")
                    if is_new:
                        show(f"created {values.db}; the page says how to fill it")
                    show("Ctrl-C ends it")
                    if browser:
                        webbrowser.open(url)

                rest_garbage_collection()
                return_large_blocks()
                await listen(
                    app, listener, drain=1.0, ready=ready, stopping=site.end_streams
                )


def _without_code(values: Settings) -> Settings:
    """Return the settings of who only looks: no model, judge or check of theirs."""
    return replace(values, model=NO_MODEL, judge=NO_MODEL, checks={})


@asynccontextmanager
async def opened_application(values: Settings) -> AsyncIterator[tuple[FastAPI, Caller]]:
    """Open the application and its one caller, and close it after the block.

    It runs no jobs: each agent has a process of its own, and a local queue expects to
    be alone on its store.
    """
    async with opened_store(values, new=True) as store:
        setup = setup_of(values, store)
        async with working(replace(values, workers=0), setup) as work:
            setup = replace(setup, work=work)
            yield application(setup), local(setup)


def setup_of(values: Settings, store: Store) -> Setup:
    """Create the setup of the service from the settings. Raises UsageError."""
    model = model_here(values)
    judge = model if values.judge == values.model else None
    if judge is None:
        judge = open_here(judging(values), "judge")

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
        checks={name: _load_check(spec) for name, spec in values.checks.items()},
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


def _load_check(spec: Fields) -> Check:
    """Make a check of the settings. Raises UsageError, InvalidInput."""
    if names_code(spec):
        allow_imports(folder_of_code("checks"))
    return load(spec)


@asynccontextmanager
async def working(values: Settings, setup: Setup) -> AsyncIterator[Work]:
    """Open the service's job queue: in PostgreSQL, or in this process on SQLite.

    Without workers in this process, the jobs wait. At the end the models are closed.
    """

    async def pause() -> None:
        """Let requests come first, for up to a second."""
        for _ in range(JOB_PAUSES):
            if setup.metrics.running:
                await asyncio.sleep(JOB_PAUSE)

    jobs = DEFAULT_CONCURRENCY if values.workers is None else values.workers
    if values.is_on_server:
        async with opened_queue(values.db) as server_queue:
            yield server_queue
    elif not jobs:
        yield Work()
    else:
        tools = tools_of(values, setup.store, setup.model, pause=pause)
        # One embedder for requests and jobs: two would be in memory twice.
        tools = replace(tools, embedder=setup.embedder)
        async with LocalQueue(tools, concurrency=jobs) as queue:
            yield queue

    for model in (setup.model, setup.judge):
        if model is not None:
            await model.close()


def _hello(values: Settings, setup: Setup, url: str, has_key: bool) -> str:
    """Return what the service prints when it begins."""
    return page(
        "serve",
        version=__version__,
        has_key=has_key,
        then=following("key", "create", "--name", "NAME", db=values.db),
        store=shown(values.db),
        server=values.is_on_server,
        url=url,
        model=setup.model,
        judge=values.judge,
        doubt=judge_doubt(values),
        pins=values.pins,
        fast=HAS_FAST_EXTRA,
    )

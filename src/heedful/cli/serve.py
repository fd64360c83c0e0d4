"""`heedful serve`: the service, on SQLite or PostgreSQL, until it is asked to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import Annotated, Any, TypeVar

import typer

from heedful.cli.exporting import Content, Telemetry, exporting
from heedful.cli.opening import embedder_of, model_here, scope_of, stored, wording
from heedful.cli.output import Db, ModelName, counted, following, show
from heedful.cli.settings import Settings, settings
from heedful.cli.worker import away
from heedful.errors import PackageMissing, UsageError
from heedful.lessons.lesson import Scope
from heedful.service.jobs import Work
from heedful.service.setup import Setup
from heedful.store import POSTGRES, shown
from heedful.store import keys as key_store

T = TypeVar("T")
DEFAULT_JOBS = 2


def serve(
    host: Annotated[str | None, typer.Option(help="The address. [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="The port, 0 for any. [8765]")] = None,
    db: Db = None,
    model: ModelName = None,
    key_required: Annotated[
        bool | None,
        typer.Option("--key-required", help="Let nobody in without a key, on loopback neither."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Jobs at a time in this process, on SQLite; 0 for none. [2]"),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Requests a second and key. [any]")] = None,
    drain: Annotated[
        float | None, typer.Option(help="Seconds that requests may take to end. [30]")
    ] = None,
    telemetry: Telemetry = False,
    telemetry_content: Content = False,
) -> int:
    """Serve heedful over HTTP until SIGTERM or Ctrl-C.

    Without a key it listens on this machine alone, and whoever calls may do everything; heedful key
    create makes one, and from then on a key is needed.
    """
    options = {"host": host, "port": port, "db": db, "model": model, "key_required": key_required}
    values = settings(**options, workers=workers, rate=rate, drain=drain)
    if values.workers and values.db.startswith(POSTGRES):
        raise UsageError(
            f"--workers {values.workers} is for SQLite, and on PostgreSQL no work is done in this "
            f"process; start heedful worker --concurrency {values.workers}"
        )
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        if find_spec(package) is None:
            raise PackageMissing("heedful serve", package, "server")
    with exporting(telemetry, telemetry_content):
        cut = _run(_serve(values))
    late = f"{counted(cut, 'request')} took too long and was cut short" if cut else ""
    show(f"stopped; {late or 'every request that was taken is answered'}; the store is closed")
    return 0


def _run(work: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns, without waiting for what still runs in a thread."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _serve(values: Settings) -> int:
    """Serve until asked to; how many requests were cut short. Raises UsageError, StoreError."""
    from heedful.service.app import application
    from heedful.service.server import bound, listen, loopback, url_of

    async with stored(values, new=True) as store:
        keys = await _keyed(store)
        with bound(values.host, values.port) as listener:
            near = loopback(listener)
            _let_in(values, near, keys, listener)
            setup = replace(setup_of(values, store), open=near and not values.key_required)
            async with working(values, setup) as work:
                app = application(replace(setup, work=work))
                url = url_of(listener)
                _log()
                return await listen(
                    app, listener, values.drain, lambda: _hello(values, setup, url, keys)
                )


async def _keyed(store: Any) -> bool:
    """Whether there is a key; the store is reached for the first time. Raises StoreError."""
    return bool(await store.read(Scope(), key_store.any_key))


def _let_in(values: Settings, near: bool, keys: bool, listener: socket.socket) -> None:
    """Nothing, where only those are let in who should be. Raises UsageError."""
    if not near and not keys:
        address = listener.getsockname()[0]
        raise UsageError(
            f"there is no key yet, and without one whoever reaches {address} could do everything; "
            "make one (heedful key create --name …), or listen on --host 127.0.0.1"
        )
    if values.key_required and not keys:
        raise UsageError("a key is required and there is none; heedful key create makes one")


def setup_of(values: Settings, store: Any) -> Setup:
    """What the service works with, as the settings say. Raises UsageError."""
    from heedful.checks.loading import load
    from heedful.compat.reflections import Reflections
    from heedful.compat.shapes import LoopGuardrails
    from heedful.loop.policies import policy
    from heedful.memory.ingest import Patience
    from heedful.service.setup import Limits, Setup

    return Setup(
        store,
        scope_of(values),
        embedder=embedder_of(values),
        model=model_here(values),
        policy=policy(values.policy),
        checks={name: load(spec) for name, spec in values.checks.items()},
        holdout=values.holdout,
        max_entries=values.max_entries,
        limits=Limits(
            body=values.body,
            traces=values.traces,
            rate=values.rate,
            burst=values.burst,
            concurrent=values.concurrent,
        ),
        reflections=Reflections.of(os.environ),
        guardrails=LoopGuardrails.of(os.environ),
        patience=Patience(values.settled),
    )


@asynccontextmanager
async def working(values: Settings, setup: Setup) -> AsyncIterator[Work]:
    """Where the service hands over work: to a queue in PostgreSQL, else to this process."""
    from heedful.service.jobs import Tools
    from heedful.service.setup import NoWork

    jobs = DEFAULT_JOBS if values.workers is None else values.workers
    if values.db.startswith(POSTGRES):
        from heedful.service.worker import PostgresQueue

        async with PostgresQueue(values.db) as queued:
            yield queued
    elif not jobs:
        yield NoWork()
    else:
        from heedful.service.worker import LocalQueue

        held: dict[str, Any] = {"holdout": setup.holdout, "max_entries": setup.max_entries}
        tools = Tools(setup.store, setup.model, setup.embedder, **held, **asdict(setup.reflections))
        async with LocalQueue(tools, concurrency=jobs) as inside:
            yield inside
    if setup.model is not None:
        await setup.model.close()


def _hello(values: Settings, setup: Setup, url: str, keys: bool) -> None:
    """Say where the service is, what it works with, who is let in, and what to do next."""
    from heedful import __version__

    server = values.db.startswith(POSTGRES)
    show(f"heedful {__version__} serves {url}")
    show(f"  store  {shown(values.db)} ({'PostgreSQL' if server else 'SQLite'})")
    if not server:
        show(f"  model  {wording(setup.model)}")
    elif setup.model is not None:
        show(f"  model  {setup.model.name} judges and dreams where asked; a worker's words lessons")
    show(f"  docs   {url}/docs")
    if server:
        show("  work   on the queue; heedful worker does it")
    if keys:
        show("  keys   needed; heedful key list shows them")
        return
    show("  keys   none: only this machine is let in, and whoever calls may do everything")
    show(following("key", "create", "--name", "NAME", db=values.db))


def _log() -> None:
    """What the service logs goes to stderr: requests without bodies, failures without secrets."""
    log = logging.getLogger("heedful")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").addHandler(log.handlers[0])
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    away()

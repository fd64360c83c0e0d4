"""`heedful serve`: the service, on SQLite or PostgreSQL, until it is asked to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import Annotated, Any, TypeVar

import typer

from heedful.checks.loading import load
from heedful.cli.output import Db, ModelName, counted, following, say, show
from heedful.cli.settings import (
    Settings,
    describe_writer,
    embedder_of,
    model_here,
    scope_of,
    settings,
    stored,
)
from heedful.compat.reflections import Reflections
from heedful.compat.shapes import LoopGuardrails
from heedful.errors import PackageMissing, UsageError
from heedful.lessons.lesson import Scope
from heedful.loop.policies import policy
from heedful.memory.ingest import Patience
from heedful.service.jobs import LocalQueue, NoWork, Tools, Work
from heedful.service.setup import Limits, Setup
from heedful.store import POSTGRES, shown
from heedful.store import keys as key_store
from heedful.telemetry import LogThrottle

T = TypeVar("T")
DEFAULT_JOBS = 2
DRIVERS = ("psycopg.pool", "procrastinate.utils")
Telemetry = Annotated[
    bool, typer.Option("--telemetry", help="Send spans and metrics as the OTEL_* variables say.")
]
Content = Annotated[
    bool, typer.Option("--telemetry-content", help="With prompts and answers, without secrets.")
]


def serve(
    host: Annotated[str | None, typer.Option(help="The address. [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="The port, 0 for any. [8765]")] = None,
    db: Db = None,
    model: ModelName = None,
    key_required: Annotated[
        bool | None,
        typer.Option("--key-required", help="Require a key, also from this machine."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Jobs at a time in this process, on SQLite; 0 for none. [2]"),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests a second and key. [unlimited]")
    ] = None,
    drain: Annotated[
        float | None, typer.Option(help="Seconds that requests may take to end. [30]")
    ] = None,
    telemetry: Telemetry = False,
    telemetry_content: Content = False,
) -> int:
    """Serve heedful over HTTP until SIGTERM or Ctrl-C.

    Without any key it listens on this machine only, and every caller may do everything. heedful key
    create makes a key; from then on callers need one.
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
    show(f"stopped; {late or 'every accepted request is answered'}; the store is closed")
    return 0


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Return the coroutine's result without waiting for threads that still run."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _serve(values: Settings) -> int:
    """Serve until asked to stop; return how many requests were cut short.

    Raises UsageError, StoreError.
    """
    from heedful.service.app import application, bound, listen, loopback, url_of

    async with stored(values, new=True) as store:
        keys = await store.read(Scope(), key_store.any_key)  # reaches the store for the first time
        with bound(values.host, values.port) as listener:
            near = loopback(listener)
            _check_keys(values, near, keys, listener)
            setup = replace(setup_of(values, store), open=near and not values.key_required)
            async with working(values, setup) as work:
                app = application(replace(setup, work=work))
                url = url_of(listener)
                _log()
                return await listen(
                    app, listener, values.drain, lambda: _hello(values, setup, url, keys)
                )


def _check_keys(values: Settings, near: bool, keys: bool, listener: socket.socket) -> None:
    """Raise UsageError if anybody could reach the service without a key, or nobody could."""
    if not near and not keys:
        address = listener.getsockname()[0]
        raise UsageError(
            f"there is no key yet, and anybody who reaches {address} could do everything; make a "
            "key (heedful key create --name …), or listen on --host 127.0.0.1"
        )
    if values.key_required and not keys:
        raise UsageError("a key is required and there is none; heedful key create makes one")


def setup_of(values: Settings, store: Any) -> Setup:
    """Return the setup of the service from the settings. Raises UsageError."""
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
    """Yield the job queue of the service: in PostgreSQL, else in this process."""
    jobs = DEFAULT_JOBS if values.workers is None else values.workers
    if values.db.startswith(POSTGRES):
        from heedful.service.worker import PostgresQueue

        async with PostgresQueue(values.db) as queued:
            yield queued
    elif not jobs:
        yield NoWork()
    else:
        limits: dict[str, Any] = {"holdout": setup.holdout, "max_entries": setup.max_entries}
        modes = asdict(setup.reflections)
        tools = Tools(setup.store, setup.model, setup.embedder, **limits, **modes)
        async with LocalQueue(tools, concurrency=jobs) as inside:
            yield inside
    if setup.model is not None:
        await setup.model.close()


def _hello(values: Settings, setup: Setup, url: str, keys: bool) -> None:
    """Print where the service is, what it works with, who may call it, and what to do next."""
    from heedful import __version__

    server = values.db.startswith(POSTGRES)
    show(f"heedful {__version__} serves {url}")
    show(f"  store  {shown(values.db)} ({'PostgreSQL' if server else 'SQLite'})")
    if not server:
        show(f"  model  {describe_writer(setup.model)}")
    elif setup.model is not None:
        show(f"  model  {setup.model.name} judges and dreams on request; workers word lessons")
    show(f"  docs   {url}/docs")
    if server:
        show("  work   on the queue; heedful worker does it")
    if keys:
        show("  keys   needed; heedful key list shows them")
        return
    show("  keys   none: only this machine may call, and every caller may do everything")
    show(following("key", "create", "--name", "NAME", db=values.db))


def _log() -> None:
    """Log to stderr: requests without bodies, failures without secrets."""
    log = logging.getLogger("heedful")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").addHandler(log.handlers[0])
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    report_lost_database()


# What `heedful worker` shares


class _LostDatabase(logging.Handler):
    """Logs once a minute that the database is away, because drivers log it again and again."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._throttle = LogThrottle()

    def emit(self, record: logging.LogRecord) -> None:
        """Log it, unless it was logged within the last minute."""
        if self._throttle.allows("away"):
            say("the database does not answer; heedful waits for it, nothing has to be restarted")


LOST_DATABASE = _LostDatabase()


def report_lost_database() -> None:
    """Report the loss of the database in one line instead of its drivers' logs."""
    for driver in DRIVERS:
        logging.getLogger(driver).addHandler(LOST_DATABASE)


@contextmanager
def exporting(wanted: bool, content: bool = False) -> Iterator[None]:
    """Export spans and metrics as OTLP; the OTEL_* environment variables say where.

    Exports the rest at the end. Raises PackageMissing.
    """
    if not wanted:
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise PackageMissing("--telemetry", "opentelemetry-sdk", "telemetry") from error
    from heedful import telemetry

    # The environment's own name for the service wins.
    resource = Resource({"service.name": "heedful"}).merge(Resource.create())
    tracers = TracerProvider(resource=resource)
    if os.environ.get("OTEL_TRACES_EXPORTER", "otlp") != "none":
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    metrics = os.environ.get("OTEL_METRICS_EXPORTER", "otlp") != "none"
    readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if metrics else []
    meters = MeterProvider(readers, resource)
    telemetry.begin(content=content, tracers=tracers, meters=meters)
    try:
        yield
    finally:
        telemetry.end()
        tracers.shutdown()
        meters.shutdown()

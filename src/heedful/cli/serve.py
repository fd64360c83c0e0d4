"""`heedful serve` and `heedful worker`: the service, on SQLite or PostgreSQL, and its jobs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from typing import Annotated, Any, TypeVar

from typer import Option

from heedful.checks.loading import load
from heedful.cli import settings as config
from heedful.cli.output import counted, following, say, show
from heedful.cli.progress import Progress
from heedful.cli.settings import Db, Keep, ModelName, Settings, UnusedFor, settings
from heedful.compat import LoopGuardrails, Reflections
from heedful.errors import PackageMissing, UnknownName, UsageError
from heedful.lessons.lesson import Scope
from heedful.loop.policies import policy
from heedful.loop.record import clean
from heedful.memory.ingest import Patience
from heedful.service.jobs import QUEUES, Job, LocalQueue, NoWork, Opens, Tools, Work, sweep
from heedful.service.setup import Limits, Setup
from heedful.store import POSTGRES, lessons, shown
from heedful.store import keys as key_store
from heedful.telemetry import LogThrottle

KILLED = 143  # the exit code of a process that SIGTERM ended
WORDS = 200
ENDS = ("done", "given up")
T = TypeVar("T")
DEFAULT_JOBS = 2
LIMITS = {"body", "traces", "rate", "burst", "concurrent"}
DRIVERS = ("psycopg.pool", "procrastinate.utils")
Telemetry = Annotated[bool, Option("--telemetry", help="Send spans as OTEL_* say.")]
Content = Annotated[bool, Option("--telemetry-content", help="With prompts and answers.")]


def serve(
    host: Annotated[str | None, Option(help="The address. [127.0.0.1]")] = None,
    port: Annotated[int | None, Option(help="The port, 0 for any. [8765]")] = None,
    db: Db = None,
    model: ModelName = None,
    key_required: Annotated[
        bool | None, Option("--key-required", help="Require a key, also here.")
    ] = None,
    workers: Annotated[int | None, Option(help="Jobs at a time here, on SQLite. [2]")] = None,
    rate: Annotated[float | None, Option(help="Requests a second and key. [unlimited]")] = None,
    drain: Annotated[float | None, Option(help="Seconds that requests may take. [30]")] = None,
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
            f"workers is {values.workers}, but on PostgreSQL no work is done in the service's "
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

    async with config.stored(values, new=True) as store:
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
    if not (near or keys):
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
        config.scope_of(values),
        embedder=config.embedder_of(values),
        model=config.model_here(values),
        policy=policy(values.policy),
        checks={name: load(spec) for name, spec in values.checks.items()},
        holdout=values.holdout,
        max_entries=values.max_entries,
        limits=Limits(**values.model_dump(include=LIMITS)),
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
        show(f"  model  {config.describe_writer(setup.model)}")
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


# What serve and worker share


def report_lost_database() -> None:
    """Say once a minute that the database is away; its drivers log it again and again."""
    throttle = LogThrottle()

    def say_once(record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING and throttle.allows("away"):
            say("the database does not answer; heedful waits for it, nothing has to be restarted")
        return False

    for driver in DRIVERS:
        logging.getLogger(driver).addFilter(say_once)


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


# Worker


def worker(
    db: Db = None,
    queues: Annotated[str, Option(help="Such as loops,memory. [all]")] = "",
    concurrency: Annotated[int, Option(min=1, max=256, help="Jobs at a time.")] = 2,
    once: Annotated[bool, Option("--once", help="Do what waits, then end.")] = False,
    model: Annotated[str | None, Option("--model", help="Words the lessons. [the setting]")] = None,
    drives: Annotated[
        list[str] | None, Option(help="Loops to drive: name=module:function.")
    ] = None,
    unused_for: UnusedFor = None,
    keep: Keep = None,
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
    config.look_here()
    limits: dict[str, Any] = {
        "loops": dict(map(_loop, drives or ())),
        "unused_for": None if unused_for is None else config.seconds("--unused-for", unused_for),
        "keep": keep,
        **asdict(Reflections.of(os.environ)),
    }
    names = [one.strip() for one in queues.split(",") if one.strip()]
    for name in names:
        if name not in QUEUES:
            raise UnknownName("queue", name, QUEUES)
    options = {"queues": names or None, "concurrency": concurrency, "once": once}
    with exporting(telemetry, telemetry_content), Progress() as progress:
        return asyncio.run(_until_signal(_work(values, bool(model), limits, options, progress)))


async def _work(
    values: Settings,
    asks: bool,
    limits: Mapping[str, Any],
    options: Mapping[str, Any],
    progress: Progress,
) -> int:
    counts = Counter[str]()

    def listener(job: Job, what: str) -> None:
        if what == "begun":
            return
        counts["done" if what.startswith("done") else "given up"] += what.startswith(ENDS)
        given = (f"{name}={value[:16]}" for name, value in sorted(job.arguments.items()))
        about = " ".join([f"{job.scope.tenant}/{job.scope.project}", job.task, *given])
        progress.say(clean(f"{about}: {what}", WORDS))

    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(config.stored(values))
        if asks:  # otherwise nothing is fetched
            model: Any = await stack.enter_async_context(config.model_of(values, progress.fetched))
        elif (model := config.model_here(values)) is not None:
            stack.push_async_callback(model.close)
        embedder = config.embedder_of(values, progress.fetched)
        tools = Tools(store, model, embedder, values.holdout, values.max_entries, **limits)
        work = _on_queue if values.db.startswith(POSTGRES) else _on_file
        try:
            await work(values.db, tools, options, listener)
        finally:
            done, failed = counts["done"], counts["given up"]
            progress.say(f"{counted(done, 'job')} done, {failed} given up")
        return 1 if failed else 0


async def _on_queue(url: str, tools: Tools, options: Mapping[str, Any], listener: Any) -> None:
    from heedful.service.worker import PostgresQueue

    async with PostgresQueue(url) as queue:
        if not options["once"]:
            many = counted(options["concurrency"], "job")
            say(f"works for {shown(url)}, {many} at a time; Ctrl-C or SIGTERM ends it")
        say(f"model: {config.describe_writer(tools.model)}")
        await queue.work(tools, listener=listener, **options)


async def _on_file(db: str, tools: Tools, options: Mapping[str, Any], listener: Any) -> None:
    if not options["once"]:
        raise UsageError(
            f"{clean(db, WORDS)} is a SQLite file, whose work is done in the process of heedful "
            "serve; heedful worker --once does what waits, and workers need a postgresql:// URL"
        )
    say(f"model: {config.describe_writer(tools.model)}")
    given = {"concurrency": options["concurrency"], "queues": options["queues"]}
    work = LocalQueue(tools, listener=listener, **given)
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


def _loop(text: str) -> tuple[str, Opens]:
    """Import the function in `name=module:function`. Raises UsageError."""
    name, _, path = text.partition("=")
    module, _, attribute = path.partition(":")
    if not (name and module and attribute):
        raise UsageError(f"--drives is {text!r}; it must be name=module:function")
    try:
        found: Any = attrgetter(attribute)(import_module(module))
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--drives {text}: {error}; name a function of a module here") from error
    return name, found

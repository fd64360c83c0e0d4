"""`heedful serve`, `worker`, `key` and `audit`: the service, its jobs, keys and audit
log.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, fields, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Annotated, Any, TypeVar

from typer import Argument, Option, Typer

from heedful.checks.loading import load
from heedful.cli import output
from heedful.cli import settings as config
from heedful.cli.app import group
from heedful.cli.output import (
    answer,
    columns,
    counted,
    emit,
    following,
    say,
    show,
    when,
)
from heedful.errors import PackageMissing, UnknownName, UsageError
from heedful.lessons.lesson import Scope
from heedful.lessons.trust import KEY_SOURCE_PREFIX
from heedful.loop.limits import LoopLimits
from heedful.loop.policies import policy
from heedful.memory.reflect import Patience
from heedful.pipeline.pipeline import read_settings
from heedful.sanitize import clean
from heedful.service.jobs import (
    JOB_QUEUES,
    Job,
    LocalQueue,
    Opens,
    Resources,
    Tools,
    Work,
    sweep,
)
from heedful.service.setup import RequestLimits, Setup
from heedful.store import POSTGRES_PREFIXES, keys, lessons, shown
from heedful.store.store import Store
from heedful.telemetry import LogThrottle

T = TypeVar("T")
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
MAX_MESSAGE_CHARS = 200
# New objects until Python looks for garbage. With the default of 700 it looks so often
# while it reads a large body that everybody waits for a second.
GARBAGE_THRESHOLD_OBJECTS = 50_000
Telemetry = Annotated[bool, Option("--telemetry", help="Export spans.")]
Content = Annotated[
    bool, Option("--telemetry-content", help="Also export prompts and answers.")
]


def serve(telemetry: Telemetry = False, telemetry_content: Content = False) -> int:
    """Serve heedful over HTTP until SIGTERM or Ctrl-C.

    If no key exists, the service listens on this machine only, and every caller may do
    everything. As soon as `heedful key create` has created a key, callers need one.
    """
    values = config.settings()
    if values.workers and values.db.startswith(POSTGRES_PREFIXES):
        what = "but on PostgreSQL no work is done in the service's process"
        todo = f"start heedful worker --concurrency {values.workers}"
        raise UsageError(f"workers is {values.workers}, {what}; {todo}")
    _check_packages(
        "heedful serve", "server", "fastapi", "uvicorn", "prometheus_client"
    )
    with exporting(telemetry, telemetry_content):
        return _until_stopped(_serve(values))


def ui(
    read_only: Annotated[bool, Option("--read-only", help="Change nothing.")] = False,
    no_browser: Annotated[
        bool, Option("--no-browser", help="Only print the address.")
    ] = False,
) -> int:
    """Look at loops, lessons and proof in the browser, and rule on them.

    The pages of the database of this folder, on this machine only. The printed address
    holds a token that signs you in once.
    """
    _check_packages("heedful ui", "ui", "fastapi", "uvicorn", "prometheus_client")
    return _until_stopped(_show_pages(config.settings(), read_only, not no_browser))


def _until_stopped(work: Coroutine[Any, Any, None]) -> int:
    # asyncio.run would wait for threads that are still running.
    from heedful.service.app import HAS_FAST_EXTRA

    loop = import_module("uvloop" if HAS_FAST_EXTRA else "asyncio").new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    show("stopped; the store is closed")
    return 0


async def _show_pages(values: config.Settings, read_only: bool, browser: bool) -> None:
    import webbrowser

    from heedful.service.app import application, bound, listen, url_of
    from heedful.web import add_pages

    async with config.stored(values) as store:
        await store.read(
            Scope(), keys.any_key
        )  # the file is a database, and can be read
        with bound(
            "127.0.0.1", values.port, "another --port (it may be heedful ui)"
        ) as listener:
            setup = setup_of(values, store)
            async with working(values.model_copy(update={"workers": 0}), setup) as work:
                app = application(replace(setup, work=work))
                site = add_pages(app, read_only)
                url = f"{url_of(listener)}/ui/open?token={site.sessions.invite()}"

                def ready() -> None:
                    show(f"heedful shows {shown(values.db)} at {url}\nCtrl-C ends it")
                    if browser:
                        webbrowser.open(url)

                await listen(app, listener, drain=1.0, ready=ready)


async def _serve(values: config.Settings) -> None:
    from heedful.service.app import application, bound, listen, loopback, url_of
    from heedful.web import add_pages

    async with config.stored(values, new=True) as store:
        has_key = await store.read(Scope(), keys.any_key)  # the first connection
        with bound(values.host, values.port) as listener:
            near = loopback(listener)
            url = url_of(listener)
            if not (near or has_key):
                what = (
                    f"there is no key yet, and anybody who reaches {url} could do "
                    "everything"
                )
                todo = (
                    "make a key (heedful key create --name …), or listen on --host "
                    "127.0.0.1"
                )
                raise UsageError(f"{what}; {todo}")
            if values.key_required and not has_key:
                raise UsageError(
                    "there is no key yet, and --key-required needs one: heedful key "
                    "create"
                )
            setup = replace(
                setup_of(values, store), open=near and not values.key_required
            )
            async with working(values, setup) as work:
                app = application(replace(setup, work=work))
                add_pages(app)
                handler = logging.StreamHandler()
                handler.setFormatter(
                    logging.Formatter("%(asctime)s %(levelname)s %(message)s")
                )
                for name, level in (
                    ("heedful", logging.INFO),
                    ("uvicorn.error", logging.WARNING),
                ):
                    log = logging.getLogger(name)
                    log.handlers = log.handlers or [handler]
                    log.setLevel(level)
                limit_logs()
                # What a record of the log would have besides, and no line shows.
                logging._srcfile = None
                logging.logThreads = False
                logging.logProcesses = logging.logMultiprocessing = False
                hello = await _hello(values, setup, url, has_key)
                gc.freeze()
                gc.set_threshold(GARBAGE_THRESHOLD_OBJECTS, *gc.get_threshold()[1:])
                await listen(app, listener, values.drain, lambda: show(hello))


def _check_packages(what: str, extra: str, *packages: str) -> None:
    for package in packages:
        if find_spec(package) is None:
            raise PackageMissing(what, package, extra)


def mcp() -> int:
    """Serve heedful's tools to an agent over MCP, on standard input and output.

    The agent recalls lessons, looks up errors, and reports attempts. What it sends has
    the source tool:mcp: it waits in quarantine unless heedful trust set tool:mcp says
    otherwise. `heedful serve` has the same tools at /mcp.
    """
    _check_packages("heedful mcp", "mcp", "mcp", "fastapi", "prometheus_client")
    asyncio.run(_mcp(config.settings()))
    return 0


async def _mcp(values: config.Settings) -> None:
    from heedful.integrations.mcp import server_of
    from heedful.service.app import application
    from heedful.service.auth import local

    async with config.stored(values, new=True) as store:
        # Each agent has a process of its own, and a local queue expects to be alone on
        # its store.
        setup = setup_of(values, store)
        alone = values.model_copy(update={"workers": 0})
        async with working(alone, setup) as work:
            setup = replace(setup, work=work)
            await server_of(
                application(setup), local(setup), values.db
            ).run_stdio_async()


def setup_of(values: config.Settings, store: Any) -> Setup:
    """Create the setup of the service from the settings. Raises UsageError."""
    model = config.model_here(values)
    return Setup(
        scope=config.scope_of(values),
        model=model,
        judge=(values.judge == values.model and model)
        or config.open_here(config.judging(values)),
        policy=policy(values.policy),
        checks={name: load(spec) for name, spec in values.checks.items()},
        pins=values.pins,
        limits=RequestLimits(
            **values.model_dump(include={"body", "traces", "rate", "outcomes"})
        ),
        reflections=values.reflection_enabled,
        guardrails=read_settings(LoopLimits, os.environ, {}),
        **config.resources(values, store),
    )


@asynccontextmanager
async def working(values: config.Settings, setup: Setup) -> AsyncIterator[Work]:
    """Open the service's job queue: in PostgreSQL, or in this process if the store is
    SQLite.
    """
    jobs = 2 if values.workers is None else values.workers
    if values.db.startswith(POSTGRES_PREFIXES):
        from heedful.service.worker import PostgresQueue

        async with PostgresQueue(values.db) as queued:
            yield queued
    elif not jobs:
        yield Work()
    else:
        parts = {one.name: getattr(setup, one.name) for one in fields(Resources)}

        async def pause() -> None:
            """Let requests come first, for up to a second."""
            for _ in range(50):
                if setup.metrics.running:
                    await asyncio.sleep(0.02)

        tools = Tools(**parts, **_limits(values), pause=pause)
        async with LocalQueue(tools, concurrency=jobs) as inside:
            yield inside
    for model in (setup.model, setup.judge):
        if model is not None:
            await model.close()


def _limits(values: config.Settings) -> dict[str, Any]:
    """Return what the settings say about the jobs of a service or worker."""
    when = Patience(values.settled)
    return {
        "enabled": values.reflection_enabled,
        "mode": values.reflection_mode,
        "patience": when,
    }


async def _hello(values: config.Settings, setup: Setup, url: str, has_key: bool) -> str:
    from heedful import __version__
    from heedful.service.app import HAS_FAST_EXTRA

    pinned = {
        pin
        for pins in values.pins.values()
        for pin in pins
        if pin.startswith(KEY_SOURCE_PREFIX)
    }
    found = [
        (pin, await setup.store.read(Scope(), keys.find, pin[len(KEY_SOURCE_PREFIX) :]))
        for pin in pinned
    ]
    facts = {
        "store": shown(values.db),
        "server": values.db.startswith(POSTGRES_PREFIXES),
        "url": url,
    }
    facts |= {
        "model": setup.model,
        "judge": values.judge,
        "doubt": config.doubt(values),
    }
    facts |= {"pins": values.pins, "found": found, "fast": HAS_FAST_EXTRA}
    then = following("key", "create", "--name", "NAME", db=values.db)
    return output.page(
        "serve", version=__version__, has_key=has_key, then=then, **facts
    )


def limit_logs() -> None:
    """Print at most once a minute that the database does not answer; silence its
    drivers' logs.

    Of the server's own messages about connections, each kind is logged at most once a
    minute.
    """
    throttle = LogThrottle()

    def say_once(record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING and throttle.allows("away"):
            say(
                "the database does not answer; heedful waits for it, nothing has to "
                "be restarted"
            )
        return False

    def once(record: logging.LogRecord) -> bool:
        return throttle.allows(str(record.msg).partition("\n")[0])

    for driver in ("psycopg.pool", "procrastinate.utils"):
        logging.getLogger(driver).addFilter(say_once)
    for server in ("asyncio", "uvicorn.error"):
        logging.getLogger(server).addFilter(once)


@contextmanager
def exporting(wanted: bool, content: bool = False) -> Iterator[None]:
    """If `wanted`, export spans as OTLP while the block runs. Raises PackageMissing.

    The environment variables OTEL_* configure the export; with `content` it has texts,
    too.
    """
    if not wanted:
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise PackageMissing("--telemetry", "opentelemetry-sdk", "telemetry") from error
    from heedful import telemetry

    # A service name in the environment takes precedence.
    resource = Resource({"service.name": "heedful"}).merge(Resource.create())
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    telemetry.begin(content=content, tracers=tracers)
    try:
        yield
    finally:
        telemetry.end()
        tracers.shutdown()


def worker(
    queues: Annotated[str, Option(help="Names, such as loops,memory. [all]")] = "",
    concurrency: Annotated[int, Option(min=1, max=256, help="Jobs at a time.")] = 2,
    once: Annotated[
        bool, Option("--once", help="Run what waits or failed, then exit.")
    ] = False,
    drives: Annotated[
        config.Texts, Option(help="Loops to drive: name=module:function.")
    ] = None,
    unused_for: config.UnusedFor = None,
    keep: config.Keep = None,
    telemetry: Telemetry = False,
    telemetry_content: Content = False,
) -> int:
    """Run the jobs that services put on the queue.

    Jobs reflect on episodes, embed examples, dream, prune, compute the proof or drive
    loops. Any number of workers can share one PostgreSQL database. After SIGTERM,
    running jobs may finish. If a worker is killed, another worker repeats its job.
    Workers dream from time to time, unless HEEDFUL_REFLECTION_MODE is lite. They
    neither reflect nor dream if HEEDFUL_REFLECTION_ENABLED is false.
    """
    values = config.settings()
    logging.getLogger("heedful").addHandler(
        logging.NullHandler()
    )  # failures are printed below
    limit_logs()
    config.look_here()
    limits = _limits(values) | {"loops": dict(map(_loop, drives or ())), "keep": keep}
    if unused_for is not None:
        limits["unused_for"] = config.seconds("--unused-for", unused_for)
    names = [one.strip() for one in queues.split(",") if one.strip()]
    for name in set(names).difference(JOB_QUEUES):
        raise UnknownName("queue", name, JOB_QUEUES)
    if not (once or values.db.startswith(POSTGRES_PREFIXES)):
        what = "is a SQLite file, whose jobs run inside heedful serve"
        todo = (
            "heedful worker --once runs the waiting jobs; other workers need a "
            "postgresql:// URL"
        )
        raise UsageError(f"{clean(values.db, MAX_MESSAGE_CHARS)} {what}; {todo}")
    options: dict[str, Any] = {"queues": names or None, "concurrency": concurrency}
    with exporting(telemetry, telemetry_content):
        asks = "model" in output.call().options and values.model != config.NO_MODEL
        work = _work(values, asks, once=once, limits=limits, options=options)
        return asyncio.run(_until_signal(work))


async def _work(
    values: config.Settings, asks: bool, once: bool, limits: Any, options: Any
) -> int:
    counts = Counter[str]()

    def listener(job: Job, what: str) -> None:
        if what == "begun":
            return
        counts.update(end for end in ("done", "given up") if what.startswith(end))
        given = (
            f"{name}={value[:16]}" for name, value in sorted(job.arguments.items())
        )
        about = " ".join([f"{job.scope.tenant}/{job.scope.project}", job.task, *given])
        say(clean(f"{about}: {what}", MAX_MESSAGE_CHARS))

    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(config.stored(values))
        if asks:  # otherwise nothing is downloaded
            model: Any = await stack.enter_async_context(config.model_of(values))
        elif (model := config.model_here(values)) is not None:
            stack.push_async_callback(model.close)
        tools = Tools(model=model, **config.resources(values, store), **limits)
        if not once:
            many = counted(options["concurrency"], "job")
            say(
                f"runs the jobs of {shown(values.db)}, {many} at a time; Ctrl-C or "
                "SIGTERM ends it"
            )
        say(
            "model: "
            f"{model.name if model is not None else 'none: rules write the lessons'}"
        )
        try:
            if values.db.startswith(POSTGRES_PREFIXES):
                from heedful.service.worker import PostgresQueue

                queue = await stack.enter_async_context(
                    PostgresQueue(values.db, works=True)
                )
                await queue.work(tools, once=once, listener=listener, **options)
            else:
                work = LocalQueue(tools, listener=listener, **options)
                await sweep(work, tools, failed=True)
                for scope in (
                    await store.read(Scope(), lessons.scopes) if tools.embedder else ()
                ):
                    await work.defer("embed", scope)
                await work.drain()
        finally:
            say(f"{counted(counts['done'], 'job')} done, {counts['given up']} given up")
        return int(counts["given up"] > 0)


async def _until_signal(work: Coroutine[Any, Any, int]) -> int:
    """Return the result of `work`, or 0 after a signal. A second signal exits at
    once.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)

    def stop(name: str) -> None:
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


def _loop(text: str) -> tuple[str, Opens]:
    """Split `name=module:function`, and import the function. Raises UsageError."""
    if not re.fullmatch(r"[^=]+=[^:]+:[^:]+", text):
        raise UsageError(f"--drives is {text!r}; it must be name=module:function")
    name, _, path = text.partition("=")
    try:
        return name, resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"--drives {text}: {error}; name an importable function"
        ) from error


service_keys: Typer = group()
audit: Typer = group()
COMMAND_LINE_ACTOR = "the command line"
KEY_COLUMNS = columns(
    "name may projects key made ends",
    projects=lambda key: key.projects or "all",
    key="shown",
    made="at",
    ends=lambda key: (
        f"revoked {when(key.revoked)}" if key.revoked else key.expires or "never"
    ),
)
AUDIT_ENTRY_COLUMNS = columns("action subject by detail n at")


def _ask(work: Callable[[Store, Scope], Awaitable[T]], *, new: bool = False) -> T:
    """Return the result of `work` for the tenant of the settings."""
    values = config.settings()
    return config.ask_store(
        values, lambda store: work(store, Scope(values.tenant)), new=new
    )


def _document(key: keys.Key) -> dict[str, Any]:
    return {**asdict(key), "key": key.shown, "revoke": key.revoke}


@service_keys.command()
def create(
    name: Annotated[str, Option(help="A name for the user of the key.")],
    may: Annotated[
        config.Texts, Option(help="The permissions, as below. [recall,write]")
    ] = None,
    project: Annotated[
        config.Texts, Option(help="A project; may be repeated. [all]")
    ] = None,
    expires: Annotated[
        str | None, Option(help="Time until it expires: 12h, 90d. [never]")
    ] = None,
) -> int:
    """Create a key and print it. It is shown only once: only a hash of its secret is
    stored.

    read: loops, lessons, quarantine. recall: the same without quarantine. write: report
    attempts and episodes, remember. approve: overrides, and rulings on quarantine.
    admin: list the keys and the audit.
    """
    until = (
        None if expires is None else time.time() + config.seconds("--expires", expires)
    )
    rights = [
        one.strip() for part in may or ["recall,write"] for one in part.split(",")
    ]
    given: dict[str, Any] = {"projects": project or [], "may": rights, "expires": until}

    def make(store: Store, scope: Scope) -> Awaitable[tuple[keys.Key, str]]:
        return keys.create(store, scope.tenant, name, by=COMMAND_LINE_ACTOR, **given)

    key, secret = _ask(make, new=True)
    where = (
        f"{', '.join(key.projects) or 'all projects'} of tenant "
        f"{config.settings().tenant}"
    )
    words = (
        f"{key.name} may {', '.join(key.may)} in {where}; this key is not shown again"
    )
    then = f"Next: curl -H 'Authorization: Bearer {key.shown}_…' URL/v1/loops"
    return answer({**_document(key), "secret": secret}, secret, words, then)


@service_keys.command("list")
def list_keys() -> int:
    """List the keys of a tenant, newest first, without their secrets."""
    found = _ask(
        lambda store, scope: store.read(scope, keys.newest, config.MAX_OPTION_INTEGER)
    )
    empty = "this tenant has no key; heedful key create makes one"
    return emit(found, KEY_COLUMNS, key="keys", text=3, empty=empty, document=_document)


@service_keys.command()
def revoke(id: Annotated[str, Argument(help="A key from the list, or its id.")]) -> int:
    """Revoke a key: every service refuses it. `quarantine revoke` then removes what it
    wrote.
    """
    key = _ask(
        lambda store, scope: store.write(scope, keys.revoke, id, COMMAND_LINE_ACTOR)
    )
    then = following("quarantine", "revoke", f"key:{key.id}", "--by", "NAME")
    return answer(_document(key), f"{key.shown} ({key.name}) is revoked", then)


@audit.command("list")
def list_audit(limit: config.Limit = 50) -> int:
    """List what was done through the service in a tenant, newest first."""
    rows = _ask(lambda store, scope: store.read(scope, keys.audit_rows, limit))
    return emit(
        rows,
        AUDIT_ENTRY_COLUMNS,
        key="audit",
        text=4,
        empty="nothing was done in this tenant yet",
    )


@audit.command()
def verify(
    kept: Annotated[str, Option(metavar="HASH", help="An earlier last hash.")] = "",
) -> int:
    """Check that no row of the audit was changed or removed, by the hashes that link
    the rows.

    The command prints the last hash; keep it in another place. If you pass it later as
    --kept HASH, the command also finds out whether all rows were rewritten.
    """
    found = _ask(lambda store, scope: store.read(scope, keys.verify_audit, kept))
    well = (
        f"{counted(found.rows, 'row')}, all as they were written; last hash "
        f"{found.head}"
    )
    ill = f"{found.what}; something other than heedful wrote to the database"
    answer(found, ill if found.broken else well)
    return int(found.broken)

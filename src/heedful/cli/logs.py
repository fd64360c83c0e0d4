"""What a service and its workers write about themselves: logs and spans."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from typer import Option

from heedful.cli.output import say
from heedful.errors import PackageMissing
from heedful.telemetry import LogThrottle

SERVICE_LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
DATABASE_DRIVER_LOGGERS = ("psycopg.pool", "procrastinate.utils")
SERVER_LOGGERS = ("asyncio", "uvicorn.error")
Telemetry = Annotated[bool, Option("--telemetry", help="Export spans.")]
Content = Annotated[
    bool, Option("--telemetry-content", help="Also export prompts and answers.")
]


def log_to_stderr() -> None:
    """Print the messages of the service, and warnings of its server, on stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(SERVICE_LOG_FORMAT))
    levels = {"heedful": logging.INFO, "uvicorn.error": logging.WARNING}
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.handlers = logger.handlers or [handler]
        logger.setLevel(level)
    limit_logs()
    # What a record of the log would have besides, and no line shows.
    logging._srcfile = None
    logging.logThreads = False
    logging.logProcesses = False
    logging.logMultiprocessing = False


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

    for driver in DATABASE_DRIVER_LOGGERS:
        logging.getLogger(driver).addFilter(say_once)
    for server in SERVER_LOGGERS:
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

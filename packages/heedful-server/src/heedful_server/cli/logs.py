"""What a service and its workers write about themselves: logs and spans.

Logs go to stderr, and repeat themselves at most once a minute. Spans are exported only
on request, through OpenTelemetry.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from typer import Option

from heedful import telemetry
from heedful.cli.printing import say
from heedful.errors import PackageMissing
from heedful.telemetry import LogThrottle

SERVICE_LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
SERVICE_LOG_LEVELS = {"heedful": logging.INFO, "uvicorn.error": logging.WARNING}
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

    for name, level in SERVICE_LOG_LEVELS.items():
        logger = logging.getLogger(name)
        logger.handlers = logger.handlers or [handler]
        logger.setLevel(level)
    limit_logs()


def limit_logs() -> None:
    """Let no message repeat itself more often than once a minute.

    In place of what the drivers of the database log, it prints that the database does
    not answer. Each kind of the server's own messages is logged once a minute.
    """
    throttle = LogThrottle()

    def replace_by_notice(record: logging.LogRecord) -> bool:
        """Refuse the record, and print the notice if it is a warning."""
        if record.levelno >= logging.WARNING and throttle.allows("away"):
            say(
                "the database does not answer; heedful waits for it, nothing has to "
                "be restarted"
            )
        return False

    def is_due(record: logging.LogRecord) -> bool:
        """Return True if no record with this message was logged in the last minute."""
        first_line, _, _ = str(record.msg).partition("\n")
        return throttle.allows(first_line)

    for name in DATABASE_DRIVER_LOGGERS:
        logging.getLogger(name).addFilter(replace_by_notice)
    for name in SERVER_LOGGERS:
        logging.getLogger(name).addFilter(is_due)


@contextmanager
def exporting(wanted: bool, content: bool = False) -> Iterator[None]:
    """If `wanted`, export spans as OTLP while the block runs. Raises PackageMissing.

    The environment variables OTEL_* configure the export. With `content`, the spans
    have prompts and answers, too.
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

    # A service name in the environment takes precedence.
    tracers = TracerProvider(
        resource=Resource({"service.name": "heedful"}).merge(Resource.create())
    )
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    telemetry.begin(content=content, tracers=tracers)

    try:
        yield
    finally:
        telemetry.end()
        tracers.shutdown()

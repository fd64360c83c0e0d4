"""Spans and metrics of a process, sent as OTLP to where the standard OTEL_* environment says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from heedful import telemetry
from heedful.errors import PackageMissing

Telemetry = Annotated[
    bool, typer.Option("--telemetry", help="Send spans and metrics as the OTEL_* variables say.")
]
Content = Annotated[
    bool, typer.Option("--telemetry-content", help="With prompts and answers, without secrets.")
]


@contextmanager
def exporting(wanted: bool, content: bool = False) -> Iterator[None]:
    """Send them meanwhile, where they are wanted; what is left goes out at the end.

    Raises PackageMissing.
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
    # The environment's own name for the service wins.
    resource = Resource({"service.name": "heedful"}).merge(Resource.create())
    tracers = TracerProvider(resource=resource)
    if _asked("OTEL_TRACES_EXPORTER"):
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    asked = _asked("OTEL_METRICS_EXPORTER")
    readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if asked else []
    meters = MeterProvider(readers, resource)
    telemetry.begin(content=content, tracers=tracers, meters=meters)
    try:
        yield
    finally:
        telemetry.end()
        tracers.shutdown()
        meters.shutdown()


def _asked(variable: str) -> bool:
    """Whether OpenTelemetry's own variable leaves them in."""
    return os.environ.get(variable, "otlp") != "none"

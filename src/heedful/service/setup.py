"""What a service works with: its store, model, checks, limits and metrics.

No label of a metric names a tenant, a project or a key.
"""

from __future__ import annotations

from asyncio import Semaphore
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from heedful import policies
from heedful.compat import LoopGuardrails, Reflections
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Done, Policy, Verdict
from heedful.memory.ingest import Patience
from heedful.service.jobs import Depth, Resources, Work

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)


class Metrics:
    """The Prometheus metrics of one application."""

    def __init__(self) -> None:
        # Otherwise each series gets a second one with its start time; the switch is process-wide.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        to: Any = {"registry": self._registry}
        of, jobs, outcome = ("method", "route"), ("queue", "state"), ("outcome",)
        self.requests: Counter = Counter(
            "heedful_requests", "Requests answered", (*of, "status"), **to
        )
        self.seconds: Histogram = Histogram(
            "heedful_request_seconds", "Time to answer", of, buckets=SECONDS, **to
        )
        self.recalled: Counter = Counter("heedful_lessons_recalled", "Lessons recalled", **to)
        self.traces: Counter = Counter(
            "heedful_traces", "Traces that ended, spans refused", outcome, **to
        )
        self._decisions = Counter("heedful_decisions", "Attempts decided on", outcome, **to)
        self._jobs = Gauge("heedful_jobs", "Work that is not done yet", jobs, **to)
        self._oldest = Gauge("heedful_jobs_oldest_seconds", "Age of the oldest of it", jobs, **to)

    def decided(self, verdict: Verdict) -> None:
        """Count a decision: again, passed, or the first rule that stopped the loop."""
        outcome = "again"
        if isinstance(verdict, Done):
            outcome = "passed" if verdict.passed else verdict.stopped_by[0].rule
        if "+" in outcome:  # a request can invent any number of names
            outcome = "all"
        self._decisions.labels(outcome).inc()

    def text(self, waiting: Iterable[Depth]) -> bytes:
        """Return all metrics in Prometheus' text format."""
        self._jobs.clear()
        self._oldest.clear()
        for one in waiting:
            self._jobs.labels(one.queue, one.state).set(one.number)
            self._oldest.labels(one.queue, one.state).set(one.oldest)
        return prometheus_client.generate_latest(self._registry)


MIB = 1024 * 1024
APART = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a service, for each caller and for all together.

    `body` and `traces` are bytes, after decompression. `rate` is requests a second for each key (0:
    no limit), with up to `burst` at once. `concurrent` requests are answered at a time. A request
    has `seconds` to arrive, and the service has `answer` seconds to answer.
    """

    body: int = 4 * MIB
    traces: int = 16 * MIB
    rate: float = 0.0
    burst: int = 50
    concurrent: int = 256
    seconds: float = 30.0
    answer: float = 300.0


@dataclass(frozen=True, slots=True)
class Setup(Resources):
    """Everything that the routes use; made once, before the application.

    `scope` is the scope of callers without a key. They are admitted only if the service is `open`:
    it listens on loopback only, and nobody has created a key. `checks` are checks that a request
    may name besides those of heedful. `policy` applies to loops without one. `patience` says how
    long to wait for traces to end. `turns` limits checks in processes of their own to `APART` at a
    time; waiting for a turn holds no thread.
    """

    scope: Scope = Scope()
    open: bool = False
    policy: Policy = policies.default
    checks: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    limits: Limits = Limits()
    reflections: Reflections = Reflections()
    guardrails: LoopGuardrails = LoopGuardrails()
    work: Work = field(default_factory=Work)
    patience: Patience = Patience()
    metrics: Metrics = field(default_factory=Metrics)
    turns: Semaphore = field(default_factory=lambda: Semaphore(APART))

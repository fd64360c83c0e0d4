"""What the service counts, for Prometheus. No label tells of a tenant, a project or a key.

What a service works with: its store, its model, its checks and its limits.
"""

from __future__ import annotations

from asyncio import Semaphore
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from heedful import policies
from heedful.compat.reflections import Reflections
from heedful.compat.shapes import LoopGuardrails
from heedful.lessons.lesson import SHARE, Scope
from heedful.loop.decide import Done, Policy, Verdict
from heedful.memory.ingest import Patience
from heedful.memory.memory import Memory
from heedful.models.contract import Embedder, Model
from heedful.service.jobs import Depth, Work
from heedful.store.store import Store

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)


class Metrics:
    """The numbers of one application."""

    def __init__(self) -> None:
        # Of every series a second one would tell when it began; the switch is that of the process.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry()
        of = ("method", "route")
        self._requests = Counter(
            "heedful_requests", "Requests answered", (*of, "status"), registry=registry
        )
        self._seconds = Histogram(
            "heedful_request_seconds", "Time to answer", of, buckets=SECONDS, registry=registry
        )
        self._decisions = Counter(
            "heedful_decisions", "Attempts decided on", ("outcome",), registry=registry
        )
        self._recalled = Counter(
            "heedful_lessons_recalled", "Lessons brought back", registry=registry
        )
        self._traces = Counter(
            "heedful_traces",
            "Traces that ended, spans refused",
            ("outcome",),
            registry=registry,
        )
        self._jobs = Gauge(
            "heedful_jobs", "Work that is not done yet", ("queue", "state"), registry=registry
        )
        self._oldest = Gauge(
            "heedful_jobs_oldest_seconds",
            "Since when the oldest of it is so",
            ("queue", "state"),
            registry=registry,
        )
        self._reached = Gauge(
            "heedful_work_reached", "Whether what there is to do is known", registry=registry
        )

    def requested(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered; `route` is its template."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def decided(self, verdict: Verdict) -> None:
        """A loop was decided on: again, passed, or the first rule that stopped it."""
        outcome = "again"
        if isinstance(verdict, Done):
            outcome = "passed" if verdict.passed else verdict.stopped_by[0].rule
        if "+" in outcome:  # several at once: a request makes as many names of these as it likes
            outcome = "all"
        self._decisions.labels(outcome).inc()

    def recalled(self, lessons: int) -> None:
        """So many lessons were brought back."""
        self._recalled.inc(lessons)

    def gathered(self, outcome: str, number: int) -> None:
        """So many traces became an episode, were empty, or given up; so many spans were refused."""
        self._traces.labels(outcome).inc(number)

    def text(self, waiting: Iterable[Depth] | None) -> bytes:
        """All of it in Prometheus' text format, with what there is to do; None: nobody knows."""
        self._reached.set(waiting is not None)
        self._jobs.clear()
        self._oldest.clear()
        for one in waiting or ():
            self._jobs.labels(one.queue, one.state).set(one.number)
            self._oldest.labels(one.queue, one.state).set(one.oldest)
        return generate_latest(self._registry)


MIB = 1024 * 1024
APART = 2
Check = Callable[..., Any]


class NoWork:
    """Hands nothing over: what waits in the store is found there by a worker."""

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Leave it."""

    async def depth(self) -> Sequence[Depth]:
        """Nothing is known of other workers."""
        return ()


@dataclass(frozen=True, slots=True)
class Limits:
    """What one caller, and all together, may ask of a service.

    `body` and `traces` are bytes, after decompression. `rate` is requests a second and key, 0 for
    no limit, with up to `burst` at once. `concurrent` requests are worked on at a time. A request
    has `seconds` to arrive, and `answer` seconds to be answered.
    """

    body: int = 4 * MIB
    traces: int = 16 * MIB
    rate: float = 0.0
    burst: int = 50
    concurrent: int = 256
    seconds: float = 30.0
    answer: float = 300.0


@dataclass(frozen=True, slots=True)
class Setup:
    """All that the routes know of the world; made once, before the application.

    `scope` is that of callers without a key, who are let in only where the service is `open`: it
    listens on loopback alone, and nobody has made a key. `checks` are those that a request may name
    besides the ones that come with heedful, `policy` is that of loops which ask for none.
    `patience` is for traces to end. `turns` are of checks that run in a process of their own,
    `APART` at a time: those that wait for one hold no thread.
    """

    store: Store
    scope: Scope = Scope()
    open: bool = False
    embedder: Embedder | None = None
    model: Model | None = None
    policy: Policy = policies.default
    checks: Mapping[str, Check] = field(default_factory=dict)
    holdout: float = SHARE
    max_entries: int | None = None
    limits: Limits = Limits()
    reflections: Reflections = Reflections()
    guardrails: LoopGuardrails = LoopGuardrails()
    work: Work = field(default_factory=NoWork)
    patience: Patience = Patience()
    metrics: Metrics = field(default_factory=Metrics)
    turns: Semaphore = field(default_factory=lambda: Semaphore(APART))

    def memory(self, scope: Scope) -> Memory:
        """The memory of a scope, with the embedder and the bounds of the service."""
        return Memory(self.store, scope, self.embedder, self.holdout, self.max_entries)


async def setup_of(request: Request) -> Setup:
    """The setup of the application that the request came to. What is not async gets a thread."""
    found: Setup = request.app.state.setup
    return found


RouteSetup = Annotated[Setup, Depends(setup_of)]
"""The setup as a parameter of a route: `setup: RouteSetup`."""

"""What the service counts, for Prometheus. No label tells of a tenant, a project or a key."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from heedful.loop.decide import Done, Verdict
from heedful.work import Depth

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

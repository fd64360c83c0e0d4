"""The resources, settings, limits and metrics of a service."""

from asyncio import Semaphore
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from typing import Any

from heedful import __version__, policies
from heedful.errors import StoreError, UnknownName
from heedful.lessons.lesson import Scope
from heedful.lessons.origin import KEY_SOURCE_PREFIX
from heedful.loop.decide import Done, Policy, Verdict
from heedful.loop.policies import LoopLimits, goal
from heedful.loop.record import Goal
from heedful.memory.memory import Memory
from heedful.models.contract import Model
from heedful_server.jobs import Resources, Work, Workload

DURATION_BUCKETS_SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    120,
)


class Metrics:
    """The Prometheus metrics of a service.

    No label contains a tenant or a project. The id of a key is a label only of refused
    requests; anybody may send ids, so only the first `MAX_REFUSED_KEYS` are.
    """

    def __init__(self) -> None:
        # An extra: the command line imports this module to say that it is missing.
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        registry = CollectorRegistry()
        self._registry = registry
        self.running = 0  # requests that have no answer yet

        # Counted and measured by the middleware, for each request.
        self.requests = Counter(
            "heedful_requests",
            "Requests answered",
            ("method", "route", "status"),
            registry=registry,
        )
        self.seconds = Histogram(
            "heedful_request_seconds",
            "Time to answer",
            ("method", "route"),
            buckets=DURATION_BUCKETS_SECONDS,
            registry=registry,
        )

        self._refusals = Counter(
            "heedful_refused_requests",
            "Requests refused with 401 or 403",
            ("route", "status", "key"),
            registry=registry,
        )
        self._refused_keys: set[str] = set()

        # Counted by routes.
        self.refused = Counter(
            "heedful_spans_refused",
            "Spans not stored",
            registry=registry,
        )
        self._decisions = Counter(
            "heedful_decisions",
            "Decisions on attempts",
            ("outcome",),
            registry=registry,
        )

        Gauge(
            "heedful_build_info",
            "The version of heedful that answers",
            ("version",),
            registry=registry,
        ).labels(__version__).set(1)

        # Set when the metrics are read.
        self._ready = Gauge(
            "heedful_ready", "1 if /readyz answers 200, else 0", registry=registry
        )
        self._jobs = Gauge(
            "heedful_jobs",
            "Jobs that are not done",
            ("queue", "state"),
            registry=registry,
        )
        self._oldest = Gauge(
            "heedful_jobs_oldest_seconds",
            "Age of the oldest job",
            ("queue", "state"),
            registry=registry,
        )
        self._workers = Gauge(
            "heedful_workers", "Workers that are alive", registry=registry
        )

    def refuse(self, route: str, status: int, key_id: str) -> str:
        """Count a refused request, and return the label of its key.

        That is the id, or "(other)" if too many were refused.
        """
        if len(self._refused_keys) < MAX_REFUSED_KEYS:
            self._refused_keys.add(key_id)
        label = key_id if key_id in self._refused_keys else "(other)"
        self._refusals.labels(route, status, label).inc()
        return label

    def decided(self, verdict: Verdict) -> None:
        """Count a decision: "again", "passed", or the first rule that stopped it."""
        outcome = "again"
        if isinstance(verdict, Done):
            outcome = "passed" if verdict.passed else verdict.stopped_by[0].rule

        # A rule of several, such as `echo+fatigue`. A request can invent any number of
        # them, and each would be a label.
        if "+" in outcome:
            outcome = "all"
        self._decisions.labels(outcome).inc()

    def text(self, workload: Workload, *, is_ready: bool = True) -> bytes:
        """Return all metrics in the Prometheus text format.

        `is_ready` is what `/readyz` says.
        """
        self._ready.set(is_ready)
        self._jobs.clear()
        self._oldest.clear()
        self._workers.set(workload.workers)
        for depth in workload.depths:
            self._jobs.labels(depth.queue, depth.state).set(depth.number)
            self._oldest.labels(depth.queue, depth.state).set(depth.oldest)
        from prometheus_client import generate_latest

        return generate_latest(self._registry)


LIMITS_MIB_BYTES = 1024 * 1024
# Callers, keys, sessions and scopes that a service remembers at a time.
MAX_REMEMBERED_CALLERS = 10_000
# Calls with large bodies, of which each key has one, and checks that run in processes,
# at the same time.
MAX_HEAVY_CALLS = 2
# How long an answer that anybody may ask for is repeated.
MAX_CACHE_SECONDS = 1.0
# Ids of refused keys that metrics name. Anybody may send others.
MAX_REFUSED_KEYS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """The limits on the requests to a service.

    `body` is the largest decompressed body in bytes, `traces` the same for
    `/v1/traces`. Each key may send `rate` requests a second (0: no limit), and `burst`
    at once. A request takes at most `answer` seconds. On one day at most `outcomes`
    ended and abandoned loops of a key count in proofs.
    """

    body: int = 4 * LIMITS_MIB_BYTES
    traces: int = 16 * LIMITS_MIB_BYTES
    rate: float = 0.0
    burst: int = 50
    answer: float = 300.0
    outcomes: int = 1_000


@dataclass(frozen=True, slots=True)
class LoopMeasures:
    """What judges a loop: names of `checks`, its `goals`, and trusted `keys`."""

    checks: tuple[str, ...]
    goals: tuple[Goal, ...]
    keys: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup(Resources):
    """The resources and settings that all routes of a service share.

    Callers without a key work in `scope`; they are accepted only if `open` is True and
    no key exists. `judge` is the model of critics and of scores that callers do not
    report. Requests may name the `checks`, besides those of heedful, but pass no
    arguments to them. `policy` applies to loops without a policy. With `reflections`
    False, the service generates none. `turns` limits how many checks run in processes
    at the same time. `root_path` is the path of a proxy below which the service stands,
    such as `/heedful`.

    `pins` maps patterns such as `TENANT/PROJECT/*` to what is pinned to the loops that
    they match: names of `checks`, which judge every attempt; goals; and keys
    (`key:ID`), whose evaluations count. Raises UnknownName for another name.
    """

    scope: Scope = Scope()
    open: bool = False
    judge: Model | None = None
    policy: Policy = policies.default
    checks: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    pins: Mapping[str, Sequence[str]] = field(default_factory=dict)
    limits: RequestLimits = RequestLimits()
    reflections: bool = True
    root_path: str = ""
    guardrails: LoopLimits = LoopLimits()
    work: Work = field(default_factory=Work)
    metrics: Metrics = field(default_factory=Metrics)
    turns: Semaphore = field(default_factory=lambda: Semaphore(MAX_HEAVY_CALLS))
    memories: dict[Scope, Memory] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sort_pins(self.pins.values())

    def memory(self, scope: Scope) -> Memory:
        """Return the memory of a scope; a job embeds what is written to it."""
        memory = self.memories.get(scope)
        if memory is not None:
            return memory

        memory = Resources.memory(self, scope)
        if self.embedder:
            memory.later = partial(self.embed_soon, scope)

        if len(self.memories) >= MAX_REMEMBERED_CALLERS:
            self.memories.clear()
        self.memories[scope] = memory
        return memory

    async def embed_soon(self, scope: Scope, since: str = "the last job") -> None:
        """Queue a job that embeds the texts that were written `since`; "" means all.

        Nothing is queued without an embedder. If the queue fails, the next job embeds
        them.
        """
        if self.embedder is None:
            return
        arguments = {}
        if since:
            arguments["since"] = since
        with suppress(StoreError):
            await self.work.defer("embed", scope, **arguments)

    def pinned(self, scope: Scope, loop: str) -> LoopMeasures:
        """Return what is pinned to a loop."""
        path = f"{scope}/{loop}"
        return self._sort_pins(
            pins for pattern, pins in self.pins.items() if fnmatchcase(path, pattern)
        )

    def _sort_pins(self, lists: Iterable[Sequence[str]]) -> LoopMeasures:
        """Return the checks, the goals and the keys in these lists of pins.

        A pin such as `key:ID` is a key, one such as `score>=0.8` is a goal. Raises
        UnknownName.
        """
        checks = list[str]()
        goals = list[Goal]()
        keys = set[str]()
        for pin in dict.fromkeys(chain.from_iterable(lists)):
            if pin.startswith(KEY_SOURCE_PREFIX):
                keys.add(pin.removeprefix(KEY_SOURCE_PREFIX))
            elif "<" in pin or ">" in pin:
                goals.append(goal(pin))
            elif pin in self.checks:
                checks.append(pin)
            else:
                raise UnknownName(
                    "check of [checks] in heedful.toml", pin, sorted(self.checks)
                )

        return LoopMeasures(tuple(checks), tuple(goals), keys=frozenset(keys))

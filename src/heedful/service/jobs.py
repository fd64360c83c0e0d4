"""Jobs: work that may be done later, in this process or by workers.

A job is a task for one scope; doing it twice does no harm. A failed job is tried again later.
Services queue jobs. `sweep` queues what was left undone, and `night` queues what maintains the
memories. `LocalQueue` runs jobs in this process; `heedful.service.worker` has the queue of
PostgreSQL.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import Context as Variables
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from math import inf
from typing import Any, Literal

from heedful import errors, telemetry
from heedful.checks.evaluate import Context, call
from heedful.drive.drive import Run
from heedful.lessons.consolidate import Mode
from heedful.lessons.lesson import SHARE, Scope
from heedful.loop import codec, record
from heedful.memory.dream import consolidate
from heedful.memory.ingest import gather
from heedful.memory.memory import Memory
from heedful.memory.reflect import reflect_waiting
from heedful.models.contract import Embedder, Model
from heedful.redact import redact
from heedful.store import episodes, lessons
from heedful.store import loops as loop_store
from heedful.store.store import Store

log: logging.Logger = logging.getLogger("heedful")
State = Literal["waiting", "running", "stalled", "failed"]


@dataclass(frozen=True, slots=True)
class Depth:
    """The number of jobs in one queue and state, and the age of the oldest in seconds.

    `stalled` jobs were begun by a worker that has stopped sending heartbeats. They run again.
    """

    queue: str
    state: State
    number: int
    oldest: float = 0.0


class Work:
    """A queue of work; this one does nothing, because workers find the work in the store.

    `heedful.service.jobs.TASKS` has the names and arguments of tasks.
    """

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Queue a task, unless the same task waits already.

        `arguments` are plain data. Raises UnknownName, InvalidInput, StoreError.
        """

    async def depth(self) -> Sequence[Depth]:
        """Count the jobs, by queue and state. Raises StoreError."""
        return ()


# Called with a task, and id, scope, store, memory, goals, policy by name: the loop to be driven.
Opens = Callable[..., Run[Any]]
ACTOR = "heedful worker"
LONGEST = 1_000  # characters of an argument


@dataclass(frozen=True, slots=True)
class Resources:
    """A store and models; `holdout` and `max_entries` are those of Memory."""

    store: Store
    model: Model | None = None
    embedder: Embedder | None = None
    holdout: float = SHARE
    max_entries: int | None = None

    def memory(self, scope: Scope) -> Memory:
        """Return the memory of a scope."""
        return Memory(self.store, scope, self.embedder, self.holdout, self.max_entries)


@dataclass(frozen=True, slots=True)
class Tools(Resources):
    """What a worker works with.

    If not `enabled`, it neither reflects nor dreams: episodes wait in the store. `loops` maps the
    names that jobs use to the code that may drive loops, so that no job names code. With `mode`
    "full" it dreams by itself, with "lite" only on request. It prunes lessons not used for
    `unused_for` seconds and those beyond `keep` lessons; None turns either off.
    """

    loops: Mapping[str, Opens] = field(default_factory=dict)
    mode: Literal["lite", "full"] = "full"
    unused_for: float | None = None
    keep: int | None = None
    enabled: bool = True

    @property
    def prunes(self) -> bool:
        """Return True if it removes lessons."""
        return self.unused_for is not None or self.keep is not None


async def reflect(tools: Tools, scope: Scope, *, digest: str = "") -> None:
    """Reflect on the episode with this digest, or on all that wait; a failure does not stop others.

    Raises NotFound, LeaseLost if another worker has claimed it, ModelError, StoreError.
    """
    if not tools.enabled:
        return
    memory, began = tools.memory(scope), time.time()
    if digest:
        if await reflect_waiting(memory, before=inf, digest=digest, model=tools.model) is not None:
            return
        state = await tools.store.read(scope, episodes.state, digest)
        if state is None:
            raise errors.NotFound("episode", digest[:16], f"{scope.tenant}/{scope.project}")
        if state != "reflected":
            what = f"another worker is at work on episode {digest[:16]}"
            raise errors.LeaseLost(f"{what}; try again in seconds")
        return
    wrong: errors.ModelError | None = None
    while True:
        try:
            if await reflect_waiting(memory, before=began, model=tools.model) is None:
                break
        except errors.ModelError as error:
            wrong = error
    if wrong is not None:
        raise wrong


async def embed(tools: Tools, scope: Scope) -> None:
    """Store vectors for the examples that lack one. Raises ModelError, StoreError."""
    if tools.embedder is not None:
        await tools.memory(scope).reembed()


async def dream(tools: Tools, scope: Scope, *, mode: Mode = "full") -> None:
    """Consolidate the lessons. Raises InvalidInput, ModelError, StoreError."""
    if tools.enabled:
        await consolidate(tools.memory(scope), mode=mode, by=ACTOR)


async def prune(tools: Tools, scope: Scope) -> None:
    """Remove the lessons that the worker's settings call unused. Raises StoreError."""
    if tools.prunes:
        memory = tools.memory(scope)
        await memory.prune(by=ACTOR, unused_for=tools.unused_for, keep=tools.keep)


async def prove(tools: Tools, scope: Scope) -> None:
    """Retire what is proven to hurt, and rank higher what is proven to help. Raises StoreError."""
    await tools.memory(scope).look()


async def drive(tools: Tools, scope: Scope, *, loop: str, by: str) -> None:
    """Drive a stored loop from its current state to its end, with the code that `by` names.

    `by` is a key of the worker's `loops`. Raises UnknownName, NotFound, UserCodeError, ModelError,
    StoreError, and LeaseLost if another process drives the loop.
    """
    if by not in tools.loops:
        known = sorted(tools.loops) or ["none"]
        raise errors.UnknownName("loop that this worker drives", by, known)
    head = (await tools.store.read(scope, loop_store.read, loop)).head
    options: dict[str, Any] = {"id": loop, "scope": scope, "store": tools.store}
    options |= {"memory": tools.memory(scope)}
    options |= {"goals": tuple(codec.from_document(record.Goal, one) for one in head.goals)}
    options |= {"policy": codec.policy_from(head.policy)} if head.policy else {}
    opens, at = partial(tools.loops[by], **options), Context(head.task, loop_id=loop)
    run = await call(partial(_no_run, by), opens, head.task, at=at)
    if not isinstance(run, Run):
        raise _no_run(by, TypeError(f"it returned {type(run).__name__}, not a Run"))
    await run.finish()


def _no_run(by: str, error: BaseException) -> errors.GenerateFailed:
    why = f"{type(error).__name__}: {redact(str(error))[:300]}"
    return errors.GenerateFailed(f"{by!r} opened no loop: {why}; correct it")


@dataclass(frozen=True, slots=True)
class Task:
    """A kind of work and its queue; a higher `priority` runs first."""

    run: Callable[..., Awaitable[None]]
    queue: str
    priority: int


TASKS: Mapping[str, Task] = {
    "drive": Task(drive, "loops", 50),
    "reflect": Task(reflect, "reflection", 40),
    "prove": Task(prove, "memory", 30),
    "embed": Task(embed, "memory", 20),
    "dream": Task(dream, "memory", 10),
    "prune": Task(prune, "memory", 0),
}
QUEUES = tuple(dict.fromkeys(task.queue for task in TASKS.values()))


@dataclass(frozen=True, slots=True)
class Job:
    """A task to run for a scope. Raises UnknownName, and InvalidInput for bad arguments."""

    task: str
    scope: Scope
    arguments: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise errors.UnknownName("task", self.task, sorted(TASKS))
        taken = inspect.signature(self.kind.run)
        try:
            taken.bind(None, self.scope, **self.arguments)
        except TypeError as error:
            wanted = ", ".join(list(taken.parameters)[2:]) or "none"
            what = f"{self.task}'s arguments"
            raise errors.InvalidInput(what, dict(self.arguments), wanted) from error
        for name, value in self.arguments.items():
            if not isinstance(value, str) or len(value) > LONGEST or not value.isprintable():
                raise errors.InvalidInput(name, value, f"at most {LONGEST} printable characters")

    @property
    def kind(self) -> Task:
        """Return the task to run."""
        return TASKS[self.task]

    @property
    def name(self) -> str:
        """Return the same name for jobs that do the same."""
        return self._named(self.task, *sorted(self.arguments.items()))

    @property
    def holds(self) -> str | None:
        """Return the lock that only one job of the scope's memory holds at a time, else None.

        The store keeps other jobs apart.
        """
        return self._named("memory") if self.kind.queue == "memory" else None

    def _named(self, *what: object) -> str:
        whole = json.dumps([self.scope.tenant, self.scope.project, *what])
        return f"{what[0]} {blake2b(whole.encode(), digest_size=16).hexdigest()}"


# Called with a job and a description of its result.
JobListener = Callable[[Job, str], None]
# Tries of a job, and the longest wait between two tries in seconds. All tries take two hours.
TRIES = 13
LONGEST_WAIT = 3_600.0


def no_listener(job: Job, what: str) -> None:
    """Ignore the event; the default for a worker without a listener."""


def again_in(error: BaseException | None, tries: int) -> float | None:
    """Return the seconds before a job that failed `tries` times runs again: 2, 4, 8 …; None: never.

    Errors that would recur are never retried: wrong input, something missing, or a defect of
    heedful. A job that a stopping worker interrupted is free at once.
    """
    if isinstance(error, asyncio.CancelledError):
        return 0.0
    lasting = isinstance(error, errors.UsageError | errors.NotFound)
    if lasting or not isinstance(error, errors.HeedfulError) or tries >= TRIES:
        return None
    return min(LONGEST_WAIT, 2.0**tries)


async def do(
    job: Job,
    tools: Tools,
    tries: int,
    carried: Mapping[str, str],
    listener: JobListener = no_listener,
) -> None:
    """Run a job for the `tries`th time; `carried` identifies the trace that it belongs to.

    Raises what the task raises.
    """
    began = time.monotonic()
    listener(job, "begun" if tries == 1 else f"begun again, try {tries}")
    try:
        with telemetry.task(job.task, job.scope.tenant, job.scope.project, carried):
            await job.kind.run(tools, job.scope, **job.arguments)
    except asyncio.CancelledError:
        listener(job, "given back")
        raise
    except errors.HeedfulError as error:
        wait = again_in(error, tries)
        after = "given up" if wait is None else f"again in {wait:g} s"
        listener(job, f"{after}: {type(error).__name__}: {error}")
        raise
    listener(job, f"done in {time.monotonic() - began:.2f} s")


# Seconds between two sweeps, and between two nights.
SWEEP = 60.0
NIGHT = 86_400.0
# How many of the oldest episodes of a scope one sweep queues; a later sweep takes the others.
MOST = 1_000


async def sweep(work: Work, tools: Tools) -> None:
    """Queue the waiting episodes of every scope, because the process that took them may be dead.

    Ended traces become episodes first. Episodes that a worker holds are left to it, and failed
    episodes to the next try of their job. Raises StoreError.
    """
    for scope in await tools.store.read(Scope(), lessons.scopes, waiting=True):
        await gather(tools.store, scope)
        for digest in await tools.store.read(scope, episodes.left, MOST) if tools.enabled else ():
            await work.defer("reflect", scope, digest=digest)


async def night(work: Work, tools: Tools) -> None:
    """Queue the maintenance of every scope's memory, as the settings say. Raises StoreError."""
    wanted = {
        "prove": True,
        "embed": tools.embedder is not None,
        "dream": tools.enabled and tools.mode == "full",
        "prune": tools.prunes,
    }
    for scope in await tools.store.read(Scope(), lessons.scopes):
        for task in (name for name, wants in wanted.items() if wants):
            await work.defer(task, scope)


async def go_round(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do a periodic task; after a store error it is left to the next round."""
    try:
        await work()
    except errors.StoreError as error:
        log.warning("round_failed", extra={"round": name, "error": str(error)})


# Jobs at a time; more help only if jobs wait for a model on the network.
CONCURRENCY = 2
# Seconds in which running jobs may finish when the process has to stop.
GRACE = 30.0


@dataclass(slots=True)
class _Entry:
    """A queued job, the trace it belongs to, and since when it is in its state."""

    job: Job
    carried: dict[str, str]
    since: float = field(default_factory=time.time)
    tries: int = 0
    ready: bool = True


class LocalQueue(Work):
    """A queue in this process, for a store that one process serves; use it with `async with`.

    On entering it queues the unfinished work in the store, and then once a day the maintenance of
    memories. A failed job is tried again. On leaving, running jobs may finish within `GRACE`
    seconds; after that they are given back. `queues` limits it to these queues; None means all.
    """

    def __init__(
        self,
        tools: Tools,
        *,
        concurrency: int = CONCURRENCY,
        queues: Collection[str] | None = None,
        listener: JobListener = no_listener,
    ) -> None:
        self._tools, self._concurrency = tools, concurrency
        self._queues, self._listener = queues or QUEUES, listener
        self._waiting: dict[str, _Entry] = {}  # by the name of the job, also what waits to retry
        self._running: dict[asyncio.Task[None], _Entry] = {}
        self._rounds: list[asyncio.Task[None]] = []
        self._failed: Counter[str] = Counter()

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Queue a task, unless the same task waits already. Raises UnknownName, InvalidInput."""
        job = Job(task, scope, arguments)
        if job.kind.queue in self._queues and job.name not in self._waiting:
            self._waiting[job.name] = _Entry(job, telemetry.trace_headers())
            self._begin()

    async def depth(self) -> Sequence[Depth]:
        """Count the jobs, by queue and state; `failed` counts from the start of this process."""
        since, now = defaultdict[tuple[str, State], list[float]](list), time.time()
        for entry in self._waiting.values():
            since[entry.job.kind.queue, "waiting"].append(entry.since)
        for entry in self._running.values():
            since[entry.job.kind.queue, "running"].append(entry.since)
        depths = [Depth(*at, len(all_), max(0.0, now - min(all_))) for at, all_ in since.items()]
        return [*depths, *(Depth(queue, "failed", n) for queue, n in self._failed.items())]

    async def drain(self) -> None:
        """Wait until nothing runs, and only retries wait."""
        while self._running:
            await asyncio.wait(self._running)
            await asyncio.sleep(0)  # callbacks deal with the results

    async def __aenter__(self) -> LocalQueue:
        async def repeat(round: Callable[..., Awaitable[None]], seconds: float) -> None:
            while True:
                await go_round(round.__name__, partial(round, self, self._tools))
                await asyncio.sleep(seconds)

        rounds = repeat(sweep, SWEEP), repeat(night, NIGHT)
        self._rounds = [asyncio.create_task(each) for each in rounds]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Start no more jobs; let running jobs finish, or give them back."""
        self._concurrency = 0
        for round in self._rounds:
            round.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=GRACE)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._rounds, *self._running, return_exceptions=True)

    def _begin(self) -> None:
        """Begin the most urgent jobs; of equally urgent jobs the first."""
        while len(self._running) < self._concurrency:
            held = {entry.job.holds for entry in self._running.values()} - {None}
            ready = [e for e in self._waiting.values() if e.ready and e.job.holds not in held]
            if not ready:
                break
            entry = max(ready, key=lambda one: one.job.kind.priority)
            del self._waiting[entry.job.name]
            entry.since, entry.tries = time.time(), entry.tries + 1
            work = do(entry.job, self._tools, entry.tries, entry.carried, self._listener)
            # A job does not inherit the context of the code that queued it.
            task = asyncio.create_task(work, context=Variables())
            self._running[task] = entry
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        entry = self._running.pop(task)
        error = None if task.cancelled() else task.exception()
        wait = again_in(error, entry.tries)
        if error is not None and wait is None:
            self._failed[entry.job.kind.queue] += 1
            extra = {"job": entry.job.name, "error": type(error).__name__}
            defect = None if isinstance(error, errors.HeedfulError) else error
            log.error("job_failed", extra=extra, exc_info=defect)
        elif wait is not None and entry.job.name not in self._waiting:
            entry.since, entry.ready = time.time(), False
            self._waiting[entry.job.name] = entry
            asyncio.get_running_loop().call_later(wait, self._again, entry)
        self._begin()

    def _again(self, entry: _Entry) -> None:
        entry.ready = True
        self._begin()

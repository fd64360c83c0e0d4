"""Background jobs, which run later in this process or in workers.

A job is a task for one scope (tenant and project). It may safely run twice, and is
tried again if it fails. `sweep` queues unfinished work, and `night` queues the daily
maintenance of memories. `LocalQueue` runs jobs in this process;
`heedful_server.worker` keeps its queue in PostgreSQL.
"""

import asyncio
import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from contextvars import Context as Variables
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import blake2b
from math import inf
from typing import Any, Literal

from heedful import doors, errors, telemetry
from heedful.checks.evaluate import Context, call
from heedful.drive.run_loop import Run
from heedful.lessons.scope import DAY_SECONDS, DEFAULT_HOLDOUT_SHARE, Scope, name_scope
from heedful.loop import codec, record
from heedful.memory.dream import consolidate
from heedful.memory.memory import Memory
from heedful.memory.reflect import reflect_waiting
from heedful.memory.vectors import reembed
from heedful.models.contract import Embedder, Model
from heedful.redact import redact
from heedful.store import episodes, lessons, loops as loop_store, retention
from heedful.store.connection import MAX_READ_ROWS
from heedful.store.store import Store
from heedful.validation import Document, Fields
from heedful_server.arrivals import Patience, gather

log = logging.getLogger("heedful")
State = Literal["waiting", "running", "stalled", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """The `number` of jobs of a queue in a state; `oldest` is their greatest age.

    The age is in seconds. `stalled` jobs belong to a worker that no longer sends
    heartbeats; they will run again.
    """

    queue: str
    state: State
    number: int
    oldest: float = 0.0


# Workers are too few if a job could have begun longer ago than this.
MAX_JOB_AGE_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is in a job queue, and how many `workers` are alive to do it.

    An unknown number of workers is NaN.
    `waiting` jobs wait, the oldest for `oldest` seconds since it could have begun.
    """

    depths: Sequence[Depth]
    workers: float

    @property
    def waiting(self) -> int:
        """The number of jobs that wait, in all queues."""
        return sum(depth.number for depth in self._waiting)

    @property
    def oldest(self) -> float:
        """The age of the oldest job that waits; 0 if none waits."""
        return max((depth.oldest for depth in self._waiting), default=0.0)

    @property
    def _waiting(self) -> list[Depth]:
        return [depth for depth in self.depths if depth.state == "waiting"]

    @property
    def state(self) -> Literal["ok", "no_worker", "behind"]:
        """What is wrong: nobody does the jobs that wait, or they wait too long."""
        if self.waiting and not self.workers:
            return "no_worker"
        return "behind" if self.oldest > MAX_JOB_AGE_SECONDS else "ok"

    def __str__(self) -> str:
        if not self.waiting:
            return f"{self.workers} alive, no job waits"
        jobs = f"jobs waiting: {self.waiting}, the oldest for {self.oldest:.0f} s"
        return f"{self.workers} alive, {jobs}"


class Work:
    """A job queue; `heedful_server.jobs.tasks` returns all tasks by name.

    This base class queues nothing: workers find unfinished work in the store.
    """

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Queue a task for a scope, unless an equal job already waits in the queue.

        `arguments` are texts. Raises UnknownName, StoreError.
        """

    async def depth(self) -> Sequence[Depth]:
        """Return the number of jobs in each queue and state. Raises StoreError."""
        return ()

    async def workers(self) -> int:
        """Return how many workers are alive. Raises StoreError."""
        return 0

    async def workload(self) -> Workload:
        """Return the jobs, and the workers that are alive. Raises StoreError."""
        return Workload(depths=await self.depth(), workers=await self.workers())


# A function that opens a stored loop. It is called with the task of the loop, and by
# name with id, scope, store, memory, goals, and the policy if the loop has one.
Opens = Callable[..., Run[Any]]
WORKER_ACTOR = "heedful worker"
# A text may be written with a time before now: by a process whose clock differs, or in
# a long transaction. A search for new texts goes back by these seconds.
CLOCK_OVERLAP_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a service or a worker makes its `Memory` objects of: store, models, limits.

    The other fields are arguments of `Memory`.
    """

    store: Store
    model: Model | None = None
    embedder: Embedder | None = None
    holdout: float = DEFAULT_HOLDOUT_SHARE
    max_entries: int | None = None
    strict: bool = False
    trust: Collection[str] = ()

    def memory(self, scope: Scope) -> Memory:
        """Return the memory of this tenant and project."""
        return Memory(
            self.store,
            scope,
            self.embedder,
            holdout=self.holdout,
            max_entries=self.max_entries,
            strict=self.strict,
            trust=self.trust,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools(Resources):
    """The store, models and settings of a worker.

    If `enabled` is False, the worker neither reflects nor dreams. `loops` maps names to
    functions that open loops; a job `drive` contains one of these names. In the `mode`
    "full" the worker dreams every night, in "lite" only on request. Every night it
    removes the lessons that were not used for `unused_for` seconds, and the loops that
    ended `ended_for` seconds ago; None turns a limit off. `patience` says how long to
    wait until a trace is complete. The job `embed` calls `pause` before each batch;
    `embedded` has the time up to which it has seen the examples of a scope.
    """

    loops: Mapping[str, Opens] = field(default_factory=dict)
    mode: Literal["lite", "full"] = "full"
    unused_for: float | None = None
    ended_for: float | None = None
    enabled: bool = True
    patience: Patience = Patience()
    pause: Callable[[], Awaitable[None]] | None = None
    embedded: dict[Scope, float] = field(default_factory=dict)


async def reflect(tools: Tools, scope: Scope, *, digest: str) -> None:
    """Reflect on the episode with this digest. Raises NotFound, ModelError, StoreError.

    Raises LeaseLost if another worker reflects on the episode.
    """
    if not tools.enabled:
        return

    memory = tools.memory(scope)
    episode = await reflect_waiting(
        memory, before=inf, digest=digest, model=tools.model
    )
    if episode is not None:
        return

    state = await tools.store.read(scope, episodes.state, digest)
    if state is None:
        raise errors.NotFound("episode", digest[:16], str(scope))
    if state != "reflected":
        raise errors.LeaseLost(
            f"another worker reflects on episode {digest[:16]}; "
            "try again in a few seconds"
        )


async def embed(tools: Tools, scope: Scope, *, since: str = "") -> None:
    """Compute and store the missing vectors of examples. Raises ModelError, StoreError.

    If `since` is not "", examples that an earlier run of this process has seen are left
    out.
    """
    if tools.embedder is None:
        return

    began = time.time()
    last = tools.embedded.get(scope, 0.0) if since else 0.0
    await reembed(tools.memory(scope), since=last, pause=tools.pause)
    tools.embedded[scope] = began - CLOCK_OVERLAP_SECONDS


async def dream(tools: Tools, scope: Scope) -> None:
    """Reflect on failures that recur, and end rules that newer ones contradict.

    Raises InvalidInput, ModelError, StoreError.
    """
    if tools.enabled:
        await consolidate(tools.memory(scope), by=WORKER_ACTOR)


async def prune(tools: Tools, scope: Scope) -> None:
    """Remove the lessons that were not used for `tools.unused_for` seconds.

    Nothing is removed if that would be most of the memory. Raises StoreError.
    """
    if tools.unused_for is None:
        return
    memory = tools.memory(scope)
    unused = await memory.prune(
        by=WORKER_ACTOR, unused_for=tools.unused_for, dry_run=True
    )
    lessons = await memory.count()
    if len(unused) * 2 > lessons:
        # The clock may be fast: then all that was learnt would be lost.
        reason = (
            f"{len(unused)} of {lessons} lessons seem unused for "
            f"{tools.unused_for / 86_400:g} days, and stay; see that the clock is "
            f"right, then run {name_scope('heedful lessons prune', scope)}"
        )
        log.warning("prune_refused", extra={"scope": repr(scope), "reason": reason})
        return
    await memory.prune(by=WORKER_ACTOR, unused_for=tools.unused_for)


async def expire(tools: Tools, scope: Scope) -> None:
    """Remove the loops that ended more than `tools.ended_for` seconds ago.

    Nothing is removed if that would be most of the loops. Raises StoreError.
    """
    ended_for = tools.ended_for
    if ended_for is None:
        return

    doubt = await retention.doubt(tools.store, scope, ended_for)
    if doubt:
        log.warning("expire_refused", extra={"scope": repr(scope), "reason": doubt})
        return

    await retention.remove(tools.store, scope, ended_for=ended_for, by=WORKER_ACTOR)


async def prove(tools: Tools, scope: Scope) -> None:
    """Retire lessons proven to hurt; raise the rank of those proven to help.

    Raises StoreError.
    """
    await tools.memory(scope).look()


async def drive(tools: Tools, scope: Scope, *, loop: str, by: str) -> None:
    """Run a stored loop from its state to its end; `tools.loops[by]` opens it.

    Raises UnknownName, NotFound, UserCodeError, ModelError, StoreError, and LeaseLost
    if another process runs the loop.
    """
    if by not in tools.loops:
        names = sorted(tools.loops) or ["none"]
        raise errors.UnknownName("loop that this worker drives", by, names)

    head = (await tools.store.read(scope, loop_store.read, loop)).head
    arguments: Document = {
        "id": loop,
        "scope": scope,
        "store": tools.store,
        "memory": tools.memory(scope),
        "goals": tuple(codec.from_document(record.Goal, goal) for goal in head.goals),
    }
    if head.policy:
        arguments["policy"] = codec.policy_from(head.policy)

    opens = partial(tools.loops[by], **arguments)
    context = Context(head.task, loop_id=loop)
    run = await call(partial(_not_opened, by), opens, head.task, at=context)
    if not isinstance(run, Run):
        wrong = TypeError(f"it returned {type(run).__name__}, not a Run")
        raise _not_opened(by, wrong)

    await run.finish()


def _not_opened(by: str, error: BaseException) -> errors.GenerateFailed:
    """Return the error that the function `tools.loops[by]` opened no loop, and why."""
    reason = f"{type(error).__name__}: {redact(str(error))[:300]}"
    return errors.GenerateFailed(f"{by!r} did not open a loop: {reason}; correct it")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """A kind of job: its function, its queue and its priority; the highest runs first.

    A job waits `delay` seconds before it is queued; equal jobs of that time become one.
    """

    run: Callable[..., Awaitable[None]]
    queue: str
    priority: int
    delay: int = 0


OWN_TASKS: Mapping[str, JobKind] = {
    "drive": JobKind(run=drive, queue="loops", priority=50),
    "reflect": JobKind(run=reflect, queue="reflection", priority=40),
    "prove": JobKind(run=prove, queue="memory", priority=30),
    "embed": JobKind(run=embed, queue="memory", priority=20, delay=1),
    "dream": JobKind(run=dream, queue="memory", priority=10),
    "prune": JobKind(run=prune, queue="memory", priority=0),
    "expire": JobKind(run=expire, queue="memory", priority=0),
}
# The queues of all loops, each named for who drives its loops.
LOOP_QUEUE = OWN_TASKS["drive"].queue
# Jobs of other packages are in these queues, too.
JOB_QUEUES = tuple(dict.fromkeys(task.queue for task in OWN_TASKS.values()))


@cache
def tasks() -> Mapping[str, JobKind]:
    """Return all kinds of jobs by name: those of this package, and of others."""
    return {**OWN_TASKS, **doors.JOBS.load_all()}


def queue_of_loops(by: str) -> str:
    """Return the queue of the loops that a function named `by` opens."""
    return f"{LOOP_QUEUE}:{by}"


@dataclass(frozen=True, slots=True)
class Job:
    """A task to run for a scope, with arguments. Raises UnknownName."""

    task: str
    scope: Scope
    arguments: Fields

    def __post_init__(self) -> None:
        if self.task not in tasks():
            raise errors.UnknownName("task", self.task, sorted(tasks()))

    @property
    def kind(self) -> JobKind:
        """Return the entry of `tasks` for this job."""
        return tasks()[self.task]

    @property
    def queue(self) -> str:
        """Return the queue in which the job waits for a worker.

        Loops of each name that `Tools.loops` may have wait in one of their own. So no
        worker takes a loop that it cannot drive.
        """
        if self.task != "drive":
            return self.kind.queue
        return queue_of_loops(str(self.arguments.get("by", "")))

    @property
    def name(self) -> str:
        """Return a name that all jobs with this task, scope and arguments share."""
        return self._named(self.task, *sorted(self.arguments.items()))

    @property
    def holds(self) -> str | None:
        """Return the lock that a scope's jobs of memory share."""
        queue = self.kind.queue
        return self._named(queue) if queue == "memory" else None

    def _named(self, *parts: object) -> str:
        """Return a short name: the first part, and a digest of scope and parts."""
        identity = json.dumps([self.scope.tenant, self.scope.project, *parts])
        digest = blake2b(identity.encode(), digest_size=16).hexdigest()
        return f"{parts[0]} {digest}"


JobEvent = Literal["begun", "begun again", "given back", "given up", "again", "done"]
# It is told a job, what happened to it, and that in words.
JobListener = Callable[[Job, JobEvent, str], None]
# The most tries of a job (two hours in total), and the longest wait between two tries
# in seconds.
MAX_JOB_TRIES = 13
MAX_JOB_WAIT_SECONDS = 3_600.0


def no_listener(job: Job, event: JobEvent, words: str) -> None:
    """Do nothing; the default listener."""


def again_in(error: BaseException | None, tries: int) -> float | None:
    """Return the seconds until a job that failed `tries` times runs again, or None.

    None means never. `error` is the last failure. The wait doubles: 2, 4, 8 …. An error
    that would recur gets no retry: wrong input, a missing object, or a defect of
    heedful. A cancelled job waits 0 seconds.
    """
    if isinstance(error, asyncio.CancelledError):
        return 0.0

    is_defect = not isinstance(error, errors.HeedfulError)
    would_recur = is_defect or isinstance(error, errors.UsageError | errors.NotFound)
    if would_recur or tries >= MAX_JOB_TRIES:
        return None
    return min(MAX_JOB_WAIT_SECONDS, 2.0**tries)


async def do(
    job: Job, tools: Tools, tries: int, listener: JobListener = no_listener
) -> None:
    """Run a job and report its progress to `listener`; `tries` is 1 at the first try.

    Raises the errors of the task.
    """
    began = time.monotonic()
    if tries == 1:
        listener(job, "begun", "begun")
    else:
        listener(job, "begun again", f"begun again, try {tries}")

    try:
        with telemetry.task(job.task, job.scope.tenant, job.scope.project):
            await job.kind.run(tools, job.scope, **job.arguments)
    except asyncio.CancelledError:
        listener(job, "given back", "given back")
        raise
    except errors.HeedfulError as error:
        wait = again_in(error, tries)
        event: JobEvent = "given up"
        after = "given up"
        if wait is not None:
            event = "again"
            after = f"again in {wait:g} s"
        listener(job, event, f"{after}: {type(error).__name__}: {error}")
        raise

    listener(job, "done", f"done in {time.monotonic() - began:.2f} s")


# Seconds between two calls of `sweep`; `night` is called once a day.
SWEEP_INTERVAL_SECONDS = 5.0


async def sweep(work: Work, tools: Tools, failed: bool = False) -> None:
    """Turn ended traces into episodes, and queue a job for each waiting episode.

    This is done in every scope. With `failed`, failed episodes get a job, too. Episodes
    that a worker has claimed get none. Raises StoreError.
    """
    for scope in await tools.store.read(Scope(), lessons.scopes, having="work"):
        await gather(tools.store, scope, tools.patience)
        if not tools.enabled:
            continue

        digests = await tools.store.read(scope, episodes.left, MAX_READ_ROWS, failed)
        for digest in digests:
            await work.defer("reflect", scope, digest=digest)


async def night(work: Work, tools: Tools) -> None:
    """Queue each scope's nightly jobs that `tools` enables. Raises StoreError."""
    tasks = ["prove"]
    if tools.embedder:
        tasks.append("embed")
    if tools.enabled and tools.mode == "full":
        tasks.append("dream")
    if tools.unused_for is not None:
        tasks.append("prune")

    for scope in await tools.store.read(Scope(), lessons.scopes):
        for task in tasks:
            await work.defer(task, scope)

    if tools.ended_for is not None:
        # A scope may have loops without a lesson.
        for scope in await tools.store.read(Scope(), lessons.scopes, "loops"):
            await work.defer("expire", scope)


async def go_round(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do a round of a periodic task; log a StoreError: the next round retries."""
    try:
        await work()
    except errors.StoreError as error:
        log.warning("round_failed", extra={"round": name, "error": str(error)})


# Jobs that run at once; more are useful only if jobs wait for a model on the network.
DEFAULT_CONCURRENCY = 2
# Seconds that running jobs have to finish when the process must stop.
JOB_GRACE_SECONDS = 30.0


class LocalQueue(Work):
    """A job queue in this process, for a store that no other process uses.

    Use it with `async with`. It queues waiting work every few seconds and maintenance
    every day, and tries failed jobs again. Jobs run in the order of arrival; those of
    queues that are not in `queues` are ignored; None means all queues. On exit, running
    jobs have `JOB_GRACE_SECONDS` to finish before they are cancelled.
    """

    def __init__(
        self,
        tools: Tools,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        queues: Collection[str] | None = None,
        listener: JobListener = no_listener,
    ) -> None:
        self._tools = tools
        self._queues = queues or JOB_QUEUES
        self._listener = listener
        self._open = True

        # A running job has a slot, and the lock that it holds.
        self._slots = asyncio.Semaphore(concurrency)
        self._locks = defaultdict[str | None, asyncio.Lock](asyncio.Lock)

        # The name of a job -> its queue, and since when it waits.
        self._waiting: dict[str, tuple[str, float]] = {}
        # The asyncio task of a job -> its queue, and since when it runs.
        self._running: dict[asyncio.Task[Any] | None, tuple[str, float]] = {}
        # The asyncio tasks of all jobs, waiting or running, and of the periodic rounds.
        self._tasks: set[asyncio.Task[None]] = set()
        self._rounds: list[asyncio.Task[None]] = []
        # Queue -> the number of its jobs that were given up.
        self._failed: Counter[str] = Counter()

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Queue a task, unless an equal job already waits. Raises UnknownName."""
        job = Job(task, scope, arguments)
        if job.kind.queue in self._queues and job.name not in self._waiting:
            self._waiting[job.name] = job.kind.queue, time.time()
            self._begin(job, 1)

    async def depth(self) -> Sequence[Depth]:
        """Return the jobs in each queue and state; "failed" counts since the start."""
        times_by_queue = defaultdict[tuple[str, State], list[float]](list)
        for queue, began in self._waiting.values():
            times_by_queue[queue, "waiting"].append(began)
        for queue, began in self._running.values():
            times_by_queue[queue, "running"].append(began)

        now = time.time()
        depths = []
        for (queue, state), times in times_by_queue.items():
            oldest = max(0.0, now - min(times))
            depths.append(
                Depth(queue=queue, state=state, number=len(times), oldest=oldest)
            )

        for queue, number in self._failed.items():
            depths.append(Depth(queue=queue, state="failed", number=number))
        return depths

    async def workers(self) -> int:
        """Return 1: this process."""
        return 1

    async def drain(self) -> None:
        """Wait until no job runs; do not wait for retries."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def __aenter__(self) -> "LocalQueue":
        self._rounds = [
            asyncio.create_task(self._repeat(sweep, SWEEP_INTERVAL_SECONDS)),
            asyncio.create_task(self._repeat(night, DAY_SECONDS)),
        ]
        return self

    async def _repeat(
        self, upkeep: Callable[..., Awaitable[None]], seconds: float
    ) -> None:
        """Call `sweep` or `night` for ever, with a pause of `seconds` between calls."""
        while True:
            await go_round(upkeep.__name__, partial(upkeep, self, self._tools))
            await asyncio.sleep(seconds)

    async def __aexit__(self, *exc_info: object) -> None:
        """Start no more jobs, and cancel those that outlast `JOB_GRACE_SECONDS`."""
        self._open = False
        running = self._tasks & self._running.keys()
        for task in [*self._rounds, *(self._tasks - running)]:
            task.cancel()

        if running:
            await asyncio.wait(running, timeout=JOB_GRACE_SECONDS)
        for task in self._tasks:
            task.cancel()

        await asyncio.gather(*self._rounds, *self._tasks, return_exceptions=True)

    def _begin(self, job: Job, tries: int) -> None:
        """Start the task of a job, unless the queue is closed."""
        if self._open:
            # A job does not inherit the context of the code that queued it.
            task = asyncio.create_task(self._run(job, tries), context=Variables())
            self._tasks.add(task)
            task.add_done_callback(partial(self._end, job))

    def _end(self, job: Job, task: asyncio.Task[None]) -> None:
        """Forget the task of a job; if it failed for good, count and log this."""
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return

        self._failed[job.kind.queue] += 1
        # Only a defect of heedful is logged with its traceback.
        defect = None if isinstance(error, errors.HeedfulError) else error
        log.error(
            "job_failed",
            extra={"job": job.name, "error": type(error).__name__},
            exc_info=defect,
        )

    async def _run(self, job: Job, tries: int) -> None:
        """Run a job as soon as a slot is free; if it fails, queue its next try."""
        task = asyncio.current_task()
        if job.kind.delay and tries == 1:
            await asyncio.sleep(job.kind.delay)

        lock = self._locks[job.holds] if job.holds else nullcontext()
        async with lock, self._slots:
            del self._waiting[job.name]
            self._running[task] = job.kind.queue, time.time()
            try:
                await do(job, self._tools, tries, self._listener)
                return
            except errors.HeedfulError as error:
                wait = again_in(error, tries)
                if wait is None:
                    raise
            finally:
                del self._running[task]

        if job.name not in self._waiting:
            self._waiting[job.name] = job.kind.queue, time.time() + wait
            asyncio.get_running_loop().call_later(wait, self._begin, job, tries + 1)

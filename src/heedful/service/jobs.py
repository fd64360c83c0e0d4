"""Jobs: work that may be done later, in this process or by workers.

A job is a task for one scope; doing it twice does no harm. A failed job is tried again later.
Services queue jobs. `sweep` queues what was left undone, and `night` queues what maintains the
memories.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from math import inf
from typing import Any, Literal, Protocol

from heedful import telemetry
from heedful.checks.evaluate import Context, call
from heedful.drive.drive import Run
from heedful.errors import (
    GenerateFailed,
    HeedfulError,
    InvalidInput,
    LeaseLost,
    ModelError,
    NotFound,
    UnknownName,
    UsageError,
)
from heedful.lessons.consolidate import MODES
from heedful.lessons.lesson import SHARE, Scope
from heedful.loop.codec import from_document, policy_from
from heedful.loop.record import Goal
from heedful.memory.dream import consolidate
from heedful.memory.ingest import gather
from heedful.memory.memory import Memory
from heedful.memory.reflect import reflect_waiting
from heedful.models.contract import Embedder, Model
from heedful.redact import redact
from heedful.store import episodes, lessons
from heedful.store import loops as loop_store
from heedful.store.store import Store

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


class Work(Protocol):
    """A queue of work; `heedful.service.jobs.TASKS` has the names and arguments of tasks."""

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Queue a task, unless the same task waits already.

        `arguments` are plain data. Raises UnknownName, InvalidInput, StoreError.
        """
        ...

    async def depth(self) -> Sequence[Depth]:
        """Count the jobs, by queue and state. Raises StoreError."""
        ...


# Called with a task, and id, scope, store, memory, goals, policy by name: the loop to be driven.
Opens = Callable[..., Run[Any]]
ACTOR = "heedful worker"
LONGEST = 1_000  # characters of an argument


@dataclass(frozen=True, slots=True)
class Tools:
    """What a worker works with.

    If not `enabled`, it neither reflects nor dreams: episodes wait in the store. `loops` maps the
    names that jobs use to the code that may drive loops, so that no job names code. With `mode`
    "full" it dreams by itself, with "lite" only on request. It prunes lessons not used for
    `unused_for` seconds and those beyond `keep` lessons; None turns either off. `holdout` and
    `max_entries` are those of Memory.
    """

    store: Store
    model: Model | None = None
    embedder: Embedder | None = None
    holdout: float = SHARE
    max_entries: int | None = None
    loops: Mapping[str, Opens] = field(default_factory=dict)
    mode: Literal["lite", "full"] = "full"
    unused_for: float | None = None
    keep: int | None = None
    enabled: bool = True

    def memory(self, scope: Scope) -> Memory:
        """Return the memory of a scope."""
        return Memory(self.store, scope, self.embedder, self.holdout, self.max_entries)


async def reflect(tools: Tools, scope: Scope, *, digest: str = "") -> None:
    """Reflect on the episode with this digest, or on all that wait; a failure does not stop others.

    Raises NotFound, LeaseLost if another worker has claimed it, ModelError, StoreError.
    """
    if not tools.enabled:
        return
    memory, began = tools.memory(scope), time.time()
    if digest:
        if await reflect_waiting(memory, before=inf, digest=digest, model=tools.model) is None:
            await _check_reflected(tools.store, scope, digest)
        return
    wrong: ModelError | None = None
    while True:
        try:
            if await reflect_waiting(memory, before=began, model=tools.model) is None:
                break
        except ModelError as error:
            wrong = error
    if wrong is not None:
        raise wrong


async def _check_reflected(store: Store, scope: Scope, digest: str) -> None:
    """Raise NotFound or LeaseLost unless the episode was reflected on."""
    state = await store.read(scope, episodes.state, digest)
    if state is None:
        raise NotFound("episode", digest[:16], f"{scope.tenant}/{scope.project}")
    if state != "reflected":
        raise LeaseLost(f"another worker is at work on episode {digest[:16]}; try again in seconds")


async def embed(tools: Tools, scope: Scope) -> None:
    """Store vectors for the examples that lack one in the embedder's space.

    Raises ModelError, StoreError.
    """
    if tools.embedder is not None:
        await tools.memory(scope).reembed()


async def dream(tools: Tools, scope: Scope, *, mode: str = "full") -> None:
    """Consolidate the lessons. Raises InvalidInput, ModelError, StoreError."""
    if mode not in MODES:
        raise InvalidInput("mode", mode, f"one of {', '.join(MODES)}")
    if not tools.enabled:
        return
    kind: Literal["lite", "full"] = "full" if mode == "full" else "lite"
    await consolidate(tools.memory(scope), mode=kind, by=ACTOR)


async def prune(tools: Tools, scope: Scope) -> None:
    """Remove the lessons that the worker's settings call unused. Raises StoreError."""
    if tools.unused_for is not None or tools.keep is not None:
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
        raise UnknownName("loop that this worker drives", by, sorted(tools.loops) or ["none"])
    stored = await tools.store.read(scope, loop_store.read, loop)
    head, memory = stored.head, tools.memory(scope)
    options: dict[str, Any] = {"id": loop, "scope": scope, "store": tools.store, "memory": memory}
    options["goals"] = tuple(from_document(Goal, one) for one in head.goals)
    options |= {"policy": policy_from(head.policy)} if head.policy else {}
    opens = partial(tools.loops[by], **options)
    run = await call(partial(_no_run, by), opens, head.task, at=Context(head.task, loop_id=loop))
    if not isinstance(run, Run):
        raise _no_run(by, TypeError(f"it returned {type(run).__name__}, not a Run"))
    await run.finish()


def _no_run(by: str, error: BaseException) -> GenerateFailed:
    said = redact(str(error))[:300]
    return GenerateFailed(f"{by!r} opened no loop: {type(error).__name__}: {said}; correct it")


@dataclass(frozen=True, slots=True)
class Task:
    """A kind of work and its queue; a higher `priority` runs first.

    With `alone` a scope runs one such job at a time, because the job is about all of the scope.
    """

    run: Callable[..., Awaitable[None]]
    queue: str
    priority: int
    alone: bool = True


TASKS: Mapping[str, Task] = {
    "drive": Task(drive, "loops", 50, alone=False),
    "reflect": Task(reflect, "reflection", 40, alone=False),
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
            raise UnknownName("task", self.task, sorted(TASKS))
        taken = inspect.signature(self.kind.run)
        try:
            taken.bind(None, self.scope, **self.arguments)
        except TypeError as error:
            wanted = ", ".join(list(taken.parameters)[2:]) or "none"
            raise InvalidInput(f"{self.task}'s arguments", dict(self.arguments), wanted) from error
        for name, value in self.arguments.items():
            if not isinstance(value, str) or len(value) > LONGEST or not value.isprintable():
                raise InvalidInput(name, value, f"at most {LONGEST} printable characters")

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
        """Return the lock that only one job holds at a time; None if the store keeps jobs apart."""
        return self._named(self.kind.queue) if self.kind.alone else None

    def _named(self, *what: object) -> str:
        whole = json.dumps([self.scope.tenant, self.scope.project, *what])
        return f"{what[0]} {blake2b(whole.encode(), digest_size=16).hexdigest()}"

    async def done(self, tools: Tools) -> None:
        """Run the job. Raises HeedfulError."""
        await self.kind.run(tools, self.scope, **self.arguments)


# Called with a job and a description of its result.
JobListener = Callable[[Job, str], None]
# Tries of a job, and the longest wait between two, in seconds: all of them take two hours.
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
    lasting = isinstance(error, UsageError | NotFound) or not isinstance(error, HeedfulError)
    if lasting or tries >= TRIES:
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
            await job.done(tools)
    except asyncio.CancelledError:
        listener(job, "given back")
        raise
    except HeedfulError as error:
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
    """Queue the maintenance of every scope's memory. Raises StoreError."""
    for scope in await tools.store.read(Scope(), lessons.scopes):
        await upkeep(work, tools, scope)


async def upkeep(work: Work, tools: Tools, scope: Scope) -> None:
    """Queue the maintenance of a scope's memory, as far as the settings ask for it."""
    await work.defer("prove", scope)
    if tools.embedder is not None:
        await work.defer("embed", scope)
    if tools.enabled and tools.mode == "full":
        await work.defer("dream", scope)
    if tools.unused_for is not None or tools.keep is not None:
        await work.defer("prune", scope)

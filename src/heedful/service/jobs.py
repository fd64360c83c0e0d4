"""Jobs: work that need not be done at once, in this process or by workers.

A job is a task for one scope; to do it twice does no harm. A failed job is tried again later.
Besides what services hand over, `sweep` finds what was left undone, and `night` keeps memories in
order.
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
    """How many jobs of a queue are in one state, and for how many seconds the oldest of them is.

    `stalled` are those that a worker began that was not heard of since: they are run again.
    """

    queue: str
    state: State
    number: int
    oldest: float = 0.0


class Work(Protocol):
    """Where work is handed over; `heedful.service.jobs.TASKS` names the tasks and arguments."""

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Hand a task over, unless the same waits already.

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

    Not `enabled`, it neither reflects nor dreams: episodes wait in the store until a worker may.
    `loops` are what it may drive, by the names that jobs use: no job names code. With `mode`
    "full" it dreams by itself, with "lite" when it is asked. What was not used for `unused_for`
    seconds is pruned, and what is beyond `keep` lessons; None: neither. `holdout` and `max_entries`
    as of Memory.
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
        """The memory of a scope."""
        return Memory(self.store, scope, self.embedder, self.holdout, self.max_entries)


async def reflect(tools: Tools, scope: Scope, *, digest: str = "") -> None:
    """Reflect on the episode of that digest, or on all that wait; one that fails holds up no other.

    Raises NotFound, LeaseLost where another worker is at it, ModelError, StoreError.
    """
    if not tools.enabled:
        return
    memory, began = tools.memory(scope), time.time()
    if digest:
        if await reflect_waiting(memory, before=inf, digest=digest, model=tools.model) is None:
            await _elsewhere(tools.store, scope, digest)
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


async def _elsewhere(store: Store, scope: Scope, digest: str) -> None:
    """Raise NotFound or LeaseLost unless the episode was reflected on."""
    state = await store.read(scope, episodes.state, digest)
    if state is None:
        raise NotFound("episode", digest[:16], f"{scope.tenant}/{scope.project}")
    if state != "reflected":
        raise LeaseLost(f"another worker is at work on episode {digest[:16]}; try again in seconds")


async def embed(tools: Tools, scope: Scope) -> None:
    """Give a vector to what has none in the embedder's space. Raises ModelError, StoreError."""
    if tools.embedder is not None:
        await tools.memory(scope).reembed()


async def dream(tools: Tools, scope: Scope, *, mode: str = "full") -> None:
    """Consolidate. Raises InvalidInput, ModelError, StoreError."""
    if mode not in MODES:
        raise InvalidInput("mode", mode, f"one of {', '.join(MODES)}")
    if not tools.enabled:
        return
    kind: Literal["lite", "full"] = "full" if mode == "full" else "lite"
    await consolidate(tools.memory(scope), mode=kind, model=tools.model, by=ACTOR)


async def prune(tools: Tools, scope: Scope) -> None:
    """Remove what the worker's settings call of no use. Raises StoreError."""
    if tools.unused_for is not None or tools.keep is not None:
        memory = tools.memory(scope)
        await memory.prune(by=ACTOR, unused_for=tools.unused_for, keep=tools.keep)


async def prove(tools: Tools, scope: Scope) -> None:
    """Retire what is proven to hurt, and rank what is proven to help. Raises StoreError."""
    await tools.memory(scope).look()


async def drive(tools: Tools, scope: Scope, *, loop: str, by: str) -> None:
    """Drive a stored loop to its end, from where it is; `by` is a name in the worker's `loops`.

    Raises UnknownName, NotFound, UserCodeError, ModelError, StoreError (LeaseLost where another
    process drives it).
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
    """One kind of work: in which queue, the higher `priority` first.

    `alone`: one at a time in a scope, since it is about all that the scope has.
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
    """A task for a scope. Raises UnknownName, InvalidInput for what no worker could do."""

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
        """What is to be done."""
        return TASKS[self.task]

    @property
    def name(self) -> str:
        """A name that two jobs share if they do the same."""
        return self._named(self.task, *sorted(self.arguments.items()))

    @property
    def holds(self) -> str | None:
        """A lock that one job holds at a time; None if the store keeps jobs apart."""
        return self._named(self.kind.queue) if self.kind.alone else None

    def _named(self, *what: object) -> str:
        whole = json.dumps([self.scope.tenant, self.scope.project, *what])
        return f"{what[0]} {blake2b(whole.encode(), digest_size=16).hexdigest()}"

    async def done(self, tools: Tools) -> None:
        """Do it. Raises HeedfulError."""
        await self.kind.run(tools, self.scope, **self.arguments)


# Called with a job and, in words, what became of it.
JobListener = Callable[[Job, str], None]
# Tries of a job, and the longest wait between two, in seconds: all of them take two hours.
TRIES = 13
LONGEST_WAIT = 3_600.0


def no_listener(job: Job, what: str) -> None:
    """Do nothing; used where nobody listens."""


def again_in(error: BaseException | None, tries: int) -> float | None:
    """Seconds until a job that failed `tries` times is tried again: 2, 4, 8 …; None for never.

    Never what fails the same way each time: wrong input, what is not there, or a defect of heedful.
    What a worker that stops has cut short is free for the next one at once.
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
    """Do a job, for the `tries`th time; `carried` names the trace that it belongs to.

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


# Seconds between two looks for what was left undone, and between two nights.
SWEEP = 60.0
NIGHT = 86_400.0
# Episodes of a scope that one look hands over, the oldest; a later one takes the others.
MOST = 1_000


async def sweep(work: Work, tools: Tools) -> None:
    """Hand over the episodes of every scope that wait: the process that took them may be dead.

    Traces that have ended become episodes before. Episodes that a worker holds are left to it, and
    those that failed to the next try of their job. Raises StoreError.
    """
    for scope in await tools.store.read(Scope(), lessons.scopes, waiting=True):
        await gather(tools.store, scope)
        for digest in await tools.store.read(scope, episodes.left, MOST) if tools.enabled else ():
            await work.defer("reflect", scope, digest=digest)


async def night(work: Work, tools: Tools) -> None:
    """Hand over, for every scope, what keeps a memory in order. Raises StoreError."""
    for scope in await tools.store.read(Scope(), lessons.scopes):
        await upkeep(work, tools, scope)


async def upkeep(work: Work, tools: Tools, scope: Scope) -> None:
    """Hand over what keeps the memory of a scope in order, as far as the settings ask for it."""
    await work.defer("prove", scope)
    if tools.embedder is not None:
        await work.defer("embed", scope)
    if tools.enabled and tools.mode == "full":
        await work.defer("dream", scope)
    if tools.unused_for is not None or tools.keep is not None:
        await work.defer("prune", scope)

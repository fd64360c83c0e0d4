"""Work done in this process: what waits lives as long as it does, and the store knows the rest."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from types import TracebackType
from typing import Any

from heedful import telemetry
from heedful.errors import HeedfulError, StoreError
from heedful.protocols import Scope
from heedful.work import Depth, State
from heedful.work.doing import Told, again_in, do, untold
from heedful.work.rounds import NIGHT, SWEEP, night, sweep
from heedful.work.tasks import Job, Tools

_log = logging.getLogger("heedful")
# Jobs at a time: more help only where a model on the network is waited for.
CONCURRENCY = 2
# Seconds that what is under way may take to end when the process is asked to stop.
GRACE = 30.0


@dataclass(order=True)
class _Handed:
    """A job and its place: the higher priority first, then the one that came first."""

    place: tuple[int, int]
    job: Job = field(compare=False)
    carried: dict[str, str] = field(compare=False)
    since: float = field(compare=False)
    tries: int = field(default=0, compare=False)


class Inside:
    """Work in this process, for a store that one process serves; `async with` begins and ends it.

    At the beginning it takes up what the store says was left undone, and once a day what keeps
    memories in order. A job that fails is tried again; at the end what is under way may finish for
    `GRACE` seconds, and is given back after that. `queues`: only jobs of these; None: of all.
    """

    def __init__(
        self,
        tools: Tools,
        *,
        concurrency: int = CONCURRENCY,
        queues: Collection[str] | None = None,
        told: Told = untold,
    ) -> None:
        self._tools, self._concurrency, self._queues, self._told = tools, concurrency, queues, told
        self._ready: list[_Handed] = []
        self._waiting: dict[str, _Handed] = {}  # by the name of its job, also what waits to retry
        self._running: dict[asyncio.Task[None], _Handed] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._failed: Counter[str] = Counter()
        self._places = count()
        self._rounds: list[asyncio.Task[None]] = []
        self._open = True

    @property
    def failed(self) -> int:
        """How many jobs were given up."""
        return self._failed.total()

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Hand a task over, unless the same waits already. Raises UnknownName, InvalidInput."""
        job = Job(task, scope, arguments)
        wanted = self._queues is None or job.kind.queue in self._queues
        if wanted and job.name not in self._waiting:
            place = (-job.kind.priority, next(self._places))
            self._put(_Handed(place, job, telemetry.carried(), time.time()))

    async def depth(self) -> Sequence[Depth]:
        """What there is to do, by queue and state; `failed` since this process began."""
        now, since = time.time(), dict[tuple[str, State], list[float]]()
        for handed in self._waiting.values():
            since.setdefault((handed.job.kind.queue, "waiting"), []).append(handed.since)
        for handed in self._running.values():
            since.setdefault((handed.job.kind.queue, "running"), []).append(handed.since)
        depths = [
            Depth(queue, state, len(all_), max(0.0, now - min(all_)))
            for (queue, state), all_ in since.items()
        ]
        return [*depths, *(Depth(queue, "failed", n) for queue, n in self._failed.items())]

    async def drain(self) -> None:
        """Wait until nothing runs, and nothing waits but what is to be tried again later."""
        while self._running:
            await asyncio.wait(self._running)
            await asyncio.sleep(0)  # what they came to is dealt with in callbacks

    async def __aenter__(self) -> Inside:
        """Begin with what was left undone."""
        self._rounds = [
            asyncio.create_task(self._every(SWEEP, sweep)),
            asyncio.create_task(self._every(NIGHT, night)),
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Begin nothing new; let what runs finish, or give it back."""
        self._open = False
        for round in self._rounds:
            round.cancel()
        for timer in self._timers:
            timer.cancel()
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=GRACE)
            for task in late:
                task.cancel()
        await asyncio.gather(*self._rounds, *self._running, return_exceptions=True)

    async def _every(self, seconds: float, round: Callable[..., Any]) -> None:
        """Go round now and at every interval; a store that fails is asked again at the next."""
        while True:
            try:
                await round(self, self._tools)
            except StoreError as error:
                _log.warning("round_failed", extra={"round": round.__name__, "error": str(error)})
            await asyncio.sleep(seconds)

    def _put(self, handed: _Handed) -> None:
        self._waiting[handed.job.name] = handed
        heappush(self._ready, handed)
        self._go()

    def _go(self) -> None:
        """Begin as many jobs as may run."""
        for handed in self._next():
            del self._waiting[handed.job.name]
            handed.since, handed.tries = time.time(), handed.tries + 1
            given = (handed.job, self._tools, handed.tries, handed.carried, self._told)
            # Whatever else its maker is in the middle of is none of the job's.
            task = asyncio.create_task(do(*given), context=Context())
            self._running[task] = handed
            task.add_done_callback(self._ended)

    def _next(self) -> Iterator[_Handed]:
        """What may run now, the first first; what another job of its scope holds up stays."""
        held: list[_Handed] = []
        while self._open and self._ready and len(self._running) < self._concurrency:
            handed = heappop(self._ready)
            holds = handed.job.holds
            if holds is not None and any(one.job.holds == holds for one in self._running.values()):
                held.append(handed)
            else:
                yield handed
        for handed in held:
            heappush(self._ready, handed)

    def _ended(self, task: asyncio.Task[None]) -> None:
        handed = self._running.pop(task)
        error = None if task.cancelled() else task.exception()
        wait = again_in(error, handed.tries)
        if error is not None and wait is not None and handed.job.name not in self._waiting:
            handed.since = time.time()
            self._waiting[handed.job.name] = handed
            self._later(wait, handed)
        elif error is not None and wait is None:
            self._failed[handed.job.kind.queue] += 1
            told = {"job": handed.job.name, "error": type(error).__name__}
            defect = None if isinstance(error, HeedfulError) else error
            _log.error("job_failed", extra=told, exc_info=defect)
        self._go()

    def _later(self, wait: float, handed: _Handed) -> None:
        def now() -> None:
            self._timers.discard(timer)
            self._put(handed)

        timer = asyncio.get_running_loop().call_later(wait, now)
        self._timers.add(timer)

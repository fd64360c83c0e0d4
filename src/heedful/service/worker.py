"""Two job queues: one in this process, one in PostgreSQL for any number of workers.

The queue in this process ends with the process; unfinished work is found in the store. The queue in
PostgreSQL is procrastinate's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from types import TracebackType
from typing import Any

import psycopg
from procrastinate import App, BaseRetryStrategy, JobContext, PsycopgConnector, RetryDecision
from procrastinate import exceptions as failures
from procrastinate.jobs import Job as Row
from procrastinate.jobs import Status
from psycopg_pool import AsyncConnectionPool

from heedful import telemetry
from heedful.errors import HeedfulError, StoreError, StoreUnavailable
from heedful.lessons.lesson import Scope
from heedful.service.jobs import (
    NIGHT,
    QUEUES,
    SWEEP,
    TASKS,
    TRIES,
    Depth,
    Job,
    JobListener,
    State,
    Tools,
    again_in,
    do,
    night,
    no_listener,
    sweep,
)
from heedful.store.postgres import mishap, parse_url

_log = logging.getLogger("heedful")
# Jobs at a time; more help only if jobs wait for a model on the network.
CONCURRENCY = 2
# Seconds in which running jobs may finish when the process has to stop.
GRACE = 30.0


@dataclass(order=True)
class _Waiting:
    """A job and its place: higher priority first, then the order of arrival."""

    place: tuple[int, int]
    job: Job = field(compare=False)
    carried: dict[str, str] = field(compare=False)
    since: float = field(compare=False)
    tries: int = field(default=0, compare=False)


class LocalQueue:
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
        self._queues, self._listener = queues, listener
        self._ready: list[_Waiting] = []
        self._waiting: dict[str, _Waiting] = {}  # by the name of its job, also what waits to retry
        self._running: dict[asyncio.Task[None], _Waiting] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._failed: Counter[str] = Counter()
        self._places = count()
        self._rounds: list[asyncio.Task[None]] = []
        self._open = True

    @property
    def failed(self) -> int:
        """Return the number of jobs that were given up."""
        return self._failed.total()

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Queue a task, unless the same task waits already. Raises UnknownName, InvalidInput."""
        job = Job(task, scope, arguments)
        wanted = self._queues is None or job.kind.queue in self._queues
        if wanted and job.name not in self._waiting:
            place = (-job.kind.priority, next(self._places))
            self._put(_Waiting(place, job, telemetry.trace_headers(), time.time()))

    async def depth(self) -> Sequence[Depth]:
        """Count the jobs, by queue and state; `failed` counts from the start of this process."""
        now, since = time.time(), dict[tuple[str, State], list[float]]()
        for entry in self._waiting.values():
            since.setdefault((entry.job.kind.queue, "waiting"), []).append(entry.since)
        for entry in self._running.values():
            since.setdefault((entry.job.kind.queue, "running"), []).append(entry.since)
        depths = [
            Depth(queue, state, len(all_), max(0.0, now - min(all_)))
            for (queue, state), all_ in since.items()
        ]
        return [*depths, *(Depth(queue, "failed", n) for queue, n in self._failed.items())]

    async def drain(self) -> None:
        """Wait until nothing runs, and only retries wait."""
        while self._running:
            await asyncio.wait(self._running)
            await asyncio.sleep(0)  # callbacks deal with the results

    async def __aenter__(self) -> LocalQueue:
        """Start with the unfinished work."""
        self._rounds = [
            asyncio.create_task(self._repeat(SWEEP, sweep)),
            asyncio.create_task(self._repeat(NIGHT, night)),
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Start no more jobs; let running jobs finish, or give them back."""
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

    async def _repeat(self, seconds: float, round: Callable[..., Any]) -> None:
        """Run a periodic task now and at every interval; after a store error, wait for the next."""
        while True:
            try:
                await round(self, self._tools)
            except StoreError as error:
                _log.warning("round_failed", extra={"round": round.__name__, "error": str(error)})
            await asyncio.sleep(seconds)

    def _put(self, entry: _Waiting) -> None:
        self._waiting[entry.job.name] = entry
        heappush(self._ready, entry)
        self._go()

    def _go(self) -> None:
        """Start as many jobs as may run."""
        for entry in self._next():
            del self._waiting[entry.job.name]
            entry.since, entry.tries = time.time(), entry.tries + 1
            arguments = (entry.job, self._tools, entry.tries, entry.carried, self._listener)
            # A job does not inherit the context of the code that queued it.
            task = asyncio.create_task(do(*arguments), context=Context())
            self._running[task] = entry
            task.add_done_callback(self._ended)

    def _next(self) -> Iterator[_Waiting]:
        """Yield the jobs that may run now, in order; jobs with a held lock stay in the queue."""
        blocked: list[_Waiting] = []
        while self._open and self._ready and len(self._running) < self._concurrency:
            entry = heappop(self._ready)
            holds = entry.job.holds
            if holds is not None and any(one.job.holds == holds for one in self._running.values()):
                blocked.append(entry)
            else:
                yield entry
        for entry in blocked:
            heappush(self._ready, entry)

    def _ended(self, task: asyncio.Task[None]) -> None:
        entry = self._running.pop(task)
        error = None if task.cancelled() else task.exception()
        wait = again_in(error, entry.tries)
        if error is not None and wait is not None and entry.job.name not in self._waiting:
            entry.since = time.time()
            self._waiting[entry.job.name] = entry
            self._later(wait, entry)
        elif error is not None and wait is None:
            self._failed[entry.job.kind.queue] += 1
            extra = {"job": entry.job.name, "error": type(error).__name__}
            defect = None if isinstance(error, HeedfulError) else error
            _log.error("job_failed", extra=extra, exc_info=defect)
        self._go()

    def _later(self, wait: float, entry: _Waiting) -> None:
        def now() -> None:
            self._timers.discard(timer)
            self._put(entry)

        timer = asyncio.get_running_loop().call_later(wait, now)
        self._timers.add(timer)


# The queue of the periodic tasks, which every worker runs.
UPKEEP = "upkeep"
# Seconds between two heartbeats of a worker, seconds of silence after which others take its jobs,
# and seconds between two polls for jobs.
BEAT, SILENT, POLL = 5.0, 20.0, 5.0
# Cron times of the search for stalled jobs (with seconds last), of the sweep, and of the night.
REVIVAL, SWEEPS, NIGHTS = "* * * * * */10", "* * * * *", "0 3 * * *"
# Hours for which failed jobs are kept, so that people can look at them.
KEPT = 24 * 30
# A missed night is caught up; other periodic tasks come again soon.
MISSED = 86_400
CONNECTIONS = 4
# Seconds to wait for a connection before the server counts as unavailable.
ANSWER = 5.0
_DEPTH = """
with jobs as (
  select j.queue_name as queue, case
      when j.status = 'todo' then 'waiting' when j.status <> 'doing' then 'failed'
      when w.last_heartbeat >= now() - make_interval(secs => %(silent)s) then 'running'
      else 'stalled' end as state,
    (select max(e.at) from procrastinate_events e where e.job_id = j.id) as at
  from procrastinate_jobs j left join procrastinate_workers w on w.id = j.worker_id
  where j.status in ('todo', 'doing', 'failed')
)
select queue, state, count(*) as number,
  greatest(0, extract(epoch from now() - min(at)))::float8 as oldest
from jobs group by queue, state order by queue, state
"""


class Backoff(BaseRetryStrategy):
    """When to retry a failed job."""

    def get_retry_decision(self, *, exception: BaseException, job: Row) -> RetryDecision | None:
        """Retry after `again_in` seconds, or never."""
        wait = again_in(exception, job.attempts + 1)
        return None if wait is None else RetryDecision(retry_in={"seconds": int(wait)})


class PostgresQueue:
    """A queue in the database at a `postgresql://` URL; `async with` opens and closes it.

    The same task waits only once. Raises StoreError if the database does not answer.
    """

    def __init__(self, url: str) -> None:
        self._conninfo = parse_url(url).conninfo
        self._pool: AsyncConnectionPool[Any] | None = None
        self._app = App(connector=PsycopgConnector(), periodic_defaults={"max_delay": MISSED})

    async def __aenter__(self) -> PostgresQueue:
        """Open the queue; the server may become available later."""
        self._pool = AsyncConnectionPool(
            self._conninfo,
            min_size=1,
            max_size=CONNECTIONS,
            timeout=ANSWER,
            open=False,
            check=AsyncConnectionPool.check_connection,
        )
        await self._pool.open()
        await self._app.open_async(self._pool)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        if self._pool is not None:
            await self._pool.close()

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Queue a task, unless the same waits. Raises UnknownName, InvalidInput, StoreError."""
        job = Job(task, scope, arguments)
        options: Any = {"queue": job.kind.queue, "priority": job.kind.priority, "lock": job.holds}
        deferred = self._app.configure_task(_task_name(task), queueing_lock=job.name, **options)
        what: Any = {"tenant": scope.tenant, "project": scope.project, "arguments": arguments}
        with _translate_errors():
            try:
                await deferred.defer_async(
                    **what, carried=dict[str, Any](telemetry.trace_headers())
                )
            except failures.AlreadyEnqueued:
                return

    async def depth(self) -> Sequence[Depth]:
        """Count the jobs, by queue and state. Raises StoreError."""
        with _translate_errors():
            rows = await self._app.connector.execute_query_all_async(_DEPTH, silent=SILENT)
        return [Depth(**row) for row in rows]

    async def work(
        self,
        tools: Tools,
        *,
        queues: Collection[str] | None = None,
        concurrency: int = CONCURRENCY,
        once: bool = False,
        listener: JobListener = no_listener,
    ) -> None:
        """Run queued jobs until cancelled; with `once`, until the queue is empty.

        When cancelled, it starts no more jobs, and running jobs may finish within `GRACE` seconds.
        If the server goes away, it waits for it. Raises StoreError at the beginning, and with
        `once`.
        """
        logging.getLogger("procrastinate.worker").addFilter(_is_new_failure)
        self._register(tools, listener)
        await sweep(self, tools)  # this also checks the database
        if once:
            await self._revive()
        else:
            self._go_round(tools)
        while True:
            try:
                with _translate_errors():
                    await self._app.run_worker_async(
                        name="",  # a named worker has another logger
                        queues=[*(queues or QUEUES), *([] if once else [UPKEEP])],
                        concurrency=concurrency,
                        wait=not once,
                        fetch_job_polling_interval=POLL,
                        shutdown_graceful_timeout=GRACE,
                        update_heartbeat_interval=BEAT,
                        stalled_worker_timeout=SILENT,
                        delete_jobs="successful",
                        install_signal_handlers=False,
                    )
            except StoreUnavailable:
                if once:
                    raise
            if once:
                return
            await asyncio.sleep(BEAT)  # it ended because the server was unavailable

    def _register(self, tools: Tools, listener: JobListener) -> None:
        """Register a function with procrastinate for each task."""
        for name, task in TASKS.items():
            declare = partial(
                self._app.task, name=_task_name(name), queue=task.queue, retry=Backoff()
            )
            declare(pass_context=True)(self._runner(name, tools, listener))

    def _go_round(self, tools: Tools) -> None:
        """Register the periodic tasks with procrastinate."""
        app = self._app

        async def nightly() -> None:
            await night(self, tools)
            with _translate_errors():
                await app.job_manager.delete_old_jobs(nb_hours=KEPT, include_failed=True)

        rounds: tuple[tuple[str, str, Callable[[], Awaitable[None]]], ...] = (
            ("revive", REVIVAL, self._revive),
            ("sweep", SWEEPS, partial(sweep, self, tools)),
            ("night", NIGHTS, nightly),
        )
        for name, cron, work in rounds:
            job = _task_name(name)
            declare = partial(app.task, name=job, queue=UPKEEP, priority=100, queueing_lock=job)
            app.periodic(cron=cron)(declare()(_round(name, work)))

    def _runner(self, name: str, tools: Tools, listener: JobListener) -> Any:
        async def doing(
            context: JobContext,
            tenant: str,
            project: str,
            arguments: dict[str, Any],
            carried: dict[str, str],
        ) -> None:
            job = Job(name, Scope(tenant, project), arguments)
            try:
                await do(job, tools, context.job.attempts + 1, carried, listener)
            except HeedfulError:
                if not await self._twin(job):
                    raise

        return doing

    async def _twin(self, job: Job) -> bool:
        """Return True if the same job was queued again, because then this one cannot be retried.

        procrastinate requeues a job only if no waiting job has its name
        (github.com/procrastinate-org/procrastinate/issues/1446).
        """
        jobs = self._app.job_manager
        waiting = await jobs.list_jobs_async(queueing_lock=job.name, status=Status.TODO.value)
        return bool(list(waiting))

    async def _revive(self) -> None:
        """Requeue the jobs of workers without heartbeat, except those that have used all tries.

        If the same job already waits, the job of the dead worker is dropped.
        """
        jobs = self._app.job_manager
        with _translate_errors():
            for one in await jobs.get_stalled_jobs(seconds_since_heartbeat=SILENT):
                if one.attempts + 1 >= TRIES:  # it may have killed the workers
                    await jobs.finish_job(one, Status.FAILED, delete_job=False)
                    continue
                try:
                    await jobs.retry_job(one)
                except failures.UniqueViolation:
                    await jobs.finish_job(one, Status.ABORTED, delete_job=True)


def _is_new_failure(record: logging.LogRecord) -> bool:
    """Return False for failures that are reported already: of a job, or of the connection pool."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HeedfulError | failures.ConnectorException)


def _round(name: str, work: Callable[[], Awaitable[None]]) -> Callable[[int], Any]:
    """Return a periodic task; if the database fails, it runs again at the next interval."""

    async def gone(timestamp: int) -> None:
        try:
            await work()
        except StoreError as error:
            _log.warning("round_failed", extra={"round": name, "error": str(error)})

    return gone


def _task_name(task: str) -> str:
    return f"heedful.{task}"


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise the errors of procrastinate as errors of heedful."""
    try:
        yield
    except failures.ConnectorException as error:
        cause = error.__cause__
        if isinstance(cause, psycopg.Error):
            raise mishap(cause).error from error
        raise StoreUnavailable(f"the queue failed: {error}; try again") from error

"""Work on a queue in PostgreSQL (procrastinate): handed over by services, done by any worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
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
from heedful.protocols import Scope
from heedful.store.address import addressed
from heedful.store.mishaps import mishap
from heedful.work import Depth
from heedful.work.doing import TRIES, Told, again_in, do, untold
from heedful.work.inside import CONCURRENCY, GRACE
from heedful.work.rounds import night, sweep
from heedful.work.tasks import QUEUES, TASKS, Job, Tools

_log = logging.getLogger("heedful")
# What every worker does besides its queues: it looks after all of them.
UPKEEP = "upkeep"
# Seconds between two signs of life of a worker, after how many without one its jobs are another's,
# and between two looks for such jobs, at the latest.
BEAT, SILENT, POLL = 5.0, 20.0, 5.0
# When it is looked for stalled jobs (with seconds last), for what nobody handed over, and at night.
REVIVAL, SWEEPS, NIGHTS = "* * * * * */10", "* * * * *", "0 3 * * *"
# Hours that a job which was given up is kept, for people to see.
KEPT = 24 * 30
# A night is made up for when no worker ran; of all else the next round comes soon.
MISSED = 86_400
CONNECTIONS = 4
# Seconds after which a server that gives no connection is away.
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
    """When a job that failed is tried again."""

    def get_retry_decision(self, *, exception: BaseException, job: Row) -> RetryDecision | None:
        """After `again_in` seconds, or never."""
        wait = again_in(exception, job.attempts + 1)
        return None if wait is None else RetryDecision(retry_in={"seconds": int(wait)})


class Queued:
    """Work on the queue of a `postgresql://` URL; `async with` opens and closes its connections.

    The same waits once. Raises StoreError where the database does not answer.
    """

    def __init__(self, url: str) -> None:
        self._conninfo = addressed(url).conninfo
        self._pool: AsyncConnectionPool[Any] | None = None
        self._app = App(connector=PsycopgConnector(), periodic_defaults={"max_delay": MISSED})

    async def __aenter__(self) -> Queued:
        """Open; the server may come later."""
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
        """Let go of the database."""
        if self._pool is not None:
            await self._pool.close()

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Hand a task over, unless the same waits. Raises UnknownName, InvalidInput, StoreError."""
        job = Job(task, scope, arguments)
        options: Any = {"queue": job.kind.queue, "priority": job.kind.priority, "lock": job.holds}
        deferred = self._app.configure_task(_named(task), queueing_lock=job.name, **options)
        given: Any = {"tenant": scope.tenant, "project": scope.project, "arguments": arguments}
        with _typed():
            try:
                await deferred.defer_async(**given, carried=dict[str, Any](telemetry.carried()))
            except failures.AlreadyEnqueued:
                return

    async def depth(self) -> Sequence[Depth]:
        """What there is to do, by queue and state. Raises StoreError."""
        with _typed():
            rows = await self._app.connector.execute_query_all_async(_DEPTH, silent=SILENT)
        return [Depth(**row) for row in rows]

    async def work(
        self,
        tools: Tools,
        *,
        queues: Collection[str] | None = None,
        concurrency: int = CONCURRENCY,
        once: bool = False,
        told: Told = untold,
    ) -> None:
        """Do what is queued until the task is cancelled; with `once` until nothing is left.

        Cancelled, it begins nothing new, and what runs may finish for `GRACE` seconds. Where the
        server goes away it waits until it is back. Raises StoreError at the beginning, and with
        `once`.
        """
        logging.getLogger("procrastinate.worker").addFilter(_untold)
        self._register(tools, told)
        await sweep(self, tools)  # which also shows whether the database can be worked with
        if once:
            await self._revive()
        else:
            self._go_round(tools)
        while True:
            try:
                with _typed():
                    await self._app.run_worker_async(
                        name="",  # one that has a name logs elsewhere
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
            await asyncio.sleep(BEAT)  # it ended by itself: the server was away

    def _register(self, tools: Tools, told: Told) -> None:
        """Tell procrastinate what to call for each task."""
        for name, task in TASKS.items():
            made = partial(self._app.task, name=_named(name), queue=task.queue, retry=Backoff())
            made(pass_context=True)(self._doing(name, tools, told))

    def _go_round(self, tools: Tools) -> None:
        """Tell it what to do of its own accord, and when."""
        app = self._app

        async def nightly() -> None:
            await night(self, tools)
            with _typed():
                await app.job_manager.delete_old_jobs(nb_hours=KEPT, include_failed=True)

        rounds: tuple[tuple[str, str, Callable[[], Awaitable[None]]], ...] = (
            ("revive", REVIVAL, self._revive),
            ("sweep", SWEEPS, partial(sweep, self, tools)),
            ("night", NIGHTS, nightly),
        )
        for name, cron, work in rounds:
            named = _named(name)
            made = partial(app.task, name=named, queue=UPKEEP, priority=100, queueing_lock=named)
            app.periodic(cron=cron)(made()(_round(name, work)))

    def _doing(self, name: str, tools: Tools, told: Told) -> Any:
        async def doing(
            context: JobContext,
            tenant: str,
            project: str,
            arguments: dict[str, Any],
            carried: dict[str, str],
        ) -> None:
            job = Job(name, Scope(tenant, project), arguments)
            try:
                await do(job, tools, context.job.attempts + 1, carried, told)
            except HeedfulError:
                if not await self._twin(job):
                    raise

        return doing

    async def _twin(self, job: Job) -> bool:
        """Whether the same was handed over again meanwhile: of two, one cannot wait to be retried.

        The queue takes a job back among those that wait only where no other has its name there
        (github.com/procrastinate-org/procrastinate/issues/1446).
        """
        jobs = self._app.job_manager
        waiting = await jobs.list_jobs_async(queueing_lock=job.name, status=Status.TODO.value)
        return bool(list(waiting))

    async def _revive(self) -> None:
        """Let the jobs of workers that are not heard of wait again, but for those that had enough.

        Where the same waits already, the one of the dead worker is dropped.
        """
        jobs = self._app.job_manager
        with _typed():
            for one in await jobs.get_stalled_jobs(seconds_since_heartbeat=SILENT):
                if one.attempts + 1 >= TRIES:  # it may be what killed them
                    await jobs.finish_job(one, Status.FAILED, delete_job=False)
                    continue
                try:
                    await jobs.retry_job(one)
                except failures.UniqueViolation:
                    await jobs.finish_job(one, Status.ABORTED, delete_job=True)


def _untold(record: logging.LogRecord) -> bool:
    """Whether it is no failure that was told already: of a job, or by the pool of connections."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HeedfulError | failures.ConnectorException)


def _round(name: str, work: Callable[[], Awaitable[None]]) -> Callable[[int], Any]:
    """A round at its time; a database that fails is asked again at the next."""

    async def gone(timestamp: int) -> None:
        try:
            await work()
        except StoreError as error:
            _log.warning("round_failed", extra={"round": name, "error": str(error)})

    return gone


def _named(task: str) -> str:
    return f"heedful.{task}"


@contextmanager
def _typed() -> Iterator[None]:
    """procrastinate's errors as heedful's."""
    try:
        yield
    except failures.ConnectorException as error:
        cause = error.__cause__
        if isinstance(cause, psycopg.Error):
            raise mishap(cause).told from error
        raise StoreUnavailable(f"the queue failed: {error}; try again") from error

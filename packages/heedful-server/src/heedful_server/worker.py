"""A job queue in PostgreSQL, for any number of services and workers.

It is built on procrastinate, which keeps the jobs in tables, takes each job once, and
sends heartbeats. Which jobs there are, and when they are tried again, is decided in
`heedful_server.jobs`.
"""

import asyncio
import logging
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Sequence,
)
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import asdict
from typing import Any

import psycopg
from procrastinate import (
    App,
    BaseRetryStrategy,
    JobContext,
    PsycopgConnector,
    RetryDecision,
    exceptions as failures,
)
from procrastinate.jobs import Job as Row, Status
from procrastinate.manager import JobManager
from psycopg_pool import AsyncConnectionPool

from heedful.errors import HeedfulError, StoreUnavailable
from heedful.lessons.lesson import Scope
from heedful.store.connection import storable
from heedful.store.postgres_session import (
    SETTINGS_SQL,
    parse_url,
    translate_error,
)
from heedful_server import jobs
from heedful_server.jobs import (
    JOB_QUEUES,
    LOOP_QUEUE,
    MAX_JOB_TRIES,
    Depth,
    Job,
    JobListener,
    Tools,
    no_listener,
    tasks,
)

# The queue of the periodic tasks; every worker runs them.
UPKEEP_QUEUE = "upkeep"
HEARTBEAT_SECONDS = 5.0  # between two heartbeats of a worker
MAX_SILENCE_SECONDS = 20.0  # without a heartbeat, until other workers take its jobs
POLL_INTERVAL_SECONDS = 5.0  # between two looks for jobs
# The search for waiting and stalled work runs every 10 seconds: the last field of its
# cron time is seconds. `night` runs at 3 o'clock.
SWEEP_CRON = "* * * * * */10"
NIGHT_CRON = "0 3 * * *"
# A function of heedful's schema; it returns the fields of `Depth`.
_QUEUE_DEPTH_SQL = "select * from queue_depth(%(silent)s)"
# Another one; it counts the workers of all tenants.
_LIVE_WORKERS_SQL = "select live_workers(%(silent)s) as number"
# It becomes an argument of the failed job, until that is put on the queue again.
_KEEP_REASON_SQL = """
update procrastinate_jobs set args = args || jsonb_build_object('failed',
  jsonb_build_object('error', %(reason)s::text, 'at', extract(epoch from now())))
where id = %(id)s
"""
TASK_NAME_PREFIX = "heedful."  # of the names of tasks
# Seconds to wait for a connection before the server counts as unavailable.
CONNECTION_WAIT_SECONDS = 5.0


class Backoff(BaseRetryStrategy):
    """Decides when a failed job runs again."""

    def get_retry_decision(
        self, *, exception: BaseException, job: Row
    ) -> RetryDecision | None:
        """Return the wait that `jobs.again_in` computes; None means no retry."""
        wait = jobs.again_in(exception, job.attempts + 1)
        return None if wait is None else RetryDecision(retry_in={"seconds": int(wait)})


class _StoredJobs(JobManager):
    """Deletes a job that is tried again while an equal one waits.

    Procrastinate would leave it running for ever, with its lock
    (github.com/procrastinate-org/procrastinate/issues/1446).
    """

    async def retry_job(self, job: Row, *args: Any, **options: Any) -> None:
        try:
            await super().retry_job(job, *args, **options)
        except failures.UniqueViolation:
            await self.finish_job(job, Status.ABORTED, delete_job=True)


class PostgresQueue(jobs.Work):
    """A job queue in the database at a `postgresql://` URL; use `async with`.

    Only a queue that `works` can run jobs: it sees the jobs of all tenants.
    """

    def __init__(self, url: str, works: bool = False) -> None:
        self._address = parse_url(url)
        self._settings = SETTINGS_SQL
        if works:
            self._settings += "; set heedful.worker = on"
        self._stack = AsyncExitStack()
        self._delayed: dict[str, asyncio.Task[None]] = {}  # by the names of their jobs
        self._closing = asyncio.Event()
        # A periodic task that is up to a day late still runs.
        self._app = App(
            connector=PsycopgConnector(), periodic_defaults={"max_delay": 86_400}
        )
        self._app.job_manager = _StoredJobs(self._app.connector)

    async def __aenter__(self) -> "PostgresQueue":
        """Open the queue; the database server need not be available yet."""
        pool = AsyncConnectionPool(
            self._address.conninfo,
            open=False,
            configure=self._configure,
            check=AsyncConnectionPool.check_connection,
            min_size=1,
            max_size=4,
            timeout=CONNECTION_WAIT_SECONDS,
        )
        await self._app.open_async(await self._stack.enter_async_context(pool))
        return self

    async def _configure(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Make the settings of a new connection."""
        await connection.execute(self._settings.encode(), prepare=False)
        await connection.commit()

    async def __aexit__(self, *exc_info: object) -> None:
        self._closing.set()
        await asyncio.gather(*self._delayed.values())
        await self._stack.aclose()

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Queue a task, unless an equal job already waits.

        Raises UnknownName, InvalidInput, StoreError.
        """
        job = Job(task, scope, arguments)
        if not job.kind.delay:
            await self._send(job)
        elif job.name not in self._delayed:
            self._delayed[job.name] = asyncio.create_task(self._send_later(job))

    async def _send_later(self, job: Job) -> None:
        """Queue a job after its delay, or at once when the queue is closed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), job.kind.delay)
        del self._delayed[job.name]
        with suppress(HeedfulError):  # the next job does its work, too
            await self._send(job)

    async def _send(self, job: Job) -> None:
        """Queue a job, unless an equal one waits. Raises StoreError."""
        deferred = self._app.configure_task(
            TASK_NAME_PREFIX + job.task,
            queue=job.queue,
            priority=job.kind.priority,
            lock=job.holds,
            queueing_lock=job.name,
        )
        with _translate_errors(), suppress(failures.AlreadyEnqueued):
            await deferred.defer_async(
                **asdict(job.scope), arguments=dict(job.arguments)
            )

    async def depth(self) -> Sequence[Depth]:
        """Return the number of jobs in each queue and state. Raises StoreError."""
        with _translate_errors():
            rows = await self._app.connector.execute_query_all_async(
                _QUEUE_DEPTH_SQL, silent=MAX_SILENCE_SECONDS
            )
        return [Depth(**row) for row in rows]

    async def workers(self) -> int:
        """Return how many workers have sent a sign of life. Raises StoreError."""
        with _translate_errors():
            row = await self._app.connector.execute_query_one_async(
                _LIVE_WORKERS_SQL, silent=MAX_SILENCE_SECONDS
            )
        return int(row["number"])

    async def work(
        self,
        tools: Tools,
        *,
        queues: Collection[str] | None = None,
        concurrency: int = jobs.DEFAULT_CONCURRENCY,
        once: bool = False,
        listener: JobListener = no_listener,
    ) -> None:
        """Run queued jobs until cancelled, or with `once` until the queue is empty.

        Loops that `tools` cannot drive are left to other workers.

        After cancellation, running jobs have `JOB_GRACE_SECONDS` to finish. Raises
        StoreError if the database server is not available at the start. If the server
        goes away later, the worker waits for it, but with `once` it raises StoreError.
        """
        logging.getLogger("procrastinate.worker").addFilter(_is_new_failure)

        for name, task in tasks().items():
            declare = self._app.task(
                name=TASK_NAME_PREFIX + name,
                queue=task.queue,
                retry=Backoff(),
                pass_context=True,
            )
            declare(self._runner(name, tools, listener))
        await jobs.sweep(self, tools, failed=once)  # this also checks the database

        all_queues = list(queues or JOB_QUEUES)
        if LOOP_QUEUE in all_queues:
            all_queues.remove(LOOP_QUEUE)
            all_queues += map(jobs.queue_of_loops, tools.loops)
        outages: tuple[type[StoreUnavailable], ...] = ()
        if once:
            await self._revive()
        else:
            self._register_upkeep(tools)
            all_queues.append(UPKEEP_QUEUE)
            outages = (StoreUnavailable,)

        while True:
            with suppress(*outages), _translate_errors():
                await self._app.run_worker_async(
                    name="",  # a named worker has another logger
                    queues=all_queues,
                    concurrency=concurrency,
                    wait=not once,
                    fetch_job_polling_interval=POLL_INTERVAL_SECONDS,
                    shutdown_graceful_timeout=jobs.JOB_GRACE_SECONDS,
                    update_heartbeat_interval=HEARTBEAT_SECONDS,
                    stalled_worker_timeout=MAX_SILENCE_SECONDS,
                    delete_jobs="successful",
                    install_signal_handlers=False,
                )
            if once:
                return

            # The worker ended because the server was unavailable.
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def _register_upkeep(self, tools: Tools) -> None:
        """Register the periodic tasks, so that this worker runs them, too."""

        async def sweep() -> None:
            """Queue the jobs of dead workers again, and all unfinished work."""
            await self._revive()
            await jobs.sweep(self, tools)

        async def nightly() -> None:
            """Queue the daily maintenance, and forget what failed long ago."""
            await jobs.night(self, tools)
            # Failed jobs stay visible for 30 days.
            with _translate_errors():
                await self._app.job_manager.delete_old_jobs(
                    nb_hours=720, include_failed=True
                )

        self._register("sweep", SWEEP_CRON, sweep)
        self._register("night", NIGHT_CRON, nightly)

    def _register(
        self, name: str, cron: str, work: Callable[[], Awaitable[None]]
    ) -> None:
        """Register a task that one of all workers runs at the times of `cron`."""

        async def go_round(timestamp: int) -> None:
            await jobs.go_round(name, work)

        declare = self._app.task(
            name=TASK_NAME_PREFIX + name,
            queue=UPKEEP_QUEUE,
            priority=100,
            queueing_lock=TASK_NAME_PREFIX + name,
        )
        self._app.periodic(cron=cron)(declare(go_round))

    def _runner(self, name: str, tools: Tools, listener: JobListener) -> Any:
        """Return the function that procrastinate calls for a job of the task `name`."""

        async def run(context: JobContext, arguments: Any, **scope: str) -> None:
            job = Job(name, Scope(**scope), arguments)
            tries = context.job.attempts + 1
            try:
                await jobs.do(job, tools, tries, listener)
            except Exception as error:
                wait = jobs.again_in(error, tries)
                if wait is None:
                    await self._keep_reason(
                        context.job, f"{type(error).__name__}: {error}"
                    )
                raise

        return run

    async def _keep_reason(self, job: Row, reason: str) -> None:
        """Store why a job is given up, for `heedful worker jobs`."""
        await self._app.connector.execute_query_async(
            _KEEP_REASON_SQL, id=job.id, reason=storable(reason)[:500]
        )

    async def _revive(self) -> None:
        """Queue the jobs of dead workers again; a job without tries left fails."""
        manager = self._app.job_manager
        with _translate_errors():
            stalled = await manager.get_stalled_jobs(
                seconds_since_heartbeat=MAX_SILENCE_SECONDS
            )
            for job in stalled:
                # The job may have killed all these workers.
                if job.attempts + 1 >= MAX_JOB_TRIES:
                    await self._keep_reason(job, "killed: no worker survived it")
                    await manager.finish_job(job, Status.FAILED, delete_job=False)
                else:
                    await manager.retry_job(job)


def _is_new_failure(record: logging.LogRecord) -> bool:
    """Return False if heedful or the connection pool has reported the error before."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HeedfulError | failures.ConnectorException)


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise the StoreError that says what an error of procrastinate means."""
    try:
        yield
    except failures.ConnectorException as error:
        cause = error.__cause__
        if isinstance(cause, psycopg.Error):
            raise translate_error(cause) from error
        raise StoreUnavailable(f"the queue failed: {error}; try again") from error

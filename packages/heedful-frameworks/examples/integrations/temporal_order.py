"""Temporal runs a loop as an activity, and heedful's background jobs as workflows.

The process of the activity is killed in the middle. Another one continues the loop: no
call of the model is repeated. The server is Temporal's test server.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import order

    from heedful import Scope
    from heedful_server import jobs

SERVER = Path(sys.executable).with_name("temporal-test-server")


async def beat() -> None:
    """Say every second that this process lives."""
    while True:
        activity.heartbeat()
        await asyncio.sleep(1)


@asynccontextmanager
async def watched() -> AsyncIterator[None]:
    """Send heartbeats, and tell Temporal which errors no other try can avoid."""
    beats = asyncio.create_task(beat())
    try:
        yield
    except Exception as error:  # user code
        final = jobs.again_in(error, activity.info().attempt) is None
        raise ApplicationError(str(error), non_retryable=final) from error
    finally:
        beats.cancel()


@activity.defn
async def drive(id: str) -> str:
    """Run a loop."""
    async with watched():
        return await order.drive(id)


@activity.defn
async def do(task: str, scope: dict[str, str], arguments: dict[str, Any]) -> None:
    """Do a background job of heedful."""
    async with watched():
        await order.do(task, scope, arguments, activity.info().attempt)


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run an activity, again in another process if its own is silent."""
    return await workflow.execute_activity(
        function,
        args=arguments,
        start_to_close_timeout=timedelta(hours=1),
        heartbeat_timeout=timedelta(seconds=3),
    )


@workflow.defn
class Shipment:
    """An order that is shipped; the first step is a loop."""

    @workflow.run
    async def run(self, id: str) -> str:
        """Ship an order."""
        return f"shipped {await call(drive, id)}"


@workflow.defn
class Job:
    """A background job of heedful."""

    @workflow.run
    async def run(self, task: str, scope: dict[str, str], arguments: Any) -> None:
        """Do the job."""
        await call(do, task, scope, arguments)


class TemporalQueue(jobs.Work):
    """The background jobs of heedful, as workflows of Temporal."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.started: list[WorkflowHandle[Any, Any]] = []

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Start a task, unless an equal one runs."""
        handle = await self.client.start_workflow(
            Job.run,
            args=(task, asdict(scope), arguments),
            id=jobs.Job(task, scope, arguments).name,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            task_queue="orders",
        )
        self.started.append(handle)


async def run_activities(address: str) -> None:
    """Run activities until the process ends."""
    client = await Client.connect(address)
    await Worker(client, task_queue="orders", activities=[drive, do]).run()


async def main(client: Client) -> None:
    """Ship an order, then do the work of the night."""
    address = client.service_client.config.target_host
    command = (sys.executable, __file__, address)
    process = await asyncio.create_subprocess_exec(*command)
    shipment = await client.start_workflow(
        Shipment.run, "order-7", id="order-7", task_queue="orders"
    )
    await process.wait()  # it is killed
    process = await asyncio.create_subprocess_exec(*command)
    print(await shipment.result())

    # In production, schedules call these two: each minute, and each night.
    queue = TemporalQueue(client)
    await jobs.sweep(queue, order.TOOLS)
    await jobs.night(queue, order.TOOLS)
    for job in queue.started:
        await job.result()
    process.terminate()
    await process.wait()


async def on_test_server() -> None:
    """Run workflows in this process, on a server of its own."""
    environment = await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(SERVER),
        test_server_startup_timeout=timedelta(minutes=1),
    )
    client = environment.client
    async with (
        environment,
        Worker(client, task_queue="orders", workflows=[Shipment, Job]),
    ):
        await main(client)


if __name__ == "__main__":
    asyncio.run(run_activities(sys.argv[1]) if sys.argv[1:] else on_test_server())

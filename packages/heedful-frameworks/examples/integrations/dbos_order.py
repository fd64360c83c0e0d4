"""DBOS runs a loop as a step of a workflow, and heedful's background jobs from queues.

The process is killed in the middle. The next one continues the loop: no call of the
model is repeated. DBOS keeps its state in SQLite here.
"""

import asyncio
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import order
from dbos import DBOS, SetEnqueueOptions, SetWorkflowID

from heedful import Scope
from heedful_server import jobs


def is_temporary(error: BaseException) -> bool:
    """Return True if another try can help."""
    return jobs.again_in(error, 1) is not None


drive = DBOS.step(retries_allowed=True, max_attempts=10, should_retry=is_temporary)(
    order.drive
)


@DBOS.workflow()
async def ship(id: str) -> str:
    """Ship an order; its first step is a loop."""
    return f"shipped {await drive(id)}"


@DBOS.step(retries_allowed=True, max_attempts=13, should_retry=is_temporary)
async def do(task: str, scope: dict[str, str], arguments: dict[str, Any]) -> None:
    """Do a background job of heedful."""
    await order.do(task, scope, arguments, DBOS.step_status.current_attempt + 1)


class DbosQueue(jobs.Work):
    """The background jobs of heedful, in queues of DBOS."""

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Queue a task, unless an equal job waits or runs."""
        job = jobs.Job(task, scope, arguments)
        with SetEnqueueOptions(
            deduplication_id=job.name, duplication_policy="return-existing"
        ):
            await DBOS.enqueue_workflow_async(
                job.kind.queue, do, task, asdict(scope), arguments
            )


async def main() -> None:
    """Start or continue the order, then do the work of the night."""
    DBOS(config={"name": "orders", "system_database_url": "sqlite:///dbos.sqlite"})
    DBOS.launch()
    for queue in jobs.JOB_QUEUES:
        await DBOS.register_queue_async(queue)

    with SetWorkflowID("order-7"):
        handle = await DBOS.start_workflow_async(ship, "order-7")
    print(await handle.get_result())

    # In production, scheduled workflows call these two: each minute, and each night.
    await jobs.sweep(DbosQueue(), order.TOOLS)
    await jobs.night(DbosQueue(), order.TOOLS)
    for job in await DBOS.list_workflows_async(queues_only=True):
        await (await DBOS.retrieve_workflow_async(job.workflow_id)).get_result()


if __name__ == "__main__":
    if "worker" in sys.argv:
        asyncio.run(main())
    else:  # what systemd or Kubernetes does: it starts a killed process again
        command = (sys.executable, __file__, "worker")
        status = -1
        while status < 0:
            status = subprocess.run(command, check=False).returncode
        sys.exit(status)

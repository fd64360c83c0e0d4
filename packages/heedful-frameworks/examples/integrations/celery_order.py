"""Celery runs a loop as a task, and heedful's background jobs from its queues.

The process of the task is killed in the middle. Celery runs the task again in another:
the loop continues, and no call of the model is repeated. Celery uses files here.
"""

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import order
from celery import Celery, Task
from celery.result import AsyncResult

from heedful import HeedfulError, Scope, run_sync
from heedful_server import jobs

app = Celery("orders", broker="filesystem://", backend=f"file://{Path.cwd()}")
app.conf.broker_transport_options = {
    "data_folder_in": "messages",
    "data_folder_out": "messages",
}
# The task of a lost process runs again.
app.conf.task_acks_late = True
app.conf.task_reject_on_worker_lost = True
app.conf.worker_redirect_stdouts = False


def retry(task: Task, error: HeedfulError) -> Exception:
    """Return what runs a task again later, or its error if no try can help."""
    wait = jobs.again_in(error, task.request.retries + 1)
    if wait is None:
        return error
    return task.retry(exc=error, countdown=wait, max_retries=None, throw=False)


@app.task(bind=True)
def ship(self: Task, id: str) -> str:
    """Ship an order; the first step is a loop."""
    try:
        return f"shipped {run_sync(order.drive(id))}"
    except HeedfulError as error:
        raise retry(self, error) from error


@app.task(bind=True)
def do(self: Task, task: str, scope: dict[str, str], arguments: dict[str, Any]) -> None:
    """Do a background job of heedful."""
    try:
        run_sync(order.do(task, scope, arguments, self.request.retries + 1))
    except HeedfulError as error:
        raise retry(self, error) from error


class CeleryQueue(jobs.Work):
    """The background jobs of heedful, in queues of Celery; equal jobs may run twice."""

    def __init__(self) -> None:
        self.sent: list[AsyncResult] = []

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Queue a task."""
        job = jobs.Job(task, scope, arguments)
        sent = do.apply_async((task, asdict(scope), arguments), queue=job.kind.queue)
        self.sent.append(sent)


def main() -> None:
    """Ship an order, then do the work of the night."""
    print(ship.delay("order-7").get(timeout=100))

    # In production, tasks of Celery Beat call these two: each minute, and each night.
    queue = CeleryQueue()
    run_sync(jobs.sweep(queue, order.TOOLS))
    run_sync(jobs.night(queue, order.TOOLS))
    for result in queue.sent:
        result.get(timeout=100)


if __name__ == "__main__":
    if "worker" in sys.argv:
        queues = ",".join(("celery", *jobs.JOB_QUEUES))
        app.worker_main(["worker", "--concurrency=1", f"--queues={queues}"])
    else:
        Path("messages").mkdir(exist_ok=True)
        worker = subprocess.Popen([sys.executable, __file__, "worker"])
        try:
            main()
        finally:
            worker.terminate()
            worker.wait()

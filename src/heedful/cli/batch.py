"""Many tasks, each driven as a loop of its own: in order, several at once, resumable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.cli.tasks import Task
from heedful.drive.drive import Run
from heedful.errors import HeedfulError, MalformedAnswer, ModelError, PromptTooLong, UserCodeError
from heedful.loop.decide import Policy

# What is wrong with one task alone: the others go on. Any other model error would hit them too.
OF_ONE_TASK = (UserCodeError, MalformedAnswer, PromptTooLong)


@dataclass(frozen=True)
class Row:
    """How one task ended. `at_once`: passed at attempt 1; `stopped_by`: a rule, "" if passed."""

    id: str
    loop: str
    group: str
    passed: bool
    at_once: bool
    attempts: int
    calls: int
    tokens: int
    seconds: float
    stopped_by: str
    candidate: Any


async def batch(
    tasks: Sequence[Task],
    *,
    run: str,
    policy: Policy,
    jobs: int = 1,
    watch: Callable[[Row], None] = lambda row: None,
    **options: Any,
) -> list[Row]:
    """Drive every task as the loop `run/id`, `jobs` at once, begun in order; rows in task order.

    `options` are those of every `Run`. A task whose loop has ended is not run again, so calling it
    again resumes. `watch` is told of every row as it ends. Where user code or an answer fails in
    one task, the others go on; at another model error what is running ends and nothing begins; then
    the first error is raised, with a note that names its task. A StoreError stops at once.
    """
    rows: dict[str, Row] = {}
    failed: dict[str, HeedfulError] = {}
    waiting = iter(tasks)

    async def work() -> None:
        for task in waiting:
            try:
                rows[task.id] = await ended(task, run, policy, **options)
            except (UserCodeError, ModelError) as error:
                failed[task.id] = error
            else:
                watch(rows[task.id])
            if not all(isinstance(error, OF_ONE_TASK) for error in failed.values()):
                return

    workers = [asyncio.create_task(work()) for _ in range(min(jobs, len(tasks)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    if failed:
        raise _first([task.id for task in tasks if task.id in failed], failed)
    return [rows[task.id] for task in tasks]


async def ended(task: Task, run: str, policy: Policy, **options: Any) -> Row:
    """Drive one task as the loop `run/id`, with `policy` where it has none of its own."""
    options |= {"checks": task.checks, "goals": task.goals, "data": task.context}
    loop = Run[Any](task.task, policy=task.policy or policy, id=f"{run}/{task.id}", **options)
    result = await loop.finish()
    usage, attempts = result.usage, len(result.loop.attempts)
    return Row(
        task.id,
        result.id,
        task.family,
        result.passed,
        result.passed and attempts == 1,
        attempts,
        usage.calls,
        usage.tokens,
        usage.seconds,
        result.stopped_by[0].rule if result.stopped_by else "",
        result.candidate,
    )


def _first(ids: Sequence[str], failed: Mapping[str, HeedfulError]) -> HeedfulError:
    """The error of the first task that failed, with a note of which tasks failed."""
    first = failed[ids[0]]
    also = f" (so did {len(ids) - 1} more: {', '.join(ids[1:6])})" if ids[1:] else ""
    first.add_note(f"task {ids[0]!r} did not end{also}; all others are stored")
    return first

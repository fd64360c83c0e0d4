"""Many tasks, each driven as a loop of its own: in order, several at once, resumable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from errata.cli.tasks import Task
from errata.drive import Result, Run
from errata.errors import InvalidInput, MalformedAnswer, ModelError, PromptTooLong, UserCodeError
from errata.generate import Writer
from errata.loop import policies
from errata.loop.decide import Policy
from errata.memory.memory import Memory
from errata.protocols import Scope, Store

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
    writer: Writer,
    store: Store,
    memory: Memory | None,
    scope: Scope,
    policy: Policy | None,
    jobs: int = 1,
    timeout: float | None = None,  # noqa: ASYNC109
    seed: int = 0,
    watch: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Drive every task as the loop `run/id`, `jobs` at once, begun in order; rows in task order.

    A task whose loop has ended is not run again, so calling it again resumes. `timeout` bounds one
    attempt, in seconds; `watch` is told of every row as it ends. Where user code or an answer fails
    in one task, the others go on; at another model error what is running ends and nothing begins;
    then the first error is raised, with a note that names its task. A StoreError stops at once.
    """
    if jobs < 1:
        raise InvalidInput("jobs", jobs, "an integer of at least 1")

    start = partial(
        Run[Any],
        generate=writer,
        memory=memory,
        store=store,
        scope=scope,
        timeout=timeout,
        seed=seed,
    )
    work = _Work(start, run, policy or policies.default, iter(tasks), watch)
    await _all(work, jobs, len(tasks))
    if work.failed:
        raise _first(tasks, work.failed)
    return [work.rows[task.id] for task in tasks]


@dataclass
class _Work:
    """What the workers share: the tasks that wait, and how the others ended."""

    start: Callable[..., Run[Any]]
    run: str
    policy: Policy
    waiting: Iterator[Task]
    watch: Callable[[Row], None] | None
    rows: dict[str, Row] = field(default_factory=dict)
    failed: dict[str, UserCodeError | ModelError] = field(default_factory=dict)
    stopped: bool = False

    async def go_on(self) -> None:
        """Take tasks until none waits."""
        for task in self.waiting:
            if self.stopped:
                return
            try:
                row = row_of(task, await self._loop(task).finish())
            except (UserCodeError, ModelError) as error:
                self.failed[task.id] = error
                self.stopped = self.stopped or not isinstance(error, OF_ONE_TASK)
                continue
            self.rows[task.id] = row
            if self.watch is not None:
                self.watch(row)

    def _loop(self, task: Task) -> Run[Any]:
        return self.start(
            task.task,
            checks=task.checks,
            goals=task.goals,
            policy=task.policy or self.policy,
            id=f"{self.run}/{task.id}",
            data=task.context,
        )


async def _all(work: _Work, jobs: int, tasks: int) -> None:
    """Have so many workers do the work; the first error that one raises cancels the others."""
    if jobs < 1:
        raise InvalidInput("jobs", jobs, "an integer of at least 1")
    workers = [asyncio.create_task(work.go_on()) for _ in range(min(jobs, tasks))]
    try:
        await asyncio.gather(*workers)
    except BaseException:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise


def row_of(task: Task, result: Result[Any]) -> Row:
    """The row of a loop that has ended."""
    usage, attempts = result.usage, len(result.loop.attempts)
    family = task.context.get("family") if isinstance(task.context, Mapping) else None
    return Row(
        task.id,
        result.id,
        "" if family is None else str(family),
        result.passed,
        result.passed and attempts == 1,
        attempts,
        usage.calls,
        usage.tokens,
        usage.seconds,
        result.stopped_by[0].rule if result.stopped_by else "",
        result.candidate,
    )


def _first(
    tasks: Sequence[Task], failed: Mapping[str, UserCodeError | ModelError]
) -> UserCodeError | ModelError:
    """The error of the first task that failed, in task order, with a note of which tasks failed."""
    ids = [task.id for task in tasks if task.id in failed]
    first = failed[ids[0]]
    also = f" (so did {len(ids) - 1} more: {', '.join(ids[1:6])})" if ids[1:] else ""
    first.add_note(f"task {ids[0]!r} did not end{also}; all others are stored")
    return first

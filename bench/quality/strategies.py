"""Whether strategies help: a small model on tasks whose rule only the check knows.

Of each family of examples/house_rules the first task is tried once, and what failed is
reflected on. The next tasks are tried once each with nothing, and with the strategy
that is recalled for them, if one is. No example is shown and nothing else is learnt.
Minutes on two cores.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import heedful
from bench.quality.rows import Row
from heedful.cli.tasks import Task, read_tasks
from heedful.lessons.lesson import Match

FOLDER = Path("examples/house_rules")
NEXT = 2  # tasks of a family that are tried after its first
TOKENS = 40
ONCE = heedful.Policy((heedful.MaxAttempts(1),))


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield the shares right at the first try with a strategy and without."""
    sys.path.insert(0, str(FOLDER))  # the tasks name their checks as rules:NAME
    advised, unadvised, tasks = asyncio.run(_measure())
    yield Row(
        key="strategies.right",
        ours=advised / max(1, len(unadvised)),
        baseline=sum(unadvised) / max(1, len(unadvised)),
    )
    yield Row(key="strategies.advised", ours=len(unadvised))
    yield Row(key="strategies.tasks", ours=tasks)


async def _measure() -> tuple[int, list[bool], int]:
    families: dict[str, list[Task]] = {}
    for task in read_tasks(FOLDER / "tasks.jsonl"):
        families.setdefault(task.family, []).append(task)
    model = heedful.open_model("embedded")
    embedder = heedful.models.open_embedder("minilm")
    try:
        with TemporaryDirectory() as folder:
            path = f"{folder}/heedful.db"
            memory = heedful.Memory(path, embedder=embedder, holdout=0.0)
            tasks: list[Task] = []
            for family in families.values():
                tasks += await _learn(memory, model, family)
            advised, unadvised = await _compare(memory, model, tasks)
            return advised, unadvised, len(tasks)
    finally:
        await model.close()


async def _learn(
    memory: heedful.Memory, model: heedful.Model, family: Sequence[Task]
) -> Sequence[Task]:
    """Reflect on a family's first task; return those to try after it, if it failed."""
    first, *rest = family
    result = await _try(model, first)
    if result.passed:
        return ()
    await heedful.reflect(heedful.episode_of(result.loop, first.task), memory=memory)
    return rest[:NEXT]


async def _compare(
    memory: heedful.Memory, model: heedful.Model, tasks: Sequence[Task]
) -> tuple[int, list[bool]]:
    """Count those right with a strategy, and return which are without."""
    advised = 0
    unadvised = []
    for task in tasks:
        briefing = await memory.brief(task.task, task.id)
        if briefing.advice:
            result = await _try(model, task, briefing.advice)
            if result.passed:
                advised += 1
            unadvised.append((await _try(model, task)).passed)
    return advised, unadvised


async def _try(
    model: heedful.Model, task: Task, advice: tuple[Match, ...] = ()
) -> heedful.Result[str]:
    """Try a task once with that advice."""
    context = heedful.Context(task.task, advice=advice)
    messages = heedful.Writer(model).messages(context)
    answer = await model.complete(messages, max_tokens=TOKENS)
    return await heedful.run(
        task.task,
        generate=lambda text, hint: answer.text,
        checks=task.checks,
        policy=ONCE,
        store=None,
    )

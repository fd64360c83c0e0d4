"""Episodes that wait, loops to drive, and what is heard of jobs."""

import asyncio
from collections.abc import Callable
from typing import Any

from heedful import Episode, Event
from heedful.drive.run_loop import Run
from heedful.errors import StoreUnavailable
from heedful.lessons.lesson import Scope
from heedful.memory.reflect import to_stored_episode
from heedful.store import episodes, loops
from heedful.store.records import Head
from heedful.store.store import Store
from heedful_server.jobs import Depth, Job, JobEvent, Work

SCOPE = Scope("acme", "shop")
OTHER = Scope("other", "shop")


def episode(word: str, tool: str = "price") -> Episode:
    events = [
        Event("tool_call", tool=tool, arguments={"item": word}, id="e1"),
        Event(
            "tool_response", tool=tool, error=f"{word} is not in the catalogue", id="e2"
        ),
    ]
    return Episode(tuple(events), "failure", task=f"Find the price of {word}.")


async def put(
    store: Store, scope: Scope, *words: str, tool: str = "price"
) -> list[str]:
    """Keep episodes that wait; their digests."""
    waiting = [episode(word, tool) for word in words]
    for waits in waiting:
        await store.write(
            scope, episodes.admit, to_stored_episode(waits, "user"), claim=False
        )
    return [waits.digest for waits in waiting]


async def open_loop(store: Store, scope: Scope, id: str, task: str = "say ok") -> None:
    await store.write(scope, loops.claim, id, Head(task=task), "")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is heard of jobs is no event
            await asyncio.sleep(0.001)


def short(task: str, **given: Any) -> Run[Any]:
    """A loop that ends with its first attempt."""

    async def generate(task: str, hint: str) -> str:
        return "ok"

    return Run(task, generate=generate, **given)


class Heard:
    """What became of jobs, in order: their tasks, and what it is called."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, JobEvent]] = []
        self.words: list[str] = []

    def __call__(self, job: Job, event: JobEvent, words: str) -> None:
        self.lines.append((job.task, event))
        self.words.append(words)

    def ended(self) -> list[str]:
        return [task for task, event in self.lines if event == "done"]

    def of(self, task: str) -> list[JobEvent]:
        return [event for name, event in self.lines if name == task]


class Handed(Work):
    """Work that is handed over, and done by nobody; `away`: the queue does not
    answer.
    """

    def __init__(self) -> None:
        self.jobs: list[tuple[str, Scope, dict[str, Any]]] = []
        self.away = False

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        if self.away:
            raise StoreUnavailable("the queue does not answer")
        self.jobs.append((task, scope, arguments))

    async def depth(self) -> list[Depth]:
        if self.away:
            raise StoreUnavailable("the queue does not answer")
        return []

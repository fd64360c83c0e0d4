"""How cost and size grow: attempts a loop, lessons a scope, tenants, loops stored, jobs
queued.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from statistics import median
from typing import Any

import heedful
from bench.core import generate, short
from bench.recall import letters
from bench.rows import Figure
from heedful import Memory, Scope
from heedful.lessons.lesson import Example, Lesson
from heedful.lessons.signature import signature
from heedful.service.jobs import Tools
from heedful.service.worker import PostgresQueue
from heedful.store import lessons, loops, open_store
from heedful.store.connection import Db
from heedful.store.sqlite import in_file
from heedful.store.store import Store

ATTEMPTS = (2, 10, 100, 300)
LESSONS = (1_000, 10_000, 100_000)
TENANTS = (10, 1_000, 10_000)
LOOPS = (1_000, 10_000, 50_000)
TOGETHER = 64
BATCH = 500
CALLS = 60
JOBS = 640


def figures(folder: str) -> Iterable[Figure]:
    """Each part has a file of its own; times are medians, sizes are of the file with
    its log.
    """
    yield from asyncio.run(attempts(f"{folder}/attempts.db"))
    yield from asyncio.run(stored(f"{folder}/loops.db"))
    yield from asyncio.run(tenants(f"{folder}/tenants.db"))
    yield from asyncio.run(scope(f"{folder}/lessons.db"))
    yield from queue()


async def attempts(path: str) -> list[Figure]:
    """The cost of the last attempts of a loop, and of a resume, by the number of
    attempts.
    """
    store = in_file(path)
    found = list[Figure]()

    async def numbered(task: str, hint: str) -> str:
        return f"{letters(random.getrandbits(60))} {letters(random.getrandbits(60))} c"

    policy = heedful.Policy((heedful.MaxAttempts(10**6), heedful.Echo(10**6)))
    options: Any = {
        "generate": numbered,
        "checks": [short],
        "policy": policy,
        "store": store,
    }
    run = heedful.Run[str]("task", id="long", **options)
    made = 0
    spent = list[float]()
    for count in ATTEMPTS:
        before = size(path)
        for _ in range(count - made):
            began = time.perf_counter()
            await run.step()
            spent.append((time.perf_counter() - began) * 1e3)
        made = count
        found.append(
            Figure(
                name=f"attempt {count} of a loop", value=median(spent[-20:]), unit="ms"
            )
        )
        again = await timed(lambda n: store.read(Scope(), loops.read, "long"), 9)
        found.append(
            Figure(name=f"read a loop of {count} attempts", value=again, unit="ms")
        )
        if before:
            found.append(
                Figure(
                    name=f"file after {count} attempts",
                    value=size(path) / 1e3,
                    unit="kB",
                )
            )
    await store.close()
    return found


async def stored(path: str) -> list[Figure]:
    """Loops of two attempts, 64 at once: their cost and their bytes, by the number
    stored.
    """
    store = in_file(path)
    found = list[Figure]()
    made = 0

    async def cycle() -> None:
        await heedful.run("task", generate=generate, checks=[short], store=store)

    for count in LOOPS:
        while made < count - TOGETHER * 10:
            await asyncio.gather(*(cycle() for _ in range(TOGETHER)))
            made += TOGETHER
        began = time.perf_counter()
        for _ in range(10):
            await asyncio.gather(*(cycle() for _ in range(TOGETHER)))
        made += TOGETHER * 10
        each = (time.perf_counter() - began) / TOGETHER / 10
        found.append(
            Figure(
                name=f"loops a second, 64 at once, {count} stored",
                value=1 / each,
                unit="/s",
            )
        )
        found.append(
            Figure(
                name=f"bytes a loop, {count} stored",
                value=size(path) / made,
                unit="bytes",
            )
        )
    await store.close()
    return found


async def tenants(path: str) -> list[Figure]:
    """A lesson for each of many tenants: what one more costs, and what one lookup
    costs.
    """
    store = in_file(path)
    found = list[Figure]()
    made = 0
    for count in TENANTS:
        for first in range(made, count - CALLS, BATCH):
            many = range(first, min(first + BATCH, count - CALLS))
            await asyncio.gather(*(learnt(store, n) for n in many))
        made = count
        new = await timed(lambda n: learnt(store, count - CALLS + n), min(CALLS, count))  # noqa: B023
        seen = await timed(
            lambda n: Memory(store, Scope(f"t{n}")).seen("E", "no unit"), CALLS
        )
        found.append(Figure(name=f"remember, tenant {count}", value=new, unit="ms"))
        found.append(Figure(name=f"seen, of {count} tenants", value=seen, unit="ms"))
        found.append(
            Figure(
                name=f"bytes a tenant, {count} tenants",
                value=size(path) / count,
                unit="bytes",
            )
        )
    await store.close()
    return found


async def learnt(store: Store, n: int) -> None:
    """One lesson of the tenant with this number."""
    await Memory(store, Scope(f"t{n}")).remember(
        "E", "no unit", lesson="Write the unit."
    )


async def scope(path: str) -> list[Figure]:
    """Lessons with an example each in one scope, without vectors."""
    store = in_file(path)
    found = list[Figure]()
    made = 0
    memory = Memory(store)
    for count in LESSONS:
        for first in range(made, count, BATCH):
            await store.write(Scope(), _fill, range(first, first + BATCH))
        made = count
        for name, ask in _verbs(memory, count).items():
            found.append(
                Figure(
                    name=f"{name}, {count} lessons",
                    value=await timed(ask, CALLS),
                    unit="ms",
                )
            )
        found.append(
            Figure(
                name=f"bytes a lesson, {count} lessons",
                value=size(path) / count,
                unit="bytes",
            )
        )
    await store.close()
    return found


def _verbs(memory: Memory, count: int) -> dict[str, Callable[[int], Awaitable[object]]]:
    return {
        "remember": lambda n: memory.remember(
            f"new {count} {letters(n)}", "no unit", lesson="x"
        ),
        "seen": lambda n: memory.seen("", _error(n * 37 % count)),
        "recall by words": lambda n: memory.recall(
            f"Build the {letters(n * 37 % count)} part."
        ),
    }


def _kind(n: int) -> str:
    return f"build {letters(n % 200)}"


def _error(n: int) -> str:
    return f"error: cannot resolve module {letters(n)} from parcel {letters(n * 7)}"


def _fill(db: Db, scope: Scope, numbers: range) -> None:
    made = [
        Lesson(
            "error",
            signature(_kind(n), _error(n)),
            error_type=_kind(n),
            text=_error(n),
            sighting=_error(n),
            example=Example(
                f"Build the {letters(n)} part.", f"made part {letters(n * 3)}"
            ),
        )
        for n in numbers
    ]
    lessons.upsert(db, scope, made, time.time())


def queue() -> Iterable[Figure]:
    """Jobs without work a second through the queue in PostgreSQL: put in, and run."""
    from tests.postgres import alone  # a server comes with what develops heedful

    with alone() as server:
        url = server.url("heedful_template", "heedful")
        for many in (1, 2):
            put, done = asyncio.run(_queued(url, many))
            yield Figure(
                name=f"jobs put into the queue, {TOGETHER} at once",
                value=put,
                unit="/s",
            )
            yield Figure(name=f"jobs run, {many} at a time", value=done, unit="/s")


async def _queued(url: str, many: int) -> tuple[float, float]:
    tools = Tools(store=open_store(url), enabled=False)  # so that a job ends at once
    async with PostgresQueue(url, works=True) as jobs:
        began = time.perf_counter()
        for first in range(0, JOBS, TOGETHER):
            scopes = [Scope(f"t{n}") for n in range(first, min(JOBS, first + TOGETHER))]
            await asyncio.gather(
                *(jobs.defer("reflect", scope, digest="0") for scope in scopes)
            )
        put = JOBS / (time.perf_counter() - began)
        began = time.perf_counter()
        await jobs.work(tools, concurrency=many, once=True)
        done = JOBS / (time.perf_counter() - began)
    await tools.store.close()
    return put, done


async def timed(call: Callable[[int], Awaitable[object]], calls: int) -> float:
    """The median of the milliseconds of a call."""
    spent = []
    for n in range(calls):
        began = time.perf_counter()
        await call(n)
        spent.append((time.perf_counter() - began) * 1e3)
    return median(spent)


def size(path: str) -> int:
    """Bytes of the file and of its log."""
    return sum(
        os.path.getsize(path + end)
        for end in ("", "-wal")
        if os.path.exists(path + end)
    )

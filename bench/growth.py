"""How cost and size grow: attempts a loop, lessons a scope, tenants, loops stored, jobs
queued.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from statistics import median

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
    """Measure each part in a file of its own: median times, sizes with the log."""
    yield from asyncio.run(measure_attempts(f"{folder}/attempts.db"))
    yield from asyncio.run(measure_loops(f"{folder}/loops.db"))
    yield from asyncio.run(measure_tenants(f"{folder}/tenants.db"))
    yield from asyncio.run(measure_scope(f"{folder}/lessons.db"))
    yield from measure_queue()


async def measure_attempts(path: str) -> list[Figure]:
    """Measure the last attempts of a loop, and a resume, by the attempts before."""
    store = in_file(path)
    results = list[Figure]()

    async def numbered(task: str, hint: str) -> str:
        return f"{letters(random.getrandbits(60))} {letters(random.getrandbits(60))} c"

    policy = heedful.Policy((heedful.MaxAttempts(10**6), heedful.Echo(10**6)))
    run = heedful.Run[str](
        "task",
        id="long",
        generate=numbered,
        checks=[short],
        policy=policy,
        store=store,
    )
    attempt_count = 0
    milliseconds = list[float]()
    for count in ATTEMPTS:
        before = file_size(path)
        for _ in range(count - attempt_count):
            began = time.perf_counter()
            await run.step()
            milliseconds.append((time.perf_counter() - began) * 1e3)
        attempt_count = count
        results.append(
            Figure(
                name=f"attempt {count} of a loop",
                value=median(milliseconds[-20:]),
                unit="ms",
            )
        )
        again = await time_calls(lambda n: store.read(Scope(), loops.read, "long"), 9)
        results.append(
            Figure(name=f"read a loop of {count} attempts", value=again, unit="ms")
        )
        if before:
            results.append(
                Figure(
                    name=f"file after {count} attempts",
                    value=file_size(path) / 1e3,
                    unit="kB",
                )
            )
    await store.close()
    return results


async def measure_loops(path: str) -> list[Figure]:
    """Measure loops of two attempts, 64 at once: cost and bytes by loops stored."""
    store = in_file(path)
    results = list[Figure]()
    loop_count = 0

    async def cycle() -> None:
        await heedful.run("task", generate=generate, checks=[short], store=store)

    for count in LOOPS:
        while loop_count < count - TOGETHER * 10:
            await asyncio.gather(*(cycle() for _ in range(TOGETHER)))
            loop_count += TOGETHER
        began = time.perf_counter()
        for _ in range(10):
            await asyncio.gather(*(cycle() for _ in range(TOGETHER)))
        loop_count += TOGETHER * 10
        seconds_each = (time.perf_counter() - began) / TOGETHER / 10
        results.append(
            Figure(
                name=f"loops a second, 64 at once, {count} stored",
                value=1 / seconds_each,
                unit="/s",
            )
        )
        results.append(
            Figure(
                name=f"bytes a loop, {count} stored",
                value=file_size(path) / loop_count,
                unit="bytes",
            )
        )
    await store.close()
    return results


async def measure_tenants(path: str) -> list[Figure]:
    """Measure one more lesson and one lookup, by the number of tenants."""
    store = in_file(path)
    results = list[Figure]()
    tenant_count = 0
    for count in TENANTS:
        last_new = count - CALLS
        for first in range(tenant_count, last_new, BATCH):
            numbers = range(first, min(first + BATCH, last_new))
            await asyncio.gather(*(remember_for_tenant(store, n) for n in numbers))
        tenant_count = count
        new = await time_calls(
            partial(_remember_next, store, last_new), min(CALLS, count)
        )
        seen = await time_calls(partial(_look_up, store), CALLS)
        results.append(Figure(name=f"remember, tenant {count}", value=new, unit="ms"))
        results.append(Figure(name=f"seen, of {count} tenants", value=seen, unit="ms"))
        results.append(
            Figure(
                name=f"bytes a tenant, {count} tenants",
                value=file_size(path) / count,
                unit="bytes",
            )
        )
    await store.close()
    return results


async def _remember_next(store: Store, first: int, n: int) -> None:
    await remember_for_tenant(store, first + n)


async def _look_up(store: Store, n: int) -> None:
    await Memory(store, Scope(f"t{n}")).seen("E", "no unit")


async def remember_for_tenant(store: Store, n: int) -> None:
    """Remember one lesson of the tenant with this number."""
    await Memory(store, Scope(f"t{n}")).remember(
        "E", "no unit", lesson="Write the unit."
    )


async def measure_scope(path: str) -> list[Figure]:
    """Measure one scope of lessons with an example each, without vectors."""
    store = in_file(path)
    results = list[Figure]()
    lesson_count = 0
    memory = Memory(store)
    for count in LESSONS:
        for first in range(lesson_count, count, BATCH):
            await store.write(Scope(), _fill, range(first, first + BATCH))
        lesson_count = count
        for name, ask in _lookups(memory, count).items():
            results.append(
                Figure(
                    name=f"{name}, {count} lessons",
                    value=await time_calls(ask, CALLS),
                    unit="ms",
                )
            )
        results.append(
            Figure(
                name=f"bytes a lesson, {count} lessons",
                value=file_size(path) / count,
                unit="bytes",
            )
        )
    await store.close()
    return results


def _lookups(
    memory: Memory, count: int
) -> dict[str, Callable[[int], Awaitable[object]]]:
    def remember(n: int) -> Awaitable[object]:
        return memory.remember(f"new {count} {letters(n)}", "no unit", lesson="x")

    def look_up(n: int) -> Awaitable[object]:
        return memory.seen("", _error(n * 37 % count))

    def recall(n: int) -> Awaitable[object]:
        return memory.recall(f"Build the {letters(n * 37 % count)} part.")

    return {"remember": remember, "seen": look_up, "recall by words": recall}


def _kind(n: int) -> str:
    return f"build {letters(n % 200)}"


def _error(n: int) -> str:
    return f"error: cannot resolve module {letters(n)} from parcel {letters(n * 7)}"


def _fill(db: Db, scope: Scope, numbers: range) -> None:
    new_lessons = [
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
    lessons.upsert(db, scope, new_lessons, time.time())


def measure_queue() -> Iterable[Figure]:
    """Measure jobs without work through the queue in PostgreSQL: put in, and run."""
    from tests.postgres import alone  # a server comes with what develops heedful

    with alone() as server:
        url = server.url("heedful_template", "heedful")
        for many in (1, 2):
            put, done = asyncio.run(_time_jobs(url, many))
            yield Figure(
                name=f"jobs put into the queue, {TOGETHER} at once",
                value=put,
                unit="/s",
            )
            yield Figure(name=f"jobs run, {many} at a time", value=done, unit="/s")


async def _time_jobs(url: str, many: int) -> tuple[float, float]:
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


async def time_calls(call: Callable[[int], Awaitable[object]], calls: int) -> float:
    """Return the median of the milliseconds of a call."""
    milliseconds = []
    for n in range(calls):
        began = time.perf_counter()
        await call(n)
        milliseconds.append((time.perf_counter() - began) * 1e3)
    return median(milliseconds)


def file_size(path: str) -> int:
    """Return the bytes of the file and of its log."""
    return sum(
        os.path.getsize(path + end)
        for end in ("", "-wal")
        if os.path.exists(path + end)
    )

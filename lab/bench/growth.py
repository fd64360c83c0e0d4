"""How cost and size grow: attempts a loop, lessons a scope, tenants, loops stored, jobs
queued. Loops and lessons are measured on both engines.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import heedful
from bench.core import generate, short
from bench.recall import letters
from bench.rows import Figure
from bench.several import empty_database, put_jobs
from bench.timing import milliseconds
from bench.ui import QUICK, loop_statements
from heedful import Memory, Scope
from heedful.lessons.lesson import Example, Lesson
from heedful.lessons.signature import signature
from heedful.store import lessons, loops, open_store
from heedful.store.connection import Db
from heedful.store.postgres import in_database
from heedful.store.sqlite import in_file
from heedful.store.store import Store
from heedful_server.jobs import Tools
from heedful_server.worker import PostgresQueue

if TYPE_CHECKING:  # a server comes with what develops heedful
    from tests.postgres import Server

ATTEMPTS = (2, 10, 100, 300)
LESSONS = (1_000, 10_000, 100_000)
TENANTS = (10, 1_000, 10_000)
LOOPS = (1_000, 10_000, 100_000)
MILLION = 1_000_000
TOGETHER = 64
TURNS = 10  # of so many loops at once, when they are measured
BATCH = 500
CALLS = 60
JOBS = 640


@dataclass(frozen=True, kw_only=True)
class Growing:
    """A store that is filled, how to fill it by SQL, and how to measure its bytes.

    `engine` stands at the end of the names of figures.
    """

    engine: str
    store: Store
    execute: Callable[[str], object]
    size: Callable[[], int]


def figures(folder: str, million: bool) -> Iterable[Figure]:
    """Measure each part in a database of its own: median times, sizes with the log.

    With `million`, loops and lessons grow to a million, on both engines.
    """
    from tests.postgres import alone

    more = (MILLION,) if million else ()
    measures = {
        "loops": partial(measure_loops, is_million=million),
        "lessons": partial(measure_scope, counts=(*LESSONS, *more)),
    }
    yield from asyncio.run(measure_attempts(f"{folder}/attempts.db"))
    yield from asyncio.run(measure_tenants(f"{folder}/tenants.db"))
    for name, measure in measures.items():
        yield from asyncio.run(measure(_in_file(f"{folder}/{name}.db")))
    with alone() as server:
        yield from measure_queue(server)
        for measure in measures.values():
            with empty_database(server) as url:
                yield from asyncio.run(measure(_in_server(server, url)))


def _in_file(path: str) -> Growing:
    def execute(statement: str) -> None:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(statement)

    return Growing(
        engine="SQLite",
        store=in_file(path),
        execute=execute,
        size=partial(file_size, path),
    )


def _in_server(server: Server, url: str) -> Growing:
    # The query of the URL may hold a path of its own, that of the server's socket.
    database = urlsplit(url).path.removeprefix("/")

    def size() -> int:
        (row,) = server.run("select pg_database_size(current_database())", database)
        return int(row[0])

    def execute(statement: str) -> None:
        server.run(f"{QUICK}{statement}", database)

    return Growing(
        engine="PostgreSQL", store=in_database(url), execute=execute, size=size
    )


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
    spent = list[float]()
    for earlier, count in pairwise((0, *ATTEMPTS)):
        before = file_size(path)
        for _ in range(earlier, count):
            spent.append(await milliseconds(run.step()))
        results.append(
            Figure(
                name=f"attempt {count} of a loop",
                value=median(spent[-20:]),
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


async def measure_loops(growing: Growing, *, is_million: bool) -> list[Figure]:
    """Measure loops of two attempts, 64 at once: cost and bytes by loops stored.

    A million of one attempt each are put there by SQL.
    """
    results = list[Figure]()
    for earlier, count in pairwise((0, *LOOPS)):
        await _run_loops(growing.store, (count - earlier) // TOGETHER - TURNS)
        results += await _measure_loops(growing, count)
        results.append(
            Figure(
                name=f"bytes a loop, {count} stored, {growing.engine}",
                value=growing.size() / count,
                unit="bytes",
            )
        )
    if is_million:
        for statement in (*loop_statements(MILLION), "analyze"):
            growing.execute(statement)
        results += await _measure_loops(growing, MILLION)
    await growing.store.close()
    return results


async def _measure_loops(growing: Growing, count: int) -> list[Figure]:
    """Measure more loops, and a look at the newest ones, when so many are stored."""
    began = time.perf_counter()
    await _run_loops(growing.store, TURNS)
    seconds = time.perf_counter() - began
    newest = await time_calls(
        lambda n: growing.store.read(Scope(), loops.newest, 20), 9
    )
    state = f"{count} stored, {growing.engine}"
    return [
        Figure(
            name=f"loops a second, {TOGETHER} at once, {state}",
            value=TURNS * TOGETHER / seconds,
            unit="/s",
        ),
        Figure(name=f"list the newest loops, {state}", value=newest, unit="ms"),
    ]


async def _run_loops(store: Store, turns: int) -> None:
    async def cycle() -> None:
        await heedful.run("task", generate=generate, checks=[short], store=store)

    for _ in range(turns):
        await asyncio.gather(*(cycle() for _ in range(TOGETHER)))


async def measure_tenants(path: str) -> list[Figure]:
    """Measure one more lesson and one lookup, by the number of tenants."""
    store = in_file(path)
    results = list[Figure]()
    for earlier, count in pairwise((0, *TENANTS)):
        last_new = count - CALLS
        for first in range(earlier, last_new, BATCH):
            numbers = range(first, min(first + BATCH, last_new))
            await asyncio.gather(*(remember_for_tenant(store, n) for n in numbers))
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


async def measure_scope(growing: Growing, *, counts: Sequence[int]) -> list[Figure]:
    """Measure one scope of lessons with an example each, without vectors."""
    store = growing.store
    results = list[Figure]()
    memory = Memory(store)
    for earlier, count in pairwise((0, *counts)):
        for first in range(earlier, count, BATCH):
            await store.write(Scope(), _fill, range(first, first + BATCH))
        for name, ask in _lookups(memory, count).items():
            results.append(
                Figure(
                    name=f"{name}, {count} lessons, {growing.engine}",
                    value=await time_calls(ask, CALLS),
                    unit="ms",
                )
            )
        results.append(
            Figure(
                name=f"bytes a lesson, {count} lessons, {growing.engine}",
                value=growing.size() / count,
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


def measure_queue(server: Server) -> Iterable[Figure]:
    """Measure jobs without work through the queue in PostgreSQL: put in, and run."""
    with empty_database(server) as url:
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
        await put_jobs(jobs, JOBS)
        put = JOBS / (time.perf_counter() - began)
        began = time.perf_counter()
        await jobs.work(tools, concurrency=many, once=True)
        done = JOBS / (time.perf_counter() - began)
    await tools.store.close()
    return put, done


async def time_calls(call: Callable[[int], Awaitable[object]], calls: int) -> float:
    """Return the median of the milliseconds of a call."""
    return median([await milliseconds(call(n)) for n in range(calls)])


def file_size(path: str) -> int:
    """Return the bytes of the file and of its log."""
    return sum(
        os.path.getsize(path + end)
        for end in ("", "-wal")
        if os.path.exists(path + end)
    )

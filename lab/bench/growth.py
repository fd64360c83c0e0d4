"""How the cost of what users do grows: with loops, lessons, tenants and attempts.

- A database grows in place to 1, 10 and 100 times its first size.
- One project has the loops and lessons.
- Each other tenant has a loop and ten lessons.
- SQL makes loops and their outcomes.
- Lessons go through the store.
- A figure is the median of some calls.
- The exponent says how its CPU grows from the last size but one:
  0 not at all, 1 in proportion.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import log
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import httpx

import heedful
from bench import page
from bench.core import generate, short
from bench.http import resident_megabytes
from bench.recall import letters
from bench.rows import Figure
from bench.ui import AT, NOW, NUMBERS, QUICK, ask_page, loop_statements, open_pages
from heedful import Memory, Scope
from heedful.drive.report import ReportedLoop, open_loop
from heedful.lessons.lesson import Example, Lesson
from heedful.lessons.signature import signature
from heedful.store import lessons
from heedful.store.connection import Db
from heedful.store.postgres import in_database
from heedful.store.sqlite import in_file
from heedful.store.store import Store

if TYPE_CHECKING:  # a server comes with what develops heedful
    from tests.postgres import Server

PAGE = page.PAGE.with_name("growth.md")
SIZE_SQL = "select pg_database_size(current_database())"
SIZES = (1, 10, 100)
# At the first size:
LOOPS = 10_000
LESSONS = 1_000
TENANTS = 10
ATTEMPTS = 3  # of the long loop
BATCH = 500
CALLS = 15
# A process keeps what it reads at first.
FEWER_CALLS = {"prove": 3, "Home, at first": 1, "lessons, at first": 1}


@dataclass(frozen=True, kw_only=True)
class GrowingDatabase:
    """How to open a database, and to execute SQL.

    - `size` returns its bytes.
    - `upkeep` is the SQL that it executes by itself from time to time.
    - `cpu` are the seconds that its own processes have used.
    """

    name: str
    open: Callable[[], Store]
    execute: Callable[[str], object]
    size: Callable[[], int]
    upkeep: str
    cpu: Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The medians of an operation in ms, or its MB as both figures."""

    operation: str
    engine: str
    size: int
    wall: float
    cpu: float
    unit: str = "ms"


def figures(folder: str, million: bool, write: bool) -> Iterable[Figure]:
    """Measure both engines, each in a process of its own.

    With `million`, they grow to 100 times their first size.
    With `write`, the table of the page is replaced.
    """
    began = time.monotonic()
    sizes = SIZES if million else SIZES[:2]
    costs = list[Cost]()
    for measure in (measure_sqlite, measure_postgres):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            costs += process.submit(measure, folder, sizes).result()
    for cost in costs:
        name = f"{cost.operation}, ×{cost.size}, {cost.engine}"
        yield Figure(name=name, value=cost.wall, unit=cost.unit)
        if cost.unit == "ms":
            yield Figure(name=f"{name}, CPU", value=cost.cpu, unit="ms")
    if write:
        minutes = (time.monotonic() - began) / 60
        when = f"{time.strftime('%d %B %Y')}, in {minutes:.0f} minutes"
        section = f"{when}:\n\n{page.table(*rows_of(costs, sizes))}"
        text = page.replace_section(PAGE.read_text("utf-8"), "growth", section)
        PAGE.write_text(text, "utf-8")


def measure_sqlite(folder: str, sizes: Sequence[int]) -> list[Cost]:
    """Measure a file."""
    path = f"{folder}/growth.db"

    def execute(statement: str) -> None:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(statement)

    engine = GrowingDatabase(
        name="SQLite",
        open=partial(in_file, path),
        execute=execute,
        size=lambda: Path(path).stat().st_size,
        upkeep="",
        cpu=float,
    )
    return asyncio.run(grow(engine, sizes))


def measure_postgres(folder: str, sizes: Sequence[int]) -> list[Cost]:
    """Measure a server of its own."""
    from tests.postgres import alone

    with alone("max_wal_size = 8GB") as server:
        return asyncio.run(grow(engine_of(server), sizes))


def engine_of(server: Server) -> GrowingDatabase:
    """Return a database of a server; its CPU is that of the backends there are."""
    (pid, *_) = (server.folder / "postmaster.pid").read_text().split()
    children = Path(f"/proc/{pid}/task/{pid}/children")

    def cpu() -> float:
        times = [
            Path(f"/proc/{backend}/schedstat").read_text().split()
            for backend in children.read_text().split()
        ]
        return sum(int(nanoseconds) for nanoseconds, *_ in times) / 1e9

    return GrowingDatabase(
        name="PostgreSQL",
        open=partial(in_database, server.url(AT, "heedful")),
        execute=lambda statement: server.run(f"{QUICK}{statement}", AT),
        size=lambda: int(server.run(SIZE_SQL, AT)[0][0]),
        upkeep="analyze",
        cpu=cpu,
    )


async def grow(engine: GrowingDatabase, sizes: Sequence[int]) -> list[Cost]:
    """Fill a database up to each size, and measure it there."""
    costs = list[Cost]()
    for filled, size in pairwise((0, *sizes)):
        print(f"{time.strftime('%X')} fill {engine.name} ×{size}", file=sys.stderr)
        await fill(engine, filled, size)
        print(f"{time.strftime('%X')} measure it", file=sys.stderr)

        cost_of = partial(Cost, engine=engine.name, size=size)
        store = engine.open()  # no process has read anything of it yet
        async with open_pages(store) as client:
            for operation, call in (await operations(store, client, size)).items():
                count = FEWER_CALLS.get(operation, CALLS)
                wall, cpu = await time_calls(call, count, engine.cpu)
                costs.append(cost_of(operation=operation, wall=wall, cpu=cpu))
        await store.close()

        for operation, megabytes in (
            ("memory of the process, MB", resident_megabytes(os.getpid())),
            ("database, MB", engine.size() / 1e6),
        ):
            costs.append(
                cost_of(operation=operation, wall=megabytes, cpu=megabytes, unit="MB")
            )
    return costs


async def fill(engine: GrowingDatabase, filled: int, size: int) -> None:
    """Add what is missing between two sizes."""
    store = engine.open()
    for first in range(LESSONS * filled, LESSONS * size, BATCH):
        await store.write(Scope(), fill_lessons, range(first, first + BATCH))
    for first in range(TENANTS * filled, TENANTS * size, TENANTS):
        tenants = range(first, first + TENANTS)
        await asyncio.gather(*(fill_tenant(store, f"t{n}") for n in tenants))
    long = await long_loop(store)
    for _ in range(len(long.loop.attempts), ATTEMPTS * size):
        await long.report("a b c")
    await store.close()

    first = LOOPS * filled + 1
    last = LOOPS * size
    numbers = NUMBERS.format(first=first, most=last)
    exposures = f"""
        {numbers}
        insert into exposure (
            tenant, project, loop,
            kind, signature,
            shown, share,
            among, at
        )
        select
            l.tenant, l.project, 'loop ' || i,
            l.kind, l.signature,
            i % 10 > 0, 0.1,
            1, {NOW}
        from x
        join lesson l
        on l.id = 1 + i % {LESSONS}
    """
    outcomes = f"""
        {numbers}
        insert into outcome (
            tenant, project, loop,
            n,
            right_at_once, calls,
            signatures, at
        )
        select
            'default', 'default', 'loop ' || i,
            i - {filled * LOOPS} + (
                select coalesce(max(n), 0)
                from outcome
                where tenant = 'default'
            ),
            i % 7 > 0, 1,
            '[]', {NOW}
        from x
    """
    for statement in (
        *loop_statements(first, last),
        exposures,
        outcomes,
        engine.upkeep,
    ):
        engine.execute(statement)


def kind_of(n: int) -> str:
    """Return the type of an error."""
    return f"build {letters(n % 200)}"


def error_of(n: int) -> str:
    """Return the error of the lesson `n`."""
    return f"error: cannot resolve module {letters(n)} from parcel {letters(n * 7)}"


def task_of(n: int) -> str:
    """Return the task of its example."""
    return f"Build the {letters(n)} part."


def fill_lessons(db: Db, scope: Scope, numbers: range) -> None:
    """Store lessons with an example each."""
    new_lessons = [
        Lesson(
            "error",
            signature(kind_of(n), error_of(n)),
            error_type=kind_of(n),
            text=error_of(n),
            sighting=error_of(n),
            example=Example(task_of(n), f"made part {letters(n * 3)}"),
        )
        for n in numbers
    ]
    lessons.upsert(db, scope, new_lessons, time.time())


async def fill_tenant(store: Store, name: str) -> None:
    """Store a loop and lessons of a tenant."""
    scope = Scope(name)
    await store.write(scope, fill_lessons, range(10))
    await heedful.run(
        "task", generate=generate, checks=[short], memory=Memory(store, scope)
    )


async def long_loop(store: Store) -> ReportedLoop:
    """Return the loop with the most attempts."""
    return await open_loop(
        "long",
        "task",
        checks=[short],
        policy=heedful.Policy((heedful.MaxAttempts(10**6),)),
        store=store,
    )


async def operations(
    store: Store, client: httpx.AsyncClient, size: int
) -> dict[str, Callable[[int], Awaitable[object]]]:
    """Return what users do, as functions of the number of the call."""
    lesson_count = LESSONS * size
    memory = Memory(store)
    neighbour = Memory(store, Scope("t3"))
    long = await long_loop(store)
    new_loops = list[ReportedLoop]()

    async def begin(n: int) -> None:
        loop = await open_loop(
            f"new {size} {n}", task_of(n * 37), checks=[short], memory=memory
        )
        new_loops.append(loop)

    def visit(path: str) -> Callable[[int], Awaitable[object]]:
        return lambda n: ask_page(client, path)

    return {
        "begin a loop, with a briefing": begin,
        "report a first attempt": lambda n: new_loops[n].report("a b c"),
        "report a last attempt": lambda n: new_loops[n].report("a b"),
        f"report one more of {ATTEMPTS} attempts": lambda n: long.report("a b c"),
        "remember a lesson": lambda n: memory.remember(
            f"new {size} {letters(n)}", "no unit", lesson="Write the unit."
        ),
        "seen, with a type": lambda n: memory.seen(
            kind_of(n * 37), error_of(n * 37 % lesson_count)
        ),
        "seen, without a type": lambda n: memory.seen(
            "", error_of(n * 37 % lesson_count)
        ),
        "recall by words": lambda n: memory.recall(task_of(n * 37 % lesson_count)),
        "recall in a small project": lambda n: neighbour.recall(task_of(n % 10)),
        "prove": lambda n: memory.prove(),
        "Home, at first": visit(""),
        "Home": visit(""),
        "loops": visit("/loops"),
        "loops with a word": visit("/loops?text=nothing+like+it"),
        "a loop": visit(f"/loops/loop%20{size}"),
        f"a loop of {ATTEMPTS} attempts": visit("/loops/long"),
        "lessons, at first": visit("/lessons"),
        "lessons": visit("/lessons"),
        "proof": visit("/proof"),
    }


async def time_calls(
    call: Callable[[int], Awaitable[object]], count: int, others: Callable[[], float]
) -> tuple[float, float]:
    """Return the median milliseconds of so many calls, and of their CPU.

    It is that of this process, and of `others`.
    """
    wall_times = list[float]()
    cpu_times = list[float]()
    for n in range(count):
        cpu = time.process_time() + others()
        began = time.perf_counter()
        await call(n)
        wall_times.append(time.perf_counter() - began)
        cpu_times.append(time.process_time() + others() - cpu)
    return median(wall_times) * 1e3, median(cpu_times) * 1e3


def rows_of(
    costs: Iterable[Cost], sizes: Sequence[int]
) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows of the table: wall / CPU at each size.

    The exponent is that of the last step, where whoever plans stands.
    """
    series = defaultdict[tuple[str, str], list[Cost]](list)
    for cost in costs:
        series[cost.operation, cost.engine].append(cost)
    heading = ["operation", "engine", *(f"×{size}" for size in sizes)]
    rows = []
    for name, of_sizes in series.items():
        cells = [f"{cost.wall:,.1f} / {cost.cpu:,.1f}" for cost in of_sizes]
        ratio = of_sizes[-1].cpu / of_sizes[-2].cpu
        exponent = log(ratio) / log(sizes[-1] / sizes[-2])
        rows.append([*name, *cells, f"{ratio:.1f}", f"{exponent:.2f}"])
    return [*heading, "ratio", "exponent"], rows

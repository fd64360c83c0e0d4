"""The durable loop: commits and fsyncs for an attempt, and the ratio to a floor.

The floor is a program that writes the same rows into the same tables, in as many
commits and statements, and does nothing else.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

import heedful
from bench.core import generate, short
from bench.rows import Figure
from bench.timing import best, best_async, milliseconds
from heedful.store import exposures, lessons
from heedful.store.sqlite import connect, in_file

CYCLES = 40
ROUNDS = 7
# Rounds that do not count: a log file that still grows makes every fsync dearer.
WARM = 10
TOGETHER = 64
STORES = 16  # of one process, on one file; each is written by four tasks
STORE_WRITES = 20
PASS_LOOP = """
update loop
set state = 'passed', lease = store_clock(), unanswered = 0, updated = :updated
where n = :n
"""


async def impure(candidate: str, context: heedful.Context) -> list[heedful.Finding]:
    """Check as `short` does, not declared pure: the answer is journalled before."""
    return short(candidate, context)


def figures(folder: str) -> Iterable[Figure]:
    """Measure a durable attempt beside its floor.

    Both take turns, and the ratio is the median of the pairs, so that a disk whose
    speed drifts does not decide it.
    """
    path = f"{folder}/pure.db"
    with closing(Floor(f"{folder}/floor.db")) as floor:
        for _ in range(WARM):
            measure_pair(floor, path)
        pairs = [measure_pair(floor, path) for _ in range(ROUNDS)]
    yield Figure(
        name="durable attempt, pure checks",
        value=min(ours for ours, _ in pairs) * 1e3,
        unit="ms",
    )
    yield Figure(
        name="its floor: the same rows by SQLite alone (WAL, FULL)",
        value=min(bare for _, bare in pairs) * 1e3,
        unit="ms",
    )
    yield Figure(
        name="durable attempt ÷ its floor",
        value=median(ours / bare for ours, bare in pairs),
        unit="×",
        most=1.8,
    )
    for name, check, allowed in (
        ("pure checks", short, 1.0),
        ("other checks", impure, 2.0),
    ):
        yield Figure(
            name=f"commits an attempt, {name}",
            value=count_commits(path, check),
            unit="",
            most=allowed,
        )
    yield from measure_fsyncs(folder)
    yield from measure_group(f"{folder}/together.db")
    yield measure_stores(f"{folder}/stores.db")


def measure_pair(floor: Floor, path: str) -> tuple[float, float]:
    """Return the seconds for an attempt, and for its floor."""
    bare = best(floor.write_cycle, CYCLES, rounds=1) / 2
    ours = best_async(lambda n: cycle(path, short), CYCLES, rounds=1) / 2
    return ours, bare


async def cycle(path: str, check: object) -> object:
    """Run a cycle that fails, gets feedback and passes, and store it."""
    return await heedful.run("task", generate=generate, checks=[check], store=path)  # type: ignore[list-item]


class Floor:
    """Writes the rows of one cycle again and again, on a connection of heedful's."""

    def __init__(self, path: str) -> None:
        asyncio.run(cycle(path, short))
        self.db = connect(path, busy_seconds=5)
        (self.loop,) = self.rows("loop")
        self.attempts = self.rows("attempt")
        self.decisions = self.rows("decision")
        del self.loop["n"]
        self.insert_loop = insert_sql("loop", self.loop)
        self.insert_attempt = insert_sql("attempt", self.attempts[0])
        self.insert_decision = insert_sql("decision", self.decisions[0])

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table, by its key."""
        return [dict(row) for row in self.db.execute(f"select * from {table}")]

    def write_cycle(self) -> None:
        """Write a loop whose second attempt passes, in two commits."""
        loop = {**self.loop, "id": os.urandom(16).hex(), "state": "open"}
        n = None
        for attempt, decision in zip(self.attempts, self.decisions, strict=True):
            self.db.execute("begin immediate")
            if n is None:
                n = self.db.execute(self.insert_loop, loop).lastrowid
            else:
                passed = {"n": n, "updated": time.time()}
                self.db.execute(PASS_LOOP, passed)
            self.db.execute(self.insert_attempt, {**attempt, "loop": n})
            self.db.execute(self.insert_decision, {**decision, "loop": n})
            self.db.execute("commit")

    def close(self) -> None:
        """Close the connection."""
        self.db.close()


def insert_sql(table: str, row: Iterable[str]) -> str:
    """Return the statement that inserts a row with these columns."""
    values = ", ".join(f":{column}" for column in row)
    return f"insert into {table} ({', '.join(row)}) values ({values})"


def open_floor(path: str) -> sqlite3.Connection:
    """Open a database with heedful's settings and one table, for bare commits."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("pragma journal_mode = wal")
    db.execute("pragma synchronous = full")
    db.execute("create table t (a integer primary key, b text)")
    return db


def time_commits(db: sqlite3.Connection, times: int) -> float:
    """Return the seconds for one commit of about the size of an attempt."""
    began = time.perf_counter()
    for _ in range(times):
        db.execute("begin immediate")
        db.execute("insert into t (b) values (?)", ("x" * 900,))
        db.execute("commit")
    return (time.perf_counter() - began) / times


def count_commits(path: str, check: object) -> float:
    """Count the commits for an attempt on the connection."""
    commits = 0

    def count_commit(sql: str) -> None:
        nonlocal commits
        if sql == "commit":
            commits += 1

    def connect_counted(*arguments: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect_plainly(*arguments, **options)
        db.set_trace_callback(count_commit)
        return db

    async def run_cycles() -> None:
        nonlocal commits
        store = in_file(path)
        # Both connections, that which reads and that which writes, are open then.
        await store.read(heedful.Scope(), lessons.count)
        await store.write(heedful.Scope(), exposures.remember, [])
        commits = 0
        for _ in range(20):
            await heedful.run("task", generate=generate, checks=[check], store=store)  # type: ignore[list-item]
        await store.close()

    connect_plainly = sqlite3.connect
    sqlite3.connect = connect_counted  # type: ignore[assignment]
    try:
        asyncio.run(run_cycles())
    finally:
        sqlite3.connect = connect_plainly
    return commits / 40


ONE_RUN = """
import asyncio, sys, heedful
from bench.durable import cycle, impure
from bench.core import short
async def main():
    for _ in range(int(sys.argv[2])):
        await cycle(sys.argv[1], short if sys.argv[3] == "pure" else impure)
asyncio.run(main())
"""


def measure_fsyncs(folder: str) -> Iterable[Figure]:
    """Count fsync and fdatasync calls for an attempt with strace, if installed."""
    for kind, allowed in (("pure", 1.0), ("other", 2.0)):
        syncs_a_cycle = count_syncs(ONE_RUN, f"{folder}/{kind}", kind)
        if syncs_a_cycle is not None:
            yield Figure(
                name=f"fsyncs an attempt, {kind} checks",
                value=syncs_a_cycle / 2,
                unit="",
                most=allowed,
            )


def count_syncs(program: str, name: str, *arguments: str) -> float | None:
    """Count the syncs that a program makes for each step; None without strace.

    Two lengths of run are compared, so that what opening and closing costs is left out.
    """
    strace = shutil.which("strace")
    if strace is None:
        return None
    counts = []
    for times in (10, 60):
        log = Path(f"{name}-{times}.strace")
        trace = [strace, "-f", "-o", str(log), "-e", "trace=fsync,fdatasync"]
        command = [sys.executable, "-c", program, f"{name}-{times}-f.db", str(times)]
        subprocess.run(
            [*trace, *command, *arguments],
            check=True,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )
        counts.append(sum("sync(" in line for line in log.read_text().splitlines()))
    return (counts[1] - counts[0]) / 50


def measure_group(path: str) -> Iterable[Figure]:
    """Compare group commit, many loops at once, with one loop after the other."""

    async def run_one(_: int) -> object:
        return await cycle(path, short)

    async def run_many(_: int) -> object:
        return await asyncio.gather(*(run_one(n) for n in range(TOGETHER)))

    alone = best_async(run_one, TOGETHER, rounds=3)
    group = best_async(run_many, 3, rounds=3) / TOGETHER
    yield Figure(
        name=f"durable cycle, {TOGETHER} loops at once", value=group * 1e3, unit="ms"
    )
    yield Figure(
        name=f"{TOGETHER} at once against one after the other",
        value=alone / group,
        unit="× faster",
    )


def measure_stores(path: str) -> Figure:
    """Measure how long a write waits if several stores of a process share a file."""
    waits: list[float] = []

    async def write_in_turn(memory: heedful.Memory, text: str) -> None:
        waits.extend(
            [
                await milliseconds(memory.remember("Error", text))
                for _ in range(STORE_WRITES)
            ]
        )

    async def write_all() -> None:
        """Write one lesson by several tasks of one store."""
        store = in_file(path)
        memory = heedful.Memory(store)
        texts = ("amber", "basil", "cedar", "delta")
        await asyncio.gather(*(write_in_turn(memory, text) for text in texts))
        await store.close()

    threads = [Thread(target=asyncio.run, args=[write_all()]) for _ in range(STORES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    return Figure(
        name=f"longest wait for a write, {STORES} stores of a process on one file",
        value=max(waits),
        unit="ms",
        most=500.0,
    )

"""Stores of both kinds: latencies and rates, and the ratio to the bare commits of the
same one.

The server is one of its own, on this machine, as durable as it comes. A bare commit is
the insert of one row of the size of an attempt, prepared, by the same driver. Both take
turns, and a ratio is the median of the pairs, so that a disk whose speed drifts does
not decide it. SQLite commits on one connection; what waits there is committed together.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from statistics import median

import psycopg

from bench.durable import open_floor, time_commits
from bench.recall import letters
from bench.rows import Figure
from bench.timing import milliseconds, percentile
from heedful.drive.report import AttemptReport, open_loop, report
from heedful.lessons.lesson import Scope
from heedful.loop.record import Evaluation, Finding
from heedful.memory.memory import Memory
from heedful.store import loops
from heedful.store.postgres import in_database
from heedful.store.postgres_session import POOL_CONNECTIONS
from heedful.store.records import Head
from heedful.store.sqlite import in_file
from heedful.store.store import Store

TOGETHER = 64
EACH = 200  # calls a round
ROUNDS = 5
BARE = "insert into bare (b) values (%s)"
ROW = "x" * 900
Call = Callable[[Store, str], Awaitable[object]]
Bare = Callable[[int], float]  # commits a second, so many at a time
AT = "heedful_template"


def figures(folder: str) -> Iterable[Figure]:
    """Claim loops, report attempts, learn and look up, with 1 and 64 callers."""
    from tests.postgres import alone  # a server comes with what develops heedful

    with alone() as server:
        server.run(
            "create table public.bare (a bigint generated always as identity, b text)",
            AT,
        )
        server.run("grant insert on public.bare to heedful", AT)
        url = server.url(AT, "heedful")
        yield from asyncio.run(
            _measure("PostgreSQL", in_database(url), partial(_commit_bare, url))
        )
    with closing(open_floor(f"{folder}/floor.db")) as floor:
        bare = partial(_commit_bare_in_file, floor)
        yield from asyncio.run(_measure("SQLite", in_file(f"{folder}/store.db"), bare))


async def _measure(kind: str, store: Store, bare: Bare) -> Sequence[Figure]:
    calls: dict[str, Call] = {
        "claim": _claim,
        "attempt reported": _report,
        "remember": _remember,
        "remember, one scope": _remember_in_one_scope,
        "seen": _look_up,
    }
    results: list[Figure] = []
    for name, call in calls.items():
        for many in (1, TOGETHER):
            results += await _measure_pairs(
                f"{kind}: {name}, {many} at a time",
                store,
                bare=bare,
                call=call,
                many=many,
            )
    await store.close()
    return results


async def _measure_pairs(
    label: str, store: Store, bare: Bare, call: Call, many: int
) -> Iterable[Figure]:
    await _run_round(store, call, many)  # connections are opened, statements prepared
    floors = []
    rates = []
    spent: list[float] = []
    for _ in range(ROUNDS):
        floors.append(bare(many))
        rate, durations = await _run_round(store, call, many)
        rates.append(rate)
        spent += durations
    ratios = [rate / floor for rate, floor in zip(rates, floors, strict=True)]
    return [
        Figure(name=f"{label}, p50", value=median(spent), unit="ms"),
        Figure(name=f"{label}, p99", value=percentile(spent, 99), unit="ms"),
        Figure(name=label, value=median(rates), unit="/s"),
        Figure(name=f"bare commits beside {label}", value=median(floors), unit="/s"),
        Figure(name=f"{label} ÷ bare commits", value=median(ratios), unit="×"),
    ]


async def _run_round(store: Store, call: Call, many: int) -> tuple[float, list[float]]:
    """Return the calls a second, and the milliseconds of each."""
    # Numbers are masked in a pattern; letters tell one lesson from another.
    names = [letters(random.getrandbits(60)) for _ in range(EACH)]
    if call is _report:  # of loops that are open
        for name in names:
            await open_loop(name, "Convert 3 kg to g.", store=store)
    durations: list[float] = []

    async def call_in_turn(names: Sequence[str]) -> None:
        durations.extend([await milliseconds(call(store, name)) for name in names])

    began = time.perf_counter()
    await asyncio.gather(*(call_in_turn(names[first::many]) for first in range(many)))
    return len(durations) / (time.perf_counter() - began), durations


def _commit_bare(url: str, many: int) -> float:
    """Return the commits a second, with as many connections as a pool has."""
    threads = min(many, POOL_CONNECTIONS)

    def committing(db: psycopg.Connection[object]) -> None:
        for _ in range(EACH // threads):
            db.execute(BARE, (ROW,), prepare=True)

    with ExitStack() as stack, ThreadPoolExecutor(threads) as pool:
        opened = (psycopg.connect(url, autocommit=True) for _ in range(threads))
        dbs = [stack.enter_context(db) for db in opened]
        began = time.perf_counter()
        list(pool.map(committing, dbs))
        return EACH // threads * threads / (time.perf_counter() - began)


def _commit_bare_in_file(db: sqlite3.Connection, many: int) -> float:
    return 1 / time_commits(db, EACH)


WRONG = Evaluation((Finding("unit", "no unit", fix="Write the unit."),))
FAILED = AttemptReport("3 kg", evaluation=WRONG)


async def _claim(store: Store, name: str) -> None:
    await store.write(Scope(), loops.claim, name, head=Head(task="task"), owner="")


async def _report(store: Store, name: str) -> None:
    """Report an attempt: one transaction that reads and one that writes."""
    await report(store, scope=Scope(), id=name, number=1, attempt_report=FAILED)


async def _remember(store: Store, name: str) -> None:
    memory = Memory(store, Scope("default", name))
    await memory.remember("E", "the value has no unit", lesson="Write the unit.")


async def _remember_in_one_scope(store: Store, name: str) -> None:
    """Learn a new lesson; writers of one scope wait for each other."""
    await Memory(store).remember(
        name, f"the {name} has no unit", lesson="Write the unit."
    )


async def _look_up(store: Store, name: str) -> None:
    await Memory(store).seen(name, f"the {name} has no unit")

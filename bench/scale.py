"""Services and workers that share one PostgreSQL: reports and jobs a second.

Each is measured with 1, 2 and 4 processes on an empty database, in turns, and told as a
ratio to one process of the same turn. The server, the clients and all processes share
the cores of this machine, so more processes than cores show only what sharing costs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.http import load_service, serve
from bench.rows import Figure
from heedful import Scope
from heedful.service.worker import PostgresQueue

if TYPE_CHECKING:  # a server comes with what develops heedful
    from tests.postgres import Server

PROCESSES = (1, 2, 4)
TURNS = 3
CLIENTS = 32
LOOPS = 10  # of each client, with two reports each
JOBS = 1_280
JOBS_PUT_AT_ONCE = 64
# Nothing is embedded or reflected on, so that a job ends at once.
SETTINGS: Mapping[str, str] = {
    "HEEDFUL_EMBEDDER": "none",
    "HEEDFUL_REFLECTION_ENABLED": "false",
}
WAITING_SECONDS = 300.0


def figures(folder: str) -> Iterable[Figure]:
    """Measure services and then workers on one server."""
    from tests.postgres import alone

    with alone("max_connections = 300") as server:
        services = partial(rate_of_services, server, folder)
        yield from _compare("reports over HTTP", "service", services)
        workers = partial(rate_of_workers, server, folder)
        yield from _compare("jobs run", "worker", workers)


def _compare(what: str, kind: str, rate: Callable[[int], float]) -> Iterator[Figure]:
    turns = [{count: rate(count) for count in PROCESSES} for _ in range(TURNS)]
    cores = os.cpu_count()
    for count in PROCESSES:
        name = f"{what}, {count} {kind}{'s' if count > 1 else ''}, {cores} cores in all"
        yield Figure(
            name=name, value=median(rates[count] for rates in turns), unit="/s"
        )
        if count > 1:
            ratio = median(rates[count] / rates[1] for rates in turns)
            yield Figure(name=f"{name} ÷ 1", value=ratio, unit="×")


@contextmanager
def empty_database(server: Server) -> Iterator[str]:
    """Make an empty database, to be removed afterwards; yield its URL."""
    name = f"scale_{time.monotonic_ns()}"
    server.run(f"create database {name} template heedful_template")
    yield server.urls(name).service
    server.run(f"drop database {name} with (force)")


def rate_of_services(server: Server, folder: str, count: int) -> float:
    """Return the reports a second of so many services, with the same clients."""
    with ExitStack() as stack:
        db = stack.enter_context(empty_database(server))
        urls = []
        for number in range(count):
            place = Path(folder, f"service {number}")
            place.mkdir(exist_ok=True)
            url, _ = stack.enter_context(serve(str(place), db=db, **SETTINGS))
            urls.append(url)
        asyncio.run(_load(urls, loops=1))
        return asyncio.run(_load(urls, LOOPS))


async def _load(urls: Sequence[str], loops: int) -> float:
    """Share the clients among services; return their reports a second."""
    clients = CLIENTS // len(urls)
    began = time.perf_counter()
    runs = await asyncio.gather(
        *(load_service(url, clients, loops, fresh=False) for url in urls)
    )
    seconds = time.perf_counter() - began
    return sum(len(waits) for _, waits in runs) / seconds


def rate_of_workers(server: Server, folder: str, count: int) -> float:
    """Return the jobs without work a second that so many workers run."""
    with ExitStack() as stack:
        db = stack.enter_context(empty_database(server))
        workers = [stack.enter_context(_working(folder, db)) for _ in range(count)]
        return asyncio.run(_time_jobs(db, workers))


@contextmanager
def _working(folder: str, db: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker, once it says that it runs jobs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "heedful.cli", "worker", "--db", db],
        cwd=folder,
        env={**os.environ, **SETTINGS},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert b"runs the jobs" in line, line
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


async def _time_jobs(db: str, workers: Sequence[subprocess.Popen[bytes]]) -> float:
    """Return the jobs a second that these workers run, without putting them there."""
    async with PostgresQueue(db) as queue:
        await _put(queue, JOBS_PUT_AT_ONCE)  # all workers are awake afterwards
        await _empty(queue)
        for worker in workers:
            worker.send_signal(signal.SIGSTOP)
        await _put(queue, JOBS)
        began = time.perf_counter()
        for worker in workers:
            worker.send_signal(signal.SIGCONT)
        await _empty(queue)
        return JOBS / (time.perf_counter() - began)


async def _put(queue: PostgresQueue, jobs: int) -> None:
    for first in range(0, jobs, JOBS_PUT_AT_ONCE):
        scopes = [Scope(f"t{n}") for n in range(first, first + JOBS_PUT_AT_ONCE)]
        await asyncio.gather(
            *(queue.defer("reflect", scope, digest="0") for scope in scopes)
        )


async def _empty(queue: PostgresQueue) -> None:
    """Wait until no job of reflection waits or runs."""
    deadline = time.monotonic() + WAITING_SECONDS
    while any(depth.queue == "reflection" for depth in await queue.depth()):
        assert time.monotonic() < deadline, "the jobs do not end"
        await asyncio.sleep(0.02)

"""Several services, and several workers, on one PostgreSQL: what each more of them adds
on this machine, and the processor's time for a report.

The callers and the server run on the same cores: once these are full, one more process
adds nothing, and the CPU of a report says what a machine of its own would add.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.http import AT_ONCE, cpu_seconds, load_service, run_migrate, serve
from bench.rows import Figure
from heedful import Scope
from heedful_server.worker import PostgresQueue

if TYPE_CHECKING:  # a server comes with what develops heedful
    from tests.postgres import Server

COUNTS = (1, 2, 4)
ROUNDS = 3
LOOPS = 10  # of each client
JOBS = 1_280
WORKER = """
import asyncio, sys
from heedful_server.jobs import Tools
from heedful_server.worker import PostgresQueue
from heedful.store import open_store
async def main(url):
    tools = Tools(store=open_store(url), enabled=False)  # so that a job ends at once
    async with PostgresQueue(url, works=True) as jobs:
        print("ready", flush=True)
        sys.stdin.readline()
        await jobs.work(tools, concurrency=1, once=True)
    await tools.store.close()
asyncio.run(main(sys.argv[1]))
"""


@contextmanager
def empty_database(server: Server) -> Iterator[str]:
    """Make an empty database, to be removed afterwards; yield its URL."""
    name = f"several_{time.monotonic_ns()}"
    server.run(f"create database {name} template heedful_template")
    yield server.urls(name).service
    server.run(f"drop database {name} with (force)")


def figures(folder: str) -> Iterable[Figure]:
    """Measure 1, 2 and 4 of each, in turns, as medians of the rounds."""
    from tests.postgres import alone

    with alone("max_connections = 300") as server:
        yield from measure_services(server, folder)
        yield from measure_workers(server)


def measure_services(server: Server, folder: str) -> Iterable[Figure]:
    """Load services whose tables are in one fresh database for each number of them."""
    rates: dict[int, list[float]] = {count: [] for count in COUNTS}
    costs: dict[int, list[float]] = {count: [] for count in COUNTS}
    for turn in range(ROUNDS):
        for count in COUNTS:
            urls = server.blank(f"several_{turn}_{count}")
            run_migrate(urls.owner)
            rate, cost = load_services(f"{folder}/{turn}-{count}", urls.service, count)
            rates[count].append(rate)
            costs[count].append(cost)

    for count in COUNTS:
        yield Figure(
            name=f"reports over HTTP, {AT_ONCE} clients, services: {count}",
            value=median(rates[count]),
            unit="/s",
        )
        yield Figure(
            name=f"CPU of the services a report, services: {count}",
            value=median(costs[count]) * 1e3,
            unit="ms",
        )


def load_services(folder: str, db: str, count: int) -> tuple[float, float]:
    """Return the reports a second of all services, and their CPU seconds a report."""
    with ExitStack() as stack:
        services = []
        for number in range(count):
            place = Path(folder, str(number))
            place.mkdir(parents=True)
            services.append(stack.enter_context(serve(str(place), db=db)))

        addresses = [url for url, _ in services]
        processes = [pid for _, pid in services]
        asyncio.run(load_all(addresses, loops=2))
        before = sum(cpu_seconds(pid) for pid in processes)
        reports, seconds = asyncio.run(load_all(addresses, loops=LOOPS))
        after = sum(cpu_seconds(pid) for pid in processes)
    return reports / seconds, (after - before) / reports


async def load_all(addresses: Sequence[str], loops: int) -> tuple[int, float]:
    """Return how many reports the clients sent, spread evenly, and the seconds."""
    clients = AT_ONCE // len(addresses)
    began = time.perf_counter()
    loads = await asyncio.gather(
        *(load_service(url, clients, loops, fresh=False) for url in addresses)
    )
    seconds = time.perf_counter() - began
    return sum(len(waits) for _, waits in loads), seconds


def measure_workers(server: Server) -> Iterable[Figure]:
    """Let worker processes run jobs that end at once."""
    rates: dict[int, list[float]] = {count: [] for count in COUNTS}
    for _ in range(ROUNDS):
        for count in COUNTS:
            with empty_database(server) as url:
                asyncio.run(fill_queue(url))
                rates[count].append(JOBS / time_workers(url, count))

    for count in COUNTS:
        yield Figure(
            name=f"jobs run, workers: {count}", value=median(rates[count]), unit="/s"
        )


async def fill_queue(url: str) -> None:
    """Put all jobs into the queue of a database."""
    async with PostgresQueue(url, works=True) as jobs:
        await put_jobs(jobs, JOBS)


async def put_jobs(jobs: PostgresQueue, count: int) -> None:
    """Put jobs of as many tenants into the queue, 64 at once."""
    for first in range(0, count, AT_ONCE):
        scopes = [Scope(f"t{n}") for n in range(first, first + AT_ONCE)]
        await asyncio.gather(
            *(jobs.defer("reflect", scope, digest="0") for scope in scopes)
        )


def time_workers(url: str, count: int) -> float:
    """Return the seconds in which so many processes, all begun, end all jobs."""
    command = [sys.executable, "-c", WORKER, url]
    workers = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(count)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"

    began = time.perf_counter()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    codes = [worker.wait() for worker in workers]
    seconds = time.perf_counter() - began
    assert codes == [0] * count, codes
    return seconds

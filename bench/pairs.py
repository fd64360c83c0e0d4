"""A report over HTTP beside one of an earlier commit, in pairs.

Two services run at the same time, each with a database of its own, and one client asks
them in turns: other work of the machine slows both. A ratio is that of the two in one
pair.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from bench.before import install_wheel
from bench.http import BODIES, Ask, connect, serve
from bench.rows import Figure

PAIRS = 30
WARM_PAIRS = 3
LOOPS = 50  # of two attempts each, by each service in a pair
MOST = 1.05  # of what a report took before


class Cost(NamedTuple):
    """What a report took: the seconds until its answer, and of the service's CPU."""

    wall: float
    cpu: float


class Measured(NamedTuple):
    """A service that is measured, by its address and its process."""

    url: str
    pid: int


def figures(folder: str, before: str) -> Iterable[Figure]:
    """Measure this commit and the one `before` in pairs; nothing without it."""
    if before:
        yield from compare(folder, install_wheel(before, folder))


def compare(folder: str, site: str) -> Iterable[Figure]:
    """Measure this commit and the packages in `site` in pairs."""
    present_folder = tempfile.mkdtemp(dir=folder)
    former_folder = tempfile.mkdtemp(dir=folder)
    with (
        serve(present_folder, HEEDFUL_EMBEDDER="none") as present,
        serve(former_folder, site, HEEDFUL_EMBEDDER="none") as former,
    ):
        services = (present, former)
        measured = [Measured(url, pid) for url, pid in services]
        pairs = asyncio.run(_measure_pairs(measured))

    for name in Cost._fields:
        ours = [getattr(mine, name) for mine, _ in pairs]
        theirs = [getattr(other, name) for _, other in pairs]
        yield Figure(
            name=f"a report over HTTP, {name}", value=median(ours) * 1e3, unit="ms"
        )
        yield Figure(
            name=f"a report over HTTP before, {name}",
            value=median(theirs) * 1e3,
            unit="ms",
        )
        ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
        low, middle, high = quantiles(ratios, n=4)
        yield Figure(
            name=f"ratio of {len(ratios)} pairs, {name}",
            value=middle,
            unit=f"× ({low:.3f} to {high:.3f} in half of them)",
            most=MOST,
        )


async def _measure_pairs(measured: Sequence[Measured]) -> list[list[Cost]]:
    """Return what a report took in each pair, of which the first ones warm up."""
    present, former = measured
    pairs = []
    async with connect(present.url) as ask_present, connect(former.url) as ask_former:
        clients = {present: ask_present, former: ask_former}
        for number in range(WARM_PAIRS + PAIRS):
            costs = await _measure_pair(clients, number)
            pairs.append(costs)
    return pairs[WARM_PAIRS:]


async def _measure_pair(clients: Mapping[Measured, Ask], pair: int) -> list[Cost]:
    """Return what a report took of each service, on average over new loops.

    The services have their turns loop by loop, and another one begins each time.
    """
    walls = dict.fromkeys(clients, 0.0)
    cpus = dict.fromkeys(clients, 0.0)
    for number in range(LOOPS):
        turns = list(clients)
        if number % 2:
            turns.reverse()
        for service in turns:
            path = f"/v1/loops/pair{pair}loop{number}"
            wall, cpu = await _report(service, clients[service], path)
            walls[service] += wall
            cpus[service] += cpu
    reports = LOOPS * len(BODIES)
    return [Cost(walls[key] / reports, cpus[key] / reports) for key in clients]


async def _report(service: Measured, ask: Ask, path: str) -> Cost:
    """Open a loop and report its attempts; return what the reports took together."""
    assert await ask(path, b'{"task": "task"}') == 201

    cpu = _cpu_seconds(service.pid)
    began = time.perf_counter()
    for attempt, body in enumerate(BODIES, 1):
        assert await ask(f"{path}/attempts/{attempt}", body) == 200
    wall = time.perf_counter() - began
    return Cost(wall, _cpu_seconds(service.pid) - cpu)


def _cpu_seconds(pid: int) -> float:
    """Return the seconds of CPU of all threads of a process, to the microsecond."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

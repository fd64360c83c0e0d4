"""What operators do to PostgreSQL under load: restarts.

Services, workers and callers of the library go on by themselves.
Meanwhile they get documented errors only, and nothing acknowledged is lost or doubled.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

import heedful
from heedful.errors import LeaseLost, StoreInDoubt, StoreUnavailable
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Done
from heedful.loop.record import Finding
from heedful.store import keys, loops as loop_store
from heedful.store.keys import KEY_PERMISSIONS
from heedful.store.postgres import in_database
from heedful.store.store import Store
from tests.conftest import SOAK
from tests.postgres import Server, alone
from tests.soak.ledger import Counts, Ledger, Trial
from tests.soak.test_reports import SCOPE, WAITING, Crowd, Fleet

pytestmark = [pytest.mark.soak, pytest.mark.nightly]
RESTARTS = max(1, SOAK // 2)
WORKERS = 2 if SOAK > 1 else 1
CLIENTS = 12
DATABASE = "heedful_soak"
# Reports that are answered between two restarts, so that each meets work.
MIN_REPORTS = 20
# What the service may answer while the database is away, beside its usual answers.
AWAY_CODES = {"store_unavailable", "store_in_doubt"}
MAX_LOG_LINES_A_RESTART = 40
LIBRARY = Scope("library", "main")


async def reach(figure: Callable[[], int], goal: int) -> None:
    deadline = time.monotonic() + WAITING
    while figure() < goal:
        assert time.monotonic() < deadline, f"{figure()} of {goal}"
        await asyncio.sleep(0.02)


class Load(Crowd):
    """Clients that begin new loops until `is_over`."""

    def __init__(self, fleet: Fleet, store: Store, key: str) -> None:
        super().__init__(fleet, store, key)
        self.clients = self.clients[:CLIENTS]
        self.waiting = count()
        self.is_over = False
        self.strange: Counter[str] = Counter()
        self.away = 0
        for client in self.clients:
            client.http.event_hooks["response"].append(self.look)

    async def look(self, response: httpx.Response) -> None:
        """Count the answers that say that the database is away, and strange ones."""
        if response.status_code < 500:
            return
        await response.aread()
        code = response.json().get("code", "")
        is_documented = (
            response.status_code == 503 and "Retry-After" in response.headers
        )
        if is_documented and code in AWAY_CODES:
            self.away += 1
        else:
            self.strange[f"{response.status_code} {code}"] += 1

    async def work(self, client: Any) -> None:
        for n in self.waiting:
            if self.is_over:
                return
            await self.loop(client, f"loop {n}")
            if n % 10 == 0:
                await self.reflect(client)
            self.ended += 1


class Callers:
    """Loops of the library, begun again with the same id where the database is away."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.ended: dict[str, int] = {}
        self.is_over = False
        self.away = 0

    async def work(self, name: str) -> None:
        for n in count():
            if self.is_over:
                return
            id = f"{name} {n}"
            self.ended[id] = await self.run(id)

    async def run(self, id: str) -> int:
        """Run a loop to its end; return the number of its attempts."""

        async def generate(task: str, hint: str) -> str:
            return f"{id} {heedful.context().attempt}"

        def check(candidate: str, context: heedful.Context) -> list[Finding]:
            return [] if context.attempt == 3 else [Finding("c", "not yet")]

        deadline = time.monotonic() + WAITING
        while True:
            try:
                result = await heedful.run(
                    f"task of {id}",
                    id=id,
                    generate=generate,
                    checks=[check],
                    store=self.store,
                    scope=LIBRARY,
                )
            except (StoreUnavailable, StoreInDoubt, LeaseLost):
                assert time.monotonic() < deadline, f"{id} does not end"
                self.away += 1
                await asyncio.sleep(0.05)
            else:
                return len(result.loop.attempts)


def written(acknowledged: dict[str, int], stored: dict[str, int]) -> tuple[int, int]:
    """Return what is acknowledged and not stored, and stored and not acknowledged."""
    lost = 0
    doubled = 0
    for id in acknowledged.keys() | stored.keys():
        missing = acknowledged.get(id, 0) - stored.get(id, 0)
        lost += max(0, missing)
        doubled += max(0, -missing)
    return lost, doubled


async def stored_attempts(store: Store, scope: Scope) -> dict[str, int]:
    """Return the number of attempts of each loop."""
    loops, _ = await store.read(scope, loop_store.newest, 10**6)
    assert all(isinstance(row.verdicts[-1], Done) for row in loops)
    attempts = {}
    for row in loops:
        loop = await store.read(scope, loop_store.read, row.id)
        attempts[row.id] = len(loop.loop.attempts)
    return attempts


@contextmanager
def operated(*settings: str) -> Iterator[tuple[Server, str]]:
    """Start a server of its own, whose commits are on the disk; yield it and a URL."""
    with alone("max_connections = 300", *settings) as server:
        server.run(f"create database {DATABASE} template heedful_template")
        yield server, server.urls(DATABASE).service


class Scene:
    """Services and workers on a database, and all who use them."""

    def __init__(self, folder: Path, url: str, direct: Store, key: str) -> None:
        self.direct = direct
        self.fleet = Fleet(folder, url, WORKERS)
        self.load = Load(self.fleet, direct, key)
        self.callers = Callers(in_database(url))

    async def begin(self) -> None:
        await listening(self.fleet)
        self.tasks = [
            asyncio.create_task(self.load.run()),
            *(asyncio.create_task(self.callers.work(name)) for name in "abc"),
        ]

    async def go_on(self) -> None:
        """Wait until everybody's work goes on."""
        for task in self.tasks:
            if task.done():
                task.result()
        ended = len(self.callers.ended)
        await reach(
            lambda: len(self.load.requests), len(self.load.requests) + MIN_REPORTS
        )
        await reach(lambda: len(self.callers.ended), ended + 3)

    async def end(self) -> None:
        """Let everybody end what they began; no process has ended by itself."""
        self.load.is_over = True
        self.callers.is_over = True
        await asyncio.gather(*self.tasks)
        await self.load.finish(0.0)
        self.fleet.end()
        await self.callers.store.close()

    async def settle(self, ledger: Ledger, what: str, times: int) -> None:
        """Compare what was acknowledged with what is stored."""
        acknowledged = {
            id: len(attempts)
            for id, attempts in self.load.acknowledged.attempts.items()
        }
        reports = written(acknowledged, await stored_attempts(self.direct, SCOPE))
        calls = written(self.callers.ended, await stored_attempts(self.direct, LIBRARY))
        counts = Counts(lost=reports[0] + calls[0], doubled=reports[1] + calls[1])
        for id in acknowledged:
            stored_loop = await self.direct.read(SCOPE, loop_store.read, id)
            self.load.acknowledged.compare(stored_loop, counts)
        ledger.settle(
            Trial(
                what=what,
                engine="PostgreSQL",
                times=times,
                seed=SOAK,
                lost=counts.lost,
                doubled=counts.doubled,
                exceeded=counts.exceeded,
            )
        )


async def listening(fleet: Fleet) -> None:
    """Wait until all services answer."""
    deadline = time.monotonic() + WAITING
    async with httpx.AsyncClient() as http:
        for port in fleet.ports:
            while True:
                with suppress(httpx.TransportError):
                    await http.get(f"http://127.0.0.1:{port}/healthz")
                    break
                assert time.monotonic() < deadline, f"nobody answers at {port}"
                await asyncio.sleep(0.02)


async def restart_often(scene: Scene, server: Server, times: int) -> None:
    """Restart PostgreSQL so often, each time when everybody's work goes on."""
    chance = random.Random(SOAK)
    for _ in range(times):
        await scene.go_on()
        await asyncio.sleep(chance.random() * 0.2)
        mode = chance.choice(("fast", "fast", "immediate"))
        await asyncio.to_thread(server.stop, mode)
        await asyncio.sleep(chance.random() * 0.5)
        await asyncio.to_thread(server.start)
    await scene.go_on()


async def test_restarts_lose_nothing_and_everybody_goes_on(tmp_path, ledger):
    with operated() as (server, url):
        direct = in_database(url)
        _, key = await keys.create(
            direct, "acme", "soak", projects=["main"], may=KEY_PERMISSIONS
        )
        scene = Scene(tmp_path, url, direct, key)
        try:
            await scene.begin()
            await restart_often(scene, server, RESTARTS)
            await scene.end()
        finally:
            scene.fleet.remove()
        await scene.settle(
            ledger,
            "restart of PostgreSQL under services, workers and callers",
            RESTARTS,
        )
        await direct.close()

    assert scene.load.strange == {}
    for log in tmp_path.glob("log *"):
        text = log.read_text()
        lines = [line for line in text.splitlines() if " INFO " not in line]
        assert "Traceback" not in text
        assert len(lines) <= MAX_LOG_LINES_A_RESTART * (RESTARTS + 1), log.name

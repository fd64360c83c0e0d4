"""Services and workers on one PostgreSQL, killed at random: nothing is lost, nothing doubled."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from statistics import quantiles
from typing import Any

import pytest

from heedful.lessons.lesson import Scope
from heedful.loop.codec import verdict_to
from heedful.loop.decide import Done
from heedful.service.client import verdict
from heedful.store import episodes as episode_store
from heedful.store import keys
from heedful.store import loops as loop_store
from heedful.store.keys import MAY
from heedful.store.postgres import in_database
from heedful.store.store import Store
from tests.conftest import SOAK
from tests.postgres import Urls, alone, drop, fresh
from tests.soak.fleet import WAITING, Client, Fleet
from tests.soak.reported import problems

pytestmark = pytest.mark.soak
LOOPS = 100 * SOAK
CLIENTS = 64
SERVICES = 2
WORKERS = 3 if SOAK > 1 else 1  # each takes a second of a processor to begin
KILLS = 2 if SOAK == 1 else LOOPS // 200
EPISODES = LOOPS // 20
MOST = 3
SCOPE = Scope("acme", "main")
POLICY = {"rules": [{"rule": "attempts", "limit": MOST}]}
WRONG = [{"check": "unit", "message": "no unit", "fix": "name the unit"}]


@pytest.fixture
def urls() -> Iterator[Urls]:
    """A database; in a long run on a server of its own, whose commits are on the disk."""
    if SOAK == 1:
        one = fresh()
        yield one
        drop(one)
        return
    with alone("max_connections = 300") as own:
        own.run("create database heedful_soak template heedful_template")
        yield own.urls("heedful_soak")


class Crowd:
    """Clients with loops of their own, and what each was answered."""

    def __init__(self, fleet: Fleet, key: str) -> None:
        self.fleet, self.chance = fleet, random.Random(SOAK)
        self.clients = [Client(fleet.ports, key, self.chance) for _ in range(CLIENTS)]
        self.waiting = iter(range(LOOPS))
        self.ended = 0
        self.acknowledged: defaultdict[str, dict[int, tuple[Any, Any]]] = defaultdict(dict)
        self.requests: list[tuple[str, Any, Any]] = []
        self.given: Counter[str] = Counter()
        self.episodes = 0

    async def all(self) -> None:
        killing = asyncio.create_task(self.kills())
        await asyncio.gather(*map(self.one, self.clients))
        await killing

    async def kills(self) -> None:
        """One at random each time that so many more loops have ended."""
        for n in range(KILLS):
            while self.ended < (n + 1) * LOOPS // (KILLS + 1):
                await asyncio.sleep(0.02)
                self.fleet.alive()
            await asyncio.to_thread(self.fleet.kill, self.chance)

    async def one(self, client: Client) -> None:
        for n in self.waiting:
            await self.loop(client, f"loop {n}")
            if n < EPISODES:
                await self.reflects(client, n)
            self.ended += 1

    async def loop(self, client: Client, id: str) -> None:
        path = f"/v1/loops/{id.replace(' ', '%20')}"
        body = {"task": f"Weigh {id}.", "policy": POLICY}
        status, _ = await client.ask("PUT", path, body)
        assert status in (200, 201)
        number, lifted = 0, False
        while True:
            number += 1
            decided = await self.attempt(client, path, id, number)
            if decided["decision"] == "done" and not decided["passed"] and not lifted:
                lifted = self.chance.random() < 0.3
                decided = await self.lift(client, path, id) if lifted else decided
            if decided["decision"] == "done":
                return

    async def attempt(self, client: Client, path: str, id: str, number: int) -> Any:
        """Report it, at times to two services at once."""
        output = f"{id}, {number}: {self.chance.random()}"
        found = [] if self.chance.random() < 0.2 else WRONG
        body = {"output": output, "evaluation": {"findings": found}}
        asked = (f"{path}/attempts/{number}", body)
        twin = self.clients[self.chance.randrange(CLIENTS)] if self.chance.random() < 0.05 else None
        if twin is not None and twin is not client:
            other = Client(self.fleet.ports, client.key, self.chance)
            both = await asyncio.gather(client.ask("PUT", *asked), other.ask("PUT", *asked))
            await other.close()
            assert both[0] == both[1]
            status, plain = both[0]
        else:
            status, plain = await client.ask("PUT", *asked)
        assert status == 200, plain
        self.requests.append((*asked, plain))
        self.acknowledged[id][number] = (output, verdict_to(verdict(plain)))
        return plain

    async def lift(self, client: Client, path: str, id: str) -> Any:
        body = {"rule": "attempts", "why": "one more"}
        once = {"Idempotency-Key": f"lift {id}"}
        status, plain = await client.ask("POST", f"{path}/overrides", body, once)
        assert status == 201, plain
        self.given[id] += 1
        return plain

    async def reflects(self, client: Client, n: int) -> None:
        body = {
            "task": f"Find the price of pot {n}.",
            "outcome": "failure",
            "events": [{"type": "tool_call", "tool": "price", "error": f"no pot {n} there"}],
        }
        once = {"Idempotency-Key": f"episode {n}"}
        status, plain = await client.ask("POST", "/v1/episodes", body, once)
        assert status in (200, 202), plain
        self.episodes += 1

    async def repeated(self) -> None:
        """What was answered is answered again, by whichever service."""
        client = self.clients[0]
        for path, body, plain in self.chance.sample(self.requests, min(len(self.requests), 2_000)):
            assert await client.ask("PUT", path, body) == (200, plain)


async def reflected(store: Store, episodes: int) -> None:
    """Every episode comes to be reflected on, once."""
    deadline = time.monotonic() + WAITING
    while (counts := await store.read(SCOPE, episode_store.counts)) != {"reflected": episodes}:
        assert time.monotonic() < deadline, counts
        await asyncio.sleep(0.1)


def told(crowd: Crowd, seconds: float) -> None:
    """What it came to, for who reads the run."""
    cuts = quantiles([wait for client in crowd.clients for wait in client.waits], n=100)
    again = sum(client.again for client in crowd.clients)
    print(
        f"{LOOPS} loops, {len(crowd.requests)} reports in {seconds:.1f} s; "
        f"p50 {cuts[49] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.1f} ms; "
        f"{crowd.fleet.kills} kills, {again} asked again, {sum(crowd.given.values())} overrides"
    )


async def test_kills_of_services_and_workers_lose_nothing_and_double_nothing(tmp_path, urls):
    store = in_database(urls.service)
    _, key = await keys.create(store, "acme", "soak", projects=["main"], may=MAY)
    fleet = Fleet(tmp_path, urls.service, SERVICES, WORKERS)
    try:
        crowd = Crowd(fleet, key)
        began = time.perf_counter()
        await crowd.all()
        told(crowd, time.perf_counter() - began)
        await crowd.repeated()
        await reflected(store, crowd.episodes)
        for client in crowd.clients:
            await client.close()
        fleet.end()
    finally:
        fleet.gone()
    assert sum(fleet.kills) == KILLS
    loops = await store.read(SCOPE, loop_store.newest, LOOPS + 1)
    await store.close()
    wrong = [
        f"{one.id}: {what}"
        for one in loops
        for what in problems(one, crowd.acknowledged[one.id], crowd.given[one.id], MOST)
    ]
    assert not wrong, wrong[:20]
    assert len(loops) == LOOPS
    assert all(isinstance(one.verdicts[-1], Done) for one in loops), "a loop is not decided"

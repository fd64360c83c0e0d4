"""Many report, override and cancel loops at once: limits hold, nothing is lost or doubled.

First in one process through two stores; then over HTTP to services and workers on one PostgreSQL
that are killed at random.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx
import pytest

from heedful.drive.report import AttemptReport, cancel, open_loop, override, report
from heedful.errors import AttemptTaken, LoopEnded, OutOfOrder, OverrideRefused
from heedful.lessons.lesson import Scope
from heedful.loop.codec import verdict_to
from heedful.loop.decide import Again, Done, Policy
from heedful.loop.record import Evaluation, Finding
from heedful.loop.stop import MaxAttempts
from heedful.service.client import verdict
from heedful.store import episodes as episode_store
from heedful.store import keys
from heedful.store import loops as loop_store
from heedful.store.keys import MAY
from heedful.store.postgres import in_database
from heedful.store.records import StoredLoop
from heedful.store.sqlite import in_file
from heedful.store.store import Store
from tests.conftest import SOAK
from tests.postgres import Urls, alone, drop, fresh

pytestmark = pytest.mark.soak
SCOPE = Scope("acme", "main")
MOST = 3  # attempts that the policy allows


class Acknowledged:
    """What callers were told: the output and verdict of each attempt, and the overrides."""

    def __init__(self) -> None:
        self.attempts: defaultdict[str, dict[int, tuple[Any, Any]]] = defaultdict(dict)
        self.overrides: Counter[str] = Counter()

    def problems(self, loops: list[StoredLoop]) -> list[str]:
        """What does not hold of the stored loops, judged from their rows by hand."""
        return [f"{one.id}: {what}" for one in loops for what in self._problems(one)]

    def _problems(self, stored: StoredLoop) -> Iterator[str]:
        attempts, told = stored.loop.attempts, self.attempts[stored.id]
        if len(told) != len(attempts):
            yield f"{len(attempts)} attempts, {len(told)} acknowledged"
        for attempt, value in zip(attempts, stored.values, strict=True):
            first = next(one for one in stored.decisions if one.attempt == attempt.number)
            if told.get(attempt.number) != (value, verdict_to(first.verdict)):
                yield f"attempt {attempt.number} is not the one that was acknowledged"
        yield from _order(stored)
        again = [one for one in stored.verdicts if isinstance(one, Again)]
        lifted = Counter(one.override for verdict in again for one in verdict.lifted)
        used = [one.used for one in stored.loop.overrides]
        if used != [lifted[n] for n in range(len(used))]:
            yield f"overrides were used {used} times, decisions say {dict(lifted)}"
        if any(one.used > one.decisions for one in stored.loop.overrides):
            yield "an override was used too often"
        if len(attempts) > MOST + sum(used):
            yield f"{len(attempts)} attempts, {MOST} allowed and {sum(used)} lifted"
        if len(used) != self.overrides[stored.id]:
            yield f"{len(used)} overrides, {self.overrides[stored.id]} acknowledged"


def _order(stored: StoredLoop) -> Iterator[str]:
    """No attempt came out of turn, and no decision let a limit pass."""
    number, at_work = 0, True
    for decision in stored.decisions:
        if decision.attempt > number and (decision.attempt != number + 1 or not at_work):
            yield f"attempt {decision.attempt} was taken though it was not its turn"
        number, at_work = decision.attempt, isinstance(decision.verdict, Again)
        if at_work and number >= MOST and not decision.verdict.lifted:
            yield f"after attempt {number} of {MOST} it went on without an override"


# In one process.

STEPS = 600 * SOAK
LOOPS, UNDER_WAY, AT_ONCE = STEPS // 50, 12, 24
WRONG = Evaluation((Finding("unit", "no unit"),))
LATE = (AttemptTaken, OutOfOrder, LoopEnded)


@pytest.fixture(params=["sqlite", "postgres"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Store]]:
    """The same database twice, as two processes have it."""
    urls = fresh() if request.param == "postgres" else None
    file = str(tmp_path / "race.db")
    made = [in_database(urls.service) if urls else in_file(file) for _ in range(2)]
    yield made
    for store in made:
        asyncio.run(store.close())
    if urls:
        drop(urls)


class Race:
    """Callers that act at random on loops that are under way."""

    def __init__(self, stores: list[Store]) -> None:
        self.stores, self.chance, self.steps = stores, random.Random(SOAK), 0
        self.acknowledged, self.happened = Acknowledged(), Counter[str]()
        self.told: dict[tuple[str, int], AttemptReport] = {}

    async def run(self) -> None:
        policy = Policy((MaxAttempts(MOST),))
        for n in range(LOOPS + UNDER_WAY):
            await open_loop(self.stores[0], SCOPE, f"loop {n}", "task", policy=policy)
        await asyncio.gather(*(self.caller() for _ in range(AT_ONCE)))

    async def caller(self) -> None:
        while self.steps < STEPS:
            self.steps += 1
            first = self.steps * max(0, LOOPS - UNDER_WAY) // STEPS
            id = f"loop {first + self.chance.randrange(UNDER_WAY)}"
            store, kind = self.chance.choice(self.stores), self.chance.random()
            if kind < 0.1:
                await self.override(store, id)
            elif kind < 0.102:
                await cancel(store, SCOPE, id, "ada")
                self.happened["cancelled"] += 1
            else:
                await self.report(store, id)

    async def override(self, store: Store, id: str) -> None:
        decisions = self.chance.randint(1, 3)
        try:
            await override(id, "attempts", by="ada", decisions=decisions, store=store, scope=SCOPE)
        except OverrideRefused:
            self.happened["override refused"] += 1
        else:
            self.acknowledged.overrides[id] += 1

    async def report(self, store: Store, id: str) -> None:
        attempts = self.acknowledged.attempts[id]
        number = max(1, len(attempts) + self.chance.choice((0, 1, 1, 1, 2)))
        evaluation = Evaluation() if self.chance.random() < 0.01 else WRONG
        told = AttemptReport(f"{number}/{self.chance.randrange(3)}", evaluation=evaluation)
        try:
            answer = await report(store, SCOPE, id, number, told)
        except LATE as error:
            self.happened[type(error).__name__] += 1
            return
        self.happened["new" if answer.new else "again"] += 1
        self.told[id, number] = told
        said = told.output, verdict_to(answer.verdict)
        assert attempts.setdefault(number, said) == said


async def test_no_limit_is_exceeded_and_every_acknowledged_report_is_there_once(stores):
    race = Race(stores)
    await race.run()
    for (id, number), told in race.told.items():
        again = await report(stores[1], SCOPE, id, number, told)
        assert not again.new
        assert verdict_to(again.verdict) == race.acknowledged.attempts[id][number][1]
    loops = await stores[0].read(SCOPE, loop_store.newest, LOOPS + UNDER_WAY)
    print(f"{race.steps} steps: {dict(sorted(race.happened.items()))}")
    assert race.acknowledged.problems(loops) == []
    assert sum(len(one.loop.attempts) for one in loops) == race.happened["new"]
    assert any(len(one.loop.attempts) > MOST for one in loops), "no override led to an attempt"
    assert any(isinstance(one.verdicts[-1], Done) for one in loops if one.verdicts)
    assert all(race.happened[one.__name__] for one in LATE), race.happened


# Over HTTP.

WAITING = 120.0  # seconds until what should have happened is given up
ANSWER = 20.0  # seconds after which a client asks again
SERVED = 100 * SOAK  # loops
CLIENTS, SERVICES = 64, 2
WORKERS = 3 if SOAK > 1 else 1  # each takes a second of a processor to begin
KILLS = 2 if SOAK == 1 else SERVED // 200
EPISODES = SERVED // 20
POLICY = {"rules": [{"rule": "attempts", "limit": MOST}]}
FOUND = [{"check": "unit", "message": "no unit", "fix": "name the unit"}]


class Fleet:
    """`services` of `heedful serve` and `workers` of `heedful worker`, at fixed ports."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        with_port = [socket.create_server(("127.0.0.1", 0)) for _ in range(SERVICES)]
        self.ports = [listener.getsockname()[1] for listener in with_port]
        for listener in with_port:
            listener.close()
        serve = ("serve", "--db", url, "--key-required", "--workers", "0", "--port")
        self._commands = [[*serve, str(port)] for port in self.ports]
        self._commands += [["worker", "--db", url, "--concurrency", "2"]] * WORKERS
        self.kills = [0] * len(self._commands)
        self._processes = [self._start(n) for n in range(len(self._commands))]

    def _start(self, n: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "heedful.cli", *self._commands[n]]
        quiet = {"HEEDFUL_EMBEDDER": "none", "HEEDFUL_CACHE": str(self.folder / "cache")}
        streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "cwd": self.folder}
        with (self.folder / f"log {n}").open("ab") as log:
            return subprocess.Popen(command, env={**os.environ, **quiet}, stderr=log, **streams)

    def _log(self, n: int) -> str:
        return (self.folder / f"log {n}").read_text()

    def kill(self, chance: random.Random) -> None:
        """Kill one of those that were killed least often, and start it again."""
        n = chance.choice([n for n, kills in enumerate(self.kills) if kills == min(self.kills)])
        self._processes[n].kill()
        self._processes[n].wait(WAITING)
        self.kills[n] += 1
        self._processes[n] = self._start(n)

    def check(self) -> None:
        """See that none has ended by itself."""
        for n, process in enumerate(self._processes):
            assert process.poll() is None, self._log(n)

    def end(self) -> None:
        """Ask all of them to end, which they do well."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(WAITING) for process in self._processes]
        logs = [self._log(n) for n, code in enumerate(codes) if code]
        assert not logs, logs

    def remove(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(WAITING)


class Client:
    """Asks one of several services, and another one where that does not answer, until one does.

    `waits` are the seconds of answers at the first asking, `again` counts how often it asked again.
    """

    def __init__(self, ports: list[int], key: str, chance: random.Random) -> None:
        self._ports, self._chance = ports, chance
        headers = {"Authorization": f"Bearer {key}"}
        self._http = httpx.AsyncClient(headers=headers, timeout=ANSWER)
        self.waits: list[float] = []
        self.again = 0

    async def ask(
        self, method: str, path: str, body: Any, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """The status and the answer, once it is one that another asking would not change."""
        deadline, tries = time.monotonic() + WAITING, 0
        while True:
            url = f"http://127.0.0.1:{self._chance.choice(self._ports)}{path}"
            began = time.perf_counter()
            with suppress(httpx.TransportError):
                answer = await self._http.request(method, url, json=body, headers=headers)
                plain, code = answer.json(), answer.status_code
                if code < 500 and plain.get("code") not in ("at_work", "too_many_requests"):
                    if not tries:
                        self.waits.append(time.perf_counter() - began)
                    return code, plain
            tries += 1
            self.again += 1
            assert time.monotonic() < deadline, f"{method} {path} is not answered"
            await asyncio.sleep(self._chance.random() * min(1.0, 0.1 * tries))

    async def close(self) -> None:
        await self._http.aclose()


class Crowd:
    """Clients with loops of their own, and what each was answered."""

    def __init__(self, fleet: Fleet, key: str) -> None:
        self.fleet, self.key, self.chance = fleet, key, random.Random(SOAK)
        self.clients = [self.client() for _ in range(CLIENTS)]
        self.waiting, self.ended = iter(range(SERVED)), 0
        self.acknowledged = Acknowledged()
        self.requests: list[tuple[str, Any, Any]] = []

    def client(self) -> Client:
        return Client(self.fleet.ports, self.key, self.chance)

    async def run(self) -> None:
        killing = asyncio.create_task(self.kill())
        await asyncio.gather(*map(self.work, self.clients))
        await killing

    async def kill(self) -> None:
        """Kill one at random each time that so many more loops have ended."""
        for n in range(KILLS):
            while self.ended < (n + 1) * SERVED // (KILLS + 1):
                await asyncio.sleep(0.02)
                self.fleet.check()
            await asyncio.to_thread(self.fleet.kill, self.chance)

    async def work(self, client: Client) -> None:
        for n in self.waiting:
            await self.loop(client, f"loop {n}")
            if n < EPISODES:
                await self.reflect(client, n)
            self.ended += 1

    async def loop(self, client: Client, id: str) -> None:
        path = f"/v1/loops/{id.replace(' ', '%20')}"
        body = {"task": f"Weigh {id}.", "policy": POLICY}
        status, _ = await client.ask("PUT", path, body)
        assert status in (200, 201)
        number, decided = 0, {"decision": "again"}
        lifts = self.chance.random() < 0.3  # when it has stopped, once
        while decided["decision"] == "again":
            number += 1
            decided = await self.attempt(client, path, id, number)
            if lifts and decided["decision"] == "done" and not decided["passed"]:
                lifts, once = False, {"Idempotency-Key": f"lift {id}"}
                body = {"rule": "attempts", "why": "one more"}
                status, decided = await client.ask("POST", f"{path}/overrides", body, once)
                assert status == 201, decided
                self.acknowledged.overrides[id] += 1

    async def attempt(self, client: Client, path: str, id: str, number: int) -> Any:
        """Report an attempt, at times to two services at once."""
        output = f"{id}, {number}: {self.chance.random()}"
        found = [] if self.chance.random() < 0.2 else FOUND
        asked = (f"{path}/attempts/{number}", {"output": output, "evaluation": {"findings": found}})
        both = client.ask("PUT", *asked)
        if self.chance.random() < 0.05:
            twin = self.client()
            (status, plain), other = await asyncio.gather(both, twin.ask("PUT", *asked))
            await twin.close()
            assert other == (status, plain)
        else:
            status, plain = await both
        assert status == 200, plain
        self.requests.append((*asked, plain))
        self.acknowledged.attempts[id][number] = (output, verdict_to(verdict(plain)))
        return plain

    async def reflect(self, client: Client, n: int) -> None:
        events = [{"type": "tool_call", "tool": "price", "error": f"no pot {n} there"}]
        body = {"task": f"Find the price of pot {n}.", "outcome": "failure", "events": events}
        once = {"Idempotency-Key": f"episode {n}"}
        status, plain = await client.ask("POST", "/v1/episodes", body, once)
        assert status in (200, 202), plain

    async def finish(self, store: Store, seconds: float) -> None:
        """Repeat reports, which get the same answers; wait until every episode is reflected on."""
        client = self.clients[0]
        for path, body, plain in self.chance.sample(self.requests, min(len(self.requests), 2_000)):
            assert await client.ask("PUT", path, body) == (200, plain)
        deadline = time.monotonic() + WAITING
        while (counts := await store.read(SCOPE, episode_store.counts)) != {"reflected": EPISODES}:
            assert time.monotonic() < deadline, counts
            await asyncio.sleep(0.1)
        cuts = quantiles([wait for client in self.clients for wait in client.waits], n=100)
        print(
            f"{SERVED} loops, {len(self.requests)} reports in {seconds:.1f} s; "
            f"p50 {cuts[49] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.1f} ms; {self.fleet.kills} kills, "
            f"{sum(client.again for client in self.clients)} asked again, "
            f"{self.acknowledged.overrides.total()} overrides"
        )
        for client in self.clients:
            await client.close()


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


async def test_kills_of_services_and_workers_lose_nothing_and_double_nothing(tmp_path, urls):
    store = in_database(urls.service)
    _, key = await keys.create(store, "acme", "soak", projects=["main"], may=MAY)
    fleet = Fleet(tmp_path, urls.service)
    try:
        crowd, began = Crowd(fleet, key), time.perf_counter()
        await crowd.run()
        await crowd.finish(store, time.perf_counter() - began)
        fleet.end()
    finally:
        fleet.remove()
    assert sum(fleet.kills) == KILLS
    loops = await store.read(SCOPE, loop_store.newest, SERVED + 1)
    await store.close()
    wrong = crowd.acknowledged.problems(loops)
    assert not wrong, wrong[:20]
    assert len(loops) == SERVED
    assert all(isinstance(one.verdicts[-1], Done) for one in loops), "a loop is not decided"

"""Many report and override loops over HTTP at once: limits hold, nothing is lost or
doubled.

The services and the workers share one database, and are killed at random.
"""

import asyncio
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx
import pytest

from conftest import SOAK
from heedful.lessons.lesson import Scope
from heedful.loop.codec import policy_to, verdict_from, verdict_to
from heedful.loop.decide import Again, Done, Policy
from heedful.loop.stop import MaxAttempts
from heedful.store import episodes as episode_store, keys, loops as loop_store
from heedful.store.keys import KEY_PERMISSIONS
from heedful.store.postgres import in_database
from heedful.store.records import StoredLoop
from heedful.store.sqlite import in_file
from heedful.store.store import Store
from tests.soak.ledger import Counts, Ledger

pytestmark = [pytest.mark.soak, pytest.mark.nightly]
SCOPE = Scope("acme", "main")
MOST = 3  # attempts that the policy allows
POLICY = policy_to(Policy((MaxAttempts(MOST),)))


class Acknowledged:
    """What callers were told: the output and verdict of each attempt, and the
    overrides.
    """

    def __init__(self) -> None:
        self.attempts: defaultdict[str, dict[int, tuple[Any, Any]]] = defaultdict(dict)
        self.overrides: Counter[str] = Counter()

    def compare(self, stored_loop: StoredLoop, counts: Counts) -> None:
        """Judge a loop from its rows, by hand."""
        attempts = stored_loop.loop.attempts
        overrides = stored_loop.loop.overrides
        first: dict[int, Any] = {}
        lifted: Counter[int] = Counter()
        number = 0
        at_work = True
        for entry in stored_loop.decisions:
            assert entry.attempt == number or (
                entry.attempt == number + 1 and at_work
            ), stored_loop
            number = entry.attempt
            at_work = isinstance(entry.verdict, Again)
            first.setdefault(number, verdict_to(entry.verdict))
            if isinstance(entry.verdict, Again):
                assert number < MOST or entry.verdict.lifted, stored_loop
                lifted.update(lift.override for lift in entry.verdict.lifted)
        values = zip(attempts, stored_loop.values, strict=True)
        answers = {
            attempt.number: (value, first[attempt.number]) for attempt, value in values
        }
        acknowledged = self.attempts[stored_loop.id]
        counts.lost += sum(
            answers.get(number) != answer for number, answer in acknowledged.items()
        )
        counts.doubled += len(attempts) - len(answers)
        counts.doubled += len(answers.keys() - acknowledged.keys())
        counts.compare(len(overrides), self.overrides[stored_loop.id])
        for index, override in enumerate(overrides):
            counts.compare(override.used, lifted[index])
            counts.limit(override.used, override.decisions)
        counts.limit(len(attempts), MOST + lifted.total())


WAITING = 120.0  # seconds until what should have happened is given up
ANSWER = 20.0  # seconds after which a client asks again
SERVED = 60 if SOAK == 1 else 100 * SOAK  # loops
CLIENTS = 64
SERVICES = 2
WORKERS = 3 if SOAK > 1 else 1  # each takes a second of a processor to begin
KILLS = 2 if SOAK == 1 else SERVED // 100
LOOPS_PER_EPISODE = 20
KILL_AFTER = {
    n * SERVED // (KILLS + 1) for n in range(1, KILLS + 1)
}  # loops that ended
FOUND = [{"check": "unit", "message": "no unit", "fix": "name the unit"}]


class Fleet:
    """Processes of `heedful serve` at fixed ports, and of `heedful worker`."""

    def __init__(self, folder: Path, url: str, workers: int) -> None:
        self.folder = folder
        self.workers = workers
        listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(SERVICES)]
        self.ports = [listener.getsockname()[1] for listener in listeners]
        for listener in listeners:
            listener.close()
        serve = ("serve", "--db", url, "--key-required", "--workers", "0", "--port")
        self._commands = [[*serve, str(port)] for port in self.ports]
        self._commands += [["worker", "--db", url, "--concurrency", "2"]] * workers
        self.kills = [0] * len(self._commands)
        self._processes = [self._start(n) for n in range(len(self._commands))]

    def _start(self, n: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "heedful.cli", *self._commands[n]]
        quiet = {
            "HEEDFUL_EMBEDDER": "none",
            "HEEDFUL_CACHE": str(self.folder / "cache"),
        }
        streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "cwd": self.folder}
        with (self.folder / f"log {n}").open("ab") as log:
            return subprocess.Popen(
                command, env={**os.environ, **quiet}, stderr=log, **streams
            )

    def _log(self, n: int) -> str:
        return (self.folder / f"log {n}").read_text()

    def choose(self, chance: random.Random) -> int:
        """Return the number of one of those that were killed least often."""
        return chance.choice(
            [n for n, kills in enumerate(self.kills) if kills == min(self.kills)]
        )

    def kill(self, n: int) -> None:
        """Kill a process, and start it again."""
        self._processes[n].kill()
        self._processes[n].wait(WAITING)
        self.kills[n] += 1
        self._processes[n] = self._start(n)

    def end(self) -> None:
        """See that none has ended by itself; ask all of them to end, which they do
        well.
        """
        for n, process in enumerate(self._processes):
            assert process.poll() is None, self._log(n)
            process.terminate()
        codes = [process.wait(WAITING) for process in self._processes]
        assert not any(codes), [self._log(n) for n, code in enumerate(codes) if code]

    def remove(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(WAITING)


class Client:
    """Asks one of several services, and another one where that does not answer, until
    one does.

    `waits` are the seconds of answers at the first asking; `asked` is the port of the
    service that has not answered yet, or 0.
    """

    def __init__(self, ports: list[int], key: str, chance: random.Random) -> None:
        self._ports = ports
        self._chance = chance
        headers = {"Authorization": f"Bearer {key}"}
        self.http = httpx.AsyncClient(headers=headers, timeout=ANSWER)
        self.waits: list[float] = []
        self.asked = 0

    async def ask(
        self, method: str, path: str, body: Any, once: str = ""
    ) -> tuple[int, Any]:
        """The status and the answer, once it is one that another asking would not
        change.
        """
        deadline = time.monotonic() + WAITING
        tries = 0
        headers = {"Idempotency-Key": once} if once else {}
        while True:
            self.asked = self._chance.choice(self._ports)
            url = f"http://127.0.0.1:{self.asked}{path}"
            began = time.perf_counter()
            with suppress(httpx.TransportError):
                answer = await self.http.request(
                    method, url, json=body, headers=headers
                )
                document = answer.json()
                code = answer.status_code
                if code < 500 and document.get("code") not in (
                    "at_work",
                    "too_many_requests",
                ):
                    self.asked = 0
                    if not tries:
                        self.waits.append(time.perf_counter() - began)
                    return code, document
            self.asked = 0
            tries += 1
            assert time.monotonic() < deadline, f"{method} {path} is not answered"
            await asyncio.sleep(self._chance.random() * min(1.0, 0.1 * tries))


class Crowd:
    """Clients with loops of their own, and what each was answered."""

    def __init__(self, fleet: Fleet, store: Store, key: str) -> None:
        self.fleet = fleet
        self.store = store
        self.chance = random.Random(SOAK)
        self.clients = [Client(fleet.ports, key, self.chance) for _ in range(CLIENTS)]
        self.waiting = iter(range(SERVED))
        self.ended = 0
        self.episodes = 0
        self.acknowledged = Acknowledged()
        self.services_at_work = 0
        self.workers_at_work = 0
        self.requests: list[tuple[str, Any, Any]] = []

    async def run(self) -> None:
        await asyncio.gather(*map(self.work, self.clients))

    async def work(self, client: Client) -> None:
        for n in self.waiting:
            await self.loop(client, f"loop {n}")
            if self.fleet.workers and n % LOOPS_PER_EPISODE == 0:
                await self.reflect(client)
            self.ended += 1
            if self.ended in KILL_AFTER:
                await self.kill(client)

    async def kill(self, client: Client) -> None:
        """Kill a service that is asked, or a worker when an episode waits for one."""
        number = self.fleet.choose(self.chance)
        if number < SERVICES:
            self.services_at_work += await self.is_asked(self.fleet.ports[number])
        else:
            await self.reflect(client)
            counts = await self.store.read(SCOPE, episode_store.counts)
            self.workers_at_work += counts.get("waiting", 0) > 0
        self.fleet.kill(number)

    async def is_asked(self, port: int) -> bool:
        """Wait until a client asks the service at a port; False if none does.

        After a kill, all clients may pause at the same moment.
        """
        deadline = time.monotonic() + ANSWER
        while all(client.asked != port for client in self.clients):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.001)
        return True

    async def loop(self, client: Client, id: str) -> None:
        path = f"/v1/loops/{id.replace(' ', '%20')}"
        body = {"task": f"Weigh {id}.", "policy": POLICY}
        status, _ = await client.ask("PUT", path, body)
        assert status in (200, 201)
        number = 0
        decided = {"decision": "again"}
        lifts = self.chance.random() < 0.3  # when it has stopped, once
        while decided["decision"] == "again":
            number += 1
            if self.chance.random() < 0.05:
                early = await client.ask(
                    "PUT", f"{path}/attempts/{number + 1}", self.report()
                )
                assert early[0] == 409
                assert early[1]["code"] == "attempt_out_of_order"
            decided = await self.attempt(client, path, id, number)
            if lifts and decided["decision"] == "done" and not decided["passed"]:
                lifts = False
                lift = {"rule": "attempts", "why": "one more"}
                to = f"{path}/overrides"
                status, decided = await client.ask("POST", to, lift, f"lift {id}")
                assert status == 201, decided
                self.acknowledged.overrides[id] += 1
        late = await client.ask("PUT", f"{path}/attempts/{number + 1}", self.report())
        assert late[0] == 409
        assert late[1]["code"] == "loop_ended"

    def report(self) -> Any:
        findings = [] if self.chance.random() < 0.2 else FOUND
        return {
            "output": str(self.chance.random()),
            "evaluation": {"findings": findings},
        }

    async def attempt(self, client: Client, path: str, id: str, number: int) -> Any:
        """Report an attempt, at times twice, and with rivals of which one wins."""
        path = f"{path}/attempts/{number}"
        bodies = [self.report()]
        if self.chance.random() < 0.2:
            bodies += [bodies[0], self.report(), self.report()]
        answers = await asyncio.gather(
            *(client.ask("PUT", path, body) for body in bodies)
        )
        assert {status for status, _ in answers} <= {200, 409}, answers
        won = [
            (body, reply[1])
            for body, reply in zip(bodies, answers, strict=True)
            if reply[0] == 200
        ]
        body, document = won[0]
        assert all(reply == won[0] for reply in won), won
        self.requests.append((path, body, document))
        self.acknowledged.attempts[id][number] = (
            body["output"],
            verdict_to(verdict_from({**document, "verdict": document["decision"]})),
        )
        return document

    async def reflect(self, client: Client) -> None:
        """Send one more episode to reflect on."""
        n = self.episodes
        self.episodes += 1
        events = [{"type": "tool_call", "tool": "price", "error": f"no pot {n} there"}]
        body = {
            "task": f"Find the price of pot {n}.",
            "outcome": "failure",
            "events": events,
        }
        status, document = await client.ask(
            "POST", "/v1/episodes", body, f"episode {n}"
        )
        assert status in (200, 202), document

    async def finish(self, seconds: float) -> None:
        """Repeat reports, which get the same answers; wait until every episode is
        reflected on.
        """
        client = self.clients[0]
        for path, body, document in self.chance.sample(
            self.requests, min(len(self.requests), 2_000)
        ):
            assert await client.ask("PUT", path, body) == (200, document)
        deadline = time.monotonic() + WAITING
        reflected = {"reflected": self.episodes} if self.episodes else {}
        counts = None
        while counts != reflected:
            assert time.monotonic() < deadline, counts
            await asyncio.sleep(0.1)
            counts = await self.store.read(SCOPE, episode_store.counts)
        cuts = quantiles(
            [wait for client in self.clients for wait in client.waits], n=100
        )
        print(
            f"{SERVED} loops, {len(self.requests)} reports in {seconds:.1f} s; "
            f"p50 {cuts[49] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.1f} ms; "
            f"{self.fleet.kills} kills"
        )
        for client in self.clients:
            await client.http.aclose()


async def test_kills_of_services_and_workers_lose_nothing_and_double_nothing(
    tmp_path: Path, url: str, ledger: Ledger
) -> None:
    shared = url.startswith("postgres")
    store = in_database(url) if shared else in_file(url)
    _, key = await keys.create(
        store, "acme", "soak", projects=["main"], may=KEY_PERMISSIONS
    )
    fleet = Fleet(tmp_path, url, WORKERS if shared else 0)
    try:
        crowd = Crowd(fleet, store, key)
        began = time.perf_counter()
        await crowd.run()
        await crowd.finish(time.perf_counter() - began)
        fleet.end()
    finally:
        fleet.remove()
    assert sum(fleet.kills) == KILLS
    loops, _ = await store.read(SCOPE, loop_store.newest, SERVED + 1)
    counts = Counts()
    counts.compare(len(loops), SERVED)
    for row in loops:
        stored_loop = await store.read(SCOPE, loop_store.read, row.id)
        crowd.acknowledged.compare(stored_loop, counts)
    reflected = (await store.read(SCOPE, episode_store.counts)).get("reflected", 0)
    await store.close()
    assert all(isinstance(row.verdicts[-1], Done) for row in loops), (
        "a loop is not decided"
    )
    service_kills = sum(fleet.kills[:SERVICES])
    if service_kills:
        ledger.settle(
            what="kill -9 of one of two services that answer 64 clients",
            engine="PostgreSQL" if shared else "SQLite",
            times=service_kills,
            at_work=crowd.services_at_work,
            lost=counts.lost,
            doubled=counts.doubled,
            exceeded=counts.exceeded,
        )
    worker_kills = sum(fleet.kills[SERVICES:])
    if worker_kills:
        episodes = Counts()
        episodes.compare(reflected, crowd.episodes)
        ledger.settle(
            what="kill -9 of one of three workers that reflect on episodes",
            engine="PostgreSQL",
            times=worker_kills,
            # A worker alone may have reflected on all of them by then.
            at_work=crowd.workers_at_work if SOAK > 1 else None,
            lost=episodes.lost,
            doubled=episodes.doubled,
        )

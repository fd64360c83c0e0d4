"""What operators do to PostgreSQL under load: restarts and a promotion.

Services, workers, callers of the library and readers of pages go on by themselves.
Meanwhile they get documented errors only, and nothing acknowledged is lost or doubled.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

import heedful
from conftest import SOAK
from heedful.drive.report import AttemptReport, open_loop, report as send_report
from heedful.errors import LeaseLost, NotFound, StoreInDoubt, StoreUnavailable
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Done
from heedful.loop.record import Evaluation, Finding
from heedful.store import keys, loops as loop_store
from heedful.store.keys import KEY_PERMISSIONS
from heedful.store.postgres import in_database
from heedful.store.store import Store
from tests.postgres import Server, alone, standby
from tests.soak.ledger import Counts, Ledger
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


class Progress:
    """Counts that others wait for."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, name: str) -> None:
        self.counts[name] += 1

    async def wait(self, name: str, more: int = 1) -> None:
        """Wait until this was counted so many times more."""
        await reach(lambda: self.counts[name], self.counts[name] + more)


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


class Visitor:
    """Somebody who reads pages, and whose page is live."""

    def __init__(self, port: int, key: str, progress: Progress) -> None:
        self.key = key
        self.progress = progress
        url = f"http://127.0.0.1:{port}"
        self.http = httpx.AsyncClient(
            base_url=url, headers={"Origin": url}, follow_redirects=True, timeout=20.0
        )
        self.statuses: Counter[int] = Counter()

    async def sign_in(self) -> None:
        page = await self.http.post("/ui/sign-in", data={"key": self.key})
        assert page.status_code == 200, page.text

    async def read(self) -> None:
        for path in self.paths():
            page = await self.http.get(path)
            self.statuses[page.status_code] += 1
            if page.status_code == 200:
                self.progress.add("pages")
            await asyncio.sleep(0.1)

    def paths(self) -> Iterator[str]:
        for _ in count():
            yield from ("/ui", "/ui/loops", "/ui/lessons", "/ui/work")

    async def watch(self) -> None:
        """Do as a browser does: ask for a new stream where one ends."""
        while True:
            with suppress(httpx.TransportError):
                async with self.http.stream("GET", "/ui/events") as stream:
                    # A browser gives up where it is answered with an error.
                    kind = stream.headers["content-type"].partition(";")[0]
                    assert (stream.status_code, kind) == (200, "text/event-stream")
                    async for line in stream.aiter_lines():
                        if line == "event: changed":
                            self.progress.add("changes")
            await asyncio.sleep(0.2)


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
        self.progress = Progress()
        self.visitor = Visitor(self.fleet.ports[0], key, self.progress)

    async def begin(self) -> list[asyncio.Task[Any]]:
        """Begin; return the tasks that do not end by themselves."""
        await listening(self.fleet)
        await self.visitor.sign_in()
        self.tasks = [
            asyncio.create_task(self.load.run()),
            *(asyncio.create_task(self.callers.work(name)) for name in "abc"),
        ]
        return [
            asyncio.create_task(self.visitor.read()),
            asyncio.create_task(self.visitor.watch()),
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
        await self.progress.wait("pages")
        await self.progress.wait("changes")

    async def end(self, readers: list[asyncio.Task[Any]]) -> None:
        """Let everybody end what they began; no process has ended by itself."""
        self.load.is_over = True
        self.callers.is_over = True
        await asyncio.gather(*self.tasks)
        for task in readers:
            task.cancel()
        answers = await asyncio.gather(*readers, return_exceptions=True)
        assert {type(answer) for answer in answers} == {asyncio.CancelledError}, answers
        await self.visitor.http.aclose()
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
            what=what,
            engine="PostgreSQL",
            times=times,
            lost=counts.lost,
            doubled=counts.doubled,
            exceeded=counts.exceeded,
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


async def survive(
    folder: Path, server: Server, url: str, ledger: Ledger, what: str, times: int
) -> None:
    """Restart PostgreSQL under load; check what is stored, answered and logged."""
    direct = in_database(server.urls(DATABASE).service)
    _, key = await keys.create(
        direct, "acme", "soak", projects=["main"], may=KEY_PERMISSIONS
    )
    scene = Scene(folder, url, direct, key)
    try:
        readers = await scene.begin()
        await restart_often(scene, server, times)
        await scene.end(readers)
    finally:
        scene.fleet.remove()
    await scene.settle(ledger, what, times)
    await direct.close()

    assert scene.load.strange == {}
    assert scene.visitor.statuses.keys() <= {200, 503}
    check_logs(folder, times)


def check_logs(folder: Path, times: int) -> None:
    """Check that outages are told in a few lines, and that nothing failed."""
    for log in folder.glob("log *"):
        text = log.read_text()
        lines = [line for line in text.splitlines() if " INFO " not in line]
        assert "Traceback" not in text
        assert len(lines) <= MAX_LOG_LINES_A_RESTART * (times + 1), log.name


async def test_restarts_lose_nothing_and_everybody_goes_on(tmp_path, ledger):
    with operated() as (server, url):
        damage = "restart of PostgreSQL under services, workers, callers and pages"
        await survive(tmp_path, server, url, ledger, damage, RESTARTS)


class Reporter:
    """Reports attempts of loops to one store after another; notes what is acknowledged.

    `acknowledged` has the output of each attempt, by loop and number, with the time.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.acknowledged: dict[tuple[str, int], tuple[str, float]] = {}
        self.loops: set[str] = set()
        self.is_over = False

    async def work(self, name: str) -> None:
        for n in count():
            id = f"{name} {n}"
            self.loops.add(id)
            await self.insist(partial(open_loop, id, "task"))
            for number in (1, 2):
                if self.is_over:
                    return
                await self.report(id, number)

    async def report(self, id: str, number: int) -> None:
        finding = Finding("unit", "no unit")
        output = f"{id} {number}"
        report = AttemptReport(output, evaluation=Evaluation((finding,)))
        await self.insist(
            partial(send_report, id=id, number=number, attempt_report=report)
        )
        self.acknowledged[id, number] = (output, time.monotonic())

    async def insist(self, call: Callable[..., Awaitable[Any]]) -> None:
        """Make a call until the store of this moment has answered it."""
        deadline = time.monotonic() + WAITING
        while True:
            try:
                await call(store=self.store, scope=LIBRARY)
            except (StoreUnavailable, StoreInDoubt):
                assert time.monotonic() < deadline, "no store answers"
                await asyncio.sleep(0.05)
            else:
                return


async def read_attempts(
    store: Store, loops: Iterable[str]
) -> dict[tuple[str, int], str]:
    """Return the output of each stored attempt, by loop and number."""
    outputs = {}
    for id in loops:
        with suppress(NotFound):
            stored_loop = await store.read(LIBRARY, loop_store.read, id)
            for attempt, value in zip(
                stored_loop.loop.attempts, stored_loop.values, strict=True
            ):
                outputs[id, attempt.number] = value
    return outputs


PROMOTIONS = max(1, SOAK // 20)
REPORTERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """What a promotion did: reports that are not on the new primary, and since when.

    `milliseconds` lie between the oldest of them and the end of the primary. `holes`
    are loops that lost an attempt and kept a later one.
    """

    lost: int
    doubled: int
    holes: int
    milliseconds: float


async def promote(chance: random.Random, is_synchronous: bool) -> Promotion:
    """Kill a primary under load, and let everybody go on with its standby."""
    with operated() as (primary, url), standby(primary) as other:
        if is_synchronous:
            primary.run("alter system set synchronous_standby_names = '*'")
            primary.run("select pg_reload_conf()")
        state = "sync" if is_synchronous else "async"
        followers = f"select 1 from pg_stat_replication where sync_state = '{state}'"
        await reach(lambda: len(primary.run(followers)), 1)

        old_store = in_database(url)
        reporter = Reporter(old_store)
        works = [
            asyncio.create_task(reporter.work(f"loop {n}")) for n in range(REPORTERS)
        ]
        await reach(lambda: len(reporter.acknowledged), 50 + chance.randrange(50))
        await asyncio.to_thread(primary.stop, "immediate")
        ended_at = time.monotonic()
        before = dict(reporter.acknowledged)

        other.run("select pg_promote()")
        if is_synchronous:
            reporter.store = in_database(other.urls(DATABASE).service)
            await reach(lambda: len(reporter.acknowledged), len(before) + 50)
            reporter.is_over = True
            await asyncio.gather(*works)
            before = reporter.acknowledged
        else:
            # A caller whose loop is lost would be refused: its attempts are missing.
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
            reporter.store = in_database(other.urls(DATABASE).service)
        outputs = await read_attempts(reporter.store, reporter.loops)
        await old_store.close()
        await reporter.store.close()

    lost = {
        key: moment
        for key, (output, moment) in before.items()
        if outputs.get(key) != output
    }
    extra = outputs.keys() - before.keys()
    return Promotion(
        lost=len(lost),
        # Those in doubt at the end of an asynchronous primary may be stored.
        doubled=len(extra) if is_synchronous else 0,
        holes=sum((id, number + 1) in outputs for id, number in lost),
        milliseconds=max(
            (ended_at - moment) * 1e3 for moment in [*lost.values(), ended_at]
        ),
    )


async def test_promoting_a_synchronous_standby_loses_nothing(ledger):
    chance = random.Random(SOAK)
    promotions = [await promote(chance, True) for _ in range(PROMOTIONS)]
    ledger.settle(
        what="crash of a primary under load and promotion of its synchronous standby",
        engine="PostgreSQL",
        times=PROMOTIONS,
        lost=sum(promotion.lost for promotion in promotions),
        doubled=sum(promotion.doubled for promotion in promotions),
    )


async def test_promoting_an_asynchronous_standby_loses_the_last_moment_only():
    chance = random.Random(SOAK)
    promotions = [await promote(chance, False) for _ in range(PROMOTIONS)]
    print(promotions)
    assert sum(promotion.holes for promotion in promotions) == 0

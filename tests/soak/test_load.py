"""A service under load for half an hour: memory, descriptors, threads and log are flat.

Programs report and recall, hooks of agents ask, people look at all pages, and live
pages hold their streams open. What the service uses is sampled all the time: a leak of
a kilobyte a request, or of a descriptor a stream, is many times what is allowed.
"""

import asyncio
import itertools
import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import pytest

from conftest import SOAK
from heedful.lessons.lesson import Scope
from heedful.loop.codec import policy_to
from heedful.loop.decide import Policy
from heedful.loop.stop import MaxAttempts
from heedful.store import keys, loops as loop_store
from heedful.store.keys import KEY_PERMISSIONS
from heedful.store.postgres import in_database
from heedful.store.sqlite import in_file
from heedful.store.store import Store
from heedful_agents.agents import AGENTS, Kind
from tests.hooks.spoken import spoken_by
from tests.service.running import Service
from tests.soak.ledger import Ledger

pytestmark = [pytest.mark.soak, pytest.mark.nightly]
SECONDS = 2.0 if SOAK == 1 else min(1_800.0, 18.0 * SOAK)
SAMPLES = 180
PAUSE_SECONDS = 0.1  # of a client between two calls: the service is busy, not swamped
REPORTERS = 4
RECALLERS = 2
HOOKS = 2
READERS = 2
STREAMS = 6
SCOPE = Scope("acme", "main")
POLICY = policy_to(Policy((MaxAttempts(3),)))
PAGES = ("", "/loops", "/work", "/lessons", "/inbox", "/proof")
NAMES = [name for name, agent in AGENTS.items() if agent.events]
KINDS: tuple[Kind, Kind] = ("before", "after")
# The log has a line for each call, and one for each lesson that it stored or counted.
MAX_LINES_A_CALL = 2.0
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a service uses at a moment: numbers, and bytes of memory and of files."""

    memory: int
    descriptors: int
    threads: int
    wal: int


# By how much the median of the last third may exceed that of the middle third. Memory:
# the allocator keeps pages of the largest page that was drawn. Descriptors and threads:
# as many connections as there are clients may be between two requests. The write-ahead
# log: SQLite starts it anew at 1,000 pages of 4 KiB as soon as no reader looks at it.
ALLOWED = Sample(
    memory=12 * MIB,
    descriptors=REPORTERS + RECALLERS + HOOKS + READERS + STREAMS,
    threads=8,
    wal=16 * MIB,
)


def _take_sample(process: int, folder: Path) -> Sample:
    status = Path(f"/proc/{process}/status").read_text("utf-8")
    numbers = {name: int(n) for name, n in re.findall(r"(\w+):\s+(\d+)", status)}
    wal = folder / "heedful.db-wal"
    return Sample(
        memory=numbers["VmRSS"] * 1024,
        descriptors=len(list(Path(f"/proc/{process}/fd").iterdir())),
        threads=numbers["Threads"],
        wal=wal.stat().st_size if wal.exists() else 0,
    )


def _medians(samples: Sequence[Sample]) -> dict[str, float]:
    names = [field.name for field in fields(Sample)]
    return {name: median(getattr(sample, name) for sample in samples) for name in names}


class Crowd:
    """Everybody who uses the service until the time is over, and what they were told.

    `calls` counts answers by their kind; `attempts` those that were acknowledged, by
    loop.
    """

    def __init__(self, url: str, key: str) -> None:
        self.key = key
        self.url = url
        self.deadline = time.monotonic() + SECONDS
        self.calls: Counter[str] = Counter()
        self.attempts: Counter[str] = Counter()

    def client(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=60.0)

    async def work(self) -> None:
        """Let all of them work at once."""
        async with asyncio.TaskGroup() as crowd:
            for number in range(REPORTERS):
                crowd.create_task(self.report(number))
            for number in range(RECALLERS):
                crowd.create_task(self.recall(number))
            for number in range(HOOKS):
                crowd.create_task(self.hook(number))
            for _ in range(READERS):
                crowd.create_task(self.read_pages())
            for _ in range(STREAMS):
                crowd.create_task(self.follow())

    async def turns(self) -> Any:
        """Yield numbers, with a pause between them, until the time is over."""
        for number in itertools.count():
            if time.monotonic() > self.deadline:
                return
            yield number
            await asyncio.sleep(PAUSE_SECONDS)

    def count(self, kind: str, answer: httpx.Response) -> Any:
        assert answer.status_code < 400, answer.text
        self.calls[kind] += 1
        return answer

    async def report(self, reporter: int) -> None:
        """Report loops with three attempts, of which the last may pass."""
        async with self.client() as client:
            async for number in self.turns():
                id = f"{reporter}-{number}"
                path = f"/v1/loops/{id}"
                body = {"task": f"Weigh parcel {id}.", "policy": POLICY}
                self.count("report", await client.put(path, json=body))
                for attempt in range(1, 4):
                    wrong = {"check": "unit", "message": f"no unit in {number % 50}"}
                    findings = [wrong] if attempt < 3 or number % 2 else []
                    report = {
                        "output": f"{number} {attempt}",
                        "evaluation": {"findings": findings},
                    }
                    answer = await client.put(f"{path}/attempts/{attempt}", json=report)
                    self.count("report", answer)
                    self.attempts[id] += 1

    async def recall(self, number: int) -> None:
        """Remember errors, of which many are the same, and recall lessons."""
        async with self.client() as client:
            async for turn in self.turns():
                error = f"could not convert {turn}.5 of column {turn % 40}"
                body = {"error_type": "ValueError", "text": error}
                body["lesson"] = f"Convert column {turn % 40} by hand."
                answer = await client.post("/v1/reflections", json=body)
                self.count("remember", answer)
                query = {"task": f"convert column {turn % 40}"}
                answer = await client.post("/v1/recall", json=query)
                self.count("recall", answer)

    async def hook(self, number: int) -> None:
        """Ask as the hooks of agents do, with a new session now and then."""
        async with self.client() as client:
            async for turn in self.turns():
                content = {
                    "session_id": f"{number}-{turn // 20}",
                    "tool_name": "Bash",
                    "tool_input": {"command": f"npm run build{turn % 30}"},
                    "tool_use_id": f"c{turn}",
                    "tool_response": {"stdout": "npm ERR! no script", "exit_code": 1},
                }
                agent = NAMES[turn // 20 % len(NAMES)]
                name, event = spoken_by(agent, KINDS[turn % 2], content)
                event["hook_event_name"] = name
                answer = await client.post(f"/v1/hooks/{agent}", json=event)
                self.count("hook", answer)

    async def sign_in(self, client: httpx.AsyncClient) -> None:
        answer = await client.post(
            "/ui/sign-in", data={"key": self.key}, headers={"origin": self.url}
        )
        assert answer.status_code == 303, answer.text

    async def read_pages(self) -> None:
        """Look at all pages, in turn."""
        async with self.client() as client:
            await self.sign_in(client)
            async for turn in self.turns():
                path = f"/ui{PAGES[turn % len(PAGES)]}"
                answer = await client.get(path, follow_redirects=True)
                self.count("page", answer)

    async def follow(self) -> None:
        """Hold the stream of a live page open; open it again when it ends."""
        async with self.client() as client:
            await self.sign_in(client)
            async for _ in self.turns():
                async with client.stream("GET", "/ui/events") as stream:
                    assert stream.status_code == 200
                    async for line in stream.aiter_lines():
                        self.calls["event"] += line.startswith("event")
                        if time.monotonic() > self.deadline:
                            break


async def _stored_attempts(store: Store, ids: Sequence[str]) -> Counter[str]:
    attempts: Counter[str] = Counter()
    for id in ids:
        loop = await store.read(SCOPE, loop_store.read, id)
        attempts[id] = len(loop.loop.attempts)
    return attempts


async def test_half_an_hour_under_load_leaves_memory_descriptors_and_log_flat(
    tmp_path: Path, url: str, ledger: Ledger
) -> None:
    is_server = url.startswith("postgres")
    store = in_database(url) if is_server else in_file(url)
    _, key = await keys.create(
        store, "acme", "soak", projects=["main"], may=KEY_PERMISSIONS
    )
    options = ["--db", url, "--key-required"]
    if is_server:
        options += ["--workers", "0"]
    service = Service(tmp_path, *options)
    crowd = Crowd(service.url, key)
    samples: list[Sample] = []

    async def watch() -> None:
        while True:
            samples.append(_take_sample(service.process.pid, tmp_path))
            await asyncio.sleep(SECONDS / SAMPLES)

    try:
        watching = asyncio.create_task(watch())
        await crowd.work()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    finally:
        code = service.end()
    assert code == 0

    third = len(samples) // 3
    middle = _medians(samples[third : 2 * third])
    last = _medians(samples[2 * third :])
    growth = {name: last[name] - middle[name] for name in last}
    print(f"{crowd.calls.total()} calls: {dict(crowd.calls)}")
    print(f"middle {middle}, last {last}")
    tenths = range(0, len(samples), max(1, len(samples) // 10))
    print("MiB", [round(samples[n].memory / MIB, 1) for n in tenths])
    log_lines = (tmp_path / "log").read_text("utf-8").splitlines()
    troubles = [line for line in log_lines if " INFO " not in line]
    print(f"{len(log_lines)} lines of log, {len(troubles)} of trouble: {troubles[:5]}")
    grown = {name for name, more in growth.items() if more > getattr(ALLOWED, name)}
    # A service that has just begun takes what it needs.
    exceeded = len(grown) if SOAK > 1 else 0
    exceeded += len(log_lines) > MAX_LINES_A_CALL * crowd.calls.total() + len(PAGES)

    attempts = await _stored_attempts(store, list(crowd.attempts))
    await store.close()
    minutes = round(SECONDS / 60)
    ledger.settle(
        what="reports, recalls, hooks, pages and live streams without a pause",
        note=f"{minutes} minutes; memory {middle['memory'] / MIB:.0f} MiB, then "
        f"{last['memory'] / MIB:.0f} MiB; descriptors "
        f"{middle['descriptors']:.0f}, then {last['descriptors']:.0f}; threads "
        f"{growth['threads']:+.0f}; warnings in the log: {len(troubles)}",
        engine="PostgreSQL" if is_server else "SQLite",
        times=crowd.calls.total(),
        lost=(crowd.attempts - attempts).total(),
        doubled=(attempts - crowd.attempts).total(),
        exceeded=exceeded,
    )

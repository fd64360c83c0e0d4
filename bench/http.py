"""Attempts over HTTP: the cost of a report above its commit, and a service under load."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from itertools import count
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import urlsplit

from bench.durable import committed, opened
from bench.rows import Figure
from heedful.drive.report import AttemptReport, open_loop, report
from heedful.lessons.lesson import Scope
from heedful.loop.record import Evaluation, Finding
from heedful.service.app import application
from heedful.service.setup import Setup
from heedful.store.sqlite import in_file

LOOPS = 60  # of two attempts each
ROUNDS = 9
WARM = 3
AT_ONCE = 64
WRONG = Evaluation((Finding("unit", "no unit", "name the unit"),))
ATTEMPTS = (AttemptReport("12", evaluation=WRONG), AttemptReport("12 kg", evaluation=Evaluation()))
BODIES = tuple(
    json.dumps({"output": text, "evaluation": {"findings": found}}).encode()
    for text, found in (
        ("12", [{"check": "unit", "message": "no unit", "fix": "name the unit"}]),
        ("12 kg", []),
    )
)
_numbers = count()
Ask = Callable[[str, bytes], Coroutine[Any, Any, int]]


def figures(folder: str) -> Iterable[Figure]:
    """Measure in this process, then a separate service with one client and with many."""
    with closing(opened(f"{folder}/floor.db")) as floor:
        for name, ways in (("the library", library), ("the service", service)):
            pairs = [pair(floor, ways, folder) for _ in range(WARM + ROUNDS)][WARM:]
            ours, bare = map(min, zip(*pairs, strict=True))  # other work only ever adds time
            above = ours - bare
            yield Figure(f"attempt report, {name}, above its commit", above * 1e3, "ms", 1)
        rate = 1 / min(committed(floor, 200) for _ in range(ROUNDS))
    yield Figure("bare SQLite commits (WAL, FULL)", rate, "/s")
    with serving(folder) as url:
        for clients, loops in ((1, 100), (AT_ONCE, 20)):
            asyncio.run(load(url, clients, 5))
            seconds, waits = asyncio.run(load(url, clients, loops))
            named = f"{clients} client{'s' * (clients > 1)}"
            yield Figure(f"reports over HTTP, {named}", len(waits) / seconds, "/s")
            yield Figure(f"reports ÷ bare commits, {named}", len(waits) / seconds / rate, "×")
            cuts = quantiles(waits, n=100)
            for place in (50, 99):
                yield Figure(f"a report over HTTP, {named}, p{place}", cuts[place - 1] * 1e3, "ms")


def pair(floor: Any, way: Callable[[str], Coroutine[Any, Any, float]], folder: str) -> Any:
    """Seconds for a report, and for a bare commit right after it."""
    return asyncio.run(way(f"{folder}/reports.db")), committed(floor, 2 * LOOPS)


async def library(path: str) -> float:
    """Seconds for a report through `heedful.drive.report`, on loops that exist already."""
    store = in_file(path)
    ids = [f"loop {next(_numbers)}" for _ in range(LOOPS)]
    for id in ids:
        await open_loop(id, "task", store=store)
    began = time.perf_counter()
    for id in ids:
        for number, told in enumerate(ATTEMPTS, 1):
            await report(store, Scope(), id, number, told)
    seconds = time.perf_counter() - began
    await store.close()
    return seconds / (2 * LOOPS)


async def service(path: str) -> float:
    """Seconds for a report through the whole application, without a network."""
    store = in_file(path)
    app = application(Setup(store, open=True))

    async def ask(path: str, body: bytes) -> int:
        status = 0

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)

        await app(_scope(path), receive, send)
        return status

    seconds = await reported(ask)
    await store.close()
    return seconds / (2 * LOOPS)


def _scope(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "PUT",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }


async def reported(ask: Ask) -> float:
    """Seconds for the reports alone."""
    ids = [f"loop{next(_numbers)}" for _ in range(LOOPS)]
    for id in ids:
        assert await ask(f"/v1/loops/{id}", b'{"task": "task"}') == 201
    began = time.perf_counter()
    for id in ids:
        for number, body in enumerate(BODIES, 1):
            assert await ask(f"/v1/loops/{id}/attempts/{number}", body) == 200
    return time.perf_counter() - began


@contextmanager
def serving(folder: str) -> Iterator[str]:
    """The URL of `heedful serve` in a process of its own, on SQLite."""
    command = [sys.executable, "-m", "heedful.cli", "serve", "--port", "0"]
    with Path(folder, "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline().decode())
        assert found, Path(folder, "log").read_text()
        yield found.group()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


async def load(url: str, clients: int, loops: int) -> tuple[float, list[float]]:
    """Seconds in all, and for each report; each client reports its loops one after the other."""
    waits: list[float] = []

    async def client() -> None:
        async with connected(url) as ask:
            for _ in range(loops):
                id = f"load{next(_numbers)}"
                assert await ask(f"/v1/loops/{id}", b'{"task": "task"}') == 201
                for number, body in enumerate(BODIES, 1):
                    began = time.perf_counter()
                    assert await ask(f"/v1/loops/{id}/attempts/{number}", body) == 200
                    waits.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - began, waits


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Ask]:
    """A client with one connection that does little, to leave the processor to the service."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)

    async def ask(path: str, body: bytes) -> int:
        head = f"PUT {path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", answer)
        assert length is not None, answer
        await reader.readexactly(int(length[1]))
        return int(answer.split(b" ", 2)[1])

    try:
        yield ask
    finally:
        writer.close()
        await writer.wait_closed()

"""Attempts over HTTP: the cost of a report above its commit, and a service under
load.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from bench.durable import open_floor, time_commits
from bench.recall import letters
from bench.rows import Figure
from bench.timing import percentile
from heedful.drive.report import AttemptReport, open_loop, report
from heedful.lessons.lesson import Lesson, Scope
from heedful.lessons.signature import signature
from heedful.loop.record import Evaluation, Finding
from heedful.store import exposures
from heedful.store.sqlite import in_file
from heedful_server.app import application
from heedful_server.setup import Setup

LOOPS = 60  # of two attempts each
ROUNDS = 9
WARM = 3
AT_ONCE = 64
SERVED = 3  # services of each kind, in turns
WRONG = Evaluation((Finding("unit", "no unit", fix="name the unit"),))
ATTEMPTS = (
    AttemptReport("12", evaluation=WRONG),
    AttemptReport("12 kg", evaluation=Evaluation()),
)
BODIES = tuple(
    json.dumps({"output": output, "evaluation": {"findings": findings}}).encode()
    for output, findings in (
        ("12", [{"check": "unit", "message": "no unit", "fix": "name the unit"}]),
        ("12 kg", []),
    )
)
_numbers = count()
Ask = Callable[[str, bytes], Coroutine[Any, Any, int]]


def figures(folder: str) -> Iterable[Figure]:
    """Measure in this process, then services under load."""
    with closing(open_floor(f"{folder}/floor.db")) as floor:
        ways = {"the library": time_library, "the service": time_service}
        for name, way in ways.items():
            for _ in range(WARM):
                measure_pair(floor, way, folder)
            pairs = [measure_pair(floor, way, folder) for _ in range(ROUNDS)]
            # The fastest of each, because other work only ever adds time.
            ours = min(mine for mine, _ in pairs)
            bare = min(theirs for _, theirs in pairs)
            yield Figure(
                name=f"attempt report, {name}, above its commit",
                value=(ours - bare) * 1e3,
                unit="ms",
                most=1,
            )
        rate = 1 / min(time_commits(floor, 200) for _ in range(ROUNDS))
    yield Figure(name="bare SQLite commits (WAL, FULL)", value=rate, unit="/s")

    for clients, loops in ((1, 100), (AT_ONCE, 20)):
        for fresh in (False, True):
            runs = [
                load_new_service(
                    folder,
                    clients=clients,
                    loops=loops,
                    fresh=fresh,
                )
                for _ in range(SERVED)
            ]
            who = "1 client" if clients == 1 else f"{clients} clients"
            tasks = "new tasks" if fresh else "repeated tasks"
            most_cpu = None if clients == 1 else 1.8
            yield from _figures_of(f"{who}, {tasks}", runs, most_cpu)
    yield from measure_lookups(folder)
    yield from measure_on_postgres(folder)


def measure_on_postgres(folder: str) -> Iterator[Figure]:
    """Load services on a PostgreSQL server of their own, each with a fresh database."""
    from tests.postgres import alone  # a server comes with what develops heedful

    runs: list[Run] = []
    with alone("max_connections = 300") as server:
        for turn in range(SERVED):
            urls = server.blank(f"served_{turn}")
            run_migrate(urls.owner)
            # Open mode would ask the database in each request whether a key exists.
            run = load_new_service(
                folder,
                clients=AT_ONCE,
                loops=10,
                fresh=False,
                db=urls.service,
                key=make_key(urls.service),
            )
            runs.append(run)
    yield from _figures_of(f"{AT_ONCE} clients, PostgreSQL", runs, most_cpu=3.0)


def run_migrate(url: str) -> None:
    """Make the tables of a database."""
    command = [sys.executable, "-m", "heedful.cli", "db", "migrate", "--db", url]
    subprocess.run(
        [*command, "--role", "heedful"], check=True, stdout=subprocess.DEVNULL
    )


def make_key(url: str) -> str:
    """Return the secret of a new key in a database."""
    command = [sys.executable, "-m", "heedful.cli", "key", "create", "--db", url]
    completed = subprocess.run(
        [*command, "--name", "load", "--json"], check=True, capture_output=True
    )
    return str(json.loads(completed.stdout)["secret"])


def _figures_of(
    who: str, runs: Sequence[Run], most_cpu: float | None
) -> Iterator[Figure]:
    yield Figure(
        name=f"reports over HTTP, {who}",
        value=median(run.rate for run in runs),
        unit="/s",
    )
    yield Figure(
        name=f"CPU of the service a report, {who}",
        value=min(run.cpu for run in runs) * 1e3,
        unit="ms",
        most=most_cpu,
    )
    for place in (50, 99):
        cut = median(percentile(run.waits, place) for run in runs) * 1e3
        yield Figure(name=f"a report over HTTP, {who}, p{place}", value=cut, unit="ms")
    last = runs[-1]
    yield Figure(name=f"CPU after the last report, {who}", value=last.later, unit="s")
    yield Figure(
        name=f"seconds after the last report, {who}", value=last.drained, unit="s"
    )
    yield Figure(name=f"memory of the service, {who}", value=last.memory, unit="MB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A service under load: reports a second, seconds of CPU a report, seconds of each
    report.

    `later` are the seconds of CPU, and `drained` all seconds, until it rested after the
    load.
    """

    rate: float
    cpu: float
    waits: Sequence[float]
    later: float
    drained: float
    memory: float


def load_new_service(
    folder: str,
    clients: int,
    loops: int,
    fresh: bool,
    db: str = "",
    key: str = "",
) -> Run:
    """Load a service of its own, after some requests that warm it up."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as place,
        serve(place, db) as (url, pid),
    ):
        asyncio.run(load_service(url, clients, loops=5, fresh=fresh, key=key))
        spent = cpu_seconds(pid)
        seconds, waits = asyncio.run(
            load_service(url, clients, loops, fresh=fresh, key=key)
        )
        busy = cpu_seconds(pid)
        began = time.perf_counter()
        now = wait_for_rest(pid)
        memory = resident_megabytes(pid)
        rate = len(waits) / seconds
        seconds_each = (busy - spent) / len(waits)
        return Run(
            rate=rate,
            cpu=seconds_each,
            waits=waits,
            later=now - busy,
            drained=time.perf_counter() - began - 1,
            memory=memory,
        )


def wait_for_rest(pid: int) -> float:
    """Wait until a service has no work of its own; return its seconds of CPU."""
    last = -1.0
    now = cpu_seconds(pid)
    while now - last > 0.05:
        time.sleep(1)
        last = now
        now = cpu_seconds(pid)
    return now


def cpu_seconds(pid: int) -> float:
    """Return the seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_megabytes(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    return (
        int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        * os.sysconf("SC_PAGE_SIZE")
        / 1e6
    )


LESSONS = 10_000
ASKED = 1_000
LOOKUPS: Mapping[str, tuple[str, Any, float]] = {
    "seen": ("/v1/seen", {"error_type": "E", "text": "the sieve 77 is bent"}, 500),
    "before": (
        "/v1/before",
        {"tool": "bash", "arguments": {"command": "make sieve"}},
        500,
    ),
    "recall by words": ("/v1/recall", {"task": "mend the bent sieve of mill {}"}, 400),
    "recall with vectors": (
        "/v1/recall",
        {"task": "mend the bent sieve of mill {}"},
        150,
    ),
}


def measure_lookups(folder: str) -> Iterator[Figure]:
    """Ask services whose memory has 10,000 lessons, with 64 clients."""
    path = f"{folder}/heedful.db"
    asyncio.run(fill_memory(path))
    for name, (route, body, least) in LOOKUPS.items():
        embedder = "minilm" if "vectors" in name else "none"
        with serve(folder, HEEDFUL_EMBEDDER=embedder) as (url, pid):
            asyncio.run(time_questions(url, route, body, AT_ONCE))
            wait_for_rest(pid)
            rate = ASKED / asyncio.run(time_questions(url, route, body, ASKED))
        yield Figure(
            name=f"{name}, {LESSONS} lessons", value=rate, unit="/s", least=least
        )


async def fill_memory(path: str) -> None:
    """Write lessons with vectors of the default embedder."""
    import numpy as np

    store = in_file(path)
    random = np.random.default_rng(0)
    vectors = random.normal(size=(LESSONS, 384)).astype("f4")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    words = (
        "mill sieve flour stone wheel belt gear bearing axle chute hopper grain".split()
    )
    lessons = []
    for n, vector in enumerate(vectors):
        word = words[n % len(words)]
        other_word = words[n // len(words) % len(words)]
        text = f"the {word} of the {other_word} is bent by {letters(n)}"
        lesson = Lesson(
            "error",
            signature("E", text),
            error_type="E",
            text=f"Straighten the {word}.",
            sighting=text,
        )
        lessons.append(
            replace(lesson, trust="user", space="minilm-int8/384", vector=vector)
        )
    for first in range(0, LESSONS, 500):
        await store.write(Scope(), exposures.remember, lessons[first : first + 500])
    await store.close()


async def time_questions(url: str, route: str, body: Any, many: int) -> float:
    """Return the seconds for so many requests of 64 clients."""
    numbers = iter(range(many))

    async def client() -> None:
        async with connect(url, "POST") as ask:
            for n in numbers:
                assert (
                    await ask(route, json.dumps(body).replace("{}", str(n)).encode())
                    == 200
                )

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    return time.perf_counter() - began


def measure_pair(
    floor: Any, way: Callable[[str], Coroutine[Any, Any, float]], folder: str
) -> Any:
    """Return the seconds for a report, and for a bare commit right after it."""
    return asyncio.run(way(f"{folder}/reports.db")), time_commits(floor, 2 * LOOPS)


async def time_library(path: str) -> float:
    """Return the seconds for a report by `heedful.drive.report` on loops that exist."""
    store = in_file(path)
    ids = [f"loop {next(_numbers)}" for _ in range(LOOPS)]
    for id in ids:
        await open_loop(id, "task", store=store)
    began = time.perf_counter()
    for id in ids:
        for number, attempt_report in enumerate(ATTEMPTS, 1):
            await report(
                store,
                scope=Scope(),
                id=id,
                number=number,
                attempt_report=attempt_report,
            )
    seconds = time.perf_counter() - began
    await store.close()
    return seconds / (2 * LOOPS)


async def time_service(path: str) -> float:
    """Return the seconds for a report through the application, without a network."""
    store = in_file(path)
    app = application(Setup(store=store, open=True))

    async def ask(path: str, body: bytes) -> int:
        status = 0

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)

        await app(_scope(path), receive, send)
        return status

    seconds = await time_reports(ask)
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


async def time_reports(ask: Ask) -> float:
    """Return the seconds for the reports alone."""
    ids = [f"loop{next(_numbers)}" for _ in range(LOOPS)]
    for id in ids:
        assert await ask(f"/v1/loops/{id}", b'{"task": "task"}') == 201
    began = time.perf_counter()
    for id in ids:
        for number, body in enumerate(BODIES, 1):
            assert await ask(f"/v1/loops/{id}/attempts/{number}", body) == 200
    return time.perf_counter() - began


@contextmanager
def serve(folder: str, db: str = "", **settings: str) -> Iterator[tuple[str, int]]:
    """Run `heedful serve`; yield its URL and process id."""
    if not db:  # not a repository's
        db = str(Path(folder, "heedful.db").absolute())
    with Path(folder, "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "heedful.cli", "serve", "--port", "0", "--db", db],
            cwd=folder,
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        assert process.stdout is not None
        match = re.search(r"http://\S+", process.stdout.readline().decode())
        assert match is not None, Path(folder, "log").read_text().strip()
        yield match.group(), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


async def load_service(
    url: str, clients: int, loops: int, fresh: bool, key: str = ""
) -> tuple[float, list[float]]:
    """Return the seconds in all, and those of each report.

    The loops have the same task, or a `fresh` one each.
    """
    waits: list[float] = []

    async def client() -> None:
        async with connect(url, key=key) as ask:
            for _ in range(loops):
                id = f"load{next(_numbers)}"
                task = f"weigh item {id} and name its unit" if fresh else "task"
                assert (
                    await ask(f"/v1/loops/{id}", json.dumps({"task": task}).encode())
                    == 201
                )
                for number, body in enumerate(BODIES, 1):
                    began = time.perf_counter()
                    assert await ask(f"/v1/loops/{id}/attempts/{number}", body) == 200
                    waits.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - began, waits


@asynccontextmanager
async def connect(url: str, method: str = "PUT", key: str = "") -> AsyncIterator[Ask]:
    """Open a client with one connection that leaves the processor to the service."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)

    async def ask(path: str, body: bytes) -> int:
        head = f"{method} {path} HTTP/1.1\r\nHost: {place.netloc}\r\n"
        head += "Content-Type: application/json\r\n"
        if key:
            head += f"Authorization: Bearer {key}\r\n"
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

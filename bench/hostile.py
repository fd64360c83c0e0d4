"""A service under attack: memory and log that a stranger, or the holder of a key, can
make it use.

Each attack has a service of its own, on SQLite. Memory is the growth of the largest
resident set.
"""

from __future__ import annotations

import json
import re
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import httpx

from bench.rows import Figure
from tests.service.running import Service

MIB = 2**20
OPEN_FILES = 256
JSON = {"Content-Type": "application/json"}
Attack = Callable[[Service], Iterable[Figure]]


def figures(folder: str) -> Iterable[Figure]:
    """Attack a service in each way, and measure what is left of it."""
    for attack in (
        send_methods,
        send_nonsense,
        open_connections,
        store_large_loops,
        send_spans,
        send_secrets,
        send_dense_lists,
        ask_pages,
    ):
        with serve(Path(mkdtemp(dir=folder))) as service:
            before = largest_resident(service)
            written = log_bytes(service)
            yield from attack(service)
            name = (attack.__doc__ or "").partition(":")[0]
            limit = MEMORY.get(attack, 20)
            yield Figure(
                name=f"{name}: memory",
                value=largest_resident(service) - before,
                unit="MiB",
                most=limit,
            )
            yield Figure(
                name=f"{name}: log",
                value=(log_bytes(service) - written) / 1024,
                unit="KiB",
                most=64,
            )


@contextmanager
def serve(folder: Path) -> Iterator[Service]:
    """Start a service with few descriptors, and let it answer once."""
    had = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, had[1]))
    service = Service(folder)
    resource.setrlimit(resource.RLIMIT_NOFILE, had)
    try:
        httpx.put(
            f"{service.url}/v1/loops/first", json={"task": "begin"}
        ).raise_for_status()
        yield service
    finally:
        service.end()


def largest_resident(service: Service) -> float:
    """Return the MiB of the largest resident set so far."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match is not None, status
    return int(match[1]) / 1024


def log_bytes(service: Service) -> int:
    """Return the bytes of the log of the service."""
    return Path(f"/proc/{service.process.pid}/fd/2").stat().st_size


def connect(service: Service) -> socket.socket:
    """Open a connection to the service."""
    host, _, port = service.url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def send_methods(service: Service) -> Iterable[Figure]:
    """6,000 made-up methods: they make no label of a metric."""
    for first in range(0, 6_000, 100):
        with connect(service) as line:
            for n in range(first, first + 100):
                line.sendall(b"M%d /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" % n)
                line.recv(65_536)
    size = len(httpx.get(f"{service.url}/metrics").content)
    yield Figure(
        name="6,000 made-up methods: /metrics", value=size / 1024, unit="KiB", most=64
    )


def send_nonsense(service: Service) -> Iterable[Figure]:
    """10,000 requests that are no HTTP: each is refused."""
    bodies = (
        b"\r\n",
        b"POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    )
    for n in range(10_000):
        with connect(service) as line:
            line.sendall(bodies[n % 2])
            line.recv(65_536)
    yield from ()


def open_connections(service: Service) -> Iterable[Figure]:
    """2,000 connections that say nothing: the service answers others."""
    with ExitStack() as lines:
        for _ in range(2_000):
            lines.enter_context(connect(service))
        time.sleep(3)
        answered = 0
        for _ in range(10):
            with suppress(httpx.HTTPError):
                answered += httpx.get(f"{service.url}/v1/loops", timeout=5).is_success
        yield Figure(
            name="2,000 silent connections: calls answered of 10",
            value=answered,
            unit="",
            least=10,
        )


def store_large_loops(service: Service) -> Iterable[Figure]:
    """25 loops of 1.5 MB: a list and a replay read no outputs."""
    with httpx.Client(base_url=service.url, timeout=60) as client:
        for n in range(25):
            client.put(f"/v1/loops/{n}", json={"task": "write much"}).raise_for_status()
            body = {"output": f"{n:09} " * 150_000, "evaluation": {}}
            client.put(f"/v1/loops/{n}/attempts/1", json=body).raise_for_status()
        before = largest_resident(service)
        lists = [client.get("/v1/loops").raise_for_status() for _ in range(5)]
        yield Figure(
            name="25 loops of 1.5 MB: listed",
            value=largest_resident(service) - before,
            unit="MiB",
            most=20,
        )
        yield Figure(
            name="25 loops of 1.5 MB: the list",
            value=len(lists[0].content) / 1024,
            unit="KiB",
        )
        before = largest_resident(service)
        for _ in range(5):
            client.post("/v1/replay", json={"policies": ["default"]}).raise_for_status()
        yield Figure(
            name="25 loops of 1.5 MB: replayed",
            value=largest_resident(service) - before,
            unit="MiB",
            most=20,
        )


def send_spans(service: Service) -> Iterable[Figure]:
    """6 MB of empty spans: they are refused before they are objects."""
    for span, kind in ((b"{},", "json"), (b"\x12\x00", "x-protobuf")):
        before = largest_resident(service)
        many = 6_000_000 // len(span)
        body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[%s{}]}]}]}' % (span * many)
        if kind != "json":
            body = span * many
            for tag in (b"\x12", b"\x0a"):
                body = tag + varint(len(body)) + body
        sent = {"Content-Type": f"application/{kind}"}
        answer = httpx.post(
            f"{service.url}/v1/traces", content=body, headers=sent, timeout=60
        )
        assert answer.status_code in (400, 413), answer.text
        yield Figure(
            name=f"6 MB of empty spans ({kind})",
            value=largest_resident(service) - before,
            unit="MiB",
            most=60,
        )


def varint(number: int) -> bytes:
    """Return a number as protobuf writes it."""
    return (
        bytes([number & 127 | 128]) + varint(number >> 7)
        if number > 127
        else bytes([number])
    )


def send_secrets(service: Service) -> Iterable[Figure]:
    """200,000 keys named secret: redaction takes no more than for other keys."""
    output = [{"secret": f"{n:06}"} for n in range(200_000)]
    yield from measure_wait(
        service, "200,000 keys named secret", {"output": output, "evaluation": {}}
    )


def send_dense_lists(service: Service) -> Iterable[Figure]:
    """500,000 empty lists: nobody else waits for them."""
    yield from measure_wait(
        service, "500,000 lists", {"output": [[]] * 500_000, "evaluation": {}}
    )


def measure_wait(service: Service, name: str, body: Any) -> Iterable[Figure]:
    """Measure how long another caller waits while the service reads a body."""
    waits = [0.0]
    ended = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=service.url, timeout=60) as client:
            while not ended.is_set():
                began = time.perf_counter()
                client.get("/healthz")
                waits.append(time.perf_counter() - began)

    other = threading.Thread(target=ask)
    other.start()
    sent = json.dumps(body, separators=(",", ":")).encode()
    began = time.perf_counter()
    url = f"{service.url}/v1/loops/first/attempts/1"
    answer = httpx.put(url, content=sent, headers=JSON, timeout=120)
    took = time.perf_counter() - began
    ended.set()
    other.join()
    answer.raise_for_status()
    yield Figure(name=f"{name}: the answer", value=took, unit="s")
    yield Figure(
        name=f"{name}: the longest wait of another caller",
        value=max(waits),
        unit="s",
        most=0.5,
    )


def ask_pages(service: Service) -> Iterable[Figure]:
    """200 calls of /docs: the page is made once."""
    with httpx.Client(base_url=service.url, timeout=60) as client:
        client.get("/docs").raise_for_status()
        before = processor_seconds(service)
        for _ in range(200):
            client.get("/docs").raise_for_status()
    yield Figure(
        name="200 calls of /docs: processor",
        value=processor_seconds(service) - before,
        unit="s",
        most=1,
    )


def processor_seconds(service: Service) -> float:
    """Return the seconds of processor time that the service has used."""
    used = (
        Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
    )
    return (int(used[11]) + int(used[12])) / 100


MEMORY: dict[Attack, float] = {
    store_large_loops: 100,
    send_spans: 60,
    send_secrets: 150,
    send_dense_lists: 150,
}

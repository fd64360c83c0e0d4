"""A service under attack: memory and log that a stranger, or the holder of a key, can
make it use, and how long a neighbour then waits.

Each attack has a service of its own, on SQLite. Memory is the growth of the largest
resident set. The neighbour has a key of another tenant and sends light requests, one at
a time, before the attack and during it.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import httpx

from bench.http import cpu_seconds, resident_megabytes
from bench.rows import Figure
from bench.timing import percentile
from heedful.store import keys
from heedful.store.sqlite import in_file
from tests.service.running import Service

OPEN_FILES = 256
JSON = {"Content-Type": "application/json"}
Attack = Callable[[Service], Iterable[Figure]]
Work = Callable[[], object]
Request = tuple[str, str, Any]  # method, path and body
DENSE = [[0, 0, 0, 0, 0]] * 125_000  # 1.5 MB of JSON, as dense as a body may be
MAX_RATIO = 3  # of the neighbour's p99 with and without the attack
MAX_P99 = 300  # milliseconds, of the neighbour during the attack
MAX_RESIDENT = 300  # MiB, of the service in all
MAX_PACKED_WAIT = 1_000  # milliseconds, of the neighbour while large bodies arrive
PACKED_AT_ONCE = (8, 64, 128)  # bodies; 64 is what a proxy lets through for an address
QUIET_SECONDS = 4.0  # during which the neighbour is measured without the attack
ATTACK_SECONDS = 6.0  # the attack is repeated for at least so long


def figures(folder: str) -> Iterable[Figure]:
    """Attack a service in each way, and measure what is left of it."""
    for attack in (
        send_methods,
        send_nonsense,
        store_large_loops,
        send_spans,
        send_secrets,
        send_dense_lists,
        send_dense_bodies,
        send_packed_bodies,
        show_large_loops,
        show_many_findings,
        replay_large_loops,
        report_many_findings,
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
    for n in range(6_000):
        # The service ends a connection with a method that no HTTP has.
        with connect(service) as line:
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
            line.shutdown(socket.SHUT_WR)  # else an empty line may begin a request
            line.recv(65_536)
    yield from ()


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
    """130,000 keys named secret: redaction takes no more than for other keys."""
    output = [{"secret": f"{n:06}"} for n in range(130_000)]
    yield from measure_wait(
        service, "130,000 keys named secret", {"output": output, "evaluation": {}}
    )


def send_dense_lists(service: Service) -> Iterable[Figure]:
    """130,000 empty lists: nobody else waits for them."""
    yield from measure_wait(
        service, "130,000 lists", {"output": [[]] * 130_000, "evaluation": {}}
    )


def measure_wait(service: Service, name: str, body: Any) -> Iterable[Figure]:
    """Measure how long another caller waits while the service reads a body."""
    sent = json.dumps(body, separators=(",", ":")).encode()
    url = f"{service.url}/v1/loops/first/attempts/1"
    answers: list[httpx.Response] = []

    def send() -> None:
        answers.append(httpx.put(url, content=sent, headers=JSON, timeout=120))

    with httpx.Client(base_url=service.url, timeout=60) as client:
        waits = waits_during(send, client, [("GET", "/healthz", None)])
    (answer,) = answers
    answer.raise_for_status()
    yield Figure(
        name=f"{name}: the answer", value=answer.elapsed.total_seconds(), unit="s"
    )
    yield Figure(
        name=f"{name}: the longest wait of another caller",
        value=max(waits),
        unit="s",
        most=0.5,
    )


def waits_during(
    work: Work, client: httpx.Client, requests: Sequence[Request]
) -> list[float]:
    """Return how many seconds each request of another caller takes during `work`."""
    waits: list[float] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            for method, path, body in requests:
                began = time.perf_counter()
                client.request(method, path, json=body).raise_for_status()
                waits.append(time.perf_counter() - began)

    other = threading.Thread(target=ask)
    other.start()
    work()
    ended.set()
    other.join()
    return waits


class Tenants:
    """An attacker and a neighbour, each with a key of a tenant of its own."""

    def __init__(self, service: Service) -> None:
        self.service = service
        folder = Path(f"/proc/{service.process.pid}/cwd").resolve()
        attacker, self.neighbour = asyncio.run(create_keys(folder / "heedful.db"))
        self.client = httpx.Client(
            base_url=service.url,
            headers={"Authorization": f"Bearer {attacker}"},
            timeout=300,
        )
        # The service may not know for a second that it has keys now.
        time.sleep(1.5)

        signed_in = self.client.post(
            "/ui/sign-in", data={"key": attacker}, headers={"Origin": service.url}
        )
        assert signed_in.status_code == 303, signed_in.text

    def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Send a request of the attacker, which must succeed or be told to wait."""
        content = None
        if body is not None:
            content = json.dumps(body, separators=(",", ":")).encode()
        answer = self.client.request(method, path, content=content, headers=JSON)
        assert answer.status_code < 400 or answer.status_code in (409, 413, 429, 503), (
            answer.text[:500]
        )
        return answer

    def measure(
        self, name: str, works: Sequence[Work], at_once: int = 1
    ) -> Iterable[Figure]:
        """Measure how long the neighbour waits without and with an attack.

        Each of `at_once` threads does all `works` again and again.
        """
        quiet = self._waits_of_neighbour(partial(time.sleep, QUIET_SECONDS))
        attacked = self._waits_of_neighbour(partial(repeat, works, at_once))
        before = percentile(quiet, 99) * 1000
        during = percentile(attacked, 99) * 1000
        yield Figure(name=f"{name}: neighbour's p99 before", value=before, unit="ms")
        yield Figure(
            name=f"{name}: neighbour's p99", value=during, unit="ms", most=MAX_P99
        )
        yield Figure(
            name=f"{name}: neighbour's p99, times that before",
            value=during / before,
            unit="",
            most=MAX_RATIO,
        )
        yield Figure(
            name=f"{name}: neighbour's longest wait",
            value=max(attacked) * 1000,
            unit="ms",
        )
        yield Figure(
            name=f"{name}: resident",
            value=largest_resident(self.service),
            unit="MiB",
            most=MAX_RESIDENT,
        )

    def waits_of_writes(self, work: Work) -> list[float]:
        """Return how many seconds each write of the neighbour takes during `work`."""
        lesson = {"error_type": "BeginError", "text": "begin", "lesson": "Begin."}
        return self._waits_of(work, [("POST", "/v1/reflections", lesson)])

    def _waits_of_neighbour(self, work: Work) -> list[float]:
        """Return how many seconds each request of the neighbour takes during `work`."""
        requests = [
            ("GET", "/v1/loops/first", None),
            ("POST", "/v1/recall", {"task": "begin"}),
        ]
        return self._waits_of(work, requests)

    def _waits_of(self, work: Work, requests: Sequence[Request]) -> list[float]:
        """Return how many seconds each of these requests takes during `work`."""
        authorization = {"Authorization": f"Bearer {self.neighbour}"}
        with httpx.Client(
            base_url=self.service.url, headers=authorization, timeout=300
        ) as client:
            client.put("/v1/loops/first", json={"task": "begin"})
            return waits_during(work, client, requests)


async def create_keys(path: Path) -> list[str]:
    """Return a key of the tenant `attacker`, and one of the tenant `neighbour`."""
    store = in_file(str(path))
    texts = []
    for tenant in ("attacker", "neighbour"):
        _, text = await keys.create(store, tenant, tenant, may=["read", "write"])
        texts.append(text)
    await store.close()
    return texts


def repeat(works: Sequence[Work], at_once: int) -> None:
    """Do all `works` again and again in `at_once` threads, for `ATTACK_SECONDS`."""
    until = time.monotonic() + ATTACK_SECONDS

    def do_all() -> None:
        while time.monotonic() < until:
            for work in works:
                work()

    threads = [threading.Thread(target=do_all) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def begin_large_loops(tenants: Tenants) -> None:
    """Begin 12 loops with dense tasks of 1.5 MB, and report an attempt of each."""
    for n in range(12):
        tenants.send("PUT", f"/v1/loops/large{n}", {"task": DENSE})
        tenants.send("PUT", f"/v1/loops/large{n}/attempts/1", wrong_attempt(1, n))


def wrong_attempt(findings: int, number: int, message: str = "no unit") -> Any:
    """Return an attempt with so many findings, all different."""
    return {
        "output": f"answer {number}",
        "evaluation": {
            "findings": [
                {"check": f"check {n}", "message": f"{message} {number} {n}"}
                for n in range(findings)
            ]
        },
    }


PAGES = (
    "/ui/home",
    "/ui/loops",
    "/ui/loops/large3",
    "/ui/health",
    "/ui/pipelines",
    "/ui/work",
)


def show_large_loops(service: Service) -> Iterable[Figure]:
    """12 loops of 1.5 MB on pages: a page reads no more than it shows."""
    tenants = Tenants(service)
    begin_large_loops(tenants)
    sizes = []

    def show(path: str) -> None:
        page = tenants.client.get(path, follow_redirects=True)
        sizes.append(len(page.content))

    works: list[Work] = []
    for path in PAGES:
        works += [partial(show, path), partial(show, f"{path}.json")]
    for at_once in (1, 3):
        yield from tenants.measure(
            f"12 loops of 1.5 MB on pages, {at_once} at once", works, at_once
        )
    yield Figure(
        name="12 loops of 1.5 MB on pages: the largest page",
        value=max(sizes) / 1024,
        unit="KiB",
        most=4096,
    )


def show_many_findings(service: Service) -> Iterable[Figure]:
    """Attempts of 1,000 findings, as many as a loop may have: its page is short."""
    tenants = Tenants(service)
    policy = {"rules": [{"rule": "attempts", "limit": 60}]}
    tenants.send("PUT", "/v1/loops/many", {"task": "begin", "policy": policy})
    for number in range(1, 28):
        body = wrong_attempt(1_000, number, message="x" * 500)
        answer = tenants.send("PUT", f"/v1/loops/many/attempts/{number}", body)
        if answer.status_code == 413:
            break  # a loop may have 8 MiB

    addresses = (
        "/ui/loops/many",
        "/ui/loops/many.json",
        "/v1/loops/many/explain",
        "/v1/loops/many",
    )
    get = partial(tenants.client.get, follow_redirects=True)
    works: list[Work] = [partial(get, address) for address in addresses]
    yield from tenants.measure("a loop of many findings", works)


def replay_large_loops(service: Service) -> Iterable[Figure]:
    """25 loops of 2 MB are replayed: a few at a time, each decided and dropped."""
    tenants = Tenants(service)
    for n in range(25):
        tenants.send("PUT", f"/v1/loops/large{n}", {"task": DENSE})
        body = wrong_attempt(1_000, n, message="x" * 500)
        tenants.send("PUT", f"/v1/loops/large{n}/attempts/1", body)

    replay = partial(tenants.send, "POST", "/v1/replay", {"policies": ["default"]})
    for at_once in (1, 3):
        yield from tenants.measure(
            f"25 loops of 2 MB replayed, {at_once} at once", [replay], at_once
        )


def report_many_findings(service: Service) -> Iterable[Figure]:
    """40 attempts of 60 findings are reported: others go on."""
    tenants = Tenants(service)
    policy = {"rules": [{"rule": "attempts", "limit": 40}]}
    slowest = [0.0]
    rounds = iter(range(1_000))

    def report_all(message: str) -> None:
        name = f"reported{next(rounds)}"
        tenants.send("PUT", f"/v1/loops/{name}", {"task": "begin", "policy": policy})
        for number in range(1, 41):
            began = time.perf_counter()
            body = wrong_attempt(60, number, message)
            tenants.send("PUT", f"/v1/loops/{name}/attempts/{number}", body)
            slowest.append(time.perf_counter() - began)

    for kind, message in (("short", "no unit"), ("long", "no unit in line " * 60)):
        name = f"40 attempts of 60 {kind} findings reported"
        yield from tenants.measure(name, [partial(report_all, message)])
        yield Figure(
            name=f"{name}: the slowest report", value=max(slowest) * 1000, unit="ms"
        )


def send_dense_bodies(service: Service) -> Iterable[Figure]:
    """Dense bodies of 1.5 MB: the neighbour does not wait for them."""
    tenants = Tenants(service)
    rounds = iter(range(1_000))

    def send_all() -> None:
        tenants.send("PUT", f"/v1/loops/dense{next(rounds)}", {"task": DENSE})
        for path, body in (
            ("/v1/validate", {"stage": "a", "output": DENSE, "checks": []}),
            ("/v1/recall", {"task": DENSE}),
            ("/v1/replay", DENSE),
        ):
            tenants.client.post(path, json=body)

    yield from tenants.measure("dense bodies of 1.5 MB", [send_all])


def send_packed_bodies(service: Service) -> Iterable[Figure]:
    """16 MiB in 16 kB of gzip: a body that waits for its turn is still small."""
    tenants = Tenants(service)
    text = "a" * (16 * 2**20 - 200)
    body = gzip.compress(json.dumps({"resourceSpans": [], "x": text}).encode())
    head = (
        "POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Authorization: {tenants.client.headers['Authorization']}\r\n"
        "Content-Type: application/json\r\nContent-Encoding: gzip\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body
    for at_once in PACKED_AT_ONCE:
        name = f"{at_once} bodies of 16 MiB in 16 kB of gzip"
        statuses: list[int] = []
        send = partial(send_at_once, service, request, at_once, statuses)
        before = tenants.waits_of_writes(partial(time.sleep, QUIET_SECONDS))
        waits = tenants.waits_of_writes(send)
        yield Figure(
            name=f"{name}: neighbour's longest wait before",
            value=max(before) * 1000,
            unit="ms",
        )
        yield Figure(
            name=f"{name}: neighbour's longest wait",
            value=max(waits) * 1000,
            unit="ms",
            most=MAX_PACKED_WAIT,
        )
        yield Figure(
            name=f"{name}: told to send fewer", value=statuses.count(429), unit=""
        )
        yield Figure(
            name=f"{name}: resident",
            value=largest_resident(service),
            unit="MiB",
            most=MAX_RESIDENT,
        )
        yield Figure(
            name=f"{name}: resident after",
            value=resident_megabytes(service.process.pid) * 1e6 / 2**20,
            unit="MiB",
        )


def send_at_once(
    service: Service, request: bytes, count: int, statuses: list[int]
) -> None:
    """Send a request on so many connections; add the statuses of the answers."""
    with ExitStack() as stack:
        lines = [stack.enter_context(connect(service)) for _ in range(count)]
        for line in lines:
            line.settimeout(300)
            line.sendall(request)
        for line in lines:
            answer = line.makefile("rb").read()
            statuses.append(int(answer.split(b" ", 2)[1]))
    assert set(statuses) <= {200, 429}, statuses


def ask_pages(service: Service) -> Iterable[Figure]:
    """200 calls of /docs: the page is made once."""
    with httpx.Client(base_url=service.url, timeout=60) as client:
        client.get("/docs").raise_for_status()
        before = cpu_seconds(service.process.pid)
        for _ in range(200):
            client.get("/docs").raise_for_status()
    yield Figure(
        name="200 calls of /docs: processor",
        value=cpu_seconds(service.process.pid) - before,
        unit="s",
        most=1,
    )


MEMORY: dict[Attack, float] = {
    store_large_loops: 100,
    send_spans: 60,
    send_secrets: 150,
    send_dense_lists: 150,
    send_dense_bodies: 250,
    send_packed_bodies: 220,
    show_large_loops: 250,
    show_many_findings: 250,
    replay_large_loops: 250,
    report_many_findings: 250,
}

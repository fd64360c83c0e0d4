"""Pages flooded at once, and live pages that hold more streams open than there are.

Every visitor gets the page or is told to come back, a program of another tenant is
answered all the time, and when the visitors are gone the service has as many open
files as before.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from heedful.store import keys
from heedful.store.keys import KEY_PERMISSIONS
from heedful.store.sqlite import in_file
from tests.conftest import SOAK
from tests.service.running import Service
from tests.soak.ledger import Ledger, Trial
from tests.soak.test_load import PAGES

pytestmark = [pytest.mark.soak, pytest.mark.nightly]
VISITORS = 8 if SOAK == 1 else 50
ROUNDS = max(1, SOAK // 50)
STREAMS = 80  # of one tenant; a service has 64
SECONDS = 120.0
LATER = (429, 503)
# What uvicorn and the store may have opened meanwhile, such as readers of a lane.
MORE_DESCRIPTORS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Flooded:
    """A service, and the keys of two tenants that use it."""

    service: Service
    ours: str
    theirs: str


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flooded]:
    folder = tmp_path_factory.mktemp("flooded")
    ours = asyncio.run(_key(folder, "ours"))
    theirs = asyncio.run(_key(folder, "theirs"))
    service = Service(folder, "--key-required")
    yield Flooded(service=service, ours=ours, theirs=theirs)
    assert service.end() == 0, (folder / "log").read_text()


async def _key(folder: Path, tenant: str) -> str:
    store = in_file(str(folder / "heedful.db"))
    _, key = await keys.create(
        store, tenant, "soak", projects=["main"], may=KEY_PERMISSIONS
    )
    await store.close()
    return key


def _descriptors(service: Service) -> int:
    return len(list(Path(f"/proc/{service.process.pid}/fd").iterdir()))


async def _visitor(service: Service, key: str) -> httpx.AsyncClient:
    """Sign in with a key; the session is in the cookies."""
    client = httpx.AsyncClient(base_url=service.url, timeout=SECONDS)
    answer = await client.post(
        "/ui/sign-in", data={"key": key}, headers={"origin": service.url}
    )
    assert answer.status_code == 303, answer.text
    return client


async def _program(service: Service, key: str, done: asyncio.Event) -> int:
    """Report loops of another tenant until it is done; return how many."""
    headers = {"Authorization": f"Bearer {key}"}
    count = 0
    async with httpx.AsyncClient(
        base_url=service.url, headers=headers, timeout=SECONDS
    ) as client:
        while not done.is_set() or count == 0:
            body = {"task": "Weigh the parcel."}
            answer = await client.put(f"/v1/loops/{os.urandom(8).hex()}", json=body)
            # While the flood is let in, all places may be taken for a moment.
            if answer.status_code == 503:
                await asyncio.sleep(float(answer.headers["retry-after"]))
                continue
            assert answer.status_code == 201, answer.text
            count += 1
    return count


async def test_pages_flooded_at_once_are_drawn_or_put_off(
    flooded: Flooded, ledger: Ledger
) -> None:
    service = flooded.service
    statuses: Counter[int] = Counter()
    leaked = 0
    done = asyncio.Event()
    program = asyncio.create_task(_program(service, flooded.theirs, done))

    async def look(client: httpx.AsyncClient, path: str) -> None:
        nonlocal leaked
        answer = await client.get(f"/ui{path}?project=main")
        assert answer.status_code in (200, *LATER), answer.text
        if answer.status_code in LATER:
            assert answer.headers["retry-after"]
        statuses[answer.status_code] += 1
        leaked += "Weigh the parcel" in answer.text

    async with AsyncExitStack() as stack:
        visitors = [await _visitor(service, flooded.ours) for _ in range(VISITORS)]
        for client in visitors:
            stack.push_async_callback(client.aclose)
        before = _descriptors(service)
        for _ in range(ROUNDS):
            await asyncio.gather(
                *(look(client, path) for client in visitors for path in PAGES)
            )
    done.set()
    reported = await program
    health = await asyncio.to_thread(httpx.get, f"{service.url}/readyz")
    assert health.status_code == 200
    assert _descriptors(service) <= before + MORE_DESCRIPTORS
    ledger.settle(
        Trial(
            what=f"{VISITORS} visitors open all {len(PAGES)} pages at once",
            note=f"{statuses[200]} drawn, {statuses.total() - statuses[200]} put off; "
            f"{reported} reports of another tenant meanwhile",
            engine="SQLite",
            times=statuses.total(),
            seed=SOAK,
            leaked=leaked,
        )
    )


async def test_streams_held_open_leave_room_for_others(
    flooded: Flooded, ledger: Ledger
) -> None:
    service = flooded.service
    client = await _visitor(service, flooded.ours)
    other = await _visitor(service, flooded.theirs)
    address = ("127.0.0.1", int(service.url.rpartition(":")[2]))
    cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    ask = (
        f"GET /ui/events?project=main HTTP/1.1\r\nHost: 127.0.0.1:{address[1]}\r\n"
        f"Cookie: {cookies}\r\n\r\n"
    )
    before = _descriptors(service)
    lines = []
    statuses: Counter[bytes] = Counter()
    for _ in range(STREAMS):
        # Nobody reads it: a slow reader holds no more than its stream.
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        line.settimeout(SECONDS)
        await asyncio.to_thread(line.connect, address)
        await asyncio.to_thread(line.sendall, ask.encode())
        head = await asyncio.to_thread(line.recv, 16)
        statuses[head[9:12]] += 1
        lines.append(line)

    done = asyncio.Event()
    done.set()
    reported = await _program(service, flooded.theirs, done)
    theirs = await other.get("/ui/loops?project=main")
    page = await client.get("/ui/loops?project=main")
    for line in lines:
        line.close()
    await client.aclose()
    await other.aclose()

    # Those beyond the limit are told to ask again later.
    assert set(statuses) == {b"200"}
    assert theirs.status_code == 200
    assert page.status_code == 200
    assert reported == 1
    deadline = asyncio.get_running_loop().time() + SECONDS
    while _descriptors(service) > before + MORE_DESCRIPTORS:
        assert asyncio.get_running_loop().time() < deadline, "streams stay open"
        await asyncio.sleep(0.1)
    ledger.settle(
        Trial(
            what=f"{STREAMS} live streams of one tenant held open by readers that read "
            "nothing",
            note="another tenant sees its pages and reports",
            engine="SQLite",
            times=STREAMS,
            seed=SOAK,
        )
    )

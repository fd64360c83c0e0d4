"""Large bodies take turns: who reads on, who waits, and what ends a turn."""

import asyncio
import gc
import gzip
import json
import tracemalloc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from starlette.types import Message

from heedful.validation import MAX_READ_BYTES
from heedful_server import bodies
from heedful_server.problems import Problem
from heedful_server.setup import MAX_HEAVY_CALLS
from tests.service.running import WAITING
from tests.service.support import Api, served
from tests.tables import cases

T = TypeVar("T")
LARGE = json.dumps(
    {"stage": "a", "checks": [], "output": MAX_READ_BYTES * "x"}
).encode()
# The part after which a body needs its turn, and the rest.
BEGIN = LARGE[: MAX_READ_BYTES + 1]
REST = LARGE[MAX_READ_BYTES + 1 :]
SMALL = {"stage": "a", "checks": [], "output": "x"}


@pytest.fixture
def api(tmp_path):
    with served(tmp_path) as api:
        yield api


class Upload:
    """A request of a client that sends its body in parts, when the test says so."""

    def __init__(self, api: Api, key: str, **headers: str) -> None:
        self._parts = asyncio.Queue[Message]()
        self._reads = asyncio.Semaphore(0)
        self.is_reading = False  # whether the service waits for a part
        self.status = 0
        self.content = b""
        fields = {
            "authorization": f"Bearer {key}",
            "content-type": "application/json",
            **headers,
        }
        scope = {
            "type": "http",
            "http_version": "1.1",
            "scheme": "http",
            "method": "POST",
            "path": "/v1/validate",
            "raw_path": b"/v1/validate",
            "root_path": "",
            "query_string": b"",
            "headers": [
                (name.encode(), value.encode()) for name, value in fields.items()
            ],
        }
        self._answer = asyncio.create_task(api.app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        self.is_reading = self._parts.empty()
        self._reads.release()
        message = await self._parts.get()
        self.is_reading = False
        return message

    async def _send(self, message: Message) -> None:
        self.status = message.get("status", self.status)
        self.content += message.get("body", b"")

    def send(self, part: bytes, *, is_last: bool = False) -> None:
        """Send a part of the body."""
        self._parts.put_nowait(
            {"type": "http.request", "body": part, "more_body": not is_last}
        )

    def leave(self) -> None:
        """Close the connection."""
        self._parts.put_nowait({"type": "http.disconnect"})

    async def wait_for_reads(self, count: int) -> None:
        """Wait until the service has asked for so many further parts."""
        async with asyncio.timeout(WAITING):
            for _ in range(count):
                await self._reads.acquire()

    async def answer(self) -> int:
        """Return the status of the answer."""
        await asyncio.wait_for(self._answer, WAITING)
        return self.status


async def begin(api: Api, key: str) -> Upload:
    """Return an upload that has a turn: the service asks for the rest of its body."""
    upload = Upload(api, key)
    upload.send(BEGIN)
    await upload.wait_for_reads(2)
    return upload


async def wait_behind(api: Api, key: str) -> Upload:
    """Return an upload that has arrived up to where it needs a turn, and waits."""
    upload = Upload(api, key)
    upload.send(BEGIN)
    await upload.wait_for_reads(1)
    await let_others_go_on(api)
    return upload


async def let_others_go_on(api: Api) -> None:
    """Return after what can go on has gone on."""
    for _ in range(20):
        await api.ask("GET", "/v1/loops/none")


async def finish(upload: Upload) -> int:
    """Send the rest of a body; return the status of the answer."""
    upload.send(REST, is_last=True)
    return await upload.answer()


def test_the_second_large_body_of_a_key_is_not_read_before_the_first_ends(api: Api):
    key = api.key("write")

    async def run() -> None:
        first = await begin(api, key)
        second = await wait_behind(api, key)
        assert not second.is_reading
        assert await finish(first) == 200
        await second.wait_for_reads(1)
        assert await finish(second) == 200

    api.run(run())


def test_another_key_has_a_turn_of_its_own(api: Api):
    keys = [api.key("write"), api.key("write")]

    async def run() -> None:
        first, second = [await begin(api, key) for key in keys]
        assert await finish(second) == 200
        assert await finish(first) == 200

    api.run(run())


def test_so_many_keys_have_a_turn_at_the_same_time(api: Api):
    keys = [api.key("write") for _ in range(MAX_HEAVY_CALLS)]
    late_key = api.key("write")

    async def run() -> None:
        running = [await begin(api, key) for key in keys]
        late = await wait_behind(api, late_key)
        assert not late.is_reading
        assert await finish(running[0]) == 200
        await late.wait_for_reads(1)
        assert await finish(late) == 200
        assert await finish(running[1]) == 200

    api.run(run())


def test_the_second_body_of_a_key_waits_behind_the_first_of_another(api: Api):
    greedy, other, late_key = [api.key("write") for _ in range(3)]

    async def run() -> None:
        first = await begin(api, greedy)
        beside = await begin(api, other)
        second = await wait_behind(api, greedy)
        late = await wait_behind(api, late_key)
        assert await finish(first) == 200
        await late.wait_for_reads(1)
        assert not second.is_reading
        for upload in (late, beside, second):
            assert await finish(upload) == 200

    api.run(run())


def test_a_small_body_does_not_wait(api: Api):
    key = api.key("write")

    async def run() -> int:
        """Return how a small request is answered while large ones wait."""
        first = await begin(api, key)
        second = await wait_behind(api, key)
        small = await api.ask("POST", "/v1/validate", json=SMALL, key=key)
        await finish(first)
        await finish(second)
        return small.status_code

    assert api.run(run()) == 200


async def leave(upload: Upload) -> None:
    """Close the connection of an upload."""
    upload.leave()
    await upload.answer()


async def send_nothing_more(upload: Upload) -> None:
    """Wait until the service gives the upload up."""
    assert await upload.answer() == 408
    assert json.loads(upload.content)["code"] == "body_too_slow"


async def send_too_much(upload: Upload) -> None:
    """Send more than a body may have."""
    upload.send(4 * MAX_READ_BYTES * b"x")
    assert await upload.answer() == 413


@cases(
    "end",
    {
        "the client goes away": leave,
        "the client is slow": send_nothing_more,
        "the body is too large": send_too_much,
    },
)
def test_a_turn_ends_when(
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[Upload], Coroutine[Any, Any, None]],
):
    key = api.key("write")
    if end is send_nothing_more:
        monkeypatch.setattr(bodies, "MAX_SECONDS_PER_MIB", 0.5)

    async def run() -> int:
        """Return how the body is answered that waited for the turn."""
        first = await begin(api, key)
        second = Upload(api, key)
        second.send(BEGIN)
        await second.wait_for_reads(1)
        await end(first)
        await second.wait_for_reads(1)
        return await finish(second)

    assert api.run(run()) == 200


def test_a_client_that_leaves_while_it_waits_takes_no_turn(api: Api):
    key = api.key("write")

    async def run() -> int:
        """Return how a body is answered that waited behind one that nobody sends."""
        first = await begin(api, key)
        gone = await wait_behind(api, key)
        gone.leave()
        third = await wait_behind(api, key)
        await finish(first)
        await gone.answer()
        await third.wait_for_reads(1)
        return await finish(third)

    assert api.run(run()) == 200


def test_a_body_that_waits_is_not_decompressed(api: Api):
    key = api.key("write")
    size = 3 * MAX_READ_BYTES
    packed = gzip.compress(json.dumps({**SMALL, "output": size * "x"}).encode())
    many = 5

    async def run() -> tuple[int, list[int]]:
        """Return the bytes that bodies hold which wait, and their answers."""
        first = await begin(api, key)
        tracemalloc.start()
        waiting = [
            Upload(api, key, **{"content-encoding": "gzip"}) for _ in range(many)
        ]
        for upload in waiting:
            upload.send(packed, is_last=True)
            await upload.wait_for_reads(1)
        await let_others_go_on(api)
        held_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await finish(first)
        return held_bytes, [await upload.answer() for upload in waiting]

    held_bytes, statuses = api.run(run())
    assert held_bytes < many * size / 2
    assert statuses == many * [200]


def test_a_key_has_so_many_bodies_that_wait_at_most(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bodies, "MAX_WAITING_BODIES", 1)
    key = api.key("write")
    other_key = api.key("write")

    async def run() -> None:
        first = await begin(api, key)
        second = await wait_behind(api, key)
        third = Upload(api, key)
        third.send(BEGIN)
        assert await third.answer() == 429
        assert json.loads(third.content)["code"] == "too_many_requests"
        assert await finish(await begin(api, other_key)) == 200
        assert await finish(first) == 200
        assert await finish(second) == 200

    api.run(run())


def test_what_follows_a_gzip_stream_is_refused_before_the_body_ends(api: Api):
    key = api.key("write")

    async def run() -> int:
        """Return how a body is answered that never ends."""
        upload = Upload(api, key, **{"content-encoding": "gzip"})
        upload.send(gzip.compress(json.dumps(SMALL).encode()))
        upload.send(b"more")
        return await upload.answer()

    assert api.run(run()) == 400


def test_a_refused_body_is_not_kept(api: Api):
    gc.collect()
    gc.disable()
    try:
        answer = api.post("/v1/validate", content=5 * MAX_READ_BYTES * b"x")
        problems = [thing for thing in gc.get_objects() if isinstance(thing, Problem)]
    finally:
        gc.enable()
    assert answer.status_code == 413
    assert problems == []

"""A standby of PostgreSQL: memory is read from it, and writes are refused."""

import asyncio

import pytest

from heedful.errors import StoreUnavailable
from heedful.memory.memory import Memory
from heedful.store import keys, open_store
from heedful_server.setup import Setup
from tests.postgres import alone, standby
from tests.service.support import Api, problem, read_data

TASK = "Write the length of a plank"


async def remember(url: str) -> str:
    """Store a lesson and a key on the primary; return the key."""
    memory = Memory(url)
    await memory.remember("unit", "no unit at the plank", lesson="Write the unit.")
    _, key = await keys.create(memory.store, "default", "reader")
    await memory.store.close()
    return key


async def check_library(url: str) -> None:
    memory = Memory(url)
    (match,) = await memory.recall("no unit at the plank")
    assert match.lesson == "Write the unit."
    assert (await memory.seen("unit", "no unit at the plank")).count == 1
    with pytest.raises(StoreUnavailable, match="this server is a standby; name the"):
        await memory.remember("unit", "no unit at the shelf")
    await memory.store.close()


def check_service(url: str, key: str) -> None:
    api = Api(Setup(store=open_store(url)), key=key)
    try:
        answer = read_data(api.post("/v1/recall", json={"task": "no unit"}))
        assert [item["kind"] for item in answer["items"]] == ["error"]
        refused = api.put("/v1/loops/a", json={"task": TASK})
        problem(refused, 503, "store_unavailable")
        assert refused.headers["Retry-After"] == "1"
        assert api.get("/readyz").status_code == 503
        assert api.get("/healthz").status_code == 200
    finally:
        api.close()


def test_a_standby_answers_recall_and_refuses_what_is_written():
    with alone() as primary:
        key = asyncio.run(remember(primary.url("heedful_template", "heedful")))
        with standby(primary) as server:
            url = server.url("heedful_template", "heedful")
            asyncio.run(check_library(url))
            check_service(url, key)

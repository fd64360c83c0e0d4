"""What is large or deep: it is refused, cut, or handled while others go on."""

import asyncio
import re
import threading
from typing import Any

import pytest

from heedful.lessons.lesson import Scope
from heedful.loop.policies import policy
from heedful.loop.replay import RECORDED_POLICY, compare, with_policy_goals
from heedful.store import loops as loop_store
from heedful.store.connection import MAX_SHORT_READ_BYTES, Db, bulk
from heedful.store.offload import Turns, take_turn
from heedful.validation import MAX_READ_BYTES
from heedful_server.app import operations
from heedful_server.auth import Callers
from heedful_server.routes import loop_routes
from tests.service.support import Api, problem, read_data, record, served, wrong
from tests.tables import cases

pytestmark = pytest.mark.both_nightly
SCOPE = Scope("acme", "main")
POLICY = {"rules": [{"rule": "attempts", "limit": 60}]}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The description of the API."""
    with served(tmp_path_factory.mktemp("described")) as api:
        spec: dict[str, Any] = api.app.openapi()
        return spec


def nested(levels: int) -> str:
    """Return JSON of so many lists within each other."""
    return levels * "[" + levels * "]"


def begin(api: Api, name: str) -> None:
    """Begin a loop of at most 60 attempts."""
    record(api, name, policy=POLICY)


def report(api: Api, name: str, number: int, message: str, output: Any = "x") -> Any:
    """Report an attempt with one finding."""
    body = wrong(output, {"check": "unit", "message": message})
    return api.put(f"/v1/loops/{name}/attempts/{number}", json=body)


@cases("levels", {"500 levels": 500, "5,000 levels": 5_000})
def test_every_route_refuses_a_body_that_is_nested_too_deeply(
    api: Api, described: dict[str, Any], levels: int, caplog: pytest.LogCaptureFixture
):
    deep = nested(levels)
    schemas = described["components"]["schemas"]
    count = 0
    for path, method, operation in operations(described):
        content = operation.get("requestBody", {}).get("content", {})
        schema = content.get("application/json", {}).get("schema")
        if schema is None:
            continue

        reference = schema.get("$ref", "").rpartition("/")[2]
        names = schemas.get(reference, schema).get("properties", {"any": {}})
        address = re.sub(r"\{[^}]*\}", "1", path)
        bodies = [deep, *(f'{{"{name}": {deep}}}' for name in names)]
        for body in bodies:
            answer = api.request(
                method.upper(), address, content=body.encode(), headers=JSON
            )
            expected = (400, 413) if path == "/v1/traces" else (422, 428)
            assert answer.status_code in expected, (path, body[:40], answer.text)
            count += 1

    assert count > 50
    assert "Traceback" not in caplog.text


def test_a_loop_has_a_size(api: Api, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loop_routes, "MAX_LOOP_CHARS", 50_000)
    begin(api, "wide")
    read_data(report(api, "wide", 1, "small"))
    refused = report(api, "wide", 2, "small", output=60_000 * "x")
    assert "begin another loop" in problem(refused, 413, "loop_too_large")["detail"]
    read_data(report(api, "wide", 2, "small"))
    # What was answered before is answered again.
    monkeypatch.setattr(loop_routes, "MAX_LOOP_CHARS", 1)
    read_data(report(api, "wide", 2, "small"))


def test_a_body_has_so_many_lists_at_most(api: Api):
    body = {"stage": "a", "output": 100_000 * "[{", "checks": []}
    assert api.post("/v1/validate", json=body).status_code == 200
    dense = {"stage": "a", "output": 210_000 * [[]], "checks": []}
    refused = problem(api.post("/v1/validate", json=dense), 413, "body_too_large")
    assert "at most 209715 brackets" in refused["detail"]


def test_a_replay_in_parts_is_that_of_all_loops(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    for n in range(7):
        begin(api, f"loop {n}")
        for number in range(1, n + 1):
            read_data(report(api, f"loop {n}", number, f"wrong {number % 3}"))
        read_data(api.post(f"/v1/loops/loop {n}/cancel", json={"why": "enough"}))

    notations = ["default", "default, attempts.limit=2"]
    policies = [policy(notation) for notation in notations]
    stored, _ = api.run(api.setup.store.read(SCOPE, loop_store.newest, 100))
    records = with_policy_goals(loop_store.replayable(stored), policies)
    recorded, *others = compare(records, [RECORDED_POLICY, *policies])

    monkeypatch.setattr(loop_store, "REPLAY_CHUNK_LOOPS", 2)
    answer = read_data(api.post("/v1/replay", json={"policies": notations}))
    assert answer["more"] is False
    assert answer["recorded"]["attempts"] == recorded.attempts == 21
    for row, figures in zip(answer["policies"], others, strict=True):
        assert {**row, "policy": ""} == {**figures.plain(), "policy": ""}

    limited = {"policies": notations, "limit": 3}
    answer = read_data(api.post("/v1/replay", json=limited))
    assert answer["more"] is True
    assert answer["recorded"]["loops"] == 3
    assert answer["recorded"]["attempts"] == 4 + 5 + 6

    monkeypatch.setattr(loop_store, "MAX_REPLAY_BYTES", 10)
    answer = read_data(api.post("/v1/replay", json={"policies": notations}))
    assert answer["more"] is True
    assert answer["recorded"]["loops"] == 2


def test_no_read_of_a_loop_waits_for_one_in_bulk(api: Api):
    begin(api, "long")
    read_data(report(api, "long", 1, "wrong", output=2 * MAX_SHORT_READ_BYTES * "x"))
    bulk_begins = threading.Event()
    go_on = threading.Event()

    @bulk
    def wait(db: Db, scope: Scope) -> str:
        """Wait for the other read."""
        bulk_begins.set()
        assert go_on.wait(30)
        return "bulk"

    async def read_both() -> list[str]:
        """Return the results of both reads, in the order in which they end."""
        store = api.setup.store
        long = asyncio.create_task(store.read(SCOPE, wait))
        await asyncio.to_thread(bulk_begins.wait, 30)
        results = [await store.read(SCOPE, lambda db, scope: "short")]
        assert (await api.ask("GET", "/v1/loops/long")).status_code == 200
        go_on.set()
        return [*results, await long]

    assert api.run(read_both()) == ["short", "bulk"]


def test_a_large_loop_that_is_begun_again_waits_for_its_turn(api: Api):
    begin(api, "large")
    begin(api, "small")
    read_data(report(api, "large", 1, "wrong", output=MAX_READ_BYTES * "x"))

    async def begin_again() -> list[Any]:
        """Begin both loops while another call of the key has its turn."""
        body = {"task": "sort", "policy": POLICY}
        caller = await Callers(api.setup).identified(f"Bearer {api._all}")
        admission = api.app.state.admission
        with admission.caller(caller):
            await take_turn("call")
            waiting = asyncio.create_task(api.ask("PUT", "/v1/loops/large", json=body))
            small = await api.ask("PUT", "/v1/loops/small", json=body)
            for _ in range(20):
                await api.ask("GET", "/v1/loops/none")
            assert not waiting.done()
        return [small, await waiting]

    small, large = api.run(begin_again())
    assert read_data(small)["id"] == "small"
    assert len(read_data(large)["made"]) == 1


def test_a_short_read_does_not_wait_for_the_turn_of_a_large_report():
    async def run() -> None:
        """Let a read have its turn while a large call has another."""
        turns = Turns(1)
        with turns.call("a"):
            await take_turn("call")

            async def read() -> None:
                with turns.call("a"):
                    await take_turn("read")

            await asyncio.wait_for(asyncio.create_task(read()), 30)

    asyncio.run(run())


def test_a_call_that_is_cancelled_while_it_waits_ends_no_turn_of_another():
    async def run() -> bool:
        """Cancel a call that waits; return whether the first still has its turn."""
        turns = Turns(1)
        with turns.call("a"):
            await take_turn("call")

            async def wait() -> None:
                with turns.call("a"):
                    await take_turn("call")

            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            another = asyncio.create_task(wait())
            await asyncio.sleep(0)
            waits = not another.done()
        await another
        return waits

    assert asyncio.run(run())

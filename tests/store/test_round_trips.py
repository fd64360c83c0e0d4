"""How often a report waits for PostgreSQL, counted on the wire.

A report reads its loop in one round trip and writes the attempt in another one, unless
it teaches. The memory is written in more.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from heedful.drive.report import AttemptReport, ReportResult, open_loop, report
from heedful.errors import AttemptTaken
from heedful.loop.decide import Again, Policy
from heedful.loop.record import Evaluation, Finding
from heedful.loop.stop import Echo, MaxAttempts, StopRule
from heedful.memory.memory import Memory
from heedful.service import auth
from heedful.service.setup import Setup
from heedful.store import open_store
from heedful.store.store import Store
from tests.service.support import Api
from tests.store.support import SCOPE
from tests.store.wire import Wire, wired

WRONG = Evaluation((Finding("unit", "no unit"),))
READ = 1
WRITE = 1


@pytest.fixture
def wire(postgres) -> Iterator[Wire]:
    with wired(postgres.service) as wire:
        # With one connection, no report has to open another one.
        wire.url += "&pool_size=1"
        yield wire


async def open_reported(store: Store, *rules: StopRule) -> None:
    policy = Policy((*rules, MaxAttempts(9)))
    await open_loop("a", "task", store=store, scope=SCOPE, policy=policy)


async def post_report(store: Store, number: int, output: str) -> ReportResult:
    return await report(
        store,
        scope=SCOPE,
        id="a",
        number=number,
        attempt_report=AttemptReport(output, evaluation=WRONG),
        memory=Memory(store, SCOPE),
    )


async def test_a_report_is_one_round_trip_that_reads_and_one_that_writes(wire):
    store = open_store(wire.url)
    await open_reported(store)

    # The first prepare their statements, which costs no round trip either.
    for number in range(1, 6):
        wire.trips = 0
        result = await post_report(store, number, f"{number} kg")
        assert isinstance(result.verdict, Again)
        assert wire.trips == READ + WRITE
    await store.close()


async def test_the_same_report_again_only_reads(wire):
    store = open_store(wire.url)
    await open_reported(store)
    await post_report(store, 1, "12")

    wire.trips = 0
    again = await post_report(store, 1, "12")
    assert not again.new
    assert wire.trips == READ

    wire.trips = 0
    with pytest.raises(AttemptTaken):
        await post_report(store, 1, "13")
    assert wire.trips == READ
    await store.close()


async def test_only_a_policy_that_counts_other_loops_reads_twice(wire):
    store = open_store(wire.url)
    await open_reported(store, Echo(9, across="scope"))
    await post_report(store, 1, "12")

    wire.trips = 0
    await post_report(store, 2, "13")
    assert wire.trips > READ + WRITE
    await store.close()


def test_a_report_over_http_waits_no_more_than_one_in_the_process(wire, monkeypatch):
    monkeypatch.setattr(auth, "KEY_CACHE_SECONDS", 60.0)
    store = open_store(wire.url)
    body: dict[str, Any] = {
        "evaluation": {"findings": [{"check": "unit", "message": "?"}]}
    }

    with closing(Api(Setup(store=store))) as api:
        assert api.put("/v1/loops/a", json={"task": "task"}).status_code == 201
        for number in (1, 2, 3):
            wire.trips = 0
            path = f"/v1/loops/a/attempts/{number}"
            answer = api.put(path, json={"output": f"{number} kg", **body})
            assert answer.status_code == 200, answer.text
            assert answer.json()["decision"] == "again"
            assert wire.trips == READ + WRITE

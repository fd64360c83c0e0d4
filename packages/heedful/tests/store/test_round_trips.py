"""How often a report waits for PostgreSQL, counted on the wire.

A report reads its loop in one round trip and writes the attempt in another one, unless
it teaches. The memory is written in more.
"""

from collections.abc import Iterator

import pytest

from heedful.drive.report import AttemptReport, ReportResult, open_loop, report
from heedful.errors import AttemptTaken, LeaseLost
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Again, Policy
from heedful.loop.record import Evaluation, Finding
from heedful.loop.stop import MaxAttempts, StopRule
from heedful.memory.memory import Memory
from heedful.store import loops, open_store
from heedful.store.connection import Db, key_of
from heedful.store.records import Head
from heedful.store.store import Store
from tests.store.support import SCOPE
from tests.store.wire import Wire, wired

WRONG = Evaluation((Finding("unit", "no unit"),))
NOTE = {**key_of(SCOPE), "name": "a", "loop": "a", "record": "1", "created": 1.0}
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


# -- what makes it possible


@pytest.mark.both
async def test_an_expectation_that_is_not_met_undoes_the_transaction(store):
    """The work goes on before it is known; nothing of it is written."""
    head = Head(task="task")
    epoch_of_another = {**key_of(SCOPE), "id": "a", "epoch": 7, "lease": 1.0}

    def work(db: Db, scope: Scope) -> None:
        db.insert("note", {**NOTE, "key": "before"})
        db.expect("renew_lease", epoch_of_another, LeaseLost("it is another's"))
        db.insert("note", {**NOTE, "key": "after"})

    await store.write(SCOPE, loops.begin, "a", head)
    with pytest.raises(LeaseLost, match="another's"):
        await store.write(SCOPE, work)
    assert await store.read(SCOPE, loops.notes, "a") == {}

    await store.write(SCOPE, loops.note, "a", "a", {"later": 1})
    assert await store.read(SCOPE, loops.notes, "a") == {"later": 1}

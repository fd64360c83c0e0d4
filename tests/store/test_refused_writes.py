"""Writes that PostgreSQL refuses, or that come to a connection that has ended.

Each gets its own error, and the next one works.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from heedful import run_sync
from heedful.drive.report import AttemptReport, open_loop, report
from heedful.errors import LeaseLost
from heedful.loop.decide import Again, Policy
from heedful.loop.record import Evaluation, Finding
from heedful.loop.stop import MaxAttempts
from heedful.store import loops, open_store
from heedful.store.records import Head
from heedful.store.store import Store
from tests.postgres import rows
from tests.store.support import SCOPE

WRONG = AttemptReport("12", evaluation=Evaluation((Finding("unit", "no unit"),)))
POLICY = Policy((MaxAttempts(9),))
OTHER_EPOCH = 77  # of a driver that another one has replaced


@pytest.fixture
def store(postgres) -> Iterator[Store]:
    """A store with one connection."""
    store = open_store(f"{postgres.service}&pool_size=1")
    yield store
    run_sync(store.close())


async def begin(store: Store, id: str) -> None:
    await open_loop(id, "task", store=store, scope=SCOPE, policy=POLICY)


async def lose(store: Store) -> None:
    """Renew a lease that was lost."""
    with pytest.raises(LeaseLost):
        await store.write(SCOPE, loops.beat, "lost", OTHER_EPOCH)


async def test_after_refused_writes_a_connection_works_as_before(store):
    await begin(store, "lost")
    for n in range(6):
        await begin(store, f"loop{n}")
        await lose(store)
        result = await report(
            store, scope=SCOPE, id=f"loop{n}", number=1, attempt_report=WRONG
        )
        assert isinstance(result.verdict, Again)


@contextmanager
def busy_threads() -> Iterator[None]:
    """Let the server be faster than this process, which has other things to do."""
    has_ended = threading.Event()

    def count() -> None:
        while not has_ended.is_set():
            sum(range(1_000))

    threads = [threading.Thread(target=count) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        has_ended.set()
        for thread in threads:
            thread.join()


@pytest.mark.nightly
async def test_a_refused_write_says_why_however_early_its_error_arrives(store, caplog):
    await begin(store, "lost")
    with busy_threads():
        for _ in range(60):
            await lose(store)
    assert caplog.text == ""


async def test_a_write_to_a_connection_that_the_server_has_ended_is_done_again(
    store, postgres
):
    driven = await store.write(
        SCOPE, loops.claim, "driven", Head(task="task"), loops.new_owner()
    )
    for _ in range(3):
        await store.read(SCOPE, loops.read, "driven")
        ended = rows(
            postgres.superuser,
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid() "
            # A worker of the server's own vacuum may be in the database, too.
            "and backend_type = 'client backend'",
        )
        assert len(ended) == 1
        await store.write(SCOPE, loops.beat, "driven", driven.epoch)

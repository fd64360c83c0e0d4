"""What becomes of a transaction whose server goes away, at each of its moments, and
comes back.
"""

import asyncio

import pytest

from heedful.drive.report import (
    AttemptReport,
    ReportResult,
    open_loop,
    report as send_report,
)
from heedful.errors import StoreInDoubt, StoreUnavailable
from heedful.loop.record import Evaluation, Finding
from heedful.store import loops, open_store
from heedful.store.connection import Db
from heedful.store.loops import new_owner
from heedful.store.postgres import RETRY_PAUSES_SECONDS
from heedful.store.records import Head
from heedful.store.store import Store
from tests.postgres import alone, rows
from tests.store.support import SCOPE, report
from tests.store.test_postgres import ONE, add, count, opened
from tests.store.wire import wired


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_server_that_goes_away_is_told_and_found_again_without_a_restart(mode):
    with alone() as server:

        async def writes(many: int) -> None:
            await asyncio.gather(*(database.write(ONE, add, ()) for _ in range(many)))

        async with opened(server.url("heedful_template", "heedful")) as database:
            await writes(5)
            server.stop(mode)
            for _ in range(3):
                with pytest.raises(StoreUnavailable, match="see that the server runs"):
                    await database.read(ONE, lambda db: None)
            server.start()
            await writes(5)
            # Restarted while nobody looked: the connections that waited are all dead.
            server.stop(mode)
            server.start()
            await writes(20)
        assert count(server.url("heedful_template", "heedful_owner")) == 30


async def test_work_whose_connection_is_lost_before_its_end_runs_again(postgres):
    """As often as a server restarts, not for ever."""
    runs: list[int] = []

    def ended(db: Db) -> None:
        add(db)
        process = db.execute("select pg_backend_pid() as n").fetchone()["n"]
        runs.append(process)
        if len(runs) <= losses:
            rows(postgres.superuser, "select pg_terminate_backend(%s, 10000)", process)
        add(db)

    async with opened(postgres.service) as database:
        losses = 2
        await database.write(ONE, ended)
        assert len(set(runs)) == 3
        assert count(postgres.owner) == 2
        runs.clear()
        losses = 9
        with pytest.raises(
            StoreUnavailable, match=r"terminating connection.*: the server"
        ):
            await database.write(ONE, ended)
        await database.write(ONE, add)
    assert len(runs) == len(RETRY_PAUSES_SECONDS) + 1
    assert count(postgres.owner) == 3


@pytest.mark.parametrize(("cut", "written"), [("before", 0), ("after", 1)])
async def test_a_commit_that_was_not_acknowledged_is_in_doubt_and_not_repeated(
    postgres, cut, written
):
    runs: list[int] = []

    def once(db: Db) -> None:
        runs.append(1)
        add(db)

    with wired(postgres.service) as wire:
        async with opened(wire.url) as database:
            await database.read(ONE, lambda db: None)
            wire.cut = cut
            with pytest.raises(StoreInDoubt, match="make the same call again"):
                await database.write(ONE, once)
            wire.cut = ""
            assert len(runs) == 1
            assert count(postgres.owner) == written
            await database.write(ONE, add)
    assert count(postgres.owner) == written + 1


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_report_settles_itself_what_was_in_doubt(postgres, cut):
    """Its write is one message with the commit: it cannot know where it was cut."""
    with wired(postgres.service) as wire:
        store = open_store(wire.url)
        await open_loop("a", "task", store=store, scope=SCOPE)

        wire.last_words = b"12 kg"
        wire.cuts = 1
        wire.cut = cut
        result = await reported(store, "12 kg")
        assert wire.cuts == 0
        assert result.new is (cut == "before")

        loop = await store.read(SCOPE, loops.read, "a")
        await store.close()
    assert len(loop.loop.attempts) == 1
    assert len(loop.decisions) == 1


async def reported(store: Store, output: str) -> ReportResult:
    evaluation = Evaluation((Finding("unit", "no unit"),))
    return await send_report(
        store,
        scope=SCOPE,
        id="a",
        number=1,
        attempt_report=AttemptReport(output, evaluation=evaluation),
    )


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_the_same_report_again_settles_what_was_in_doubt(postgres, cut):
    """The loop has the attempt once, whether the first report came through or not."""
    with wired(postgres.service) as wire:
        store = open_store(wire.url)
        owner = new_owner()
        await store.write(SCOPE, loops.claim, "a", Head(task="task"), owner)
        wire.cut = cut
        with pytest.raises(StoreInDoubt):
            await store.write(SCOPE, loops.commit, report("a", 1), owner)
        wire.cut = ""
        await store.write(SCOPE, loops.commit, report("a", 1), owner)
        loop = await store.read(SCOPE, loops.read, "a")
        await store.close()
    assert len(loop.loop.attempts) == 1
    assert len(loop.decisions) == 1

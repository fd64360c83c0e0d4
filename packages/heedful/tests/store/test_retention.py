"""Loops that ended long ago go, whole; what was measured of them stays."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

import heedful
from heedful.lessons.lesson import Exposure, Outcome, Scope
from heedful.store import exposures, loops, retention
from heedful.store.store import Store
from heedful_server import jobs
from heedful_server.jobs import WORKER_ACTOR, Tools
from tests.engines import change_rows, opened, rows
from tests.tables import cases

pytestmark = pytest.mark.both
DAY = 86_400.0
YEAR = 365 * DAY
SCOPE = Scope()
OTHER = Scope("other", "default")
NOW = time.time()
LONG_AGO = NOW - 2 * YEAR


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r.db"


@pytest.fixture
def store(path: Path):
    with opened(path) as store:
        yield store


def answer(task: str, hint: str) -> str:
    return "ok"


async def run_loops(store: Store, ids: Sequence[str], scope: Scope = SCOPE) -> None:
    """Run loops to their ends."""
    for id in ids:
        await heedful.run("task", generate=answer, id=id, store=store, scope=scope)


def let_end(path: Path, at: float, ids: Sequence[str]) -> None:
    """Let loops be changed last at this time, in all scopes."""
    names = ", ".join(f"'{id}'" for id in ids)
    change_rows(path, f"update loop set updated = {at} where id in ({names})")


def ids_in(path: Path, scope: Scope = SCOPE) -> set[str]:
    sql = f"select id from loop where tenant = '{scope.tenant}'"
    return {id for (id,) in rows(path, sql)}


def count_rows(path: Path, table: str) -> int:
    [(number,)] = rows(path, f"select count(*) from {table}")
    return int(number)


async def test_loops_that_ended_long_ago_go_with_all_that_is_theirs(path, store):
    await run_loops(store, ["old", "other old", "new"])
    await run_loops(store, ["old"], scope=OTHER)
    await store.write(SCOPE, loops.note, "old", "old 1", {"reasoning": "because"})
    await store.write(SCOPE, loops.note, "new", "new 1", {"reasoning": "because"})
    await heedful.open_loop("open", "task", store=store)
    let_end(path, LONG_AGO, ["old", "other old", "open"])

    remove = partial(retention.remove, store, SCOPE, ended_for=YEAR, by="ann")
    expired = await store.read(SCOPE, retention.find, time.time() - YEAR)
    assert expired.loops == 2
    assert expired.earliest == expired.latest == LONG_AGO
    assert ids_in(path) == {"old", "other old", "new", "open"}

    assert await remove() == 2
    assert ids_in(path) == {"new", "open"}
    assert ids_in(path, OTHER) == {"old"}
    for table in ("attempt", "decision"):
        assert count_rows(path, table) == 2
    assert rows(path, "select loop from note") == [("new",)]

    # A loop of the same name begins anew.
    result = await heedful.run("another", generate=answer, id="old", store=store)
    assert result.passed


def exposed(loop: str) -> Sequence[Exposure]:
    return [Exposure("error/x", loop, shown=True, signature="x", share=0.5)]


async def test_what_was_measured_is_the_same_before_and_after(path, store):
    """A loop stays whose row a proof reads: it ended without an outcome, or late."""
    ids = ("local", "cancelled", "late", "late, ladder")
    await run_loops(store, ids)
    for id in ids:
        outcome = None
        if id != "cancelled":
            outcome = Outcome(id, True, calls=1, signatures=frozenset())
        await store.write(
            SCOPE, exposures.remember, (), exposures=exposed(id), outcome=outcome
        )
    let_end(path, LONG_AGO, ids)
    ladder = "update loop set ladder = '{}' where id = 'late, ladder'"
    model = "update loop set model = 'small' where id = 'cancelled'"
    exposure = f"update exposure set at = {LONG_AGO - 3 * DAY}"
    outcomes = f"update outcome set at = {LONG_AGO - 3 * DAY}"
    late = f"update outcome set at = {LONG_AGO} where loop like 'late%'"
    for change in (ladder, model, exposure, outcomes, late):
        change_rows(path, change)

    before = await store.read(SCOPE, exposures.evidence)
    assert await retention.remove(store, SCOPE, ended_for=YEAR, by="ann") == 2
    assert ids_in(path) == {"cancelled", "late, ladder"}
    after = await store.read(SCOPE, exposures.evidence)
    assert after == before
    assert sum(before.cases_of().get(None, {}).values()) == 4


async def test_a_removal_that_is_killed_leaves_whole_loops_and_says_how_many(
    path, store, monkeypatch
):
    ids = [f"loop {n}" for n in range(7)]
    await run_loops(store, ids)
    let_end(path, LONG_AGO, ids)
    monkeypatch.setattr(retention, "MAX_REMOVED_LOOPS", 2)

    # A transaction, and then no more.
    killed = {"before": NOW - YEAR, "by": "ann", "began": NOW}
    killed |= {"after": 0.0, "until": NOW}
    assert await store.write(SCOPE, retention.remove_some, **killed) == 2
    assert len(ids_in(path)) == 5
    assert count_rows(path, "attempt") == 5

    assert await retention.remove(store, SCOPE, ended_for=YEAR, by="bob") == 5
    rulings = await store.read(SCOPE, exposures.rulings, 9)
    removed = [(ruling["by"], ruling["record"]["loops"]) for ruling in rulings]
    assert sorted(removed) == [("ann", 2), ("bob", 5)]


@cases(
    ("count", "old", "left"),
    {
        "a handful may go, even if it is most": (7, 5, 2),
        "half of many may go": (12, 6, 6),
        "most of many stay": (7, 6, 7),
    },
)
async def test_a_night_removes_no_more_than_half_of_the_loops(
    path, store, caplog, count, old, left
):
    ids = [f"loop {n}" for n in range(count)]
    await run_loops(store, ids)
    let_end(path, LONG_AGO, ids[:old])
    await jobs.expire(Tools(store=store), SCOPE)
    assert len(ids_in(path)) == count

    await jobs.expire(Tools(store=store, ended_for=YEAR), SCOPE)
    assert len(ids_in(path)) == left
    rulings = await store.read(SCOPE, exposures.rulings, 9)
    if left < count:
        assert [ruling["by"] for ruling in rulings] == [WORKER_ACTOR]
        return
    assert rulings == []
    records = {record.getMessage(): record for record in caplog.records}
    reason = vars(records["expire_refused"])["reason"]
    assert "6 of 7 loops seem to have ended more than 365 days ago" in reason
    assert "heedful lessons prune --by NAME --ended-for 365d" in reason

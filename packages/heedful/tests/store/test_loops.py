"""Loops in the store: claims and fences, reports and conflicts, exact round trips."""

import asyncio
import sqlite3
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from heedful.errors import Conflict, LeaseLost, NotFound, OverrideRefused, StoreError
from heedful.lessons.lesson import Example, Scope
from heedful.loop.codec import policy_to, to_document
from heedful.loop.decide import Again, Done, LiftedStop, consume_overrides, decide
from heedful.loop.policies import default
from heedful.loop.record import Candidate, Loop, Override, Usage
from heedful.loop.stop import Stop
from heedful.store import lessons, loops as loop_store
from heedful.store.connection import storable
from heedful.store.loop_names import find_loop, short_id
from heedful.store.loops import new_owner, working_drivers
from heedful.store.records import Head, JournalEntry, MemoryEntry, StoredLoop
from heedful.store.store import Store
from tests.loop import support as loops
from tests.store.entries import build_lesson
from tests.store.support import SCOPE, opened, report, rows

pytestmark = pytest.mark.both_nightly

HEAD = Head(task="task", goals=[], policy=policy_to(default))


async def commit(
    store: Store, entry: JournalEntry, owner: str, memory: MemoryEntry | None = None
) -> None:
    await store.write(SCOPE, loop_store.commit, entry, owner, memory)


async def read(store: Store, id: str) -> StoredLoop:
    return await store.read(SCOPE, loop_store.read, id)


async def claim(
    store: Store, id: str, head: Head, owner: str, **options: Any
) -> StoredLoop:
    return await store.write(SCOPE, loop_store.claim, id, head, owner, **options)


@pytest.fixture
def owner():
    name = new_owner()
    working_drivers.add(name)
    yield name
    working_drivers.discard(name)


# As pydantic-ai makes them: those of one minute begin alike.
RUNS = (
    "019ab4e2-7c10-7a33-9d21-5b0c9e11f3aa",
    "019ab4e2-7c10-7a33-9d21-5b0c9e12f3ab",
    "019ab4e2-7c10-7a33-9d21-5b1c9e12f3ab",
)


@pytest.mark.parametrize(
    ("name", "id"),
    [
        pytest.param(RUNS[0], RUNS[0], id="the whole id"),
        pytest.param(short_id(RUNS[0]), RUNS[0], id="what lists show"),
        pytest.param("5b1c9e12f3ab", RUNS[2], id="a longer ending"),
    ],
)
async def test_a_uuid_is_found_by_its_end(store, name, id):
    for run in RUNS:
        await store.write(SCOPE, loop_store.begin, run, HEAD)
    assert await store.read(SCOPE, find_loop, name) == id


# -- the same report and another one


LESSON = build_lesson("wrong", state="verified")


async def test_the_same_report_again_changes_nothing(store, owner, tmp_path):
    lifted = Again(
        lifted=(LiftedStop(rule="attempts", text="1 of 1", by="ada", override=0),)
    )
    again = report("a", 1, verdict=lifted)
    memory = MemoryEntry(lessons=[LESSON])

    def dump() -> list[Any]:
        tables = ("attempt", "decision", "override", "lesson", "occurrence")
        return [rows(tmp_path / "a.db", f"select * from {table}") for table in tables]

    await claim(store, "a", HEAD, owner)
    override = Override("attempts", "ada", decisions=5)
    await commit(store, JournalEntry(id="a", epoch=1, overrides=(override,)), owner)
    await commit(store, again, owner, memory)
    before = dump()
    first = await read(store, "a")
    assert first.loop.overrides == (replace(override, used=1),)
    for _ in range(3):
        await commit(store, again, owner, memory)
    last = await read(store, "a")
    assert last == replace(first, updated=last.updated)
    assert dump() == before


@pytest.mark.parametrize("field", ["candidate", "value", "usage", "evaluation"])
async def test_a_different_report_of_the_same_attempt_is_a_conflict(
    store, owner, field
):
    first = report("a", 1)
    assert first.attempt is not None
    others = {
        "candidate": replace(first.attempt, candidate=Candidate.of("another")),
        "usage": replace(first.attempt, usage=Usage(calls=2)),
        "evaluation": replace(first.attempt, evaluation=None),
    }
    if field == "value":
        second = replace(first, value="another", cancelled="ada")
    else:
        second = replace(first, attempt=others[field], cancelled="ada")
    await commit(store, first, owner)
    before = await read(store, "a")
    with pytest.raises(Conflict, match="attempt 1 of 'a' is stored with other content"):
        await commit(store, second, owner)
    assert replace(await read(store, "a"), updated=before.updated) == before


async def test_an_override_is_consumed_once_and_only_by_a_decision_that_goes_on(
    store, owner
):
    lifted = (
        LiftedStop(rule="attempts", text="x", by="ada", override=0),
        LiftedStop(rule="attempts", text="y", by="ada", override=0),
    )

    async def used() -> list[int]:
        return [o.used for o in (await read(store, "a")).loop.overrides]

    await claim(store, "a", HEAD, owner)
    entry = JournalEntry(
        id="a", epoch=1, overrides=(Override("attempts", "ada", decisions=2),)
    )
    await commit(store, entry, owner)
    stopped = Done(1, False, stopped_by=(Stop("budget", "z"),), lifted=lifted)
    await commit(store, report("a", 1, verdict=stopped), owner)
    assert await used() == [0]
    for number in (2, 3):
        await commit(store, report("a", number, verdict=Again(lifted=lifted)), owner)
    assert await used() == [2]
    with pytest.raises(OverrideRefused, match="consumed by another decision"):
        await commit(store, report("a", 4, verdict=Again(lifted=lifted)), owner)
    assert len((await read(store, "a")).values) == 3  # nothing of it was written


# -- steps


async def test_a_step_is_kept_until_its_attempt_is_recorded_and_never_replaced(
    store, owner
):
    await commit(
        store,
        JournalEntry(id="a", epoch=1, head=HEAD, step=("1/answer", ["one"])),
        owner,
    )
    other_answer = JournalEntry(id="a", epoch=1, step=("1/answer", ["two"]))
    await commit(store, other_answer, owner)
    assert (await read(store, "a")).journal == {"1/answer": ["one"]}
    await commit(store, report("a", 1), owner)
    assert (await read(store, "a")).journal == {}


# -- claims


async def test_a_living_driver_keeps_its_loop_and_one_that_let_go_loses_it(store):
    first = new_owner()
    second = new_owner()

    working_drivers.add(first)
    await claim(store, "a", HEAD, first)
    with pytest.raises(LeaseLost, match="driven by another task of this process"):
        await claim(store, "a", HEAD, second)
    assert (await claim(store, "a", HEAD, first)).epoch == 2  # its own again
    working_drivers.discard(first)
    assert (await claim(store, "a", HEAD, second)).epoch == 3


@pytest.mark.parametrize(
    ("seconds", "is_alive"),
    [
        pytest.param(loop_store.LOOP_LEASE_SECONDS, True, id="a whole lease is left"),
        pytest.param(0.0, False, id="a lease that has ended"),
        pytest.param(
            loop_store.LOOP_LEASE_SECONDS + 1, False, id="a clock that ran ahead"
        ),
    ],
)
def test_a_driver_elsewhere_is_believed_for_one_lease(seconds, is_alive):
    assert loop_store.alive("elsewhere|1|nonce", seconds) is is_alive


async def test_a_stale_driver_is_fenced_off_and_nothing_of_it_is_written(store):
    first = new_owner()
    second = new_owner()

    await claim(store, "a", HEAD, first)
    await claim(store, "a", HEAD, second)
    stale = [
        JournalEntry(id="a", epoch=1, extra=Usage(calls=5)),
        JournalEntry(id="a", epoch=1, step=("1/answer", [])),
        JournalEntry(id="a", epoch=1, cancelled="x"),
        JournalEntry(id="a", epoch=1, overrides=(Override("attempts", "ghost"),)),
        report("a", 1, head=None),
        report("a", 1),  # as if the loop were new
    ]
    for entry in stale:
        with pytest.raises(LeaseLost, match="taken over"):
            await commit(store, entry, first, MemoryEntry(lessons=[LESSON]))
    with pytest.raises(LeaseLost):
        await store.write(SCOPE, loop_store.beat, "a", 1)
    await store.write(SCOPE, loop_store.beat, "a", 2)
    stored_loop = await read(store, "a")
    assert stored_loop.loop == Loop("a")
    assert stored_loop.journal == {}
    assert stored_loop.verdicts == ()
    assert await store.read(SCOPE, lessons.count) == 0


async def test_an_ended_loop_is_free_at_once(store, owner):
    elsewhere = f"elsewhere|{owner.partition('|')[2]}"
    await commit(store, report("a", 1), elsewhere)
    with pytest.raises(LeaseLost):
        await claim(store, "a", Head(task="task"), owner)
    await commit(store, report("a", 2, verdict=Done(1, True), head=None), elsewhere)
    assert (await claim(store, "a", Head(task="task"), owner)).epoch == 1
    reopened = await claim(store, "a", Head(task="task"), owner, reopens=1)
    assert reopened.epoch == 2
    with pytest.raises(LeaseLost):
        await claim(store, "a", Head(task="task"), elsewhere, reopens=1)


# -- reading back


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(loops.loops(least=1), loops.policies, st.text(max_size=20))
def test_what_is_read_is_what_was_committed(loop, policy, text):
    """Loops of all kinds, with lone surrogates and control characters in their
    texts.
    """

    async def scenario(store: Store) -> None:
        owner = "nobody"
        head = Head(
            task={"task": text},
            goals=[to_document(g) for g in loop.goals],
            policy=policy_to(policy),
        )
        await claim(store, "a", head, owner)
        grown = Loop("a", loop.goals)
        for drawn in loop.overrides:
            override = replace(drawn, by=storable(drawn.by), why=storable(drawn.why))
            await commit(
                store, JournalEntry(id="a", epoch=1, overrides=(override,)), owner
            )
            grown = replace(grown, overrides=(*grown.overrides, override))
        verdicts = []
        for attempt in loop.attempts:
            grown = grown.then(attempt)
            verdicts.append(decide(grown, policy))
            grown = consume_overrides(grown, verdicts[-1])
            entry = JournalEntry(
                id="a", epoch=1, attempt=attempt, value=[text], verdict=verdicts[-1]
            )
            await commit(store, entry, owner)
        await commit(
            store,
            JournalEntry(id="a", epoch=1, extra=loop.extra, cancelled=loop.cancelled),
            owner,
        )
        grown = replace(grown, extra=loop.extra, cancelled=storable(loop.cancelled))
        stored_loop = await read(store, "a")
        assert stored_loop.loop == replace(
            grown, at=stored_loop.decisions[-1].at if loop.overrides else 0.0
        )
        assert stored_loop.verdicts == tuple(verdicts)
        assert stored_loop.head == head
        assert stored_loop.values == ([text],) * len(loop.attempts)

    with opened(":memory:") as store:
        asyncio.run(scenario(store))


async def test_echoes_count_persistent_findings_in_attempts_of_other_loops(
    store, owner
):
    def found(id: str, number: int, *findings: Any) -> JournalEntry:
        entry = report(id, number)
        assert entry.attempt is not None
        evaluation = replace(loops.evaluated(), findings=findings)
        return replace(entry, attempt=replace(entry.attempt, evaluation=evaluation))

    x = loops.finding("x")
    note = loops.finding("n", level="note", persistent=True)
    warning = loops.finding("w", level="warning")
    tag = loops.finding("tag", persistent=True)

    await commit(store, found("a", 1, x, tag, tag, note), owner)
    await commit(store, found("a", 2, x, tag, warning), owner)
    await commit(store, found("b", 1, x), owner)
    await commit(store, found("mine", 1, x, tag), owner)
    await store.write(Scope("other"), loop_store.commit, found("c", 1, tag), owner)
    await commit(store, found("mended", 1, x, tag), owner)
    await commit(store, found("mended", 2), owner)
    assert await store.read(SCOPE, loop_store.echoes, "mine", 20) == {"tag": 3}
    assert await store.read(SCOPE, loop_store.echoes, "mine", 2) == {"tag": 1}


async def test_lessons_and_verdict_are_one_transaction(store, owner):
    example = Example("a task", "an answer")
    nobody: Any = "nobody"
    good = replace(LESSON, example=example)
    bad = replace(build_lesson("x"), trust=nobody)

    with pytest.raises(StoreError):
        await commit(store, report("a", 1), owner, MemoryEntry(lessons=[good, bad]))
    assert await store.read(SCOPE, lessons.count) == 0
    with pytest.raises(NotFound):
        await read(store, "a")
    await commit(store, report("a", 1), owner, MemoryEntry(lessons=[good]))
    assert await store.read(SCOPE, lessons.count) == 1


@pytest.mark.sqlite
async def test_the_database_is_durable_and_marked(store, tmp_path):
    def look(db: sqlite3.Connection, scope: Scope) -> tuple[Any, ...]:
        names = ("journal_mode", "synchronous", "foreign_keys")
        return tuple(db.execute(f"pragma {name}").fetchone()[0] for name in names)

    assert await store.write(SCOPE, look) == ("wal", 2, 1)
    assert rows(tmp_path / "a.db", "pragma application_id") == [(0x68656564,)]

"""Dreaming: what a newer rule contradicts ends, and comes back to the last row."""

import asyncio
import sqlite3
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from heedful.errors import InvalidInput, RollbackRefused, StoreError
from heedful.lessons.lesson import Example, Scope
from heedful.memory.dream import (
    CHANGED_LESSON_OUTCOME,
    Dreams,
    consolidate,
    store_dream,
)
from heedful.memory.memory import Memory
from heedful.store import exposures, statements
from heedful.testing import FixedEmbedder
from tests.memory.dreams import (
    NEVER,
    RETRY,
    dump_tables,
    read_states,
    recall_ranks,
    state_rule,
)
from tests.store.support import opened, rows

pytestmark = pytest.mark.both_nightly


async def roll_back(memory: Memory, dream: int) -> int:
    return await Dreams(memory).rollback(dream, by="ada", why="it was wrong")


@pytest.fixture
def memory(path):
    with opened(path) as store:
        yield Memory(store, Scope("ours"))


async def test_what_a_newer_rule_contradicts_ends_and_comes_back(memory, path):
    first = await state_rule(memory, RETRY)
    second = await state_rule(memory, NEVER)
    before = await dump_tables(memory)
    ranks = await recall_ranks(memory, [RETRY, NEVER])
    rehearsal = await consolidate(memory, dry_run=True)
    assert rehearsal.id == 0
    assert rehearsal.after == 1
    assert rehearsal.done[0].outcome == "proposed"
    assert await dump_tables(memory) == before
    assert await Dreams(memory).log() == []
    dream = await consolidate(memory, by="ada")
    (change,) = dream.done
    assert change.survivor == second
    assert change.members == (first,)
    assert (await Dreams(memory).show(dream.id)).texts[first] == RETRY
    assert "Retry" not in str(rows(path, "select * from ruling, link"))  # no text
    assert dream.before == 2
    assert dream.after == 1
    assert dream.nothing == ""
    assert await read_states(memory) == {RETRY: "superseded", NEVER: "unverified"}
    assert await dump_tables(memory) != before
    with pytest.raises(InvalidInput, match="by"):
        await Dreams(memory).rollback(dream.id, by="")
    assert await roll_back(memory, dream.id) == 1
    assert await dump_tables(memory) == before
    assert await recall_ranks(memory, [RETRY, NEVER]) == ranks
    (ruling,) = await memory.store.read(memory.scope, exposures.rulings, 9)
    assert ruling["action"] == "rollback"
    assert ruling["subject"] == "dream/1"
    assert ruling["by"] == "ada"


async def test_a_chain_of_dreams_is_undone_from_its_end(memory):
    await state_rule(memory, "Retry 3 times.")
    await state_rule(memory, "Retry 5 times.")
    first_dream = await consolidate(memory)
    await state_rule(memory, "Retry 7 times.")
    second_dream = await consolidate(memory)
    assert second_dream.done[0].members == (first_dream.done[0].survivor,)
    with pytest.raises(
        RollbackRefused, match="heedful consolidate rollback 2"
    ) as refused:
        await roll_back(memory, first_dream.id)
    assert refused.value.id == 1
    assert refused.value.first == 2
    assert await roll_back(memory, second_dream.id) == 1
    assert await roll_back(memory, first_dream.id) == 1
    assert set((await read_states(memory)).values()) == {"unverified"}
    with pytest.raises(RollbackRefused, match="is rolled back already"):
        await roll_back(memory, first_dream.id)


def example(n: int) -> Example:
    return Example(f"parcel number {n} from the north", f"label {n}")


@pytest.mark.parametrize("how", ["revoke", "prune", "clear"])
async def test_a_rule_comes_back_when_the_one_that_stood_is_gone(memory, how):
    old = await state_rule(memory, RETRY, source="other")
    new = await state_rule(memory, NEVER, source="page")
    dream = await consolidate(memory)
    assert (await read_states(memory))[RETRY] == "superseded"
    match how:
        case "revoke":
            await memory.quarantine.revoke("page", by="ada")
        case "prune":
            sql = f"update lesson set last_seen = 5 where id = {new}"
            await memory.store.write(memory.scope, lambda db, _: db.execute(sql))
            await memory.prune(by="ada", unused_for=3600)
        case _:
            assert await memory.clear() == 2
            assert not (await dump_tables(memory))["link"]
            assert not await Dreams(memory).log()
            return
    assert await read_states(memory) == {RETRY: "unverified"}
    assert (await memory.recall(RETRY, kind="strategy"))[0].lesson_id == old
    links = (await dump_tables(memory))["link"]
    assert "became" not in [relation for *_, relation, _, _, _ in links]
    assert await roll_back(memory, dream.id) == 0


async def test_a_rule_that_changed_meanwhile_is_left_alone(memory, monkeypatch):
    first = await state_rule(memory, RETRY)
    await state_rule(memory, NEVER)
    write = memory.store.write

    async def late(scope: Scope, work: Any, *args: Any, **more: Any) -> Any:
        if work is store_dream:
            monkeypatch.setattr(memory.store, "write", write)
            await memory.pin(first, by="bo")
        return await write(scope, work, *args, **more)

    monkeypatch.setattr(memory.store, "write", late)
    dream = await consolidate(memory, by="ada")
    assert dream.nothing == f"each proposal was dropped: {CHANGED_LESSON_OUTCOME}"
    assert set((await read_states(memory)).values()) == {"unverified"}


def test_what_fails_on_the_way_leaves_no_trace(path, monkeypatch, engine):
    async def run(memory: Memory) -> None:
        for n, text in enumerate((RETRY, NEVER)):
            await state_rule(memory, text, example=example(n))
        before = await dump_tables(memory)
        texts_by_name = statements.statements(engine)
        texts_before = dict(texts_by_name)
        with monkeypatch.context() as patch:
            write = memory.store.write  # the rehearsal has another store

            async def broken(scope: Scope, work: Any, *args: Any, **more: Any) -> Any:
                if work is store_dream:
                    patch.setitem(
                        texts_by_name, "unchanged", "insert into nowhere values (1)"
                    )
                return await write(scope, work, *args, **more)

            patch.setattr(memory.store, "write", broken)
            with pytest.raises((StoreError, sqlite3.Error)):
                await consolidate(memory, by="ada")
        assert texts_by_name == texts_before
        assert await dump_tables(memory) == before
        assert await Dreams(memory).log() == []

    with opened(path) as store:
        asyncio.run(run(Memory(store, Scope("ours"), FixedEmbedder())))


RULE = st.tuples(
    st.sampled_from(["Retry", "Never retry", "Ask Ada", "Do not ask Ada"]),
    st.sampled_from(["", "3 times", "5 times"]),
    st.booleans(),
)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(RULE, min_size=2, max_size=10))
def test_a_dream_that_is_rolled_back_has_not_been(rules):
    async def run() -> None:
        memory = Memory(":memory:", Scope("ours"))
        for order, times, has_example in rules:
            text = f"{order} {times}"
            worked = Example(f"the task: {text}", "done") if has_example else None
            await state_rule(memory, text, example=worked)
        tasks = [f"{order} {times}" for order, times, _ in rules]
        before = await dump_tables(memory)
        ranks = await recall_ranks(memory, tasks)
        dream = await consolidate(memory)
        superseded = {id for proposal in dream.done for id in proposal.members}
        for ranks_after in await recall_ranks(memory, tasks):
            assert superseded.isdisjoint(rank[1] for rank in ranks_after)
        await roll_back(memory, dream.id)
        assert await dump_tables(memory) == before
        assert await recall_ranks(memory, tasks) == ranks
        await memory.store.close()

    asyncio.run(run())

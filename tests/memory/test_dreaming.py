"""Dreaming: merged where recall is none the worse, and taken back to the last row."""

import asyncio
import sqlite3
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.errors import InvalidInput, RollbackRefused, StoreError
from heedful.lessons.lesson import Example, Lesson, Scope
from heedful.lessons.signature import signature, strategy_signature
from heedful.memory.dream import WORSE_RECALL_OUTCOME, Dreams, consolidate
from heedful.memory.memory import Memory
from heedful.store import dreams, exposures, statements
from heedful.store.dreams import CHANGED_LESSON_OUTCOME
from heedful.testing import FixedEmbedder
from tests.memory.dreams import (
    OTHER,
    SAME,
    TEXT,
    dump_tables,
    read_states,
    recall_ranks,
)
from tests.store.support import opened, rows

pytestmark = pytest.mark.both_nightly


async def roll_back(memory: Memory, dream: int) -> int:
    return await Dreams(memory).rollback(dream, by="ada", why="it was wrong")


@pytest.fixture
def memory(path):
    with opened(path) as store:
        yield Memory(store, Scope("ours"))


def read_rows(memory: Memory, sql: str) -> list[tuple[Any, ...]]:
    return rows(memory.store.url, sql)


async def remember_texts(memory: Memory, *texts: str, **fields: Any) -> list[int]:
    return [(await memory.remember("k", text, **fields)).id for text in texts]


async def test_what_says_the_same_becomes_one_and_comes_back(memory, path):
    first, second, _ = await remember_texts(memory, TEXT, SAME, OTHER)
    await memory.remember("k", TEXT)
    before = await dump_tables(memory)
    ranks = await recall_ranks(memory, [TEXT, SAME, OTHER])
    rehearsal = await consolidate(memory, dry_run=True)
    assert rehearsal.id == 0
    assert rehearsal.after == 2
    assert rehearsal.done[0].outcome == "proposed"
    assert await dump_tables(memory) == before
    assert await Dreams(memory).log() == []
    dream = await consolidate(memory, by="ada")
    (merge,) = dream.done
    assert merge.survivor == first
    assert merge.members == (second,)
    assert (await Dreams(memory).show(dream.id)).texts[second] == SAME
    assert "parcel" not in str(rows(path, "select * from dream, link"))  # no text
    assert dream.before == 3
    assert dream.after == 2
    assert dream.nothing == ""
    assert await read_states(memory) == {
        TEXT: "unverified",
        SAME: "superseded",
        OTHER: "unverified",
    }
    assert [rank[1] for rank in (await recall_ranks(memory, [SAME]))[0]] == [first]
    assert await dump_tables(memory) != before
    with pytest.raises(InvalidInput, match="by"):
        await Dreams(memory).rollback(dream.id, by="")
    assert await roll_back(memory, dream.id) == 1
    assert await dump_tables(memory) == before
    assert await recall_ranks(memory, [TEXT, SAME, OTHER]) == ranks
    (ruling,) = await memory.store.read(memory.scope, exposures.rulings, 9)
    assert ruling["action"] == "rollback"
    assert ruling["subject"] == "dream/1"
    assert ruling["by"] == "ada"


async def test_seen_answers_with_what_took_its_place(memory):
    first, _ = await remember_texts(memory, TEXT, SAME)
    await remember_texts(memory, TEXT, TEXT, SAME)
    dream = await consolidate(memory)
    for text in (SAME, TEXT):
        sightings = await memory.seen("k", text)
        assert sightings.count == 5
        assert [lesson["id"] for lesson in sightings.lessons] == [first, 2]
        assert [lesson["state"] for lesson in sightings.lessons] == [
            "unverified",
            "superseded",
        ]
    answer = await memory.remember("k", SAME)
    assert answer.id == 2
    assert answer.created is False
    assert answer.seen == 3
    assert (await memory.seen("k", TEXT)).count == 6
    await roll_back(memory, dream.id)
    assert [(await memory.seen("k", text)).count for text in (TEXT, SAME)] == [3, 3]


async def test_a_lesson_that_was_pruned_and_learnt_again_is_merged_again(memory):
    await remember_texts(memory, TEXT, SAME, OTHER)
    assert (await consolidate(memory)).done
    await memory.prune(by="ada", keep=2)
    assert SAME not in await read_states(memory)
    await remember_texts(memory, SAME)
    (merge,) = (await consolidate(memory)).done
    assert merge.outcome == "done"


async def test_a_chain_of_dreams_is_followed_and_undone_from_its_end(memory):
    await remember_texts(memory, TEXT, SAME)
    first_dream = await consolidate(memory)
    (merge,) = first_dream.done
    await memory.remember("k", f"{TEXT} then", pinned=True)
    second_dream = await consolidate(memory)
    assert second_dream.done[0].members == (merge.survivor,)
    sightings = await memory.seen("k", SAME)
    assert sightings.count == 3
    assert sightings.lessons[0]["id"] == 3
    with pytest.raises(RollbackRefused, match="heedful dream rollback 2") as refused:
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


@pytest.mark.parametrize(
    "embedder",
    [pytest.param(None, id="words"), pytest.param(FixedEmbedder(), id="vectors")],
)
async def test_worked_examples_stay_with_what_took_the_place_of_their_lesson(
    store, embedder
):

    memory = Memory(store, Scope("ours"), embedder)
    for n, text in enumerate((TEXT, SAME, TEXT)):
        await memory.remember("k", text, example=example(n), trust="measured")
    before = await dump_tables(memory)
    tasks = [example(n).task for n in range(4)]
    ranks = await recall_ranks(memory, tasks)
    dream = await consolidate(memory)
    (merge,) = dream.done
    best = (await memory.recall(tasks[1]))[0]
    assert best.example == example(1)
    assert best.lesson_id == merge.survivor
    # What is learnt of it later is recalled with the survivor, too.
    await memory.remember("k", SAME, example=example(3), trust="measured")
    best = (await memory.recall(tasks[3]))[0]
    assert best.example.accepted == "label 3"
    assert best.lesson_id == merge.survivor
    await roll_back(memory, dream.id)
    best = (await memory.recall(tasks[3]))[0]
    assert best.example.accepted == "label 3"
    assert best.lesson_id == 2
    after = await dump_tables(memory)
    assert [row for row in after["example"] if row in before["example"]] == before[
        "example"
    ]
    assert len(after["example"]) == len(before["example"]) + 1
    assert (await recall_ranks(memory, tasks))[1][0] == ranks[1][0]


async def test_a_source_that_is_revoked_takes_its_moved_examples_along(memory, path):
    for n, text in enumerate((TEXT, SAME)):
        await memory.remember("k", text, example=example(n), source=f"s{n}")
    await consolidate(memory)
    sql = "delete from occurrence"  # as after an import
    await memory.store.write(memory.scope, lambda db, _: db.execute(sql) and None)
    await memory.quarantine.revoke("s1", by="ada")
    assert rows(path, "select record from example where record like '%label 1%'") == []
    assert [lesson["text"] for lesson in await memory.top(9)] == [TEXT]


@pytest.mark.parametrize("how", ["revoke", "evict", "prune", "reworded", "clear"])
def test_members_come_back_when_their_survivor_is_gone_or_says_another_thing(
    memory, how
):
    async def run():
        await memory.remember("k", TEXT, trust="model", source="page")
        await memory.remember("k", TEXT, trust="model", source="page")
        same = await memory.remember(
            "k", SAME, trust="model", source="other", example=example(1)
        )
        dream = await consolidate(memory)
        assert (await read_states(memory))[SAME] == "superseded"
        match how:
            case "revoke":
                await memory.quarantine.revoke("page", by="ada")
            case "evict":
                sql = "delete from lesson where id = 1"
                await memory.store.write(memory.scope, lambda db, _: db.execute(sql))
            case "prune":
                sql = "update lesson set last_seen = 5 where id = 1"
                await memory.store.write(memory.scope, lambda db, _: db.execute(sql))
                await memory.prune(by="ada", unused_for=3600)
            case "reworded":
                await memory.remember(
                    "k", TEXT, lesson="weigh nothing", trust="operator"
                )
            case _:
                assert await memory.clear() == 2
                assert not (await dump_tables(memory))["link"]
                assert not await Dreams(memory).log()
                return
        assert (await read_states(memory))[SAME] == "unverified"
        for text in (SAME, example(1).task):
            assert (await memory.recall(text))[0].lesson_id == same.id
        assert (await dump_tables(memory))["link"] == []
        assert await roll_back(memory, dream.id) == 0
        assert (await read_states(memory))[SAME] == "unverified"

    asyncio.run(run())


async def test_after_a_revocation_a_survivor_speaks_in_words_of_its_own(memory):
    await memory.remember("k", SAME, example=example(1), source="theirs")
    for n, (text, source) in enumerate(
        [(TEXT, "page"), (OTHER, "ours"), (TEXT, "page")]
    ):
        await memory.remember(
            "k", TEXT, lesson=text, example=example(2 + n), source=source
        )
    (merge,) = (await consolidate(memory)).done
    assert merge.survivor == 2
    assert merge.members == (1,)
    await memory.quarantine.revoke("page", by="ada")
    assert await read_states(memory) == {OTHER: "unverified", SAME: "unverified"}
    (since,) = read_rows(memory, "select judged_from from lesson where id = 2")
    assert since > (0,)  # outcomes of the old words do not count for the new ones


async def test_what_is_released_of_a_superseded_lesson_is_recalled_with_its_survivor(
    memory,
):
    await remember_texts(memory, TEXT, TEXT, SAME)
    await consolidate(memory)
    await memory.remember("k", SAME, example=example(1), trust="tool", source="page")
    (entry,) = await memory.quarantine.waiting()
    assert not [
        match
        for match in await memory.recall(example(1).task)
        if match.example.accepted
    ]
    await memory.quarantine.release([entry.id], by="ada")
    best = (await memory.recall(example(1).task))[0]
    assert best.example.accepted == "label 1"
    assert best.lesson_id == 1
    await memory.quarantine.revoke("page", by="ada")
    assert not [
        match
        for match in await memory.recall(example(1).task)
        if match.example.accepted
    ]


async def test_contradictions_are_listed_for_a_person(memory):
    """Nothing of them is changed, and nothing comes back with them."""
    for text in ("Retry the call.", "Never retry the call."):
        name = strategy_signature(signature("timeout", "late"), text)
        await memory.keep(
            Lesson(
                "strategy",
                name,
                error_type="timeout",
                text=text,
                sighting=text,
                trust="model",
            )
        )
    before = await dump_tables(memory)
    rehearsal, dream = [await consolidate(memory, dry_run=dry) for dry in (True, False)]
    for result in (rehearsal, dream):
        (contradiction,) = result.proposals
        assert contradiction.action == "contradict"
        assert set(contradiction.members) == {1, 2}
        assert result.done == ()
        assert result.after == result.before
        assert len(result.texts) == 2
        assert result.nothing.startswith("no two lessons say the same; nothing recurs")
    assert (await Dreams(memory).show(dream.id)).proposals == dream.proposals
    assert await roll_back(memory, dream.id) == 0
    assert await dump_tables(memory) == before


async def test_a_merge_that_makes_recall_worse_is_dropped_alone(store):
    """The nearest of the second lesson is another one, which the veto keeps apart."""
    texts = [TEXT, f"{TEXT} again now", "never " + TEXT, OTHER, f"{OTHER} now"]
    places = {texts[0]: (1.0, 0.0), texts[1]: (0.96, 0.28), texts[2]: (0.98, 0.199)}

    class Places(FixedEmbedder):
        async def embed(self, texts: Any) -> Any:
            return [places.get(text, (0.0, 1.0)) for text in texts]

    memory = Memory(store, Scope("ours"), Places(2))
    await remember_texts(memory, *texts)
    dream = await consolidate(memory)
    outcomes = {
        proposal.members[0]: proposal.outcome
        for proposal in dream.proposals
        if proposal.survivor
    }
    assert sorted(outcomes.values()) == [WORSE_RECALL_OUTCOME, "done"]
    assert dream.after == 4
    assert dream.vetoes == {"negation": 2}


async def test_a_lesson_that_changed_meanwhile_is_left_alone(memory, monkeypatch):
    await remember_texts(memory, TEXT, SAME)
    write = memory.store.write

    async def late(scope: Scope, work: Any, *args: Any, **more: Any) -> Any:
        if work is dreams.supersede:
            monkeypatch.setattr(memory.store, "write", write)
            await memory.pin(2, by="bo")
            await memory.pin(1, by="bo")
        return await write(scope, work, *args, **more)

    monkeypatch.setattr(memory.store, "write", late)
    dream = await consolidate(memory, by="ada")
    assert dream.nothing == f"each proposal was dropped: {CHANGED_LESSON_OUTCOME}"
    assert set((await read_states(memory)).values()) == {"unverified"}


@pytest.mark.parametrize("statement", ["unchanged", "move_examples"])
def test_what_fails_on_the_way_leaves_no_trace(path, monkeypatch, engine, statement):
    async def run(memory: Memory) -> None:
        for n, text in enumerate((TEXT, SAME)):
            await memory.remember("k", text, example=example(n))
        before = await dump_tables(memory)
        texts_by_name = statements.statements(engine)
        texts_before = dict(texts_by_name)
        with monkeypatch.context() as patch:
            write = memory.store.write  # the rehearsal has another store

            async def broken(scope: Scope, work: Any, *args: Any, **more: Any) -> Any:
                if work is dreams.supersede:
                    patch.setitem(
                        texts_by_name, statement, "insert into nowhere values (1)"
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


WORDS = "weigh parcel label scale heavy never 3 5 Ada then it".split()
LESSON = st.tuples(
    st.lists(st.sampled_from(WORDS), min_size=2, max_size=6).map(" ".join),
    st.sampled_from(["operator", "model", "tool"]),
    st.booleans(),
)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(LESSON, min_size=2, max_size=10), st.booleans())
def test_a_dream_that_is_rolled_back_has_not_been(lessons, by_words):
    async def run() -> None:
        embedder = None if by_words else FixedEmbedder()
        memory = Memory(":memory:", Scope("ours"), embedder)
        for text, trust, has_example in lessons:
            proposal = Example(f"the task: {text}", "done") if has_example else None
            await memory.remember("k", text, trust=trust, example=proposal)
        tasks = [text for text, *_ in lessons]
        before = await dump_tables(memory)
        ranks = await recall_ranks(memory, tasks)
        dream = await consolidate(memory)
        survivors = {
            id: proposal.survivor for proposal in dream.done for id in proposal.members
        }
        for ranks_before, ranks_after in zip(
            ranks, await recall_ranks(memory, tasks), strict=True
        ):
            ranked = list(dict.fromkeys(proposal[1] for proposal in ranks_before))[:5]
            after = list(dict.fromkeys(proposal[1] for proposal in ranks_after))
            assert not set(after) & survivors.keys()
            if ranked and ranked[0] in survivors:
                assert survivors[ranked[0]] in after
        await roll_back(memory, dream.id)
        assert await dump_tables(memory) == before
        assert await recall_ranks(memory, tasks) == ranks
        await memory.store.close()

    asyncio.run(run())

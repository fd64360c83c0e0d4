"""Memory over real databases: count, know again, bring back, forget; nothing crosses a scope."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.errors import StoreError
from heedful.lessons.lesson import Example, Remembered, Scope
from heedful.lessons.patterns import Seen
from heedful.memory.memory import Memory
from heedful.store.store import Store
from heedful.testing import FixedEmbedder
from tests.engines import whole
from tests.store.support import opened, rows

pytestmark = pytest.mark.both

WEIGHT = Example("convert the weight of parcel 7 to kilograms", "7 kg", "7", "no unit")
SIMILAR = "convert the weight of parcel 9 to kilograms"
OTHER = "name a river in Portugal"


@pytest.fixture(params=["words", "vectors"])
def memory(request, store):
    return Memory(store, embedder=FixedEmbedder() if request.param == "vectors" else None)


async def test_a_sighting_is_counted_and_a_pattern_is_one_lesson(store, path):
    memory = Memory(store)
    first = await memory.remember("ValueError", "line 3: bad value 'x'")
    again = await memory.remember("ValueError", "line 99: bad value 'x'", lesson="ignored")
    other = await memory.remember("ValueError", "line 3: bad value 'y'")
    assert first == Remembered(first.id, created=True, seen=1)
    assert again == Remembered(first.id, created=False, seen=2)
    assert other.created
    assert other.id != first.id
    assert await memory.count() == 2
    known = await memory.seen("ValueError", "line 1234: bad value 'x'")
    assert known
    assert (known.count, known.lessons[0]["text"]) == (2, "line 3: bad value 'x'")
    for error_type, text in [
        ("KeyError", "line 3: bad value 'x'"),
        ("ValueError", "bad value 'z'"),
    ]:
        unknown = await memory.seen(error_type, text)
        assert not unknown
        assert unknown == Seen(0)
    texts = [t for (t,) in rows(path, "select text from occurrence order by id")]
    assert texts == ["line 3: bad value 'x'", "line 99: bad value 'x'", "line 3: bad value 'y'"]


@pytest.mark.sqlite
def test_a_store_that_fails_raises_and_is_never_not_seen(tmp_path):
    (tmp_path / "a.db").write_bytes(b"no database" * 100)
    with opened(tmp_path / "a.db") as store:
        memory = Memory(store)
        calls: list[Any] = [
            memory.remember("E", "x"),
            memory.seen("E", "x"),
            memory.recall("x"),
            memory.count(),
            memory.clear(),
            memory.top(),
        ]
        for call in calls:
            with pytest.raises(StoreError):
                asyncio.run(call)


async def test_a_related_task_brings_the_example_and_an_unrelated_one_nothing(memory):
    await memory.remember("units", "7 has no unit", example=WEIGHT)
    await memory.remember("other", "no example")
    (one,) = await memory.recall(SIMILAR)
    assert one.example == WEIGHT
    assert await memory.recall(OTHER) == []
    assert await memory.recall("") == []
    assert await memory.recall("!?") == []
    assert [m.content for m in memory.render([one])] == [WEIGHT.task, "7 kg"]
    assert (await memory.brief(OTHER, "loop")).examples == ()
    briefing = await memory.brief(SIMILAR, "loop")
    assert briefing.shown == (one.id,)


@pytest.mark.parametrize("embedder", [None, FixedEmbedder()])
async def test_clear_forgets_all_of_the_scope_and_nothing_else(store, path, engine, embedder):
    here = Memory(store, Scope("t", "here"), embedder)
    there = Memory(store, Scope("t", "there"), embedder)
    for memory in (here, there):
        await memory.remember("u", "x", example=WEIGHT)
        await memory.remember("u", "y", example=WEIGHT)
    assert await here.clear() == 2
    assert (await here.count(), await there.count()) == (0, 2)
    assert not await here.seen("u", "x")
    assert await here.recall(SIMILAR) == []
    assert len(await there.recall(SIMILAR)) == 1
    assert await here.clear() == 0
    for table in ("reflection", "occurrence", "example", "vector"):
        found = rows(path, f"select * from {table}")
        assert len(found) == (0 if table == "vector" and embedder is None else 2)
    await whole(store)  # the index lost its rows with them
    again = await here.remember("u", "x", example=WEIGHT)
    assert again.created
    if engine == "sqlite":
        index = "select count(*) from example_fts where example_fts match ?"
        assert rows(path, index, "s1xparcel OR s2xparcel") == [(3,)]


scopes = st.sampled_from([Scope(t, p) for t in ("a", "b") for p in ("x", "y", "ay")])
actions = st.lists(
    st.tuples(
        st.sampled_from(["remember", "remember", "remember", "clear"]),
        scopes,
        st.integers(0, 3),
    ),
    max_size=25,
)


@pytest.mark.parametrize("embedder", [None, FixedEmbedder()], ids=["words", "vectors"])
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(done=actions)
def test_nothing_ever_crosses_a_scope(embedder, done: Sequence[tuple[str, Scope, int]]):
    async def scenario(store: Store) -> None:
        expected: dict[Scope, dict[int, int]] = {}
        for action, scope, number in done:
            memory, own = Memory(store, scope, embedder), expected.setdefault(scope, {})
            if action == "clear":
                assert await memory.clear() == len(own)
                own.clear()
                continue
            example = Example(f"convert the parcel {'abcd'[number]} to kilograms", f"{scope}")
            answer = await memory.remember(f"error {'abcd'[number]}", "x", example=example)
            own[number] = own.get(number, 0) + 1
            assert (answer.seen, answer.created) == (own[number], own[number] == 1)
        for scope, own in expected.items():
            memory = Memory(store, scope, embedder)
            assert await memory.count() == len(own)
            found = await memory.recall("convert the parcel a to kilograms", 99)
            assert {one.example.accepted for one in found} <= {f"{scope}"}
            assert bool(found) is bool(own)
            for number in range(4):
                known = await memory.seen(f"error {'abcd'[number]}", "x")
                assert known.count == own.get(number, 0)
            assert {int(one["seen"]) for one in await memory.top(99)} == set(own.values())

    with opened(":memory:") as store:
        asyncio.run(scenario(store))


async def test_the_lessons_most_often_seen_come_first(store):
    memory = Memory(store)
    for times, text in enumerate(["once", "twice", "thrice"], 1):
        for _ in range(times):
            await memory.remember("E", text, tags=["t", text])
    top = await memory.top(2)
    assert [one["text"] for one in top] == ["thrice", "twice"]
    assert top[0]["tags"] == ["t", "thrice"]

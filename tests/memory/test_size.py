"""Memory stays small: a bound that evicts the least useful, pins, and pruning on request."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.errors import NotFound
from heedful.lessons.lesson import Example, Exposure, Reflection, Remembered, Scope
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.store import exposures, lessons
from heedful.store.store import key_of
from heedful.testing import FixedEmbedder
from tests.store.support import ended, opened, python, rows

pytestmark = pytest.mark.both

DAY = 86_400.0
NOT_KEPT = Remembered(0, created=False, seen=0)


class Clock:
    """The store's clock, set by hand."""

    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        self.now += 1
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    one = Clock(1_000 * DAY)
    for room in (exposures, lessons):
        monkeypatch.setattr(room, "time", one)
    return one


async def kept(memory: Memory) -> set[str]:
    """The texts of all lessons, those that are held back included."""
    store: Any = memory.store
    sql = "select text from reflection where tenant = :tenant and project = :project"
    scope = key_of(memory.scope)
    found: set[str] = await store.read(
        memory.scope, lambda db, _: {text for (text,) in db.execute(sql, scope)}
    )
    return found


def lesson(text: str, **fields: Any) -> Reflection:
    return Reflection("check", signature("c", text), "c", text, text, **fields)


async def set_to(store: Any, text: str, **columns: Any) -> None:
    """As a proof or a ruling would have left it."""
    for name, value in columns.items():
        sql = f"update reflection set {name} = :value where text = :text"
        values = {"value": value, "text": text}
        await store.write(Scope(), lambda db, _, s=sql, v=values: db.execute(s, v).rowcount)


async def test_the_examples_of_one_lesson_are_bounded_too(store, path, clock):
    memory = Memory(store, embedder=FixedEmbedder(), max_entries=5)
    pinned = Example("parcel 99", "99 kg")
    await memory.remember("style", "x", example=pinned, pinned=True)
    for n in range(12):
        await memory.remember("units", "no unit", example=Example(f"parcel {n}", f"{n} kg"))
    found = await memory.recall("parcel 3", 99)
    assert sorted(one.example.accepted for one in found) == [
        "10 kg", "11 kg", "8 kg", "9 kg", "99 kg",
    ]  # fmt: skip
    assert await memory.count() == 2
    assert (await memory.seen("units", "no unit")).count == 12
    assert rows(path, "select count(*) from vector") == [(5,)]


ORDER: list[tuple[str, dict[str, Any]]] = [
    ("quarantined", {"state": "quarantined", "useful": 1.5, "importance": 1.0}),
    ("retired", {"state": "retired", "useful": 1.2}),
    ("superseded", {"state": "superseded", "useful": 1.3}),
    ("hurts", {"useful": 0.9, "importance": 1.0}),
    ("unimportant", {"importance": 0.1}),
    ("old", {"last_seen": 5.0}),
    ("older shown later", {"last_seen": 1.0, "last_shown": 6.0}),
    ("verified", {"state": "verified", "last_seen": 7.0}),
    ("new", {"last_seen": 8.0}),
    ("often helped, not proven", {"helped": 9, "last_seen": 9.0}),
    ("important", {"importance": 0.9}),
    ("helps", {"useful": 1.1, "importance": 0.0}),
]


async def test_the_order_of_usefulness(store):
    memory = Memory(store)
    for name, columns in reversed(ORDER):
        await memory.remember("E", name)
        await set_to(store, name, **columns)
    await memory.remember("E", "pinned")
    await set_to(store, "pinned", state="retired", useful=0.5, pinned=True)
    for n in range(len(ORDER)):
        bounded = Memory(store, max_entries=len(ORDER) + 1)
        await bounded.remember("E", f"filler {chr(97 + n)}", importance=1.0)
        await set_to(store, f"filler {chr(97 + n)}", useful=2.0)
        left = await kept(memory)
        assert [name in left for name, _ in ORDER] == [at > n for at in range(len(ORDER))]
        assert "pinned" in left


@pytest.mark.parametrize("trust", ["tool", "external"])
async def test_what_is_quarantined_pushes_nothing_out_that_is_not(store, trust):
    memory = Memory(store, max_entries=3)
    for text in ("one", "two"):
        await memory.remember("E", text)
    await set_to(store, "one", state="retired")
    for n in range(20):
        answer = await memory.remember("E", f"flood {chr(97 + n)}", trust=trust)
        assert answer.created
        assert await kept(memory) == {"one", "two", f"flood {chr(97 + n)}"}
    await memory.remember("E", "three")
    assert await kept(memory) == {"one", "two", "three"}
    # Now there is no room for it at all, and it is told so.
    assert await memory.remember("E", "flood", trust=trust) == NOT_KEPT
    assert await kept(memory) == {"one", "two", "three"}
    assert not await memory.seen("E", "flood")


async def test_what_is_pinned_stays_and_a_full_memory_says_so(store):
    memory = Memory(store, max_entries=2)
    first = await memory.remember("E", "one")
    await memory.pin(first.id, by="ann")
    await memory.remember("E", "two")
    await memory.remember("E", "three")
    assert await kept(memory) == {"one", "three"}
    (three,) = (one for one in await memory.top() if one["text"] == "three")
    await memory.pin(three["id"], by="ann")
    assert await memory.remember("E", "four") == NOT_KEPT
    assert (await memory.remember("E", "one")).seen == 2
    await memory.pin(first.id, pinned=False, by="ann")
    assert (await memory.remember("E", "four")).created
    assert await kept(memory) == {"three", "four"}


@pytest.mark.sqlite
def test_processes_at_once_keep_within_the_bound(path):
    program = """
import asyncio, sys
from heedful.memory.memory import Memory
from tests.store.support import opened

async def main(memory):
    for n in range(20):
        await memory.remember("E", f"error {sys.argv[2]} {chr(97 + n)}")

with opened(sys.argv[1]) as store:
    asyncio.run(main(Memory(store, max_entries=7)))
"""
    with opened(path) as store:
        asyncio.run(Memory(store).count())
    for process in [python(program, path, name) for name in "abc"]:
        ended(process)
    assert rows(path, "select count(*), (select sum(lessons) from tally) from reflection") == [
        (7, 7)
    ]


steps = st.lists(
    st.tuples(
        st.sampled_from(["operator", "external", "pin", "unpin", "clear", "prune"]),
        st.sampled_from([Scope("a"), Scope("b")]),
        st.integers(0, 9),
    ),
    max_size=30,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(done=steps, most=st.integers(1, 4))
def test_a_bound_holds_whatever_happens(done, most):
    async def scenario(store: Any) -> None:
        for what, scope, n in done:
            memory = Memory(store, scope, max_entries=most)
            before = {one["signature"]: one for one in await memory.top(99)}
            if what in ("pin", "unpin"):
                for one in await memory.top(1):
                    await memory.pin(one["id"], by="ann", pinned=what == "pin")
            elif what == "clear":
                await memory.clear()
            elif what == "prune":
                await memory.prune(by="ann", keep=n)
            else:
                answer = await memory.remember("E", f"error {chr(97 + n)}", trust=what)
                after = {one["signature"]: one for one in await memory.top(99)}
                gone = [one for name, one in before.items() if name not in after]
                assert all(not one["pinned"] for one in gone)
                if what == "external":
                    assert all(one["state"] == "quarantined" for one in gone)
                known = await memory.seen("E", f"error {chr(97 + n)}")
                assert known.count == answer.seen
            after = {one["signature"]: one for one in await memory.top(99)}
            assert len(after) == await memory.count()
            pinned = sum(one["pinned"] for one in after.values())
            assert len(after) <= max(most, pinned)

    with opened(":memory:") as store:
        asyncio.run(scenario(store))


async def test_a_pin_is_on_record_and_of_one_scope(store, path):
    memory = Memory(store)
    answer = await memory.remember("E", "one")
    with pytest.raises(NotFound):
        await Memory(store, Scope("other")).pin(answer.id, by="ann")
    await memory.pin(answer.id, by="ann", why="it is the house rule")
    assert (await memory.top())[0]["pinned"]
    await memory.pin(answer.id, pinned=False, by="bob")
    assert not (await memory.top())[0]["pinned"]
    name = f"error/{signature('E', 'one').digest}"
    assert rows(path, "select action, subject, by, why from ruling order by id") == [
        ("pin", name, "ann", "it is the house rule"),
        ("unpin", name, "bob", ""),
    ]


async def test_what_was_neither_seen_nor_shown_is_removed(store, clock, path):
    memory = Memory(store)
    for text in ("seen", "shown", "unused", "pinned", "helps", "hurts"):
        await store.write(memory.scope, exposures.remember, [lesson(text)])
    await set_to(store, "pinned", pinned=True)
    await set_to(store, "helps", useful=1.01, state="verified")
    await set_to(store, "hurts", useful=0.9, state="verified")
    clock.now += 100 * DAY
    await store.write(memory.scope, exposures.remember, [lesson("seen")])
    shown = Exposure(f"check/{signature('c', 'shown').digest}", "loop", True, share=0.0)
    await store.write(memory.scope, exposures.remember, [], exposures=[shown])
    clock.now += 10 * DAY
    for dry in (True, True, False):
        found = await memory.prune(unused_for=60 * DAY, by="ann", dry_run=dry)
        assert {one["text"]: one["why"] for one in found} == {
            "unused": "not used for 110 days",
            "hurts": "not used for 110 days",
        }
    assert await memory.prune(by="ann", unused_for=60 * DAY) == []
    assert await kept(memory) == {"seen", "shown", "pinned", "helps"}
    ((by, subject, record),) = rows(path, "select by, subject, record from ruling")
    assert (by, subject) == ("ann", "2 lessons")
    names = {f"check/{signature('c', text).digest}" for text in ("unused", "hurts")}
    assert {one["lesson"] for one in json.loads(record)["removed"]} == names


async def test_so_many_are_kept_the_most_useful(store, clock):
    memory = Memory(store)
    for n in range(9):
        await memory.remember("E", f"error {chr(97 + n)}", importance=0.9 if n == 3 else 0.5)
        clock.now += DAY
    found = await memory.prune(by="ann", unused_for=6.5 * DAY, keep=4)
    assert [(one["text"], one["why"]) for one in found] == [
        ("error a", "not used for 9 days"),
        ("error b", "not used for 8 days"),
        ("error c", "not used for 7 days"),
        ("error e", "the least useful beyond 4"),
        ("error f", "the least useful beyond 4"),
    ]
    assert await memory.prune(by="ann", keep=4) == []

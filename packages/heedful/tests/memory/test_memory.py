"""Memory over real databases: count, know again, bring back, stay small, forget."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from heedful.episodes.episode import Event
from heedful.lessons.lesson import Example, Exposure, Remembered, Scope
from heedful.lessons.patterns import Seen
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.store import exposures, lessons, retention
from heedful.store.connection import key_of
from heedful.testing import FixedEmbedder
from tests.engines import check_derived
from tests.hosts import patient_host
from tests.memory.conftest import by_words_and_vectors
from tests.memory.test_quarantine import SIMILAR, WEIGHT
from tests.store.entries import build_lesson
from tests.store.support import opened, rows
from tests.tables import cases

pytestmark = pytest.mark.both_nightly

memory = by_words_and_vectors

OTHER = "name a river in Portugal"


async def test_a_sighting_is_counted_and_a_pattern_is_one_lesson(store, path):
    memory = Memory(store)
    first = await memory.remember("ValueError", "line 3: bad value 'x'")
    again = await memory.remember(
        "ValueError", "line 99: bad value 'x'", lesson="quote"
    )
    other = await memory.remember("ValueError", "line 3: bad value 'y'")
    assert first == Remembered(first.id, created=True, seen=1, figures="particulars")
    assert again == Remembered(
        first.id, created=False, updated=True, seen=2, figures="particulars"
    )
    assert other.created
    assert other.id != first.id
    assert await memory.count() == 2
    sightings = await memory.seen("ValueError", "line 1234: bad value 'x'")
    assert sightings
    assert sightings.count == 2
    assert sightings.lessons[0]["text"] == "quote"
    assert await memory.seen("KeyError", "line 3: bad value 'x'") == Seen(0)
    assert not await memory.seen("ValueError", "bad value 'z'")
    texts = [t for (t,) in rows(path, "select text from occurrence order by id")]
    assert texts == [
        "line 3: bad value 'x'",
        "line 99: bad value 'x'",
        "line 3: bad value 'y'",
    ]


@cases(
    "new, told",
    {
        "the same origin": ("user", "new"),
        "a lower origin": ("local", "old"),
        "from outside": ("outside", "old"),
    },
)
async def test_the_newest_words_of_a_known_error_win(store, new, told):
    memory = Memory(store)
    await memory.remember("Timeout", "no answer", lesson="old", origin="user")
    again = await memory.remember("Timeout", "no answer", lesson="new", origin=new)
    assert again.updated is (told == "new")
    seen = await memory.seen("Timeout", "no answer")
    assert [lesson["text"] for lesson in seen.lessons] == [told]
    back = await memory.remember("Timeout", "no answer", lesson="old")
    assert back.updated is (told == "new")
    assert (await memory.seen("Timeout", "no answer")).lessons[0]["state"] != (
        "superseded"
    )
    assert [m.lesson for m in await memory.recall("old")] == ["old"]


async def test_a_related_task_brings_the_example_and_an_unrelated_one_nothing(memory):
    await memory.remember("units", "7 has no unit", example=WEIGHT)
    await memory.remember("other", "no example")
    (match,) = await memory.recall(SIMILAR)
    assert match.example == WEIGHT
    assert await memory.recall(OTHER) == []
    assert await memory.recall("") == []
    assert await memory.recall("!?") == []
    assert [message.content for message in memory.render([match])] == [
        f"{WEIGHT.task}\n\nA mistake in an earlier answer: no unit",
        "7 kg",
    ]
    assert (await memory.brief(OTHER, "loop")).examples == ()
    briefing = await memory.brief(SIMILAR, "loop")
    assert briefing.shown == (match.id,)


@cases("embedder", {"words": None, "vectors": FixedEmbedder()})
async def test_clear_forgets_all_of_the_scope_and_nothing_else(
    store, path, engine, embedder
):
    here = Memory(store, Scope("t", "here"), embedder)
    there = Memory(store, Scope("t", "there"), embedder)
    for memory in (here, there):
        await memory.remember("u", "x", example=WEIGHT)
        await memory.remember("u", "y", example=WEIGHT)
        await patient_host(memory=memory).run("s").keep(Event("user_message", "hi"))
    assert await here.clear() == 2
    assert rows(path, "select project from event") == [("there",)]
    assert await here.count() == 0
    assert await there.count() == 2
    assert not await here.seen("u", "x")
    assert await here.recall(SIMILAR) == []
    assert len(await there.recall(SIMILAR)) == 1
    assert await here.clear() == 0
    for table in ("lesson", "occurrence", "example", "vector"):
        stored_rows = rows(path, f"select * from {table}")
        assert len(stored_rows) == (0 if table == "vector" and embedder is None else 2)
    await check_derived(store)  # the index lost its rows with them
    again = await here.remember("u", "x", example=WEIGHT)
    assert again.created
    if engine == "sqlite":
        index = "select count(*) from example_fts where example_fts match ?"
        assert rows(path, index, "s1xparcel OR s2xparcel") == [(3,)]


# The bound

DAY = 86_400.0
NOT_KEPT = Remembered(0, created=False, seen=0, state="retired")


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        self.now += 1
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    stopped_clock = Clock(1_000 * DAY)
    for room in (exposures, lessons, retention):
        monkeypatch.setattr(room, "time", stopped_clock)
    return stopped_clock


async def read_texts(memory: Memory) -> set[str]:
    """The texts of all lessons, those that are held back included."""
    store: Any = memory.store
    sql = "select text from lesson where tenant = :tenant and project = :project"
    scope = key_of(memory.scope)
    texts: set[str] = await store.read(
        memory.scope, lambda db, _: {row["text"] for row in db.execute(sql, scope)}
    )
    return texts


async def set_columns(store: Any, text: str, **columns: Any) -> None:
    """As a proof or a ruling would have left it."""
    for name, value in columns.items():
        sql = f"update lesson set {name} = :value where text = :text"
        values = {"value": value, "text": text}
        await store.write(
            Scope(), lambda db, _, s=sql, v=values: db.execute(s, v).rowcount
        )


async def test_the_examples_of_one_lesson_are_bounded_too(store, path, clock):
    memory = Memory(store, embedder=FixedEmbedder(), max_entries=5)
    pinned = Example("parcel 99", "99 kg")
    await memory.remember("style", "x", example=pinned, pinned=True)
    for n in range(12):
        await memory.remember(
            "units", "no unit", example=Example(f"parcel {n}", f"{n} kg")
        )
    matches = await memory.recall("parcel 3", 99)
    accepted = {match.example.accepted for match in matches}
    assert accepted == {"8 kg", "9 kg", "10 kg", "11 kg", "99 kg"}
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
        await set_columns(store, name, **columns)
    await memory.remember("E", "pinned")
    await set_columns(store, "pinned", state="retired", useful=0.5, pinned=True)
    for n in range(len(ORDER)):
        bounded = Memory(store, max_entries=len(ORDER) + 1)
        await bounded.remember("E", f"filler {chr(97 + n)}", importance=1.0)
        await set_columns(store, f"filler {chr(97 + n)}", useful=2.0)
        texts = await read_texts(memory)
        assert [name in texts for name, _ in ORDER] == [
            position > n for position in range(len(ORDER))
        ]
        assert "pinned" in texts


async def test_what_is_quarantined_pushes_nothing_out_that_is_not(store):
    memory = Memory(store, max_entries=3)
    for text in ("one", "two"):
        await memory.remember("E", text)
    await set_columns(store, "one", state="retired")
    for n in range(20):
        answer = await memory.remember("E", f"flood {chr(97 + n)}", origin="outside")
        assert answer.created
        assert await read_texts(memory) == {"one", "two", f"flood {chr(97 + n)}"}
    await memory.remember("E", "three")
    assert await read_texts(memory) == {"one", "two", "three"}
    # Now there is no room for it at all, and it is told so.
    assert await memory.remember("E", "flood", origin="outside") == NOT_KEPT
    assert await read_texts(memory) == {"one", "two", "three"}
    assert not await memory.seen("E", "flood")


steps = st.lists(
    st.tuples(
        st.sampled_from(["user", "outside", "pin", "unpin", "clear", "prune"]),
        st.sampled_from([Scope("a"), Scope("b")]),
        st.integers(0, 9),
    ),
    max_size=30,
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=steps, max_entries=st.integers(1, 4))
def test_a_bound_holds_whatever_happens(moves, max_entries):
    async def scenario(store: Any) -> None:
        for action, scope, n in moves:
            memory = Memory(store, scope, max_entries=max_entries)
            before = {lesson["signature"]: lesson for lesson in await memory.top(99)}
            if action in ("pin", "unpin"):
                for lesson in await memory.top(1):
                    await memory.pin(lesson["id"], by="ann", pinned=action == "pin")
            elif action == "clear":
                await memory.clear()
            elif action == "prune":
                await memory.prune(by="ann", keep=n)
            else:
                answer = await memory.remember(
                    "E", f"error {chr(97 + n)}", origin=action
                )
                after = {lesson["signature"]: lesson for lesson in await memory.top(99)}
                gone = [lesson for name, lesson in before.items() if name not in after]
                assert all(not lesson["pinned"] for lesson in gone)
                if action == "outside":
                    assert all(lesson["state"] == "quarantined" for lesson in gone)
                sightings = await memory.seen("E", f"error {chr(97 + n)}")
                assert sightings.count == answer.seen
            after = {lesson["signature"]: lesson for lesson in await memory.top(99)}
            assert len(after) == await memory.count()
            pinned = sum(lesson["pinned"] for lesson in after.values())
            assert len(after) <= max(max_entries, pinned)

    with opened(":memory:") as store:
        asyncio.run(scenario(store))


async def test_what_was_neither_seen_nor_shown_is_removed(store, clock, path):
    memory = Memory(store)
    for text in ("seen", "shown", "unused", "pinned", "helps", "hurts"):
        await store.write(memory.scope, exposures.remember, [build_lesson(text, "c")])
    await set_columns(store, "pinned", pinned=True)
    await set_columns(store, "helps", useful=1.01, state="verified")
    await set_columns(store, "hurts", useful=0.9, state="verified")
    clock.now += 100 * DAY
    await store.write(memory.scope, exposures.remember, [build_lesson("seen", "c")])
    exposure = Exposure(
        f"check/{signature('c', 'shown').digest}", "loop", shown=True, share=0.0
    )
    await store.write(memory.scope, exposures.remember, [], exposures=[exposure])
    clock.now += 10 * DAY
    for dry in (True, True, False):
        removed = await memory.prune(unused_for=60 * DAY, by="ann", dry_run=dry)
        assert {removal["text"]: removal["why"] for removal in removed} == {
            "unused": "not used for 110 days",
            "hurts": "not used for 110 days",
        }
    assert await memory.prune(by="ann", unused_for=60 * DAY) == []
    assert await read_texts(memory) == {"seen", "shown", "pinned", "helps"}
    ((by, subject, record),) = rows(path, "select by, subject, record from ruling")
    assert by == "ann"
    assert subject == "2 lessons"
    names = {f"check/{signature('c', text).digest}" for text in ("unused", "hurts")}
    assert {removal["lesson"] for removal in json.loads(record)["removed"]} == names


async def test_an_error_below_a_long_trace_is_found_again_in_other_particulars(memory):
    calls = "".join(
        f'  File "/srv/shop/m{number}.py", line {number}, in f{number}\n    g()\n'
        for number in range(400)
    )
    trace = f"Traceback (most recent call last):\n{calls}ValueError: customer 17 is new"
    await memory.remember("", trace, lesson="Look at the last frame.")
    assert (await memory.seen(trace.replace("line 5", "line 9"))).count == 1
    assert (await memory.seen("ValueError: customer 99 is new")).count == 1

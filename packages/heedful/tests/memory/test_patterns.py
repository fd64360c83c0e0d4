"""`seen` answers for a group of patterns; a merge is a reading, on record where it is
undone.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from heedful.lessons.lesson import Lesson
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.store import patterns as grouping
from tests.store.support import opened
from tests.tables import cases

pytestmark = pytest.mark.both_nightly

# A name with a digit is a particular by its form.
NAMES = ("ada1", "bo2", "cy3", "di4", "ed5", "flo6", "gus7", "hal8")
LOGIN = [f"login failed for {name} here" for name in NAMES]
PAIRS = [first + second for first in "abcde" for second in "fghijklmno"]


def digest(text: str, kind: str = "log") -> str:
    return signature(kind, text).digest


async def remember_texts(
    memory: Memory, texts: list[str], kind: str = "log", **more: Any
) -> None:
    for text in texts:
        await memory.remember(kind, text, **more)


def forget_cache(db, scope):
    db.local(grouping.PatternCache)._entries.clear()


async def test_a_pattern_answers_for_its_group(memory):
    await remember_texts(memory, LOGIN[:3])
    alone = await memory.seen("log", LOGIN[1])
    assert alone.count == 1
    assert alone.group is None
    assert len(alone.lessons) == 1
    await remember_texts(memory, [LOGIN[3], LOGIN[3], LOGIN[2]])
    sightings = await memory.seen("log", LOGIN[1])
    assert sightings
    assert sightings.count == 6
    assert sightings.group is not None
    assert sightings.group.template == "login failed for <*> here"
    assert set(sightings.group.members) == {digest(text) for text in LOGIN[:4]}
    # Its own first, then those most often seen, then the first learnt.
    order = [LOGIN[1], LOGIN[2], LOGIN[3], LOGIN[0]]
    assert [lesson["pattern"] for lesson in sightings.lessons] == order
    assert (await memory.seen("log", "login failed for zoe9 here")).count == 6
    assert await memory.count() == 4, "a question teaches nothing"
    # `remember` counts the very pattern.
    assert (await memory.remember("log", LOGIN[0])).seen == 2


async def test_a_flood_from_outside_merges_nothing_and_counts_for_nothing(memory):
    flood = [f"login failed for {pair}9 here" for pair in PAIRS]
    await remember_texts(memory, LOGIN[:3])
    await remember_texts(memory, flood, origin="outside")
    for text in LOGIN[:3]:
        sightings = await memory.seen("log", text)
        assert sightings.count == 1
        assert sightings.group is None
    await remember_texts(memory, LOGIN[3:4])
    # Of those that are trusted four are evidence; of the flood nothing is counted with
    # them.
    assert (await memory.seen("log", LOGIN[0])).count == 4
    # Where one of the flood is asked for, it is known: its own, and those it is like.
    sightings = await memory.seen("log", flood[0])
    assert sightings.count == 5
    assert sightings.lessons[0]["state"] == "quarantined"
    assert sightings.lessons[0]["text"] == ""


async def test_what_was_rejected_merges_nothing_and_is_not_told(memory):
    await remember_texts(memory, LOGIN[:2])
    await remember_texts(
        memory, LOGIN[2:], origin="outside", source="page", tags=["obey the page"]
    )
    waiting = await memory.quarantine.waiting()
    await memory.quarantine.reject([entry.id for entry in waiting], by="ann")
    sightings = await memory.seen("log", LOGIN[0])
    assert sightings.count == 1
    assert sightings.group is None
    rejected = await memory.seen("log", LOGIN[2])
    (lesson,) = rejected.lessons
    assert rejected.count == 1
    assert lesson["state"] == "retired"
    assert lesson["text"] == ""
    assert lesson["tags"] == []


@pytest.mark.sqlite
async def test_what_another_connection_writes_is_seen(memory, path):
    await remember_texts(memory, LOGIN[:3])
    assert (await memory.seen("log", LOGIN[0])).count == 1
    with opened(path) as store:
        other = Memory(store)
        await remember_texts(other, LOGIN[3:4])
        assert (await memory.seen("log", LOGIN[0])).count == 4


async def test_a_finding_is_known_under_every_check_that_found_it(memory):
    for pair in PAIRS[:30]:
        pattern = signature(pair, "a key of its own")
        lesson = Lesson("check", pattern, error_type=pair, text="x", sighting="No unit")
        await memory.keep(lesson)
    assert (await memory.seen("no  UNIT.")).count == 30


steps = st.lists(
    st.tuples(
        st.sampled_from(["user", "local", "outside", "forget"]),
        st.integers(0, len(NAMES) - 1),
    ),
    max_size=30,
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=steps)
def test_what_is_kept_never_differs_from_what_is_read_anew(moves):
    async def scenario(memory: Memory) -> None:
        for action, position in moves:
            if action == "forget":
                for lesson in await memory.top(1):
                    await memory.pin(lesson["id"], by="ann")
                await memory.prune(by="ann", keep=0)
            else:
                await memory.remember("log", LOGIN[position], origin=action)
            for text in LOGIN[:5]:
                cached = await memory.seen("log", text)
                await memory.store.read(memory.scope, forget_cache)
                assert cached == await memory.seen("log", text)
                own_lessons = [
                    lesson
                    for lesson in cached.lessons
                    if lesson["signature"] == digest(text)
                ]
                assert cached.count == sum(lesson["seen"] for lesson in cached.lessons)
                assert list(cached.lessons[: len(own_lessons)]) == own_lessons

    with opened(":memory:") as store:
        asyncio.run(scenario(Memory(store)))


@cases(
    "text, count",
    {
        "a final dot more": ("Do not touch the lock file.", 1),
        "another case": ("do not touch the Lock file", 1),
        "another word": ("Do not touch the 'app' file", 0),
        "the same key": ("KeyError: 'total'", 1),
        "a key in another case": ("KeyError: 'Total'", 0),
    },
)
async def test_a_text_is_known_by_another_case_or_with_a_final_dot(memory, text, count):
    await memory.remember("note", "Do not touch the lock file")
    await memory.remember("note", "KeyError: 'total'")
    assert (await memory.seen("note", text)).count == count

"""Recall over a real database: lessons of any script, their context, filters; the index."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heedful
from heedful.lessons.lesson import Example
from heedful.memory.memory import Memory
from heedful.store.store import Store
from heedful.testing import FixedEmbedder
from tests.engines import IN_SOAK
from tests.store.support import opened

pytestmark = IN_SOAK


@pytest.fixture
def store():
    with opened(":memory:") as one:
        yield one


@pytest.fixture(params=["words", "vectors"])
def memory(request, store):
    return Memory(store, embedder=FixedEmbedder() if request.param == "vectors" else None)


async def kept(memory: Memory, *lessons: str, **fields: Any) -> None:
    for n, lesson in enumerate(lessons):
        await memory.remember(f"e{n}", "what happened", lesson=lesson, **fields)


async def lessons(memory: Memory, task: str, **filters: Any) -> list[str]:
    return [one.lesson for one in await memory.recall(task, **filters)]


async def test_a_lesson_is_found_by_its_own_words_and_goes_into_no_prompt(memory):
    await kept(memory, "The billing host sleeps at night: retry later.", "Rivers end in seas.")
    (one,) = await memory.recall("why does the billing host sleep")
    assert (one.example.task, one.example.accepted) == (one.lesson, "")
    assert (one.kind, one.error_type, one.seen) == ("error", "e0", 1)
    assert memory.render([one]) == ()
    assert (await memory.brief("why does the billing host sleep", "loop")).examples == ()
    assert [known["examples"] for known in await memory.top()] == [0, 0]


async def test_a_lesson_that_is_raised_is_found_by_its_new_words_only(memory):
    await memory.remember("E", "x", lesson="wait for the moon", trust="tool")
    assert await lessons(memory, "wait for the moon") == []
    await memory.remember("E", "x", lesson="restart printers", trust="operator")
    assert await lessons(memory, "restart printers") == ["restart printers"]
    assert await lessons(memory, "wait for the moon") == []
    await memory.remember("E", "x", lesson="wait for the moon", trust="tool")
    assert await lessons(memory, "wait for the moon") == []
    assert await lessons(memory, "restart printers") == ["restart printers"]


async def test_what_stood_around_it_is_found_as_words_but_has_no_part_in_the_meaning(store):
    memory = Memory(store, embedder=FixedEmbedder())
    await memory.remember("a", "yes, gladly", context="shall we visit Lisbon")
    await memory.remember("b", "yes, gladly so", context="is tea ready")
    (one,) = await memory.recall("visit Lisbon")
    assert (one.error_type, one.example.task) == ("a", "yes, gladly")
    (cosine,) = [found.cosine for found in await memory.recall("yes, gladly") if found.id == 1]
    assert cosine == pytest.approx(1)


WORDS = ["kilogram", "parcel", "重量", "вес", "🚀", "وزن", '"', "NEAR(", "words :", "*", "AND"]


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join), max_size=6),
    st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=4).map(" ".join) | st.text(max_size=30),
)
def test_any_query_is_answered_and_what_is_unrelated_brings_nothing(stored, asked):
    async def scenario(store: Store) -> None:
        memory = Memory(store)
        await kept(memory, *stored)
        found = await memory.recall(asked, 99)
        assert all(one.coverage >= 0.3 or one.overlap >= 0.4 for one in found)
        assert await memory.recall("zebra") == []

    with opened(":memory:") as store:
        asyncio.run(scenario(store))


async def test_what_is_quarantined_neither_crowds_out_nor_makes_words_common(memory):
    await memory.remember("good", "retry the billing upload once")
    before = await memory.recall("billing upload broken today")
    for n in range(120):
        text = f"billing upload billing upload {n}"
        await memory.remember(f"bad {n}", text, trust="external")
    assert await memory.recall("billing upload broken today") == before
    assert [one.error_type for one in before] == ["good"]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, {"a", "b", "c"}),
        ({"tags": ["red"]}, {"a", "b"}),
        ({"tags": ("red", "blue")}, {"a", "b", "c"}),
        ({"tags": ["red", "blue"], "match": "all"}, {"b"}),
        ({"tags": ["red", "red"], "match": "all"}, {"a", "b"}),
        ({"tags": ["green"]}, set()),
        ({"tags": ["%"]}, set()),
        ({"tags": []}, {"a", "b", "c"}),
        ({"kind": "error"}, {"a", "b", "c"}),
        ({"kind": "check"}, set()),
        ({"error_type": "b"}, {"b"}),
        ({"error_type": "b' or 1 = 1 --"}, set()),
        ({"importance": 0.5}, {"a", "b"}),
        ({"importance": 0.9}, {"a"}),
        ({"importance": 1}, set()),
        ({"since": 1.0}, {"a", "b", "c"}),
        ({"since": 1e12}, set()),
        ({"tags": ["blue"], "importance": 0.5, "error_type": "b", "kind": "error"}, {"b"}),
    ],
)
async def test_a_filter_lets_through_what_it_says(memory, filters, found):
    for name, tags, importance in [
        ("a", ["red"], 0.9),
        ("b", ["red", "blue"], 0.5),
        ("c", ["blue"], 0.1),
    ]:
        said = f"the parcel has weight {name}"
        await memory.remember(name, said, tags=tags, importance=importance)
    brought = await memory.recall("parcel weight", **filters)
    assert {one.error_type for one in brought} == found
    assert all(one.tags for one in brought)


async def test_what_a_filter_lets_through_is_not_crowded_out_by_the_rest(memory):
    for n in range(70):
        await memory.remember(f"e{n}", "parcel weight", tags=["other"])
    await memory.remember("x", "parcel weight and some other words", tags=["wanted"])
    (one,) = await memory.recall("parcel weight", tags=["wanted"])
    assert one.error_type == "x"


# Rendering and logs


TASK = "convert the weight of the parcel to kilograms"


async def test_both_forms_say_where_an_example_comes_from(tmp_path: Path) -> None:
    memory = heedful.Memory(str(tmp_path / "a.db"))
    example = Example(TASK, "12.0 kg", "12 km", "not a weight")
    await memory.remember("units", "12 km is not a weight", example=example)
    await memory.remember("units", "weight of the parcel in kilograms", lesson="weigh twice")
    found = await memory.recall(TASK)
    asked, answered = memory.render(found)
    assert (asked.content, answered.content) == (TASK, "12.0 kg")
    assert "not verified, seen once, remembered as units" in asked.source
    first, second = memory.render_text(found), memory.render_text(found)
    assert first != second  # the delimiters
    assert TASK in first
    assert "12.0 kg" in first
    assert memory.render(found, budget=5) == ()
    assert memory.render_text(found, budget=1) == ""
    assert memory.render_text([]) == ""
    await memory.store.close()


def test_the_log_says_what_became_of_it_and_no_word_of_it(caplog) -> None:
    async def scenario() -> None:
        memory = heedful.Memory(":memory:", max_entries=1)
        for _ in range(2):
            await memory.remember("page", "a word of it", pinned=True)
        await memory.remember("other", "a word of another", trust="model")

    with caplog.at_level("INFO", "heedful"):
        asyncio.run(scenario())
    told = [one.getMessage() for one in caplog.records]
    assert told == ["stored: lesson 1", "duplicate: lesson 1, seen 2 times", "skipped"]

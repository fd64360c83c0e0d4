"""Lessons and episodes page by page, and lessons edited by a person: nothing twice or lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import Changed, NotFound
from heedful.lessons.lesson import Change, LessonFilter, Scope
from heedful.memory.memory import Memory
from heedful.store import episodes, exposures, patterns
from heedful.store.records import StoredEpisode
from tests.engines import IN_SOAK
from tests.store.support import SCOPE, opened

pytestmark = IN_SOAK

OTHER = Scope("other")


@pytest.fixture
def store(tmp_path):
    with opened(tmp_path / "e.db") as one:
        yield one


async def learnt(store, n: int, scope: Scope = SCOPE, **more) -> int:
    said = await Memory(store, scope).remember(
        f"kind {n % 2}", f"what went wrong: {'x' * n}", **more
    )
    return int(said.id)


async def pages(store, wanted: LessonFilter, size: int) -> list[int]:
    found: list[int] = []
    while page := await store.read(SCOPE, patterns.list_lessons, wanted, size):
        found += [one["id"] for one in page]
        wanted = replace(wanted, before=found[-1])
    return found


@pytest.mark.parametrize("size", [1, 3, 100])
async def test_pages_hold_every_lesson_once_whatever_comes_meanwhile(store, size):
    ids = [await learnt(store, n) for n in range(1, 8)]
    await learnt(store, 1, OTHER)
    first = await store.read(SCOPE, patterns.list_lessons, LessonFilter(), size)
    await learnt(store, 20)
    assert [
        *(one["id"] for one in first),
        *await pages(store, LessonFilter(before=first[-1]["id"]), size),
    ] == (sorted(ids, reverse=True))


@given(
    all=st.lists(
        st.lists(st.text('ab", [\\é', min_size=1, max_size=5), max_size=3), min_size=20, max_size=20
    )
)
@settings(max_examples=5)
def test_a_tag_is_found_where_a_lesson_has_it_and_nowhere_else(all):
    with opened(":memory:") as store:
        for n, tags in enumerate(all):
            asyncio.run(learnt(store, n, tags=tags))
        lessons = asyncio.run(store.read(SCOPE, patterns.list_lessons, LessonFilter(), 99))
        for tag in {tag for tags in all for tag in tags}:
            expected = [one["id"] for one in lessons if tag in one["tags"]]
            found = asyncio.run(store.read(SCOPE, patterns.list_lessons, LessonFilter(tag=tag), 99))
            assert [one["id"] for one in found] == expected


async def test_filters_are_all_met(store):
    one = await learnt(store, 1, tags=["a"])
    two = await learnt(store, 2, tags=["a", 'b"'])
    held = await learnt(store, 3, trust="tool", tags=["a"])
    for wanted, ids in (
        (LessonFilter(error_type="kind 1"), [held, one]),
        (LessonFilter(tag="a"), [two, one]),
        (LessonFilter(tag='b"', error_type="kind 0"), [two]),
        (LessonFilter(state="quarantined"), [held]),
        (LessonFilter(kind="check"), []),
    ):
        assert [
            one["id"] for one in await store.read(SCOPE, patterns.list_lessons, wanted, 9)
        ] == ids


async def test_words_that_are_held_back_are_in_no_list(store):
    await learnt(store, 3, trust="external", tags=["secret tag"])
    [told] = await store.read(SCOPE, patterns.list_lessons, LessonFilter(), 9)
    assert (told["text"], told["pattern"], told["tags"], told["meta"]) == ("", "", [], {})
    assert await store.read(SCOPE, patterns.list_lessons, LessonFilter(tag="secret tag"), 9) == []


async def test_an_edit_needs_the_edition_that_was_read(store):
    id = await learnt(store, 1)
    [read] = await store.read(SCOPE, patterns.list_lessons, LessonFilter(), 1)
    await learnt(store, 1)  # seen again: a counter is no edit
    pinned = await store.write(
        SCOPE, patterns.amend, id, read["edition"], Change(pinned=True), "ada", "it is good"
    )
    assert pinned["pinned"] is True
    with pytest.raises(Changed) as told:
        await store.write(SCOPE, patterns.amend, id, read["edition"], Change(apart=True), "bo", "")
    assert told.value.edition == pinned["edition"]
    apart = await store.write(
        SCOPE, patterns.amend, id, pinned["edition"], Change(apart=True), "bo", ""
    )
    assert (apart["pinned"], apart["apart"]) == (True, True)
    rulings = [(one["action"], one["by"]) for one in await store.read(SCOPE, exposures.rulings, 9)]
    assert rulings == [("unmerge", "bo"), ("pin", "ada")]


async def test_an_edit_is_whole_or_not_at_all(store):
    id = await learnt(store, 1)
    [read] = await store.read(SCOPE, patterns.list_lessons, LessonFilter(), 1)
    with pytest.raises(NotFound):  # no proof retired it
        await store.write(
            SCOPE,
            patterns.amend,
            id,
            read["edition"],
            Change(pinned=True, restored=True),
            "ada",
            "",
        )
    assert await store.read(SCOPE, patterns.list_lessons, LessonFilter(), 1) == [read]
    for scope, other in ((OTHER, id), (SCOPE, id + 1), (SCOPE, 2**63 - 1)):
        with pytest.raises(NotFound):
            await store.write(
                scope, patterns.amend, other, read["edition"], Change(pinned=True), "ada", ""
            )


async def test_episodes_come_in_pages_without_their_records(store):
    for n in range(7):
        state = await episodes.put(
            store, SCOPE, StoredEpisode(f"d{n}", f"run {n}", "", "failure", {"a": 1})
        )
        assert state == "waiting"
    assert (
        await episodes.put(store, SCOPE, StoredEpisode("d3", "again", "", "failure", {}))
        == "waiting"
    )
    newest = await store.read(SCOPE, episodes.newest, 9)
    found = await store.read(SCOPE, episodes.page, 3)
    while page := await store.read(SCOPE, episodes.page, 3, "", found[-1].at, found[-1].digest):
        found = [*found, *page]
    assert [one.digest for one in found] == [one.digest for one in newest]
    assert {one.tries for one in found} == {0}
    assert all(one.record == {} for one in found)
    assert await store.read(OTHER, episodes.page, 3) == []


async def test_what_was_put_is_taken_by_a_worker(store):
    await episodes.put(store, SCOPE, StoredEpisode("d1", "", "", "failure", {"a": 1}))
    taken = await store.write(SCOPE, episodes.take, 4e9)
    assert taken is not None
    assert (taken.digest, taken.record, taken.tries) == ("d1", {"a": 1}, 1)

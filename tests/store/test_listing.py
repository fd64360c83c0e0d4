"""Lessons and episodes page by page, and lessons edited by a person: nothing twice or lost."""

from __future__ import annotations

from typing import Any

import pytest

from heedful.errors import NotFound
from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from heedful.store import patterns
from tests.engines import IN_SOAK
from tests.store.support import SCOPE

pytestmark = IN_SOAK

OTHER = Scope("other")


async def learnt(store, n: int, scope: Scope = SCOPE, **more) -> int:
    said = await Memory(store, scope).remember(
        f"kind {n % 2}", f"what went wrong: {'x' * n}", **more
    )
    return int(said.id)


async def listed(store: Any, limit: int, **only: str) -> Any:
    return await store.read(SCOPE, patterns.list_lessons, limit, **only)


async def amend(store: Any, id: int, edition: str, by: str, why: str, **change: bool) -> Any:
    return await store.write(SCOPE, patterns.amend, id, edition, by, why, **change)


@pytest.mark.parametrize("tag", ["a", 'b"', "[", "é", "\\"])
async def test_a_tag_is_found_where_a_lesson_has_it_and_nowhere_else(store, tag):
    for n, tags in enumerate([[], [tag], [f"{tag}a"], ["a", f", {tag}", tag], ["ab"]]):
        await learnt(store, n, tags=tags)
    expected = [one["id"] for one in await listed(store, 9) if tag in one["tags"]]
    assert [one["id"] for one in await listed(store, 9, tag=tag)] == expected
    assert len(expected) >= 2


async def test_words_that_are_held_back_are_in_no_list(store):
    await learnt(store, 3, trust="external", tags=["secret tag"])
    [told] = await listed(store, 9)
    assert (told["text"], told["pattern"], told["tags"], told["meta"]) == ("", "", [], {})
    assert await listed(store, 9, tag="secret tag") == []


async def test_an_edit_is_whole_or_not_at_all(store):
    id = await learnt(store, 1)
    edition = (await listed(store, 1))[0]["edition"]
    await learnt(store, 1)  # seen again: a counter is no edit
    [read] = await listed(store, 1)
    assert (read["seen"], read["edition"]) == (2, edition)
    with pytest.raises(NotFound):  # no proof retired it
        await amend(store, id, edition, "ada", "", pinned=True, restored=True)
    assert await listed(store, 1) == [read]
    for scope, other in ((OTHER, id), (SCOPE, id + 1), (SCOPE, 2**63 - 1)):
        with pytest.raises(NotFound):
            await store.write(scope, patterns.amend, other, edition, "ada", "", pinned=True)

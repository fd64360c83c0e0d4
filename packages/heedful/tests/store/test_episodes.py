"""Episodes in a store: each once, one worker at a time, tried again, never half
written.
"""

from dataclasses import replace
from typing import Any

import pytest

from heedful.errors import Conflict, InvalidInput
from heedful.lessons.lesson import Lesson, Scope
from heedful.store import episode_lessons, episodes, forgetting, lessons
from heedful.store.episodes import StoredEpisode
from heedful.store.store import Store
from tests.store.entries import build_lesson
from tests.store.support import SCOPE, rows

pytestmark = pytest.mark.both_nightly

ONE = StoredEpisode(
    digest="d1",
    name="run 1",
    session="s1",
    outcome="failure",
    record={"episode": {"events": []}},
)
LATER = 4e9  # seconds since 1970, after any test


def lesson(kind: str, **fields) -> Lesson:
    return build_lesson("it failed", kind, kind, trust="user", **fields)


async def test_an_episode_is_admitted_once_and_is_whose_it_was_first(store):
    assert await store.write(SCOPE, episodes.admit, ONE) is None
    assert await store.write(SCOPE, episodes.admit, ONE) == "waiting"
    [episode] = await store.read(SCOPE, episodes.page, 9, whole=True)
    assert replace(episode, at=0.0) == replace(ONE, tries=1)
    await record(store, "d1", [lesson("reflection")])
    assert await store.write(SCOPE, episodes.admit, ONE) == "reflected"
    assert await store.read(SCOPE, episodes.counts) == {"reflected": 1}
    assert await store.write(Scope("other"), episodes.admit, ONE) is None
    await store.write(SCOPE, forgetting.clear)
    assert await store.read(SCOPE, episodes.counts) == {}
    assert await store.read(Scope("other"), episodes.counts) == {"waiting": 1}


async def test_what_failed_is_taken_again_but_not_twice_in_one_go(store):
    await store.write(SCOPE, episodes.admit, ONE)
    await fail(store, "d1", "ModelTimeout: late")
    [failed] = await store.read(SCOPE, episodes.page, 9, "failed", whole=True)
    assert failed.error == "ModelTimeout: late"
    assert await take(store, before=1.0) is None
    episode = await take(store)
    assert episode.state == "waiting"
    assert episode.tries == 2
    assert await take(store) is None  # somebody is at work on it


async def record(store: Store, digest: str, lessons: Any, **more: Any) -> Any:
    return await store.write(
        SCOPE, episode_lessons.record_lessons, digest, lessons, **more
    )


async def fail(store: Store, digest: str, error: str) -> None:
    await store.write(SCOPE, episodes.record_failure, digest, error)


async def take(store: Store, before: float = LATER, digest: str = "") -> Any:
    return await store.write(SCOPE, episodes.take, before, digest)


async def test_lessons_links_and_state_are_one_transaction(store):
    await store.write(SCOPE, episodes.admit, ONE)
    bad = lesson("strategy", parents=(99,))
    with pytest.raises(InvalidInput, match="derived_from"):
        await record(store, "d1", [lesson("reflection"), bad])
    assert await store.read(SCOPE, lessons.count) == 0
    assert await store.read(SCOPE, episodes.counts) == {"waiting": 1}
    both = [lesson("reflection"), lesson("strategy")]
    answers = await record(store, "d1", both)
    assert [answer.created for answer in answers] == [True, True]
    child, parent = (
        f"{answer.kind}/{answer.signature.digest}" for answer in reversed(both)
    )
    link = rows(store.url, "select child, relation, parent from link")
    assert link == [(child, "strategy", parent)]
    with pytest.raises(Conflict, match="d1"):
        await record(store, "d1", both)
    assert rows(store.url, "select seen from lesson") == [(1,), (1,)]
    await fail(store, "d1", "too late")
    assert await store.read(SCOPE, episodes.counts) == {"reflected": 1}

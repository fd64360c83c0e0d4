"""Vectors in RAM: as good as those in the store, bounded, never more than it has."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from heedful.lessons.lesson import Filter, Lesson, Match, Scope
from heedful.lessons.signature import signature
from heedful.store import exposures, search
from heedful.store.search import Vectors
from heedful.store.store import Store
from tests.store.support import opened

WIDTH = 32
HERE, THERE, NOWHERE = (Scope("t", name) for name in ("here", "there", "nowhere"))


@pytest.fixture
def store():
    with opened(":memory:") as opened_store:
        yield opened_store


def units(count: int, seed: int = 1, width: int = WIDTH) -> Any:
    normal = np.random.default_rng(seed).normal(size=(count, width)).astype("<f4")
    return normal / np.linalg.norm(normal, axis=1, keepdims=True)


async def remember_vectors(
    store: Store,
    scope: Scope,
    vectors: Sequence[Any],
    text: str = "weigh",
    tags: tuple[str, ...] = (),
) -> list[int]:
    lessons = [
        Lesson(
            "error",
            signature(f"{text} {n}", text),
            error_type="e",
            text=text,
            sighting=text,
            vector=vector,
            trust="user",
            state="unverified",
            space="s",
            tags=tags,
        )
        for n, vector in enumerate(vectors)
    ]
    remembered = await store.write(scope, exposures.remember, lessons)
    return [match.id for match in remembered]


async def find_nearest(
    store: Store, scope: Scope, vector: Any, limit: int = 10, **only: Any
) -> list[Match]:
    only = {"only": Filter(**only)}
    near = await store.read(scope, search.search, "", "s", vector, limit, **only)
    return sorted(near, key=lambda match: -(match.cosine or 0.0))


async def read_vectors(store):
    return await store.read(Scope(), lambda db, _: db.local(Vectors))


async def replace_vectors(store, vectors):
    await store.read(
        Scope(), lambda db, _: db._local_objects.__setitem__(Vectors, vectors)
    )


async def test_the_nearest_are_those_of_an_exact_scan(store):
    places = units(1_200)
    await remember_vectors(store, HERE, places)
    for query in units(20, seed=2):
        exact = np.sort(places @ query)[::-1][:10]
        assert [
            match.cosine for match in await find_nearest(store, HERE, query)
        ] == pytest.approx(exact, abs=1e-6)


async def test_so_is_a_text_behind_many_newer_ones_with_the_same_words(
    store, monkeypatch
):
    monkeypatch.setattr(search, "BASE_MATCHES", 200)
    await remember_vectors(
        store, HERE, [None], text="weigh old parcels", tags=("wanted",)
    )
    await remember_vectors(store, HERE, [None] * 400, text="weigh parcels")
    ask = store.read(
        HERE, search.search, "weigh parcels", "", None, 10, Filter(tags=("wanted",))
    )
    assert [match.lesson for match in await ask] == ["weigh old parcels"]
    newest = await store.read(HERE, search.search, "weigh parcels", "", None, 10)
    assert {match.lesson for match in newest} == {"weigh parcels"}


async def test_all_scopes_together_are_bounded_and_the_one_in_use_stays(store):
    query = units(1)[0]
    scopes = [HERE, THERE, NOWHERE]
    for n, scope in enumerate(scopes):
        await remember_vectors(store, scope, [query, *units(300, seed=n)])
    await find_nearest(store, HERE, query)
    alone = (await read_vectors(store)).bytes
    await replace_vectors(store, Vectors(most=2 * alone))
    for _ in range(2):
        for scope in scopes:
            assert (await find_nearest(store, scope, query))[0].cosine == pytest.approx(
                1
            )
            assert (await read_vectors(store)).bytes <= 2 * alone
    await replace_vectors(store, Vectors(most=1))
    assert (await find_nearest(store, HERE, query))[0].cosine == pytest.approx(1)
    assert (await read_vectors(store)).bytes == alone

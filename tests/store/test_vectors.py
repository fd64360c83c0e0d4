"""Codes of vectors in RAM: as good as the vectors, bounded, never more than the rows
say.
"""

import sys
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


@pytest.fixture(params=["int8", "float32"])
def store(request, monkeypatch):
    """With numkong and without it, as on a platform that it does not exist for."""
    if request.param == "float32":
        monkeypatch.setitem(sys.modules, "numkong", None)
    with opened(":memory:") as one:
        yield one


def units(count: int, seed: int = 1, width: int = WIDTH) -> Any:
    made = np.random.default_rng(seed).normal(size=(count, width)).astype("<f4")
    return made / np.linalg.norm(made, axis=1, keepdims=True)


async def keep(
    store: Store,
    scope: Scope,
    vectors: Sequence[Any],
    text: str = "weigh",
    **fields: Any,
) -> list[int]:
    more = {"trust": "operator", "state": "unverified", "space": "s", **fields}
    lessons = [
        Lesson(
            "error",
            signature(f"{text} {n}", text),
            error_type="e",
            text=text,
            sighting=text,
            vector=one,
            **more,
        )
        for n, one in enumerate(vectors)
    ]
    return [one.id for one in await store.write(scope, exposures.remember, lessons)]


async def found(
    store: Store, scope: Scope, vector: Any, limit: int = 10, **only: Any
) -> list[Match]:
    only = {"only": Filter(**only)}
    near = await store.read(scope, search.search, "", "s", vector, limit, **only)
    return sorted(near, key=lambda one: -(one.cosine or 0.0))


async def kept(store):
    return await store.read(Scope(), lambda db, _: db.local(Vectors))


async def let_keep(store, vectors):
    await store.read(Scope(), lambda db, _: db._local.__setitem__(Vectors, vectors))


async def test_the_nearest_are_those_of_an_exact_scan(store):
    places = units(1_200)
    await keep(store, HERE, places)
    for query in units(20, seed=2):
        exact = np.sort(places @ query)[::-1][:10]
        assert [one.cosine for one in await found(store, HERE, query)] == pytest.approx(
            exact, abs=1e-6
        )


async def test_so_is_a_text_behind_many_newer_ones_with_the_same_words(
    store, monkeypatch
):
    monkeypatch.setattr(search, "BASE_MATCHES", 200)
    await keep(store, HERE, [None], text="weigh old parcels", tags=("wanted",))
    await keep(store, HERE, [None] * 400, text="weigh parcels")
    ask = store.read(
        HERE, search.search, "weigh parcels", "", None, 10, Filter(tags=("wanted",))
    )
    assert [one.lesson for one in await ask] == ["weigh old parcels"]
    newest = await store.read(HERE, search.search, "weigh parcels", "", None, 10)
    assert {one.lesson for one in newest} == {"weigh parcels"}


async def test_vectors_that_cannot_be_compared_are_no_trouble(store):
    query = units(1)[0]
    await keep(store, HERE, [query, np.zeros(WIDTH), units(1, width=8)[0]])
    assert [one.cosine for one in await found(store, HERE, query)] == pytest.approx(
        [1, 0]
    )
    assert [
        one.cosine for one in await found(store, HERE, np.zeros(WIDTH))
    ] == pytest.approx([0, 0])


async def test_all_scopes_together_are_bounded_and_the_one_in_use_stays(store):
    query = units(1)[0]
    scopes = [HERE, THERE, NOWHERE]
    for n, scope in enumerate(scopes):
        await keep(store, scope, [query, *units(300, seed=n)])
    await found(store, HERE, query)
    alone = (await kept(store)).bytes
    await let_keep(store, Vectors(most=2 * alone))
    for _ in range(2):
        for scope in scopes:
            assert (await found(store, scope, query))[0].cosine == pytest.approx(1)
            assert (await kept(store)).bytes <= 2 * alone
    await let_keep(store, Vectors(most=1))
    assert (await found(store, HERE, query))[0].cosine == pytest.approx(1)
    assert (await kept(store)).bytes == alone

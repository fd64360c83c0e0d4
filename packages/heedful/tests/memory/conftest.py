"""A memory in the store of the test, and one by words and by vectors."""

import pytest

from heedful.memory.memory import Memory
from heedful.store.store import Store
from heedful.testing import FixedEmbedder


@pytest.fixture
def memory(store: Store) -> Memory:
    return Memory(store, holdout=0)


@pytest.fixture(params=["words", "vectors"])
def by_words_and_vectors(request: pytest.FixtureRequest, store: Store) -> Memory:
    """A memory that finds lessons by their words alone, and one that has vectors, too.

    A module whose tests try both writes `memory = by_words_and_vectors`.
    """
    if request.param == "vectors":
        return Memory(store, embedder=FixedEmbedder())
    return Memory(store)

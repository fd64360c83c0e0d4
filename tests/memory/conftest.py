"""A memory in the store of the test."""

import pytest

from heedful.memory.memory import Memory
from heedful.store.store import Store


@pytest.fixture
def memory(store: Store) -> Memory:
    return Memory(store)

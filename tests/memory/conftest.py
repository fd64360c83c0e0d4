"""A store for each test, and a memory in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful.memory.memory import Memory
from heedful.store.store import Store
from tests.store.support import opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with opened(path) as one:
        yield one


@pytest.fixture
def memory(store: Store) -> Memory:
    return Memory(store)

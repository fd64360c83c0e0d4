"""A store for each test, at a path of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful.store.store import Store
from tests.engines import opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with opened(path) as one:
        yield one

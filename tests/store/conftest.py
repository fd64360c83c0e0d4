"""The store that most tests of this folder open, and the path of its file."""

from __future__ import annotations

import pytest

from tests.store.support import opened


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.db"


@pytest.fixture
def store(path):
    with opened(path) as one:
        yield one

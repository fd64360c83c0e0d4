"""Both journals: in memory, and in the store of the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful.store.store import Store
from tests.engines import opened


@pytest.fixture(params=["no store", "store"])
def any_store(request: pytest.FixtureRequest, path: Path) -> Iterator[Store | None]:
    """Where a run keeps its loop: nowhere, or in a file."""
    if request.param == "no store":
        yield None
    else:
        with opened(path) as store:
            yield store

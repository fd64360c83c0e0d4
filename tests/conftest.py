"""Hypothesis: the same examples every time, more in a soak run. Stores: closed after each test."""

import asyncio
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from errata.store import sqlite

# `make soak` sets it to 100; a test marked `soak` multiplies its length by it.
SOAK = int(os.environ.get("ERRATA_SOAK", "1"))

settings.register_profile("test", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("soak", deadline=None, print_blob=True, max_examples=100 * SOAK)
settings.load_profile("soak" if SOAK > 1 else "test")


@pytest.fixture(autouse=True)
def no_store_stays_open() -> Iterator[None]:
    """A store that is opened by its path is shared for as long as the process lives."""
    yield
    for store in list(sqlite._open.values()):
        asyncio.run(store.close())
    sqlite._open.clear()

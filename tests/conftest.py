"""Hypothesis: the same examples every time, more in a soak run. Async tests. Stores:
closed.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from heedful.store import _shared as shared
from heedful.store.store import Store
from tests import engines

if TYPE_CHECKING:
    from tests.postgres import Urls

# `make soak` sets it to 100; a test marked `soak` multiplies its length by it.
SOAK = int(os.environ.get("HEEDFUL_SOAK", "1"))

settings.register_profile("test", derandomize=True, deadline=None, max_examples=60)
settings.register_profile(
    "soak", deadline=None, print_blob=True, max_examples=100 * SOAK
)
settings.load_profile("soak" if SOAK > 1 else "test")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What is marked `both` runs on each engine."""
    both, sqlite = map(metafunc.definition.get_closest_marker, ("both", "sqlite"))
    if both and not sqlite:
        metafunc.parametrize("engine", engines.ENGINES, indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Run an async test in an event loop of its own.

    Coverage skips hundreds of random examples and long runs: it takes 3 times as long,
    and other tests reach the same lines.
    """
    if inspect.iscoroutinefunction(test := pyfuncitem.obj):
        pyfuncitem.obj = functools.wraps(test)(
            lambda **given: asyncio.run(test(**given))
        )
        del pyfuncitem.obj.__wrapped__
    looks = sys.gettrace()
    random = getattr(pyfuncitem.obj, "is_hypothesis_test", False)
    unseen = random or pyfuncitem.get_closest_marker("soak")
    if unseen:
        sys.settrace(None)
    try:
        return (yield)
    finally:
        if unseen:
            sys.settrace(looks)


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """The engine of what the test opens: SQLite unless it is marked `both`."""
    engines.engine.name = getattr(request, "param", "sqlite")
    yield engines.engine.name
    engines.engine.end()


@pytest.fixture(autouse=True)
def no_store_stays_open() -> Iterator[None]:
    """A store that is opened by its path is shared for as long as the process lives."""
    yield
    for store in list(shared.values()):
        asyncio.run(store.close())
    shared.clear()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with engines.opened(path) as one:
        yield one


@pytest.fixture
def postgres() -> Iterator[Urls]:
    """A database of PostgreSQL with the schema and no rows, by the URLs of its
    roles.
    """
    from tests.postgres import drop, fresh

    urls = fresh()
    yield urls
    drop(urls)

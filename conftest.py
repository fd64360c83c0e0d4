"""What all tests share: Hypothesis, async tests, and stores that cost little.

Hypothesis tries the same examples every time, but new ones where SOAK is 2 or more. An
async test runs in an event loop of its own. Stores are closed after each test.
Temporary folders are in memory where the system has a file system for it, and a new
SQLite database is a copy of one that heedful made: a commit waits for no disk, and the
schema is made once.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from heedful.store import _shared as shared
from heedful.store.offload import offload
from heedful.store.store import Store
from tests import engines
from tests.progress import Progress

if TYPE_CHECKING:
    from tests.postgres import Urls

# Commands of each package are tested at the same desk.
pytest_plugins = ["tests.cli.desks"]

# The factor of `make soak`: a test marked `soak` multiplies its length by it.
SOAK = int(os.environ.get("HEEDFUL_SOAK", "1"))

settings.register_profile(
    "test", derandomize=SOAK == 1, print_blob=SOAK > 1, deadline=None, max_examples=40
)
settings.load_profile("test")

MEMORY_FOLDER = Path("/dev/shm")  # Linux
MIN_MEMORY_BYTES = 2 * 1024**3  # containers often have 64 MiB
if (
    os.access(MEMORY_FOLDER, os.W_OK)
    and shutil.disk_usage(MEMORY_FOLDER).free > MIN_MEMORY_BYTES
):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_FOLDER))

# These tests watch how heedful makes a schema, so it makes each of theirs.
STORE_TESTS = Path(__file__).parent / "packages" / "heedful" / "tests" / "store"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option by which words are written into their files, not compared."""
    parser.addoption("--golden", action="store_true", help="write golden files again")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> bool:
    """True if golden files and samples are written again before they are compared."""
    return bool(request.config.getoption("golden"))


def pytest_configure(config: pytest.Config) -> None:
    """Show how far a run on several processes is, in the process that starts them."""
    if config.getoption("numprocesses", None):
        config.pluginmanager.register(Progress(config), "progress")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on the engines that its marks name."""
    test = metafunc.definition
    if test.get_closest_marker("sqlite"):
        return
    if test.get_closest_marker("both"):
        metafunc.parametrize("engine", engines.ENGINES, indirect=True)
    elif test.get_closest_marker("both_nightly"):
        metafunc.parametrize("engine", engines.NIGHTLY_ENGINES, indirect=True)


def pytest_collection_finish() -> None:
    # The tests stay until the end: each later collection would look at all of them.
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    engines.copy_schema(STORE_TESTS not in item.path.parents)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Run an async test in an event loop of its own.

    Coverage skips hundreds of random examples and long runs: it takes 3 times as long,
    and other tests reach the same lines.
    """
    test = pyfuncitem.obj
    if inspect.iscoroutinefunction(test):
        pyfuncitem.obj = functools.wraps(test)(
            lambda **fixtures: asyncio.run(test(**fixtures))
        )
        del pyfuncitem.obj.__wrapped__
    tracer = sys.gettrace()
    thread_tracer = threading.gettrace()
    is_random = getattr(pyfuncitem.obj, "is_hypothesis_test", False)
    is_unseen = is_random or pyfuncitem.get_closest_marker("soak")
    if is_unseen:
        sys.settrace(None)
        threading.settrace(None)
    try:
        return (yield)
    finally:
        if is_unseen:
            sys.settrace(tracer)
            threading.settrace(thread_tracer)


@pytest.fixture(autouse=True, scope="session")
def the_thread_of_long_computations_is_traced() -> None:
    """It lasts as long as the process: a test that is not traced would begin it so."""
    asyncio.run(offload(int))


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
    close_stores()


def close_stores() -> None:
    """Close the stores that are opened by their paths, as the end of a process does."""
    for store in list(shared.values()):
        asyncio.run(store.close())
    shared.clear()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with engines.opened(path) as store:
        yield store


@pytest.fixture
def postgres() -> Iterator[Urls]:
    """A PostgreSQL database with the schema and no rows, by the URLs of its roles."""
    from tests.postgres import drop, fresh

    urls = fresh()
    yield urls
    drop(urls)

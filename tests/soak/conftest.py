"""The ledger of the long runs, for each test of this folder."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from conftest import SOAK
from tests.engines import NIGHTLY_ENGINES
from tests.postgres import alone, drop, fresh
from tests.soak.databases import Databases
from tests.soak.ledger import Ledger, write_line


@pytest.fixture
def ledger(request: pytest.FixtureRequest) -> Ledger:
    """Begin the lines of a test; their seconds count from here."""
    return Ledger(request.node.nodeid)


@pytest.fixture(params=NIGHTLY_ENGINES)
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Databases]:
    """Make databases of either engine."""
    databases = Databases(request.param, tmp_path)
    yield databases
    databases.drop()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database that services share; in a long run on a server of its own, whose
    commits are on the disk.
    """
    if request.param == "sqlite":
        yield str(tmp_path / "heedful.db")
    elif SOAK == 1:
        urls = fresh()
        yield urls.service
        drop(urls)
    else:
        with alone("max_connections = 300") as server:
            server.run("create database heedful_soak template heedful_template")
            yield server.urls("heedful_soak").service


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write how a test ended: one that fails may have counted nothing."""
    report = yield
    if report.failed or (report.passed and call.when == "call"):
        failed = call.excinfo.typename if call.excinfo else ""
        write_line(item.nodeid, {"failed": failed})
    return report

"""An upgrade that dies at any of its statements: opening the store again finishes it.

Every statement of every step from the first schema on is tried in a long run; a short
run tries some. The data are then those of an upgrade that nothing interrupted.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heedful.store import sqlite
from heedful.store.postgres_migrations import migrate
from tests.conftest import SOAK
from tests.postgres import SERVICE, Urls, blank, drop, server
from tests.soak.ledger import Ledger, Trial
from tests.soak.upgrading import BEFORE, CUT, WITHIN
from tests.store.old_schemas import (
    every_server_row,
    file_rows,
    file_schema,
    make_old_file,
    make_old_server,
    server_schema,
)
from tests.store.support import WAITING, python, rows

pytestmark = [pytest.mark.soak, pytest.mark.nightly]
# Of how many statements a short run tries one.
FILE_STRIDE = 45 if SOAK == 1 else 1
SERVER_STRIDE = 150 if SOAK == 1 else 1
Upgrade = Callable[[str, str, int], int]


@pytest.fixture
def upgrade() -> Iterator[Upgrade]:
    """Upgrade a store in another process, which may die on the way."""
    process = python("from tests.soak.upgrading import main; main()")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    stdin, stdout = process.stdin, process.stdout

    def ask(url: str, way: str, number: int) -> int:
        stdin.write(f"{json.dumps([url, way, number])}\n")
        stdin.flush()
        return int(stdout.readline())

    try:
        yield ask
    finally:
        _finish(process)


def _finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=WAITING)
    assert errors == ""


def _difference(
    rows: list[tuple[str, str]], wanted: list[tuple[str, str]]
) -> tuple[int, int]:
    """How many rows are missing, and how many are there too often."""
    lost = Counter(wanted) - Counter(rows)
    more = Counter(rows) - Counter(wanted)
    return lost.total(), more.total()


@pytest.mark.parametrize("version", [1, 2], ids="from schema {}".format)
def test_a_file_survives_the_death_of_its_upgrade_at_any_statement(
    version: int, tmp_path: Path, upgrade: Upgrade, ledger: Ledger
) -> None:
    old = tmp_path / "old.db"
    make_old_file(old, version)
    upgraded = tmp_path / "whole.db"
    shutil.copy(old, upgraded)
    statements = upgrade(str(upgraded), BEFORE, 0)
    wanted_rows = file_rows(upgraded)
    wanted_schema = file_schema(upgraded)

    kills = 0
    lost = 0
    doubled = 0
    path = tmp_path / "a.db"
    for way in (BEFORE, WITHIN):
        for number in range(1, statements + 1, FILE_STRIDE):
            for file in tmp_path.glob("a.db*"):
                file.unlink()
            shutil.copy(old, path)
            assert upgrade(str(path), way, number) == -signal.SIGKILL
            kills += 1

            sqlite.connect(str(path), 1.0).close()
            assert rows(path, "pragma integrity_check") == [("ok",)]
            assert rows(path, "pragma foreign_key_check") == []
            assert file_schema(path) == wanted_schema
            missing, more = _difference(file_rows(path), wanted_rows)
            lost += missing
            doubled += more

    ledger.settle(
        Trial(
            what="kill -9 before and in each statement that opens and upgrades a file "
            f"of schema {version}",
            note=f"{statements} statements",
            engine="SQLite",
            times=kills,
            seed=SOAK,
            lost=lost,
            doubled=doubled,
        )
    )


@pytest.fixture
def old_server(request: pytest.FixtureRequest) -> Iterator[Urls]:
    """A database of an earlier schema, of which others are copies."""
    urls = blank()
    make_old_server(urls, request.param)
    yield urls
    drop(urls)


def _copy(urls: Urls, name: str) -> Urls:
    template = urls.service.partition("@/")[2].partition("?")[0]
    server().run(f"drop database if exists {name} with (force)")
    server().run(f"create database {name} template {template} strategy file_copy")
    return server().urls(name)


@pytest.mark.parametrize(
    "old_server", [1, 2], indirect=True, ids="from schema {}".format
)
def test_a_server_survives_the_death_of_its_upgrade_at_any_statement(
    old_server: Urls,
    upgrade: Upgrade,
    ledger: Ledger,
    request: pytest.FixtureRequest,
) -> None:
    version = request.node.callspec.params["old_server"]
    name = f"upgraded_{old_server.service.rpartition('blank_')[2].partition('?')[0]}"
    urls = _copy(old_server, name)
    statements = upgrade(urls.owner, BEFORE, 0)
    wanted_rows = every_server_row(urls)
    wanted_schema = server_schema(urls)

    deaths = 0
    lost = 0
    doubled = 0
    for way, answer in ((BEFORE, -signal.SIGKILL), (CUT, None)):
        for number in range(1, statements + 1, SERVER_STRIDE):
            urls = _copy(old_server, name)
            reached = upgrade(urls.owner, way, number)
            assert reached == (number if answer is None else answer)
            deaths += 1

            migrate(urls.owner, role=SERVICE)
            assert server_schema(urls) == wanted_schema
            missing, more = _difference(every_server_row(urls), wanted_rows)
            lost += missing
            doubled += more
    drop(urls)

    ledger.settle(
        Trial(
            what="kill -9, or a cut connection, before each statement that upgrades a "
            f"database of schema {version}",
            note=f"{statements} statements",
            engine="PostgreSQL",
            times=deaths,
            seed=SOAK,
            lost=lost,
            doubled=doubled,
        )
    )

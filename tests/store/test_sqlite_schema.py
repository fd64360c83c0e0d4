"""The schema of a file: made at the first use, brought up to date by numbered steps, or refused."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from heedful.errors import StoreError, StoreOlder
from heedful.lessons.lesson import Scope
from heedful.store import lessons, loops, sqlite
from heedful.store import store as store_module
from heedful.store.sqlite import in_file
from tests.conftest import SOAK
from tests.store.support import SCOPE, ended, opened, python, report, rows

pytestmark = pytest.mark.sqlite
STEP = """-- A second step, as a later version may bring it.
alter table loop add column colour text not null default 'grey';
create trigger loop_painted after insert on loop begin
  update loop set colour = 'new' where n = new.n;
end;
"""


@pytest.fixture
def old(tmp_path):
    """A file of the schema that this version makes, with a loop."""
    path = tmp_path / "a.db"
    with opened(path) as store:
        asyncio.run(store.write(SCOPE, loops.commit, report("a", 1), "me"))
    return path


@pytest.fixture
def folder(tmp_path):
    """The statements of a later version."""
    folder = tmp_path / "sql"
    shutil.copytree(store_module.FOLDER, folder)
    folder.joinpath(f"sqlite_{sqlite.SCHEMA + 1:04}.sql").write_text(STEP)
    return folder


@pytest.fixture
def later(folder, monkeypatch):
    monkeypatch.setattr(store_module, "FOLDER", str(folder))
    monkeypatch.setattr(sqlite, "SCHEMA", sqlite.SCHEMA + 1)
    return folder


async def count(path: Path) -> int:
    store = in_file(str(path))
    try:
        return await store.read(Scope(), lessons.count)
    finally:
        await store.close()


async def test_a_new_file_opened_many_times_at_once_is_one_healthy_database(tmp_path: Path):
    async def opened_at_once(path: Path) -> list[int]:
        return await asyncio.gather(*(count(path) for _ in range(12)))

    for number in range(20 * SOAK):
        assert await opened_at_once(tmp_path / f"{number}.db") == [0] * 12


async def test_a_file_of_an_earlier_schema_gets_the_next_step_and_keeps_all_it_held(old, later):
    with opened(old) as store:
        assert (await store.read(SCOPE, loops.read, "a")).values == ("text",)
        await store.write(SCOPE, loops.commit, report("b", 1), "me")
    assert rows(old, "select id, colour from loop order by id") == [("a", "grey"), ("b", "new")]
    assert rows(old, "pragma user_version") == [(sqlite.SCHEMA,)]
    assert rows(old, "pragma integrity_check") == [("ok",)]


MIGRATING = """
import asyncio, sys
from heedful.lessons.lesson import Scope
from heedful.store import lessons, sqlite
from heedful.store import store as store_module

store_module.FOLDER, sqlite.SCHEMA = sys.argv[2], sqlite.SCHEMA + 1
store = sqlite.in_file(sys.argv[1])
print(asyncio.run(store.read(Scope(), lessons.count)))
asyncio.run(store.close())
"""


def test_processes_that_open_it_at_once_take_the_step_once(old, folder):
    assert [ended(one) for one in [python(MIGRATING, old, folder) for _ in range(4)]] == ["0\n"] * 4
    assert rows(old, "select colour from loop") == [("grey",)]


async def test_a_step_that_cannot_be_done_changes_nothing(old, later):
    later.joinpath(f"sqlite_{sqlite.SCHEMA:04}.sql").write_text(
        STEP + "insert into nowhere values (1);"
    )
    before = rows(old, "select sql from sqlite_schema order by name")
    with pytest.raises(StoreError, match="no such table: nowhere"):
        await count(old)
    assert rows(old, "select sql from sqlite_schema order by name") == before
    assert rows(old, "pragma user_version") == [(sqlite.SCHEMA - 1,)]


async def test_a_file_from_before_the_first_release_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "errata.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table loop (n integer primary key)")
        db.execute(f"pragma application_id = {sqlite.BEFORE}")
        db.execute("pragma user_version = 7")
    content = path.read_bytes()
    with pytest.raises(StoreOlder, match=r"before the first release .* export its lessons"):
        await count(path)
    assert path.read_bytes() == content

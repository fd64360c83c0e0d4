"""Files that are not as they should be, and disks that are full: typed errors, nothing
lost.
"""

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from stat import S_IXGRP, S_IXOTH

import pytest

from conftest import SOAK
from heedful.errors import StoreCorrupt, StoreNewer, StoreOlder, StoreUnavailable
from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from heedful.store import lessons, loops, statements
from heedful.store.sqlite import in_file
from tests.store.support import SCOPE, ended, opened, python, report, rows


async def commit(path: Path | str, number: int = 1) -> None:
    with opened(path) as store:
        await store.write(SCOPE, loops.commit, report("a", number), "me")


async def read(path: Path | str) -> int:
    with opened(path) as store:
        return len((await store.read(SCOPE, loops.read, "a")).values)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "a.db"
    asyncio.run(commit(file))
    return file


async def test_a_new_file_is_its_owners_and_an_empty_one_is_damaged(path):
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ["a.db"]
    path.write_bytes(b"")
    for attempt in (commit, read):
        with pytest.raises(StoreCorrupt, match="is empty"):
            await attempt(path)
    with opened(":memory:") as store, opened(":memory:") as other:
        await store.write(SCOPE, loops.commit, report("a", 1), "me")
        assert await other.read(SCOPE, loops.newest, limit=9) == ([], False)


def database(path: Path, *statements: str) -> bytes:
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)
    return path.read_bytes()


async def test_a_newer_schema_is_left_alone(path):
    before = database(path, "pragma user_version = 99")
    for attempt in (commit, read):
        with pytest.raises(
            StoreNewer, match=r"schema 99, this heedful knows .*upgrade heedful"
        ):
            await attempt(path)
    assert path.read_bytes() == before


async def test_a_table_that_is_missing_is_named(path):
    database(path, "drop table refused")
    with opened(path) as store, pytest.raises(StoreCorrupt, match="table: refused"):
        await Memory(store).remember("k", "text")


async def test_another_database_is_left_alone(tmp_path):
    before = database(tmp_path / "theirs.db", "create table theirs (x)")
    with pytest.raises(
        StoreCorrupt, match="another program's database; name another file"
    ):
        await commit(tmp_path / "theirs.db")
    assert (tmp_path / "theirs.db").read_bytes() == before
    assert os.listdir(tmp_path) == ["theirs.db"]


@pytest.mark.parametrize(
    "column",
    [
        pytest.param("policy = '{'", id="JSON without an end"),
        pytest.param("policy = x'ff'", id="bytes for a text"),
        pytest.param("goals = 7", id="a number for a text"),
        pytest.param("policy = cast(x'ff' as text)", id="no UTF-8"),
    ],
)
async def test_a_row_that_heedful_cannot_have_written_is_damage(path, column):
    with opened(path) as store:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(f"update loop set {column}")
        with pytest.raises(StoreCorrupt, match="is damaged"):
            await store.read(SCOPE, loops.read, "a")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"not a database " * 99, id="text"),
        pytest.param(b"\0" * 5000, id="zeros"),
        pytest.param(bytes(range(256)) * 16, id="all bytes"),
    ],
)
async def test_a_file_that_is_no_database_is_said_to_be_none(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match=r"notes\.txt is not a SQLite database"):
        await commit(path)
    assert path.read_bytes() == content


async def test_a_damaged_file_is_said_to_be_damaged(path):
    with opened(path) as store:
        for number in range(2, 40):
            await store.write(
                SCOPE, loops.commit, report("a", number, "x" * 2_000), "me"
            )
    content = bytearray(path.read_bytes())
    content[4096:] = b"\x5a" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match="damaged"):
        await read(path)
    with pytest.raises(StoreCorrupt):
        await commit(path, 40)


@pytest.fixture
def read_only(path, monkeypatch):
    """A file in a folder that nobody may write to, as on a read-only medium."""
    monkeypatch.setattr(os, "access", lambda place, mode: mode != os.W_OK)
    return path


async def test_a_file_in_a_read_only_folder_is_read_and_nothing_is_made(read_only):
    file = read_only.rename(read_only.with_name("a ?#%.db"))
    with opened(file) as store:
        assert (await store.read(SCOPE, loops.read, "a")).head.task != "newer"
        assert os.listdir(file.parent) == [file.name]
        # The folder may be read-only here, and writable in another place.
        database(file, """update loop set task = '"newer"'""")
        assert (await store.read(SCOPE, loops.read, "a")).head.task == "newer"


async def test_changes_that_cannot_be_read_are_no_half_truth(read_only):
    log = read_only.with_name("a.db-wal")
    log.write_bytes(b"a log")
    with pytest.raises(StoreUnavailable, match="copy both files"):
        await read(read_only)
    log.write_bytes(b"")
    assert await read(read_only) == 1


CHANGED = """
import asyncio, os, shutil, sys
from heedful.errors import StoreError
from heedful.store import loops
from heedful.store.sqlite import in_file
from tests.store.entries import SCOPE, report

async def try_to_write(store, id):
    try:
        await store.write(SCOPE, loops.commit, report(id, 1), "me")
        return "written"
    except StoreError as error:
        return type(error).__name__

async def main(path, change):
    store = in_file(path)
    answers = [await try_to_write(store, "b")]
    os.rename(path, path + ".kept")
    shutil.copy(path + ".kept", path)
    if change == "deleted":
        os.remove(path)
    if change in ("empty", "read-only"):
        os.rename(path, path + ".new")
        os.rename(path + ".kept", path)
    if change == "read-only":
        os.chmod(path, 0o444)
    elif change == "empty":
        os.truncate(path, 0)
    print(*answers, await try_to_write(store, "c"))
    await store.close()

if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
asyncio.run(main(*sys.argv[1:]))
"""


def let_anybody_pass(path: Path) -> None:
    """Let every user enter the temporary folders that a file is in."""
    for folder in path.parents:
        mode = folder.stat().st_mode
        if not mode & S_IXOTH:
            folder.chmod(mode | S_IXGRP | S_IXOTH)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("deleted", "StoreUnavailable"),
        ("replaced", "StoreUnavailable"),
        ("read-only", "StoreUnavailable"),
        ("empty", "StoreCorrupt"),
    ],
)
def test_a_file_that_changes_underneath_takes_no_writes(path, change, error):
    let_anybody_pass(path)
    path.parent.chmod(0o777)
    if os.getuid() == 0:
        os.chown(path, 65534, 65534)
    assert ended(python(CHANGED, path, change)).split() == ["written", error]


@pytest.mark.parametrize("where", ["missing/a.db", "."])
async def test_a_path_where_no_file_can_be(tmp_path, where):
    with pytest.raises(
        StoreUnavailable, match=r"is a folder; name a file|which is missing; make it"
    ):
        await commit(tmp_path / where)


# -- the schema: made at the first use, or refused


async def count(path: Path) -> int:
    store = in_file(str(path))
    try:
        return await store.read(Scope(), lessons.count)
    finally:
        await store.close()


@pytest.mark.soak
async def test_a_new_file_opened_many_times_at_once_is_one_healthy_database(
    tmp_path: Path,
):
    for number in range(4 * SOAK):
        path = tmp_path / f"{number}.db"
        assert await asyncio.gather(*(count(path) for _ in range(12))) == [0] * 12


async def test_a_file_of_an_earlier_schema_says_what_to_do(path):
    version = statements.SCHEMA_VERSION - 1
    rows(path, f"pragma user_version = {version}")
    with pytest.raises(StoreOlder, match=f"schema {version} .*export it"):
        await count(path)

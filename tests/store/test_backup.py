"""What the documentation says of backups: taken while the store is in use, and restored whole."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from heedful.errors import StoreError
from heedful.memory.memory import Memory
from heedful.store import lessons, open_store
from heedful.store.copying import copy
from heedful.store.migrations import migrate
from heedful.testing import FixedEmbedder
from tests.postgres import blank, drop, fresh, rows, server
from tests.store.test_copying import SCOPES, fill, recalled


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("backup") / "a.db"
    fill(path)
    return path


async def learn(store, *words: str) -> None:
    """In every scope a lesson more."""
    for word in words:
        for scope in SCOPES:
            await Memory(store, scope, FixedEmbedder()).remember("N", word, lesson="say it")


def test_a_file_is_copied_while_it_is_in_use(source, tmp_path):
    used, backup, restored = (tmp_path / name for name in ("used.db", "backup.db", "restored.db"))
    copy(str(source), str(used))
    before = [recalled(str(used), scope) for scope in SCOPES]

    async def scenario() -> None:
        store = open_store(str(used))
        await learn(store, "one", "two")
        await asyncio.gather(
            asyncio.to_thread(copy, str(used), str(backup)), learn(store, "three", "four")
        )
        await store.close()

    asyncio.run(scenario())
    shutil.copy(backup, restored)  # one file, without a log beside it
    found = [recalled(str(restored), scope) for scope in SCOPES]
    assert [one[:2] for one in found] == [one[:2] for one in before]


def test_a_database_is_dumped_while_it_is_in_use_and_restored_elsewhere(source, tmp_path):
    used, new = fresh(), blank()
    try:
        copy(str(source), used.owner)
        before = [recalled(used.service, scope) for scope in SCOPES]
        held = server().folder / "heedful.dump"  # where the server's own user may write

        async def scenario() -> None:
            store = open_store(used.service)
            dumped = asyncio.to_thread(
                server().program, "pg_dump", "--format=custom", f"--file={held}", used.owner
            )
            await asyncio.gather(dumped, learn(store, "one", "two", "three"))
            await store.close()

        asyncio.run(scenario())
        options = ("--exit-on-error", "--no-owner", "--no-comments")
        server().program("pg_restore", f"--dbname={new.owner}", *options, str(held))
        again = migrate(new.owner)
        assert (again.applied, again.waiting) == ((), ())
        for scope, (examples, loop, *_) in zip(SCOPES, before, strict=True):
            found = recalled(new.service, scope)
            assert (found[0], found[1]) == (examples, loop)

        async def goes_on() -> None:
            store = open_store(new.service)
            await learn(store, "four")
            await store.close()

        asyncio.run(goes_on())
        bare = "select count(*) from pg_class where relname = 'loop' and not relrowsecurity"
        assert rows(new.owner, bare) == [(0,)]
        with pytest.raises(StoreError, match="owns heedful's tables"):
            asyncio.run(open_store(new.owner).read(SCOPES[0], lessons.count))
    finally:
        drop(used)
        drop(new)

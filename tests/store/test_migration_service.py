"""A database of schema 5, from before there was a service, gains keys, audit and answers."""

import asyncio
import sqlite3
import time

import pytest

from heedful.lessons.lesson import Scope
from heedful.store import idempotency, keys, lessons
from heedful.store.database import read_sql
from heedful.store.idempotency import Beside, Call, beside
from heedful.store.keys import append
from heedful.store.sqlite import APPLICATION, SCHEMA
from tests.store.support import opened, rows

NEW = ("answer", "audit", "audit_head", "key")


@pytest.fixture
def old(tmp_path):
    """A database of schema 5 with a lesson in it."""
    path = tmp_path / "a.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.create_function("words", 1, str)
    db.create_function("token", 2, "/".join)
    for number in range(1, 6):
        db.executescript(read_sql(f"sqlite_{number:04}.sql"))
    db.execute(f"pragma application_id = {APPLICATION}")
    db.execute("pragma user_version = 5")
    db.execute(
        "insert into episode (tenant, project, digest, outcome, record, at)"
        " values ('default', 'default', 'd', 'failure', '{}', 1)"
    )
    db.close()
    return path


def tables(path):
    found = rows(path, "select name from sqlite_schema where type = 'table'")
    return [name for (name,) in found if name in NEW]


def test_it_has_them_once_it_is_opened_and_keeps_all_else(old, tmp_path):
    assert tables(old) == []
    with opened(old) as store, opened(tmp_path / "new.db") as new:
        asyncio.run(store.read(Scope(), lessons.count))
        asyncio.run(new.read(Scope(), lessons.count))
    assert sorted(tables(old)) == sorted(NEW)
    assert rows(old, "pragma user_version") == [(SCHEMA,)]
    assert rows(old, "select digest, state from episode") == [("d", "waiting")]
    assert rows(old, "pragma integrity_check") == [("ok",)]
    for table in NEW:
        info = f"select name, type, \"notnull\", dflt_value, pk from pragma_table_info('{table}')"
        assert rows(old, info) == rows(tmp_path / "new.db", info)


def test_what_is_new_works_there(old):
    async def scenario() -> None:
        with opened(old) as store:
            with beside(Beside()) as call:
                call.also(lambda db: append(db, "default", "me", "key.create", "a", {}))
                made, text = await keys.create(store, "default", "a", expires=time.time() + 60)
            assert (await keys.holder(store, text)).id == made.id
            assert (await store.apart(Scope("default"), keys.verify_audit)).rows == 1
            once = Call("default", made.id, "once", "digest")
            await store.write(Scope(once.tenant), idempotency.keep, once, {"status": 200})
            assert (await store.read(Scope(once.tenant), idempotency.before, once)).answer == {
                "status": 200
            }

    asyncio.run(scenario())

"""A database of an earlier schema: after the steps it is like a new one, with all its
rows.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from heedful.store import open_store
from heedful.store import sqlite as engine
from heedful.store.postgres_migrations import migrate, newest_version
from tests.postgres import SERVICE, blank, drop
from tests.postgres import rows as server_rows
from tests.store.old_schemas import (
    file_schema,
    make_old_file,
    make_old_server,
    server_schema,
)
from tests.store.support import rows

STATES = {1: "unverified", 2: "verified", 3: "quarantined", 4: "superseded"}
EXAMPLES = [
    (1, 1, "unverified", "name the unit of the parcel"),
    (2, 2, "verified", "write the date of the letter"),
    (3, 3, "quarantined", "send it away"),
    (4, 1, "unverified", "name each unit"),
]


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    path = tmp_path / "old.db"
    make_old_file(path)
    return path


@pytest.fixture
def old_server():
    urls = blank()
    make_old_server(urls)
    yield urls
    drop(urls)


async def check_memory(url: str) -> None:
    """Recall, count, show and restore what the old database held."""
    store = open_store(url)
    try:
        memory = Memory(store, Scope())
        assert await memory.count() == 4
        [match] = await memory.recall("date the letter")
        assert match.example.accepted == "1 May"
        assert match.verified
        parcels = await memory.recall("weigh the parcel")
        assert {parcel.lesson_id for parcel in parcels} == {1}
        assert {parcel.state for parcel in parcels} == {"unverified"}
        [waiting] = await memory.quarantine.waiting()
        assert waiting.lesson == "send it away"
        await memory.quarantine.release([3], by="ada")
        assert (await memory.quarantine.show(3)).state == "unverified"
        answer = await memory.remember("unit", "no unit", lesson="name it")
        assert answer.state == "unverified"
    finally:
        await store.close()


def check_rows(read: Callable[[str], list[Any]]) -> None:
    assert dict(read("select id, state from lesson")) == STATES
    examples = "select id, lesson_id, state, lesson from example order by id"
    assert read(examples) == EXAMPLES
    assert read("select lesson_id, text from occurrence order by id") == [
        (1, "no unit in parcel 7"),
        (1, "no unit in parcel 8"),
    ]
    assert read("select example, lesson_id from moved") == [(4, 4)]
    assert read("select child, before from link") == [
        ("error/dddddddddddddddd", "unverified")
    ]
    assert read("select last_shown from lesson where id = 1") == [(5.0,)]
    assert read("select lessons, lesson from tally") == [(4, 4)]
    assert read("select n, record from answer order by n") == [
        (-1, '{"body": {"state": "candidate"}}'),
        (0, '[{"id": 1, "state": "unverified"}]'),
    ]


def test_a_file_of_the_first_schema_keeps_its_rows_and_is_like_a_new_one(
    old_file, tmp_path
):
    engine.connect(str(old_file), 1.0).close()
    check_rows(lambda sql: [tuple(row) for row in rows(old_file, sql)])
    assert rows(old_file, "pragma user_version") == [(engine.SCHEMA_VERSION,)]
    assert rows(old_file, "pragma integrity_check") == [("ok",)]
    assert rows(old_file, "pragma foreign_key_check") == []
    new = tmp_path / "new.db"
    engine.connect(str(new), 1.0).close()
    assert file_schema(old_file) == file_schema(new)
    asyncio.run(check_memory(str(old_file)))


def test_a_server_of_the_first_schema_keeps_its_rows_and_is_like_a_new_one(
    old_server, postgres
):
    done = migrate(old_server.owner, role=SERVICE)
    steps = [number for number, part in done.applied if part == "pre"]
    assert steps == list(range(2, newest_version() + 1))
    check_rows(
        lambda sql: server_rows(
            old_server.superuser, sql.replace(" from ", " from heedful.")
        )
    )
    for found, wanted in zip(
        server_schema(old_server), server_schema(postgres), strict=True
    ):
        assert found == wanted
    asyncio.run(check_memory(old_server.service))

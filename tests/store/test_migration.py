"""A database made by an older heedful opens, keeps all it holds, and gains what is new."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.drive.drive import Run
from heedful.errors import StoreCorrupt, StoreNewer
from heedful.lessons.lesson import Scope
from heedful.loop.codec import policy_to, to_document
from heedful.loop.decide import Again, Done, Policy, Trigger
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, Loop, Override, Usage
from heedful.loop.stop import MaxAttempts, Stop
from heedful.store import lessons, loops
from heedful.store.database import read_sql
from heedful.store.sqlite import APPLICATION, SCHEMA, in_file
from tests.drive.support import WANTED, Check, Generator
from tests.store.support import SCOPE, ended, opened, python, report, rows

POLICY = Policy((MaxAttempts(1),), name="one")
FOUND = Finding("wanted", "one is not right", "write right")
FIRST = Attempt(1, Candidate.of("one"), Evaluation((FOUND,)), Usage(calls=1))
AGAIN = {  # as it was written then: a reason had no code, and nothing said how worn a loop was
    "verdict": "again",
    "reasons": [{"code": "wanted", "detail": "one is not right"}],
    "feedback": "The last answer was not accepted:\n- wanted: one is not right. write right",
    "lifted": [{"rule": "attempts", "detail": "1 of 1 attempts made", "by": "ada", "override": 0}],
}
DONE = {
    "verdict": "done",
    "best": 1,
    "passed": False,
    "stopped_by": [{"rule": "attempts", "detail": "1 of 1 attempts made"}],
    "lifted": [],
}
THEN = 1_700_000_000.0
OVERRIDES = [
    (1, 1, "attempts", "ada", "it is close", 2, 1, THEN),
    (1, 2, "attempts", "bo", "", 1, 0, THEN + 1),
]


def plain_policy() -> str:
    old = policy_to(POLICY)
    return json.dumps({key: old[key] for key in ("name", "rules", "min_gain", "unscored")})


def write_schema_1(path: Path) -> None:
    """A database of schema 1 with a loop that was stopped and overridden."""
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(read_sql("sqlite_0001.sql"))
    db.execute(f"pragma application_id = {APPLICATION}")
    db.execute("pragma user_version = 1")
    db.execute(
        "insert into loop (n, tenant, project, id, task, goals, policy, created, updated)"
        " values (1, 'default', 'default', 'a', ?, '[]', ?, ?, ?)",
        (json.dumps("task"), plain_policy(), THEN, THEN),
    )
    record = json.dumps(to_document(FIRST))
    db.execute("insert into attempt values (1, 1, ?, ?, ?)", (record, json.dumps("one"), THEN))
    for seq, verdict in enumerate((DONE, AGAIN), 1):
        db.execute("insert into decision values (1, ?, 1, ?, ?)", (seq, json.dumps(verdict), THEN))
    db.executemany("insert into override values (?, ?, ?, ?, ?, ?, ?, ?)", OVERRIDES)
    db.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("old") / "a.db"
    write_schema_1(path)
    return path


@pytest.fixture
def old(made, tmp_path):
    return Path(shutil.copy(made, tmp_path / "a.db"))


def columns(path: Path) -> list[str]:
    return [name for (name,) in rows(path, "select name from pragma_table_info('override')")]


def read(path: Path) -> Any:
    with opened(path) as store:
        return asyncio.run(store.read(SCOPE, loops.read, "a"))


def test_schema_1_is_what_it_was(old):
    """The first file is written once and for all: databases of it are out there."""
    assert rows(old, "pragma user_version") == [(1,)]
    assert "until" not in columns(old)


def test_it_opens_and_is_migrated(old):
    read(old)
    assert rows(old, "pragma user_version") == [(SCHEMA,)]
    assert rows(old, "pragma application_id") == [(APPLICATION,)]
    assert rows(old, "pragma integrity_check") == [("ok",)]
    assert "until" in columns(old)


def test_all_that_it_held_is_kept(old):
    stored = read(old)
    overrides = (
        Override("attempts", "ada", "it is close", decisions=2, used=1),
        Override("attempts", "bo"),
    )
    assert stored.loop == Loop("a", (), (FIRST,), overrides, at=THEN)
    assert [override.until for override in stored.loop.overrides] == [None, None]
    assert stored.values == ("one",)
    stopped, again = stored.verdicts
    assert stopped == Done(1, False, (Stop("attempts", "1 of 1 attempts made"),))
    assert isinstance(again, Again)
    assert again.reasons == (Trigger("wanted", "one is not right"),)
    assert [one.standing.fatigue for one in stored.decisions] == [0.0, 0.0]
    told = heedful.reasoning(stored.loop, stored.decisions)
    assert [(one.decided, one.reason) for one in told] == [
        ("stopped", "attempts"),
        ("again", "wanted_failed"),
    ]
    assert rows(old, "select seq, used, until from override") == [(1, 1, None), (2, 0, None)]


def test_a_loop_of_it_is_driven_on_and_its_overrides_are_used_up(old):
    async def scenario() -> None:
        store = in_file(str(old))
        generate = Generator("two", "three", "four", "five")
        run = Run[str](
            "task", generate=generate, checks=[Check()], policy=POLICY, store=store, id="a"
        )
        result = await run.finish()
        assert [a.candidate.text for a in result.loop.attempts] == ["one", "two", "three", "four"]
        until = time.time() + 3600
        await heedful.override("a", "attempts", by="cy", until=until, store=store)
        again = await Run[str](
            "task", generate=Generator(WANTED), checks=[Check()], policy=POLICY, store=store, id="a"
        ).finish()
        assert again.passed
        assert rows(old, "select by, used, until from override") == [
            ("ada", 2, None),
            ("bo", 1, None),
            ("cy", 1, until),
        ]
        await store.close()

    asyncio.run(scenario())


def schema(path: Path) -> list[tuple[Any, ...]]:
    order = "order by type, name"
    return rows(path, f"select type, name, tbl_name from sqlite_schema {order}")


def test_it_is_then_like_a_new_one(old, tmp_path):
    new = tmp_path / "new.db"
    with opened(new) as store:
        asyncio.run(store.read(SCOPE, lessons.count))
    read(old)
    assert schema(old) == schema(new)
    for (table,) in rows(new, "select name from sqlite_schema where type = 'table'"):
        info = f"select name, type, \"notnull\", dflt_value, pk from pragma_table_info('{table}')"
        assert rows(old, info) == rows(new, info)


def test_it_is_migrated_once(old):
    for _ in range(2):
        read(old)
        with opened(old) as store:
            asyncio.run(store.write(SCOPE, loops.commit, report("b", 1), "me"))
    assert columns(old).count("until") == 1


def test_many_that_open_it_at_once_migrate_it_once(old):
    async def scenario() -> None:
        stores = [in_file(str(old)) for _ in range(8)]
        found = await asyncio.gather(*(store.read(SCOPE, loops.read, "a") for store in stores))
        assert all(len(stored.loop.overrides) == 2 for stored in found)
        for store in stores:
            await store.close()

    asyncio.run(scenario())
    assert columns(old).count("until") == 1


OPENING = """
import asyncio, sys
from tests.store.support import SCOPE, opened

with opened(sys.argv[1]) as store:
    print(len(asyncio.run(store.read(SCOPE, "a")).loop.overrides))
"""


def test_processes_that_open_it_at_once_migrate_it_once(old):
    both = [python(OPENING, old) for _ in range(2)]
    assert [ended(one) for one in both] == ["2\n", "2\n"]
    assert columns(old).count("until") == 1


def test_a_migration_that_cannot_be_done_changes_nothing(old):
    """Something else is in the way: the column is there already."""
    db = sqlite3.connect(old)
    db.execute("alter table override add column until text")
    db.close()
    with pytest.raises(heedful.errors.StoreError, match="duplicate column"):
        read(old)
    assert rows(old, "pragma user_version") == [(1,)]


@pytest.mark.parametrize(("version", "error"), [(SCHEMA + 1, StoreNewer), (99, StoreNewer)])
def test_a_schema_that_is_newer_is_left_alone(old, version, error):
    db = sqlite3.connect(old)
    db.execute(f"pragma user_version = {version}")
    db.close()
    with pytest.raises(error, match=f"has schema {version}, this heedful knows {SCHEMA}"):
        read(old)
    assert "until" not in columns(old)


def test_a_stranger_with_our_version_is_a_stranger(tmp_path):
    path = tmp_path / "theirs.db"
    db = sqlite3.connect(path)
    db.execute("pragma user_version = 1")
    db.execute("create table override (x)")
    db.close()
    with pytest.raises(StoreCorrupt, match="another program's database"), opened(path) as store:
        asyncio.run(store.read(Scope(), loops.read, "a"))
    assert columns(path) == ["x"]

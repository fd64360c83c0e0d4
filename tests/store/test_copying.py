"""A store copied from one kind of database to the other: all of it, the same, or nothing."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    RoleRefused,
    StoreError,
    StoreOlder,
    StoreUnavailable,
)
from heedful.lessons.lesson import Scope
from heedful.loop.record import Finding
from heedful.memory.memory import Memory
from heedful.store import exposures, lessons, loops, open_store
from heedful.store.copying import OWN_COLUMNS, OWN_TABLES, copy, tables
from heedful.testing import FixedEmbedder
from tests import postgres as servers
from tests.memory.transfers import everything
from tests.postgres import rows
from tests.store.support import python

SCOPES = (Scope("one", "p"), Scope("one", "q"), Scope("two", "p"))
# What no method of a memory writes: of each table a row that may be anything. And what is gone.
OTHERS = """
pragma foreign_keys = on;
delete from example where id = (select max(id) from example);
insert into step (loop, key, record, created) select n, 'k', '{}', 1.5 from loop;
insert into override (loop, seq, rule, by, why, decisions, created, until)
  select n, 1, 'attempts', 'ada', 'it is close', 2, 2.5, null from loop;
insert into key values ('1f', 'one', 'ci', 'hash', '[]', '["read"]', 'ada', 1.5, null, 2.5, null);
insert into audit values ('one', 1, 1.5, 'ada', 'key created', '1f', '{}', '', 'h');
insert into audit_head values ('one', 1, 'h');
insert into answer values ('two', '1f', 'once', -1, 'd', '{}', 0.1);
insert into trace values ('two', 'p', 't', 'tool', 'open', 1, 10, 1, 3.5);
insert into span (tenant, project, trace, id, parent, root, record)
  values ('two', 'p', 't', 's', '', 1, '{"text": "a\\u0000b"}');
"""


async def answer(task: str, hint: str) -> str:
    return "second" if hint else "first"


def not_at_once(candidate: str, context: Any) -> list[Finding]:
    return [Finding("once", "not at once", "Again.")] if candidate == "first" else []


def fill(path: Path) -> None:
    async def scenario() -> None:
        store = open_store(str(path))
        for number, scope in enumerate(SCOPES):
            await everything(Memory(store, scope, FixedEmbedder()))
            run: dict[str, Any] = {"generate": answer, "checks": [not_at_once], "store": store}
            await heedful.run(f"žluť {number}", **run, scope=scope, id=f"loop {number}")
        await store.close()

    asyncio.run(scenario())
    db = sqlite3.connect(path)
    db.executescript(OTHERS)
    db.close()


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("copy") / "a.db"
    fill(path)
    return path


def file_rows(path: Path, sql: str) -> list[Any]:
    db = sqlite3.connect(path)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def dump(path: Path) -> dict[str, list[Any]]:
    """All that a file holds but for what it numbers for itself."""
    found = {}
    for table in tables():
        own = OWN_COLUMNS.get(table.name, set())
        info = file_rows(path, f"select name from pragma_table_info('{table.name}')")
        names = ", ".join(name for (name,) in info if name not in own)
        found[table.name] = sorted(file_rows(path, f"select {names} from {table.name}"), key=repr)
    return found


def recalled(url: str, scope: Scope) -> Any:
    """What a store answers to questions about what it learnt."""

    async def asked() -> Any:
        store = open_store(url)
        memory = Memory(store, scope, FixedEmbedder())
        found = await memory.recall("convert parcel 8 to kilograms", limit=5)
        answers = (
            [(one.id, one.lesson) for one in found],
            await store.read(scope, loops.read, f"loop {SCOPES.index(scope)}"),
            await store.read(scope, lessons.top, 100),
            await store.read(scope, exposures.rulings, 100),
            await store.read(scope, exposures.evidence, 10),
        )
        await store.close()
        return answers

    return asyncio.run(asked())


def test_there_and_back_is_the_same(source, postgres, tmp_path):
    told: list[tuple[str, int]] = []
    done = copy(str(source), postgres.owner, lambda *one: told.append(one))
    assert not done.again
    empty = [one.table for one in done.contents if not one.rows]
    assert empty == []  # else this test says nothing of a table
    assert done.rows == sum(number for _, number in told)
    back = tmp_path / "b.db"
    returned = copy(postgres.owner, str(back))
    assert returned.contents == done.contents
    assert dump(back) == dump(source)
    for scope in SCOPES:
        before = recalled(str(source), scope)
        assert before[0]
        assert recalled(postgres.service, scope) == before
        assert recalled(str(back), scope) == before


def test_all_of_it_works_on_the_oldest_server(source):
    with servers.alone(*servers.QUICK, version=servers.OLDEST) as server:
        urls = server.urls("heedful_template")
        [[version]] = rows(urls.owner, "select current_setting('server_version_num')::int / 10000")
        assert version == servers.OLDEST
        copy(str(source), urls.owner)
        for scope in SCOPES:
            assert recalled(urls.service, scope) == recalled(str(source), scope)


def test_every_table_and_column_of_both_is_copied(postgres):
    sql = """
        select table_name::text, column_name::text from information_schema.columns
        where table_schema = 'heedful' and table_name not like 'procrastinate%'
          and table_name not in ('schema_version', 'queue_version')
    """
    there = set(rows(postgres.owner, sql))
    shared = {(table.name, column) for table in tables() for column in table.columns}
    assert there - shared == {("vector", "near")}
    assert shared <= there
    assert not {table.name for table in tables()} & set(OWN_TABLES)


def test_numbers_go_on_where_the_source_was(source, postgres, tmp_path):
    copy(str(source), postgres.owner)
    [[highest]] = file_rows(source, "select example from gone")
    [[largest]] = file_rows(source, "select max(id) from example")
    assert highest > largest
    back = tmp_path / "b.db"
    copy(postgres.owner, str(back))

    async def learn(url: str) -> None:
        store = open_store(url)
        memory = Memory(store, SCOPES[0])
        await memory.remember("N", "new", lesson="a lesson that nobody had")
        await heedful.run("new", generate=answer, store=store, scope=SCOPES[0])
        await store.close()

    for url in (postgres.service, str(back)):
        asyncio.run(learn(url))
    new = (
        "select min(id) > {0} from example where id not in (select id from example where id <= {0})"
    )
    assert rows(postgres.owner, new.format(highest)) == [(True,)]
    assert file_rows(back, new.format(highest)) == [(1,)]


def test_who_waits_for_the_other_side_is_not_cut_off(source, postgres, tmp_path):
    impatient = f"{postgres.owner}&options=-c%20idle_in_transaction_session_timeout=10ms"
    wait = lambda table, number: time.sleep(0.02 if table == "taught" else 0)  # noqa: E731
    copy(str(source), impatient, wait)
    copy(impatient, str(tmp_path / "b.db"), wait)
    assert dump(tmp_path / "b.db") == dump(source)


def test_again_it_is_there_already(source, postgres):
    first = copy(str(source), postgres.owner)
    again = copy(str(source), postgres.owner)
    assert (again.contents, again.again) == (first.contents, True)


def test_a_target_that_holds_anything_else_is_refused(source, postgres, tmp_path):
    rows(postgres.owner, "insert into taught values ('two', 'p', 'x')")
    with pytest.raises(Conflict, match=r"holds other rows already \(in taught\); copy into"):
        copy(str(source), postgres.owner)
    assert rows(postgres.owner, "select count(*) from loop") == [(0,)]
    other = tmp_path / "other.db"
    copy(postgres.owner, str(other))
    with pytest.raises(Conflict, match="in taught"):
        copy(str(source), str(other))


def test_a_file_into_another_file_and_a_server_into_another(source, postgres, tmp_path):
    other = tmp_path / "other.db"
    contents = copy(str(source), str(other)).contents
    assert dump(other) == dump(source)
    copy(str(other), postgres.owner)
    urls = servers.fresh()
    try:
        assert copy(postgres.owner, urls.owner).contents == contents
    finally:
        servers.drop(urls)


def test_what_fails_in_the_middle_leaves_nothing(source, postgres):
    def stop(table: str, number: int) -> None:
        if table == "link":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(str(source), postgres.owner, stop)
    rows(postgres.owner, "alter table span add check (root is null)")
    with pytest.raises(StoreError, match="violates check constraint"):
        copy(str(source), postgres.owner)
    counts = [rows(postgres.owner, f"select count(*)::int from {one.name}") for one in tables()]
    assert set(map(tuple, counts)) == {((0,),)}
    triggers = "select count(*)::int from pg_trigger where tgenabled <> 'O'"
    assert rows(postgres.owner, triggers) == [(0,)]


def test_what_the_target_holds_in_the_end_is_compared(source, postgres):
    """Times that are kept less exactly than they were told."""
    rows(postgres.owner, "alter table link alter column at type real")
    with pytest.raises(StoreError, match="does not hold what"):
        copy(str(source), postgres.owner)
    assert rows(postgres.owner, "select count(*) from loop") == [(0,)]


def test_the_character_that_postgresql_has_not_becomes_a_question_mark(source, postgres, tmp_path):
    old = tmp_path / "old.db"
    copy(str(source), str(old))
    db = sqlite3.connect(old)
    db.execute("update taught set loop = 'a' || char(0) || 'b'")
    db.commit()
    db.close()
    copy(str(old), postgres.owner)
    assert rows(postgres.owner, "select distinct loop from taught") == [("a?b",)]


def test_who_may_not_or_is_not_there_is_told(source, postgres, tmp_path):
    with pytest.raises(RoleRefused, match="name the role that owns"):
        copy(str(source), postgres.service)
    with pytest.raises(NotFound, match="no database"):
        copy(str(tmp_path / "none.db"), postgres.owner)
    with pytest.raises(InvalidInput, match="another database than the source"):
        copy(str(source), str(source))
    with pytest.raises(StoreUnavailable, match="see that the server runs"):
        copy(str(source), "postgresql://erin:hunter2@127.0.0.1:1/db")
    blank = servers.blank()
    try:
        with pytest.raises(StoreOlder, match="run heedful migrate"):
            copy(str(source), blank.owner)
    finally:
        servers.drop(blank)
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"x" * 5000)
    with pytest.raises(StoreError, match="damaged or no database"):
        copy(str(damaged), postgres.owner)


def test_a_file_needs_no_server(source, tmp_path):
    program = """
import sys
sys.modules["psycopg"] = None
from heedful.store.copying import copy
print(copy(*sys.argv[1:]).rows > 0, end="")
"""
    out, err = python(program, source, tmp_path / "other.db").communicate(timeout=60)
    assert (out, err) == ("True", "")

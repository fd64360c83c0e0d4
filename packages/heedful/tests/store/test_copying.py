"""A store copied from one kind of database to the other: all of it, the same, or
nothing.
"""

import asyncio
import sqlite3
from contextlib import closing
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
from heedful.memory.memory import Memory
from heedful.store import exposures, lessons, loops, open_store
from heedful.store.connection import token
from heedful.store.copying import copy, tables
from heedful.testing import FixedEmbedder
from tests import postgres as servers
from tests.memory.transfers import fill_memory_fully
from tests.postgres import rows
from tests.store.support import rows as file_rows

SCOPES = (Scope("one", "p"), Scope("one", "q"), Scope("two", "p"))
# What no method of a memory writes: of each table a row that may be anything. And what
# is gone.
OTHERS = """
pragma foreign_keys = on;
delete from example where id in (select max(id) from example group by scope);
insert into step (loop, key, record) select n, 'k', '{}' from loop;
insert into override (loop, seq, rule, by, why, decisions, until)
  select n, 1, 'attempts', 'ada', 'it is close', 2, null from loop;
insert into key
  values ('1f', 'one', 'ci', 'hash', '[]', '["read"]', 'ada', 1.5, null, null, true);
insert into audit
  values ('one', '["p"]', 1, 1.5, 'ada', 'key created', '1f', '{}');
insert into hardened (lesson_id, tenant, project, memory_key, kind, rule, about, by)
  select id, tenant, project, 'k', 'word', '{"word": "x"}', 'no x', 'ada' from lesson;
insert into note values ('one', 'p', 'loop 0_r1', 'reasoning', 'loop 0', '{}', 1.5);
insert into answer values ('two', '1f', 'once', -1, 'd', '{}', 0.1);
insert into cause
  values ('two', 'p', 'k', 'r', 'check', 's', '["a"]', 'c', 0.5, 1, 2, 0, 'l', 20, 1.5);
insert into trace values ('two', 'p', 't', 'tool', 'open', 1, 1, 10, 1, 'key:1f', 3.5);
insert into event (tenant, project, session, record, via, at)
  values ('two', 'p', 's', '{}', 'key:1f', 3.5);
insert into call_failure
  values
  ('two', 'p', '1f', 's', 'name', 'x', 'npm', 'x', 'no', 'local', null, 1, 1.5, 2.5);
insert into call_success values ('two', 'p', '1f', 2.5);
insert into session_mark values ('two', 'p', 's', 'read 1f');
insert into past_call (tenant, project, session, type, call, ended, record, at)
  values ('two', 'p', 's', 'tool_call', 'c', 1, '{}', 1);
insert into reminder values
  ('two', 'p', 's', 'error/a', 1, 0.1, 1.5, 0, 0, 1);
insert into note values
  ('one', 'p', '', 'on loop 0/001', 'loop 0', '{"text": "read", "by": "ann"}', 2.5);
insert into span (tenant, project, trace, id, parent, root, record, known)
  values ('two', 'p', 't', 's', '', 1, '{"text": "a\\u0000b"}', 1);
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("copy") / "a.db"

    async def scenario() -> None:
        store = open_store(str(path))
        for number, scope in enumerate(SCOPES):
            await fill_memory_fully(Memory(store, scope, FixedEmbedder()))
            await heedful.run(
                f"žluť {number}",
                generate=[
                    heedful.Rung(lambda task, hint: "text", "small", calls=9),
                    lambda task, hint: "other",
                ],
                scope=scope,
                store=store,
                id=f"loop {number}",
            )
            await heedful.Trial("mem0", store, scope).offer(f"loop {number}", ["text"])
        await store.close()

    asyncio.run(scenario())
    with closing(sqlite3.connect(path)) as db:
        db.executescript(OTHERS)
    return path


def cells(rows_read: list[Any]) -> list[Any]:
    """Rows in one order, with the booleans of PostgreSQL as numbers."""
    numbered = (
        [int(cell) if isinstance(cell, bool) else cell for cell in row]
        for row in rows_read
    )
    return sorted(numbered, key=repr)


def recall(url: str, scope: Scope) -> Any:
    async def ask() -> Any:
        store = open_store(url)
        memory = Memory(store, scope, FixedEmbedder())
        matches = await memory.recall("convert parcel 8 to kilograms", limit=5)
        answers = (
            [(match.id, match.lesson) for match in matches],
            await store.read(scope, loops.read, f"loop {SCOPES.index(scope)}"),
            await store.read(scope, lessons.top, limit=100),
            await store.read(scope, exposures.rulings, limit=100),
            await store.read(scope, exposures.evidence),
        )
        await store.close()
        return answers

    return asyncio.run(ask())


def test_all_of_it_is_copied(source, postgres, tmp_path):
    counts = copy(str(source), postgres.owner)
    back = tmp_path / "b.db"
    assert [
        table for table, number in counts.items() if not number
    ] == []  # else this shows little
    assert copy(str(source), str(back)) == counts
    for table in tables():
        sql = f"select {', '.join(table.columns[:-1])} from {table.name}"
        copied = cells(file_rows(source, sql))
        assert cells(rows(postgres.owner, sql)) == cells(file_rows(back, sql)) == copied
        assert len(copied) == counts[table.name]
    for scope in SCOPES:
        before = recall(str(source), scope)
        assert before[0]
        assert recall(postgres.service, scope) == recall(str(back), scope) == before


def test_all_of_it_works_on_the_oldest_server(source):
    with servers.alone(*servers.QUICK, version=servers.OLDEST) as server:
        urls = server.urls("heedful_template")
        [[version]] = rows(
            urls.owner, "select current_setting('server_version_num')::int / 10000"
        )
        assert version == servers.OLDEST
        copy(str(source), urls.owner)
        for scope in SCOPES:
            assert recall(urls.service, scope) == recall(str(source), scope)


def test_every_table_and_column_of_both_is_copied(postgres):
    sql = """
        select table_name::text, column_name::text from information_schema.columns
        where table_schema = 'heedful' and table_name not like 'procrastinate%'
          and table_name not in ('schema_version', 'queue_version')
    """
    there = set(rows(postgres.owner, sql))
    shared = {(table.name, column) for table in tables() for column in table.columns}
    computed = {("lesson", "unreviewed"), ("example", "unreviewed")}
    assert there - shared == {("vector", "near"), ("vector", "indexed"), *computed}
    assert shared <= there


def test_numbers_go_on_where_the_source_was(source, postgres):
    copy(str(source), postgres.owner)
    where = f"scope = '{token(SCOPES[2])}'"
    [[highest]] = file_rows(source, f"select example from corpus where {where}")
    [[largest]] = file_rows(source, f"select max(id) from example where {where}")
    assert highest > largest

    async def learn() -> None:
        store = open_store(postgres.service)
        memory = Memory(store, SCOPES[2])
        await memory.remember("N", "new", lesson="a lesson that nobody had")
        await heedful.run(
            "new", generate=lambda task, hint: "x", store=store, scope=SCOPES[2]
        )
        await store.close()

    asyncio.run(learn())
    new = f"select min(id) > {highest} from example where id > {largest} and {where}"
    assert rows(postgres.owner, new) == [(True,)]


def test_a_target_that_holds_anything_is_refused(source, postgres, tmp_path):
    rows(postgres.owner, "insert into learnt values ('two', 'p', 'x', 1, 1.5)")
    with pytest.raises(Conflict, match=r"holds rows already \(in learnt\); copy into"):
        copy(str(source), postgres.owner)
    assert rows(postgres.owner, "select count(*) from loop") == [(0,)]
    other = tmp_path / "other.db"
    copy(str(source), str(other))
    for target in (other, source):
        with pytest.raises(Conflict, match="copy into a new file"):
            copy(str(source), str(target))


def test_what_fails_in_the_middle_leaves_nothing(source, postgres):
    rows(postgres.owner, "alter table span add check (root is null)")
    with pytest.raises(StoreError, match="violates check constraint"):
        copy(str(source), postgres.owner)
    counts = [
        rows(postgres.owner, f"select count(*)::int from {table.name}")
        for table in tables()
    ]
    assert set(map(tuple, counts)) == {((0,),)}
    triggers = "select count(*)::int from pg_trigger where tgenabled <> 'O'"
    assert rows(postgres.owner, triggers) == [(0,)]


def test_a_wrong_role_or_name_is_refused(source, postgres, tmp_path):
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"x" * 5000)
    blank = servers.blank()
    try:
        for left, right, error, message in [
            (source, postgres.service, RoleRefused, "connect as the role that owns"),
            (tmp_path / "none.db", postgres.owner, NotFound, "no database"),
            (postgres.owner, source, InvalidInput, "pg_dump"),
            (
                source,
                "postgresql://e:x@127.0.0.1:1/db",
                StoreUnavailable,
                "that the server runs",
            ),
            (source, blank.owner, StoreOlder, "run heedful db migrate"),
            (
                damaged,
                postgres.owner,
                StoreError,
                "damaged.db is not a SQLite database",
            ),
        ]:
            with pytest.raises(error, match=message):
                copy(str(left), str(right))
    finally:
        servers.drop(blank)

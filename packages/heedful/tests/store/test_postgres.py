"""Access to PostgreSQL: sessions, transactions, locks, retries, the pool, roles, the
URL.
"""

import asyncio
import os
import re
import threading
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from hypothesis import given, strategies as st

from heedful.errors import (
    HeedfulError,
    InvalidInput,
    RoleRefused,
    StoreError,
    StoreNewer,
    StoreOlder,
    StoreUnavailable,
)
from heedful.lessons.lesson import Scope
from heedful.store import open_store, postgres as engine, shown
from heedful.store.connection import Db
from heedful.store.postgres import Database
from heedful.store.postgres_session import parse_url, psycopg_sql
from tests.postgres import rows
from tests.tables import cases

ONE = Scope("one")
OTHER = Scope("other")
ADD = """
insert into tally (tenant, project, lessons) values (:tenant, :project, 1)
on conflict (tenant, project) do update set lessons = tally.lessons + 1
"""
COUNT = "select lessons from tally where tenant = :tenant and project = :project"


HERE = {"tenant": "one", "project": "p"}


def add(db: Db, scope: Scope = ONE) -> None:
    db.execute(ADD, {"tenant": scope.tenant, "project": scope.project})


def count(url: str) -> int:
    [[lessons]] = rows(url, "select coalesce(sum(lessons), 0)::int from tally")
    return int(lessons)


@asynccontextmanager
async def opened(url: str, **query: Any):
    database = Database(parse_url(url + "".join(f"&{k}={v}" for k, v in query.items())))
    try:
        yield database
    finally:
        database.close()


# --- a session

SQL = {
    "none": ("select 1", "select 1"),
    "one of them twice": ("select :a, :b, :a", "select %(a)s, %(b)s, %(a)s"),
    "a cast, a text and a name": (
        "select :a::text, ':b', \":c\"",
        "select %(a)s::text, ':b', \":c\"",
    ),
    "a comment and a slice": ("select /* :d */ :e[1:2]", "select /* :d */ %(e)s[1:2]"),
    "signs for percent": ("select '%', 7 % :a", "select '%%', 7 %% %(a)s"),
}


@cases(("written", "sent"), SQL)
def test_parameters_are_written_for_psycopg_where_they_are_parameters(written, sent):
    assert psycopg_sql(written) == sent.encode()


@pytest.mark.parametrize("text", ["a\0b", "a\udcff"])
async def test_text_that_cannot_be_stored_is_told_as_the_callers(postgres, text):
    async with opened(postgres.service) as database:
        with pytest.raises(InvalidInput, match=r"^text is .*; it must be text"):
            await database.read(
                ONE, lambda db: db.execute("select :text", {"text": text})
            )


# --- transactions


async def test_every_transaction_has_its_own_tenant_and_the_next_finds_none(postgres):
    def tenant(db: Db) -> str:
        row = db.execute("select current_setting('heedful.tenant') as name").fetchone()
        return str(row["name"])

    strange = Scope("it's \\ $1 :x %s ž")
    async with opened(postgres.service, pool_size=1) as database:
        for scope in (ONE, strange, OTHER):
            assert await database.read(scope, tenant) == scope.tenant
            assert await database.write(scope, tenant) == scope.tenant
        session = await database.run(database.connection)
        left = session.execute(
            "select current_setting('heedful.tenant', true) as name"
        ).fetchone()
    assert left["name"] in (None, "")


def raises(db: Db) -> None:
    add(db)
    raise LookupError("nothing was written")


def swallows(db: Db) -> None:
    add(db)
    with pytest.raises(psycopg.errors.DivisionByZero):
        db.execute("select 1 / 0")


def takes_back(db: Db) -> None:
    add(db)
    db.execute("savepoint part")
    add(db)
    db.execute_later("select 'waits'", {})
    db.undo("part")
    follows(db)


def follows(db: Db) -> None:
    db.execute("select 'follows'").fetchall()


@pytest.mark.parametrize(
    ("work", "error"),
    [
        pytest.param(raises, LookupError, id="work that raises"),
        pytest.param(swallows, StoreError, id="work that swallows the error"),
    ],
)
async def test_what_fails_leaves_nothing_and_a_clean_connection(postgres, work, error):
    async with opened(postgres.service, pool_size=1) as database:
        with pytest.raises(error, match="nothing was written"):
            await database.write(ONE, work)
        assert count(postgres.owner) == 0
        await database.write(ONE, takes_back)
        await database.write(ONE, follows)
    assert count(postgres.owner) == 1


async def test_a_read_sees_one_state_whatever_is_committed_meanwhile(postgres):
    def work(db: Db) -> list[Any]:
        before = db.execute(COUNT, HERE).fetchall()
        rows(
            postgres.owner,
            "insert into tally (tenant, project, lessons) values ('one', 'p', 7)",
        )
        return [before, db.execute(COUNT, HERE).fetchall()]

    async with opened(postgres.service) as database:
        assert await database.read(ONE, work) == [[], []]
        assert await database.read(
            ONE, lambda db: db.execute(COUNT, HERE).fetchall()
        ) == [{"lessons": 7}]
        with pytest.raises(StoreUnavailable, match="read-only"):
            await database.read(ONE, add)


async def test_who_holds_the_same_waits_and_who_holds_another_does_not(postgres):
    """Both of a pair meet in the middle where they may, and never where they may
    not.
    """
    meeting = threading.Barrier(2, timeout=30)
    inside = threading.Semaphore(1)

    def meets(db: Db) -> None:
        meeting.wait()

    def alone(db: Db) -> None:
        assert inside.acquire(blocking=False)
        db.execute("select pg_sleep(0.01)")
        inside.release()

    async with opened(postgres.service) as database:
        write = database.write
        await asyncio.gather(
            write(ONE, meets, ("loop a",)), write(ONE, meets, ("loop b",))
        )
        await asyncio.gather(write(ONE, meets), write(OTHER, meets))
        await asyncio.gather(write(ONE, meets, ()), write(ONE, meets))
        await asyncio.gather(
            *(write(ONE, alone, ("loop a", "memory")) for _ in range(8))
        )
        await asyncio.gather(*(write(ONE, alone) for _ in range(8)))


CLASH = "do $$ begin raise exception 'clash' using errcode = '40001'; end $$"


@pytest.mark.parametrize("clashes", [1, 6, 7])
async def test_work_that_the_database_turns_back_runs_again_but_not_for_ever(
    postgres, monkeypatch, clashes
):
    monkeypatch.setattr(engine, "RETRY_PAUSES_SECONDS", (0.0,) * 6)
    runs = []

    def work(db: Db) -> int:
        add(db)
        runs.append(1)
        if len(runs) <= clashes:
            db.execute(CLASH)
        return len(runs)

    async with opened(postgres.service) as database:
        if clashes <= 6:
            assert await database.write(ONE, work) == clashes + 1
        else:
            with pytest.raises(
                StoreUnavailable, match="clash: other transactions keep changing"
            ):
                await database.write(ONE, work)
    assert count(postgres.owner) == (clashes <= 6)
    assert len(runs) == min(clashes, 6) + 1


async def test_a_schema_that_changes_under_a_prepared_statement_is_no_failure(postgres):
    def look(db: Db) -> Any:
        return db.execute("select * from tally").fetchall()

    async with opened(postgres.service, pool_size=1) as database:
        for _ in range(3):
            assert await database.read(ONE, look) == []
        rows(postgres.owner, "alter table tally add column extra text")
        assert await database.read(ONE, look) == []


# --- who may


async def refuse_to_open(url: str) -> HeedfulError:
    async with opened(url) as database:
        with pytest.raises(HeedfulError) as raised:
            await database.read(ONE, lambda db: None)
    return raised.value


ROLES = [
    ("login superuser", "^role {} is a superuser, so"),
    ("login bypassrls", "^role {} has BYPASSRLS, so"),
    ("login in role heedful_owner", "^role {} owns heedful's tables, so"),
    ("login", "permission denied"),  # nobody let it in
]


@pytest.mark.parametrize(("rights", "reason"), ROLES)
async def test_a_role_that_row_level_security_does_not_hold_is_refused(
    postgres, rights, reason
):
    name = f"other_{os.getpid()}"
    rows(postgres.superuser, f"create role {name} {rights}")
    try:
        error = await refuse_to_open(postgres.service.replace("heedful@", f"{name}@"))
    finally:
        rows(postgres.superuser, f"drop role {name}")
    assert isinstance(error, RoleRefused)
    assert re.search(reason.format(name), str(error))
    assert "heedful db migrate --role" in str(error)


SCHEMAS = {
    "no version": (
        "delete from schema_version",
        StoreOlder,
        r"has no schema; run heedful db migrate as",
    ),
    "newer": (
        "insert into schema_version values (999, 0)",
        StoreNewer,
        "upgrade heedful",
    ),
    "none": (
        "drop schema heedful cascade",
        StoreOlder,
        "has no schema; run heedful db migrate",
    ),
}


@cases(("change", "kind", "words"), SCHEMAS)
async def test_a_schema_of_another_version_is_refused(postgres, change, kind, words):
    rows(postgres.owner, change)
    error = await refuse_to_open(postgres.service)
    assert isinstance(error, kind)
    with pytest.raises(kind, match=words):
        raise error


# --- the URL

UNREACHABLE = "postgresql://erin:{}@127.0.0.1:1/db?connect_timeout=2"


async def test_a_server_that_is_not_there_is_told_without_the_password():
    url = UNREACHABLE.format("hunter2")
    error = await refuse_to_open(url)
    assert isinstance(error, StoreUnavailable)
    assert "Connection refused: see that the server runs" in str(error)
    database = Database(parse_url(url))
    texts = (
        f"{error!r} {error} {error.__cause__} {parse_url(url)!r} {open_store(url).url}"
    )
    assert "hunter2" not in f"{texts} {database!r}"


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1),
    st.sampled_from(["", "@", "#", "@#", "#@"]),
    st.booleans(),
)
def test_no_url_is_shown_with_its_password(password, sign, as_parameter):
    secret = f"hunter2{password}{sign}hunter2"
    url = f"postgresql://erin:{secret}@h/db"
    for other in ("https", "redis", "mongodb+srv", "sqlite"):
        assert "hunter2" not in shown(f"{other}://erin:{secret}@h/db#model")
    if as_parameter:
        url = f"postgresql://erin@h/db?sslmode=disable&password={secret}&port=1"
    assert "hunter2" not in shown(url)
    try:
        text = repr(parse_url(url))
    except InvalidInput as error:
        text = f"{error} {error.__cause__} {error.__context__}"
    assert "hunter2" not in text


WRONG = [
    (
        "postgresql://h/db?pool_size=0",
        "pool_size is '0'; it must be a whole number from 1 to 500",
    ),
    ("postgresql://h/db?pool_size=x", "pool_size is 'x'; it must be"),
    (
        "postgresql://h/db?poolsize=1",
        "store is 'postgresql://h/db'; it must be like postgresql://",
    ),
    (
        "postgresql://h:x%zz/db",
        "store is 'postgresql://h:x%zz/db'; it must be like postgresql://",
    ),
]


@pytest.mark.parametrize(("url", "words"), WRONG)
def test_a_url_that_cannot_be_used_is_told(url, words):
    with pytest.raises(InvalidInput) as refused:
        open_store(url)
    assert str(refused.value).startswith(words)

"""The schema of PostgreSQL: made in one piece, changed in two parts while old and new
code run.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import heedful
from heedful.errors import (
    InvalidInput,
    RoleRefused,
    StoreError,
    StoreNewer,
    StoreUnavailable,
)
from heedful.store import postgres_migrations
from heedful.store.postgres_migrations import migrate
from heedful.store.postgres_versions import all_parts, newest_version
from tests.postgres import Urls, blank, drop, rows
from tests.store.support import WAITING, unmeasured

TABLES = """
select relname::text from pg_class
where relnamespace = to_regnamespace('heedful') and relkind = 'r' order by 1
"""


@pytest.fixture
def empty():
    urls = blank()
    yield urls
    drop(urls)


def tables(urls: Urls) -> list[str]:
    return [name for (name,) in rows(urls.owner, TABLES)]


def test_many_at_once_apply_all_of_it_once(empty):
    with ThreadPoolExecutor(4) as threads:
        done = list(
            threads.map(lambda _: migrate(empty.owner, role="heedful"), range(4))
        )
    assert sorted(len(migration.applied) for migration in done) == [
        0,
        0,
        0,
        len(all_parts()),
    ]
    assert {(migration.waiting, migration.schema) for migration in done} == {
        ((), newest_version())
    }
    assert {"loop", "schema_version", "procrastinate_jobs"} <= set(tables(empty))


def test_the_role_of_the_service_is_made_and_let_in_to_what_comes_later(empty):
    name = f'the "service" {os.getpid()}'
    try:
        migrate(empty.owner, role=name)
        flags = "rolcanlogin, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb"
        roles = rows(
            empty.owner, f"select {flags} from pg_roles where rolname = %s", name
        )
        assert roles == [(True, False, False, False, False)]
        rows(
            empty.owner,
            "create table heedful.later (id bigint generated always as identity)",
        )
        migrate(empty.owner)
        rights = "select has_table_privilege(%s, 'heedful.later', 'insert')"
        assert rows(empty.owner, rights, name) == [(True,)]
        book = "select has_table_privilege(%s, 'heedful.schema_version', 'update')"
        assert rows(empty.owner, book, name) == [(False,)]
    finally:
        quoted = psycopg.sql.Identifier(name).as_string()
        rows(empty.superuser, f"drop owned by {quoted}; drop role {quoted}")


@pytest.mark.parametrize(
    "role",
    [pytest.param("a\nb", id="a line break"), pytest.param("x" * 64, id="too long")],
)
def test_a_role_without_a_proper_name_is_refused(empty, role):
    with pytest.raises(InvalidInput, match="role is"):
        migrate(empty.owner, role=role)
    assert tables(empty) == []


def test_who_may_not_is_told_who_may(empty):
    with pytest.raises(
        RoleRefused, match=r"permission denied .*; run heedful migrate as the role"
    ):
        migrate(empty.service)
    migrate(empty.owner)
    with pytest.raises(
        RoleRefused, match=r"permission denied .*; run heedful migrate as the role"
    ):
        migrate(empty.service)


def test_a_database_without_pgvector_is_told_what_to_run(empty):
    rows(empty.superuser, "drop extension vector")
    with pytest.raises(StoreError, match=r"no pgvector; .*create extension"):
        migrate(empty.owner)
    rows(empty.superuser, "create extension vector")
    rows(
        empty.superuser,
        "update pg_extension set extversion = '0.7.4' where extname = 'vector'",
    )
    with pytest.raises(
        StoreError, match=r"pgvector 0\.7\.4; .*alter extension vector update"
    ):
        migrate(empty.owner)
    assert tables(empty) == []


def test_a_server_that_is_too_old_is_named_before_pgvector(empty, monkeypatch):
    rows(empty.superuser, "drop extension vector")
    newer_than_all = 990_000
    monkeypatch.setattr(postgres_migrations, "MIN_SERVER_VERSION", newer_than_all)
    with pytest.raises(StoreUnavailable, match=r"this server is PostgreSQL \d\d; "):
        migrate(empty.owner)
    assert tables(empty) == []


def test_the_queue_is_brought_up_to_date_in_the_same_two_parts(empty):
    """As if the last of its migrations were new: its own `drop … if exists` lets it run
    again.
    """
    migrate(empty.owner)
    last = "select max(name) from queue_version"
    [[name]] = rows(empty.owner, last)
    assert "_post_" in name
    rows(empty.owner, "delete from queue_version where name = %s", name)
    migrate(empty.owner, "pre")
    assert rows(empty.owner, last) != [(name,)]
    migrate(empty.owner, "post")
    assert rows(empty.owner, last) == [(name,)]


# --- an heedful that is newer than this one: a copy of it with another migration

NEXT = newest_version() + 1
PRE = """
alter table tally add column many bigint not null default 0;
update tally set many = lessons;
create function both_tallies() returns trigger language plpgsql as $$
begin
  new.many := new.lessons;
  return new;
end $$;
create trigger tally_both before insert or update on tally for each row
execute function both_tallies();
create table brand_new (tenant text not null default current_setting('heedful.tenant'));
alter table brand_new enable row level security;
create policy of_tenant on brand_new using (tenant = current_setting('heedful.tenant'));
"""
POST = """
drop trigger tally_both on tally;
drop function both_tallies();
create or replace function lesson_added() returns trigger language plpgsql as $$
begin
  insert into tally (tenant, project, many) values (new.tenant, new.project, 1)
  on conflict (tenant, project) do update set many = tally.many + 1;
  return null;
end $$;
create or replace function lesson_gone() returns trigger language plpgsql as $$
begin
  update tally set many = many - 1 where tenant = old.tenant and project = old.project;
  return null;
end $$;
alter table tally drop column lessons;
"""
# For each line that it reads, a loop and a lesson of that name more. It answers with
# the number of lessons, or with the error.
USE = """
import asyncio, sys
from heedful.errors import StoreError
from heedful.drive.drive import run
from heedful.memory.memory import Memory
from heedful.lessons.lesson import Scope
from heedful.store import loops, open_store

async def use(name):
    store = open_store(sys.argv[1])
    try:
        await run(
            "task",
            generate=lambda task, hint: "text",
            checks=[lambda candidate, context: []],
            store=store,
            id=name,
        )
        assert (await store.read(Scope(), loops.read, name)).values == ("text",)
        memory = Memory(store)
        error = f"{name} rises too late"
        assert (await memory.remember("E", error, lesson="bake it")).created
        assert (await memory.seen("E", error)).count == 1
        print(await memory.count(), flush=True)
    except StoreError as error:
        print(type(error).__name__, flush=True)
    finally:
        await store.close()

for line in sys.stdin:
    asyncio.run(use(line.strip()))
"""
MIGRATE = """
import sys
from heedful.store.postgres_migrations import migrate
for part in sys.argv[2:]:
    done = migrate(sys.argv[1], part)
    print([step.part for step in done.applied], end=" ")
    print([step.part for step in done.waiting], end=" ")
"""
HERE = Path(heedful.__file__).parents[1]


@pytest.fixture
def newer(tmp_path):
    package = tmp_path / "heedful"
    shutil.copytree(HERE / "heedful", package)
    _add(tmp_path, PRE, POST)
    file = package / "store" / "lessons.py"
    file.write_text(
        file.read_text("utf-8").replace('"lessons", "tally"', '"many", "tally"'),
        "utf-8",
    )
    return tmp_path


def _add(code: Path, pre: str, post: str) -> None:
    for part, sql in (("pre", pre), ("post", post)):
        file = code / "heedful" / "store" / "sql" / f"postgres_{NEXT:04}_{part}.sql"
        file.write_text(sql, encoding="utf-8")


def start_code(
    code: Path, text: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", text, *arguments]
    env = {**unmeasured(), "PYTHONPATH": str(code)}
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def run_code(code: Path, text: str, *arguments: str) -> str:
    done = start_code(code, text, *arguments)
    assert done.returncode == 0
    assert done.stderr == ""
    return done.stdout


@contextmanager
def user(code: Path, url: str) -> Iterator[Callable[[str], str]]:
    """Start a process of that code; what is yielded lets it use the store."""
    process = subprocess.Popen(
        [sys.executable, "-c", USE, url],
        env={**unmeasured(), "PYTHONPATH": str(code)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def use(name: str) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{name}\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    with process:
        yield use
        process.communicate(timeout=WAITING)


def test_old_and_new_code_run_side_by_side_between_the_parts(postgres, newer):
    with user(HERE, postgres.service) as old, user(newer, postgres.service) as new:
        assert old("ash") == "1"
        assert new("birch") == "StoreOlder"
        done = run_code(newer, MIGRATE, postgres.owner, "post", "pre")
        assert done == "[] ['pre', 'post'] ['pre'] ['post'] "
        assert old("cedar") == "2"
        assert new("elm") == "3"
        assert old("fir") == "4"
        assert run_code(newer, MIGRATE, postgres.owner, "all") == "['post'] [] "
        assert old("holly") == "StoreNewer"
        assert new("oak") == "5"
    with pytest.raises(StoreNewer, match="upgrade heedful"):
        migrate(postgres.owner)


BROKEN = [
    pytest.param(PRE + "select 1 / 0;", POST, StoreError, id="the first part fails"),
    pytest.param(PRE, POST + "select 1 / 0;", StoreError, id="the second part fails"),
    pytest.param(
        PRE,
        POST + "select pg_terminate_backend(pg_backend_pid());",
        StoreUnavailable,
        id="the connection is lost in the second part",
    ),
]


@pytest.mark.parametrize(("pre", "post", "kind"), BROKEN)
def test_of_a_migration_that_fails_nothing_is_left(postgres, newer, pre, post, kind):
    _add(newer, pre, post)
    there = tables(postgres)
    done = start_code(newer, MIGRATE, postgres.owner, "all")
    assert f"heedful.errors.{kind.__name__}" in done.stderr
    assert tables(postgres) == there
    with user(HERE, postgres.service) as use:
        assert use("ash") == "1"
    again = migrate(postgres.owner)
    assert again.applied == ()
    assert again.waiting == ()

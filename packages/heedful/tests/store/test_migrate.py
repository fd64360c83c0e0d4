"""The schema of PostgreSQL: made in one piece, or not at all."""

import os
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from heedful.errors import (
    InvalidInput,
    RoleRefused,
    StoreError,
    StoreNewer,
    StoreUnavailable,
)
from heedful.store import postgres_schema
from heedful.store.postgres_schema import migrate
from heedful.store.statements import schema
from tests.postgres import Urls, blank, drop, rows
from tests.tables import cases

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


def test_of_many_at_once_one_makes_the_schema(empty):
    with ThreadPoolExecutor(4) as threads:
        created = threads.map(lambda _: migrate(empty.owner, role="heedful"), range(4))
    assert sorted(created) == [False, False, False, True]
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


@cases("role", {"a line break": "a\nb", "too long": "x" * 64})
def test_a_role_without_a_proper_name_is_refused(empty, role):
    with pytest.raises(InvalidInput, match="role is"):
        migrate(empty.owner, role=role)
    assert tables(empty) == []


def test_who_may_not_is_told_who_may(empty):
    with pytest.raises(
        RoleRefused, match=r"permission denied .*; run heedful db migrate as the role"
    ):
        migrate(empty.service)
    migrate(empty.owner)
    with pytest.raises(
        RoleRefused, match=r"permission denied .*; run heedful db migrate as the role"
    ):
        migrate(empty.service)


def test_a_database_without_pgvector_is_told_what_to_run(empty):
    rows(empty.superuser, "drop extension vector")
    with pytest.raises(StoreError, match=r"no pgvector .*create extension"):
        migrate(empty.owner)
    assert tables(empty) == []


def test_a_server_that_is_too_old_is_named_before_pgvector(empty, monkeypatch):
    rows(empty.superuser, "drop extension vector")
    newer_than_all = 990_000
    monkeypatch.setattr(postgres_schema, "MIN_SERVER_VERSION", newer_than_all)
    version = "select split_part(current_setting('server_version'), '.', 1)"
    [[number]] = rows(empty.superuser, version)
    with pytest.raises(StoreUnavailable, match=f"this server is PostgreSQL {number}; "):
        migrate(empty.owner)
    assert tables(empty) == []


def test_the_queue_is_brought_up_to_date(empty):
    """As if the last of its migrations were new: its own `drop … if exists` lets it run
    again.
    """
    migrate(empty.owner)
    last = "select max(name) from queue_version"
    [[name]] = rows(empty.owner, last)
    rows(empty.owner, "delete from queue_version where name = %s", name)
    assert migrate(empty.owner) is False
    assert rows(empty.owner, last) == [(name,)]


def test_a_newer_schema_is_left_alone(empty):
    migrate(empty.owner)
    rows(empty.owner, "insert into schema_version values (999, 0)")
    with pytest.raises(StoreNewer, match="upgrade heedful"):
        migrate(empty.owner)


def test_of_a_schema_that_fails_nothing_is_left(empty, monkeypatch):
    broken = f"{schema('postgres')}; select 1 / 0"
    monkeypatch.setattr(postgres_schema, "schema", lambda _: broken)
    with pytest.raises(StoreError, match="division by zero"):
        migrate(empty.owner)
    assert tables(empty) == []

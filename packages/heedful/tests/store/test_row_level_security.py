"""The second lock: whatever the service asks, it sees and changes the set tenant's rows
alone.

Every table is found in the catalogue and filled for two tenants, so that a new one
without a policy fails here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.postgres import Urls, connect, drop, fresh, rows

TABLES = """
select c.relname::text from pg_class c
where c.relnamespace = 'heedful'::regnamespace and c.relkind in ('r', 'p')
  and c.relname not in ('schema_version', 'queue_version')
  and c.relname not like 'procrastinate%'
order by 1
"""
# What has no tenant: the books of the migrator, and the jobs, whose arguments name
# theirs.
COLUMNS = """
select column_name::text, udt_name::text from information_schema.columns
where table_schema = 'heedful' and table_name = %s
  and identity_generation is distinct from 'ALWAYS' and is_generated = 'NEVER'
"""
RULES = """
select conrelid::regclass::text, quote_ident(conname) from pg_constraint
where connamespace = 'heedful'::regnamespace and contype in ('c', 'f', 'p', 'u')
"""
VALUES = {
    "text": "{tenant} {n}",
    "float8": "{n}",
    "bool": "true",
    "bytea": r"\x00",
    "halfvec": "[1]",
}
# What runs with the rights of the owner. The first two are asked below whether they
# tell of another tenant; the others do so on purpose: a key is found by its own number,
# whether there is any key, and the names of the scopes that have something to do.
DEFINERS = {"count_words", "match_words", "key_of", "keys_there", "scopes_there"}
DEFINERS |= {"new_base", "queue_depth", "live_workers"}
CHANGES = ("update {} set tenant = tenant", "delete from {}")
INTRUSIONS = ("update {} set tenant = 'two'", "insert into {} (tenant) values ('two')")
AUDIT = ("audit",)
TENANTS = ("one", "two")
EACH = 3


TEXTS = """
select table_name::text, column_name::text from information_schema.columns
where table_schema = 'heedful' and data_type = 'text'
  and collation_name is distinct from 'C'
  and table_name in ({})
"""


@pytest.fixture(scope="module")
def filled() -> Iterator[Urls]:
    """Each table with rows of two tenants, whatever they say."""
    urls = fresh()
    for table, rule in rows(urls.owner, RULES):
        rows(
            urls.owner, f"alter table {table} drop constraint if exists {rule} cascade"
        )
    with connect(urls.superuser) as db:
        db.execute("set session_replication_role = replica")  # no triggers
        for n, tenant in enumerate(TENANTS * EACH):
            for table in tables(urls):
                _insert(db, table, tenant, n)
    yield urls
    drop(urls)


def tables(urls: Urls) -> list[str]:
    return [name for (name,) in rows(urls.owner, TABLES)]


def test_texts_are_sorted_by_code_point_as_in_sqlite(filled):
    names = ", ".join(f"'{name}'" for name in tables(filled))
    assert rows(filled.owner, TEXTS.format(names)) == []


def _insert(db: psycopg.Connection[Any], table: str, tenant: str, n: int) -> None:
    cells = {
        name: VALUES.get(kind, "{n}").format(tenant=tenant, n=n)
        for name, kind in db.execute(COLUMNS, (table,)).fetchall()
    }
    cells["tenant"] = tenant
    names = sql.SQL(", ").join(map(sql.Identifier, cells))
    values = sql.SQL(", ").join(map(sql.Literal, cells.values()))
    insert = sql.SQL("insert into {} ({}) values ({})")
    db.execute(insert.format(sql.Identifier(table), names, values))


@contextmanager
def serving(urls: Urls, tenant: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction of the service for a tenant, which is rolled back."""
    with connect(urls.service) as db:
        db.execute("select set_config('heedful.tenant', %s, true)", (tenant,))
        yield db
        db.rollback()


def test_every_table_has_a_tenant_and_a_policy_that_binds_its_rows(filled):
    for table in tables(filled):
        with serving(filled, "one") as db:
            name = sql.Identifier(table)
            seen = db.execute(sql.SQL("select tenant from {}").format(name)).fetchall()
            assert seen == [("one",)] * EACH, table
            for change in (
                () if table in AUDIT else CHANGES
            ):  # to the audit it only adds
                with db.transaction(force_rollback=True):
                    assert db.execute(sql.SQL(change).format(name)).rowcount == EACH, (
                        table
                    )
            for change in INTRUSIONS:
                with (
                    pytest.raises(psycopg.errors.InsufficientPrivilege),
                    db.transaction(),
                ):
                    db.execute(sql.SQL(change).format(name))


def test_without_a_tenant_nothing_is_seen(filled):
    with connect(filled.service, autocommit=True) as db:
        for table in tables(filled):
            with pytest.raises(psycopg.errors.UndefinedObject):
                db.execute(sql.SQL("select from {}").format(sql.Identifier(table)))
        with db.transaction():
            db.execute("select set_config('heedful.tenant', 'one', true)")
        for table in tables(filled):  # the name is known by now, and empty
            cursor = db.execute(sql.SQL("select from {}").format(sql.Identifier(table)))
            assert cursor.fetchall() == [], table


FORBIDDEN = [
    "set role heedful_owner",
    "set session_replication_role = replica",
    "alter table loop disable row level security",
    "drop policy of_tenant on loop",
    "truncate loop",
    "create table heedful.mine (id int)",
    "create trigger mine after insert on loop execute function lesson_added()",
    "insert into schema_version values (99, 0)",
    "delete from queue_version",
    "update audit set subject = 'another'",
    "delete from audit",
]


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_the_role_cannot_open_the_lock(filled, statement):
    with (
        serving(filled, "one") as db,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        db.execute(statement)


def test_rows_are_refused_rather_than_shown_without_the_lock(filled):
    with serving(filled, "one") as db:
        db.execute("set local row_security = off")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute("select from loop")


def test_what_runs_with_the_owners_rights_is_known_and_tells_of_nobody_else(filled):
    definers = """
        select proname::text from pg_proc
        where pronamespace = 'heedful'::regnamespace and prosecdef
          and proname not like 'procrastinate%'
    """
    assert {name for (name,) in rows(filled.owner, definers)} == DEFINERS
    views = (
        "select from pg_class where relnamespace = 'heedful'::regnamespace and "
        "relkind in ('v','m')"
    )
    assert rows(filled.owner, views) == []
    word = "update example set indexed = true, scope = 's', words = 'bread'"
    with connect(filled.superuser) as db:
        db.execute("set session_replication_role = replica")
        db.execute(word)
    for tenant in TENANTS:
        with serving(filled, tenant) as db:
            mine = db.execute(
                "select n from count_words('s', '[\"bread\"]')"
            ).fetchall()
            ids = db.execute(
                "select ids from match_words('s', '[\"bread\"]', 9)"
            ).fetchall()
            expected = db.execute(
                "select array_agg(id order by id desc) from example"
            ).fetchall()
        assert mine == [(EACH,)]
        assert [eval(numbers) for (numbers,) in ids] == [
            numbers for (numbers,) in expected
        ]


SHADOWS = """
create function pg_temp.who() returns text language sql
  as $$ select current_user::text $$;
create temp view key as select pg_temp.who() as id, tenant, name, hash, projects,
  may, by, at, expires, null::float8 as revoked from heedful.key;
grant select on pg_temp.key to public;
insert into heedful.key (id, name, hash, projects, may, by, at)
  values ('one', '', '', '', '', '', 0)
"""


def test_a_table_that_the_role_makes_is_not_taken_for_the_owners(filled):
    with serving(filled, "one") as db:
        db.execute(SHADOWS)
        assert db.execute("select id from key_of('heedful_owner')").fetchall() == []
        assert db.execute("select id from key_of('one')").fetchall() == [("one",)]

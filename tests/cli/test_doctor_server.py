"""`heedful doctor` of a database on PostgreSQL."""

import asyncio
import os

import pytest

from heedful.memory.memory import Memory
from heedful.store import open_store
from heedful.store.postgres import newest
from tests.postgres import blank, drop, rows

WELL = ["server", "pool", "pgvector", "role", "schema", "row-level security", "open loops", "queue"]
FILE = ["folder", "database"]
EPISODE = """
insert into episode (tenant, project, digest, outcome, state, record, at)
values ('default', 'default', 'd', 'failure', 'waiting', '{}', 0)
"""
LOOP = """
insert into loop (tenant, project, id, task, goals, policy, created, updated)
values ('default', 'default', 'red', '1', '[]', '{}', 0, 0)
"""


@pytest.fixture
def invoke(desk, monkeypatch):
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(key, raising=False)

    def invoked(url):
        more = ("--db", url, "--model", "toy:answer", "--json")
        done = desk.invoke(monkeypatch, "doctor", *more)
        assert "hunter2" not in done.out + done.err
        return done.code, {sign["name"]: sign for sign in done.json["signs"]}

    return invoked


def secret(url):
    return url.replace("@", ":hunter2@", 1)


def test_a_healthy_database(invoke, postgres):
    code, signs = invoke(secret(postgres.service))
    assert (code, [name for name in WELL if not signs[name]["well"]]) == (0, [])
    assert not set(FILE) & set(signs)
    assert signs["server"]["found"].startswith("PostgreSQL 18.")
    assert signs["schema"]["found"] == str(newest())
    assert signs["role"]["found"] == "heedful"
    assert signs["open loops"]["found"] == "0 running, 0 interrupted"
    assert signs["queue"]["found"] == "empty"


def test_what_is_wrong_is_told_with_what_to_do(invoke, postgres):
    rows(postgres.owner, "create table heedful.bare (tenant text)")
    code, signs = invoke(postgres.service)
    assert (code, signs["row-level security"]["well"]) == (1, False)
    assert "not for bare" in signs["row-level security"]["found"]
    rows(postgres.owner, "delete from schema_version where part = 'pre'")
    code, signs = invoke(postgres.service)
    assert "run heedful migrate" in signs["schema"]["found"]
    code, signs = invoke(f"{postgres.service}&pool_size=500")
    assert "lower ?pool_size=" in signs["pool"]["todo"]
    assert (code, signs["pool"]["well"]) == (1, False)


def test_a_role_that_may_too_much_is_ill(invoke, postgres):
    for url in (postgres.owner, postgres.superuser):
        code, signs = invoke(secret(url))
        assert (code, signs["role"]["well"], "open loops" in signs) == (1, False, False)
        assert "heedful migrate --role" in signs["role"]["found"]


def test_a_database_without_schema_or_pgvector(invoke):
    urls = blank()
    try:
        rows(urls.superuser, "drop extension vector")
        code, signs = invoke(urls.service)
        assert (code, signs["schema"]["well"], signs["pgvector"]["well"]) == (1, False, False)
        assert "create extension vector" in signs["pgvector"]["found"]
    finally:
        drop(urls)


def test_a_server_that_is_not_there(invoke):
    code, signs = invoke("postgresql://erin:hunter2@127.0.0.1:1/db")
    assert (code, signs["server"]["well"]) == (1, False)
    assert "see that the server runs" in signs["server"]["found"]
    code, signs = invoke("postgresql://erin:hunter2@h/db?nope=1")
    assert (code, "invalid URI query parameter" in signs["server"]["found"]) == (1, True)


def test_what_it_holds(invoke, postgres, monkeypatch):
    store = open_store(postgres.service)

    async def learn() -> None:
        await Memory(store).remember("E", "a lesson")
        await store.close()

    asyncio.run(learn())
    rows(postgres.owner, EPISODE)
    rows(postgres.owner, LOOP)
    code, signs = invoke(postgres.service)
    assert (code, signs["episodes"]["found"]) == (0, "0 reflected on, 1 waiting, 0 failed")
    assert signs["open loops"]["found"].startswith("0 running, 1 interrupted: red; heedful run")
    assert os.environ.get("HEEDFUL_DB") is None

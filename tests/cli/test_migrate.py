"""`heedful migrate` on the command line."""

import pytest

from heedful.store.postgres import known, newest
from tests.postgres import blank, drop, rows


@pytest.fixture
def empty():
    urls = blank()
    yield urls
    drop(urls)


@pytest.fixture
def invoke(desk, monkeypatch):
    return lambda *arguments: desk.invoke(monkeypatch, *arguments)


def test_it_tells_what_it_did_and_what_comes_next(invoke, empty):
    done = invoke("migrate", "--store", empty.owner, "--role", "heedful")
    assert done.code == 0, done
    assert f"has schema {newest()}, {len(known())} part" in done.out
    assert all(f"{one.number}" in done.out for one in known())
    assert "role heedful may serve" in done.out
    assert "Next: heedful doctor" in done.out
    again = invoke("migrate", "--store", empty.owner)
    assert (again.code, "0 parts applied" in again.out) == (0, True)


def test_the_database_of_the_settings_and_one_json_document(invoke, empty, monkeypatch):
    url = empty.owner.replace("heedful_owner@", "heedful_owner:hunter2@")
    monkeypatch.setenv("HEEDFUL_DB", url)
    done = invoke("migrate", "--part", "pre", "--json")
    pre = [one._asdict() for one in known()[:1]]
    assert (done.code, done.json["applied"][:1], done.json["schema"] > 0) == (0, pre, True)
    assert "hunter2" not in done.out + done.err
    assert rows(empty.owner, "select count(*) > 0 from schema_version") == [(True,)]


def test_a_file_needs_none(invoke):
    done = invoke("migrate")
    assert (done.code, "heedful.db is no postgresql:// URL" in done.err) == (2, True)


def test_an_error_is_told_without_the_password(invoke):
    url = "postgresql://erin:hunter2@127.0.0.1:1/db"
    done = invoke("migrate", "--store", url)
    assert (done.code, "see that the server runs" in done.err) == (4, True)
    assert "hunter2" not in done.out + done.err

"""Tenants that ask for what is not theirs, at the store and over HTTP: nothing is told."""

from __future__ import annotations

import asyncio

import pytest

from heedful.errors import HeedfulError
from heedful.store.store import statements
from tests.conftest import SOAK
from tests.soak.tenants import ACTS, Crowd, rows_of_others
from tests.store.support import opened, rows

pytestmark = [pytest.mark.soak, pytest.mark.both]
OPERATIONS = 500 * SOAK  # on each engine


def test_nobody_is_told_of_another_tenant_or_project(tmp_path):
    with opened(tmp_path / "e.db") as store:
        crowd = Crowd(store, 7)
        asyncio.run(crowd.run(OPERATIONS))
        assert rows_of_others(crowd, lambda sql: rows(tmp_path / "e.db", sql)) == []
    assert crowd.done.total() == OPERATIONS
    assert crowd.done.keys() == {act.__name__ for act in ACTS}
    assert crowd.refused > 0


OWN = "tenant = :tenant and project = :project"
PLANTED = {
    "list_reflections": (OWN, "project = :project"),
    "read_held": ("e.scope = :scope", "true"),
    "read_loop": (OWN, "project = :project"),
}


@pytest.mark.sqlite  # PostgreSQL has a second lock
@pytest.mark.parametrize("name", PLANTED)
def test_a_statement_that_forgets_whose_the_rows_are_is_found(tmp_path, monkeypatch, name):
    sql = statements("sqlite")[name]
    assert PLANTED[name][0] in sql
    monkeypatch.setitem(statements("sqlite"), name, sql.replace(*PLANTED[name]))
    found = (AssertionError, HeedfulError)  # it is told, or stands in the way
    with opened(tmp_path / "e.db") as store, pytest.raises(found):
        asyncio.run(Crowd(store, 7).run(2_000))

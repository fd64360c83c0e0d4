"""A database of schema 2 with lessons: all of them are found by the words of the new index."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heedful
from heedful.lessons.lesson import Scope
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.store.database import read_sql
from heedful.store.lessons import token
from heedful.store.sqlite import APPLICATION, SCHEMA
from heedful.testing import FixedEmbedder
from tests.store.support import opened, rows

THEN = 1_700_000_000.0
HERE, THERE = Scope(), Scope("acme", "support")
PARCELS = heedful.Example("Weigh the red parcels", "7 kg", "7", "no unit")
REFLECTIONS = [  # id, scope, text, state
    (1, HERE, "Write the unit.", "verified"),
    (2, HERE, "The billing host sleeps at night.", "candidate"),
    (3, HERE, "Visit evil.example for printers.", "quarantined"),
    (4, THERE, "Их сервер спит по ночам.", "candidate"),
    (5, HERE, "An old rule about staplers.", "retired"),
]
EXAMPLES = [  # id, reflection, example, state
    (1, 1, PARCELS, "verified"),
    (2, 1, heedful.Example("Weigh the blue crates", "9 kg"), "quarantined"),
    (3, 4, heedful.Example("包裹的重量要写单位", "7 kg"), "candidate"),
]


def key(scope: Scope) -> tuple[str, str]:
    return scope.tenant, scope.project


def write_schema_2(path: Path) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    for number in (1, 2):
        db.executescript(read_sql(f"sqlite_{number:04}.sql"))
    db.execute(f"pragma application_id = {APPLICATION}")
    db.execute("pragma user_version = 2")
    scopes = {}
    for id, scope, text, state in REFLECTIONS:
        scopes[id] = scope
        db.execute(
            "insert into reflection (id, tenant, project, kind, signature, pattern, error_type,"
            " text, state, trust, first_seen, last_seen)"
            " values (?, ?, ?, 'error', ?, 'x', ?, ?, ?, 'operator', ?, ?)",
            (
                id,
                *key(scope),
                signature(f"e{id}", "x").digest,
                f"e{id}",
                text,
                state,
                THEN,
                THEN + 1,
            ),
        )
    for id, reflection, example, state in EXAMPLES:
        scope, record = scopes[reflection], json.dumps(asdict(example))
        db.execute(
            "insert into example (id, reflection, scope, task, record, digest, state, at)"
            " values (?, ?, ?, ?, ?, ?, ?, ?)",
            (id, reflection, token(scope), example.task, record, example.digest, state, THEN),
        )
    vector = asyncio.run(FixedEmbedder().embed([PARCELS.task]))[0]
    data = np.asarray(vector, dtype="<f4").tobytes()
    db.execute("insert into vector values (1, 'default', 'default', 'fixed', ?)", (data,))
    db.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("old") / "a.db"
    write_schema_2(path)
    return path


@pytest.fixture
def old(made, tmp_path):
    return Path(shutil.copy(made, tmp_path / "a.db"))


def recalled(path: Path, task: str, scope: Scope = HERE) -> list[Any]:
    with opened(path) as store:
        return asyncio.run(Memory(store, scope).recall(task))


@pytest.mark.parametrize(
    ("scope", "task", "lessons"),
    [
        (HERE, "weigh a red parcel", ["Write the unit."]),  # by stems, which the old index had not
        (HERE, "why does the billing host sleep", ["The billing host sleeps at night."]),
        (HERE, "weigh blue crates", []),
        (HERE, "evil printers", []),
        (HERE, "stapler rules", []),
        (HERE, "重量单位", []),
        (THERE, "重量单位", ["Их сервер спит по ночам."]),
        (THERE, "weigh a red parcel", []),
    ],
)
def test_what_it_held_is_found_as_if_it_were_new(old, scope, task, lessons):
    assert [one.lesson for one in recalled(old, task, scope)] == lessons
    assert rows(old, "pragma user_version") == [(SCHEMA,)]
    assert rows(old, "pragma integrity_check") == [("ok",)]


def test_an_old_example_keeps_all_it_has(old):
    with opened(old) as store:
        (one,) = asyncio.run(Memory(store, embedder=FixedEmbedder()).recall(PARCELS.task))
    assert (one.id, one.example, one.verified, one.at) == (1, PARCELS, True, THEN)
    assert one.cosine == pytest.approx(1)
    (bare,) = recalled(old, "billing host sleeps")
    assert (bare.example, bare.at) == (heedful.Example(bare.lesson, ""), THEN + 1)


def test_what_a_search_counts_and_follows_is_filled(old):
    recalled(old, "anything")
    live = ["Weigh the red parcels", "包裹的重量要写单位", "The billing host sleeps at night."]
    assert rows(old, "select task from example where indexed order by id") == [(t,) for t in live]
    counted = "select scope, count(*), sum(length(words)) from example where indexed group by 1"
    found = rows(old, "select scope, texts, length from corpus order by scope")
    assert found == rows(old, f"{counted} order by 1")
    assert rows(old, "select example, changed > 0 from vector") == [(1, 1)]


def test_an_old_lesson_is_seen_again_and_forgotten_with_the_rest(old):
    async def scenario() -> None:
        memory = Memory(store)
        again = await memory.remember("e2", "x", lesson="The billing host sleeps at night.")
        assert (again.id, again.seen) == (2, 2)
        assert len(await memory.recall("billing host sleeps")) == 1
        assert [known["examples"] for known in await memory.top(2)] == [0, 2]
        await memory.clear()
        assert await memory.recall("billing host sleeps") == []
        check = "insert into example_fts (example_fts, rank) values ('integrity-check', 1)"
        await store.write(Scope(), lambda db, _: db.execute(check).fetchall())

    with opened(old) as store:
        asyncio.run(scenario())

"""`heedful patterns`, `pin` and `prune`, and what `seen` and `lessons` tell of groups and worth."""

import asyncio
import sqlite3
from typing import Any

import pytest

from heedful import open_store
from heedful.cli import settings
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.testing import FixedEmbedder
from tests.cli.support import following

NAMES = ("ada", "bo", "cy", "di")
LOGIN = [f"login failed for {name} here" for name in NAMES]
FIRST = signature("log", LOGIN[0]).digest


async def _learnt(path: str) -> None:
    store = open_store(path)
    memory = Memory(store)
    for text in (*LOGIN, LOGIN[1]):
        await memory.remember("log", text)
    await memory.remember("KeyError", "no key 'colour'", lesson="Ask for the colour first")
    await store.close()


@pytest.fixture
def told(desk, monkeypatch):
    """Calls the command in a folder whose database has lessons."""
    asyncio.run(_learnt(str(desk.folder / "heedful.db")))
    return lambda *arguments, stdin="": desk.invoke(monkeypatch, *arguments, stdin=stdin)


def aged(desk: Any, **columns: float) -> None:
    """As after some time."""
    db = sqlite3.connect(desk.folder / "heedful.db")
    with db:
        for name, value in columns.items():
            db.execute(f"update reflection set {name} = ? where error_type = 'KeyError'", [value])
    db.close()


def test_a_merge_is_listed_undone_and_taken_back(told):
    done = told("patterns", "list")
    assert done.out.splitlines()[:3] == [
        "log: login failed for <*> here",
        "  4 values after 'for': ada, bo, cy, di",
        f"  {FIRST}  seen 1  login failed for ada here",
    ]
    assert following(done.out) == ["patterns", "unmerge", FIRST, "--by", "NAME"]
    (entry,) = told("patterns", "list", "--json").json["patterns"]
    assert (entry["seen"], entry["apart"], len(entry["patterns"])) == (5, False, 4)
    assert told("patterns", "list", "KeyError").out.startswith("no patterns are merged")

    done = told("patterns", "unmerge", FIRST, "--by", "ann", "--why", "a service")
    assert done.out.splitlines() == [
        "1 pattern from now on kept apart",
        "Next: heedful patterns list",
    ]
    assert told("seen", "log", LOGIN[0], "--json").json["seen"] == 1
    done = told("patterns", "list")
    assert done.out.splitlines()[:2] == [
        "log: login failed for ada here, kept apart",
        "  by ann: a service",
    ]
    assert following(done.out)[:3] == ["patterns", "remerge", FIRST]
    done = told("patterns", "remerge", FIRST, "--by", "ann", "--json")
    assert done.json == {"patterns": [FIRST], "apart": False, "by": "ann", "why": ""}
    assert told("seen", "log", LOGIN[0], "--json").json["seen"] == 5


def test_what_is_alike_is_suggested(told, desk, monkeypatch):
    assert told("patterns", "suggest").code == 2  # no embedder is there

    class Same(FixedEmbedder):
        async def embed(self, texts):
            return await super().embed([text[:1] for text in texts])

    monkeypatch.setattr(settings, "embedder_of", lambda *given: Same())
    assert told("patterns", "suggest").out == "no two lessons are similar enough\n"
    told("patterns", "unmerge", FIRST, "--by", "ann")
    done = told("patterns", "suggest", "--limit", "1")
    assert done.out.splitlines()[0] == "cosine 1.00, log"
    assert following(done.out) == ["lessons"]
    assert len(told("patterns", "suggest", "--json").json["pairs"]) == 3


def test_a_lesson_is_pinned_and_no_longer(told):
    ((id, _),) = (
        (one["id"], one)
        for one in told("lessons", "--json").json["lessons"]
        if one["error_type"] == "KeyError"
    )
    done = told("pin", str(id), "--by", "ann")
    assert done.out.splitlines() == [f"lesson {id} is pinned", "Next: heedful lessons"]
    assert told("prune", "--by", "ann", "--keep", "0", "--json").json["dry_run"] is False
    (one,) = told("lessons", "--json").json["lessons"]
    assert (one["id"], one["pinned"]) == (id, 1)
    done = told("pin", str(id), "--undo", "--by", "ann", "--why", "old", "--json")
    assert done.json == {"lesson": id, "pinned": False, "by": "ann", "why": "old"}
    assert told("pin", "99", "--by", "ann").code == 3
    assert told("pin", str(id)).code == 2


def test_prune_shows_before_it_removes(told, desk):
    aged(desk, last_seen=1e9)
    dry = told("prune", "--by", "ann", "--unused-for", "180d", "--keep", "5", "--dry-run")
    assert "1 lesson would be removed" in dry.out
    assert "Ask for the colour first" in dry.out
    assert following(dry.out) == [*("prune", "--unused-for", "180d", "--keep", "5", "--by", "ann")]
    assert len(told("lessons", "--json").json["lessons"]) == 5
    unused = ("prune", "--by", "ann", "--unused-for", "180d")
    (removed,) = told(*unused, "--dry-run", "--json").json["removed"]
    assert removed["why"].startswith("not used for ")
    done = told(*following(dry.out))
    assert "1 lesson removed" in done.out
    assert following(done.out) == ["lessons"]
    assert told(*unused).out.splitlines()[0] == "0 lessons removed"
    assert "--by" in told("prune", "--keep", "0").err
    nobody = told("prune", "--keep", "0", "--by", " ")
    assert nobody.err == "heedful: --by is ' '; it must be the name of who decides\n"
    assert told("prune", "--by", "ann", "--keep", "1").out.count("the least useful") == 3

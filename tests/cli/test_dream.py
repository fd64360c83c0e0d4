"""`heedful dream`: what is merged and why, the log, what texts differ in, and the way back."""

import asyncio

import pytest

from heedful import open_store
from heedful.memory.memory import Memory
from tests.cli.support import following
from tests.memory.dreamt import OTHER, SAME, TEXT


async def _learnt(path: str, *texts: str) -> None:
    store = open_store(path)
    for text in texts:
        await Memory(store).remember("k", text)
    await store.close()


@pytest.fixture
def told(desk, monkeypatch):
    """Calls the command in a folder whose database has lessons."""
    asyncio.run(_learnt(str(desk.folder / "heedful.db"), TEXT, SAME, OTHER, "never " + TEXT))
    return lambda *arguments: desk.invoke(monkeypatch, *arguments)


def test_a_dry_run_shows_what_would_be_done(told):
    done = told("dream", "--dry-run")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("a dry run: lite, by heedful, ")
    assert lines[1] == "merge: they say the same; proposed"
    assert lines[2].startswith("  into ")
    assert "; differs: " in lines[3]
    assert "kept apart: 1 pair, one negates what the other says" in done.out
    assert lines[-2] == "lessons: 4 before, 3 after, recall tried with 1 stored text"
    assert following(done.out) == ["dream"]
    assert told("dream", "log").out.splitlines()[0] == "no dream yet"


def test_a_dream_is_told_logged_shown_and_rolled_back(told):
    done = told("dream", "--by", "ada")
    assert following(done.out) == ["dream", "show", "1"]
    log = told("dream", "log")
    assert "1 lesson superseded" in log.out
    assert following(log.out) == ["dream", "show", "1"]
    shown = told(*following(log.out))
    assert "dream 1: lite, by ada, " in shown.out
    assert "merge: they say the same; done" in shown.out
    assert following(shown.out)[:3] == ["dream", "rollback", "1"]
    back = told("dream", "rollback", "1", "--by", "bo", "--why", "too bold")
    assert back.out.splitlines()[0] == "dream 1 is rolled back: 1 lesson back"
    assert "rolled back 2" in told(*following(back.out)).out
    assert following(told("dream", "show", "1").out) == ["dream", "log"]
    again = told("dream", "rollback", "1", "--by", "bo")
    assert (again.code, again.err.startswith("heedful: dream 1 cannot be rolled back")) == (2, True)
    assert told("dream", "show", "9").code == 3
    assert "too bold" in told("quarantine", "log").out


def test_it_says_why_nothing_happened(told):
    done = told("dream", "--mode", "full")
    assert "nothing happened: too few lessons of importance 0.6" in done.out
    assert following(done.out) == ["lessons"]
    assert told("dream", "--mode", "deep").code == 2

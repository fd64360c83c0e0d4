"""Episodes in a store: each once, one worker at a time, tried again, never half written."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from heedful.errors import Conflict, InvalidInput
from heedful.lessons.lesson import Reflection, Scope
from heedful.lessons.signature import signature
from heedful.store import episodes, exposures, lessons
from heedful.store import episodes as room
from heedful.store.records import StoredEpisode
from heedful.store.store import Store
from tests.store.support import SCOPE, ended, opened, python, rows

pytestmark = pytest.mark.both

ONE = StoredEpisode("d1", "run 1", "s1", "failure", {"episode": {"events": []}})
LATER = 4e9  # seconds since 1970, after any test


@pytest.fixture
def store(tmp_path):
    with opened(tmp_path / "e.db") as one:
        yield one


def lesson(kind: str, text: str = "it failed", **fields) -> Reflection:
    return Reflection(kind, signature(kind, text), kind, text, text, trust="operator", **fields)


def run(coroutine):
    return asyncio.run(coroutine)


def test_an_episode_is_admitted_once_and_is_whose_it_was_first(store):
    assert run(episodes.admit(store, SCOPE, ONE)) is None
    assert run(episodes.admit(store, SCOPE, ONE)) == "waiting"
    [kept] = run(store.read(SCOPE, episodes.newest, 9))
    assert replace(kept, at=0.0) == replace(ONE, tries=1)
    run(store.write(SCOPE, episodes.record_lessons, "d1", [lesson("reflection")]))
    assert run(episodes.admit(store, SCOPE, ONE)) == "reflected"
    assert run(store.read(SCOPE, episodes.counts)) == {"reflected": 1}


def test_scopes_have_their_own(store):
    other = Scope("other")
    assert run(episodes.admit(store, SCOPE, ONE)) is None
    assert run(episodes.admit(store, other, ONE)) is None
    run(store.write(SCOPE, lessons.clear))
    assert run(store.read(SCOPE, episodes.counts)) == {}
    assert run(store.read(other, episodes.counts)) == {"waiting": 1}


def test_what_failed_is_taken_again_but_not_twice_in_one_go(store):
    run(episodes.admit(store, SCOPE, ONE))
    run(store.write(SCOPE, episodes.record_failure, "d1", "ModelTimeout: late"))
    [failed] = run(store.read(SCOPE, episodes.newest, 9, "failed"))
    assert failed.error == "ModelTimeout: late"
    assert run(store.write(SCOPE, episodes.take, before=1.0)) is None
    taken = run(store.write(SCOPE, episodes.take, before=LATER))
    assert (taken.state, taken.tries) == ("waiting", 2)
    assert run(store.write(SCOPE, episodes.take, before=LATER)) is None  # somebody is at work on it


def test_what_is_given_back_waits_for_the_next(store):
    run(episodes.admit(store, SCOPE, ONE))
    run(store.write(SCOPE, episodes.record_failure, "d1", ""))
    assert run(store.read(SCOPE, episodes.counts)) == {"waiting": 1}
    assert run(episodes.admit(store, SCOPE, ONE)) is None


@pytest.mark.parametrize("hours", [1, -1], ids=["long ago", "a clock set back"])
def test_a_worker_that_is_not_heard_of_is_given_up(store, hours):
    run(episodes.admit(store, SCOPE, ONE))
    rows_of(store, f"update episode set taken = taken - {hours * 3_600}")
    assert run(store.write(SCOPE, episodes.take, before=LATER)).tries == 2


def rows_of(store: Store, sql: str) -> None:
    run(store.write(Scope(), lambda db, _: db.execute(sql)))


def test_the_oldest_is_taken_first(store):
    for n in (1, 2, 3):
        run(episodes.admit(store, SCOPE, replace(ONE, digest=f"d{n}")))
        run(store.write(SCOPE, episodes.record_failure, f"d{n}", "x"))
    rows_of(store, "update episode set at = -at")
    assert run(store.write(SCOPE, episodes.take, before=LATER)).digest == "d3"


def test_lessons_links_and_state_are_one_transaction(store):
    run(episodes.admit(store, SCOPE, ONE))
    bad = lesson("strategy", parents=(99,))
    with pytest.raises(InvalidInput, match="derived_from"):
        run(store.write(SCOPE, episodes.record_lessons, "d1", [lesson("reflection"), bad]))
    assert run(store.read(SCOPE, lessons.count)) == 0
    assert run(store.read(SCOPE, episodes.counts)) == {"waiting": 1}
    both = [lesson("reflection"), lesson("strategy")]
    answers = run(store.write(SCOPE, episodes.record_lessons, "d1", both))
    assert [one.created for one in answers] == [True, True]
    [link] = rows(store.url, "select child, relation, parent from link")
    assert link == (
        f"strategy/{both[1].signature.digest}",
        "strategy",
        f"reflection/{both[0].signature.digest}",
    )
    with pytest.raises(Conflict, match="d1"):
        run(store.write(SCOPE, episodes.record_lessons, "d1", both))
    assert rows(store.url, "select seen from reflection") == [(1,), (1,)]
    run(store.write(SCOPE, episodes.record_failure, "d1", "too late"))
    assert run(store.read(SCOPE, episodes.counts)) == {"reflected": 1}


def test_memory_that_is_full_keeps_its_bound(store):
    for n in range(3):
        run(episodes.admit(store, SCOPE, replace(ONE, digest=f"d{n}")))
        both = [lesson("reflection", f"a{n}x"), lesson("strategy", f"b{n}y")]
        run(store.write(SCOPE, episodes.record_lessons, f"d{n}", both, most=3))
    assert run(store.read(SCOPE, lessons.count)) == 3


def test_secrets_are_not_kept(store):
    secret = "AKIAIOSFODNN7EXAMPLE"
    run(episodes.admit(store, SCOPE, replace(ONE, name=secret, record={"task": secret})))
    run(store.write(SCOPE, episodes.record_failure, "d1", f"it said {secret} {'x' * 900}"))
    kept = str(rows(store.url, "select * from episode"))
    assert secret not in kept
    assert len(run(store.read(SCOPE, episodes.newest, 1))[0].error) == room.LONGEST_ERROR


def test_known_examples_are_told_by_their_digests(store):
    from heedful.lessons.lesson import Example

    example = Example("task", "answer")
    run(store.write(SCOPE, exposures.remember, [replace(lesson("error"), example=example)]))
    assert run(store.read(SCOPE, episodes.known_examples, ["x", example.digest])) == {
        example.digest
    }
    assert run(store.read(Scope("other"), episodes.known_examples, [example.digest])) == set()


PROGRAM = """
import asyncio, sys
from heedful.lessons.lesson import Scope
from heedful.store import episodes, open_store
from heedful.store.records import StoredEpisode

async def main():
    store = open_store(sys.argv[1])
    mine = [n for n in range(50)
            if await episodes.admit(store, Scope(), StoredEpisode(f"d{n}", "", "", "", {})) is None]
    print(*mine)
    await store.close()

asyncio.run(main())
"""


def test_processes_share_the_work_without_doing_it_twice(tmp_path):
    path = tmp_path / "p.db"
    with opened(path) as store:
        run(store.read(SCOPE, lessons.count))  # the schema is there
    workers = [python(PROGRAM, path) for _ in range(3)]
    taken = [int(n) for worker in workers for n in ended(worker).split()]
    assert sorted(taken) == list(range(50))


def test_what_is_left_is_what_nobody_is_at_work_on(store):
    for n in (1, 2, 3, 4):
        run(episodes.put(store, SCOPE, replace(ONE, digest=f"d{n}")))
    run(episodes.put(store, Scope("other"), ONE))
    run(store.write(SCOPE, episodes.take, LATER, "d2"))
    run(store.write(SCOPE, episodes.take, LATER, "d3"))
    run(store.write(SCOPE, episodes.record_failure, "d3", "ModelTimeout: late"))
    assert run(store.read(SCOPE, episodes.left, 9)) == ["d1", "d4"]
    assert run(store.read(SCOPE, episodes.left, 1)) == ["d1"]
    run(store.write(SCOPE, episodes.record_failure, "d2", ""))
    assert run(store.read(SCOPE, episodes.left, 9)) == ["d1", "d2", "d4"]
    assert sorted(run(store.read(Scope(), lessons.scopes, waiting=True)), key=str) == sorted(
        [SCOPE, Scope("other")], key=str
    )


def test_a_claim_is_renewed_and_a_state_is_told(store):
    assert run(store.read(SCOPE, episodes.state, "d1")) is None
    run(episodes.put(store, SCOPE, ONE))
    run(store.write(SCOPE, episodes.take, LATER, "d1"))
    rows_of(store, "update episode set taken = taken - 3600")
    run(store.write(SCOPE, episodes.beat, "d1"))
    assert run(store.write(SCOPE, episodes.take, LATER, "d1")) is None
    assert run(store.read(SCOPE, episodes.state, "d1")) == "waiting"
    run(store.write(SCOPE, episodes.record_lessons, "d1", [lesson("reflection")]))
    run(store.write(SCOPE, episodes.beat, "d1"))
    assert run(store.read(SCOPE, episodes.state, "d1")) == "reflected"
    assert run(store.read(Scope(), lessons.scopes)) == [SCOPE]

"""Episodes in a store: each once, one worker at a time, tried again, never half written."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from heedful.errors import Conflict, InvalidInput
from heedful.lessons.learn import Reflection
from heedful.lessons.lesson import Scope
from heedful.lessons.signature import signature
from heedful.store import episodes as room
from heedful.store.records import Filed
from heedful.store.store import SqlStore
from tests.store.support import SCOPE, ended, opened, python, rows

pytestmark = pytest.mark.both

ONE = Filed("d1", "run 1", "s1", "failure", {"episode": {"events": []}})
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
    assert run(store.episodes.admit(SCOPE, ONE)) is None
    assert run(store.episodes.admit(SCOPE, ONE)) == "waiting"
    [kept] = run(store.episodes.newest(SCOPE, 9))
    assert replace(kept, at=0.0) == replace(ONE, tries=1)
    run(store.episodes.reflected(SCOPE, "d1", [lesson("reflection")]))
    assert run(store.episodes.admit(SCOPE, ONE)) == "reflected"
    assert run(store.episodes.counts(SCOPE)) == {"reflected": 1}


def test_scopes_have_their_own(store):
    other = Scope("other")
    assert run(store.episodes.admit(SCOPE, ONE)) is None
    assert run(store.episodes.admit(other, ONE)) is None
    run(store.clear(SCOPE))
    assert run(store.episodes.counts(SCOPE)) == {}
    assert run(store.episodes.counts(other)) == {"waiting": 1}


def test_what_failed_is_taken_again_but_not_twice_in_one_go(store):
    run(store.episodes.admit(SCOPE, ONE))
    run(store.episodes.failed(SCOPE, "d1", "ModelTimeout: late"))
    [failed] = run(store.episodes.newest(SCOPE, 9, "failed"))
    assert failed.error == "ModelTimeout: late"
    assert run(store.episodes.take(SCOPE, before=1.0)) is None
    taken = run(store.episodes.take(SCOPE, before=LATER))
    assert (taken.state, taken.tries) == ("waiting", 2)
    assert run(store.episodes.take(SCOPE, before=LATER)) is None  # somebody is at work on it


def test_what_is_given_back_waits_for_the_next(store):
    run(store.episodes.admit(SCOPE, ONE))
    run(store.episodes.failed(SCOPE, "d1", ""))
    assert run(store.episodes.counts(SCOPE)) == {"waiting": 1}
    assert run(store.episodes.admit(SCOPE, ONE)) is None


@pytest.mark.parametrize("hours", [1, -1], ids=["long ago", "a clock set back"])
def test_a_worker_that_is_not_heard_of_is_given_up(store, hours):
    run(store.episodes.admit(SCOPE, ONE))
    rows_of(store, f"update episode set taken = taken - {hours * 3_600}")
    assert run(store.episodes.take(SCOPE, before=LATER)).tries == 2


def rows_of(store: SqlStore, sql: str) -> None:
    run(store._access.write(Scope(), lambda db: db.execute(sql)))


def test_the_oldest_is_taken_first(store):
    for n in (1, 2, 3):
        run(store.episodes.admit(SCOPE, replace(ONE, digest=f"d{n}")))
        run(store.episodes.failed(SCOPE, f"d{n}", "x"))
    rows_of(store, "update episode set at = -at")
    assert run(store.episodes.take(SCOPE, before=LATER)).digest == "d3"


def test_lessons_links_and_state_are_one_transaction(store):
    run(store.episodes.admit(SCOPE, ONE))
    bad = lesson("strategy", parents=(99,))
    with pytest.raises(InvalidInput, match="derived_from"):
        run(store.episodes.reflected(SCOPE, "d1", [lesson("reflection"), bad]))
    assert run(store.count(SCOPE)) == 0
    assert run(store.episodes.counts(SCOPE)) == {"waiting": 1}
    both = [lesson("reflection"), lesson("strategy")]
    answers = run(store.episodes.reflected(SCOPE, "d1", both))
    assert [one.created for one in answers] == [True, True]
    [link] = rows(store.url, "select child, relation, parent from link")
    assert link == (
        f"strategy/{both[1].signature.digest}",
        "strategy",
        f"reflection/{both[0].signature.digest}",
    )
    with pytest.raises(Conflict, match="d1"):
        run(store.episodes.reflected(SCOPE, "d1", both))
    assert rows(store.url, "select seen from reflection") == [(1,), (1,)]
    run(store.episodes.failed(SCOPE, "d1", "too late"))
    assert run(store.episodes.counts(SCOPE)) == {"reflected": 1}


def test_memory_that_is_full_keeps_its_bound(store):
    for n in range(3):
        run(store.episodes.admit(SCOPE, replace(ONE, digest=f"d{n}")))
        both = [lesson("reflection", f"a{n}x"), lesson("strategy", f"b{n}y")]
        run(store.episodes.reflected(SCOPE, f"d{n}", both, most=3))
    assert run(store.count(SCOPE)) == 3


def test_secrets_are_not_kept(store):
    secret = "AKIAIOSFODNN7EXAMPLE"
    run(store.episodes.admit(SCOPE, replace(ONE, name=secret, record={"task": secret})))
    run(store.episodes.failed(SCOPE, "d1", f"it said {secret} {'x' * 900}"))
    kept = str(rows(store.url, "select * from episode"))
    assert secret not in kept
    assert len(run(store.episodes.newest(SCOPE, 1))[0].error) == room.LONGEST_ERROR


def test_known_examples_are_told_by_their_digests(store):
    from heedful.lessons.learn import Example

    example = Example("task", "answer")
    run(store.remember(SCOPE, [replace(lesson("error"), example=example)]))
    assert run(store.episodes.examples(SCOPE, ["x", example.digest])) == {example.digest}
    assert run(store.episodes.examples(Scope("other"), [example.digest])) == set()


PROGRAM = """
import asyncio, sys
from heedful.lessons import Filed
from heedful.protocols import Scope
from heedful.store import open_store

async def main():
    store = open_store(sys.argv[1])
    mine = [n for n in range(50)
            if await store.episodes.admit(Scope(), Filed(f"d{n}", "", "", "failure", {})) is None]
    print(*mine)
    await store.close()

asyncio.run(main())
"""


def test_processes_share_the_work_without_doing_it_twice(tmp_path):
    path = tmp_path / "p.db"
    with opened(path) as store:
        run(store.count(SCOPE))  # the schema is there
    workers = [python(PROGRAM, path) for _ in range(3)]
    taken = [int(n) for worker in workers for n in ended(worker).split()]
    assert sorted(taken) == list(range(50))


def test_what_is_left_is_what_nobody_is_at_work_on(store):
    for n in (1, 2, 3, 4):
        run(store.episodes.put(SCOPE, replace(ONE, digest=f"d{n}")))
    run(store.episodes.put(Scope("other"), ONE))
    run(store.episodes.take(SCOPE, LATER, "d2"))
    run(store.episodes.take(SCOPE, LATER, "d3"))
    run(store.episodes.failed(SCOPE, "d3", "ModelTimeout: late"))
    assert run(store.episodes.left(SCOPE, 9)) == ["d1", "d4"]
    assert run(store.episodes.left(SCOPE, 1)) == ["d1"]
    run(store.episodes.failed(SCOPE, "d2", ""))
    assert run(store.episodes.left(SCOPE, 9)) == ["d1", "d2", "d4"]
    assert sorted(run(store.scopes(waiting=True)), key=str) == sorted(
        [SCOPE, Scope("other")], key=str
    )


def test_a_claim_is_renewed_and_a_state_is_told(store):
    assert run(store.episodes.state(SCOPE, "d1")) is None
    run(store.episodes.put(SCOPE, ONE))
    run(store.episodes.take(SCOPE, LATER, "d1"))
    rows_of(store, "update episode set taken = taken - 3600")
    run(store.episodes.beat(SCOPE, "d1"))
    assert run(store.episodes.take(SCOPE, LATER, "d1")) is None
    assert run(store.episodes.state(SCOPE, "d1")) == "waiting"
    run(store.episodes.reflected(SCOPE, "d1", [lesson("reflection")]))
    run(store.episodes.beat(SCOPE, "d1"))
    assert run(store.episodes.state(SCOPE, "d1")) == "reflected"
    assert run(store.scopes()) == [SCOPE]

"""Functions that no history of `test_stores_agree` calls run once on each engine."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from heedful.lessons.lesson import Reflection, Scope
from heedful.lessons.signature import signature
from heedful.loop.codec import policy_to
from heedful.loop.decide import Done
from heedful.loop.policies import default
from heedful.store import episodes, keys, lessons, loops, runs
from heedful.store.records import Head, StoredEpisode
from heedful.store.store import Call, Store, keep_answer, read_call
from heedful.traces.spans import Piece
from tests.store.support import SCOPE, opened, report

FAR = 4e9  # seconds since 1970, after any test


def lesson(text: str, **fields: Any) -> Reflection:
    return Reflection("check", signature("E", text), "E", text, text, **fields)


async def of_loops(store: Store) -> None:
    read, write = partial(store.read, SCOPE), partial(store.write, SCOPE)
    head = Head("task", [], policy_to(default))
    assert (await write(loops.begin, "a", head))[1]
    assert (await write(loops.claim, "a", head, "me")).epoch == 2
    await write(loops.beat, "a", 2)
    await write(loops.commit, report("a", 1, verdict=Done(1, True), epoch=2, head=head), "me")
    assert (await read(loops.read, "a")).values == ("text",)
    assert [one.id for one in await read(loops.read_many, ["a"])] == ["a"]
    assert [one.id for one in await read(loops.newest, 9)] == ["a"]
    assert [one.id for one in await read(loops.newest, 9, "", "a")] == []
    assert await read(loops.echoes, "b", 9) == {"x": 1}
    assert (await read(loops.state, "a", 9)).stored.epoch == 2
    await write(loops.begin, "run", runs.head_of("bake", ["mix"]))
    assert await runs.stages_of(store, SCOPE, "run", ["mix"]) == {}
    assert (await runs.report_of(store, SCOPE, "run")).pipeline == "bake"


async def of_episodes(store: Store) -> None:
    read, write = partial(store.read, SCOPE), partial(store.write, SCOPE)
    one = StoredEpisode("d1", "run", "", "failure", {"a": 1})
    texts = {"name": "", "session": "", "outcome": "failure", "record": '{"a": 1}'}
    assert await episodes.admit(store, SCOPE, one) is None
    assert await episodes.put(store, SCOPE, one) == "waiting"
    assert await write(episodes.insert, "d2", texts, False) == "waiting"
    assert await write(episodes.insert, "d3", texts, True) is None
    assert await read(episodes.left, 9) == ["d2"]
    assert (await write(episodes.take, FAR)).digest == "d2"
    await write(episodes.beat, "d2")
    await write(episodes.record_failure, "d2", "ModelTimeout")
    assert await read(episodes.state, "d2") == "failed"
    assert await read(episodes.last_error) == "ModelTimeout"
    assert len(await write(episodes.record_lessons, "d1", [lesson("it failed")])) == 1
    assert await read(episodes.counts) == {"reflected": 1, "failed": 1, "waiting": 1}
    assert len(await read(episodes.newest, 9)) == len(await read(episodes.page, 9)) == 3
    assert await read(episodes.known_examples, ["x"]) == set()
    spans = [Piece(trace, "1", "", True, "{}") for trace in ("t", "u")]
    for _ in range(2):
        assert not await write(episodes.put_spans, spans, "external", episodes.Bounds())
    assert (await read(episodes.count_traces))[:2] == (2, 4)
    assert await read(episodes.spans, "t") == spans[:1]
    for trace in await read(episodes.ended_traces, FAR, FAR, FAR):
        if trace.id == "t":
            assert await episodes.finish_trace(store, SCOPE, trace, replace(one, digest="d4"))
        else:
            assert await write(episodes.replace_trace, trace, {"digest": "d5", **texts})
    assert await write(episodes.give_up_traces, 0.0, FAR) == 0
    assert await read(episodes.count_traces) == (0, 0, 0.0)


async def of_calls(store: Store) -> None:
    read, write = partial(store.read, SCOPE), partial(store.write, SCOPE)
    key, token = await keys.create(store, SCOPE.tenant, "ci", by="ada")
    assert (await keys.holder(store, token)).id == key.id
    other = replace(key, id="0" * 12)
    assert await write(keys.insert, other, "hash") == other
    assert (await read(keys.find, other.id)) == (other, "hash")
    await write(keys.use, other.id)
    assert await read(keys.any_key)
    assert (await write(keys.revoke, key.id)).revoked
    assert {one.id for one in await read(keys.newest, 9)} == {key.id, other.id}
    await store.write(SCOPE, lambda db, s: keys.append(db, s.tenant, "ada", "did", "x", {}))
    assert [row["action"] for row in await read(keys.audit_rows, 9)] == ["did"]
    assert (await read(keys.verify_audit)).rows == 1
    call = Call(SCOPE.tenant, key.id, "once", "digest")
    await write(keep_answer, call, {"status": 200})
    assert (await read(read_call, call)).answer == {"status": 200}


@pytest.mark.both
@pytest.mark.parametrize("chapter", [of_loops, of_episodes, of_calls], ids=lambda of: of.__name__)
async def test_functions_of_the_store_run(chapter):
    with opened(":memory:") as store:
        await chapter(store)
        assert await store.read(Scope("another"), lessons.count) == 0

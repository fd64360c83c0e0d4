"""Each exported function of the store's rooms runs once on each engine, in one story.

What the functions decide is tested beside: here it is that PostgreSQL understands each of them.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from heedful.errors import Conflict
from heedful.lessons.action import Step, action
from heedful.lessons.consolidate import Proposal
from heedful.lessons.lesson import (
    Cause,
    Example,
    Exposure,
    Outcome,
    Reflection,
    Scope,
)
from heedful.lessons.proof import prove_cases
from heedful.lessons.ranking import Briefing, Choice
from heedful.lessons.signature import signature
from heedful.loop.codec import policy_to
from heedful.loop.decide import Done
from heedful.loop.policies import default
from heedful.store import (
    episodes,
    exposures,
    keys,
    lessons,
    loops,
    patterns,
    runs,
    search,
    transfer,
)
from heedful.store.records import Head, StoredEpisode
from heedful.store.store import Call, Store, check_writes, keep_answer, read_call
from heedful.traces.spans import Piece
from tests.store.support import SCOPE, opened, report

ROOMS = (
    "episodes", "exposures", "keys", "lessons", "loops", "patterns",
    "runs", "search", "store", "transfer",
)  # fmt: skip
FAR = 4e9  # seconds since 1970, after any test


def exported() -> set[Callable[..., Any]]:
    """Every public function of a room that takes a connection or a store first."""
    return {
        one
        for room in ROOMS
        for name, one in vars(import_module(f"heedful.store.{room}")).items()
        if inspect.isfunction(one)
        and one.__module__ == f"heedful.store.{room}"
        and not name.startswith("_")
        and list(inspect.signature(one).parameters)[:2] in (["db", "scope"], ["store", "scope"])
    } | {keys.create, keys.holder}


class Story:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.called: set[Callable[..., Any]] = set()

    async def read(self, work: Any, *args: Any, **more: Any) -> Any:
        self.called.add(work)
        return await self.store.read(SCOPE, work, *args, **more)

    async def write(self, work: Any, *args: Any, **more: Any) -> Any:
        self.called.add(work)
        return await self.store.write(SCOPE, work, *args, **more)

    async def over(self, work: Any, *args: Any, **more: Any) -> Any:
        self.called.add(work)
        return await work(self.store, *args, **more)


def lesson(text: str, **fields: Any) -> Reflection:
    return Reflection("check", signature("E", text), "E", text, text, **fields)


def name(one: Reflection) -> str:
    return f"check/{one.signature.digest}"


async def of_lessons(story: Story) -> None:
    read, write = story.read, story.write
    one = lesson("weigh the parcel", example=Example("weigh it", "7 kg"), space="s", vector=[1, 0])
    (first,) = await write(lessons.upsert, [one], 1.0)
    assert await read(lessons.known, [one, None]) == (replace(first, created=False),)
    assert await read(lessons.of_failure, one.signature.digest) == []  # an error, no reflection
    both = [replace(lesson("cut the bread"), loop="l"), lesson("no", trust="tool", source="page")]
    second, third = await write(exposures.remember, both)
    assert [first.id, second.created, await read(lessons.count)] == [first.id, True, 3]
    assert await write(lessons.evict, [first], 9) == [first]
    assert await read(lessons.scopes) == [SCOPE]
    assert {row["id"] for row in await read(lessons.top, 9)} == {first.id, second.id, third.id}
    # Searched, and placed in another space.
    [hit] = await read(search.search, "weigh", "s", [1.0, 0.0], 5)
    assert (hit.lesson, hit.cosine) == ("weigh the parcel", 1.0)
    broken = replace(one, loop="l", cause=Cause("key", "rule"))
    await write(lessons.upsert, [broken], 1.0)
    assert [rule.cause for rule in await read(search.by_cause, "key")] == [broken.cause]
    found, past = await read(exposures.brief, "l", "key", lambda db, scope: [hit])
    assert ([one.lesson for one in found], past.memory_key) == (["weigh the parcel"] * 2, "key")
    [(id, task), *_] = await read(search.unplaced, "t", 0, 9)
    assert ((await read(search.spaces))["s"], task) == (1, "weigh it")
    assert await write(search.place, "t", [(id, task, [0.0, 1.0])]) == 1
    # Listed, grouped and edited.
    listed = await read(patterns.list_lessons, 9)
    assert [row["id"] for row in listed] == [third.id, second.id, first.id]
    edition = (await read(patterns.one, first.id))["edition"]
    assert (await write(patterns.amend, first.id, edition, "ada", "", apart=True))["apart"]
    await write(patterns.set_apart, [one.signature.digest], False, "ada", "")
    assert (await read(patterns.seen, one.signature)).count == 2
    assert await read(patterns.list_patterns) == []
    # Shown, proven to hurt, retired and brought back.
    shown, end = Exposure(name(one), "l 0", True, "x"), Outcome("l 0", False, 1)
    for at in (time.time(), 1.0):
        await write(exposures.expose, [shown], end, at)
    kept = replace(shown, signature=one.signature.digest)
    assert await read(exposures.shown_to, "l 0") == [kept]
    assert (await read(exposures.past, "l 0")).ended == 1
    assert sum((await read(exposures.evidence))[0][name(one)].values()) == 1
    cases = {(0.1, True, False, False, 1): 200, (0.1, False, True, False, 1): 40}
    hurting = prove_cases({name(one): cases}, 0).lessons
    assert await write(exposures.conclude, {}, hurting) == [name(one)]
    await write(exposures.restore, first.id, "ada", "it was the model")
    await write(lessons.rule, "pin", "x", "ada", "why", 1.0)
    assert (await read(exposures.rulings, 9))[-1]["why"] == "why"
    # In quarantine: seen, released, revoked.
    [held] = await read(lessons.quarantined)
    assert (await read(lessons.provenance, held)).sources == ("page",)
    assert await write(lessons.state_trust, "tool", "model", "ada", "", {}) == []
    assert await read(lessons.statements) == {"tool": "model"}
    await write(lessons.settle, [held.id], "release", "ada", "it is so")
    assert await read(lessons.held_of, "page") == []
    assert (await write(lessons.revoke, "page", "ada", "wrong", False)).lessons == 1
    assert await read(lessons.projects) == [SCOPE]
    # Moved, pruned and cleared.
    found = await read(lambda db, scope: [*transfer.export_lessons(db, scope)])
    story.called.add(transfer.export_lessons)
    done = await write(transfer.import_lessons, found, "import:x", "ada", "mine")
    assert done == {"known": len(found), "waiting": 0}
    await write(lessons.pin, first.id, True, "ada", "")
    assert [row["id"] for row in await read(lessons.prunable, 0.0, 0)] == [second.id]
    assert len(await write(lessons.prune, 0.0, 0, "ada")) == 1
    assert await read(lessons.count_examples, "check", "E") == 1
    assert await write(lessons.clear_type, "check", "other") == 0
    assert await write(lessons.clear) == 1


async def of_dreams(story: Story) -> None:
    read, write = story.read, story.write
    two = [lesson("bake it well", trust="operator"), lesson("bake it now", trust="operator")]
    await write(lessons.upsert, two, 1.0)
    material = [found for found, _ in await read(patterns.material, "s")]
    known = {found.id: found for found in material}
    here, there = known
    assert await read(patterns.queries, [here]) == {here: [known[here].text]}
    merge = [Proposal("merge", (here,), there)]
    id, [done] = await write(patterns.supersede, {"found": 1}, merge, known, "ada")
    assert (done.outcome, [one["id"] for one in await read(patterns.log, 9)]) == ("done", [id])
    assert await write(patterns.undo, id, "ada", "no") == 1


async def of_loops(story: Story) -> None:
    read, write = story.read, story.write
    head = Head("task", [], policy_to(default))
    assert (await write(loops.begin, "a", head))[1]
    assert (await write(loops.claim, "a", head, "me")).epoch == 2
    await write(loops.beat, "a", 2)
    await write(loops.commit, report("a", 1, verdict=Done(1, True), epoch=2, head=head), "me")
    assert (await read(loops.read, "a")).values == ("text",)
    assert [one.id for one in await read(loops.read_many, ["a"])] == ["a"]
    assert await read(loops.newest, 9, "", "a") == ([], False)
    await write(loops.set_policy, "a", replace(head, policy={**head.policy, "unscored": "again"}))
    assert (await read(loops.read, "a")).head.policy["unscored"] == "again"
    await write(loops.note, "a", "a_r1", {"bias: haste": {"tag": "haste"}})
    assert await read(loops.notes, "a_r1") == {"bias: haste": {"tag": "haste"}}
    assert await read(loops.echoes, "b", 9) == {"x": 1, "bias: haste": 1}
    assert (await read(loops.state, "a", 9)).stored.epoch == 2
    await write(loops.begin, "run", runs.head_of("bake", ["mix"]))
    assert await story.over(runs.stages_of, SCOPE, "run", ["mix"]) == {}
    made = await story.over(runs.report_of, SCOPE, "run")
    assert made.pipeline == "bake"
    told = Briefing("key", choices=(Choice("closest", 7, "rule", "likeness", 0.4, "cosine"),))
    for one in (told, Briefing()):
        await write(loops.brief, "a", one)
    assert (await read(loops.read, "a")).briefing == told


async def of_episodes(story: Story) -> None:
    read, write, over = story.read, story.write, story.over
    one = StoredEpisode("d1", "run", "", "failure", {"a": 1})
    texts = {"name": "", "session": "", "outcome": "failure", "record": '{"a": 1}'}
    assert await over(episodes.admit, SCOPE, one) is None
    assert await over(episodes.admit, SCOPE, one, claim=False) == "waiting"
    assert await write(episodes.insert, "d2", texts, False) == "waiting"
    assert await write(episodes.insert, "d3", texts, True) is None
    assert await read(episodes.left, 9) == ["d2"]
    assert (await write(episodes.take, FAR)).digest == "d2"
    await write(episodes.beat, "d2")
    await write(episodes.record_failure, "d2", "ModelTimeout")
    assert await read(episodes.state, "d2") == "failed"
    (made,) = await write(episodes.record_lessons, "d1", [lesson("it failed")])
    failed = action("Bash", "ls x")
    await write(
        episodes.record_steps, "run", [Step(failed, "no 'x'", made.id), Step(action("", "ls"))]
    )
    assert len((await read(episodes.failures_of, failed)).failures) == 1
    assert (await read(patterns.find, signature("", "?"), [("?", signature("", "?"))])).count == 0
    head = {"name": "a", "session": "s", "outcome": "partial"}
    session: Any = "d9", head, [], [lesson("it came back")]
    assert len(await write(episodes.record_session, *session)) == 1
    assert await write(episodes.record_session, *session) == []
    assert await read(episodes.counts) == {"reflected": 2, "failed": 1, "waiting": 1}
    assert len(await read(episodes.page, 9)) == 4
    assert await read(episodes.known_examples, ["x"]) == set()
    spans = [Piece(trace, "1", "", True, "{}") for trace in ("t", "u")]
    for _ in range(2):
        assert not await write(episodes.put_spans, spans, "external", episodes.Bounds())
    assert await read(episodes.count_traces) == (2, 4)
    assert await read(episodes.spans, "t") == spans[:1]
    for trace in await read(episodes.ended_traces, FAR, FAR):
        if trace.id == "t":
            assert await over(episodes.finish_trace, SCOPE, trace, replace(one, digest="d4"))
        else:
            assert await write(episodes.replace_trace, trace, {"digest": "d5", **texts})
    assert await read(episodes.count_traces) == (0, 0)


async def of_calls(story: Story) -> None:
    read, write = story.read, story.write
    key, token = await story.over(keys.create, SCOPE.tenant, "ci", by="ada")
    assert (await story.over(keys.holder, token)).id == key.id
    other = replace(key, id="0" * 12)
    assert await write(keys.insert, other, "hash") == other
    assert (await read(keys.find, other.id)) == (other, "hash")
    with pytest.raises(Conflict, match="a key with the id 000000000000"):
        await write(keys.insert, other, "hash")
    await write(check_writes)
    assert await read(keys.any_key)
    assert (await write(keys.revoke, key.id)).revoked
    assert {one.id for one in await read(keys.newest, 9)} == {key.id, other.id}
    await story.store.write(SCOPE, lambda db, s: keys.append(db, s.tenant, "ada", "did", "x", {}))
    assert [row["action"] for row in await read(keys.audit_rows, 9)] == ["did"]
    assert (await read(keys.verify_audit)).rows == 1
    call = Call(SCOPE.tenant, key.id, "once", "digest")
    await write(keep_answer, call, {"status": 200})
    assert (await read(read_call, call)).answer == {"status": 200}


@pytest.mark.both
async def test_every_function_of_the_store_runs():
    called: set[Callable[..., Any]] = set()
    for chapter in (of_lessons, of_dreams, of_loops, of_episodes, of_calls):
        with opened(":memory:") as store:
            story = Story(store)
            await chapter(story)
            assert await store.read(Scope("another"), lessons.count) == 0
        called |= story.called
    assert {one.__qualname__ for one in exported() - called} == set()

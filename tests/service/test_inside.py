"""Work in the process: each job once, in order of priority, tried again, and ended in peace."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from heedful.errors import (
    Conflict,
    InvalidInput,
    LeaseLost,
    ModelTimeout,
    ModelUnavailable,
    NotFound,
    StoreUnavailable,
    UnknownName,
)
from heedful.lessons.lesson import Scope
from heedful.models.function import Function
from heedful.service import jobs as doing
from heedful.service.jobs import LONGEST_WAIT as LONGEST
from heedful.service.jobs import TRIES, LocalQueue, Tools, again_in, night, sweep
from heedful.store import episodes
from tests.engines import opened
from tests.service.jobs import OTHER, SCOPE, Heard, begun, put, short


@pytest.fixture
def store(tmp_path):
    with opened(tmp_path / "w.db") as one:
        yield one


async def seen(what) -> None:
    """Until it is so."""
    while not what():  # noqa: ASYNC110 - what is heard of jobs is no event
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("error", "tries", "wait"),
    [
        (ModelTimeout("late"), 1, 2),
        (StoreUnavailable("gone"), 2, 4),
        (LeaseLost("another"), 11, 2048),
        (ModelTimeout("late"), TRIES - 1, LONGEST),
        (ModelTimeout("late"), TRIES, None),
        (InvalidInput("x", 1, "y"), 1, None),
        (Conflict("done"), 1, None),
        (NotFound("loop", "x", "y"), 1, None),
        (ZeroDivisionError(), 1, None),
        (asyncio.CancelledError(), 99, 0),
        (None, 1, None),
    ],
    ids=repr,
)
def test_what_is_tried_again_and_when(error, tries, wait):
    assert again_in(error, tries) == wait


def test_the_same_waits_once_and_the_urgent_comes_first(store):
    heard = Heard()

    async def run() -> None:
        await begun(store, SCOPE, "l1")
        (one,) = await put(store, SCOPE, "pot")
        work = LocalQueue(
            Tools(store, loops={"short": short}, keep=9), concurrency=1, listener=heard
        )
        await work.defer("prove", SCOPE)  # begins at once, what comes then waits for it
        for task in ("prune", "dream", "dream", "prove", "prove"):
            await work.defer(task, SCOPE)
        await work.defer("reflect", SCOPE, digest=one)
        await work.defer("drive", SCOPE, loop="l1", by="short")
        depths = {(one.queue, one.state): one.number for one in await work.depth()}
        assert depths == {
            ("memory", "running"): 1,
            ("memory", "waiting"): 3,
            ("reflection", "waiting"): 1,
            ("loops", "waiting"): 1,
        }
        assert all(one.oldest >= 0 for one in await work.depth())
        await work.drain()
        assert await work.depth() == []

    asyncio.run(run())
    assert heard.ended() == ["prove", "drive", "reflect", "prove", "dream", "prune"]


def test_memory_of_a_scope_is_worked_on_by_one_job_at_a_time(store):
    async def run() -> None:
        work = LocalQueue(Tools(store), concurrency=4)
        for task in ("dream", "prove", "embed"):
            await work.defer(task, SCOPE)
        await work.defer("dream", OTHER)
        depths = {(one.state): one.number for one in await work.depth()}
        assert depths == {"running": 2, "waiting": 2}
        await work.drain()
        assert await work.depth() == []

    asyncio.run(run())


def test_other_queues_and_unknown_tasks_are_not_taken(store):
    async def run() -> None:
        work = LocalQueue(Tools(store), queues=["reflection"])
        await work.defer("dream", SCOPE)
        assert await work.depth() == []
        with pytest.raises(UnknownName):
            await work.defer("sleep", SCOPE)

    asyncio.run(run())


def test_a_job_that_fails_is_tried_again_until_it_is_given_up(store, monkeypatch):
    monkeypatch.setattr(doing, "LONGEST_WAIT", 0.0)
    heard = Heard()

    async def run() -> LocalQueue:
        (one,) = await put(store, SCOPE, "pot")

        async def down(messages):
            raise ModelUnavailable("no connection")

        work = LocalQueue(Tools(store, Function(down)), listener=heard)
        await work.defer("reflect", SCOPE, digest=one)
        await seen(lambda: work.failed)
        (depth,) = await work.depth()
        assert (depth.queue, depth.state, depth.number) == ("reflection", "failed", 1)
        return work

    asyncio.run(run())
    assert heard.of("reflect").count("again") == TRIES - 1
    assert heard.of("reflect")[-1].startswith("given up: ModelUnavailable")
    (failed,) = asyncio.run(store.read(SCOPE, episodes.newest, 9))
    assert (failed.state, failed.tries) == ("failed", TRIES)


def test_what_waits_in_the_store_is_taken_up_at_the_beginning(store):
    heard = Heard()

    async def run() -> None:
        await put(store, SCOPE, "pot", "pan")
        await put(store, OTHER, "pot")
        async with LocalQueue(Tools(store), listener=heard) as work:
            await seen(lambda: len(heard.ended()) == 3)
            await work.drain()
        for scope, number in ((SCOPE, 2), (OTHER, 1)):
            assert await store.read(scope, episodes.counts) == {"reflected": number}

    asyncio.run(run())
    assert heard.ended() == ["reflect"] * 3


def test_a_night_is_for_every_scope_as_the_settings_say(store):
    class Noted:
        def __init__(self) -> None:
            self.tasks: list[tuple[str, Scope]] = []

        async def defer(self, task: str, scope: Scope, **arguments: str) -> None:
            self.tasks.append((task, scope))

    async def told(tools: Tools) -> list[tuple[str, Scope]]:
        noted = Noted()
        await night(noted, tools)  # type: ignore[arg-type]
        return noted.tasks

    from heedful.testing import FixedEmbedder

    async def run() -> None:
        await put(store, OTHER, "pot")  # no lesson: nothing to keep in order
        assert await told(Tools(store)) == []
        await Tools(store).memory(SCOPE).remember("k", "one")
        assert await told(Tools(store, mode="lite")) == [("prove", SCOPE)]
        full = Tools(store, embedder=FixedEmbedder(), keep=9)
        off = replace(full, enabled=False)
        assert [task for task, _ in await told(off)] == ["prove", "embed", "prune"]
        assert [task for task, _ in await told(full)] == ["prove", "embed", "dream", "prune"]

    asyncio.run(run())


def test_at_the_end_what_runs_is_given_back_and_nothing_new_begins(store, monkeypatch):
    monkeypatch.setattr(doing, "GRACE", 0.01)
    heard = Heard()

    async def run() -> None:
        asked = asyncio.Event()

        async def slow(messages):
            asked.set()
            await asyncio.sleep(60)

        await put(store, SCOPE, "pot", "pan")
        async with LocalQueue(Tools(store, Function(slow)), concurrency=1, listener=heard):
            await asked.wait()
        (taken, left) = await store.read(SCOPE, episodes.newest, 9)
        assert {taken.state, left.state} == {"waiting"}
        assert sorted((taken.tries, left.tries)) == [0, 1]
        with suppress(NotFound):
            assert await store.write(SCOPE, episodes.take, 4e9) is not None  # free at once

    asyncio.run(run())
    assert heard.ended() == []
    assert heard.of("reflect") == ["begun", "given back"]


def test_a_job_that_may_finish_does(store):
    heard = Heard()

    async def run() -> None:
        asked = asyncio.Event()

        async def soon(messages):
            asked.set()
            await asyncio.sleep(0.01)
            raise ModelUnavailable("no connection")

        await put(store, SCOPE, "pot")
        async with LocalQueue(Tools(store, Function(soon)), listener=heard):
            await asked.wait()

    asyncio.run(run())
    assert heard.of("reflect") == ["begun", "again"]


def test_a_round_that_meets_a_store_that_is_away_comes_again(store, monkeypatch):
    monkeypatch.setattr(doing, "SWEEP", 0.0)
    calls: list[int] = []

    async def swept(work, tools) -> None:
        calls.append(1)
        if len(calls) < 3:
            raise StoreUnavailable("gone")
        await sweep(work, tools)

    monkeypatch.setattr(doing, "sweep", swept)
    heard = Heard()

    async def run() -> None:
        await put(store, SCOPE, "pot")
        async with LocalQueue(Tools(store), listener=heard):
            await seen(lambda: heard.ended())

    asyncio.run(run())
    assert len(calls) >= 3

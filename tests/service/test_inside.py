"""Work in the process: each job once, in order of priority, tried again, and ended in peace."""

from __future__ import annotations

import asyncio
import time
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
)
from heedful.memory.ingest import Patience, receive
from heedful.models.function import Function
from heedful.service import jobs
from heedful.service.jobs import LONGEST_WAIT, TRIES, LocalQueue, Tools, again_in, night, sweep
from heedful.store import episodes
from heedful.testing import FixedEmbedder
from tests.engines import opened
from tests.service.jobs import OTHER, SCOPE, Handed, Heard, begun, put, short
from tests.traces.runs import document, genai


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
        (ModelTimeout("late"), TRIES - 1, LONGEST_WAIT),
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


async def test_the_same_waits_once_and_the_urgent_comes_first(store):
    heard = Heard()

    await begun(store, SCOPE, "l1")
    (one,) = await put(store, SCOPE, "pot")
    tools = Tools(store, loops={"short": short}, keep=9)
    work = LocalQueue(tools, concurrency=1, listener=heard)
    await work.defer("prove", SCOPE)  # begins at once, what comes then waits for it
    for task in ("prune", "dream", "dream", "prove", "prove"):
        await work.defer(task, SCOPE)
    await work.defer("reflect", SCOPE, digest=one)
    await work.defer("drive", SCOPE, loop="l1", by="short")
    assert {(one.queue, one.state): one.number for one in await work.depth()} == {
        ("memory", "running"): 1,
        ("memory", "waiting"): 3,
        ("reflection", "waiting"): 1,
        ("loops", "waiting"): 1,
    }
    await work.drain()
    assert await work.depth() == []

    assert heard.ended() == ["prove", "drive", "reflect", "prove", "dream", "prune"]


async def test_memory_of_a_scope_is_worked_on_by_one_job_at_a_time_and_other_queues_not_at_all(
    store,
):
    work = LocalQueue(Tools(store), concurrency=4, queues=["memory"])
    for task in ("dream", "prove", "embed"):
        await work.defer(task, SCOPE)
    await work.defer("dream", OTHER)
    await work.defer("reflect", SCOPE)
    assert {one.state: one.number for one in await work.depth()} == {"running": 2, "waiting": 2}
    await work.drain()
    assert await work.depth() == []


async def test_a_job_that_fails_is_tried_again_until_it_is_given_up(store, monkeypatch):
    monkeypatch.setattr(jobs, "LONGEST_WAIT", 0.0)
    heard = Heard()

    async def down(messages):
        raise ModelUnavailable("no connection")

    (one,) = await put(store, SCOPE, "pot")
    work = LocalQueue(Tools(store, Function(down)), listener=heard)
    await work.defer("reflect", SCOPE, digest=one)
    await seen(lambda: "given up" in str(heard.lines))
    await work.drain()
    (depth,) = await work.depth()
    assert (depth.queue, depth.state, depth.number) == ("reflection", "failed", 1)
    (failed,) = await store.read(SCOPE, episodes.newest, 9)
    assert (failed.state, failed.tries) == ("failed", TRIES)

    assert heard.of("reflect").count("again") == TRIES - 1
    assert heard.of("reflect")[-1].startswith("given up: ModelUnavailable")


async def test_what_waits_in_the_store_is_taken_up_although_the_store_was_away(store, monkeypatch):
    monkeypatch.setattr(jobs, "SWEEP", 0.0)
    calls: list[int] = []

    async def swept(work, tools) -> None:
        calls.append(1)
        if len(calls) < 3:
            raise StoreUnavailable("gone")
        await sweep(work, tools)

    monkeypatch.setattr(jobs, "sweep", swept)
    heard = Heard()

    await put(store, SCOPE, "pot", "pan")
    await put(store, OTHER, "pot")
    async with LocalQueue(Tools(store), listener=heard) as work:
        await seen(lambda: len(heard.ended()) >= 3)
        await work.drain()
    for scope, number in ((SCOPE, 2), (OTHER, 1)):
        assert await store.read(scope, episodes.counts) == {"reflected": number}


@pytest.mark.both
def test_a_trace_that_has_ended_is_an_episode_though_nobody_looked(tmp_path, monkeypatch):
    work, real = Handed(), time.time
    with opened(tmp_path / "w.db") as store:
        asyncio.run(receive(store, SCOPE, document(genai())))
        asyncio.run(receive(store, OTHER, document(genai()[:-1])))  # its root is to come
        asyncio.run(sweep(work, Tools(store)))
        assert work.jobs == []
        later = real() + Patience().settled + 1
        monkeypatch.setattr(time, "time", lambda: later)
        asyncio.run(sweep(work, Tools(store)))
        [one] = asyncio.run(store.read(SCOPE, episodes.newest, 9))
        assert work.jobs == [("reflect", SCOPE, {"digest": one.digest})]
        assert asyncio.run(store.read(OTHER, episodes.counts)) == {}


async def test_a_night_is_for_every_scope_as_the_settings_say(store):
    async def told(tools: Tools) -> list[str]:
        work = Handed()
        await night(work, tools)
        assert {scope for _, scope, _ in work.jobs} <= {SCOPE}
        return [task for task, _, _ in work.jobs]

    await put(store, OTHER, "pot")  # no lesson: nothing to keep in order
    assert await told(Tools(store)) == []
    await Tools(store).memory(SCOPE).remember("k", "one")
    assert await told(Tools(store, mode="lite")) == ["prove"]
    full = Tools(store, embedder=FixedEmbedder(), keep=9)
    assert await told(replace(full, enabled=False)) == ["prove", "embed", "prune"]
    assert await told(full) == ["prove", "embed", "dream", "prune"]


@pytest.mark.parametrize(
    ("grace", "heard_of"), [(0.01, ["begun", "given back"]), (30.0, ["begun", "again"])]
)
async def test_at_the_end_what_runs_may_finish_or_is_given_back(
    store, monkeypatch, grace, heard_of
):
    monkeypatch.setattr(jobs, "GRACE", grace)
    heard = Heard()

    asked = asyncio.Event()

    async def slow(messages):
        asked.set()
        await asyncio.sleep(60 if grace < 1 else 0.01)
        raise ModelUnavailable("no connection")

    await put(store, SCOPE, "pot", "pan")
    async with LocalQueue(Tools(store, Function(slow)), concurrency=1, listener=heard):
        await asked.wait()
    states = await store.read(SCOPE, episodes.newest, 9)
    assert sorted(one.tries for one in states) == [0, 1]  # nothing new begins
    assert await store.write(SCOPE, episodes.take, 4e9) is not None  # free at once

    assert heard.of("reflect") == heard_of

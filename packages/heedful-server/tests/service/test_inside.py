"""Tasks, and the queue in the process: each job once, in order of priority, and tried
again.
"""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

import heedful
from heedful import errors
from heedful.lessons.lesson import Scope
from heedful.loop.codec import policy_to, to_document
from heedful.memory.dream import Dreams
from heedful.models.function import Function
from heedful.store import episodes, lessons as lesson_store, loops, search
from heedful.store.records import Head
from heedful.testing import FixedEmbedder, ScriptedModel
from heedful_server import jobs
from heedful_server.arrivals import Patience, receive
from heedful_server.jobs import (
    MAX_JOB_TRIES,
    MAX_JOB_WAIT_SECONDS,
    Job,
    LocalQueue,
    Tools,
    sweep,
)
from tests.engines import opened
from tests.episodes.runs import document, genai
from tests.service.jobs import OTHER, SCOPE, Handed, Heard, put, until
from tests.tables import cases

YEAR = 365 * 86_400.0
AWAY = errors.ModelUnavailable("no connection")


@pytest.fixture
def store(tmp_path):
    with opened(tmp_path / "w.db") as store:
        yield store


async def run_task(tools, task, **arguments):
    await jobs.tasks()[task].run(tools, SCOPE, **arguments)


async def states(store, scope=SCOPE):
    return dict(await store.read(scope, episodes.counts))


async def test_an_episode_that_another_worker_holds_is_left_to_it(store):
    (digest,) = await put(store, SCOPE, "pot")
    assert await store.write(SCOPE, episodes.take, 4e9, digest) is not None
    with pytest.raises(errors.LeaseLost, match="try again"):
        await run_task(Tools(store=store), "reflect", digest=digest)
    with pytest.raises(errors.NotFound):
        await run_task(Tools(store=store), "reflect", digest="0" * 64)


async def test_a_claim_is_renewed_while_an_episode_is_reflected_on(store, monkeypatch):
    (digest,) = await put(store, SCOPE, "pot")
    monkeypatch.setattr("heedful.store.episodes.EPISODE_LEASE_SECONDS", 0.03)

    async def taken():
        sql = "select taken from episode"
        return await store.read(SCOPE, lambda db, _: db.execute(sql).fetchone()[0])

    async def slow(messages):
        claimed = {await taken()}
        while len(claimed) < 3:
            claimed.add(await taken())
        raise AWAY

    with pytest.raises(errors.ModelUnavailable):
        await run_task(
            Tools(store=store, model=Function(slow)), "reflect", digest=digest
        )
    assert await states(store) == {"failed": 1}


async def test_the_tasks_of_memory_do_their_work_as_the_worker_is_set_up(store):
    tools = Tools(store=store)
    memory = tools.memory(SCOPE)
    for text in (
        "Ask for the size of the pot",
        "Ask for the size of the pot!",
        "Say the colour",
    ):
        await memory.remember("k", text, importance=0.7)
    for task in ("embed", "prune", "prove"):  # without settings there is nothing to do
        await run_task(tools, task)
    assert await store.read(SCOPE, search.spaces) == {"": 3}
    await run_task(replace(tools, embedder=FixedEmbedder()), "embed")
    assert await store.read(SCOPE, search.spaces) == {"fixed/64": 3}
    await run_task(tools, "dream")
    await run_task(replace(tools, enabled=False), "dream")
    assert [dream.by for dream in await Dreams(memory).log()] == [jobs.WORKER_ACTOR]
    await run_task(replace(tools, unused_for=YEAR), "prune")
    assert await store.read(SCOPE, lesson_store.count) == 3


async def test_a_loop_is_driven_to_its_end_by_what_the_worker_knows(store):
    goal = heedful.Goal("s", 0.9)
    policy = heedful.Policy((heedful.MaxAttempts(2),))
    head = Head(task="t", goals=[to_document(goal)], policy=policy_to(policy))
    await store.write(SCOPE, loops.claim, "l1", head, "")

    def low(task, **given):
        def evaluate(candidate, context):
            return heedful.Evaluation(scores={"s": 0.1})

        return heedful.Run(
            task, generate=lambda task, hint: "x", evaluate=evaluate, **given
        )

    wrong: Any = {
        "raises": lambda task, **given: 1 / 0,
        "returns": lambda task, **given: None,
    }
    tools = Tools(store=store, loops={"low": low, **wrong})
    for _ in range(2):
        await run_task(tools, "drive", loop="l1", by="low")
    loop = await store.read(SCOPE, loops.read, "l1")
    assert [stop.rule for stop in loop.verdicts[-1].stopped_by] == ["attempts"]
    assert len(loop.values) == 2  # goals and policy are those it was stored with
    with pytest.raises(errors.UnknownName, match="low"):
        await run_task(tools, "drive", loop="l1", by="os:system")
    for by in wrong:
        with pytest.raises(errors.GenerateFailed, match="correct it"):
            await run_task(tools, "drive", loop="l1", by=by)


def test_a_job_has_one_name_in_its_scope_and_memory_is_held_by_one_at_a_time():
    kinds: Any = (
        ("reflect", {"digest": "a"}),
        ("reflect", {"digest": "b"}),
        ("dream", {}),
    )
    scopes = (SCOPE, OTHER, Scope("acme", "other"))
    all_ = [
        Job(task, scope, arguments) for task, arguments in kinds for scope in scopes
    ]
    assert len({job.name for job in all_}) == len(all_)
    assert [job.holds for job in all_[:6]] == 6 * [None]
    assert [job.holds for job in all_[6:]] == [
        Job("prune", scope, {}).holds for scope in scopes
    ]
    assert len({job.holds for job in all_[6:]}) == 3


@pytest.mark.parametrize(
    ("error", "tries", "wait"),
    [
        (AWAY, 1, 2),
        (errors.LeaseLost("another"), 11, 2048),
        (AWAY, MAX_JOB_TRIES - 1, MAX_JOB_WAIT_SECONDS),
        (AWAY, MAX_JOB_TRIES, None),
        (errors.InvalidInput("x", 1, "y"), 1, None),
        (errors.NotFound("loop", "x", "y"), 1, None),
        (ZeroDivisionError(), 1, None),
        (asyncio.CancelledError(), 99, 0),
    ],
    ids=repr,
)
def test_what_is_tried_again_and_when(error, tries, wait):
    assert jobs.again_in(error, tries) == wait


async def test_a_scope_has_one_job_of_memory_at_a_time_and_other_queues_are_left(store):
    work = LocalQueue(Tools(store=store), concurrency=4, queues=["memory"])
    for task, scope in (
        ("dream", SCOPE),
        ("prove", SCOPE),
        ("embed", SCOPE),
        ("dream", OTHER),
    ):
        await work.defer(task, scope)
    await work.defer("reflect", SCOPE, digest="0" * 64)
    await asyncio.sleep(0)
    assert {depth.state: depth.number for depth in await work.depth()} == {
        "running": 2,
        "waiting": 2,
    }
    await work.drain()


async def test_a_job_that_fails_is_tried_again_until_it_is_given_up(store, monkeypatch):
    monkeypatch.setattr(jobs, "MAX_JOB_WAIT_SECONDS", 0.0)
    heard = Heard()
    (digest,) = await put(store, SCOPE, "pot")
    work = LocalQueue(
        Tools(store=store, model=ScriptedModel(AWAY, forever=True)), listener=heard
    )
    await work.defer("reflect", SCOPE, digest=digest)
    await until(lambda: ("reflect", "given up") in heard.lines)
    await work.drain()
    (depth,) = await work.depth()
    assert depth.queue == "reflection"
    assert depth.state == "failed"
    assert depth.number == 1
    (failed,) = await store.read(SCOPE, episodes.page, 9, whole=True)
    assert failed.state == "failed"
    assert failed.tries == MAX_JOB_TRIES
    assert heard.of("reflect").count("again") == MAX_JOB_TRIES - 1
    assert heard.lines[-1] == ("reflect", "given up")
    assert heard.words[-1].startswith("given up: ModelUnavailable")


async def test_what_waits_in_the_store_is_taken_up_although_the_store_was_away(
    store, monkeypatch
):
    monkeypatch.setattr(jobs, "SWEEP_INTERVAL_SECONDS", 0.0)
    calls = []
    heard = Heard()

    async def swept(work, tools):
        calls.append(1)
        if len(calls) < 3:
            raise errors.StoreUnavailable("gone")
        await sweep(work, tools)

    monkeypatch.setattr(jobs, "sweep", swept)
    await put(store, SCOPE, "pot", "pan")
    await put(store, OTHER, "pot")
    async with LocalQueue(Tools(store=store), listener=heard) as work:
        await until(lambda: len(heard.ended()) >= 3)
        await work.drain()
    assert await states(store) == {"reflected": 2}
    assert await states(store, OTHER) == {"reflected": 1}


@pytest.mark.both_nightly
async def test_a_trace_that_has_ended_is_an_episode_though_nobody_looked(
    store, monkeypatch
):
    work = Handed()
    later = time.time() + Patience().settled + 1
    await receive(store, SCOPE, document(genai()))
    await receive(store, OTHER, document(genai()[:-1]))  # its root is to come
    await sweep(work, Tools(store=store))
    assert work.jobs == []
    monkeypatch.setattr(time, "time", lambda: later)
    await sweep(work, Tools(store=store, enabled=False))
    assert work.jobs == []
    await sweep(work, Tools(store=store))
    [episode] = await store.read(SCOPE, episodes.page, 9, whole=True)
    assert work.jobs == [("reflect", SCOPE, {"digest": episode.digest})]
    assert await states(store, OTHER) == {}


@cases(
    ("grace", "end"),
    {"no time is left": (0.01, "given back"), "time is left": (30.0, "again")},
)
async def test_at_the_end_what_runs_may_finish_or_is_given_back(
    store, monkeypatch, grace, end
):
    monkeypatch.setattr(jobs, "JOB_GRACE_SECONDS", grace)
    heard = Heard()
    is_asked = asyncio.Event()

    async def slow(messages):
        is_asked.set()
        await asyncio.sleep(60 if grace < 1 else 0.01)
        raise AWAY

    await put(store, SCOPE, "pot", "pan")
    async with LocalQueue(
        Tools(store=store, model=Function(slow)), concurrency=1, listener=heard
    ):
        await is_asked.wait()
    tries = [
        episode.tries
        for episode in await store.read(SCOPE, episodes.page, 9, whole=True)
    ]
    assert sorted(tries) == [0, 1]  # nothing new begins
    assert await store.write(SCOPE, episodes.take, 4e9) is not None  # free at once
    assert heard.of("reflect") == ["begun", end]

"""Work on PostgreSQL's queue: once, shared by workers, and done by another where one is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from heedful.drive.drive import Run
from heedful.errors import ModelUnavailable, StoreUnavailable, UnknownName
from heedful.memory.memory import Memory
from heedful.models.function import Function
from heedful.service import jobs as doing
from heedful.service import worker as queued
from heedful.service.jobs import Tools
from heedful.service.worker import PostgresQueue
from heedful.store import episodes, loops, open_store
from heedful.store import lessons as lesson_store
from heedful.testing import ScriptedModel
from tests.postgres import Urls, rows, server
from tests.service.jobs import OTHER, SCOPE, Heard, begun, put, short

IMPATIENT = [sys.executable, str(Path(__file__).parent / "impatient.py")]
PATIENCE = 60.0  # seconds after which a test is given up

# A model in a worker's folder: it says that it is called and does not come back.
MODEL = """
import time
def answer(messages):
    with open("calls", "a") as calls:
        calls.write("x")
    time.sleep(600)
"""


@pytest.fixture
def url(postgres: Urls) -> str:
    return postgres.service


def jobs(url: str) -> list[tuple[Any, ...]]:
    return rows(url, "select task_name, status::text, attempts from procrastinate_jobs order by id")


def stale(postgres: Urls, sql: str = "status = 'doing'") -> None:
    """As if its worker had been killed an hour ago."""
    rows(postgres.service, "insert into procrastinate_workers default values")
    rows(
        postgres.service,
        "update procrastinate_workers set last_heartbeat = now() - interval '1 hour'",
    )
    rows(postgres.service, f"update procrastinate_jobs set status = 'doing', worker_id = "
         f"(select max(id) from procrastinate_workers) where {sql}")  # fmt: skip


async def until_async(what: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not what():  # noqa: ASYNC110 - what is heard of jobs is no event
            await asyncio.sleep(0.01)


@asynccontextmanager
async def at_work(queue: PostgresQueue, tools: Tools, heard: Heard) -> AsyncIterator[Any]:
    """A worker that works until the end of the block."""
    working = asyncio.create_task(queue.work(tools, listener=heard))
    yield working
    working.cancel()
    await asyncio.wait([working])


async def test_the_same_waits_once_and_the_urgent_comes_first(url):
    heard = Heard()

    store = open_store(url)
    await begun(store, SCOPE, "l1")
    (one,) = await put(store, SCOPE, "pot")
    await put(store, OTHER, "pan")  # kept by a service that was killed before it handed it over
    tools = Tools(store, loops={"short": short}, keep=9)
    async with PostgresQueue(url) as queue:
        for task in ("prune", "dream", "dream", "prove"):
            await queue.defer(task, SCOPE)
        for _ in range(2):
            await queue.defer("reflect", SCOPE, digest=one)
        await queue.defer("drive", SCOPE, loop="l1", by="short")
        depths = {(one.queue, one.state): one.number for one in await queue.depth()}
        waiting = {"memory": 3, "reflection": 1, "loops": 1}
        assert depths == {(name, "waiting"): number for name, number in waiting.items()}
        with pytest.raises(UnknownName):
            await queue.defer("sleep", SCOPE)
        await queue.work(tools, concurrency=1, once=True, listener=heard)
        assert [one for one in await queue.depth() if one.queue != queued.UPKEEP] == []
    for scope in (SCOPE, OTHER):
        assert await store.read(scope, episodes.counts) == {"reflected": 1}

    assert heard.ended() == ["drive", "reflect", "reflect", "prove", "dream", "prune"]


async def test_two_workers_share_what_there_is(url):
    heard = [Heard(), Heard()]

    store, both = open_store(url), asyncio.Event()

    def together(task: str, **given: Any) -> Run[Any]:
        async def generate(task: str, hint: str) -> str:
            """Nobody answers before both workers are asked."""
            if all(one.lines for one in heard):
                both.set()
            await both.wait()
            return "ok"

        return Run(task, generate=generate, **given)

    async with PostgresQueue(url) as one, PostgresQueue(url) as other:
        for id in "abcdef":
            await begun(store, SCOPE, id)
            await one.defer("drive", SCOPE, loop=id, by="together")
        tools = Tools(store, loops={"together": together})
        await asyncio.gather(
            *(
                queue.work(tools, once=True, listener=told, concurrency=1)
                for queue, told in zip((one, other), heard, strict=True)
            )
        )
    for id in "abcdef":
        assert len((await store.read(SCOPE, loops.read, id)).values) == 1

    first, second = (one.ended() for one in heard)
    assert first + second == ["drive"] * 6
    assert first
    assert second


async def test_a_job_that_fails_waits_and_is_given_up_at_last(url, monkeypatch):
    monkeypatch.setattr(doing, "LONGEST_WAIT", 0.0)
    monkeypatch.setattr(queued, "POLL", 0.05)
    heard = Heard()

    store = open_store(url)
    (one,) = await put(store, SCOPE, "pot")
    down = ScriptedModel(ModelUnavailable("no connection"), forever=True)
    async with PostgresQueue(url) as queue:
        await queue.defer("reflect", SCOPE, digest=one)
        async with at_work(queue, Tools(store, down), heard):
            await until_async(
                lambda: heard.of("reflect") and heard.lines[-1][1].startswith("given")
            )
        failed = [one for one in await queue.depth() if one.state == "failed"]
        assert [(one.queue, one.number) for one in failed] == [("reflection", 1)]

    # A sweep may have handed the episode over, too: that job waits for its turn like this one.
    assert heard.of("reflect").count("again") >= doing.TRIES - 1
    assert ("heedful.reflect", "failed", doing.TRIES) in jobs(url)


async def test_a_job_that_fails_while_the_same_waits_leaves_it_to_that(url, monkeypatch):
    monkeypatch.setattr(doing, "LONGEST_WAIT", 0.0)
    heard = Heard()

    store = open_store(url)
    (one,) = await put(store, SCOPE, "pot")
    async with PostgresQueue(url) as queue:

        async def down(messages):
            if len(heard.of("reflect")) == 1:
                await queue.defer("reflect", SCOPE, digest=one)
                raise ModelUnavailable("no connection")
            return "no JSON"

        await queue.defer("reflect", SCOPE, digest=one)
        await queue.work(
            Tools(store, Function(down)),
            concurrency=1,
            once=True,
            listener=heard,
            queues=["reflection"],
        )

    assert heard.of("reflect")[:3] == ["begun", "again", "begun"]
    assert [one for one in jobs(url) if one[:2] == ("heedful.reflect", "doing")] == []


async def test_jobs_of_workers_that_are_silent_are_done_by_another(postgres, monkeypatch):
    heard = Heard()

    store = open_store(postgres.service)
    async with PostgresQueue(postgres.service) as queue:
        await queue.defer("dream", SCOPE)
        stale(postgres, "status = 'todo'")
        await queue.defer("dream", SCOPE)  # of this and the one of the dead worker one is left
        await queue.defer("prove", OTHER)
        await queue.defer("prune", OTHER)
        stale(postgres, "task_name = 'heedful.prune' and status = 'todo'")
        rows(postgres.service, f"update procrastinate_jobs set attempts = {doing.TRIES - 1} "
             "where task_name = 'heedful.prune'")  # fmt: skip
        depths = {(one.queue, one.state): one.number for one in await queue.depth()}
        assert depths == {("memory", "stalled"): 2, ("memory", "waiting"): 2}
        await queue.work(Tools(store), once=True, listener=heard)
        failed = [one for one in await queue.depth() if one.state == "failed"]
        assert [(one.queue, one.number) for one in failed] == [("memory", 1)]

    assert sorted(heard.ended()) == ["dream", "prove"]
    assert [one for one in jobs(postgres.service) if one[1] == "doing"] == []


async def test_a_worker_waits_for_a_server_that_went_away_and_goes_on(postgres, monkeypatch):
    monkeypatch.setattr(queued, "BEAT", 0.05)
    monkeypatch.setattr(queued, "ANSWER", 0.5)
    heard = Heard()

    store = open_store(postgres.service)
    async with PostgresQueue(postgres.service) as queue, at_work(queue, Tools(store), heard):
        await queue.defer("prove", SCOPE)
        await until_async(heard.ended)
        name = rows(postgres.service, "select current_database()")[0][0]
        shut = f"alter database {name} allow_connections false"
        backends = f"pg_stat_activity where datname = '{name}'"
        server().run(shut)
        server().run(f"select pg_terminate_backend(pid) from {backends}")
        with pytest.raises(StoreUnavailable):
            await queue.defer("prove", OTHER)
        server().run(shut.replace("false", "true"))
        while True:
            with suppress(StoreUnavailable):
                await queue.defer("prove", OTHER)
                break
            await asyncio.sleep(0.05)
        await until_async(lambda: len(heard.ended()) == 2)


async def test_of_its_own_accord_a_worker_keeps_every_scope_in_order(url):
    heard = Heard()

    store = open_store(url)
    for scope in (SCOPE, OTHER):
        await Memory(store, scope).remember("k", "one")
    async with PostgresQueue(url) as queue, at_work(queue, Tools(store, keep=9), heard):
        await until_async(lambda: len(heard.ended()) == 6)

    assert sorted(heard.ended()) == ["dream"] * 2 + ["prove"] * 2 + ["prune"] * 2


async def test_what_does_not_end_in_time_is_given_back_at_once(url, monkeypatch):
    monkeypatch.setattr(doing, "GRACE", 0.01)
    heard = Heard()

    store = open_store(url)
    asked = asyncio.Event()

    async def slow(messages):
        asked.set()
        await asyncio.sleep(600)

    (one,) = await put(store, SCOPE, "pot")
    async with PostgresQueue(url) as queue:
        async with at_work(queue, Tools(store, Function(slow)), heard) as working:
            await asked.wait()
        assert working.cancelled()
        assert await store.write(SCOPE, episodes.take, 4e9, one) is not None

    assert heard.lines[-1] == ("reflect", "given back")
    assert ("heedful.reflect", "todo", 1) in jobs(url)


def worker(folder: Path, url: str, *options: str) -> subprocess.Popen[str]:
    given = [*IMPATIENT, "worker", "--store", url, *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    environment |= {"HEEDFUL_EMBEDDER": "none", "HEEDFUL_CACHE": str(folder / "cache")}
    return subprocess.Popen(given, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def until(what, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_worker_that_is_killed_in_the_middle_of_a_reflection_is_made_up_for(tmp_path, url):
    (tmp_path / "slow.py").write_text(MODEL, encoding="utf-8")
    calls = tmp_path / "calls"

    async def handed() -> None:
        (one,) = await put(store, SCOPE, "pot")
        async with PostgresQueue(url) as queue:
            await queue.defer("reflect", SCOPE, digest=one)

    def counts() -> Mapping[Any, int]:
        return runner.run(store.read(SCOPE, episodes.counts))

    with asyncio.Runner() as runner:
        store = open_store(url)
        runner.run(handed())
        first = worker(tmp_path, url, "--model", "slow:answer")
        until(lambda: calls.exists() and calls.stat().st_size > 0, first)
        first.kill()
        first.communicate()
        assert counts() == {"waiting": 1}
        second = worker(tmp_path, url)
        until(lambda: counts() == {"reflected": 1}, second)
        second.send_signal(signal.SIGTERM)
        said = second.communicate()[1]
        assert second.returncode == 0
        assert "reflect" in said
        assert "SIGTERM: begins nothing new" in said
        assert calls.read_text(encoding="utf-8") == "x"
        lessons = runner.run(store.read(SCOPE, lesson_store.top, 9))
        assert {lesson["seen"] for lesson in lessons} == {1}
        runner.run(store.close())

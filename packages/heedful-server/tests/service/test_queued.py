"""The queue in PostgreSQL: each job once, by any worker, and by another if one is
killed.
"""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from heedful.errors import ModelUnavailable, StoreUnavailable, UnknownName
from heedful.lessons.lesson import Scope
from heedful.models.function import Function
from heedful.store import episodes, lessons as lesson_store, open_store
from heedful.testing import ScriptedModel
from heedful_server import failed_jobs, jobs as doing, worker as queued
from heedful_server.jobs import Depth, Tools, Workload
from heedful_server.setup import Setup
from heedful_server.worker import PostgresQueue
from tests.postgres import rows, server
from tests.service.jobs import OTHER, SCOPE, Heard, open_loop, put, short, until
from tests.service.support import PROJECT, TENANT, Api
from tests.tables import cases
from tests.test_telemetry import collected  # noqa: F401 - a fixture
from tests.web.support import Browser, words_of

IMPATIENT = [sys.executable, str(Path(__file__).parent / "impatient.py")]
PATIENCE = 30.0  # seconds after which a test is given up

# A model in a worker's folder: it says that it is called and does not come back.
MODEL = """
import time
def answer(messages):
    with open("calls", "a") as calls:
        calls.write("x")
    time.sleep(600)
"""


@pytest.fixture
def url(postgres):
    return postgres.service


@pytest.fixture
def heard():
    return Heard()


def all_of(url):
    return f"{url}&options=-c%20heedful.worker=on"


def jobs(url):
    sql = "select task_name, status::text, attempts from procrastinate_jobs order by id"
    return rows(all_of(url), sql)


def stale(url, which):
    """As if the worker of these jobs had been killed an hour ago."""
    url = all_of(url)
    rows(url, "insert into procrastinate_workers default values")
    rows(
        url,
        "update procrastinate_workers set last_heartbeat = now() - interval '1 hour'",
    )
    newest = "(select max(id) from procrastinate_workers)"
    doing = f"update procrastinate_jobs set status = 'doing', worker_id = {newest}"
    rows(url, f"{doing} where {which} and status = 'todo'")


async def depths(queue):
    return {(depth.queue, depth.state): depth.number for depth in await queue.depth()}


@asynccontextmanager
async def at_work(queue, tools, heard):
    """A worker that works until the end of the block."""
    working = asyncio.create_task(queue.work(tools, listener=heard))
    yield working
    working.cancel()
    await asyncio.wait([working])


async def test_the_same_waits_once_and_the_urgent_comes_first(url, heard):
    store = open_store(url)
    await open_loop(store, SCOPE, "l1")
    (digest,) = await put(store, SCOPE, "pot")
    await put(
        store, OTHER, "pan"
    )  # kept by a service that was killed before it handed it over
    tools = Tools(store=store, loops={"short": short}, unused_for=1e9)
    async with PostgresQueue(url, works=True) as queue:
        for task in ("prune", "dream", "dream", "prove"):
            await queue.defer(task, SCOPE)
        for _ in range(2):
            await queue.defer("reflect", SCOPE, digest=digest)
        await queue.defer("drive", SCOPE, loop="l1", by="short")
        waiting = {"memory": 3, "reflection": 1, "loops:short": 1}
        assert await depths(queue) == {
            (name, "waiting"): n for name, n in waiting.items()
        }
        with pytest.raises(UnknownName):
            await queue.defer("sleep", SCOPE)
        await queue.work(tools, concurrency=1, once=True, listener=heard)
        assert [
            digest
            for digest in await queue.depth()
            if digest.queue != queued.UPKEEP_QUEUE
        ] == []
    for scope in (SCOPE, OTHER):
        assert await store.read(scope, episodes.counts) == {"reflected": 1}
    assert heard.ended() == ["drive", "reflect", "reflect", "prove", "dream", "prune"]


async def test_a_loop_is_left_to_a_worker_that_can_drive_it(url, heard):
    store = open_store(url)
    await open_loop(store, SCOPE, "l1")
    async with PostgresQueue(url) as queue:
        await queue.defer("drive", SCOPE, loop="l1", by="short")

    for loops, ended in (
        ({}, []),
        ({"long": short}, []),
        ({"short": short}, ["drive"]),
    ):
        async with PostgresQueue(url, works=True) as queue:
            tools = Tools(store=store, loops=loops)
            await queue.work(tools, once=True, listener=heard)
            left = await depths(queue)
        assert heard.ended() == ended
        assert left.get(("loops:short", "waiting"), 0) == 1 - len(ended)


async def test_a_service_sees_the_jobs_of_its_tenant_and_counts_those_of_all(url):
    async with PostgresQueue(url) as queue:
        for scope in (SCOPE, OTHER):
            await queue.defer("dream", scope)
        assert await depths(queue) == {("memory", "waiting"): 2}
    mine = f"{url}&options=-c%20heedful.tenant={SCOPE.tenant}"
    for table in ("jobs", "events"):
        tell = f"select 1 from procrastinate_{table}"
        assert [len(rows(by, tell)) for by in (url, mine, all_of(url))] == [0, 1, 2]
    changes = (
        "update procrastinate_jobs set priority = 9",
        "delete from procrastinate_jobs",
    )
    for change in changes:
        rows(mine, change)
    assert len(jobs(url)) == 1


@cases(
    "call",
    {
        "cancel": "cancel_job_v1({id}, true, true)",
        "end": "finish_job_v1({id}, 'succeeded', true)",
        "old retry": "retry_job_v1({id}, now(), 9, 'mine', null)",
        "retry": "retry_job_v2({id}, now(), 9, 'mine', null)",
    },
)
async def test_no_function_of_the_queue_changes_a_job_of_another_tenant(url, call):
    async with PostgresQueue(url) as queue:
        await queue.defer("dream", OTHER)
    rows(all_of(url), "update procrastinate_jobs set status = 'doing'")
    before = rows(all_of(url), "select * from procrastinate_jobs")
    [(id,)] = rows(all_of(url), "select id from procrastinate_jobs")
    mine = f"{url}&options=-c%20heedful.tenant={SCOPE.tenant}"
    with suppress(psycopg.errors.RaiseException):
        rows(mine, f"select procrastinate_{call.format(id=id)}")
    assert rows(all_of(url), "select * from procrastinate_jobs") == before


async def test_a_service_takes_no_job_of_another_tenant(url):
    async with PostgresQueue(url) as queue:
        for scope in (SCOPE, OTHER):
            await queue.defer("dream", scope)
    take = "select args ->> 'tenant' from procrastinate_fetch_job_v2(null, null)"
    mine = f"{url}&options=-c%20heedful.tenant={SCOPE.tenant}"
    assert [rows(mine, take) for _ in range(2)] == [[(SCOPE.tenant,)], [(None,)]]
    assert rows(url, take) == [(None,)]


async def test_a_job_that_fails_waits_and_is_given_up_at_last(url, heard, monkeypatch):
    monkeypatch.setattr(doing, "MAX_JOB_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(queued, "POLL_INTERVAL_SECONDS", 0.05)
    store = open_store(url)
    (digest,) = await put(store, SCOPE, "pot")
    down = ScriptedModel(ModelUnavailable("no connection"), forever=True)
    async with PostgresQueue(url, works=True) as queue:
        await queue.defer("reflect", SCOPE, digest=digest)
        async with at_work(queue, Tools(store=store, model=down), heard):
            await until(lambda: ("reflect", "given up") in heard.lines)
        assert (await depths(queue))["reflection", "failed"] == 1
    # A sweep may have handed the episode over, too: that job waits for its turn like
    # this one.
    assert heard.of("reflect").count("again") >= doing.MAX_JOB_TRIES - 1
    assert ("heedful.reflect", "failed", doing.MAX_JOB_TRIES) in jobs(url)

    await store.write(SCOPE, failed_jobs.end, again=True)
    assert ("heedful.reflect", "todo", 0) in jobs(url)
    assert await store.read(SCOPE, episodes.counts) == {"waiting": 1}


async def test_what_is_discarded_of_a_queue_is_not_reflected_on(url, heard):
    store = open_store(url)
    (digest,) = await put(store, SCOPE, "pot")
    defect = ValueError("postgresql://erin:hunter2@h/db")
    down = ScriptedModel(defect, forever=True)
    async with PostgresQueue(url, works=True) as queue:
        await queue.defer("reflect", SCOPE, digest=digest)
        await queue.work(Tools(store=store, model=down), once=True, listener=heard)
        (failed,) = await store.write(SCOPE, failed_jobs.end, again=False)
        assert failed["arguments"] == {"digest": digest}
        assert failed["error"].startswith("ValueError: postgresql://")
        assert "hunter2" not in failed["error"]
    async with PostgresQueue(url, works=True) as queue:
        await queue.work(Tools(store=store), once=True, listener=heard)
        assert await depths(queue) == {}
    assert heard.ended() == []
    assert await store.read(SCOPE, episodes.counts) == {"reflected": 1}


async def test_a_job_that_fails_while_the_same_waits_leaves_it_to_that(
    url, heard, monkeypatch
):
    monkeypatch.setattr(doing, "MAX_JOB_WAIT_SECONDS", 0.0)
    store = open_store(url)
    (digest,) = await put(store, SCOPE, "pot")
    async with PostgresQueue(url, works=True) as queue:

        async def down(messages):
            if len(heard.of("reflect")) == 1:
                await queue.defer("reflect", SCOPE, digest=digest)
                raise ModelUnavailable("no connection")
            return "no JSON"

        await queue.defer("reflect", SCOPE, digest=digest)
        await queue.work(
            Tools(store=store, model=Function(down)),
            listener=heard,
            concurrency=1,
            once=True,
            queues=["reflection"],
        )
    assert heard.of("reflect")[:3] == ["begun", "again", "begun"]
    assert [
        digest for digest in jobs(url) if digest[:2] == ("heedful.reflect", "doing")
    ] == []


async def test_jobs_of_workers_that_are_silent_are_done_by_another(url, heard):
    async with PostgresQueue(url, works=True) as queue:
        await queue.defer("dream", SCOPE)
        stale(url, "task_name = 'heedful.dream'")
        await queue.defer(
            "dream", SCOPE
        )  # of this and the one of the dead worker one is left
        await queue.defer("prove", OTHER)
        await queue.defer("prune", OTHER)
        stale(url, "task_name = 'heedful.prune'")
        tried = f"update procrastinate_jobs set attempts = {doing.MAX_JOB_TRIES - 1}"
        rows(all_of(url), f"{tried} where task_name = 'heedful.prune'")
        assert await depths(queue) == {
            ("memory", "stalled"): 2,
            ("memory", "waiting"): 2,
        }
        await queue.work(Tools(store=open_store(url)), once=True, listener=heard)
        assert (await depths(queue))["memory", "failed"] == 1
    assert sorted(heard.ended()) == ["dream", "prove"]
    assert [job for job in jobs(url) if job[1] == "doing"] == []
    (failed,) = await open_store(url).read(OTHER, failed_jobs.newest, 9)
    assert failed["task"] == "prune"
    assert failed["error"] == "killed: no worker survived it"


async def test_a_worker_waits_for_a_server_that_went_away_and_goes_on(
    url, heard, monkeypatch
):
    monkeypatch.setattr(queued, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(queued, "CONNECTION_WAIT_SECONDS", 0.5)
    tools = Tools(store=open_store(url))
    async with PostgresQueue(url, works=True) as queue, at_work(queue, tools, heard):
        await queue.defer("prove", SCOPE)
        await until(heard.ended)
        name = rows(url, "select current_database()")[0][0]
        shut = f"alter database {name} allow_connections false"
        server().run(shut)
        backends = f"pg_stat_activity where datname = '{name}'"
        # It waits until they have ended, so that none takes the next call.
        server().run(f"select pg_terminate_backend(pid, 10000) from {backends}")
        with pytest.raises(StoreUnavailable):
            await queue.defer("prove", OTHER)
        server().run(shut.replace("false", "true"))
        while True:
            with suppress(StoreUnavailable):
                await queue.defer("prove", OTHER)
                break
            await asyncio.sleep(0.05)
        await until(lambda: len(heard.ended()) == 2)


async def test_what_does_not_end_in_time_is_given_back_at_once(url, heard, monkeypatch):
    monkeypatch.setattr(doing, "JOB_GRACE_SECONDS", 0.01)
    store = open_store(url)
    is_asked = asyncio.Event()

    async def slow(messages):
        is_asked.set()
        await asyncio.sleep(600)

    (digest,) = await put(store, SCOPE, "pot")
    async with PostgresQueue(url, works=True) as queue:
        async with at_work(
            queue, Tools(store=store, model=Function(slow)), heard
        ) as working:
            await is_asked.wait()
        assert working.cancelled()
        assert (
            await store.write(SCOPE, episodes.take, before=4e9, digest=digest)
            is not None
        )
    assert heard.lines[-1] == ("reflect", "given back")
    # If a sweep came in between, an equal job waits instead.
    assert ("heedful.reflect", "todo") in [job[:2] for job in jobs(url)]


def worker(folder, url, *options):
    command = [*IMPATIENT, "worker", "--db", url, *options]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
    }
    environment |= {"HEEDFUL_EMBEDDER": "none", "HEEDFUL_CACHE": str(folder / "cache")}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.nightly
async def test_a_worker_that_is_killed_in_the_middle_of_a_reflection_is_made_up_for(
    tmp_path, url
):
    (tmp_path / "slow.py").write_text(MODEL, "utf-8")
    calls = tmp_path / "calls"
    store = open_store(url)
    (digest,) = await put(store, SCOPE, "pot")
    async with PostgresQueue(url) as queue:
        await queue.defer("reflect", SCOPE, digest=digest)
    first = worker(tmp_path, url, "--model", "slow:answer")
    await until(lambda: calls.exists() and calls.read_text("utf-8"))
    first.kill()
    first.communicate()
    assert await store.read(SCOPE, episodes.counts) == {"waiting": 1}
    second = worker(tmp_path, url)
    async with asyncio.timeout(PATIENCE):
        while await store.read(SCOPE, episodes.counts) != {"reflected": 1}:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    second.send_signal(signal.SIGTERM)
    log = second.communicate()[1]
    assert second.returncode == 0
    assert "reflect" in log
    assert "SIGTERM: no new job begins" in log
    assert calls.read_text("utf-8") == "x"
    assert {
        lesson["seen"] for lesson in await store.read(SCOPE, lesson_store.top, limit=9)
    } == {1}


def test_an_episode_is_reflected_on_by_a_worker(url, collected):  # noqa: F811
    queue = PostgresQueue(url)
    api = Api(Setup(store=open_store(url), work=queue))
    api.run(queue.__aenter__())
    run = {
        "events": [{"type": "tool_call", "tool": "price", "error": "no pot"}],
        "task": "Price?",
    }
    collected.begin()
    for _ in range(2):
        answer = api.post("/v1/episodes", json=run)
        assert (answer.status_code, answer.json()["state"]) == (202, "waiting"), (
            answer.text
        )
    waiting = 'heedful_jobs{queue="reflection",state="waiting"}'
    assert f"{waiting} 1.0" in api.get("/metrics", key="").text

    async def worked():
        async with PostgresQueue(url, works=True) as worker:
            await worker.work(Tools(store=open_store(url)), once=True)

    api.run(worked())
    assert waiting not in api.get("/metrics", key="").text
    assert api.post("/v1/episodes", json=run).status_code == 200
    counts = api.run(api.setup.store.read(Scope(TENANT, PROJECT), episodes.counts))
    assert counts == {"reflected": 1}
    assert len(collected.spans("heedful.task reflect")) == 1
    api.run(queue.__aexit__(None, None, None))
    api.close()


@cases(
    ("depths", "workers", "state"),
    {
        "nothing waits, so no worker is missed": ((), 0, "ok"),
        "nobody does what waits": ((("waiting", 5),), 0, "no_worker"),
        "what waits is done soon": ((("waiting", 5),), 1, "ok"),
        "a long job is not late": ((("running", 9000),), 1, "ok"),
        "a job waits too long": ((("waiting", 601),), 1, "behind"),
    },
)
def test_a_workload_says_what_is_wrong_with_it(depths, workers, state):
    in_queue = [
        Depth(queue="memory", state=name, number=1, oldest=age) for name, age in depths
    ]
    assert Workload(depths=in_queue, workers=workers).state == state


async def test_workers_are_counted_while_they_are_alive(tmp_path, url):
    async with PostgresQueue(url) as queue:
        await queue.defer("drive", SCOPE, loop="l1", by="short")
        await queue.defer("drive", SCOPE, loop="l2", by="short")
        workload = await queue.workload()
        assert (workload.workers, workload.waiting) == (0, 2)
        assert str(workload).startswith("0 alive, jobs waiting: 2, the oldest for ")

        process = worker(tmp_path, url, "--queues", "memory")
        async with asyncio.timeout(PATIENCE):
            while (await queue.workload()).workers != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        process.communicate()
        assert (await queue.workload()).workers == 0


def test_home_names_the_command_that_lists_failed_jobs(url):
    queue = PostgresQueue(url, works=True)
    store = open_store(url)
    api = Api(Setup(store=store, work=queue))
    api.run(queue.__aenter__())
    api.run(queue.defer("drive", SCOPE, loop="l1", by="short"))
    api.run(queue.work(Tools(store=store, loops={"short": short}), once=True))
    site = Browser(api).open(api._all)
    (failed,) = site.data("/home")["needs"]
    assert failed["about"] == "jobs failed"
    assert failed["number"] == 1
    assert failed["command"] == "heedful worker jobs --tenant acme"
    page = words_of(site.get("/home").text)
    assert "jobs failed" in page
    assert "heedful worker jobs --tenant acme" in page
    api.run(queue.__aexit__())
    api.close()


def test_http_says_that_no_worker_is_alive(url):
    queue = PostgresQueue(url)
    api = Api(Setup(store=open_store(url), work=queue))
    api.run(queue.__aenter__())
    assert api.get("/readyz", key="").json()["work"] == "ok"
    assert "heedful_workers 0.0" in api.get("/metrics", key="").text

    api.run(queue.defer("drive", SCOPE, loop="l1", by="short"))
    api.app.state.readiness.probed = float("-inf")
    answer = api.get("/readyz", key="")
    assert answer.status_code == 200
    assert answer.json()["work"] == "no_worker"
    api.run(queue.__aexit__(None, None, None))
    api.close()

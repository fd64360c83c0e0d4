"""The commands on PostgreSQL, whose URL has a password that nobody may read."""

import asyncio

import pytest

from heedful.memory.memory import Memory
from heedful.store import open_store
from heedful_server.worker import PostgresQueue
from tests.cli.support import task
from tests.postgres import blank, drop, rows
from tests.service.jobs import SCOPE

# In this order: each works on what those before it have left.
COMMANDS = """
loops
loops runs
why {run}/red
lessons
seen contains red
recall red
proof
quarantine list
quarantine log
lessons pin 1 --by ada
lessons prune --by ada --keep 1 --dry-run
lessons prune --by ada --keep 1
forget --person ada --dry-run
forget --before 2020-01-31 --by ada
consolidate
consolidate log
export lessons.jsonl
import lessons.jsonl
replay
loops override {run}/never attempts --by ada --why again
doctor --model toy:answer
key create --name ci --may read
key list
key audit
worker --once
""".strip().splitlines()
LOOPS = """
from heedful import Run

def short(task, **given):
    async def generate(task, hint):
        return "ok"
    return Run(task, generate=generate, **given)
"""


def secret(url):
    return url.replace("@", ":hunter2@", 1)


@pytest.fixture
def invoke(desk, monkeypatch):
    """Run command lines; no output shows the password."""
    monkeypatch.setenv("HEEDFUL_EMBEDDER", "none")

    def invoke_line(line):
        done = desk.invoke(monkeypatch, line)
        assert "hunter2" not in done.out + done.err, line
        return done

    return invoke_line


@pytest.fixture
def doctor(invoke):
    def signs(url):
        done = invoke(f"doctor --db {url} --model toy:answer --json")
        return done.code, {sign["name"]: sign for sign in done.json["signs"]}

    return signs


@pytest.fixture
def empty():
    urls = blank()
    yield urls
    drop(urls)


def test_every_command_works_on_it(desk, invoke, postgres, monkeypatch):
    never = {**task("never"), "task": "never say red"}
    desk.tasks(
        [*map(task, ("red", "blue", "green", "pink", "grey", "teal", "plum")), never]
    )
    url = secret(postgres.service)
    done = desk.heedful(f"run tasks.jsonl --model toy:answer --json --db {url}")
    assert done.code == 1, done
    assert "hunter2" not in done.out + done.err
    assert "postgresql://heedful@/" in done.err
    monkeypatch.setenv("HEEDFUL_DB", url)
    run = done.json["run"]
    for command in COMMANDS:
        done = invoke(command.format(run=run))
        assert done.code in (0, 1), (command, done)
        assert "Traceback" not in done.err, (command, done)
    assert "hunter2" not in (desk.folder / "lessons.jsonl").read_text("utf-8")


URLS = {
    "postgresql://erin:hunter2@h/db?nope=1": "invalid URI query parameter",
    "postgresql://erin:hunter2@127.0.0.1:1/d": "see that the server runs",
    f"postgresql://erin:hunter2@h/{'d' * 2000}": "must be a text of at most 1000",
}


@pytest.mark.parametrize("url", URLS, ids=URLS.values())
@pytest.mark.parametrize("command", ["loops", "doctor", "db migrate", "proof --json"])
def test_an_error_is_shown_without_the_password(invoke, monkeypatch, url, command):
    monkeypatch.setenv("HEEDFUL_DB", url)
    for line in (command, f"{command} --debug"):
        done = invoke(line)
        assert done.code != 0, done
        assert URLS[url] in done.out + done.err, done


def test_a_database_is_migrated_and_a_store_copied_to_it(desk, invoke, doctor, empty):
    code, signs = doctor(empty.service)
    assert code == 1
    assert signs["database"]["well"] is False
    owner = secret(empty.owner)
    done = invoke(f"db migrate --db {owner} --role heedful")
    assert done.code == 0, done
    assert "has the schema of this heedful now" in done.out
    assert "role heedful may serve" in done.out
    again = invoke(f"db migrate --db {owner} --json").json
    assert again["created"] is False
    desk.tasks([task("red")])
    assert desk.heedful("run tasks.jsonl --model toy:answer").code == 0
    done = invoke(f"db copy heedful.db {owner}")
    assert done.code == 0, done
    assert "rows of heedful.db" in done.out
    assert "Next: heedful doctor, with the URL of the service's role" in done.out
    assert rows(empty.owner, "select count(*) from loop") == [(1,)]


def test_what_is_released_is_queued_to_be_embedded(invoke, postgres, monkeypatch):
    asyncio.run(prepare(postgres.service, keep_waiting, "a lesson"))
    monkeypatch.setenv("HEEDFUL_DB", postgres.service)
    (entry,) = invoke("quarantine list --json").json["waiting"]
    assert invoke(f"quarantine release {entry['id']} --by ann").code == 0
    jobs = rows(postgres.owner, "select task_name, args from procrastinate_jobs")
    assert [(name, args["tenant"]) for name, args in jobs] == [
        ("heedful.embed", "default")
    ]


def test_doctor_says_what_is_wrong_and_what_to_do(doctor, postgres):
    rows(postgres.owner, "create table heedful.bare (tenant text)")
    code, signs = doctor(postgres.service)
    assert code == 1
    assert "not for bare" in signs["database"]["found"]
    rows(postgres.owner, "delete from schema_version")
    assert "run heedful db migrate" in doctor(postgres.service)[1]["database"]["found"]
    for url in (postgres.owner, postgres.superuser):
        code, signs = doctor(secret(url))
        assert code == 1
        assert signs["database"]["well"] is False


# -- the worker


async def prepare(url, work, name):
    """Do `work` in the database: begin a loop of this name, or put an episode."""
    store = open_store(url)
    await work(store, SCOPE, name)
    await store.close()


async def keep_waiting(store, scope, lesson):
    """Remember a lesson that waits in quarantine, in the default scope."""
    await Memory(store).remember("price", "no price", lesson=lesson, origin="outside")


async def defer_drives(url, ids):
    async with PostgresQueue(url) as queue:
        for id in ids:
            await queue.defer("drive", SCOPE, loop=id, by="short")


@pytest.fixture
def failed(desk, invoke, postgres, monkeypatch):
    """Give up a loop that does not exist; its failed job."""
    monkeypatch.setenv("HEEDFUL_DB", postgres.service)
    desk.write("loops.py", LOOPS)
    asyncio.run(defer_drives(postgres.service, ["l2"]))
    assert invoke("worker --once --drives short=loops:short").code == 1
    (job,) = invoke("worker jobs --tenant acme --json").json["jobs"]
    return job


@pytest.mark.parametrize("command", ["retry", "discard"])
def test_a_failed_job_belongs_to_its_tenant(invoke, failed, command):
    done = invoke(f"worker jobs {command} {failed['id']} --tenant other")
    assert done.code == 3
    assert "no failed job" in done.err
    assert invoke(f"worker jobs {command} --all --tenant other --json").code == 0
    assert invoke("worker jobs --tenant acme --json").json["jobs"] == [failed]


def test_a_worker_of_loops_that_drives_none_says_what_it_needs(invoke, postgres):
    done = invoke(f"worker --db {postgres.service} --queues loops")
    assert done.code == 2
    assert "this worker drives no loops; add --drives" in done.err


def test_a_worker_that_begins_without_a_database_does_not_wait_for_it(invoke):
    done = invoke("worker --db postgresql://me@127.0.0.1:1/x --model none")
    assert done.code == 4
    assert "port 1 failed: Connection refused" in done.err
    assert "waits for it" not in done.err

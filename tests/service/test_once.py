"""A call that comes again has its effect once, whatever happens between effect and answer."""

import asyncio
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from heedful.errors import LeaseLost, StoreCorrupt
from heedful.lessons.lesson import Scope
from heedful.service.app import examples, operations
from heedful.store import exposures, lessons
from heedful.store.store import (
    Before,
    Beside,
    Call,
    Db,
    also,
    beside,
    keep_answer,
    read_call,
    write_effect,
)
from tests.engines import changed, opened, rows
from tests.service.support import PROJECT, TENANT, problem, served
from tests.store.support import SCOPE

NEW = {"name": "made", "projects": ["main"], "may": ["read"]}
MINE = Scope(TENANT, PROJECT)
pytestmark = pytest.mark.both
LESSON = {"error_type": "TypeError", "text": "a number is no text"}


@pytest.fixture
def api(tmp_path):
    with served(tmp_path) as api:

        @api.app.post("/v1/test/remember")
        async def remember(body: dict[str, Any]) -> dict[str, Any]:
            memory = api.setup.memory(MINE)
            answer = await memory.remember(**body)
            return {"id": answer.id, "seen": answer.seen}

        @api.app.post("/v1/test/reads")
        async def reads() -> dict[str, int]:
            return {"lessons": await api.setup.memory(MINE).count()}

        @api.app.post("/v1/test/slow")
        async def slow(body: dict[str, Any]) -> dict[str, Any]:
            await asyncio.sleep(0.05)
            answer = await api.setup.memory(MINE).remember(**body)
            return {"seen": answer.seen}

        yield api


def once(key: str) -> dict[str, dict[str, str]]:
    return {"headers": {"Idempotency-Key": key}}


def test_the_same_call_again_is_answered_the_same(api):
    first = api.post("/v1/test/remember", json=LESSON, **once("a"))
    again = api.post("/v1/test/remember", json=LESSON, **once("a"))
    assert first.json() == again.json() == {"id": 1, "seen": 1}
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["content-type"] == first.headers["content-type"]
    assert api.post("/v1/test/remember", json=LESSON, **once("b")).json()["seen"] == 2
    assert api.post("/v1/test/remember", json=LESSON).json()["seen"] == 3


def test_a_call_that_only_reads_is_answered_the_same(api):
    first = api.post("/v1/test/reads", **once("reads"))
    api.post("/v1/test/remember", json={"error_type": "new", "text": "one more"})
    assert api.post("/v1/test/reads", **once("reads")).json() == first.json()
    assert api.post("/v1/test/reads").json() != first.json()


def test_with_another_body_path_or_query_the_key_is_refused(api):
    api.post("/v1/test/remember", json=LESSON, **once("c"))
    for path, body in (
        ("/v1/test/remember", {**LESSON, "text": "another"}),
        ("/v1/test/slow", LESSON),
        ("/v1/test/remember?project=main", LESSON),
    ):
        problem(api.post(path, json=body, **once("c")), 422, "idempotency_key_reused")


def test_keys_of_others_are_others(api):
    first = api.post("/v1/test/remember", json=LESSON, **once("d")).json()
    other = api.post("/v1/test/remember", json=LESSON, key=api.key(), **once("d")).json()
    assert other["seen"] == first["seen"] + 1


@pytest.mark.parametrize("key", ["", "é".encode(), 256 * "a", "a\tb"])
def test_a_key_is_printable_and_short(api, key):
    told = api.post("/v1/test/reads", headers={"Idempotency-Key": key})
    problem(told, 422, "idempotency_key_invalid")


def test_what_failed_may_be_tried_again(api):
    problem(api.post("/v1/test/remember", json=[], **once("e")), 422, "invalid_request")
    assert api.post("/v1/test/remember", json=LESSON, **once("e")).status_code == 200


def test_two_at_once_have_one_effect(api):
    async def both() -> list[Any]:
        body = {"error_type": "once", "text": "at once"}
        asked = (api.ask("POST", "/v1/test/slow", json=body, **once("f")) for _ in range(8))
        return await asyncio.gather(*asked)

    answers = api.run(both())
    fine = [one for one in answers if one.status_code == 200]
    busy = [one for one in answers if one.status_code == 409]
    assert (len(fine), len(busy)) == (1, 7)
    assert all(one.headers["Retry-After"] == "1" for one in busy)
    body = {"error_type": "once", "text": "at once"}
    assert api.post("/v1/test/slow", json=body, **once("f")).json() == fine[0].json()
    assert api.run(api.setup.memory(MINE).seen("once", "at once")).count == 1


def test_a_secret_is_not_kept_for_the_next_time(api):
    first = api.post("/v1/keys", json=NEW, **once("g")).json()
    again = api.post("/v1/keys", json=NEW, **once("g"))
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json() == {**first, "secret": None}
    ids = [one["id"] for one in api.get("/v1/keys?limit=200").json()["items"]]
    assert ids.count(first["id"]) == 1
    secret = first["secret"].split("_")[2]
    for table in ("key", "audit", "answer"):
        assert secret not in str(rows(api.setup.store.url, f"select * from {table}"))
    made = [row for row in api.get("/v1/audit").json()["items"] if row["subject"] == "made"]
    assert len(made) == 1


@pytest.mark.sqlite
def test_every_call_that_may_come_again_is_answered_the_same(api):
    """By the examples of the description; what comes of effects can be written down."""
    spec, done = api.app.openapi(), []
    lesson = api.post("/v1/reflections", json={**LESSON, "text": "untrusted"}, key=api.key("write"))
    assert lesson.status_code == 201
    api.put("/v1/loops/1", json={"task": "a", "policy": "default, attempts.limit=1"})
    failed = {"output": "1", "evaluation": {"findings": [{"check": "a", "message": "b"}]}}
    assert api.put("/v1/loops/1/attempts/1", json=failed).json()["decision"] == "done"
    for path, method, operation in operations(spec):
        if method != "post" or path.startswith("/v1/test"):
            continue
        name = path.replace("{id}", "1").replace("{loop_id}", "loop_001")
        body = examples(operation)["request"]
        first = api.post(name, json=body, **once(path))
        again = api.post(name, json=body, **once(path))
        assert first.status_code < 500, (path, first.text)
        if first.is_success and path != "/v1/keys":
            assert (again.status_code, again.content) == (first.status_code, first.content)
            assert again.headers["Idempotent-Replayed"] == "true"
            done.append(path)
    assert len(done) >= 12, done


def test_no_secret_that_was_sent_is_kept_with_an_answer(api):
    token = "sk-proj-" + "a1B2" * 8
    asked = {"events": [{"event_type": "a"}], "outcome": "failure", "related_memory_ids": [token]}
    first = api.post("/api/v1/reflections/generate", json=asked, **once("h"))
    again = api.post("/api/v1/reflections/generate", json=asked, **once("h"))
    assert (first.status_code, first.content) == (200, again.content)
    assert first.json()["related_memory_ids"] == ["[redacted: model_key]"]
    api.post("/v1/keys", json={**NEW, "name": token}, **once("i"))
    for table in ("key", "audit", "answer"):
        assert token not in str(rows(api.setup.store.url, f"select * from {table}"))


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from heedful.service import middleware as idempotency
from tests.service.support import served

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

idempotency.keep_answer = killed  # after the effect, before the answer
with served(Path(sys.argv[1])) as api:
    Path(sys.argv[1], "key").write_text(api.key("read", "write", "admin"))
    api.post("/v1/keys", json={"name": "made", "projects": ["main"], "may": ["read"]},
             key=Path(sys.argv[1], "key").read_text(), headers={"Idempotency-Key": "k"})
    @api.app.post("/v1/test/remember")
    async def remember(body: dict):
        answer = await api.setup.memory(api.setup.scope).remember(**body)
        return {"id": answer.id, "seen": answer.seen}
    api.post("/v1/test/remember", json={"error_type": "TypeError", "text": "a"},
             key=Path(sys.argv[1], "key").read_text(), headers={"Idempotency-Key": "r"})
"""


@pytest.mark.sqlite
def test_killed_between_effect_and_answer_it_is_not_done_twice(tmp_path):
    run = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(
        run, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    file = tmp_path / "heedful.db"
    key = (tmp_path / "key").read_text()
    assert rows(file, "select n from answer where once = 'r'") == [(0,)]
    with served(tmp_path) as api:

        @api.app.post("/v1/test/remember")
        async def remember(body: dict[str, Any]) -> dict[str, Any]:
            answer = await api.setup.memory(api.setup.scope).remember(**body)
            return {"id": answer.id, "seen": answer.seen}

        body = {"error_type": "TypeError", "text": "a"}
        for _ in range(2):
            again = api.post("/v1/test/remember", json=body, key=key, **once("r"))
            assert again.json() == {"id": 1, "seen": 1}
            assert again.headers["Idempotent-Replayed"] == "true"
        assert rows(file, "select seen from reflection") == [(1,)]
        assert sorted(rows(file, "select n from answer where once = 'r'")) == [(-1,), (0,)]
        made = api.post("/v1/keys", json=NEW, key=key, **once("k")).json()
        (id,) = rows(file, "select id from key where name = 'made'")
        assert (made["id"],) == id
        assert rows(file, "select action, subject from audit") == [("key.create", "made")]


def test_of_two_processes_the_second_has_no_effect(tmp_path):
    """Neither knows of the other; the database lets one of them through."""
    call = Call("default", "caller", "once", "digest")

    async def scenario() -> None:
        with opened(tmp_path / "a.db") as one, opened(tmp_path / "a.db") as two:
            for store in (one, two):
                record = Beside(lambda db, n, told: write_effect(db, call, n, told))
                with beside(record):
                    memory = store.write(SCOPE, exposures.remember, [])
                    if store is one:
                        await memory
                        continue
                    with pytest.raises(LeaseLost, match="try again"):
                        await memory
            assert len((await two.read(Scope(), read_call, call)).effects) == 1

    asyncio.run(scenario())


def test_an_answer_is_forgotten_after_a_day(tmp_path):
    call = Call("default", "caller", "once", "digest")

    async def scenario() -> None:
        with opened(tmp_path / "a.db") as store:

            async def before() -> Before:
                return await store.read(Scope(), read_call, call)

            async def keep(status: int) -> None:
                await store.write(Scope(), keep_answer, call, {"status": status})

            await keep(200)
            assert (await before()).answer == {"status": 200}
            with pytest.raises(LeaseLost):
                await keep(201)
            changed(tmp_path / "a.db", "update answer set at = at - 86401")
            assert (await before()).digest == ""
            await keep(202)
            assert rows(tmp_path / "a.db", "select record from answer") == [('{"status": 202}',)]

    asyncio.run(scenario())


def test_nothing_goes_beside_what_is_in_no_call():
    with pytest.raises(LookupError, match="outside"):
        also(lambda db: None)


def test_what_a_write_came_to_must_be_a_value(tmp_path):
    async def scenario() -> None:
        with opened(tmp_path / "a.db") as store:
            kept: list[Any] = []
            record = Beside(lambda db, n, told: kept.append(told))

            def work(db: Db, scope: Scope) -> object:
                return object()

            with beside(record), pytest.raises(TypeError, match="no plain value: object"):
                await store.write(SCOPE, work)
            assert kept == []

    asyncio.run(scenario())


@pytest.mark.sqlite
@pytest.mark.parametrize(
    "kind", ["os:system", "heedful.nowhere:A", "heedful.store.store:also", "x", ""]
)
def test_what_is_no_value_of_heedful_is_not_made(tmp_path, kind):
    known = [{"name": "exposures.remember", "value": {"@": kind, "of": {}}}]

    async def scenario() -> None:
        no_value = pytest.raises(StoreCorrupt, match="unknown kind")
        with opened(tmp_path / "a.db") as store, beside(Beside(known=known)), no_value:
            await store.write(SCOPE, exposures.remember, [])

    asyncio.run(scenario())


def test_values_come_back_as_they_were(tmp_path):
    from heedful.lessons.lesson import Remembered

    value = [Remembered(1, True, 2), (1, None), {"a": ["x", 0.5]}, "text", False]

    async def scenario() -> None:
        with opened(tmp_path / "a.db") as store:
            kept: list[Any] = []

            def work(db: Db, scope: Scope) -> object:
                return value

            with beside(Beside(lambda db, n, told: kept.append(told))):
                await store.write(SCOPE, work)
            with beside(Beside(known=kept)):
                assert await store.write(SCOPE, work) == value

    asyncio.run(scenario())


def test_a_heartbeat_and_work_that_was_handed_over_are_no_effects_of_the_call(tmp_path):
    async def scenario() -> None:
        with opened(tmp_path / "a.db") as store:
            kept: list[Any] = []
            with beside(Beside(lambda db, n, told: kept.append(told["name"]))) as call:
                call.also(lambda db: kept.append("audit"))
                await asyncio.create_task(store.write(SCOPE, lessons.clear))
                assert kept == []
                await store.write(SCOPE, exposures.remember, [])
            assert kept == ["audit", "exposures.remember"]

    asyncio.run(scenario())

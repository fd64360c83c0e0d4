"""A call that comes again has its effect once, whatever happens between effect and
answer.
"""

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from heedful.errors import Conflict, LeaseLost
from heedful.lessons.lesson import Remembered, Scope
from heedful.store import exposures, keys
from heedful.store.connection import resumable
from heedful.store.idempotency import (
    IdempotentCall,
    keep_answer,
    read_call,
)
from heedful.store.store import Effects, also
from tests.engines import change_rows, opened, rows
from tests.service.support import PROJECT, TENANT, problem, served
from tests.store.support import SCOPE, unmeasured
from tests.tables import cases

MINE = Scope(TENANT, PROJECT)
pytestmark = pytest.mark.both_nightly
LESSON = {"error_type": "TypeError", "text": "a number is no text"}
REMEMBER = "/v1/test/remember"


def with_route(api):
    """The service with a route that has an effect, late."""

    @api.app.post(REMEMBER)
    async def remember(body: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0.02)
        answer = await api.setup.memory(MINE).remember(**body)
        return {"id": answer.id, "seen": answer.seen}

    return api


@pytest.fixture
def api(tmp_path):
    with served(tmp_path) as api:
        yield with_route(api)


def once(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


def test_the_same_call_again_is_answered_the_same(api):
    first = api.post(REMEMBER, json=LESSON, headers=once("a"))
    again = api.post(REMEMBER, json=LESSON, headers=once("a"))
    assert first.json() == again.json() == {"id": 1, "seen": 1}
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["content-type"] == first.headers["content-type"]
    assert api.post(REMEMBER, json=LESSON, headers=once("b")).json()["seen"] == 2
    assert api.post(REMEMBER, json=LESSON).json()["seen"] == 3
    other = api.post(
        REMEMBER, json=LESSON, key=api.key(), headers=once("a")
    )  # another's key
    assert other.json()["seen"] == 4


def test_a_key_is_for_one_request_printable_and_short(api):
    problem(
        api.post(REMEMBER, json=[], headers=once("c")), 422, "invalid_request"
    )  # which had no effect
    assert api.post(REMEMBER, json=LESSON, headers=once("c")).status_code == 200
    hashes = {row[0] for row in rows(api.setup.store.url, "select once from answer")}
    assert hashes == {hashlib.sha256(b"c").hexdigest()}
    for path, body in (
        (REMEMBER, {**LESSON, "text": "another"}),
        ("/v1/seen", LESSON),
        (f"{REMEMBER}?project=main", LESSON),
    ):
        problem(
            api.post(path, json=body, headers=once("c")), 422, "idempotency_key_reused"
        )
    for key in ("", "é".encode(), 256 * "a", "a\tb"):
        answer = api.post(REMEMBER, headers={"Idempotency-Key": key})
        problem(answer, 422, "idempotency_key_invalid")


def test_no_secret_is_kept_for_the_next_time(api):
    token = "sk-proj-" + "a1B2" * 8
    episode = {
        "events": [{"event_type": "a"}],
        "outcome": "failure",
        "related_memory_ids": [token],
    }
    sent = [
        api.post("/api/v1/reflections/generate", json=episode, headers=once("h"))
        for _ in range(2)
    ]
    assert sent[0].content == sent[1].content
    assert sent[0].json()["related_memory_ids"] == ["[redacted: model_key]"]
    assert token not in str(rows(api.setup.store.url, "select * from answer"))


MARK = "quicksilver"


def remember_released(api: Any, key: str) -> str:
    """Remember a lesson with the key, release it, and return the source of the key."""
    example = {"task": LESSON["text"], "accepted": MARK}
    lesson = {**LESSON, "lesson": f"use {MARK}", "example": example}
    entry = api.post("/v1/reflections", json=lesson, key=key).json()["entry"]
    release = f"/v1/quarantine/{entry}/release"
    assert api.post(release, json={"why": "it is right"}).is_success
    return f"key:{key.split('_')[1]}"


@cases(
    ("path", "body"),
    {
        "recall for a loop": ("/v1/recall", {"task": LESSON["text"], "loop": "a"}),
        "seen": ("/v1/seen", LESSON),
    },
)
def test_an_answer_that_only_tells_lessons_is_not_stored(api, path, body):
    remember_released(api, key=api.key("write", outside=True))
    first = api.post(path, json=body, headers=once("q"))
    assert MARK in first.text
    assert MARK not in str(rows(api.setup.store.url, "select * from answer"))
    again = api.post(path, json=body, headers=once("q"))
    assert MARK in again.text


def test_a_revocation_removes_stored_answers_but_not_that_they_were_given(api):
    note = {"text": MARK}
    api.put("/v1/loops/a", json={"task": "a"})
    first = api.post("/v1/loops/a/notes", json=note, headers=once("n"))
    assert first.is_success
    unfinished = IdempotentCall(
        tenant=TENANT, caller="caller", once="once", digest="digest"
    )

    async def stop_within_call() -> None:
        with Effects(unfinished):
            await api.setup.store.write(MINE, exposures.remember, [])

    api.run(stop_within_call())
    source = remember_released(api, key=api.key("write", outside=True))
    revocation = {"source": source, "why": "stolen"}

    dry_run = {**revocation, "dry_run": True}
    assert api.post("/v1/quarantine/revoke", json=dry_run).is_success
    again = api.post("/v1/loops/a/notes", json=note, headers=once("n"))
    assert again.json() == first.json()

    for _ in range(2):  # the revocation itself may be repeated
        revoked = api.post(
            "/v1/quarantine/revoke", json=revocation, headers=once("revoke")
        )
        assert revoked.json()["lessons"] == 1
    assert MARK not in str(rows(api.setup.store.url, "select * from answer"))
    for _ in range(2):
        refused = api.post("/v1/loops/a/notes", json=note, headers=once("n"))
        problem(refused, 409, "answer_removed")
    other = api.post("/v1/loops/a/notes", json={"text": "b"}, headers=once("n"))
    problem(other, 422, "idempotency_key_reused")
    assert len(api.get("/v1/loops/a").json()["notes"]) == 1
    recorded_call = api.run(api.setup.store.read(MINE, read_call, unfinished))
    assert recorded_call.effects[0]["name"] == "exposures.remember"


KILLED = """
import os, signal, sys
from pathlib import Path
from heedful_server import middleware
from tests.service.support import served
from tests.service.test_once import REMEMBER, with_route

def killed(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

middleware.keep_answer = killed  # after the effect, before the answer
with served(Path(sys.argv[1])) as api:
    key = with_route(api).key("read", "write")
    Path(sys.argv[1], "key").write_text(key)
    api.post(REMEMBER, json={"error_type": "TypeError", "text": "a"}, key=key,
             headers={"Idempotency-Key": "r"})
"""


@pytest.mark.nightly
@pytest.mark.sqlite
def test_killed_between_effect_and_answer_it_is_not_done_twice(tmp_path):
    run = [sys.executable, "-c", KILLED, str(tmp_path)]
    environment = {**unmeasured(), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(run, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    file = tmp_path / "heedful.db"
    key = (tmp_path / "key").read_text()
    assert rows(file, "select n from answer") == [(0,)]
    with served(tmp_path) as api:
        body = {"error_type": "TypeError", "text": "a"}
        for _ in range(2):
            again = with_route(api).post(
                REMEMBER, json=body, key=key, headers=once("r")
            )
            assert again.json() == {"id": 1, "seen": 1}
            assert again.headers["Idempotent-Replayed"] == "true"
        assert rows(file, "select seen from lesson") == [(1,)]
        assert sorted(rows(file, "select n from answer")) == [(-1,), (0,)]


# What stands beside the effects of a call

CALL = IdempotentCall(tenant="default", caller="caller", once="once", digest="digest")


@pytest.fixture
def store(tmp_path):
    with opened(tmp_path / "a.db") as store:
        yield store


async def test_an_answer_is_forgotten_after_a_day(store, tmp_path):
    async def keep(status: int) -> None:
        await store.write(Scope(), keep_answer, CALL, {"status": status}, 0)

    await keep(200)
    assert (await store.read(Scope(), read_call, CALL)).answer == {"status": 200}
    with pytest.raises(LeaseLost):
        await keep(201)
    change_rows(store.url, "update answer set at = at - 86401")
    assert (await store.read(Scope(), read_call, CALL)).digest == ""
    await keep(202)
    assert rows(store.url, "select record from answer") == [('{"status": 202}',)]


async def test_the_result_of_an_effect_comes_back_as_it_was(store):
    value = [Remembered(1, True, seen=2)], {"a": ["x", 0.5]}, frozenset({"text"}), None

    @resumable(
        result=tuple[list[Remembered], Mapping[str, Any], frozenset[str], int | None]
    )
    def work(db: Any, scope: Scope) -> Any:
        return value

    with Effects(CALL):
        assert await store.write(SCOPE, work) == value
    earlier = await store.read(SCOPE, read_call, CALL)
    with Effects(CALL, known=earlier.effects):
        assert await store.write(SCOPE, work) == value
    with pytest.raises(LookupError, match="within"):
        also(lambda db: None)


async def test_a_key_that_a_repeated_call_creates_again_is_refused(store):
    with Effects(CALL):
        first, _ = await keys.create(store, TENANT, "a")
    earlier = await store.read(SCOPE, read_call, CALL)
    with Effects(CALL, known=earlier.effects), pytest.raises(Conflict) as refusal:
        await keys.create(store, TENANT, "a")
    assert f"heedful key revoke {first.id}" in str(refusal.value)
    assert rows(store.url, "select id from key") == [(first.id,)]

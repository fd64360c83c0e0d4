"""Keys: made, used, bound, revoked; what a caller may; the audit of it."""

import hashlib
import json
import time
from functools import partial
from typing import Any

import pytest

from heedful.errors import Conflict, NotFound
from heedful.lessons.lesson import Scope
from heedful.store import keys
from heedful_server.setup import MAX_CACHE_SECONDS
from tests.engines import rows
from tests.service.support import problem

pytestmark = pytest.mark.both_nightly
ACME = Scope("acme")


def create_key(api, name="made", projects=("main",), may=("read", "write"), **more):
    more |= {"projects": projects, "may": may, "by": "ops"}
    return api.run(keys.create(api.setup.store, "acme", name, **more))


def revoke(api, key):
    return api.run(api.setup.store.write(ACME, keys.revoke, key.id, "ops"))


def test_a_key_is_told_once_and_only_its_hash_is_kept(api):
    key, text = create_key(api)
    id, secret = text.split("_")[1:]
    assert key.id == id
    assert key.shown == f"heedful_{id}"
    assert len(secret) == 64
    listed = {item["id"]: item for item in api.get("/v1/keys").json()["items"]}[id]
    assert listed["key"] == key.shown
    assert listed["may"] == ["read", "write"]
    assert listed["revoke"] == ""
    stored_hash = rows(api.setup.store.url, "select hash from key where id = ?", id)
    assert stored_hash == [(hashlib.sha256(secret.encode()).hexdigest(),)]
    for table in ("key", "audit"):
        assert secret not in str(rows(api.setup.store.url, f"select * from {table}"))
    with pytest.raises(Conflict, match=id):
        api.run(api.setup.store.write(ACME, keys.insert, key, "hash"))
    assert api.run(keys.holder(api.setup.store, text)) == key


def test_unknown_wrong_revoked_and_expired_keys_are_refused(api):
    def refused(header: str) -> None:
        answer = api.get("/v1/keys", key="", headers={"Authorization": header.encode()})
        problem(answer, 401, "key_refused")
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="heedful"'

    good_key, text = create_key(api, may=["admin"])
    wrong = text[:-1] + ("0" if text[-1] != "0" else "1")
    for key in ("heedful_000000000000_" + 64 * "0", "sk-x", wrong, wrong + "é"):
        refused(f"Bearer {key}")
    refused(f"Basic {text}")
    assert api.get("/v1/keys", key=text).status_code == 200
    assert revoke(api, good_key) == revoke(api, good_key)
    time.sleep(MAX_CACHE_SECONDS + 0.05)
    refused(f"Bearer {text}")
    _, short = create_key(api, may=["admin"], expires=time.time() + 0.3)
    time.sleep(0.35)
    refused(f"Bearer {short}")


NAMED = {"loop_id": "loop_001", "reflection_status": 3, "task": None, "tenant": "acme"}
LARGE = json.dumps({**NAMED, "summary": 70_000 * "x"}).encode()
DENSE = json.dumps({**NAMED, "bias_tags": 20_000 * [{}]}).encode()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/orchestrator/loop-complete"),
        ("POST", "/v1/validate"),
        ("PUT", "/v1/loops/loop_001"),
        ("POST", "/v1/quarantine/revoke"),
    ],
)
def test_who_may_not_is_refused_before_the_body_is_checked(api, method, path):
    small = json.dumps(NAMED).encode()
    broken = (b"{", b'"\xff"', b"[]", b"null", LARGE[:-1], 70_000 * b"[")
    callers = (
        ("", 401),
        (api.key("recall"), 403),
        (api.key(*keys.KEY_PERMISSIONS), 422),
    )
    ask: Any = partial(
        api.request, method, path, headers={"content-type": "application/json"}
    )
    for body in (small, LARGE, DENSE, *broken):
        for key, status in callers:
            answer = ask(key=key, content=body)
            is_json = body not in (b"{", b'"\xff"', LARGE[:-1])
            if status == 422 and path.startswith("/v1/") and not is_json:
                status = 400
            assert answer.status_code == status, (body[:9], answer.text)
            if path.startswith("/orchestrator") and status != 401:
                assert answer.json()["loop_id"] == (
                    None if body in broken else "loop_001"
                )
    for body in (small, LARGE, DENSE):
        answer = ask(content=body.replace(b"acme", b"rival"))
        assert answer.status_code == 403
        assert ("tenant" in answer.text) is True


def test_a_tenant_sees_its_own_and_what_is_done_is_on_record(api):
    (mine, _) = create_key(api, "mine")
    other = api.key("read", "admin", tenant="other", projects=())
    ids = [item["id"] for item in api.get("/v1/keys", key=other).json()["items"]]
    assert mine.id not in ids
    with pytest.raises(NotFound):
        api.run(api.setup.store.write(Scope("other"), keys.revoke, mine.id, "ops"))
    (theirs,) = api.get("/v1/audit", key=other).json()["items"]
    assert theirs["subject"] == "tests"
    revoke(api, mine)
    revoked, created = api.get("/v1/audit?limit=2").json()["items"]
    assert revoked["action"] == "key.revoke"
    assert revoked["subject"] == mine.id
    assert created["action"] == "key.create"
    assert created["subject"] == "mine"
    assert created["by"] == "ops"
    assert revoked["n"] == created["n"] + 1


def test_a_key_of_a_project_reads_the_keys_and_the_audit_of_this_project_alone(api):
    free = api.key("read", "write", "admin", projects=())
    for name, projects in (
        ("all", ()),
        ("both", ("main", "other")),
        ("other", ("other",)),
    ):
        create_key(api, name, projects)
    project_key, text = create_key(api, "own", may=["admin"])
    read = {path: api.get(f"/v1/{path}", key=text).json() for path in ("keys", "audit")}
    assert {tuple(item["projects"]) for item in read["keys"]["items"]} == {("main",)}
    assert [item["subject"] for item in read["audit"]["items"]] == ["own", "tests"]
    revoke(api, project_key)
    revoked, *others = api.get("/v1/audit").json()["items"]
    assert revoked["action"] == "key.revoke"
    assert revoked["projects"] == ["main"]
    assert len(others) < len(api.get("/v1/audit", key=free).json()["items"]) - 1


def test_ids_tell_nothing_of_other_tenants(api):
    def learnt(tenant):
        body = {
            "error_type": "E",
            "text": f"{next(words)} has no source",
            "lesson": "no.",
        }
        answer = api.post("/v1/reflections", json=body, key=writers[tenant]).json()
        return answer["id"], answer["entry"]

    words = iter("pot pan lid cup jug mug tin urn".split())
    writers = {
        name: api.key(tenant=name, projects=(), outside=True)
        for name in ("acme", "busy", "late")
    }
    first = learnt("acme")
    busy = [learnt("busy") for _ in range(5)]
    assert learnt("acme") == (first[0] + 1, first[1] + 1)
    late = learnt("late")
    bases = {id // 10**8 for id in (*first, *busy[0], *late)}
    assert len(bases) == 3
    assert max(map(max, (*busy, late))) < 2**53

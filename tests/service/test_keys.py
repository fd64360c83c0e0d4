"""Keys: made, used, bound, revoked; what a caller may; the audit of it."""

import asyncio
import hashlib
import sqlite3
import time
from contextlib import closing

import pytest

from heedful.errors import InvalidInput
from heedful.lessons.lesson import Scope
from heedful.service.auth import KNOWN_FOR
from heedful.store import keys
from heedful.store.sqlite import File
from heedful.store.store import Store
from tests.engines import changed, rows
from tests.service.support import problem, served

pytestmark = pytest.mark.both


@pytest.fixture
def api(tmp_path):
    with served(tmp_path) as api:
        yield api


def made(api, **fields):
    fields = {"name": "made", "projects": ["main"], **fields}
    answer = api.post("/v1/keys", json=fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_a_key_is_told_once_and_only_its_hash_is_kept(api):
    one = made(api)
    id, secret = one["secret"].split("_")[1:]
    assert (one["id"], one["key"], len(secret)) == (id, f"heedful_{id}", 64)
    shown = {item["id"]: item for item in api.get("/v1/keys").json()["items"]}[id]
    assert "secret" not in shown
    assert shown == {name: value for name, value in one.items() if name != "secret"}
    kept = rows(api.setup.store.url, "select hash from key where id = ?", id)
    assert kept == [(hashlib.sha256(secret.encode()).hexdigest(),)]
    for table in ("key", "audit", "answer"):
        assert secret not in str(rows(api.setup.store.url, f"select * from {table}"))


def test_use_is_written_down_once_a_minute(api):
    one = made(api, may=["admin"])
    used = []
    for _ in range(2):
        api.get("/v1/keys", key=one["secret"])
        items = api.get("/v1/keys").json()["items"]
        used += [item["used"] for item in items if item["id"] == one["id"]]
    assert used[0] == used[1]
    assert time.time() - used[0] < 60


@pytest.mark.sqlite
def test_where_nothing_can_be_written_a_key_is_still_good(tmp_path, caplog):
    path = tmp_path / "a.db"

    async def scenario() -> None:
        store = Store(str(path), File(str(path), 0.05))
        made, text = await keys.create(store, "acme", "a")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("begin immediate")
            assert (await keys.holder(store, text)).id == made.id
            assert f"the use of key {made.id} was not written down" in caplog.text
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "key",
    [
        "heedful_000000000000_" + 64 * "0",
        "heedful_x_y",
        "sk-something",
        "heedful_000000000000_" + 63 * "0" + "é",
    ],
)
def test_unknown_keys_are_refused(api, key):
    answer = api.get("/v1/keys", key="", headers={"Authorization": f"Bearer {key}".encode()})
    problem(answer, 401, "key_refused")
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="heedful"'


def test_another_secret_another_scheme_revoked_or_expired_is_refused(api):
    one = made(api, may=["admin"])
    assert api.get("/v1/keys", key=one["secret"]).status_code == 200
    wrong = one["secret"][:-1] + ("0" if one["secret"][-1] != "0" else "1")
    problem(api.get("/v1/keys", key=wrong), 401, "key_refused")
    basic = api.get("/v1/keys", key="", headers={"Authorization": f"Basic {one['secret']}"})
    problem(basic, 401, "key_refused")
    revoked = api.delete(f"/v1/keys/{one['id']}").json()
    assert revoked["revoked"] == api.delete(f"/v1/keys/{one['id']}").json()["revoked"]
    problem(api.get("/v1/keys", key=one["secret"]), 401, "key_refused")
    short = made(api, may=["admin"], expires=time.time() + 0.3)
    time.sleep(0.35)
    problem(api.get("/v1/keys", key=short["secret"]), 401, "key_refused")


def test_a_key_that_is_revoked_elsewhere_is_refused_soon(api):
    one = made(api, may=["admin"])
    assert api.get("/v1/keys", key=one["secret"]).status_code == 200
    api.run(api.setup.store.write(Scope("acme"), keys.revoke, one["id"]))
    time.sleep(KNOWN_FOR + 0.05)
    problem(api.get("/v1/keys", key=one["secret"]), 401, "key_refused")


def test_each_scope_is_its_own(api):
    for may in (("read",), ("write",), ("approve",), ("read", "write", "approve")):
        told = problem(api.get("/v1/keys", key=api.key(*may)), 403, "forbidden")
        assert "may admin" in told["detail"]


def test_no_key_makes_one_that_may_more(api):
    bound = api.key("read", "admin")
    for more, code in (
        ({"may": ["write"]}, "forbidden"),
        ({"projects": []}, "forbidden"),
        ({"projects": ["other"]}, "forbidden"),
        ({"tenant": "other"}, "tenant_mismatch"),
    ):
        new = {"name": "more", "projects": ["main"], "may": ["read"], **more}
        problem(api.post("/v1/keys", json=new, key=bound), 403, code)
    fine = {"name": "same", "projects": ["main"], "may": ["read"], "tenant": "acme"}
    assert api.post("/v1/keys", json=fine, key=bound).status_code == 201
    free = api.key("read", "admin", projects=())
    assert api.post("/v1/keys", json={**fine, "projects": []}, key=free).status_code == 201


def test_a_tenant_sees_its_own(api):
    other = api.key("read", "admin", tenant="other", projects=())
    one = made(api)
    ids = [item["id"] for item in api.get("/v1/keys", key=other).json()["items"]]
    assert one["id"] not in ids
    problem(api.delete(f"/v1/keys/{one['id']}", key=other), 404, "not_found")
    problem(api.get("/v1/keys?tenant=acme", key=other), 403, "tenant_mismatch")
    assert api.get("/v1/keys?tenant=other", key=other).status_code == 200
    assert all(row["by"] != "tests" for row in api.get("/v1/audit", key=other).json()["items"])


def test_pages_hold_each_key_once(api):
    whole = [item["id"] for item in api.get("/v1/keys?limit=200").json()["items"]]
    found, cursor = [], ""
    while cursor is not None:
        page = api.get(f"/v1/keys?limit=2{cursor and '&cursor=' + cursor}").json()
        found += [item["id"] for item in page["items"]]
        cursor = page["next"]
    assert found == whole
    assert len(set(found)) == len(found)
    for wrong in ("x", "WzFd", "WyJhIiwgImIiXQ", "W05hTiwgImIiXQ", "W" * 300):
        problem(api.get(f"/v1/keys?cursor={wrong}"), 422, "invalid_input")


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"name": ""}, "/name"),
        ({"name": "a", "may": ["fly"]}, "/may/0"),
        ({"name": "a", "may": []}, "/may"),
        ({"name": "a", "more": 1}, "/more"),
        ({"name": "a\n"}, "/name"),
        ({"name": "a", "expires": 1.0}, "/expires"),
    ],
)
def test_what_is_wrong_is_pointed_at(api, fields, pointer):
    answer = api.post("/v1/keys", json={"projects": ["main"], **fields})
    assert answer.status_code == 422
    assert [one["pointer"] for one in answer.json()["errors"]] == [pointer]


def test_the_store_asks_for_scopes_it_knows(api):
    with pytest.raises(InvalidInput, match="may is"):
        api.run(keys.create(api.setup.store, "acme", "a", may=["fly"]))


def test_what_is_done_with_keys_is_on_record(api):
    one = made(api, name="recorded")
    api.delete(f"/v1/keys/{one['id']}")
    revoked, created = api.get("/v1/audit?limit=2").json()["items"]
    assert (revoked["action"], revoked["subject"]) == ("key.revoke", one["id"])
    assert (created["action"], created["subject"]) == ("key.create", "recorded")
    detail = {"id": one["id"], "projects": ["main"], "may": ["read", "write"]}
    assert created["detail"] == detail
    assert created["by"].startswith("tests (")
    assert revoked["n"] == created["n"] + 1
    before = api.get("/v1/audit").json()["items"]
    problem(api.delete("/v1/keys/none"), 404, "not_found")
    assert api.get("/v1/audit").json()["items"] == before  # what was not done is not told


def test_the_audit_comes_in_pages(api):
    for n in range(3):
        made(api, name=f"key {n}")
    whole = api.get("/v1/audit?limit=200").json()["items"]
    page = api.get("/v1/audit?limit=1").json()
    rest = api.get(f"/v1/audit?limit=200&cursor={page['next']}").json()
    assert page["items"] + rest["items"] == whole
    assert rest["next"] is None


@pytest.mark.parametrize(
    ("tamper", "what"),
    [
        ("update audit set subject = 'x' where n = 2", "row 2 is not what was written"),
        ("update audit set at = at + 1 where n = 2", "row 2 is not what was written"),
        ("delete from audit where n = 2", "row 2 is missing"),
        ("delete from audit where n = 1", "row 1 is missing"),
        ("delete from audit where n = 3", "row 3 is missing"),
    ],
)
def test_a_row_that_is_changed_or_missing_is_found(tmp_path, tamper, what):
    with served(tmp_path) as api:
        for n in range(3):
            made(api, name=f"key {n}")
        look = api.setup.store.apart
        whole = api.run(look(Scope("acme"), keys.verify_audit))
        assert (whole.rows, whole.broken) == (3, 0)
        changed(tmp_path / "heedful.db", tamper)
        broken = api.run(look(Scope("acme"), keys.verify_audit))
        assert (broken.what, broken.head) == (what, whole.head)
        assert api.run(look(Scope("nobody"), keys.verify_audit)).rows == 0


def test_a_chain_that_is_written_anew_lacks_the_hash_that_was_kept(tmp_path):
    with served(tmp_path) as api:
        look = api.setup.store.apart
        for n in range(3):
            made(api, name=f"key {n}")
        kept = api.run(look(Scope("acme"), keys.verify_audit)).head
        made(api, name="one more")
        assert not api.run(look(Scope("acme"), keys.verify_audit, kept)).broken
        for table in ("audit", "audit_head"):
            changed(tmp_path / "heedful.db", f"delete from {table}")
        made(api, name="as if nothing was")
        assert not api.run(look(Scope("acme"), keys.verify_audit)).broken
        assert kept in api.run(look(Scope("acme"), keys.verify_audit, kept)).what

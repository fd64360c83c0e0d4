"""Whether the service lives, and can work; who is let in."""

import asyncio

import httpx
import pytest

from heedful.service.app import application
from heedful.service.setup import Setup
from heedful.store.sqlite import in_file
from tests.service.jobs import Handed
from tests.service.support import problem, served


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with served(tmp_path_factory.mktemp("http")) as api:
        yield api


def test_it_lives_and_is_ready(api):
    assert api.get("/healthz", key="").json() == {"status": "ok"}
    assert api.get("/readyz", key="").json() == {
        "status": "ready",
        "store": "ok",
        "work": "ok",
    }


def test_without_a_key_nobody_learns_what_there_is(api):
    told = problem(api.get("/v1/nothing", key=""), 401, "key_refused")
    assert "Authorization" in told["detail"]
    problem(api.get("/v1/nothing", key="heedful_0_0"), 401, "key_refused")
    problem(api.get("/v1/nothing"), 404, "unknown_path")
    problem(api.post("/healthz"), 405, "method_not_allowed")


def test_it_lives_without_its_store_and_says_that_it_cannot_work(tmp_path):
    store = in_file(str(tmp_path / "nowhere" / "a.db"))
    work = Handed()
    work.away = True
    app = application(Setup(store, work=work))

    async def scenario() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            key = {"Authorization": f"Bearer heedful_{12 * '0'}_{64 * '0'}"}
            paths = ("/healthz", "/readyz", "/metrics")
            answers = [await client.get(path) for path in paths]
            return [*answers, await client.get("/v1/keys", headers=key)]

    healthy, ready, metrics, keys = asyncio.run(scenario())
    assert healthy.status_code == 200
    assert (ready.status_code, ready.json()) == (
        503,
        {"status": "unavailable", "store": "StoreUnavailable", "work": "StoreUnavailable"},
    )
    assert metrics.status_code == 200
    assert problem(keys, 503, "store_unavailable")["detail"] == (
        "the store of the service failed; the log has its error"
    )
    assert keys.headers["retry-after"] == "1"


def test_with_its_store_back_it_is_ready(tmp_path):
    with served(tmp_path) as api:
        file = tmp_path / "heedful.db"
        api.run(api.setup.store.close())
        file.rename(tmp_path / "moved.db")
        file.mkdir()
        assert api.get("/readyz", key="").status_code == 503
        api.run(api.setup.store.close())
        file.rmdir()
        (tmp_path / "moved.db").rename(file)
        assert api.get("/readyz", key="").status_code == 200
        assert api.get("/v1/keys").status_code == 200

"""Whether the service lives, and can work; who is let in."""

import asyncio

import httpx

from heedful.service.app import application
from heedful.service.setup import Setup
from heedful.store.sqlite import in_file
from tests.service.jobs import Handed
from tests.service.support import problem, served


def test_it_lives_and_is_ready_and_without_a_key_nobody_learns_what_there_is(tmp_path):
    with served(tmp_path) as api:
        assert api.get("/healthz", key="").json() == {"status": "ok"}
        ready = {"status": "ready", "store": "ok", "work": "ok"}
        assert api.get("/readyz", key="").json() == ready
        told = problem(api.get("/v1/nothing", key=""), 401, "key_refused")
        assert "Authorization" in told["detail"]
        problem(api.get("/v1/nothing"), 404, "unknown_path")
        problem(api.post("/healthz"), 405, "method_not_allowed")

        file, moved = tmp_path / "heedful.db", tmp_path / "moved.db"
        api.run(api.setup.store.close())
        file.rename(moved)
        file.mkdir()
        assert api.get("/readyz", key="").status_code == 503
        api.run(api.setup.store.close())
        file.rmdir()
        moved.rename(file)
        assert api.get("/readyz", key="").status_code == 200
        assert api.get("/v1/keys").status_code == 200


def test_it_lives_without_its_store_and_says_that_it_cannot_work(tmp_path):
    work = Handed()
    work.away = True
    app = application(Setup(in_file(str(tmp_path / "nowhere" / "a.db")), work=work))

    async def scenario() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            key = {"Authorization": f"Bearer heedful_{12 * '0'}_{64 * '0'}"}
            paths = ("/healthz", "/readyz", "/metrics", "/v1/keys")
            return [await client.get(path, headers=key) for path in paths]

    healthy, ready, metrics, keys = asyncio.run(scenario())
    assert (healthy.status_code, ready.status_code, metrics.status_code) == (200, 503, 200)
    away = {"status": "unavailable", "store": "StoreUnavailable", "work": "StoreUnavailable"}
    assert ready.json() == away
    told = problem(keys, 503, "store_unavailable")
    assert told["detail"] == "the store of the service failed; the log has its error"
    assert keys.headers["retry-after"] == "1"

"""Whether the service lives, and can work; who is let in."""

import pytest

from tests.http.support import problem, served


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
    problem(api.get("/v1/nothing", key="errata_0_0"), 401, "key_refused")
    problem(api.get("/v1/nothing"), 404, "unknown_path")
    problem(api.post("/healthz"), 405, "method_not_allowed")

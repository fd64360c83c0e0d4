"""Two services in one process share their routes, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful_server.setup import RequestLimits
from tests.service.support import Api, problem, read_data
from tests.web.support import Browser, browsing

MAX_BODY_BYTES = 400
MCP_HEADERS = {"accept": "application/json, text/event-stream"}


@pytest.fixture
def services(tmp_path: Path) -> Iterator[tuple[Browser, Browser]]:
    """A browser on each service; the second one is read-only and takes short bodies.

    Each service has a loop `mine`, whose task is the name of the service.
    """
    limits = RequestLimits(body=MAX_BODY_BYTES)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()

    with (
        browsing(tmp_path / "first") as first,
        browsing(tmp_path / "second", read_only=True, limits=limits) as second,
    ):
        for browser, name in ((first, "first"), (second, "second")):
            browser.open(browser.api._all)
            read_data(browser.api.put("/v1/loops/mine", json={"task": name}), 201)
        yield first, second


def explained_over_mcp(api: Api, loop: str) -> str:
    """Return what the MCP endpoint of a service says of a loop."""
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "explain", "arguments": {"loop": loop}},
    }
    return str(api.post("/mcp", headers=MCP_HEADERS, json=call).text)


def test_each_service_answers_from_its_own_store(services):
    first, second = services
    read_data(first.api.put("/v1/loops/other", json={"task": "other"}), 201)

    for browser, name in ((first, "first"), (second, "second")):
        assert read_data(browser.api.get("/v1/loops/mine"))["task"] == name
        assert browser.data("/loops/mine")["task"] == name
        assert "would_change" in explained_over_mcp(browser.api, "mine")
    assert "would_change" in explained_over_mcp(first.api, "other")
    assert "not_found" in explained_over_mcp(second.api, "other")
    problem(second.api.get("/v1/loops/other"), 404, "not_found")
    assert second.get("/loops/other").status_code == 404


def test_a_key_and_a_session_of_one_service_are_none_of_the_other(services):
    first, second = services
    problem(second.api.get("/v1/loops", key=first.api._all), 401, "key_refused")
    assert first.get("/loops").status_code == 200

    second.client.cookies = first.client.cookies

    assert second.get("/loops").status_code == 303
    assert second.get("/loops.json").status_code == 401


def test_each_service_has_its_own_limits(services):
    first, second = services
    note = {"text": MAX_BODY_BYTES * "x"}
    read_data(first.api.post("/v1/loops/mine/notes", json=note), 201)
    refusal = second.api.post("/v1/loops/mine/notes", json=note)
    problem(refusal, 413, "body_too_large")

    for browser, status in ((first, 303), (second, 403)):
        form = {"token": browser.token, "id": "mine", "why": "enough"}
        assert browser.post("/do/cancel", form).status_code == status
    assert read_data(first.api.get("/v1/loops/mine"))["cancelled"]
    assert not read_data(second.api.get("/v1/loops/mine"))["cancelled"]

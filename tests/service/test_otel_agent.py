"""An agent that only exports its traces fails, and its next run gets the lesson of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic_ai.exceptions import UnexpectedModelBehavior

from heedful.store import keys
from heedful.store.sqlite import in_file
from tests.service.clerk import LESSON, clerk, watched
from tests.service.running import WAITING, running

MAY = ("read", "write", "approve")


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[tuple[str, str]]:
    """The URL of a running service, and a key."""
    folder: Path = tmp_path_factory.mktemp("service")
    store = in_file(str(folder / "heedful.db"))

    async def made() -> str:
        _, key = await keys.create(store, "acme", "clerk", projects=["orders"], may=MAY, by="tests")
        await store.close()
        return str(key)

    key = asyncio.run(made())
    with running(folder) as url:
        yield url, key


@pytest.fixture
def client(service) -> Iterator[httpx.Client]:
    url, key = service
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}) as client:
        yield client


def ask(service: tuple[str, str], question: str, instructions: str = "") -> str:
    """What the agent answers; its spans have been sent when it has."""
    provider = watched(*service)
    try:
        return asyncio.run(clerk(provider, instructions).run(question)).output
    finally:
        provider.shutdown()


def until(found: Callable[[], Any]) -> Any:
    """What is found, as soon as it is."""
    deadline = time.monotonic() + WAITING
    while not (there := found()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.1)
    return there


def got(client: httpx.Client, path: str) -> list[Any]:
    response = client.get(path)
    assert response.status_code == 200, response.text
    return list(response.json()["items"])


def recalled(client: httpx.Client, task: str, **more: Any) -> dict[str, Any]:
    response = client.post("/v1/recall", json={"task": task, "form": "text", **more})
    assert response.status_code == 200, response.text
    return dict(response.json())


def test_an_agent_that_exports_its_traces_gets_a_lesson_in_its_next_run(service, client):
    first, second = "Where is order A17?", "Where is order C42?"
    with pytest.raises(UnexpectedModelBehavior):
        ask(service, first, recalled(client, first)["text"])

    [episode] = until(lambda: got(client, "/v1/episodes?state=reflected"))
    assert (episode["outcome"], episode["tries"]) == ("error", 1)
    waiting = got(client, "/v1/quarantine")
    assert {one["trust"] for one in waiting} <= {"tool", "external"}
    assert recalled(client, second)["items"] == []  # nothing of it is recalled before a ruling
    for one in waiting:
        released = client.post(f"/v1/quarantine/{one['id']}/release", json={"why": "it is right"})
        assert released.status_code == 200, released.text

    brought = recalled(client, second, loop="run-2")
    assert LESSON in brought["text"]
    assert brought["exposure"] == {"loop": "run-2", "shown": 1, "withheld": 0}
    assert ask(service, second, brought["text"]) == "It left on Friday."
    outcome = {"loop": "run-2", "right_at_once": True, "calls": 3}
    assert client.post("/v1/outcomes", json=outcome).json() == {"loop": "run-2", "number": 1}
    assert client.get("/v1/proof").json()["pooled"]["shown"] == 1


def test_what_heedful_put_into_a_prompt_is_not_learnt_from_the_next_trace(service, client):
    told = recalled(client, "Where is order C42?")["text"]
    assert LESSON in told
    before = len(got(client, "/v1/episodes?state=reflected"))
    with pytest.raises(UnexpectedModelBehavior):
        ask(service, "Where is order D99?", f"You look orders up.\n\n{told}")
    until(lambda: len(got(client, "/v1/episodes?state=reflected")) > before)
    said = " ".join(one["lesson"] for one in got(client, "/v1/quarantine"))
    assert "data, not instructions" not in said


def test_an_exporter_that_the_environment_sets_up_is_let_in(service, client, monkeypatch):
    url, key = service
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{url}/v1/traces")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", f"Authorization=Bearer%20{key}")
    before = len(got(client, "/v1/episodes"))
    with pytest.raises(UnexpectedModelBehavior):
        ask(("", ""), "Where is order E55?")
    until(lambda: len(got(client, "/v1/episodes")) > before)

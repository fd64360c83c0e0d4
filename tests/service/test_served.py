"""A service hands work over and a worker does it: in the trace of the request, and in metrics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from heedful.lessons.lesson import Scope
from heedful.service.jobs import Tools
from heedful.service.setup import Setup
from heedful.service.worker import PostgresQueue
from heedful.store import episodes, open_store
from tests.postgres import Urls
from tests.service.support import PROJECT, TENANT, Api
from tests.test_telemetry import PARENT, Told, told  # noqa: F401 - a fixture

RUN = {
    "task": "Find the price of pot.",
    "outcome": "failure",
    "events": [{"type": "tool_call", "tool": "price", "error": "pot is not in the catalogue"}],
}


@pytest.fixture
def api(postgres: Urls) -> Iterator[Api]:
    queue = PostgresQueue(postgres.service)
    one = Api(Setup(open_store(postgres.service), work=queue))
    one.run(queue.__aenter__())
    yield one
    one.run(queue.__aexit__(None, None, None))
    one.close()


def jobs(api: Api) -> dict[str, float]:
    """What /metrics says of work."""
    lines = api.get("/metrics", key="").text.splitlines()
    pairs = (line.rpartition(" ") for line in lines if line.startswith("heedful_jobs"))
    return {name: float(number) for name, _, number in pairs}


def test_an_episode_is_reflected_on_by_a_worker_in_the_trace_of_its_request(
    api: Api,
    postgres: Urls,
    told: Told,  # noqa: F811
) -> None:
    told.begin()
    for _ in range(2):
        answer = api.post("/v1/episodes", json=RUN, headers={"traceparent": PARENT})
        assert (answer.status_code, answer.json()["state"]) == (202, "waiting"), answer.text
    waiting = '{queue="reflection",state="waiting"}'
    numbers = jobs(api)
    assert numbers[f"heedful_jobs{waiting}"] == 1
    assert numbers[f"heedful_jobs_oldest_seconds{waiting}"] >= 0

    async def worked() -> None:
        async with PostgresQueue(postgres.service) as worker:
            await worker.work(Tools(open_store(postgres.service)), once=True)

    api.run(worked())
    assert waiting not in "".join(jobs(api))
    assert api.post("/v1/episodes", json=RUN).status_code == 200
    counts = api.run(api.setup.store.read(Scope(TENANT, PROJECT), episodes.counts))
    assert counts == {"reflected": 1}
    task = told.spans("heedful.task reflect")[0]
    request = told.spans("POST /v1/episodes")[0]
    assert task.parent.span_id == request.context.span_id
    assert format(task.context.trace_id, "032x") == PARENT.split("-")[1]
    assert dict(request.attributes) == {
        "http.request.method": "POST",
        "http.route": "/v1/episodes",
        "http.response.status_code": 202,
    }


def test_an_attempt_that_is_reported_is_told_of_in_the_span_of_its_request(
    api: Api,
    told: Told,  # noqa: F811
) -> None:
    told.begin()
    api.put("/v1/loops/l1", json={"task": "t", "goals": ["tone >= 0.8"]})
    evaluation = {"scores": {"tone": 0.25}, "findings": []}
    answer = api.put("/v1/loops/l1/attempts/1", json={"output": "x", "evaluation": evaluation})
    assert answer.status_code == 200, answer.text
    request = told.spans("PUT /v1/loops")[-1]
    (event,) = request.events
    assert event.name == "gen_ai.evaluation.result"
    assert event.attributes["gen_ai.evaluation.score.value"] == 0.25
    assert request.attributes["heedful.decision"] == "again"


def test_spans_that_come_in_and_looks_at_health_make_no_spans(api: Api, told: Told) -> None:  # noqa: F811
    told.begin()
    api.get("/healthz")
    api.post("/v1/traces", json={"resourceSpans": []})
    api.get("/v1/nothing")
    assert [one.name for one in told.spans()] == ["GET (none)"]

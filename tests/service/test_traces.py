"""Episodes and traces over HTTP: taken once, reflected on, and what cannot be kept is told."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from heedful.lessons.lesson import Scope
from heedful.memory.ingest import Patience
from heedful.store import episodes
from tests.service.jobs import Handed
from tests.service.support import Api, problem, served
from tests.traces.runs import TRACE, Data, document, genai, protobuf

PROTOBUF = {"Content-Type": "application/x-protobuf"}
RUN = {
    "task": "Where is order A-17?",
    "outcome": "failure",
    "events": [
        {"type": "user_message", "content": "Where is order A-17?"},
        {"type": "tool_call", "tool": "find_order", "arguments": {"id": "A17"}, "call": "c1"},
        {"type": "tool_response", "tool": "find_order", "call": "c1", "error": "no order A17"},
        {"type": "llm_response", "content": "There is no such order."},
    ],
}


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    patience = Patience(settled=0.01, missing=0.5)
    folder = tmp_path_factory.mktemp("http")
    with served(folder, patience=patience, work=Handed()) as api:
        yield api


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name[:100])


@pytest.fixture
def project(api: Api, name: str) -> dict[str, Any]:
    """A key for a project of its own."""
    return {"key": api.key("read", "write", "approve", projects=[name])}


def said(response: Any, status: int = 200) -> Any:
    assert response.status_code == status, response.text
    return response.json()


def handed(api: Api, name: str) -> list[tuple[str, dict[str, Any]]]:
    work: Any = api.setup.work
    return [(task, more) for task, scope, more in work.jobs if scope.project == name]


def listed(api: Api, project: dict[str, Any], query: str = "") -> list[Any]:
    return list(said(api.get(f"/v1/episodes{query}", **project))["items"])


def gathered(api: Api, project: dict[str, Any], number: int = 1) -> list[Any]:
    """The episodes, as soon as there are so many."""

    async def waited() -> None:
        looks = list(api.app.state.collector._tasks.values())
        await asyncio.wait_for(asyncio.gather(*looks), 30)

    api.run(waited())
    found = listed(api, project)
    assert len(found) == number
    return found


def test_an_episode_is_taken_once_and_handed_over(api, project, name):
    taken = said(api.post("/v1/episodes", json=RUN, **project), 202)
    assert (taken["state"], taken["taught"]) == ("waiting", None)
    assert said(api.post("/v1/episodes", json=RUN, **project), 202) == taken
    assert set(map(str, handed(api, name))) == {str(("reflect", {"digest": taken["digest"]}))}
    [one] = listed(api, project)
    assert (one["digest"], one["outcome"], one["tries"]) == (taken["digest"], "failure", 0)
    assert listed(api, project, "?state=waiting") == [one]
    assert listed(api, project, "?state=failed") == []


def test_an_episode_that_is_waited_for_is_reflected_on(api, project, name):
    done = said(api.post("/v1/episodes?wait=true", json=RUN, **project))
    assert (done["state"], done["taught"]["by"]) == ("reflected", "rules")
    assert "no order A17" in done["taught"]["text"]
    assert done["taught"]["quarantined"] is True
    assert [one["created"] for one in done["taught"]["written"]] == [True, True]
    again = said(api.post("/v1/episodes", json=RUN, **project))
    assert (again["state"], handed(api, name)) == ("reflected", [])
    once_more = said(api.post("/v1/episodes?wait=true", json=RUN, **project))
    assert (once_more["taught"]["known"], once_more["taught"]["written"]) == (0, [])


def test_episodes_come_page_by_page(api, project):
    digests = [
        said(api.post("/v1/episodes", json={**RUN, "id": f"run {n}"}, **project), 202)["digest"]
        for n in range(5)
    ]
    first = said(api.get("/v1/episodes?limit=3", **project))
    rest = said(api.get(f"/v1/episodes?limit=3&cursor={first['next']}", **project))
    assert [one["digest"] for one in first["items"] + rest["items"]] == digests[::-1]
    assert rest["next"] is None


@pytest.mark.parametrize(
    "change",
    [
        {"events": []},
        {"events": [{"content": "a"}]},
        {"events": [{"type": "a", "unknown": 1}]},
        {"events": [{"type": "a", "at": "yesterday"}]},
        {"events": [{"type": "a", "at": -1}]},
        {"outcome": "fine"},
        {"usage": {"calls": -1}},
        {"fault": {"message": "a"}},
        {"tools": [1]},
    ],
)
def test_what_is_no_episode_is_refused(api, project, change):
    refused = api.post("/v1/episodes", json={**RUN, **change}, **project)
    assert refused.status_code == 422, refused.text
    assert listed(api, project) == []


def test_a_run_that_ended_before_its_first_event_is_an_episode(api, project):
    fault = {"category": "timeout_error", "message": "no answer in 30 s"}
    done = said(api.post("/v1/episodes?wait=1", json={"task": "Wait", "fault": fault}, **project))
    assert "no answer in 30 s" in done["taught"]["text"]
    assert listed(api, project)[0]["outcome"] == "timeout"


def test_whose_the_task_is_is_said_by_a_key_that_may_approve(api, project):
    one = {**RUN, "events": [*RUN["events"][:1], {"type": "error_event", "error": "too long"}]}
    done = said(api.post("/v1/episodes?wait=1&trust=operator", json=one, **project))
    assert done["state"] == "reflected"
    [found] = said(api.get("/v1/reflections?kind=reflection", **project))["items"]
    assert found["trust"] == "tool"  # its error is a tool's all the same


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["json", "protobuf"])
def test_a_trace_becomes_an_episode_in_either_encoding(api, project, name, kind, packed):
    *children, root = genai()
    for part in ([root, *children[2:]], children[:2]):
        plain = json.dumps(document(part)).encode() if kind == "json" else protobuf(document(part))
        headers = {"Content-Type": "application/json"} if kind == "json" else dict(PROTOBUF)
        headers |= {"Content-Encoding": "gzip"} if packed else {}
        body = gzip.compress(plain) if packed else plain
        sent = api.post("/v1/traces", content=body, headers=headers, **project)
        assert sent.status_code == 200, sent.text
        assert sent.headers["content-type"] == headers["Content-Type"]
        assert sent.content == (b"{}" if kind == "json" else b"")
    [episode] = gathered(api, project)
    assert (episode["name"], episode["session"]) == (TRACE, "conversation-1")
    assert handed(api, name) == [("reflect", {"digest": episode["digest"]})]


def test_spans_that_are_refused_are_told_in_the_encoding_of_the_request(api, project):
    [first, *rest] = genai()
    wrong: Data = {**first, "traceId": "00"}
    told = said(api.post("/v1/traces", json=document([wrong, *rest]), **project))
    assert told["partialSuccess"]["rejectedSpans"] == "1"
    assert "W3C" in told["partialSuccess"]["errorMessage"]
    gathered(api, project)
    late = api.post("/v1/traces", content=protobuf(document(rest)), headers=PROTOBUF, **project)
    answer = ExportTraceServiceResponse.FromString(late.content)
    assert answer.partial_success.rejected_spans == len(rest)
    assert "ended" in answer.partial_success.error_message
    gathered(api, project)


def test_a_queue_that_is_away_leaves_the_episode_to_be_found(api, project, name, caplog):
    api.setup.work.away = True
    said(api.post("/v1/traces", json=document(genai()), **project))
    [episode] = gathered(api, project)
    api.setup.work.away = False
    assert (episode["state"], handed(api, name)) == ("waiting", [])
    assert "traces were not gathered" in caplog.text


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"\xff\xff\xff", PROTOBUF),
        (b'{"resourceSpans": 1}', {"Content-Type": "application/json"}),
        (b"[]", {"Content-Type": "application/json"}),
        (b"", {"Content-Type": "application/json"}),
    ],
)
def test_what_is_no_trace_is_a_bad_request(api, project, body, headers):
    refused = api.post("/v1/traces", content=body, headers=headers, **project)
    problem(refused, 400, "invalid_traces")


def test_only_traces_may_be_protobuf_and_only_so_large(api, project):
    refused = api.post("/v1/episodes", content=b"\x0a\x00", headers=PROTOBUF, **project)
    problem(refused, 415, "unsupported_media_type")
    large = b"\x00" * (api.setup.limits.traces + 1)
    problem(
        api.post("/v1/traces", content=large, headers=PROTOBUF, **project), 413, "body_too_large"
    )
    bomb = {**PROTOBUF, "Content-Encoding": "gzip"}
    refused = api.post("/v1/traces", content=gzip.compress(large), headers=bomb, **project)
    problem(refused, 413, "body_too_large")


def test_what_a_trace_of_the_operator_says_is_trusted_as_such(api, project, name):
    sent = api.post("/v1/traces?trust=operator", json=document(genai()), **project)
    assert sent.status_code == 200
    gathered(api, project)
    kept = api.run(api.setup.store.read(Scope("acme", name), episodes.newest, 1))
    assert kept[0].record["trust"] == "operator"


def test_traces_are_counted(api, project):
    def counted(outcome: str) -> float:
        text = api.get("/metrics", key="").text
        lines = [line for line in text.splitlines() if line.startswith("heedful_traces_total")]
        values = {line.split('"')[1]: float(line.split()[-1]) for line in lines}
        return values.get(outcome, 0.0)

    before = counted("episode"), counted("refused")
    said(api.post("/v1/traces", json=document([*genai(), {**genai()[0], "spanId": ""}]), **project))
    gathered(api, project)
    assert (counted("episode"), counted("refused")) == (before[0] + 1, before[1] + 1)

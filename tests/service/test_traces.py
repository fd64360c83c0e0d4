"""Episodes and traces over HTTP: taken once, reflected on, and what cannot be kept is told."""

import asyncio
import gzip
import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from heedful.lessons.lesson import Scope
from heedful.memory.ingest import Patience
from heedful.service.setup import MIB
from heedful.store import episodes
from tests.service.jobs import Handed
from tests.service.support import Api, Project, served
from tests.traces.runs import TRACE, document, genai, protobuf

PROTOBUF, JSON = {"Content-Type": "application/x-protobuf"}, {"Content-Type": "application/json"}
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


class Runs(Project):
    """A project to which runs are sent."""

    def put_in(self, run: Any = RUN, query: str = "", status: int = 202) -> Any:
        return self.post(f"episodes{query}", run, status)

    def send(self, spans: Any) -> Any:
        return self.post("traces", document(spans))

    def listed(self, query: str = "") -> list[Any]:
        return list(self.get(f"episodes{query}")["items"])

    def gathered(self) -> list[Any]:
        async def waited() -> None:
            looks = list(self.api.app.state.collector._tasks.values())
            await asyncio.wait_for(asyncio.gather(*looks), 30)

        self.api.run(waited())
        return self.listed()

    @property
    def handed(self) -> list[tuple[str, dict[str, Any]]]:
        work: Any = self.api.setup.work
        return [(task, more) for task, scope, more in work.jobs if scope.project == self.name]


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    patience = Patience(settled=0.01)
    folder = tmp_path_factory.mktemp("http")
    with served(folder, patience=patience, work=Handed()) as api:
        yield api


@pytest.fixture
def project(api: Api, request: pytest.FixtureRequest) -> Runs:
    return Runs(api, str(request.node.name[:100]), "read", "write", "approve")


def test_an_episode_is_taken_once_and_handed_over(project):
    taken = project.put_in()
    assert (taken["state"], taken["taught"]) == ("waiting", None)
    assert project.put_in() == taken
    assert project.handed == 2 * [("reflect", {"digest": taken["digest"]})]
    [one] = project.listed()
    assert (one["digest"], one["outcome"], one["tries"]) == (taken["digest"], "failure", 0)
    assert project.listed("?state=waiting") == [one]
    assert project.listed("?state=failed") == []


def test_an_episode_that_is_waited_for_is_reflected_on(project):
    done = project.put_in(query="?wait=true", status=200)
    assert (done["state"], done["taught"]["by"]) == ("reflected", "rules")
    assert "no order A17" in done["taught"]["text"]
    assert done["taught"]["state"] == "quarantined"
    assert [one["created"] for one in done["taught"]["written"]] == [True, True]
    own = [done["taught"][name] for name in ("importance", "heedful_importance", "dropped")]
    assert own == [0.7, 0.7, []]
    assert (project.put_in(status=200)["state"], project.handed) == ("reflected", [])
    again = project.put_in(query="?wait=true", status=200)["taught"]
    assert [one["created"] for one in again["written"]] == [False, False]
    assert all(one["release"] for one in again["written"])


def test_whose_the_task_is_is_said_by_a_key_that_may_approve(project):
    events = [RUN["events"][0], {"type": "error_event", "error": "too long"}]
    project.put_in({**RUN, "events": events}, "?wait=1&trust=operator", 200)
    found = project.get("reflections?kind=reflection")["items"]
    assert [one["trust"] for one in found] == ["tool"]  # its error is a tool's all the same
    project.post("traces?trust=operator", document(genai()))
    project.gathered()
    scope = Scope("acme", project.name)
    kept = project.api.run(project.api.setup.store.read(scope, episodes.page, 1, whole=True))
    assert kept[0].record["trust"] == "operator"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["json", "protobuf"])
def test_a_trace_becomes_an_episode_in_either_encoding(project, kind, packed):
    *children, root = genai()
    for part in ([root, *children[2:]], children[:2]):
        spans = document(part)
        body = json.dumps(spans).encode() if kind == "json" else protobuf(spans)
        headers = dict(JSON if kind == "json" else PROTOBUF)
        headers |= {"Content-Encoding": "gzip"} if packed else {}
        sent = project.ask(
            "POST", "traces", content=gzip.compress(body) if packed else body, headers=headers
        )
        assert (sent.status_code, sent.content) == (200, b"{}" if kind == "json" else b"")
        assert sent.headers["content-type"] == headers["Content-Type"]
    [episode] = project.gathered()
    assert (episode["name"], episode["session"]) == (TRACE, "conversation-1")
    assert project.handed == [("reflect", {"digest": episode["digest"]})]


def counted(api: Api, outcome: str) -> float:
    text = api.get("/metrics", key="").text
    lines = [line for line in text.splitlines() if line.startswith("heedful_traces_total")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}.get(outcome, 0.0)


def test_spans_that_are_refused_are_told_in_the_encoding_of_the_request_and_counted(project):
    [first, *rest] = genai()
    before = {name: counted(project.api, name) for name in ("episode", "refused")}
    told = project.send([{**first, "traceId": "00"}, *rest])["partialSuccess"]
    assert (told["rejectedSpans"], "W3C" in told["errorMessage"]) == ("1", True)
    project.gathered()
    late = project.ask("POST", "traces", content=protobuf(document(rest)), headers=PROTOBUF)
    answer = ExportTraceServiceResponse.FromString(late.content)
    assert answer.partial_success.rejected_spans == len(rest)
    assert "ended" in answer.partial_success.error_message
    project.gathered()
    assert counted(project.api, "episode") == before["episode"] + 1
    assert counted(project.api, "refused") == before["refused"] + 1 + len(rest)


def test_a_queue_that_is_away_leaves_the_episode_to_be_found(project, caplog):
    work: Any = project.api.setup.work
    work.away = True
    project.send(genai())
    [episode] = project.gathered()
    work.away = False
    assert (episode["state"], project.handed) == ("waiting", [])
    assert "traces were not gathered" in caplog.text


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "code"),
    [
        *(
            ("traces", body, headers, 400, "invalid_traces")
            for body, headers in ((b"\xff\xff\xff", PROTOBUF), (b'{"resourceSpans": 1}', JSON))
        ),
        ("traces", b"\x00" * (16 * MIB + 1), PROTOBUF, 413, "body_too_large"),
        ("episodes", b"\x0a\x00", PROTOBUF, 415, "unsupported_media_type"),
    ],
)
def test_what_is_no_trace_is_refused(project, path, body, headers, status, code):
    project.refused(status, code, "POST", path, content=body, headers=headers)


@pytest.mark.parametrize("change", [{"events": []}, {"events": [{"type": "a", "at": "yesterday"}]}])
def test_what_is_no_episode_is_refused(project, change):
    assert project.ask("POST", "episodes", {**RUN, **change}).status_code == 422
    assert project.listed() == []

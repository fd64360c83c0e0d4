"""Episodes and traces over HTTP: taken once, reflected on, and what cannot be kept is
told.
"""

import gzip
import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)

from heedful.lessons.lesson import Scope
from heedful.memory import arrivals
from heedful.memory.arrivals import Patience
from heedful.service.jobs import TASKS, Tools, sweep
from heedful.service.setup import LIMITS_MIB_BYTES
from heedful.store import episodes
from tests.episodes.runs import ROOT, TRACE, document, genai, protobuf, span
from tests.service.jobs import Handed
from tests.service.support import Api, Project, served
from tests.tables import cases

PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}
RUN = {
    "task": "Where is order A-17?",
    "outcome": "failure",
    "events": [
        {"type": "user_message", "content": "Where is order A-17?"},
        {
            "type": "tool_call",
            "tool": "find_order",
            "arguments": {"id": "A17"},
            "call": "c1",
        },
        {
            "type": "tool_response",
            "tool": "find_order",
            "call": "c1",
            "error": "no order A17",
        },
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
        setup = self.api.setup
        tools = Tools(store=setup.store, patience=Patience(settled=0.0))
        self.api.run(sweep(setup.work, tools))
        return self.listed()

    @property
    def handed(self) -> list[tuple[str, dict[str, Any]]]:
        work: Any = self.api.setup.work
        return [
            (task, more)
            for task, scope, more in work.jobs
            if scope.project == self.name
        ]


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with served(tmp_path_factory.mktemp("http"), work=Handed()) as api:
        yield api


@pytest.fixture
def project(api: Api, request: pytest.FixtureRequest) -> Runs:
    return Runs(api, str(request.node.name[:100]), "read", "write", "approve")


def test_an_episode_is_taken_once_and_handed_over(project):
    episode = project.put_in()
    assert episode["state"] == "waiting"
    assert project.put_in() == episode
    assert project.handed == 2 * [("reflect", {"digest": episode["digest"]})]
    [listed] = project.listed()
    assert listed["digest"] == episode["digest"]
    assert listed["outcome"] == "failure"
    assert listed["tries"] == 0
    assert project.listed("?state=waiting") == [listed]
    assert project.listed("?state=failed") == []


def test_whose_the_task_is_is_said_by_a_key_that_may_approve(project):
    events = [RUN["events"][0], {"type": "error_event", "error": "too long"}]
    project.put_in({**RUN, "events": events}, "?origin=operator")
    digest = project.listed()[0]["digest"]
    tools = Tools(store=project.api.setup.store)
    scope = Scope("acme", project.name)
    project.api.run(TASKS["reflect"].run(tools, scope, digest=digest))
    lessons = project.get("reflections?kind=reflection")["items"]
    # Its words are of the agent and of programs here all the same.
    assert [lesson["trust"] for lesson in lessons] == ["local"]
    project.post("traces?origin=operator", document(genai()))
    project.gathered()
    page = project.api.run(
        project.api.setup.store.read(scope, episodes.page, 1, whole=True)
    )
    assert page[0].record["trust"] == "user"


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("kind", ["json", "protobuf"])
def test_a_trace_becomes_an_episode_in_either_encoding(project, kind, packed):
    *children, root = genai()
    for part in ([root, *children[2:]], children[:2]):
        spans = document(part)
        body = json.dumps(spans).encode() if kind == "json" else protobuf(spans)
        headers = dict(JSON if kind == "json" else PROTOBUF)
        headers |= {"Content-Encoding": "gzip"} if packed else {}
        sent = project.ask(
            "POST",
            "traces",
            content=gzip.compress(body) if packed else body,
            headers=headers,
        )
        assert sent.status_code == 200
        assert sent.content == (b"{}" if kind == "json" else b"")
        assert sent.headers["content-type"] == headers["Content-Type"]
    [episode] = project.gathered()
    assert episode["name"] == TRACE
    assert episode["session"] == "conversation-1"
    assert project.handed == [("reflect", {"digest": episode["digest"]})]


def test_spans_that_are_refused_are_told_in_the_encoding_of_the_request_and_counted(
    project,
):
    [first, *rest] = genai()
    success = project.send([{**first, "traceId": "00"}, *rest])["partialSuccess"]
    assert success["rejectedSpans"] == "1"
    assert ("W3C" in success["errorMessage"]) is True
    project.gathered()
    late = project.ask(
        "POST", "traces", content=protobuf(document(rest)), headers=PROTOBUF
    )
    answer = ExportTraceServiceResponse.FromString(late.content)
    assert answer.partial_success.rejected_spans == len(rest)
    assert "ended" in answer.partial_success.error_message
    counted = f"heedful_spans_refused_total {1.0 + len(rest)}"
    assert counted in project.api.get("/metrics", key="").text


def unknown(id: str, parent: str = "") -> dict[str, Any]:
    return span(id, parent, "GET /", (0, 1), {"http.request.method": "GET"})


@pytest.mark.parametrize("kind", ["json", "protobuf"])
def test_spans_that_no_convention_knows_are_told(project, kind, caplog):
    counted = project.api.setup.metrics.refused._value.get()
    spans = document([unknown(ROOT), unknown("ab" * 8, ROOT)])
    if kind == "json":
        success = project.post("traces", spans)["partialSuccess"]
        rejected, reason = success["rejectedSpans"], success["errorMessage"]
    else:
        sent = project.ask("POST", "traces", content=protobuf(spans), headers=PROTOBUF)
        answer = ExportTraceServiceResponse.FromString(sent.content).partial_success
        rejected, reason = answer.rejected_spans, answer.error_message
    assert int(rejected) == 0
    assert "2 spans: stored, but not one span of their trace" in reason
    assert "OpenLLMetry" in reason
    assert project.api.setup.metrics.refused._value.get() == counted
    store = project.api.setup.store
    scope = Scope("acme", project.name)
    row = project.api.run(store.read(scope, arrivals.unknown_spans))
    assert row["unknown"] == row["spans"] == 2
    assert row["last"] > 0
    assert project.gathered() == []


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "code"),
    [
        ("traces", b"\xff\xff\xff", PROTOBUF, 400, "invalid_traces"),
        ("traces", b'{"resourceSpans": 1}', JSON, 400, "invalid_traces"),
        ("traces", b'{"a": 1}', JSON, 400, "invalid_traces"),
        (
            "traces",
            b"\x00" * (16 * LIMITS_MIB_BYTES + 1),
            PROTOBUF,
            413,
            "body_too_large",
        ),
        ("episodes", b"\x0a\x00", PROTOBUF, 415, "unsupported_media_type"),
    ],
    ids=[
        "no protobuf",
        "no list of spans",
        "other keys",
        "too large",
        "an episode in protobuf",
    ],
)
def test_what_is_no_trace_is_refused(project, path, body, headers, status, code):
    project.refused(status, code, "POST", path, content=body, headers=headers)


@cases(
    "change",
    {
        "no events": {"events": []},
        "a time in words": {"events": [{"type": "a", "at": "yesterday"}]},
    },
)
def test_what_is_no_episode_is_refused(project, change):
    assert project.ask("POST", "episodes", {**RUN, **change}).status_code == 422
    assert project.listed() == []

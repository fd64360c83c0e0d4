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
from heedful.store import episodes
from heedful_server import arrivals
from heedful_server.arrivals import Patience
from heedful_server.jobs import Tools, sweep, tasks
from heedful_server.setup import LIMITS_MIB_BYTES
from tests.episodes.runs import ROOT, TRACE, document, genai, protobuf, span
from tests.service.jobs import Handed
from tests.service.support import Api, Project, served
from tests.tables import cases

PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}
TASK = "Where is order A-17?"
CALL = {"tool": "find_order", "call": "c1"}
RUN = {
    "task": TASK,
    "outcome": "failure",
    "events": [
        {"type": "user_message", "content": TASK},
        {"type": "tool_call", "arguments": {"id": "A17"}, **CALL},
        {"type": "tool_response", "error": "no order A17", **CALL},
    ],
}


class Runs(Project):
    """A project to which runs are sent."""

    @property
    def scope(self) -> Scope:
        return Scope("acme", self.name)

    def send(self, spans: Any, kind: str = "json") -> tuple[int, str]:
        """Send spans; return how many were refused, and why."""
        sent = document(spans)
        if kind == "json":
            answer = self.post("traces", sent).get("partialSuccess", {})
            rejected = answer.get("rejectedSpans", 0)
            return int(rejected), answer.get("errorMessage", "")
        content = protobuf(sent)
        raw = self.ask("POST", "traces", content=content, headers=PROTOBUF).content
        part = ExportTraceServiceResponse.FromString(raw).partial_success
        return part.rejected_spans, part.error_message

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
        jobs = [job for job in work.jobs if job[1].project == self.name]
        return [(task, more) for task, _, more in jobs]


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with served(tmp_path_factory.mktemp("http"), work=Handed()) as api:
        yield api


@pytest.fixture
def project(api: Api, request: pytest.FixtureRequest) -> Runs:
    return Runs(api, str(request.node.name[:100]), "read", "write", "approve")


def test_an_episode_is_taken_once_and_handed_over(project):
    episode = project.post("episodes", RUN, 202)
    assert episode["state"] == "waiting"
    assert project.post("episodes", RUN, 202) == episode
    assert project.handed == 2 * [("reflect", {"digest": episode["digest"]})]
    [listed] = project.listed()
    assert listed["digest"] == episode["digest"]
    assert listed["outcome"] == "failure"
    assert listed["tries"] == 0
    assert project.listed("?state=waiting") == [listed]
    assert project.listed("?state=failed") == []


def test_whose_the_task_is_is_said_by_a_key_that_may_approve(project):
    events = [RUN["events"][0], {"type": "error_event", "error": "too long"}]
    project.post("episodes?origin=user", {**RUN, "events": events}, 202)
    digest = project.listed()[0]["digest"]
    store = project.api.setup.store
    work = tasks()["reflect"].run(Tools(store=store), project.scope, digest=digest)
    project.api.run(work)
    lessons = project.get("reflections?kind=reflection")["items"]
    # Its words are of the agent and of programs here all the same.
    assert [lesson["trust"] for lesson in lessons] == ["local"]
    project.post("traces?origin=user", document(genai()))
    project.gathered()
    read = store.read(project.scope, episodes.page, 1, whole=True)
    [newest] = project.api.run(read)
    assert newest.record["trust"] == "user"


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("kind", ["json", "protobuf"])
def test_a_trace_becomes_an_episode_in_either_encoding(project, kind, packed):
    *children, root = genai()
    for part in ([root, *children[2:]], children[:2]):
        spans = document(part)
        body = json.dumps(spans).encode() if kind == "json" else protobuf(spans)
        headers = dict(JSON if kind == "json" else PROTOBUF)
        if packed:
            body = gzip.compress(body)
            headers["Content-Encoding"] = "gzip"
        sent = project.ask("POST", "traces", content=body, headers=headers)
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
    rejected, reason = project.send([{**first, "traceId": "00"}, *rest])
    assert rejected == 1
    assert "W3C" in reason
    project.gathered()
    rejected, reason = project.send(rest, "protobuf")
    assert rejected == len(rest)
    assert "ended" in reason
    counted = f"heedful_spans_refused_total {1.0 + len(rest)}"
    assert counted in project.api.get("/metrics", key="").text


@pytest.mark.parametrize("kind", ["json", "protobuf"])
def test_spans_that_no_convention_knows_are_told_and_not_refused(project, kind):
    def unknown(id: str, parent: str = "") -> dict[str, Any]:
        return span(id, parent, "GET /", (0, 1), {"http.request.method": "GET"})

    counted = project.api.setup.metrics.refused._value.get()
    spans = [unknown(ROOT), unknown("ab" * 8, ROOT)]
    rejected, reason = project.send(spans, kind)
    assert rejected == 0
    assert "2 spans: stored, but not one span of their trace" in reason
    assert "OpenLLMetry" in reason
    assert project.api.setup.metrics.refused._value.get() == counted
    read = project.api.setup.store.read(project.scope, arrivals.unknown_spans)
    row = project.api.run(read)
    assert row["unknown"] == row["spans"] == 2
    assert row["last"] > 0
    # Among known ones they are normal.
    assert project.send([*genai(), unknown("cd" * 8, ROOT)], kind) == (0, "")
    assert len(project.gathered()) == 1


@cases(
    ("path", "body", "headers", "status", "code"),
    {
        "no protobuf": ("traces", b"\xff\xff\xff", PROTOBUF, 400, "invalid_traces"),
        "no list of spans": (
            "traces",
            b'{"resourceSpans": 1}',
            JSON,
            400,
            "invalid_traces",
        ),
        "other keys": ("traces", b'{"a": 1}', JSON, 400, "invalid_traces"),
        "too large": (
            "traces",
            b"\x00" * (16 * LIMITS_MIB_BYTES + 1),
            PROTOBUF,
            413,
            "body_too_large",
        ),
        "an episode in protobuf": (
            "episodes",
            b"\x0a\x00",
            PROTOBUF,
            415,
            "unsupported_media_type",
        ),
        "no events": ("episodes", b'{"events": []}', JSON, 422, "invalid_input"),
        "a time in words": (
            "episodes",
            b'{"events": [{"type": "a", "at": "yesterday"}]}',
            JSON,
            422,
            "invalid_input",
        ),
    },
)
def test_what_is_no_run_is_refused(project, path, body, headers, status, code):
    project.refused(status, code, "POST", path, content=body, headers=headers)
    assert project.listed() == []

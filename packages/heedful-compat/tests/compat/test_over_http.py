"""Guardrails and reflections over HTTP in the shapes that callers of earlier systems
rely on.
"""

import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from heedful.testing import ScriptedModel
from heedful_compat import LoopGuardrails
from heedful_server.app import api_examples
from tests.checks.support import wise
from tests.compat import shapes
from tests.compat.shapes import FIRST, GOOD, POOR, TAG
from tests.service.support import served
from tests.tables import cases

COMPLETE = "/orchestrator/loop-complete"
STATUS = "/orchestrator/guardrails-status"
OVERRIDE = "/orchestrator/override-guardrails"
TRACE = "/orchestrator/loop-trace"
GENERATE = "/api/v1/reflections/generate"
QUERY = "/api/v1/reflections/query"
DOCUMENTED = {
    "loop_id": "loop_001",
    "reflection_status": "done",
    "orchestrator_persona": "SAGE",
    "override_fatigue": False,
    "override_max_reruns": False,
    "override_by": None,
}
LIFT: dict[str, Any] = {"override_max_reruns": True, "override_by": "ops"}
TALK: dict[str, Any] = {
    "events": [{"event_type": "llm_response", "content": "It costs 4."}],
    "outcome": "failure",
    "task_description": "What does the blue kettle cost?",
}
FAILED: dict[str, Any] = {
    "events": [
        {"event_type": "tool_call", "content": '{"item": "pot"}', "tool_name": "price"},
        {
            "event_type": "tool_response",
            "tool_name": "price",
            "error": {"message": "3 match"},
        },
    ],
    "outcome": "error",
    "error": {
        "error_category": "timeout_error",
        "error_message": "late",
        "context": {"s": 30},
    },
    "task_description": "What does the blue kettle cost?",
}
ASKED: dict[str, Any] = {"tenant_id": "acme", "project_id": "main", "min_importance": 0}
pytestmark = pytest.mark.both_nightly


@pytest.fixture
def api(tmp_path):
    with served(tmp_path) as api:
        yield api


def completed(
    api: Any, report: Mapping[str, Any], loop: str = "loop_001"
) -> dict[str, Any]:
    """Complete a loop with this report; return the answer."""
    response = api.post(COMPLETE, json={**DOCUMENTED, "loop_id": loop, **report})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    expected = shapes.COMPLETED
    if answer["decision_result"]["force_finalize"]:
        expected = expected | {"decision_result": shapes.FORCED_DECISION}
    shapes.check_shape(answer, expected)
    return answer


def decided(
    api: Any, report: Mapping[str, Any], loop: str = "loop_001"
) -> dict[str, Any]:
    """Complete a loop with this report; return what was decided."""
    answer: dict[str, Any] = completed(api, report, loop)["decision_result"]
    return answer


def refused(response: httpx.Response, status: int, *loop: str | None) -> str:
    """Return the message in the error body of these routes; it may name a loop."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    status_, message, *fields = response.json().items()
    assert status_ == ("status", "error")
    assert message[0] == "message"
    assert [value for _, value in fields] == list(loop)
    return str(message[1])


def test_the_documented_cases(api):
    answer = completed(api, FIRST)
    example = api_examples()[f"POST {COMPLETE}"]["200"]
    assert {**answer, "timestamp": ""} == {**example, "timestamp": ""}
    pessimist = answer["reflection_result"]["agent_results"]["pessimist"]
    assert pessimist == {"bias_analysis": {"bias_tags_detail": [TAG]}}
    status = api.get(f"{STATUS}/loop_001").json()
    shapes.check_shape(status, shapes.STATUS)
    assert status == api_examples()[f"GET {STATUS}/{{loop_id}}"]["200"]
    trace = api.get(f"{TRACE}/loop_001").json()
    shapes.check_shape(trace, shapes.TRACE)
    example = api_examples()[f"GET {TRACE}/{{loop_id}}"]["200"]
    assert {**trace, "timestamp": ""} == {**example, "timestamp": ""}
    assert refused(api.get(f"{TRACE}/nobody"), 404, "nobody")
    assert refused(
        api.post(f"{OVERRIDE}/loop_001", json={"override_by": "ops"}), 422, "loop_001"
    )
    lifted = api.post(f"{OVERRIDE}/loop_001", json=LIFT)
    shapes.check_shape(lifted.json(), shapes.OVERRIDE)
    wrong = api.post(COMPLETE, json={**DOCUMENTED, "reflection_status": "pending"})
    assert (
        refused(wrong, 422, "loop_001") == "Invalid reflection status. Must be 'done'."
    )
    assert refused(api.get(f"{STATUS}/nobody"), 404, "nobody")
    bare = api.post(COMPLETE, json={**DOCUMENTED, "loop_id": "nobody"})
    assert "send the summary, output or scores" in refused(bare, 404, "nobody")
    assert refused(api.get("/orchestrator/nothing"), 404, None)
    generated = api.post(GENERATE, json=TALK).json()
    assert generated.keys() == api_examples()[f"POST {GENERATE}"]["200"].keys()
    (reflection,) = api.post(QUERY, json={"min_importance": 0}).json()["reflections"]
    assert (
        reflection.keys()
        == api_examples()[f"POST {QUERY}"]["200"]["reflections"][0].keys()
    )
    assert reflection["reflection_id"] == generated["reflection_id"]
    assert reflection["source"] == "reflection_engine_v2"
    assert reflection["layer"] == "rm"


# The first example of such engines: the tool is in the metadata, and times are those of
# JavaScript.
SLOW_QUERY = {
    "events": [
        {
            "event_id": "evt_001",
            "event_type": "tool_call",
            "timestamp": 1_769_857_200_000,
            "content": "Called database query with complex JOIN",
            "metadata": {"tool": "database"},
        },
        {
            "event_id": "evt_002",
            "event_type": "error_event",
            "timestamp": 1_769_857_230_250,
            "content": "Query timeout after 30 seconds",
            "metadata": {"tool": "database"},
            "error": {"message": "Timeout"},
        },
    ],
    "outcome": "failure",
    "error": {
        "error_category": "timeout_error",
        "error_message": "Query exceeded 30s timeout",
        "context": {"rows": 10_000},
    },
    "task_description": "Fetch user analytics",
    "session_id": "6f1c7f3e-8f6a-4c0e-9a57-0a2c4d1b7e11",
}


@cases(
    "asked",
    {
        "its words": {"query_text": "database optimization"},
        "its tags": {"tags": ["performance", "database"]},
        "nothing": {},
    },
)
def test_the_first_example_of_such_engines_is_found_by_its_own_query(api, asked):
    generated = api.post(GENERATE, json=SLOW_QUERY).json()
    assert "database" in generated["strategy_text"]
    assert generated["error_category"] == "timeout_error"

    records = api.post(QUERY, json=asked).json()["reflections"]
    ids = {generated["reflection_id"], generated["strategy_id"]}
    assert {record["reflection_id"] for record in records} == ids
    for record in records:
        assert record["metadata"]["session_id"] == SLOW_QUERY["session_id"]


@cases(
    "error",
    {
        "message": {"message": "the disk is full"},
        "error_message": {"error_message": "the disk is full"},
        "a code that is a number": {"message": "the disk is full", "code": 429},
    },
)
def test_the_error_of_an_event_has_its_words_under_either_name(api, error):
    call = {"event_type": "tool_call", "tool_name": "psql", "content": "select 1"}
    events = [call, {"event_type": "tool_response", "error": error}]
    answer = api.post(GENERATE, json={**TALK, "events": events, "store": False}).json()
    assert "“the disk is full”" in answer["reflection_text"]


@cases("named", {"null": {"override_by": None}, "left out": {}})
def test_an_override_that_names_nobody_is_that_of_the_key(api, named):
    stopped = {"max_reruns": 0, "reflection_persona": "NOVA", **POOR}
    answer = completed(api, stopped)
    assert answer["reflection_result"]["reflection_persona"] == "NOVA"
    assert answer["decision_result"]["rerun_reason"] == "max_reruns_reached"
    lift = {**DOCUMENTED, **stopped, "override_max_reruns": True}
    lift.pop("override_by")
    lifted = api.post(COMPLETE, json={**lift, **named}).json()["decision_result"]
    assert lifted["decision"] == "rerun"
    again = api.post(f"{OVERRIDE}/loop_001", json={"override_fatigue": True, **named})
    for body in (lifted, again.json()):
        assert body["overridden_by"].startswith("tests (")


def test_a_flag_lifts_a_limit_that_was_reached_in_the_name_of_the_key(api):
    name = "loop_001"
    while (new := decided(api, POOR, name)["new_loop_id"]) is not None:
        name = new
    lift = {"override_max_reruns": True, "override_by": "ops"}
    by = decided(api, lift, name)["overridden_by"]
    items = api.get("/v1/audit").json()["items"]
    (entry,) = [item for item in items if item["action"] == "loop.override"]
    assert entry["subject"] == "loop_001"
    assert entry["detail"] == {"rule": "attempts", "named": "ops"}
    (lifted,) = api.get("/v1/loops/loop_001").json()["overrides"]
    assert by == lifted["by"] == entry["by"] != "ops"
    assert "ops" in lifted["why"]
    completed(api, GOOD, "good")
    assert "passed" in refused(api.post(f"{OVERRIDE}/good", json=LIFT), 409, "good")


def test_another_tenant_is_refused_and_flags_need_a_key_that_may_approve(api):
    report = {**DOCUMENTED, **POOR}
    foreign = api.post(COMPLETE, json={**report, "tenant_id": "rival"})
    assert "tenant" in refused(foreign, 403, "loop_001")
    writer = api.key("read", "write")
    flags = api.post(COMPLETE, json={**report, "override_fatigue": True}, key=writer)
    assert "approve" in refused(flags, 403, "loop_001")
    completed(api, {**POOR, "tenant_id": "acme", "project_id": "main"})
    rival = api.key("read", "write", tenant="rival")
    assert refused(api.get(f"{STATUS}/loop_001", key=rival), 404, "loop_001")
    api.post(GENERATE, json=TALK)
    query = {"min_importance": 0, "query_text": TALK["task_description"]}
    none = api.post(QUERY, json=query, key=rival).json()
    assert none == {"reflections": [], "silence": "no lesson is about a similar task"}
    assert api.post(QUERY, json={**query, **ASKED}).json()["reflections"] != []


@pytest.mark.sqlite
def test_the_settings_of_the_service_count(tmp_path):
    guardrails = LoopGuardrails(max_reruns=1)
    with served(tmp_path, guardrails=guardrails, reflections=False) as api:
        first = completed(api, {**POOR, "orchestrator_persona": None})
        assert first["orchestrator_persona"] == "SAGE"
        assert decided(api, POOR, "loop_001_r1")["rerun_reason"] == "max_reruns_reached"
        loop = {"task": "Sum up", "policy": "orchestrator, attempts.limit=3"}
        assert api.put("/v1/loops/loop_002", json=loop).status_code == 201
        assert decided(api, POOR, "loop_002")["max_reruns"] == 2
        assert "HEEDFUL_REFLECTION_ENABLED" in refused(
            api.post(GENERATE, json=TALK), 503
        )


@pytest.mark.sqlite
def test_the_model_of_the_service_writes_the_reflection(tmp_path):
    words = {
        "reflection": "The price tool answered pot with 3 match.",
        "strategy": "Ask price for one pot.",
        "importance": 0.9,
        "confidence": 0.8,
        "tags": ["price"],
    }
    model = ScriptedModel(json.dumps(words))
    with served(tmp_path, model=model) as api:
        generated = api.post(GENERATE, json=FAILED).json()
        assert generated["reflection_text"].startswith(str(words["reflection"]))
        assert generated["importance"] == 0.9
        # The failure is known, so the model is not asked again.
        again = api.post(GENERATE, json={**FAILED, "session_id": "another"}).json()
        assert len(model.prompts) == 1
        names = ("reflection_id", "reflection_text", "strategy_text", "tags")
        assert [again[name] for name in names] == [generated[name] for name in names]
        assert again["importance"] == 0.9
        sent = {**FAILED, "session_id": "a third"}
        blind = api.post(GENERATE, json=sent, key=api.key("write")).json()
        assert blind["strategy_text"] != generated["strategy_text"]
        assert str(words["strategy"]) not in str(blind)


@pytest.mark.sqlite
def test_only_a_configured_judge_gives_scores_and_never_the_model_of_the_service(
    tmp_path,
):
    model = ScriptedModel()
    with served(tmp_path, model=model) as api:
        for fields in (
            {"summary": "All is well."},
            {"output": "It is.", "alignment_score": 0.9},
        ):
            response = api.post(COMPLETE, json={**DOCUMENTED, **fields})
            assert "HEEDFUL_JUDGE" in refused(response, 422, "loop_001")
        refused(api.get(f"{STATUS}/loop_001"), 404, "loop_001")
    with served(tmp_path, model=model, judge=ScriptedModel(wise, forever=True)) as api:
        judged = completed(api, {"summary": "All is well."})["reflection_result"]
        assert judged["alignment_score"] == 1.0
        assert judged["drift_score"] == 0.0
    assert model.prompts == []


@cases(
    ("path", "body", "message", "loop"),
    {
        "a score above 1": (
            COMPLETE,
            {**DOCUMENTED, "alignment_score": 1.5},
            "alignment_score",
            ["loop_001"],
        ),
        "a summary without a judge": (
            COMPLETE,
            {**DOCUMENTED, "summary": "All is well."},
            "configure a judge",
            ["loop_001"],
        ),
        "no events": (GENERATE, {**FAILED, "events": [], "error": None}, "events", []),
        "an unknown match": (QUERY, {"match": "none"}, "match", []),
    },
)
def test_what_is_wrong_is_said_in_their_shape(api, path, body, message, loop):
    assert message in refused(api.post(path, json=body), 422, *loop)


@pytest.mark.parametrize("run", [FAILED, TALK], ids=["a tool's error", "its words"])
def test_what_a_key_from_outside_says_waits_marked(api, run):
    key = api.key("read", "write", outside=True)
    api.post(GENERATE, json=run, key=key)
    reflections = api.post(QUERY, json=ASKED).json()["reflections"]
    items = [item for item in reflections if item["kind"] == "reflection"]
    assert {item["state"] for item in items} == {"quarantined"}
    blind = api.post(QUERY, json=ASKED, key=api.key("recall", "write")).json()[
        "reflections"
    ]
    assert [item for item in blind if item["kind"] == "reflection"] == []


@cases(
    ("path", "body"),
    {
        "a loop complete": (COMPLETE, {**DOCUMENTED, **POOR}),
        "an override": (f"{OVERRIDE}/loop_001", LIFT),
        "a reflection": (GENERATE, TALK),
        "a query": (QUERY, ASKED),
    },
)
def test_unknown_fields_are_ignored_and_named(api, path, body):
    api.post(COMPLETE, json={**DOCUMENTED, **POOR})
    expected = api.post(path, json=body).json()
    assert "warnings" not in expected
    answer = api.post(path, json={**body, "agent_version": 2, "nøise": None})
    assert answer.status_code == 200
    data = answer.json()
    assert list(data) == [*expected, "warnings"]
    assert [
        name
        for name in ("agent_version", "nøise")
        if any(name in warning for warning in data["warnings"])
    ] == ["agent_version", "nøise"]
    assert len(data["warnings"]) == 2


def test_bias_tags_may_be_texts_and_their_other_fields_are_named(api):
    tags = ["anchoring", {**TAG, "source": "a reviewer"}]
    body = {**DOCUMENTED, **POOR, "bias_tags": tags, "agent_version": 2}
    answer = api.post(COMPLETE, json=body).json()
    pessimist = answer["reflection_result"]["agent_results"]["pessimist"]
    assert pessimist["bias_analysis"]["bias_tags_detail"] == [
        {"tag": "anchoring", "severity": 0.5},
        TAG,
    ]
    assert answer["warnings"] == [
        "ignored: 'agent_version' is not a field of this route",
        "ignored: 'source' is not a field of a bias tag (tag, severity)",
    ]

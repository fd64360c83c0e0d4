"""Loop guardrails over HTTP in the shapes that callers of earlier systems rely on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from heedful.compat.shapes import LoopGuardrails
from heedful.loop.record import Evaluation
from heedful.service.app import EXAMPLES
from heedful.testing import ScriptedModel
from tests.compat import shapes
from tests.compat.test_generated import SPOKEN, TYPES, has_shape
from tests.compat.test_guardrails import FIRST, GOOD, JUDGED, POOR, TAG
from tests.engines import IN_SOAK
from tests.service.running import running
from tests.service.support import Api, served

COMPLETE = "/orchestrator/loop-complete"
DOCUMENTED = {
    "loop_id": "loop_001",
    "reflection_status": "done",
    "orchestrator_persona": "SAGE",
    "override_fatigue": False,
    "override_max_reruns": False,
    "override_by": None,
}
pytestmark = IN_SOAK


@pytest.fixture
def api(tmp_path) -> Iterator[Api]:
    with served(tmp_path) as api:
        yield api


def completed(api: Any, loop: str = "loop_001", **told: Any) -> dict[str, Any]:
    response = api.post(COMPLETE, json={**DOCUMENTED, "loop_id": loop, **told})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    shapes.has(answer, shapes.COMPLETED)
    return answer


def decided(api: Any, loop: str = "loop_001", **told: Any) -> dict[str, Any]:
    answer: dict[str, Any] = completed(api, loop, **told)["decision_result"]
    return answer


def refused(response: httpx.Response, status: int, loop: str | None = "loop_001") -> str:
    """What is said in the own error body of these routes."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert list(body) == ["status", "message", "loop_id"]
    assert (body["status"], body["loop_id"]) == ("error", loop)
    message: str = body["message"]
    return message


def exhausted(api: Any, loop: str = "loop_001") -> str:
    """The name of the last rerun of a loop that has had all of them."""
    name = loop
    while (new := decided(api, name, **POOR)["new_loop_id"]) is not None:
        name = new
    return name


def test_the_documented_completion_has_the_documented_answer(api):
    answer = completed(api, **FIRST)
    answer.pop("timestamp")
    example = EXAMPLES["POST /orchestrator/loop-complete"]["200"]
    assert answer == {name: value for name, value in example.items() if name != "timestamp"}
    assert answer["reflection_result"]["agent_results"] == {
        "pessimist": {"bias_analysis": {"bias_tags_detail": [TAG]}}
    }


def test_an_unknown_loop_is_404_until_something_is_told_of_it(api):
    assert "loop_001" in refused(api.post(COMPLETE, json=DOCUMENTED), 404)
    assert refused(api.get("/orchestrator/guardrails-status/loop_001"), 404)
    lift = {"override_fatigue": True, "override_by": "ops"}
    assert refused(api.post("/orchestrator/override-guardrails/loop_001", json=lift), 404)
    assert decided(api, **POOR)["decision"] == "rerun"
    assert refused(api.get("/orchestrator/guardrails-status/a/b"), 404, "a/b")


def test_the_same_completion_again_has_the_latest_decision_and_another_one_is_409(api):
    first = completed(api, **FIRST)
    flags: dict[str, Any] = {"override_max_reruns": True, "override_by": "ops"}
    assert completed(api, **FIRST) == completed(api) == completed(api, **flags) == first
    other = api.post(COMPLETE, json={**DOCUMENTED, **FIRST, "drift_score": 0.5})
    assert "reported with other content" in refused(other, 409)
    task = api.post(COMPLETE, json={**DOCUMENTED, **FIRST, "task": "Translate"})
    assert "another task" in refused(task, 409)


def test_who_lifts_a_limit_is_by_default_whose_key_it_is(api):
    last = exhausted(api)
    on = decided(api, last, override_max_reruns=True)
    assert on["overridden_by"] == "tests"
    (entry,) = [
        one for one in api.get("/v1/audit").json()["items"] if one["action"] == "loop.override"
    ]
    assert (entry["subject"], entry["detail"]["rule"]) == ("loop_001", "attempts")


def test_an_override_that_cannot_be_given_is_409(api):
    completed(api, **GOOD)
    lift = {"override_fatigue": True, "override_by": "ops"}
    response = api.post("/orchestrator/override-guardrails/loop_001", json=lift)
    assert "passed" in refused(response, 409)


def test_the_status_of_a_loop(api):
    completed(api, **FIRST)
    response = api.get("/orchestrator/guardrails-status/loop_001")
    shapes.has(response.json(), shapes.STATUS)
    example = EXAMPLES["GET /orchestrator/guardrails-status/{loop_id}"]["200"]
    assert response.json() == example


@pytest.mark.sqlite
def test_the_settings_of_the_service_count_and_a_loops_own_before_them(tmp_path):
    guardrails = LoopGuardrails(max_reruns=1, reflection_persona="NOVA")
    with served(tmp_path, guardrails=guardrails) as api:
        first = completed(api, **POOR, orchestrator_persona=None)
        assert first["orchestrator_persona"] == "NOVA"
        assert decided(api, "loop_001_r1", **POOR)["rerun_reason"] == "max_reruns_reached"
        own = {"task": "Sum up", "policy": "orchestrator, attempts.limit=3"}
        assert api.put("/v1/loops/loop_002", json=own).status_code == 201
        assert decided(api, "loop_002", **POOR)["max_reruns"] == 2


@pytest.mark.sqlite
def test_scores_that_are_not_told_are_judged_by_the_critics_of_the_service(tmp_path):
    def critic(value: float, name: str) -> Any:
        return lambda candidate, at: Evaluation(scores={name: value})

    checks = {"alignment": critic(0.9, "alignment"), "drift": critic(0.4, "drift")}
    with served(tmp_path, checks=checks) as api:
        reflected = completed(api, summary="All is well.")["reflection_result"]
        assert (reflected["alignment_score"], reflected["drift_score"]) == (0.9, 0.4)


@pytest.mark.sqlite
def test_or_by_its_model_and_without_one_it_is_said_what_to_do(tmp_path):
    model = ScriptedModel(*[JUDGED.replace("VALID", "true")] * 4)
    with served(tmp_path, model=model) as api:
        reflected = completed(api, summary="All is well.")["reflection_result"]
        assert (reflected["alignment_score"], reflected["drift_score"]) == (0.9, 0.1)
        tags = reflected["agent_results"]["pessimist"]["bias_analysis"]["bias_tags_detail"]
        assert tags == [TAG]
    (tmp_path / "other").mkdir()
    with served(tmp_path / "other") as api:
        response = api.post(COMPLETE, json={**DOCUMENTED, "summary": "All is well."})
        assert "configure one (HEEDFUL_MODEL)" in refused(response, 422)
        assert refused(api.get("/orchestrator/guardrails-status/loop_001"), 404)


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"alignment_score": 1.5}, "alignment_score"),
        ({"drift_score": "low"}, "drift_score"),
        ({"override_fatigue": "perhaps"}, "override_fatigue"),
        ({"bias_tags": [{"severity": 1}]}, "tag"),
        ({"reflection_status": None}, "reflection_status"),
    ],
)
def test_what_is_wrong_is_said_with_the_loop(api, told, said):
    assert said in refused(api.post(COMPLETE, json={**DOCUMENTED, **POOR, **told}), 422)


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("body", "loop"),
    [("{", None), ("[]", None), ("{}", None), ('{"loop_id": 3}', None), ('{"loop_id": "x"}', "x")],
)
def test_a_body_that_is_none_is_refused(api, body, loop):
    headers = {"Content-Type": "application/json"}
    assert refused(api.post(COMPLETE, content=body, headers=headers), 422, loop)


def test_flags_need_a_key_that_may_approve(api):
    completion, writer = {**DOCUMENTED, **POOR}, api.key("read", "write")
    flags = {**completion, "override_fatigue": True}
    assert "approve" in refused(api.post(COMPLETE, json=flags, key=writer), 403)
    assert api.post(COMPLETE, json=completion, key=writer).status_code == 200


def test_another_tenant_is_refused_and_sees_nothing(api):
    told = {**DOCUMENTED, **POOR}
    assert "tenant" in refused(api.post(COMPLETE, json={**told, "tenant_id": "rival"}), 403)
    assert "tenant" in refused(api.post(f"{COMPLETE}?tenant=rival", json=told), 403)
    assert "project" in refused(api.post(COMPLETE, json={**told, "project_id": "other"}), 403)
    completed(api, **POOR, tenant_id="acme", project_id="main")
    rival = api.key("read", "write", tenant="rival")
    status = "/orchestrator/guardrails-status/loop_001"
    assert refused(api.get(status, key=rival), 404)
    assert api.post(COMPLETE, json=told, key=rival).json()["decision_result"]["rerun_count"] == 1


@pytest.mark.sqlite
def test_a_running_service_answers_in_these_shapes(tmp_path):
    with running(tmp_path) as url, httpx.Client(base_url=url, timeout=30) as client:
        answer = completed(client, **FIRST)
        assert answer["decision_result"]["new_loop_id"] == "loop_001_r1"
        status = client.get("/orchestrator/guardrails-status/loop_001")
        shapes.has(status.json(), shapes.STATUS)
        lift = {"override_max_reruns": True, "override_by": "ops"}
        response = client.post("/orchestrator/override-guardrails/loop_001", json=lift)
        shapes.has(response.json(), shapes.OVERRIDE)
        wrong = {**DOCUMENTED, "reflection_status": "pending"}
        said = refused(client.post(COMPLETE, json=wrong), 422)
        assert said == "Invalid reflection status. Must be 'done'."
        assert refused(client.get("/orchestrator/guardrails-status/nobody"), 404, "nobody")
        assert refused(client.get("/orchestrator/nothing"), 404, None)
        talk = {**SPOKEN, "tenant_id": "default", "project_id": "default"}
        made = client.post("/api/v1/reflections/generate", json=talk).json()
        has_shape(made, TYPES)
        asked = {"tenant_id": "default", "project_id": "default", "min_importance": 0}
        found = client.post("/api/v1/reflections/query", json=asked).json()["reflections"]
        assert [one["reflection_id"] for one in found] == [made["reflection_id"]]
        other = client.post("/api/v1/reflections/query", json={**asked, "tenant_id": "rival"})
        assert (other.status_code, list(other.json())) == (403, ["status", "message"])

"""Reflections over HTTP in the shapes that callers of earlier systems rely on."""

from __future__ import annotations

from typing import Any

import pytest

from heedful.compat.reflections import Reflections
from heedful.service.routes.compatible import ReflectionQuery
from heedful.testing import ScriptedModel
from tests.compat.test_generated import FAILED, FOUND, SPOKEN, TYPES, has_shape
from tests.engines import IN_SOAK
from tests.service.support import served

RUN: dict[str, Any] = {**FAILED, "tenant_id": "acme", "project_id": "main"}
TALK: dict[str, Any] = {**SPOKEN, "tenant_id": "acme", "project_id": "main", "session_id": "s1"}
ASKED: dict[str, Any] = {"tenant_id": "acme", "project_id": "main"}
GENERATE, QUERY = "/api/v1/reflections/generate", "/api/v1/reflections/query"


pytestmark = IN_SOAK


@pytest.fixture
def api(tmp_path):
    with served(tmp_path) as api:
        yield api


def refused(response: Any, status: int) -> str:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert list(body) == ["status", "message"]
    assert body["status"] == "error"
    told: str = body["message"]
    return told


def test_what_is_generated_is_stored_and_found(api):
    made = api.post(GENERATE, json=TALK).json()
    found = api.post(QUERY, json={**ASKED, "min_importance": 0}).json()
    has_shape(found, {"reflections": list})
    assert made["reflection_id"] in [one["reflection_id"] for one in found["reflections"]]
    for one in found["reflections"]:
        has_shape(one, FOUND)
        assert (one["source"], one["layer"]) == ("reflection_engine_v2", "rm")


def test_the_least_that_is_taken_has_its_ids_and_times_filled_in(api):
    events = [{"event_type": "system_event", "content": "out of memory"}]
    made = api.post(GENERATE, json={"events": events, "outcome": "error"}).json()
    has_shape(made, TYPES)
    assert (made["related_memory_ids"], made["metadata"]["session_id"]) == ([], "")


def test_what_is_only_generated_is_not_stored(api):
    api.post(GENERATE, json={**TALK, "store": False})
    assert api.post(QUERY, json={**ASKED, "min_importance": 0}).json() == {"reflections": []}


@pytest.mark.sqlite
def test_a_query_has_its_documented_defaults():
    asked = ReflectionQuery().model_dump(exclude_none=True)
    assert asked == {"k": 5, "min_importance": 0.5, "match": "any"}


@pytest.mark.sqlite
@pytest.mark.parametrize(("on_model_error", "status"), [("keep", 200), ("raise", 503)])
def test_a_model_that_fails_leaves_a_marked_reflection_unless_it_is_to_raise(
    tmp_path, on_model_error, status
):
    from heedful.errors import ModelUnavailable

    model = ScriptedModel(ModelUnavailable("the provider is away"))
    with served(tmp_path, model=model) as api:
        response = api.post(GENERATE, json={**RUN, "on_model_error": on_model_error})
        if status == 200:
            assert response.status_code == 200, response.text
            has_shape(response.json(), TYPES)
        else:
            assert refused(response, status)


@pytest.mark.parametrize("run", [RUN, TALK])
def test_what_tools_or_a_key_that_may_not_approve_say_waits_for_somebody_who_may(api, run):
    api.post(GENERATE, json=run, key=None if run is RUN else api.key("read", "write"))
    found = api.post(QUERY, json={**ASKED, "min_importance": 0}).json()["reflections"]
    assert [one for one in found if one["kind"] == "reflection"] == []


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("path", "given", "said"),
    [
        (GENERATE, {"outcome": "lost"}, "outcome"),
        (GENERATE, {"events": "none"}, "events"),
        (GENERATE, {"events": [{"content": "x"}]}, "event_type"),
        (GENERATE, {"events": [], "error": None}, "events"),
        (QUERY, {"k": 0}, "k"),
        (QUERY, {"min_importance": 2}, "min_importance"),
        (QUERY, {"match": "none"}, "match"),
        (QUERY, {"tags": "one"}, "tags"),
    ],
)
def test_what_is_wrong_is_said_without_a_problem(api, path, given, said):
    assert said in refused(api.post(path, json={**RUN, **given}), 422)


def test_what_is_no_json_is_said_too(api):
    headers = {"Content-Type": "application/json"}
    assert refused(api.post(GENERATE, content=b"{", headers=headers), 422)


def test_reflections_can_be_switched_off(tmp_path):
    off = Reflections.of({"REFLECTIVE_MEMORY_ENABLED": "false"})
    with served(tmp_path, reflections=off) as api:
        assert "HEEDFUL_REFLECTION_ENABLED" in refused(api.post(GENERATE, json=RUN), 503)


def test_another_tenants_reflections_are_never_found(api):
    api.post(GENERATE, json=TALK)
    key = api.key("read", tenant="rival")
    asked = {"min_importance": 0, "query_text": TALK["task_description"]}
    assert api.post(QUERY, json=asked, key=key).json() == {"reflections": []}
    assert api.post(QUERY, json={**asked, **ASKED}).json() != {"reflections": []}

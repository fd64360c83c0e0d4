"""What each route needs: a scope, the key's own tenant, one of its projects.

The routes are those of the application, so that a new one that needs nothing fails here.
"""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from heedful.service.app import examples
from heedful.service.auth import Needs
from heedful.service.routes import ROUTERS
from heedful.store.keys import MAY
from tests.engines import IN_SOAK
from tests.service.support import Api, problem, served

pytestmark = IN_SOAK

PUBLIC = {"GET /healthz", "GET /readyz", "GET /metrics", "GET /docs"}
NEEDS = {
    "read": """
        GET /v1/loops
        GET /v1/loops/{id:path}
        GET /v1/loops/{id:path}/explain
        POST /v1/replay
        GET /v1/episodes
        GET /v1/reflections
        GET /v1/reflections/{id}
        POST /v1/seen
        POST /v1/recall
        GET /v1/proof
        GET /v1/quarantine
        GET /v1/quarantine/log
        GET /v1/quarantine/{id}
        GET /v1/dreams
        GET /orchestrator/guardrails-status/{loop_id:path}
        POST /api/v1/reflections/query
    """,
    "write": """
        PUT /v1/loops/{id:path}
        PUT /v1/loops/{id:path}/attempts/{n}
        POST /v1/loops/{id:path}/cancel
        POST /v1/episodes
        POST /v1/reflections
        POST /v1/outcomes
        POST /v1/dreams
        POST /v1/traces
        POST /orchestrator/loop-complete
        POST /api/v1/reflections/generate
    """,
    "approve": """
        POST /v1/loops/{id:path}/overrides
        PATCH /v1/reflections/{id}
        POST /v1/quarantine/revoke
        POST /v1/quarantine/{id}/release
        POST /v1/quarantine/{id}/reject
        POST /v1/dreams/{id}/rollback
        POST /orchestrator/override-guardrails/{loop_id:path}
    """,
    "admin": """
        GET /v1/keys
        POST /v1/keys
        DELETE /v1/keys/{id}
        GET /v1/audit
    """,
}
EXPECTED = {line.strip(): may for may, all in NEEDS.items() for line in all.strip().splitlines()}
ROUTES = {
    f"{method} {route.path}": route
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in route.methods or ()
}


def _needed(one: Dependant) -> list[str]:
    own = [one.call.may] if isinstance(one.call, Needs) else []
    return [*own, *(may for each in one.dependencies for may in _needed(each))]


def test_every_route_needs_one_scope_or_tells_of_nobody():
    assert {name: _needed(route.dependant) for name, route in ROUTES.items()} == {
        **{name: [] for name in PUBLIC},
        **{name: [may] for name, may in EXPECTED.items()},
    }


@pytest.fixture
def api(tmp_path):
    with served(tmp_path) as api:
        yield api


def _asked(api: Api, name: str, key: str, query: str = "", **changes: Any) -> Any:
    """The example of a route, with a body that has these changes, where there is one."""
    method, path = name.split()
    spec = api.app.openapi()
    described = path.replace(":path", "")
    operation = spec["paths"][described][method.lower()]
    body = examples(operation).get("request")
    real = described.replace("{n}", "1").replace("{id}", "1").replace("{loop_id}", "1")
    if body is not None:
        return api.request(method, real + query, key=key, json={**body, **changes})
    return api.request(method, real + query, key=key)


def _refused(answer: Any, name: str, code: str) -> None:
    if name.split()[1].startswith("/v1/"):
        problem(answer, 401 if code == "key_refused" else 403, code)
        return
    assert answer.status_code == (401 if code == "key_refused" else 403), (name, answer.text)


def test_each_refuses_who_may_all_but_that(api):
    keys = {may: api.key(*(set(MAY) - {may})) for may in MAY}
    for name, may in EXPECTED.items():
        _refused(_asked(api, name, keys[may]), name, "forbidden")
        _refused(_asked(api, name, ""), name, "key_refused")


def test_each_refuses_another_tenant_wherever_it_is_named(api):
    key = api.key(*MAY)
    for name, route in ROUTES.items():
        if name in PUBLIC:
            continue
        for field in ("tenant", "tenant_id"):
            _refused(_asked(api, name, key, f"?{field}=other"), name, "tenant_mismatch")
        fields = _fields(route)
        for field in {"tenant", "tenant_id"} & fields:
            _refused(_asked(api, name, key, **{field: "other"}), name, "tenant_mismatch")
        if fields:
            assert fields & {"tenant", "tenant_id"}, f"{name} has a body that names no tenant"


def test_each_refuses_another_project_wherever_it_is_named(api):
    key = api.key(*MAY)
    for name, route in ROUTES.items():
        query = _query(route.dependant)
        body = "project_id" in _fields(route)
        if "project" in query and not body:
            _refused(_asked(api, name, key, "?project=other"), name, "forbidden")
        if body:
            _refused(_asked(api, name, key, project_id="other"), name, "forbidden")
        assert name in PUBLIC or query & {"project"} or body or EXPECTED[name] == "admin", name


def test_whoever_is_bound_to_projects_revokes_keys_of_these_alone(api):
    bound = api.key("admin")
    for projects in ((), ("main", "other")):
        one = api.key("read", projects=projects).split("_")[1]
        problem(api.delete(f"/v1/keys/{one}", key=bound), 403, "forbidden")
        shown = {item["id"]: item for item in api.get("/v1/keys").json()["items"]}[one]
        assert shown["revoked"] is None
        free = api.key("admin", projects=())
        assert api.delete(f"/v1/keys/{one}", key=free).json()["revoked"]


def _query(one: Dependant) -> set[str]:
    own = {param.alias for param in one.query_params}
    return own.union(*map(_query, one.dependencies))


def _fields(route: APIRoute) -> set[str]:
    kind = route.body_field.field_info.annotation if route.body_field else None
    return set(getattr(kind, "model_fields", {}))

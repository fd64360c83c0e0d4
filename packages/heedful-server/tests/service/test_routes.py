"""Every route: what it needs, how it is described, and that the pages name it and no
other.

The routes are those of the application, so that a new one that needs nothing fails
here.
"""

import json
import re
from pathlib import Path
from typing import Any, get_type_hints

import jsonschema
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel

from heedful.store.keys import KEY_PERMISSIONS
from heedful.store.sqlite import in_file
from heedful.wire import ERROR_RESPONSES
from heedful_server.app import api_examples, application, operations
from heedful_server.auth import CallerDependency
from heedful_server.routes import error_bodies, route_groups
from heedful_server.setup import Setup
from tests.service.support import PROJECT, TENANT, Api, problem

pytestmark = pytest.mark.both_nightly

PUBLIC = {"GET /healthz", "GET /readyz", "GET /metrics", "GET /docs"}
ROUTES = {
    f"{method} {route.path.replace(':path}', '}')}": route
    for group in route_groups()
    for route in group.router.routes
    if isinstance(route, APIRoute)
    for method in route.methods or ()
    if method != "HEAD"  # of a route that also has GET
}
DOCS = Path(__file__).parents[4] / "docs"
PAGE = "\n".join(
    (DOCS / name).read_text("utf-8")
    for name in (
        "http.md",
        "earlier-systems/guardrails.md",
        "earlier-systems/reflections.md",
    )
)
# What each route needs, as the pages say it.
ROW = (
    r"^\| `((?:GET|PUT|POST|PATCH|DELETE) /[^`?]*)`[^|]*"
    r"\| (read|write|approve|admin) \|"
)
EXPECTED = {row[1]: row[2] for row in re.finditer(ROW, PAGE, re.MULTILINE)}
Operations = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def service() -> FastAPI:
    """An application that nobody calls."""
    return application(Setup(store=in_file(":memory:")))


@pytest.fixture(scope="module")
def spec(service: FastAPI) -> dict[str, Any]:
    """The description of the service in OpenAPI."""
    return service.openapi()


@pytest.fixture(scope="module")
def described(spec: dict[str, Any]) -> Operations:
    """What the description says of each route, by the names of `ROUTES`."""
    return {
        f"{method.upper()} {path}": operation
        for path, method, operation in operations(spec)
    }


def needed(route: APIRoute) -> list[str]:
    """The permission that a route needs: the first that its caller may have."""
    permissions: list[str] = []
    for annotation in get_type_hints(route.endpoint, include_extras=True).values():
        for dependency in getattr(annotation, "__metadata__", ()):
            caller = getattr(dependency, "dependency", None)
            if isinstance(caller, CallerDependency):
                permissions.append(caller.may[0])
    return permissions


def test_every_route_needs_what_the_page_says_or_tells_of_nobody():
    assert {name: needed(route) for name, route in ROUTES.items()} == {
        **{name: [] for name in PUBLIC},
        **{name: [may] for name, may in EXPECTED.items()},
    }


def asked(
    api: Api,
    name: str,
    key: str,
    query: str = "",
    id: object = 1,
    headers: Any = None,
    **changes: Any,
) -> Any:
    """Send the example of a route, its body (if it has one) with these changes."""
    method, path = name.split()
    body = api_examples().get(name, {}).get("request")
    real = re.sub(r"{(id|loop_id)}", str(id), path)
    for part, value in {"n": "1", "ruling": "reject", "agent": "claude-code"}.items():
        real = real.replace(f"{{{part}}}", value)
    more = {} if body is None else {"json": {**body, **changes}}
    return api.request(method, real + query, key=key, headers=headers or {}, **more)


def refused(answer: Any, name: str, code: str) -> None:
    status = 401 if code == "key_refused" else 403
    if name.split()[1].startswith("/v1/"):
        problem(answer, status, code)
    assert answer.status_code == status, (name, answer.text)


def of_body(name: str) -> set[str]:
    """The fields of the body of a route."""
    hints = get_type_hints(ROUTES[name].endpoint)
    hints.pop("return")
    for annotation in hints.values():
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return set(annotation.model_fields)
    return set()


def test_each_refuses_who_may_all_but_that_and_what_is_anothers(api):
    key = api.key(*KEY_PERMISSIONS)
    but: dict[str, str] = {
        may: api.key(*(set(KEY_PERMISSIONS) - {may, "recall"}))
        for may in KEY_PERMISSIONS
    }
    for name, may in EXPECTED.items():
        fields = of_body(name)
        refused(asked(api, name, but[may]), name, "forbidden")
        refused(asked(api, name, ""), name, "key_refused")
        for field in ("tenant", "tenant_id"):
            refused(asked(api, name, key, f"?{field}=other"), name, "tenant_mismatch")
        for field in {"tenant", "tenant_id"} & fields:
            refused(asked(api, name, key, **{field: "other"}), name, "tenant_mismatch")
        assert not fields or fields & {"tenant", "tenant_id"}
        refused(asked(api, name, key, "?project=other"), name, "forbidden")
        if "project_id" in fields:
            refused(asked(api, name, key, project_id="other"), name, "forbidden")


@pytest.mark.both
def test_every_route_does_its_work_on_each_engine(api):
    key = api.key(*KEY_PERMISSIONS)
    writer = api.key("write", outside=True)
    answered = set()

    def send(name: str, *, key: str = key, **options: Any) -> Any:
        """Send the example of a route, which is answered; return its data."""
        answer = asked(api, name, key, **options)
        assert answer.is_success, (name, answer.text)
        answered.add(name)
        is_json = answer.headers["content-type"] == "application/json"
        return answer.json() if is_json else answer.text

    for name in sorted(PUBLIC):
        send(name)

    send("PUT /v1/loops/{id}", goals=None, policy="orchestrator, attempts.limit=1")
    send("PUT /v1/loops/{id}/attempts/{n}")
    send("POST /v1/loops/{id}/overrides")
    send("POST /v1/loops/{id}/notes")
    send("POST /v1/loops/{id}/cancel")
    send("POST /v1/validate", checks=[{"name": "not_empty"}])
    send("POST /v1/replay")
    send("POST /orchestrator/loop-complete")
    lifted: dict[str, Any] = {"override_fatigue": False, "override_max_reruns": True}
    send("POST /orchestrator/override-guardrails/{loop_id}", **lifted)

    lesson = send("POST /v1/reflections")["id"]
    edition = send("GET /v1/reflections/{id}", id=lesson)["edition"]
    headers = {"If-Match": f'"{edition}"'}
    send("PATCH /v1/reflections/{id}", id=lesson, headers=headers)

    entry = send("POST /v1/reflections", key=writer, text="a text")["entry"]
    send("GET /v1/quarantine/{id}", id=entry)
    send("POST /v1/quarantine/{id}/{ruling}", id=entry)
    send("POST /v1/reflections", key=writer, text="another text")
    send("POST /v1/quarantine/revoke", source=f"key:{writer.split('_')[1]}")

    send("POST /v1/recall", loop="recalled")
    send("POST /v1/outcomes", loop="recalled")
    send("POST /v1/trials/offers")
    send("POST /v1/trials/results")
    send("GET /v1/trials/proof", query="?source=mem0")
    mine = {"tenant_id": TENANT, "project_id": PROJECT}
    for name in sorted(set(ROUTES) - answered):
        is_compatible = name.split()[1].startswith("/api/v1/")
        send(name, **(mine if is_compatible else {}))
    assert answered == set(ROUTES)


def test_the_description_has_every_route_and_no_other(described):
    assert set(described) == set(ROUTES) - {"GET /docs"}


@pytest.mark.parametrize("name", sorted(set(ROUTES) - {"GET /docs"}))
def test_every_route_says_what_it_does_with_an_example_that_fits(name, described, spec):
    operation = described[name]
    path = name.split()[1]
    assert operation["description"].endswith(".")
    has_own_errors = path.startswith(tuple(error_bodies()))
    kind = "application/json" if has_own_errors else "application/problem+json"
    assert list(operation["responses"]["default"]["content"]) == [kind]
    assert name in PUBLIC or operation["security"] == [{"key": []}]
    bodies = {"request": operation.get("requestBody", {})}
    bodies |= {
        status: answer
        for status, answer in operation["responses"].items()
        if status < "3"
    }
    for body in bodies.values():
        content = body.get("content", {}).get("application/json")
        if content:
            schema = {**content["schema"], "components": spec["components"]}
            jsonschema.Draft202012Validator(schema).validate(content["example"])


def test_the_description_is_openapi_3_1_made_once_and_read_without_a_key(
    api, service, spec, described
):
    assert spec["openapi"].startswith("3.1")
    assert service.openapi() is spec
    ids = [operation["operationId"] for operation in described.values()]
    assert len(set(ids)) == len(ids)
    assert api.get("/openapi.json", key="").json() == json.loads(json.dumps(spec))
    page = api.get("/docs", key="")
    assert service.state.page() is service.state.page()
    assert page.headers["content-type"].startswith("text/html")
    assert all(path in page.text for path in spec["paths"])
    assert "<script" not in page.text
    assert "script-src" not in page.headers["content-security-policy"]


def test_the_pages_on_http_name_every_route_and_the_codes():
    routes = re.findall(r"`((?:GET|PUT|POST|PATCH|DELETE) /[^`?]*)`", PAGE)
    assert set(routes) == {*ROUTES, "GET /openapi.json"}
    for status, code in ERROR_RESPONSES.values():
        for row in re.findall(rf"^\| ([\d, ]+) \|.*`{code}`", PAGE, re.MULTILINE):
            assert str(status) in row.split(", ")

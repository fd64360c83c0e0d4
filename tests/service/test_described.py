"""The description: an example for each route that fits its schema, errors, keys, a page."""

import json

import jsonschema
import pytest

from heedful.service.app import application, describe, examples, operations
from heedful.service.routes import SHAPES
from heedful.service.setup import Setup
from heedful.store.sqlite import in_file
from tests.service.support import served

APP = application(Setup(in_file(":memory:")))
SPEC = APP.openapi()
OPERATIONS = [(f"{method} {path}", path, one) for path, method, one in operations(SPEC)]
each = pytest.mark.parametrize(
    ("path", "operation"), [one[1:] for one in OPERATIONS], ids=[one[0] for one in OPERATIONS]
)


def bodies(operation):
    """Name -> JSON content of the request and of the answers that are no errors."""
    given = {"request": operation.get("requestBody", {})}
    given |= {status: one for status, one in operation["responses"].items() if status < "3"}
    contents = {name: one.get("content", {}) for name, one in given.items()}
    return {
        name: content["application/json"]
        for name, content in contents.items()
        if "application/json" in content
    }


@each
def test_every_body_has_an_example_that_fits(path, operation):
    found = examples(operation)
    for name, content in bodies(operation).items():
        assert name in found
        schema = {**content["schema"], "components": SPEC["components"]}
        jsonschema.Draft202012Validator(schema).validate(found[name])


@each
def test_every_route_says_what_it_does_and_how_it_fails(path, operation):
    assert operation["description"].endswith(".")
    assert "422" not in operation["responses"] or path.startswith(tuple(SHAPES))
    kinds = operation["responses"]["default"]["content"]
    expected = "application/json" if path.startswith(tuple(SHAPES)) else "application/problem+json"
    assert list(kinds) == [expected]
    public = path in ("/healthz", "/readyz", "/metrics")
    assert public or operation["security"] == [{"key": []}]


def test_it_is_openapi_3_1_made_once():
    assert SPEC["openapi"].startswith("3.1")
    assert describe(APP) is SPEC
    ids = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(set(ids)) == len(ids)


def test_it_can_be_read_without_a_key(tmp_path):
    with served(tmp_path) as api:
        assert api.get("/openapi.json", key="").json() == json.loads(json.dumps(SPEC))
        page = api.get("/docs", key="")
        assert page.headers["content-type"].startswith("text/html")
        assert "/v1/loops/{id}" in page.text
        assert "<script" not in page.text
        assert "script-src" not in page.headers["content-security-policy"]

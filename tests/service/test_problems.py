"""Every error has a status and a code of its own, and tells no secrets."""

import json

import pytest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException

from heedful import errors
from heedful.errors import HeedfulError
from heedful.service import problems
from heedful.service.wire import TABLE

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, HeedfulError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_and_a_code(kind):
    status, code = TABLE[next(one for one in kind.__mro__ if one in TABLE)]
    assert 400 <= status < 600
    assert code.isidentifier()


def test_codes_are_told_apart():
    codes = [code for _, code in TABLE.values()]
    assert len(codes) == len(set(codes))


def told(error):
    answer = problems.answer(error, {"path": "/v1/loops"}, {})
    return json.loads(bytes(answer.body)), answer.headers


def test_where_the_store_is_and_what_it_said_is_nobodys_business(caplog):
    for error in (
        errors.StoreUnavailable("/var/lib/heedful.db: disk I/O error"),
        errors.StoreCorrupt("/var/lib/heedful.db is damaged"),
        errors.StoreInDoubt("server at 10.0.0.1 went away"),
    ):
        body, _ = told(error)
        assert "heedful.db" not in str(body)
        assert "10.0.0.1" not in str(body)
    assert "disk I/O error" in caplog.text
    body, _ = told(errors.NotFound("loop", "a", "/var/lib/heedful.db"))
    assert (body["code"], body["detail"]) == ("not_found", "no loop 'a'")


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (errors.LeaseLost("at work"), 409, {"retry-after": "1"}),
        (errors.StoreUnavailable("gone"), 503, {"retry-after": "1"}),
        (errors.ModelUnavailable("gone"), 503, {"retry-after": "1"}),
        (errors.KeyRefused("no"), 401, {"www-authenticate": 'Bearer realm="heedful"'}),
        (errors.Conflict("other"), 409, {}),
        (HTTPException(405, headers={"Allow": "GET"}), 405, {"allow": "GET"}),
        (RecursionError(), 422, {}),
        (problems.Problem(428, "precondition_required", "send If-Match"), 428, {}),
    ],
)
def test_an_error_has_its_status_and_what_to_do(error, status, headers):
    body, found = told(error)
    assert body["status"] == status
    assert {name: found.get(name) for name in headers} == headers
    assert ("retry-after" in found) == ("retry-after" in headers)


def test_what_would_be_right_is_said_and_only_a_field_is_pointed_at():
    assert told(HTTPException(404))[0]["detail"].endswith("/docs lists what is")
    assert told(HTTPException(405, headers={"Allow": "GET"}))[0]["detail"].endswith(
        "this path takes GET"
    )
    empty = RequestValidationError([{"loc": ("body",), "msg": "Field required", "type": "missing"}])
    assert told(empty)[0]["detail"] == "body: a JSON object is needed"
    assert told(errors.InvalidInput("why", "", "said"))[0]["errors"][0]["pointer"] == "/why"
    assert "errors" not in told(errors.InvalidInput("a goal", "x", "written like y"))[0]


def test_a_package_that_is_missing_is_the_services_and_not_the_callers():
    body, _ = told(errors.PackageMissing("this", "xllamacpp", "embedded"))
    assert (body["status"], body["detail"]) == (501, "the service was installed without xllamacpp")


def test_no_secret_is_said_again():
    secret = "heedful_3f0c9a1b2d4e_" + 64 * "a"
    bodies = []
    for error in (
        errors.InvalidInput("project", secret, "a name"),
        problems.Problem(400, "bad_request", f"no {secret}"),
        RequestValidationError(
            [{"loc": ("body", "a", 0), "msg": f"no {secret}", "input": secret, "type": "x"}]
        ),
    ):
        bodies.append(told(error)[0])
        assert 64 * "a" not in str(bodies[-1])
    body = bodies[-1]
    assert body["errors"] == [
        {"in": "body", "pointer": "/a/0", "detail": body["errors"][0]["detail"]}
    ]


def test_a_pointer_names_the_field_alone_if_it_takes_several_kinds_of_value():
    kinds = ("function-after[check(), constrained-str]", "dict[str,json-or-python[json=any]]")
    complaints = [{"loc": ("body", "goals", 0, kind), "msg": "no", "type": "x"} for kind in kinds]
    body = told(RequestValidationError(complaints))[0]
    assert [one["pointer"] for one in body["errors"]] == ["/goals/0", "/goals/0"]
    assert body["detail"] == "body/goals/0: no"


def test_a_store_that_is_away_is_logged_in_a_line_once_a_minute(caplog):
    for said in 3 * ["no route to 10.0.0.1\nagain", "10.0.0.1 is full"]:
        assert told(errors.StoreUnavailable(said))[0]["status"] == 503
    assert [one.getMessage() for one in caplog.records] == [
        "store_unavailable: no route to 10.0.0.1 again",
        "store_unavailable: 10.0.0.1 is full",
    ]


def test_what_a_path_says_is_not_logged(caplog):
    problems.answer(ZeroDivisionError(), {"path": "/v1/loops/private\n2026-01-01 INFO forged"}, {})
    assert "ZeroDivisionError" in caplog.text
    assert "private" not in caplog.text
    assert "forged" not in caplog.text


def test_a_route_may_tell_errors_in_a_shape_of_its_own():
    shapes = {"/old": lambda one, scope: PlainTextResponse(f"{one.code}!", one.status)}
    answer = problems.answer(errors.LeaseLost("at work"), {"path": "/old/route"}, shapes)
    assert (bytes(answer.body), answer.headers["retry-after"]) == (b"at_work!", "1")
    assert b"!" not in bytes(
        problems.answer(errors.LeaseLost("at work"), {"path": "/new"}, shapes).body
    )


def test_a_class_of_a_user_is_told_as_what_it_is_a_kind_of():
    class Mine(errors.Conflict):
        """One that the table does not know."""

    body, _ = told(Mine("other"))
    assert (body["status"], body["code"]) == (409, "conflict")

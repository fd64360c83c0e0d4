"""Every error has a status and a code of its own, and tells no secrets."""

import json

import pytest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from heedful import errors
from heedful.client import refused
from heedful.errors import HeedfulError
from heedful.wire import ERROR_RESPONSES
from heedful_server import problems
from tests.service.support import problem
from tests.tables import cases

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, HeedfulError)
]
KNOWN = (
    (
        errors.InvalidInput("limit", -1, "an integer of at least 1"),
        ("field", "allowed"),
    ),
    (errors.NotFound("loop", "a", "heedful.db"), ("kind", "id")),
    (errors.NotQuarantined(3, "unverified"), ("id", "state")),
    (errors.Changed("lesson", "3", "now"), ("edition",)),
    (errors.QuotaExceeded("page", 11, quota=10), ("source", "count", "quota")),
)


def respond(error, path="/v1/loops"):
    scope = {"path": path, "state": {"request_id": "r1"}}
    answer = problems.answer(error, scope)
    return json.loads(bytes(answer.body)), answer.headers


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_and_a_code_and_comes_back_to_a_client(kind):
    error = kind.__new__(kind)
    HeedfulError.__init__(error, "it was so")
    facts = {"kind": "loop", "id": "a", "remedy": "", "field": "f"}
    vars(error).update(facts, package="x", extra="y")
    body, _ = respond(error)
    assert 400 <= body["status"] < 600
    nearest = next(base for base in kind.__mro__ if base in ERROR_RESPONSES)
    assert type(refused(body["status"], json.dumps(body))) is nearest


def test_codes_are_told_apart_and_errors_know_what_they_knew():
    codes = [code for _, code in ERROR_RESPONSES.values()]
    assert len(codes) == len(set(codes))
    for error, names in KNOWN:
        body, _ = respond(error)
        back = refused(body["status"], json.dumps(body))
        assert [getattr(back, name) for name in names] == [
            getattr(error, name) for name in names
        ]


@cases(
    ("error", "status", "headers", "words"),
    {
        "a lease lost": (
            errors.LeaseLost("at work"),
            409,
            {"retry-after": "1"},
            "at work",
        ),
        "no store": (
            errors.StoreUnavailable("gone"),
            503,
            {"retry-after": "1"},
            "the store",
        ),
        "a write in doubt with a key": (
            errors.StoreInDoubt("gone", key="order-7"),
            503,
            {"retry-after": "1"},
            "the same Idempotency-Key: it is not written twice",
        ),
        "a write in doubt that counts": (
            errors.StoreInDoubt("gone", counts=True),
            503,
            {"retry-after": "1"},
            "see whether it was written",
        ),
        "a write in doubt": (
            errors.StoreInDoubt("gone"),
            503,
            {"retry-after": "1"},
            "send the same request again",
        ),
        "a key refused": (
            errors.KeyRefused("no"),
            401,
            {"www-authenticate": 'Bearer realm="heedful"'},
            "no",
        ),
        "an unknown path": (HTTPException(404), 404, {}, "/docs lists all routes"),
        "an unknown method": (
            HTTPException(405, headers={"Allow": "GET"}),
            405,
            {"allow": "GET"},
            "methods of this path are: GET",
        ),
        "nested too deeply": (RecursionError(), 422, {}, "nested too deeply"),
        "a problem": (
            problems.Problem(
                status=428, code="precondition_required", detail="send It"
            ),
            428,
            {},
            "send It",
        ),
        "a package missing": (
            errors.PackageMissing("this", "xllamacpp", "embedded"),
            501,
            {},
            "without xllamacpp",
        ),
    },
)
def test_an_error_has_its_status_and_what_to_do(error, status, headers, words):
    body, answer_headers = respond(error)
    assert body["status"] == status
    assert words in body["detail"]
    assert {name: answer_headers.get(name) for name in headers} == headers
    assert ("retry-after" in answer_headers) == ("retry-after" in headers)


def test_a_pointer_names_the_field_alone():
    kind = "function-after[check(), constrained-str]"
    complaint = {"loc": ("body", "goals", 0, kind), "msg": "no", "type": "x"}
    body = respond(RequestValidationError([complaint]))[0]
    assert [error["pointer"] for error in body["errors"]] == ["/goals/0"]
    assert body["detail"] == "body/goals/0: it must be of another form (x)"
    empty = RequestValidationError([{"loc": ("body",), "msg": "no", "type": "missing"}])
    assert respond(empty)[0]["detail"] == "body: a JSON object is needed"
    assert (
        respond(errors.InvalidInput("why", "", "said"))[0]["errors"][0]["pointer"]
        == "/why"
    )
    assert (
        "errors" not in respond(errors.InvalidInput("a goal", "x", "written like y"))[0]
    )


def test_an_earlier_systems_error_repeats_no_secret(api):
    body = {"loop_id": f"heedful_3f0c9a1b2d4e_{64 * 'a'}", "reflection_status": "late"}
    answer = api.post("/orchestrator/loop-complete", json=body)
    assert answer.json()["status"] == "error"
    assert 64 * "a" not in answer.text


def test_no_secret_and_no_place_of_the_store_is_said_and_the_log_has_it_once(caplog):
    secret = "heedful_3f0c9a1b2d4e_" + 64 * "a"
    wrong = {
        "loc": ("body", secret, 0),
        "msg": f"no {secret}",
        "input": secret,
        "type": "x",
    }
    away = [
        errors.StoreUnavailable(f"/var/lib/heedful.db: {n}\nagain") for n in (1, 1, 2)
    ]
    for error in (
        *away,
        errors.StoreCorrupt("/var/lib/heedful.db is damaged"),
        errors.NotFound("loop", "a", "/var/lib/heedful.db"),
        errors.InvalidInput("project", secret, "a name"),
        problems.Problem(status=400, code="bad_request", detail=f"no {secret}"),
        RequestValidationError([wrong]),
        ZeroDivisionError(),
    ):
        body = str(respond(error, "/v1/loops/private\n2026-01-01 INFO forged")[0])
        assert not any(
            private in body for private in ("heedful.db", 64 * "a", "ZeroDivision")
        )
    lines = [
        record.getMessage()
        for record in caplog.records
        if "unavailable" in record.getMessage()
    ]
    assert lines == [
        f"store_unavailable: /var/lib/heedful.db: {n} again id=r1" for n in (1, 2)
    ]
    assert "ZeroDivisionError" in caplog.text
    assert "not_found" not in caplog.text
    assert not any(word in caplog.text for word in ("private", "forged", 64 * "a"))


@cases(
    ("path", "body", "field"),
    {
        "a count": (
            "/v1/episodes",
            {"fault": {"category": "bug", "message": "it fails"}, "omitted": False},
            "omitted",
        ),
        "a limit": (
            "/v1/recall",
            {"task": "sort a list", "limit": True},
            "limit",
        ),
    },
)
def test_true_and_false_are_no_counts(api, path, body, field):
    answer = api.post(path, json=body)
    [error] = problem(answer, 422, "invalid_request")["errors"]
    assert error["pointer"].endswith(field)
    assert "a number, not true or false" in error["detail"]


@cases(
    ("query", "code", "words"),
    {
        "a misspelt name": ("limt=1", "unknown_name", "did you mean 'limit'"),
        "a word for a number": (
            "limit=x",
            "invalid_request",
            "query/limit: it must be an integer",
        ),
        "too small": (
            "limit=0",
            "invalid_request",
            "query/limit: it must be at least 1",
        ),
    },
)
def test_a_wrong_query_parameter_is_refused_in_words_of_ours(api, query, code, words):
    answer = api.get(f"/v1/loops?{query}")
    assert words in problem(answer, 422, code)["detail"]


@cases(
    ("body", "words"),
    {
        "a value is missing": (b'{"task": }', "line 1, column 10"),
        "no end": (b'{\n"task": "a"', "line 2, column 12"),
        "bytes that are no text": (b'{"task": "\xff"}', "UTF-8"),
        "not a number": (b'{"task": NaN}', "NaN"),
    },
)
def test_a_body_that_is_no_json_is_a_bad_request(api, body, words):
    headers = {"Content-Type": "application/json"}
    answer = api.put("/v1/loops/pears", content=body, headers=headers)
    detail = problem(answer, 400, "bad_request")["detail"]
    assert words in detail
    for foreign in ("Expecting", "codec", "float values"):
        assert foreign not in detail


def test_a_wrong_method_is_told_all_methods_of_the_path(api):
    answer = api.delete("/v1/loops/pears")
    assert "are: GET, PUT" in problem(answer, 405, "method_not_allowed")["detail"]
    assert answer.headers["allow"] == "GET, PUT"

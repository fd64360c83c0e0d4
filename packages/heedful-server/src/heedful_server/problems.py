"""Answer errors as RFC 9457 problems (`application/problem+json`) with stable codes.

`of` turns an error into a `Problem`, and `answer` turns an error into a response.
Routes raise the errors of the library, or a `Problem` for errors of HTTP, such as a
missing precondition. The statuses and codes of the library's errors are a table,
`wire.ERROR_RESPONSES`. No problem shows a secret, where the store is, or what an
unexpected error says.
"""

import json
import logging
import traceback
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from http import HTTPStatus

from fastapi import Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from heedful import errors
from heedful.faults import fault_place, fault_text
from heedful.redact import redact, redact_data
from heedful.telemetry import LogThrottle
from heedful.validation import Document, Fields
from heedful.wire import ERROR_RESPONSES

log = logging.getLogger("heedful.http")
ERROR_THROTTLE = LogThrottle()
RETRY_SOON_HEADERS = {"Retry-After": "1"}  # for errors with an unknown waiting time
# Attributes of the library's errors that a problem contains. From them, the client
# makes the same error again.
PROBLEM_ATTRIBUTES = "allowed count edition field id kind quota source state".split()


@dataclass(eq=False)
class Problem(Exception):
    """An error as RFC 9457 describes it; `fields` are further members of its JSON."""

    status: int
    code: str
    _: KW_ONLY
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)
    fields: Fields = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.detail = redact(self.detail)
        self.fields = redact_data(self.fields)
        Exception.__init__(self, f"{self.status} {self.code}: {self.detail}")


# Makes the body of an answer from a problem and the fields of the request.
ErrorBody = Callable[[Problem, Document], Document]


def of(error: BaseException) -> Problem:
    """Return the problem that describes an error, without details if unexpected."""
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return _of_invalid_request(error)
        case HTTPException(status_code=404):
            return Problem(
                404,
                "unknown_path",
                detail="there is no route with this path; /docs lists all routes",
            )
        case HTTPException(status_code=status):
            code = HTTPStatus(status).phrase.lower().replace(" ", "_")
            headers = error.headers or {}
            detail = str(error.detail)
            if "Allow" in headers:
                detail = f"the methods of this path are: {headers['Allow']}"

            return Problem(status, code, detail=detail, headers=headers)
        case errors.HeedfulError():
            return _of_library_error(error)
        case RecursionError():
            return Problem(
                422,
                "nested_too_deeply",
                detail="the body is nested too deeply; flatten it",
            )
        case _:
            return Problem(
                500,
                "internal_error",
                detail="the service failed; its log has the request id",
            )


def _of_library_error(error: errors.HeedfulError) -> Problem:
    """Return the problem of one of heedful's own errors."""
    # The table may only have a base class of the error; the nearest counts.
    kind = next(kind for kind in type(error).__mro__ if kind in ERROR_RESPONSES)
    status, code = ERROR_RESPONSES[kind]
    headers: Mapping[str, str] = {}
    if status == 503 or code == "at_work":
        headers = RETRY_SOON_HEADERS

    attributes = {name: getattr(error, name, None) for name in PROBLEM_ATTRIBUTES}
    fields: Document = {
        key: value for key, value in attributes.items() if isinstance(value, str | int)
    }

    detail = str(error)
    match error:
        # Only an identifier is the name of a field of the body; other errors name a
        # part of a text, such as a check with its argument.
        case errors.InvalidInput() if error.field.isidentifier():
            fields |= {"errors": [{"pointer": f"/{error.field}", "detail": detail}]}
        case errors.NotFound():
            # The error's own text says where the store is, which is private.
            detail = f"no {error.kind} {error.id!r}{error.remedy}"
        case errors.PackageMissing():
            detail = (
                f"the service was installed without {error.package}; its "
                f"operator installs heedful[{error.extra}]"
            )
        case errors.StoreInDoubt():
            detail = f"the store did not confirm the write; {_remedy_of(error)}"
        case errors.StoreError() if status >= 500:
            detail = "the store of the service failed; the log has the error"
        case errors.KeyRefused():
            headers = {"WWW-Authenticate": 'Bearer realm="heedful"'}
        case _:
            pass

    return Problem(status, code, detail=detail, headers=headers, fields=fields)


def _remedy_of(doubt: errors.StoreInDoubt) -> str:
    """Return what the sender of a request can do after a lost commit."""
    if doubt.key:
        return (
            "send the request again with the same Idempotency-Key: it is not written "
            "twice"
        )
    if doubt.counts:
        return (
            "see whether it was written before you send the request again; with an "
            "Idempotency-Key you could send it again at once"
        )
    return "send the same request again: what is done already is not done twice"


# Errors of the service whose text says all; anybody may cause them again and again.
KNOWN_ERRORS = (
    errors.StoreUnavailable,
    errors.StoreInDoubt,
    errors.StoreCorrupt,
    errors.PoolerRefused,
    errors.PackageMissing,
)
# Pydantic's types of the fault that a body is missing, or is not a JSON object.
_NO_OBJECT_FAULTS = ("missing", "model_attributes_type", "model_type", "dict_type")


def bad_request(detail: str) -> Problem:
    """Return the problem of a request that is malformed."""
    return Problem(400, "bad_request", detail=detail)


def of_unreadable_json(error: ValueError) -> Problem:
    """Return the problem of a body that the parser of JSON refused."""
    match error:
        case json.JSONDecodeError():
            place = f"line {error.lineno}, column {error.colno}"
            detail = f"the body is not JSON: what is at {place} does not fit"
        case UnicodeDecodeError():
            detail = "the body is not text in UTF-8"
        case _:
            detail = "the body has NaN or Infinity, which JSON does not have"
    return bad_request(detail)


def _of_invalid_request(error: RequestValidationError) -> Problem:
    """Return a problem with a JSON pointer to each wrong field, without its value."""
    faults = []
    for fault in error.errors():
        part, *names = fault_place(fault)
        detail = redact(fault_text(fault))
        if fault["loc"] == ("body",) and fault["type"] in _NO_OBJECT_FAULTS:
            detail = "a JSON object is needed"

        pointer = "".join(f"/{name}" for name in names)
        faults.append({"in": part, "pointer": pointer, "detail": detail})

    return Problem(
        422,
        "invalid_request",
        detail="{in}{pointer}: {detail}".format(**faults[0]),
        fields={"errors": faults},
    )


def answer(
    error: BaseException,
    scope: Fields,
    bodies: Mapping[str, ErrorBody] = {},
) -> Response:
    """Return the response to an error; log the service's own, without secrets.

    `bodies` make other bodies than that of a problem, by the prefix of the path.
    """
    problem = of(error)
    if isinstance(error, errors.StoreCorrupt) and "app" in scope:
        scope["app"].state.readiness.damage = type(error).__name__
    if problem.status >= 500 and error is not problem:
        _log_error(error, problem.code, scope["state"]["request_id"])

    for prefix, body_of in bodies.items():
        if scope["path"].startswith(prefix):
            other_body = body_of(problem, _request_fields(scope))
            return JSONResponse(other_body, problem.status, headers=problem.headers)

    body = {
        "type": "about:blank",
        "title": problem.code.replace("_", " ").capitalize(),
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
        **problem.fields,
    }
    return JSONResponse(
        body,
        problem.status,
        headers=problem.headers,
        media_type="application/problem+json",
    )


def _log_error(error: BaseException, code: str, request_id: str) -> None:
    """Log an error with its traceback; log a known one as a line, and not often.

    The path of the request is left out, because it may contain private data; the log
    line of the request follows.
    """
    if not isinstance(error, KNOWN_ERRORS):
        trace = "".join(traceback.format_exception(error))
        log.error("%s id=%s\n%s", code, request_id, redact(trace))
        return

    line = redact(" ".join(str(error).split()))
    if ERROR_THROTTLE.allows(line):
        log.error("%s: %s id=%s", code, line, request_id)


def _request_fields(scope: Fields) -> Document:
    """Return the fields of a request: those of its path, and those of its body."""
    path_fields = scope.get("path_params", {})
    body = scope["state"].get("plain")
    if isinstance(body, dict):
        return {**body, **path_fields}
    return dict(path_fields)

"""Build the service as an ASGI application, and describe it as OpenAPI 3.1.

A request goes through `middleware.SubPath` and `middleware.Entrance` (caller, limits,
body, errors as problems), then FastAPI finds its route, asks for the caller
(`auth.CallerDependency`), checks the body and calls a function of `routes/`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Match

from heedful import __version__
from heedful.validation import Document, Fields
from heedful_server.auth import Callers
from heedful_server.middleware import Admission, Entrance, SubPath
from heedful_server.routes import error_bodies, route_groups, routes_of
from heedful_server.routes.operations import Readiness, documentation
from heedful_server.setup import Setup

JSON_TYPE = "application/json"
_API_DESCRIPTION = json.loads(
    (Path(__file__).parent / "description.json").read_text(encoding="utf-8")
)


def application(setup: Setup) -> FastAPI:
    """Return the service as an ASGI application; the caller closes `setup.store`."""
    admission = Admission(setup.limits)
    app = FastAPI(
        title="heedful",
        version=__version__,
        summary="When to think again, when to stop, and never the same mistake twice.",
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        middleware=[
            Middleware(SubPath, root_path=setup.root_path),
            Middleware(
                Entrance,
                setup=setup,
                callers=Callers(setup),
                admission=admission,
                error_bodies=error_bodies(),
            ),
        ],
        exception_handlers={
            HTTPException: _pass_on,
            RequestValidationError: _pass_on,
        },
    )
    app.state.setup = setup
    app.state.admission = admission
    app.state.readiness = Readiness()

    app.routes.extend(_api_routes())

    app.openapi = cache(partial(describe, app))  # type: ignore[method-assign]
    app.state.page = cache(partial(documentation, app))
    return app


@cache
def _api_routes() -> Sequence[BaseRoute]:
    """Return the routes of the API, which all applications of this process share.

    To make their models takes 0.1 s. They belong to no application: each request names
    its own.
    """
    api = APIRouter(generate_unique_id_function=_operation_id)
    for group in route_groups():
        error = group.description.get("error", _API_DESCRIPTION["error"])
        api.include_router(group.router, responses={"default": error})
    return api.routes


@cache
def api_examples() -> Mapping[str, Fields]:
    """Return the examples of each route, by "METHOD path".

    They are of the "request" and of the answer with each status of success.
    """
    return _described("examples")


def _described(part: str) -> Document:
    """Return a part of the description, with what other distributions add to it."""
    merged = dict(_API_DESCRIPTION[part])
    for group in route_groups():
        merged |= group.description.get(part, {})
    return merged


def _operation_id(route: APIRoute) -> str:
    """Return the name of a route's function after its group: `loops_attempt`."""
    return "_".join([*map(str, route.tags[:1]), route.name])


async def _pass_on(request: Request, error: Exception) -> Response:
    """Leave an error of FastAPI to `Entrance`, which answers all errors.

    Of a wrong method, Starlette tells the methods of one route of the path only.
    """
    if getattr(error, "status_code", 0) == HTTPStatus.METHOD_NOT_ALLOWED:
        methods = ", ".join(sorted(_methods_of_path(request)))
        raise HTTPException(405, headers={"Allow": methods}) from error
    raise error


def _methods_of_path(request: Request) -> set[str]:
    """Return the methods of all routes that have the path of a request."""
    methods: set[str] = set()
    for route in routes_of(request.app):
        if route.matches(request.scope)[0] != Match.NONE:
            methods.update(route.methods or ())
    return methods


def describe(app: FastAPI) -> Document:
    """Return the OpenAPI description, with examples and each POST's idempotency key.

    FastAPI derives the rest from the routes; `description.json` has the examples, and
    the parts and schemas that no function or class declares.
    """
    spec = FastAPI.openapi(app)
    for path, method, operation in operations(spec):
        route = f"{method.upper()} {path}"
        if method == "post":
            operation.setdefault("parameters", []).append(_API_DESCRIPTION["once"])
        for part, addition in _API_DESCRIPTION["parts"].get(route, {}).items():
            operation[part] = operation.get(part, {}) | addition

        bodies = {"request": operation.get("requestBody", {}), **operation["responses"]}
        for name, example in api_examples().get(route, {}).items():
            content = bodies[name].get("content", {})
            if JSON_TYPE in content:
                content[JSON_TYPE]["example"] = example

    # Problems (RFC 9457), and what heedful reads of OTLP.
    spec["components"]["schemas"].update(_described("schemas"))
    return spec


def operations(spec: Fields) -> Iterator[tuple[str, str, Document]]:
    """Yield path, method and operation object of each route in a description."""
    for path, item in spec["paths"].items():
        for method, operation in item.items():
            yield path, method, operation

"""The routes of the service, one module for each group."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain

from fastapi import APIRouter, FastAPI
from starlette.routing import Route

from heedful import doors
from heedful.validation import Fields
from heedful_server.problems import ErrorBody
from heedful_server.routes import loop_routes, memory_routes, operations


@dataclass(frozen=True, kw_only=True)
class RouteGroup:
    """Routes that another distribution adds to the service by the door `ROUTERS`.

    `description` has parts of the OpenAPI description, in the form of
    `description.json`: `examples`, `schemas`, and the `error` of each route. Errors
    below the prefix of the router are problems, unless `error_body` makes another body.
    """

    router: APIRouter
    description: Fields = field(default_factory=dict)
    error_body: ErrorBody | None = None


OWN_ROUTERS = (
    loop_routes.router,
    operations.router,
    operations.keys_router,
    memory_routes.router,
    memory_routes.trials_router,
    memory_routes.lessons,
    memory_routes.quarantine,
    memory_routes.episodes_router,
    memory_routes.traces_router,
)


@cache
def route_groups() -> tuple[RouteGroup, ...]:
    """Return all routes, in the order in which the application includes them."""
    own_groups = (RouteGroup(router=router) for router in OWN_ROUTERS)
    return (*own_groups, *doors.ROUTERS.load_all().values())


def routes_of(app: FastAPI) -> list[Route]:
    """Return the routes of an application, and those of the groups that it includes."""
    included = chain.from_iterable(group.router.routes for group in route_groups())
    return [route for route in (*app.routes, *included) if isinstance(route, Route)]


def error_bodies() -> Mapping[str, ErrorBody]:
    """Return what makes the bodies of errors, by the prefix of the path."""
    return {
        group.router.prefix: group.error_body
        for group in route_groups()
        if group.error_body is not None
    }

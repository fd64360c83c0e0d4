"""The routes of the service, one module for each group."""

from functools import cache

from fastapi import APIRouter

from heedful import doors
from heedful_server.routes import compatible, loop_routes, memory_routes, operations

OWN_ROUTERS: tuple[APIRouter, ...] = (
    loop_routes.router,
    operations.router,
    operations.keys_router,
    memory_routes.router,
    memory_routes.trials_router,
    memory_routes.lessons,
    memory_routes.quarantine,
    memory_routes.episodes_router,
    memory_routes.traces_router,
    compatible.router,
    compatible.reflections,
)


@cache
def routers() -> tuple[APIRouter, ...]:
    """Return all routers, in the order in which the application includes them."""
    return (*OWN_ROUTERS, *doors.ROUTERS.load_all().values())

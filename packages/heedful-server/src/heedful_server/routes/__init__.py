"""The routes of the service, one module for each group."""

from functools import cache

from fastapi import APIRouter

from heedful import doors
from heedful_server.routes import compatible, loops, memory, operations

OWN_ROUTERS: tuple[APIRouter, ...] = (
    loops.router,
    operations.router,
    operations.keys_router,
    memory.router,
    memory.trials_router,
    memory.lessons,
    memory.quarantine,
    memory.episodes_router,
    memory.traces_router,
    compatible.router,
    compatible.reflections,
)


@cache
def routers() -> tuple[APIRouter, ...]:
    """Return all routers, in the order in which the application includes them."""
    return (*OWN_ROUTERS, *doors.ROUTERS.load_all().values())

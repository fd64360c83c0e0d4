"""The routes of the service, one module for each group."""

from fastapi import APIRouter

from heedful_server.routes import compatible, loops, memory, operations

# All routers, in the order in which the application includes them.
ROUTERS: tuple[APIRouter, ...] = (
    loops.router,
    operations.router,
    operations.keys_router,
    memory.router,
    memory.trials_router,
    memory.lessons,
    memory.quarantine,
    memory.episodes_router,
    memory.hooks_router,
    memory.traces_router,
    compatible.router,
    compatible.reflections,
)

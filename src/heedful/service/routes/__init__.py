"""The routes, one file for each group; the application includes `ROUTERS` in this order."""

from __future__ import annotations

from fastapi import APIRouter

from heedful.service.routes import compatible, episodes, loops, memory, operations

ROUTERS: tuple[APIRouter, ...] = (
    operations.router,
    operations.keys_router,
    loops.router,
    episodes.router,
    episodes.traces_router,
    memory.router,
    memory.lessons,
    memory.quarantine,
    memory.dreams,
    compatible.router,
    compatible.reflections,
)

"""The routes, one file for each group; the application includes `ROUTERS` in this order."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter

from heedful.service.problems import Shape
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
SHAPES: Mapping[str, Shape] = {
    compatible.PREFIX: compatible.guardrails_problem,
    compatible.REFLECTIONS_PREFIX: compatible.reflections_problem,
}
"""Beginning of a path -> the shape of errors there, where it is not an RFC 9457 problem."""

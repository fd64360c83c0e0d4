"""The routes, a file a group; the application includes all of `ROUTERS`, in this order."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter

from heedful.service.problems import Shape
from heedful.service.routes import compatible as generated
from heedful.service.routes import compatible as guardrails
from heedful.service.routes import episodes, loops, quarantine
from heedful.service.routes import episodes as traces
from heedful.service.routes import loops as overrides
from heedful.service.routes import loops as replay
from heedful.service.routes import memory as recall
from heedful.service.routes import memory as reflections
from heedful.service.routes import operations as health
from heedful.service.routes import operations as keys
from heedful.service.routes import quarantine as dreams

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    keys.keys_router,
    loops.router,
    overrides.overrides_router,
    replay.replay_router,
    episodes.router,
    reflections.reflections_router,
    recall.router,
    quarantine.router,
    dreams.dreams_router,
    traces.traces_router,
    guardrails.router,
    generated.generated_router,
)
SHAPES: Mapping[str, Shape] = {
    guardrails.PREFIX: guardrails.guardrails_problem,
    generated.REFLECTIONS_PREFIX: generated.reflections_problem,
}
"""Beginning of a path -> how errors are told there, where it is not as RFC 9457 problems."""

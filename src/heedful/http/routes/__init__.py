"""The routes, a file a group; the application includes all of `ROUTERS`, in this order."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter

from heedful.http.problems import Shape
from heedful.http.routes import (
    dreams,
    episodes,
    generated,
    guardrails,
    health,
    keys,
    loops,
    overrides,
    quarantine,
    recall,
    reflections,
    replay,
    traces,
)

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    keys.router,
    loops.router,
    overrides.router,
    replay.router,
    episodes.router,
    reflections.router,
    recall.router,
    quarantine.router,
    dreams.router,
    traces.router,
    guardrails.router,
    generated.router,
)

SHAPES: Mapping[str, Shape] = {
    guardrails.PREFIX: guardrails.told,
    generated.PREFIX: generated.told,
}
"""Beginning of a path -> how errors are told there, where it is not as RFC 9457 problems."""

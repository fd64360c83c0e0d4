"""The routes, a file a group; the application includes all of `ROUTERS`, in this order."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter

from errata.http.problems import Shape
from errata.http.routes import health, keys

ROUTERS: tuple[APIRouter, ...] = (health.router, keys.router)

SHAPES: Mapping[str, Shape] = {}
"""Beginning of a path -> how errors are told there, where it is not as RFC 9457 problems."""

"""What every request passes on its way to a route, and every answer on its way back."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from errata.http.caller import identified
from errata.http.problems import Shape, answer
from errata.http.setup import Setup

# Paths that need no key: they tell nothing of anybody.
PUBLIC = ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs")


class Entrance:
    """Finds out who calls; what fails on the way is answered as a problem."""

    def __init__(self, app: ASGIApp, setup: Setup, shapes: Mapping[str, Shape]) -> None:
        self._app = app
        self._setup = setup
        self._shapes = shapes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            if scope["path"] not in PUBLIC:
                given = Headers(scope=scope).get("authorization")
                scope.setdefault("state", {})["caller"] = await identified(self._setup, given)
            await self._app(scope, receive, send)
        except Exception as error:
            await answer(error, scope["path"], self._shapes)(scope, receive, send)

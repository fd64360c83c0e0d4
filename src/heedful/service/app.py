"""The application: its routes behind the middleware, its description, and where it listens.

The description is OpenAPI 3.1, with an example for each route. How slowly the head of a request may
arrive is not limited here; a reverse proxy does that (deployment).
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from heedful import __version__
from heedful.errors import UsageError
from heedful.service import problems
from heedful.service.auth import BEARER, Callers
from heedful.service.middleware import Entrance
from heedful.service.routes import ROUTERS
from heedful.service.routes.episodes import TraceCollector
from heedful.service.setup import Setup


async def _pass_on(request: Request, error: Exception) -> Response:
    raise error  # the middleware answers all errors


def application(setup: Setup) -> FastAPI:
    """Return the service as an ASGI application; the caller closes the store."""
    collector, callers = TraceCollector(setup), Callers(setup)

    @asynccontextmanager
    async def alive(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await collector.close()

    app = FastAPI(
        title="heedful",
        version=__version__,
        summary="When to think again, when to stop, and never the same mistake twice.",
        lifespan=alive,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: "_".join([*map(str, route.tags[:1]), route.name]),
        middleware=[Middleware(Entrance, setup=setup, callers=callers)],
        exception_handlers=dict.fromkeys((HTTPException, RequestValidationError), _pass_on),
    )
    app.state.setup, app.state.collector, app.state.callers = setup, collector, callers
    for router in ROUTERS:
        error = "refusal" if router.prefix in problems.OWN else "problem"
        answers: Any = {"default": _DESCRIPTION["errors"][error]}
        key = [Depends(BEARER)] if router.prefix else []  # the routes of PUBLIC have no prefix
        app.include_router(router, dependencies=key, responses=answers)
    app.openapi = cache(partial(describe, app))  # type: ignore[method-assign]
    return app


# The description

JSON = "application/json"
_DESCRIPTION = json.loads((Path(__file__).parent / "description.json").read_text(encoding="utf-8"))
# "METHOD path" -> an example of the request and of each answer that is no error.
EXAMPLES: Mapping[str, Mapping[str, Any]] = _DESCRIPTION["examples"]


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the description, made once, with the errors and the calls that may be repeated."""
    spec = FastAPI.openapi(app)
    for path, method, operation in operations(spec):
        route = f"{method.upper()} {path}"
        if method == "post":
            operation.setdefault("parameters", []).append(_DESCRIPTION["once"])
        for part, of in _DESCRIPTION["parts"].get(route, {}).items():
            operation[part] = operation.get(part, {}) | of
        bodies = {"request": operation.get("requestBody", {}), **operation["responses"]}
        for name, example in EXAMPLES.get(route, {}).items():
            if JSON in bodies[name].get("content", {}):
                bodies[name]["content"][JSON]["example"] = example
    # Schemas without a class: problems (RFC 9457) and the part of OTLP that is read.
    spec["components"]["schemas"].update(_DESCRIPTION["schemas"])
    return spec


def operations(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield every path, method and operation."""
    for path, item in spec["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


# Listening


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0 means any free port. Raises UsageError."""
    where = f"{host}:{port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listener = socket.create_server(address[:2], family=family, backlog=1024)
        # Connections inherit this. asyncio sets it only on sockets made with their protocol given,
        # and a body that waits for the head to be acknowledged comes 40 ms late.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (socket.gaierror, UnicodeError) as error:
        raise UsageError(f"--host {host!r} is no address of this machine: {error}") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            free = "name another with --port, or 0 for any that is free"
            raise UsageError(f"{where} is taken by another program; {free}") from error
        what = f"the service cannot listen on {where}: {error.strerror}"
        raise UsageError(f"{what}; name another --host, or a port above 1023") from error


def loopback(listener: socket.socket) -> bool:
    """Return True if only this machine can reach the socket."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def url_of(listener: socket.socket) -> str:
    """Return the URL of the socket, `http://…`."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """A server that returns when a signal asks it to end, so that its caller can clean up."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], Any]) -> None:
        super().__init__(config)
        self._ready = ready
        self.cut = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Let requests finish at the first signal, and stop at once at the second."""
        self.force_exit, self.should_exit = self.should_exit, True

    async def _wait_tasks_to_complete(self) -> None:
        """Let running requests finish; count those that are cut short."""
        try:
            await super()._wait_tasks_to_complete()
        except asyncio.CancelledError:
            self.cut = len(self.server_state.tasks)
            raise


async def listen(
    app: FastAPI, listener: socket.socket, drain: float, ready: Callable[[], Any]
) -> int:
    """Serve until SIGTERM or Ctrl-C, then finish running requests within `drain` seconds.

    Calls `ready` when the service takes requests. Returns how many requests were cut short.
    """
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=60,  # seconds
        timeout_graceful_shutdown=max(1, round(drain)),
        h11_max_incomplete_event_size=16 * 1024,  # bytes of a request before its body
    )
    server = _Server(config, ready)
    await server.serve([listener])
    return server.cut

"""Build the service as an ASGI application, describe it as OpenAPI 3.1, and serve it
with uvicorn.

heedful does not limit how slowly the headers of a request arrive, but it limits the
number of connections. If there are too many, it closes the one that has waited longest
for a request.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette import routing
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from heedful import __version__
from heedful.errors import UsageError
from heedful.integrations import mcp
from heedful.service import problems
from heedful.service.auth import BEARER_SCHEME, Callers, Route
from heedful.service.middleware import Entrance
from heedful.service.problems import ERROR_THROTTLE
from heedful.service.routes import ROUTERS
from heedful.service.routes.operations import documentation
from heedful.service.setup import Setup


async def _pass_on(request: Request, error: Exception) -> Response:
    raise error  # the middleware turns every error into an answer


class _Router:
    """Finds the route of a request without FastAPI, which compares each path twice."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        routes = (route for router in ROUTERS for route in router.routes)
        self._routes = [route for route in routes if isinstance(route, Route)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for route in self._routes if scope["type"] == "http" else ():
            if scope["method"] not in (route.methods or ()):
                continue
            if found := route.path_regex.match(scope["path"]):
                kinds = route.param_convertors
                values = {
                    name: kinds[name].convert(one)
                    for name, one in found.groupdict().items()
                }
                scope.update(route=route, path_params=values)
                await route.handle(scope, receive, send)
                return
        await self._app(scope, receive, send)


def application(setup: Setup) -> FastAPI:
    """Return the service as an ASGI application. The caller must close the store of
    `setup`.
    """
    app = FastAPI(
        title="heedful",
        version=__version__,
        summary="When to think again, when to stop, and never the same mistake twice.",
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: "_".join(
            [*map(str, route.tags[:1]), route.name]
        ),
        middleware=[
            Middleware(Entrance, setup=setup, callers=Callers(setup)),
            Middleware(_Router),
        ],
        exception_handlers=dict.fromkeys(
            (HTTPException, RequestValidationError), _pass_on
        ),
    )
    app.state.setup = setup
    app.state.probing = asyncio.Lock()
    app.state.probed = float("-inf")
    app.state.damage = ""
    for router in ROUTERS:
        error = (
            "refusal"
            if router.prefix in problems.COMPATIBLE_ERROR_FIELDS
            else "problem"
        )
        answers: Any = {"default": _API_DESCRIPTION["errors"][error]}
        key = (
            [Depends(BEARER_SCHEME)] if router.prefix else []
        )  # the routes of PUBLIC have no prefix
        app.include_router(router, dependencies=key, responses=answers)
    app.router.routes.append(
        routing.Route(mcp.MCP_PATH, mcp.Endpoint(app), methods=["POST"])
    )
    app.openapi = cache(partial(describe, app))  # type: ignore[method-assign]
    app.state.page = cache(partial(documentation, app))
    return app


JSON_TYPE = "application/json"
_API_DESCRIPTION = json.loads(
    (Path(__file__).parent / "description.json").read_text(encoding="utf-8")
)
# "METHOD path" -> an example of the "request" and of the answer with each status of
# success.
API_EXAMPLES: Mapping[str, Mapping[str, Any]] = _API_DESCRIPTION["examples"]


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description, with examples and the idempotency key of each
    POST route.
    """
    spec = FastAPI.openapi(app)
    for path, method, operation in operations(spec):
        route = f"{method.upper()} {path}"
        if method == "post":
            operation.setdefault("parameters", []).append(_API_DESCRIPTION["once"])
        for part, of in _API_DESCRIPTION["parts"].get(route, {}).items():
            operation[part] = operation.get(part, {}) | of
        bodies = {"request": operation.get("requestBody", {}), **operation["responses"]}
        for name, example in API_EXAMPLES.get(route, {}).items():
            if JSON_TYPE in bodies[name].get("content", {}):
                bodies[name]["content"][JSON_TYPE]["example"] = example
    # Schemas that no class declares: problems (RFC 9457), and what heedful reads of
    # OTLP.
    spec["components"]["schemas"].update(_API_DESCRIPTION["schemas"])
    return spec


def operations(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the path, method and operation object of every route in an OpenAPI
    description.
    """
    for path, item in spec["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def bound(
    host: str, port: int, choose: str = "another --host or --port"
) -> socket.socket:
    """Return a listening socket; port 0 selects any free port. Raises UsageError."""
    where = f"{host}:{port}"
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        listener = socket.create_server(
            address[:2], family=family, backlog=MAX_WAITING_CONNECTIONS
        )
        # Accepted connections inherit this option; asyncio does not set it for this
        # socket. Without it, the body of an answer waits 40 ms until the client
        # acknowledges the headers.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, UnicodeError) as error:
        todo = f"choose {choose}; --port 0 takes any free port"
        why = str(error).partition(" (while")[0]
        raise UsageError(
            f"the service cannot listen on {where}: {why}; {todo}"
        ) from error


def loopback(listener: socket.socket) -> bool:
    """Return True if only this machine can reach the socket."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def url_of(listener: socket.socket) -> str:
    """Return the `http://` URL of the address on which the socket listens."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


log: logging.Logger = logging.getLogger("heedful.http")
MAX_CONNECTIONS = 4_096  # connections
MAX_WAITING_CONNECTIONS = (
    1_024  # connections that the kernel holds until the service accepts them
)
# Connections accepted in one turn of the event loop. If the process has no descriptor
# left, asyncio logs an error for each of them.
MAX_ACCEPTED_CONNECTIONS = 8
MAX_HEADER_BYTES = 16 * 1024  # the most bytes of request headers


def most_connections() -> int:
    """Return how many connections may be open: half of the descriptors, and at most
    `MAX_CONNECTIONS`.
    """
    try:
        from resource import RLIMIT_NOFILE, getrlimit
    except ImportError:  # Windows has no such limit
        return MAX_CONNECTIONS
    files = getrlimit(RLIMIT_NOFILE)[0]
    return (
        min(MAX_CONNECTIONS, files // 2) if files > 0 else MAX_CONNECTIONS
    )  # -1 means no limit


_HEAD_END_PATTERN = re.compile(rb"\n\r?\n")
_CONTENT_LENGTH_PATTERN = re.compile(
    rb"(?im)^content-length:((?:.|\n[ \t])*)"
)  # a line may be continued
_TRANSFER_ENCODING_PATTERN = re.compile(rb"(?im)^transfer-encoding:")


class _Connection(h11.Connection):
    """Refuses a request whose length a proxy could read differently. h11 picks one of
    the lengths.

    Such a request has more than one Content-Length, or one and a Transfer-Encoding.
    """

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:
            received, _ = self.trailing_data
            if end := _HEAD_END_PATTERN.search(received):
                head = received[: end.start()]
                lengths = _CONTENT_LENGTH_PATTERN.findall(head)
                if len(lengths) + bool(
                    _TRANSFER_ENCODING_PATTERN.search(head)
                ) > 1 or b"," in b"".join(lengths):
                    raise h11.RemoteProtocolError(
                        "the length of the request is ambiguous"
                    )
        return super().next_event()


class _LimitedConnection:
    """A connection that is closed when there are too many and it has waited longest."""

    connections: Any
    loop: asyncio.AbstractEventLoop

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.since = self.loop.time()  # when its last request ended

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)  # type: ignore[misc]
        open_: Any = self.connections
        if len(open_) > (most := most_connections()):
            waiting = (
                one for one in open_ if one.cycle is None or one.cycle.response_complete
            )
            longest = min(waiting, key=lambda one: float(one.since))
            open_.discard(longest)
            # `close` would wait for a client that reads nothing
            longest.transport.abort()
            if ERROR_THROTTLE.allows("connections"):
                what = (
                    "connections are open; those that wait longest for a request are "
                    "closed"
                )
                log.warning("%d %s", most, what)

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()  # type: ignore[misc]


class _Protocol(_LimitedConnection, H11Protocol):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = _Connection(h11.SERVER, MAX_HEADER_BYTES)


def _check_head(url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Raise ValueError for a head that `_Protocol` refuses; the parser httptools does
    not.
    """
    lengths = [value for name, value in headers if name == b"content-length"]
    coding = any(name == b"transfer-encoding" for name, _ in headers)
    if len(lengths) + coding > 1 or b"," in b"".join(lengths):
        raise ValueError("the length of the request is ambiguous")
    if (
        len(url) + sum(len(name) + len(value) for name, value in headers)
        > MAX_HEADER_BYTES
    ):
        raise ValueError("the headers are too long")


HAS_FAST_EXTRA = all(
    map(find_spec, ("httptools", "uvloop"))
)  # if the extra `fast` is installed


def _fast_protocol() -> type[asyncio.Protocol]:
    """Return a protocol with the parser httptools that refuses what `_Protocol`
    refuses.
    """
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Fast(_LimitedConnection, HttpToolsProtocol):
        received = 0  # bytes of headers that are not complete
        refusal = ""  # of a request, after the answers to earlier ones

        def data_received(self, data: bytes) -> None:
            before = self.received
            if not self.refusal:
                super().data_received(data)
            self.received += len(data) * bool(before and self.received)
            if self.received > MAX_HEADER_BYTES and not self.refusal:
                self.send_400_response("The headers are too long.")

        def send_400_response(self, msg: str) -> None:
            self.refusal = msg
            last: Any = self.cycle  # None before the first request
            if last is None or last.response_complete or last.more_body:
                super().send_400_response(msg)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if (
                self.refusal
                and self.cycle.response_complete
                and not self.transport.is_closing()
            ):
                super().send_400_response(self.refusal)

        def on_message_begin(self) -> None:
            self.received = 1
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self.received = 0
            _check_head(self.url, self.headers)
            super().on_headers_complete()

    return Fast


class _Server(uvicorn.Server):
    """A uvicorn server that returns after SIGINT or SIGTERM, so that its caller can
    clean up.
    """

    def __init__(self, config: uvicorn.Config, ready: Callable[[], Any]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(
                MAX_WAITING_CONNECTIONS
            )  # asyncio has set it to `MAX_ACCEPTED_CONNECTIONS`
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Let running requests finish after the first signal; stop at once after the
        second.
        """
        self.force_exit = self.should_exit
        self.should_exit = True


async def listen(
    app: FastAPI, listener: socket.socket, drain: float, ready: Callable[[], Any]
) -> None:
    """Serve until SIGTERM or Ctrl-C; then running requests have `drain` seconds to
    finish.

    Call `ready` when the service accepts requests.
    """
    config = uvicorn.Config(
        app,
        http=_fast_protocol() if HAS_FAST_EXTRA else _Protocol,
        backlog=MAX_ACCEPTED_CONNECTIONS,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        # seconds without a request before a connection is closed
        timeout_keep_alive=60,
        timeout_graceful_shutdown=max(1, round(drain)),
    )
    await _Server(config, ready).serve([listener])

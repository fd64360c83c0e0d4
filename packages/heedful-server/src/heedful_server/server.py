"""Serve the application with uvicorn: on which socket, and until when.

How many connections may be open, and how long one may take for its headers or an
answer, is for the proxy before the service.
"""

import ipaddress
import socket
from collections.abc import Callable
from importlib.util import find_spec
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import (
    HttpToolsProtocol,
    RequestResponseCycle,
)

from heedful.errors import UsageError

# Connections that the kernel holds until the service accepts them.
MAX_WAITING_CONNECTIONS = 1_024
# Connections accepted in one turn of the event loop. If the process has no descriptor
# left, asyncio logs an error for each of them.
MAX_ACCEPTED_CONNECTIONS = 8
# Whether the extra `fast` is installed, a faster event loop.
HAS_FAST_EXTRA = find_spec("uvloop") is not None
MAX_IDLE_SECONDS = 60  # without a request until a connection is closed


def bound(
    host: str, port: int, choose: str = "another --host or --port"
) -> socket.socket:
    """Return a listening socket; port 0 selects any free port. Raises UsageError."""
    try:
        addresses = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = addresses[0]

        listener = socket.create_server(
            address[:2], family=family, backlog=MAX_WAITING_CONNECTIONS
        )
        # Accepted connections inherit this option; asyncio does not set it for this
        # socket. Without it, the body of an answer waits 40 ms until the client
        # acknowledges the headers.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, UnicodeError) as error:
        # Without the address, which Python adds to some reasons.
        reason = str(error).partition(" (while")[0]
        raise UsageError(
            f"the service cannot listen on {host}:{port}: {reason}; "
            f"choose {choose}; --port 0 takes any free port"
        ) from error


def loopback(listener: socket.socket) -> bool:
    """Return True if only this machine can reach the socket."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def url_of(listener: socket.socket) -> str:
    """Return the `http://` URL of the address on which the socket listens."""
    host, port = listener.getsockname()[:2]
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}"


class _Connection(HttpToolsProtocol):
    """A connection that tells all its requests when the client has gone.

    A client may send the next request before it has the answer to the last one. uvicorn
    tells only the newest. The others would write to a closed connection, which uvloop
    reports as an error of the application, and a stream would never end.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unanswered: list[RequestResponseCycle] = []

    def on_headers_complete(self) -> None:
        """Begin a request."""
        super().on_headers_complete()
        self._unanswered = [
            request for request in self._unanswered if not request.response_complete
        ]
        self._unanswered.append(self.cycle)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell each request without an answer that nobody waits for it."""
        super().connection_lost(exc)
        for request in self._unanswered:
            request.disconnected = not request.response_complete
            request.message_event.set()


class _Server(uvicorn.Server):
    """A uvicorn server whose caller can clean up after SIGINT or SIGTERM."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        ready: Callable[[], Any],
        stopping: Callable[[], Any],
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept requests, and say so."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(MAX_WAITING_CONNECTIONS)  # asyncio has set the other number
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Let running requests finish after the first signal; stop after the second."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._stopping()


async def listen(
    app: FastAPI,
    listener: socket.socket,
    drain: float,
    *,
    ready: Callable[[], Any],
    stopping: Callable[[], Any],
) -> None:
    """Serve until SIGTERM or Ctrl-C; then running requests have `drain` seconds.

    Call `ready` when the service accepts requests, and `stopping` at the signal:
    answers without an end have to end then.
    """
    config = uvicorn.Config(
        app,
        http=_Connection,  # httptools refuses a request that states its length twice
        backlog=MAX_ACCEPTED_CONNECTIONS,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=MAX_IDLE_SECONDS,
        timeout_graceful_shutdown=max(1, round(drain)),
    )
    server = _Server(config, ready=ready, stopping=stopping)
    await server.serve([listener])

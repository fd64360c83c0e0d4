"""Where the service listens, and how it ends.

It does not limit how long the head of a request may take; a reverse proxy does that (deployment).
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from heedful.errors import UsageError

HEADERS = 16 * 1024  # bytes of a request before its body
IDLE = 60  # seconds that a connection is kept open for the next request
BACKLOG = 1024


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0 means any free port. Raises UsageError."""
    where = f"{host}:{port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG)
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
        if error.errno in (errno.EACCES, errno.EPERM):
            raise UsageError(f"{where} is not allowed for you; use a port above 1023") from error
        raise UsageError(f"the service cannot listen on {where}: {error.strerror}") from error


def loopback(listener: socket.socket) -> bool:
    """Return True if only this machine can reach the socket."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def url_of(listener: socket.socket) -> str:
    """Return the URL of the socket, `http://…`."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """A server that returns when it is asked to end, so that its caller can clean up."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], Any]) -> None:
        super().__init__(config)
        self._ready = ready
        self.cut = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take requests."""
        await super().startup(sockets)
        self._ready()

    async def _wait_tasks_to_complete(self) -> None:
        """Let running requests finish; cancel them if this wait is cancelled."""
        try:
            await super()._wait_tasks_to_complete()
        except asyncio.CancelledError:
            self.cut = len(self.server_state.tasks)
            raise

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let requests finish at the first signal, and stop at once at the second."""
        loop = asyncio.get_running_loop()
        ends = (signal.SIGINT, signal.SIGTERM)
        before = {
            one: signal.signal(one, lambda *_: loop.call_soon_threadsafe(self._asked))
            for one in ends
        }
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _asked(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


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
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=max(1, round(drain)),
        h11_max_incomplete_event_size=HEADERS,
    )
    server = _Server(config, ready)
    await server.serve([listener])
    return server.cut

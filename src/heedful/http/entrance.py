"""What every request passes on its way to a route, and every answer on its way back."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful import telemetry
from heedful.http.caller import Caller, Callers
from heedful.http.limits import Rates, Room, body_of
from heedful.http.once import Once
from heedful.http.problems import SOON, Problem, Shape, answer
from heedful.http.setup import Setup

log: logging.Logger = logging.getLogger("heedful.http")
# Paths that need no key: they tell nothing of anybody.
PUBLIC = ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs")
# Nor is a span made of spans that come in: a service may send its own to itself.
UNTRACED = (*PUBLIC, "/v1/traces")
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
# Headers of a request that a page in a browser sends, or that a proxy hands on.
ELSEWHERE = ("origin", "forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
REQUEST_ID = "X-Request-Id"
_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)
# Nothing that is answered is a page that may run, or be kept by somebody in between.
SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Entrance:
    """Lets in who has a key and asks for what the limits allow; what fails becomes a problem."""

    def __init__(
        self, app: ASGIApp, setup: Setup, callers: Callers, shapes: Mapping[str, Shape]
    ) -> None:
        self._app = app
        self._setup = setup
        self._callers = callers
        self._shapes = shapes
        self._once = Once(app)
        self._rates = Rates(setup.limits.rate, setup.limits.burst)
        self._room = Room(setup.limits.concurrent)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] in UNTRACED:
            await self._answered(scope, receive, _Out(scope, send))
            return
        with telemetry.request(scope["method"], Headers(scope=scope)) as answered:
            out = _Out(scope, send)
            await self._answered(scope, receive, out)
            answered(_route(scope, out), out.status)

    async def _answered(self, scope: Scope, receive: Receive, out: _Out) -> None:
        began = time.perf_counter()
        try:
            await self._timely(scope, receive, out)
        except ClientDisconnect:
            return
        except Exception as error:
            if out.status:  # half an answer cannot be taken back
                raise
            await answer(error, scope["path"], self._shapes)(scope, receive, out.send)
        finally:
            self._told(scope, out, time.perf_counter() - began)

    async def _timely(self, scope: Scope, receive: Receive, out: _Out) -> None:
        most = self._setup.limits.answer
        time_left = asyncio.timeout(most)
        try:
            async with time_left:
                await self._let_in(scope, receive, out.send)
        except asyncio.CancelledError as error:
            detail = "the service was stopped before it had an answer; ask again"
            raise Problem(503, "stopping", detail, {"Retry-After": SOON}) from error
        except TimeoutError as error:
            if not time_left.expired():
                raise
            detail = f"no answer was found within {most:g} s"
            raise Problem(504, "took_too_long", detail) from error

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PUBLIC:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        with self._room.place():
            caller = await self._callers.identified(headers.get("authorization"))
            _near(caller, headers)
            scope["state"]["caller"] = caller
            self._rates.take(caller.key)
            with self._room.share(caller.tenant):
                body = await body_of(scope, receive, self._setup.limits)
                again = _Again(body, receive)
                _unpacked(scope)
                await self._once.call(self._setup.store.answers, scope, body, again, send)

    def _told(self, scope: Scope, out: _Out, seconds: float) -> None:
        """Count the request and log it: its route and not its path, which may hold anything."""
        state = scope["state"]
        route = _route(scope, out)
        method = scope["method"] if "route" in scope else "(any)"
        self._setup.metrics.requested(method, route, out.status, seconds)
        key = (state["caller"].key if "caller" in state else "") or "-"
        told = (scope["method"][:16], route, out.status, seconds * 1000, key, out.id)
        log.info("%s %s %d %.1f ms key=%s id=%s", *told)


def _route(scope: Scope, out: _Out) -> str:
    """The template of the route, as the description has it."""
    known: str = getattr(scope.get("route"), "path", "").replace(":path}", "}")
    return known or ("(again)" if out.replayed else "(none)")


class _Out:
    """The way back: headers that every answer has."""

    def __init__(self, scope: Scope, send: Send) -> None:
        scope.setdefault("state", {})
        given = Headers(scope=scope).get(REQUEST_ID, "")
        self.id = given if _ID.fullmatch(given) else secrets.token_hex(8)
        self.status = 0
        self.replayed = False
        self._send = send

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            self.replayed = "Idempotent-Replayed" in headers
            for name, value in SAFE.items():
                headers.setdefault(name, value)
            headers[REQUEST_ID] = self.id
        await self._send(message)


class _Again:
    """Gives the body to the application in one piece, and then what the client does."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        """The next message."""
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _near(caller: Caller, headers: Headers) -> None:
    """Nothing, where a caller without a key is a program of this machine. Raises Problem 421.

    A page in a browser reaches a port of this machine under a name of its own, or says its origin;
    a proxy on this machine hands on what comes from elsewhere.
    """
    host = headers.get("host", "")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    passed = any(one in headers for one in ELSEWHERE)
    if not caller.key and (passed or name.lower() not in LOOPBACK):
        detail = "without a key the service answers on localhost only"
        raise Problem(421, "misdirected_request", detail)


def _unpacked(scope: Scope) -> None:
    """The application is given the body unpacked, and is told so."""
    gone = (b"content-encoding", b"content-length")
    scope["headers"] = [one for one in scope["headers"] if one[0].lower() not in gone]

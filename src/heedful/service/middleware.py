"""The checks on every request: size and form, the rate of its key, and free capacity.

Every answer also passes here, and gets its headers, a log line and a metric.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
import zlib
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from typing import Any, NoReturn

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful import telemetry
from heedful.service.auth import Caller, Callers
from heedful.service.idempotency import Idempotency
from heedful.service.problems import SOON, Problem, Shape, answer
from heedful.service.setup import Limits, Setup

TRACES = "/v1/traces"
PROTOBUF = "application/x-protobuf"
# Keys whose rate is tracked; the least recently used is forgotten.
KNOWN = 10_000
_JSON = re.compile(r"application/(?:[\w.-]+\+)?json")
# Of so many bytes that a body may have, one may begin a list or an object: each takes 50 times its
# size in memory, and to read a million of them a second.
DENSE = 8
# A body of more than this many bytes may grow at most this many times by decompression.
SMALL, DENSEST = 2**20, 100
# Parts that JSON allows but heedful does not, or that only Python accepts as JSON.
_DOUBTFUL = re.compile(rb"NaN|Infinity|\\u[dD][89a-fA-F]|\0")


class RateLimit:
    """A bucket of `burst` requests for each caller, refilled at `rate` requests a second."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, now: float | None = None) -> None:
        """Take one request out of the caller's bucket. Raises Problem 429 if it is empty."""
        if not self._rate:
            return
        now = time.monotonic() if now is None else now
        left, at = self._left.pop(caller, (float(self._burst), now))
        left = min(self._burst, left + (now - at) * self._rate)
        self._left[caller] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > KNOWN:
            self._left.popitem(last=False)
        if left < 1:
            wait = ceil((1 - left) / self._rate)
            detail = f"this key may ask {self._rate:g} times a second; try again in {wait} s"
            raise Problem(429, "too_many_requests", detail, {"Retry-After": str(wait)})


class Capacity:
    """A limit on requests at the same time; one tenant gets at most seven eighths of the places."""

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, 0
        self._share = most - most // 8
        self._of: Counter[str] = Counter()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place while the request lasts. Raises Problem 503 if none is free."""
        if self._taken >= self._most:
            detail = f"{self._most} requests are being answered already; try again"
            raise Problem(503, "busy", detail, {"Retry-After": SOON})
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1

    @contextmanager
    def share(self, tenant: str) -> Iterator[None]:
        """Hold one of the places of a tenant. Raises Problem 429 if it has none left."""
        if self._of[tenant] >= self._share:
            detail = f"{self._share} requests of this tenant are being answered already; try again"
            raise Problem(429, "too_many_requests", detail, {"Retry-After": SOON})
        self._of[tenant] += 1
        try:
            yield
        finally:
            self._of[tenant] -= 1
            if not self._of[tenant]:
                del self._of[tenant]


async def body_of(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """Return the whole body, decompressed, in a form that the route can read.

    Raises Problem 400, 408, 413 and 415, and ClientDisconnect if the client goes away.
    """
    headers = Headers(scope=scope)
    most = limits.traces if scope["path"] == TRACES else limits.body
    if headers.get("content-length", "").isdigit() and int(headers["content-length"]) > most:
        _too_large(most)
    decoder = _Decoder(headers.get("content-encoding", ""))
    parts: list[bytes] = []
    size = came = 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in _parts(receive):
                parts.append(decoder.part(part, most - size + 1))
                size += len(parts[-1])
                came += len(part)
                if size > most or size > max(SMALL, DENSEST * came):
                    _too_large(most)
    except TimeoutError:
        detail = f"the body did not arrive within {limits.seconds:g} s"
        raise Problem(408, "request_timeout", detail, {"Connection": "close"}) from None
    decoder.end()
    body = b"".join(parts)
    if body:
        _check_form(body, scope["path"], headers.get("content-type", ""), most)
    return body


async def _parts(receive: Receive) -> Any:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        yield message.get("body", b"")
        more = message.get("more_body", False)


class _Decoder:
    """Decompresses a body. Raises Problem 400, 415."""

    def __init__(self, encoding: str) -> None:
        if encoding.lower() not in ("", "identity", "gzip"):
            detail = f"send the body as it is or with gzip, not with {encoding!r}"
            raise Problem(415, "unsupported_media_type", detail, {"Accept-Encoding": "gzip"})
        packed = encoding.lower() == "gzip"
        self._gzip = zlib.decompressobj(16 + zlib.MAX_WBITS) if packed else None

    def part(self, part: bytes, most: int) -> bytes:
        """Decompress a part; return at most `most` bytes."""
        if self._gzip is None:
            return part
        try:
            return self._gzip.decompress(part, most)
        except zlib.error as error:
            raise Problem(400, "bad_request", f"the body is not gzip: {error}") from error

    def end(self) -> None:
        """Raise Problem 400 unless the body was whole."""
        if self._gzip is not None and (not self._gzip.eof or self._gzip.unused_data):
            raise Problem(400, "bad_request", "the body is not one whole piece of gzip")


def _too_large(most: int) -> NoReturn:
    detail = f"a body has at most {most} bytes here, decompressed, and {DENSEST} times what is sent"
    raise Problem(413, "body_too_large", detail)


def _check_form(body: bytes, path: str, kind: str, most: int) -> None:
    """Raise Problem 413, 415 or 400 unless a route can read the body."""
    kind = kind.partition(";")[0].strip().lower()
    if path == TRACES and kind == PROTOBUF:
        return
    if not _JSON.fullmatch(kind):
        detail = f"send JSON as Content-Type: application/json, not as {kind or 'nothing'}"
        raise Problem(415, "unsupported_media_type", detail, {"Accept": "application/json"})
    if (begun := body.count(b"[") + body.count(b"{")) > most // DENSE:
        detail = f"a body has at most {most // DENSE} lists and objects here, not {begun}"
        raise Problem(413, "body_too_large", detail)
    try:
        if _DOUBTFUL.search(body):
            plain = json.loads(body.decode(), parse_constant=_no_constant)
            json.dumps(plain, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise Problem(400, "bad_request", "the body has half a surrogate pair") from error
    except ValueError as error:
        raise Problem(400, "bad_request", f"the body is not JSON: {error}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


log: logging.Logger = logging.getLogger("heedful.http")
# Paths that need no key: they show no data of a tenant.
PUBLIC = ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs")
# Nor is a span made of spans that come in: a service may send its own to itself.
UNTRACED = (*PUBLIC, "/v1/traces")
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
# Headers of a request that a page in a browser sends, or that a proxy hands on.
ELSEWHERE = ("origin", "forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
REQUEST_ID = "X-Request-Id"
_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)
# No answer may run as a page, or be cached on the way.
SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Entrance:
    """Admits callers with a key within the limits, and answers failures as problems."""

    def __init__(
        self, app: ASGIApp, setup: Setup, callers: Callers, shapes: Mapping[str, Shape]
    ) -> None:
        self._app = app
        self._setup = setup
        self._callers = callers
        self._shapes = shapes
        self._idempotency = Idempotency(app)
        self._rate = RateLimit(setup.limits.rate, setup.limits.burst)
        self._capacity = Capacity(setup.limits.concurrent)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] in UNTRACED:
            await self._answer(scope, receive, _Response(scope, send))
            return
        with telemetry.request(scope["method"], Headers(scope=scope)) as answered:
            out = _Response(scope, send)
            await self._answer(scope, receive, out)
            answered(_route(scope, out), out.status)

    async def _answer(self, scope: Scope, receive: Receive, out: _Response) -> None:
        began = time.perf_counter()
        try:
            await self._within_time(scope, receive, out)
        except ClientDisconnect:
            return
        except Exception as error:
            if out.status:  # a half-sent answer cannot be withdrawn
                raise
            await answer(error, scope["path"], self._shapes)(scope, receive, out.send)
        finally:
            self._log(scope, out, time.perf_counter() - began)

    async def _within_time(self, scope: Scope, receive: Receive, out: _Response) -> None:
        most = self._setup.limits.answer
        time_left = asyncio.timeout(most)
        try:
            async with time_left:
                await self._admit(scope, receive, out.send)
        except asyncio.CancelledError as error:
            detail = "the service stopped before it had an answer; try again"
            raise Problem(503, "stopping", detail, {"Retry-After": SOON}) from error
        except TimeoutError as error:
            if not time_left.expired():
                raise
            detail = f"no answer was found within {most:g} s"
            raise Problem(504, "took_too_long", detail) from error

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PUBLIC:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        with self._capacity.place():
            caller = await self._callers.identified(headers.get("authorization"))
            _require_this_machine(caller, headers)
            scope["state"]["caller"] = caller
            self._rate.take(caller.key)
            with self._capacity.share(caller.tenant):
                body = await body_of(scope, receive, self._setup.limits)
                again = _BodyReplay(body, receive)
                _drop_encoding(scope)
                await self._idempotency.call(self._setup.store, scope, body, again, send)

    def _log(self, scope: Scope, out: _Response, seconds: float) -> None:
        """Count the request and log it: its route and not its path, which may hold anything."""
        state = scope["state"]
        route = _route(scope, out)
        method = scope["method"] if "route" in scope else "(any)"
        self._setup.metrics.requested(method, route, out.status, seconds)
        key = (state["caller"].key if "caller" in state else "") or "-"
        line = (scope["method"][:16], route, out.status, seconds * 1000, key, out.id)
        log.info("%s %s %d %.1f ms key=%s id=%s", *line)


def _route(scope: Scope, out: _Response) -> str:
    """Return the template of the route, as in the OpenAPI description."""
    known: str = getattr(scope.get("route"), "path", "").replace(":path}", "}")
    return known or ("(again)" if out.replayed else "(none)")


class _Response:
    """Sends an answer with the headers that every answer has."""

    def __init__(self, scope: Scope, send: Send) -> None:
        scope.setdefault("state", {})
        sent = Headers(scope=scope).get(REQUEST_ID, "")
        self.id = sent if _ID.fullmatch(sent) else secrets.token_hex(8)
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


class _BodyReplay:
    """Gives the application the body in one piece, then whatever the client sends."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        """Return the next message."""
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _require_this_machine(caller: Caller, headers: Headers) -> None:
    """Refuse a caller without a key that is not a program on this machine, with Problem 421.

    A web page reaches a port of this machine under another host name, or sends its origin. A proxy
    on this machine forwards requests from elsewhere.
    """
    host = headers.get("host", "")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    passed = any(one in headers for one in ELSEWHERE)
    if not caller.key and (passed or name.lower() not in LOOPBACK):
        detail = "without a key the service answers on localhost only"
        raise Problem(421, "misdirected_request", detail)


def _drop_encoding(scope: Scope) -> None:
    """Remove the headers of a compressed body, because the application gets it decompressed."""
    gone = (b"content-encoding", b"content-length")
    scope["headers"] = [one for one in scope["headers"] if one[0].lower() not in gone]

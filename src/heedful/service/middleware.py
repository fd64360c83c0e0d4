"""Handle every request: identify the caller, limit rate and size, and check the body.

Every answer gets its common headers, a log line and a metric here. A call that is
repeated with the same Idempotency-Key takes effect only once and gets the same answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
import re
import time
import zlib
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import ceil
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful import telemetry
from heedful.lessons.lesson import Scope as Place
from heedful.redact import redact_data
from heedful.service.auth import MIN_THREAD_BODY_BYTES, Caller, Callers
from heedful.service.problems import ERROR_THROTTLE, RETRY_SOON_HEADERS, Problem, answer
from heedful.service.setup import RequestLimits, Setup
from heedful.store.idempotency import (
    IdempotentCall,
    keep_answer,
    read_call,
    write_effect,
)
from heedful.store.store import Effects

log: logging.Logger = logging.getLogger("heedful.http")
TRACES_PATH = "/v1/traces"
PROTOBUF_TYPE = "application/x-protobuf"
_JSON_TYPE_PATTERN = re.compile(r"application/(?:[\w.-]+\+)?json")
# A body of at most n bytes may contain n / DENSE lists and objects. Each of them needs
# 50 times its size in memory, and parsing a million of them takes a second. In OTLP
# each of them has a name, so n bytes of traces contain at most n / SPARSE, besides the
# first `MIN_TRACE_CONTAINERS` and those in texts.
BODY_BYTES_PER_CONTAINER = 8
TRACE_BYTES_PER_CONTAINER = 20
MIN_TRACE_CONTAINERS = 1_000
# Text that JSON allows but heedful does not, or that only Python accepts as JSON.
_DOUBTFUL_JSON_PATTERN = re.compile(rb"NaN|Infinity|\\u[dD][89a-fA-F]|\0")


async def body_of(scope: Scope, receive: Receive, limits: RequestLimits) -> bytes:
    """Return the whole request body, decompressed and checked.

    Raises Problem 400, 408, 413 or 415, and ClientDisconnect if the client goes away.
    """
    headers = Headers(scope=scope)
    most = limits.traces if scope["path"] == TRACES_PATH else limits.body
    encoding = headers.get("content-encoding", "").lower()
    if encoding not in ("", "identity", "gzip"):
        detail = f"send the body uncompressed or with gzip, not with {encoding!r}"
        raise Problem(
            status=415,
            code="unsupported_media_type",
            detail=detail,
            headers={"Accept-Encoding": "gzip"},
        )
    gzip = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding == "gzip" else None
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in Request(scope, receive).stream():
                parts.append(gzip.decompress(part, most - size + 1) if gzip else part)
                size += len(parts[-1])
                if size > most:
                    detail = f"a body may have at most {most} bytes"
                    raise Problem(status=413, code="body_too_large", detail=detail)
    except TimeoutError:
        detail = f"the body did not arrive within {limits.seconds:g} s"
        raise Problem(
            status=408,
            code="request_timeout",
            detail=detail,
            headers={"Connection": "close"},
        ) from None
    except zlib.error as error:
        raise Problem(
            status=400,
            code="bad_request",
            detail=f"the body is not valid gzip: {error}",
        ) from error
    if gzip and (not gzip.eof or gzip.unused_data):
        raise Problem(
            status=400,
            code="bad_request",
            detail="the body must be one complete gzip stream",
        )
    body = b"".join(parts)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and not (scope["path"] == TRACES_PATH and kind == PROTOBUF_TYPE):
        traces = scope["path"] == TRACES_PATH
        most = (
            MIN_TRACE_CONTAINERS + len(body) // TRACE_BYTES_PER_CONTAINER
            if traces
            else most // BODY_BYTES_PER_CONTAINER
        )
        check = partial(_check_form, body, kind, most, traces)
        await asyncio.to_thread(check) if len(body) > MIN_THREAD_BODY_BYTES else check()
    return body


def _check_form(body: bytes, kind: str, most: int, apart: bool) -> None:
    """Check that the body is JSON and has at most `most` lists and objects; `apart`
    from its texts.

    Raises Problem 400, 413 or 415.
    """
    if not _JSON_TYPE_PATTERN.fullmatch(kind):
        detail = (
            f"send JSON as Content-Type: application/json, not as {kind or 'nothing'}"
        )
        raise Problem(
            status=415,
            code="unsupported_media_type",
            detail=detail,
            headers={"Accept": "application/json"},
        )
    if (begun := body.count(b"[") + body.count(b"{")) > most and apart:
        import numpy as np  # slow to import

        # Only those outside the texts of the JSON.
        codes = np.frombuffer(body.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
        inside = np.logical_xor.accumulate(codes == ord('"'))
        begun = int(
            np.count_nonzero(((codes == ord("[")) | (codes == ord("{"))) & ~inside)
        )
    if begun > most:
        detail = f"a body may have at most {most} lists and objects, not {begun}"
        raise Problem(status=413, code="body_too_large", detail=detail)
    try:
        if _DOUBTFUL_JSON_PATTERN.search(body):
            # `dumps` refuses NaN and Infinity, which only Python reads as JSON.
            plain = json.loads(body.decode())
            json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise Problem(
            status=400, code="bad_request", detail="the body has an unpaired surrogate"
        ) from error
    except ValueError as error:
        raise Problem(
            status=400, code="bad_request", detail=f"the body is not JSON: {error}"
        ) from error


MAX_RATE_KEYS = (
    10_000  # keys whose rate is tracked; the least recently used is forgotten
)


class RateLimit:
    """A token bucket for each caller: `burst` requests at once, refilled at `rate` a
    second.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, now: float | None = None) -> None:
        """Count a request of a caller. Raises Problem 429 if the bucket of the caller
        is empty.
        """
        if not self._rate:
            return
        now = time.monotonic() if now is None else now
        left, at = self._left.pop(caller, (float(self._burst), now))
        left = min(self._burst, left + (now - at) * self._rate)
        self._left[caller] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > MAX_RATE_KEYS:
            self._left.popitem(last=False)
        if left < 1:
            wait = ceil((1 - left) / self._rate)
            detail = (
                f"this key may send {self._rate:g} requests a second; try again in "
                f"{wait} s"
            )
            raise Problem(
                status=429,
                code="too_many_requests",
                detail=detail,
                headers={"Retry-After": str(wait)},
            )


ALL_TENANTS = ""  # all tenants together


class Capacity:
    """A limit of `most` concurrent requests; one tenant may have at most seven eighths
    of them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._share = most - most // 8
        self._taken: Counter[str] = Counter()

    @contextmanager
    def running(self, tenant: str = ALL_TENANTS) -> Iterator[None]:
        """Count a request while the block runs. Raises Problem if the limit is already
        reached.

        The status is 429 for the limit of a tenant, and 503 for the limit of `ALL_TENANTS`
        tenants.
        """
        most = self._share if tenant else self._most
        if self._taken[tenant] >= most:
            status = 503
            code = "busy"
            what = f"{most} requests"
            if tenant:
                status = 429
                code = "too_many_requests"
                what = f"{most} requests of this tenant"
            raise Problem(
                status=status,
                code=code,
                detail=f"{what} are already running; try again",
                headers=RETRY_SOON_HEADERS,
            )
        self._taken[tenant] += 1
        try:
            yield
        finally:
            self._taken[tenant] -= 1
            self._taken += Counter()  # removes tenants without a request


IDEMPOTENCY_HEADER = "Idempotency-Key"
MAX_IDEMPOTENCY_KEY_CHARS = 255


async def answer_once(
    app: ASGIApp,
    caller: Caller,
    scope: Scope,
    body: bytes,
    receive: Receive,
    send: Send,
) -> None:
    """Answer a call; a call that repeats an idempotency key gets the stored answer.

    If two processes answer the same call, only one of them takes effect. Raises Problem
    422, LeaseLost, StoreError.
    """
    once = Headers(scope=scope).get(IDEMPOTENCY_HEADER)
    if once is None or scope["method"] != "POST":
        with Effects(actor=caller.actor):
            await app(scope, receive, send)
        return
    if not (
        0 < len(once) <= MAX_IDEMPOTENCY_KEY_CHARS
        and once.isascii()
        and once.isprintable()
    ):
        detail = f"{IDEMPOTENCY_HEADER} must be 1 to {MAX_IDEMPOTENCY_KEY_CHARS} printable ASCII characters"
        raise Problem(status=422, code="idempotency_key_invalid", detail=detail)
    request = [scope["method"], scope["path"], scope["query_string"].decode("latin-1")]
    digest = hashlib.sha256(json.dumps(request).encode() + body).hexdigest()
    call = IdempotentCall(
        tenant=caller.key.tenant,
        caller=caller.key.id,
        once=hashlib.sha256(once.encode()).hexdigest(),
        digest=digest,
    )
    store = caller.setup.store
    tenant = Place(caller.key.tenant)
    before = await store.read(tenant, read_call, call)
    if before.digest not in ("", digest):
        detail = f"this {IDEMPOTENCY_HEADER} was already used for another request; use a new key"
        raise Problem(status=422, code="idempotency_key_reused", detail=detail)
    made = before.answer
    if made is None:
        sent: list[Message] = []

        async def hold(message: Message) -> None:
            sent.append(message)

        by = caller.actor
        with Effects(
            lambda db, n, one: write_effect(db, call, n, one), before.effects, by
        ):
            await app(scope, receive, hold)
        start, *rest = sent
        body = b"".join(part.get("body", b"") for part in rest)
        names = [
            (k.decode("latin-1"), v.decode("latin-1")) for k, v in start["headers"]
        ]
        made = {
            "status": start["status"],
            "headers": names,
            "body": body.decode("latin-1"),
        }
        # A repeat of a failed call runs again.
        if made["status"] < 300:
            made = _without_secrets(made)
            await store.write(tenant, keep_answer, call, made)
    headers = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in made["headers"]]
    if before.digest:
        headers.append((b"idempotent-replayed", b"true"))
    await send(
        {"type": "http.response.start", "status": made["status"], "headers": headers}
    )
    await send({"type": "http.response.body", "body": made["body"].encode("latin-1")})


def _without_secrets(made: dict[str, Any]) -> dict[str, Any]:
    headers = dict(made["headers"])
    if not headers.get("content-type", "").startswith("application/json"):
        return made
    plain = json.loads(made["body"].encode("latin-1"))
    if (clean := redact_data(plain)) == plain:
        return made
    body = json.dumps(clean, ensure_ascii=False).encode()
    headers["content-length"] = str(len(body))
    return {**made, "headers": [*headers.items()], "body": body.decode("latin-1")}


# Paths that need no key, because they show no data of a tenant.
PUBLIC_PATHS = (
    "/healthz",
    "/readyz",
    "/metrics",
    "/openapi.json",
    "/docs",
    "/",
    "/favicon.ico",
)
PAGES_PATH = "/ui"
# Without a key, only programs on this machine may call. A web page in a browser sends
# another host name or an origin. A proxy on this machine that forwards requests adds
# one of these headers.
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
FORWARDING_HEADERS = (
    "origin",
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-real-ip",
)
REQUEST_ID_HEADER = "X-Request-Id"
_REQUEST_ID_PATTERN = re.compile(r"[\w.:-]{1,64}", re.ASCII)
# Headers of every answer: it is not cached, and no browser runs it as a page.
SAFETY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Entrance:
    """ASGI middleware that checks key, limits and body, and answers every error as a
    problem.
    """

    def __init__(self, app: ASGIApp, setup: Setup, callers: Callers) -> None:
        self._app = app
        self._setup = setup
        self._callers = callers
        self._rate = RateLimit(setup.limits.rate, setup.limits.burst)
        self._capacity = Capacity(setup.limits.concurrent)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        out = _Response(scope, send)
        began = time.perf_counter()
        most = self._setup.limits.answer
        time_left = asyncio.timeout(most)
        metrics = self._setup.metrics
        metrics.running += 1
        try:
            async with time_left:
                await self._admit(scope, receive, out.send)
        except ClientDisconnect:
            pass
        except (Exception, asyncio.CancelledError) as error:
            if out.status:  # part of the answer is already sent
                raise
            failure: BaseException = error
            if isinstance(error, asyncio.CancelledError):
                detail = "the service stopped before it had an answer; try again"
                failure = Problem(
                    status=503,
                    code="stopping",
                    detail=detail,
                    headers=RETRY_SOON_HEADERS,
                )
            elif isinstance(error, TimeoutError) and time_left.expired():
                failure = Problem(
                    status=504,
                    code="took_too_long",
                    detail=f"the request took more than {most:g} s",
                )
            await answer(failure, scope)(scope, receive, out.send)
        finally:
            metrics.running -= 1
            out.log(metrics, time.perf_counter() - began)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        # A tool and a page ask for their caller; a page admits its own visitors.
        if (
            path in PUBLIC_PATHS
            or path.startswith(PAGES_PATH)
            or "caller" in scope["state"]
        ):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        with self._capacity.running():
            caller = await self._callers.identified(headers.get("authorization"))
            host = headers.get("host", "")
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            passed = any(one in headers for one in FORWARDING_HEADERS)
            if not caller.key.id and (passed or name.lower() not in LOOPBACK_HOSTS):
                detail = "without a key, the service answers only requests to localhost"
                raise Problem(status=421, code="misdirected_request", detail=detail)
            scope["state"]["caller"] = caller
            self._rate.take(caller.key.id)
            with self._capacity.running(caller.key.tenant):
                body = await body_of(scope, receive, self._setup.limits)
                # The application gets the decompressed body.
                gone = (b"content-encoding", b"content-length")
                scope["headers"] = [
                    one for one in scope["headers"] if one[0].lower() not in gone
                ]
                pieces = [body]

                async def again() -> Message:
                    if not pieces:
                        return await receive()
                    return {
                        "type": "http.request",
                        "body": pieces.pop(),
                        "more_body": False,
                    }

                await answer_once(
                    self._app, caller, scope=scope, body=body, receive=again, send=send
                )


class _Response:
    """Sends an answer with the common headers, and logs the request."""

    def __init__(self, scope: Scope, send: Send) -> None:
        scope.setdefault("state", {})
        sent = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
        self._id = (
            sent if _REQUEST_ID_PATTERN.fullmatch(sent) else random.randbytes(8).hex()
        )
        self._scope = scope
        self._send = send
        self._replayed = False
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            self._replayed = "Idempotent-Replayed" in headers
            for name, value in SAFETY_HEADERS.items():
                headers.setdefault(name, value)
            headers[REQUEST_ID_HEADER] = self._id
        await self._send(message)

    @property
    def route(self) -> str:
        """Return the route's path template, "(again)" for a stored answer, else
        "(none)".
        """
        known: str = getattr(self._scope.get("route"), "path", "").replace(
            ":path}", "}"
        )
        return known or ("(again)" if self._replayed else "(none)")

    def log(self, metrics: Any, seconds: float) -> None:
        """Count and log the request, without its path, which may contain private
        data.
        """
        scope = self._scope
        route = self.route
        method = (
            scope["method"] if scope["method"] in telemetry.HTTP_METHODS else "(any)"
        )
        metrics.requests.labels(method, route, str(self.status)).inc()
        metrics.seconds.labels(method, route).observe(seconds)
        caller = scope["state"].get("caller")
        # Nobody without a key can fill the disk.
        if caller is None and not ERROR_THROTTLE.allows(
            f"{method} {route} {self.status}"
        ):
            return
        key = (caller.key.id if caller else "") or "-"
        line = (method, route, self.status, seconds * 1000, key, self._id)
        log.info("%s %s %d %.1f ms key=%s id=%s", *line)

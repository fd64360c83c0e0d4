"""Handle every request: identify the caller, limit rate and size, and check the body.

A request is refused as early as possible. First its caller is identified. Then the rate
of the caller is compared with its limit. Then `bodies` reads the body, and checks its
length and its form before anything parses it.

Every answer gets its common headers, a log line and a metric here, and every error
becomes a problem here. A call that is repeated with the same Idempotency-Key takes
effect only once and gets the same answer. The service may stand below a path of a
proxy.
"""

import asyncio
import hashlib
import json
import logging
import random
import re
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import ceil

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful import telemetry
from heedful.lessons.lesson import Scope as Place
from heedful.redact import redact, redact_data
from heedful.store.idempotency import (
    MAX_KEY_CHARS,
    REMOVED_ANSWER,
    IdempotentCall,
    RecordedCall,
    keep_answer,
    read_call,
)
from heedful.store.keys import sent_id
from heedful.store.offload import Turns
from heedful.store.store import Effects, Store
from heedful.validation import Document, Fields, hex_digest
from heedful_server.auth import Caller, Callers, collect, receive_of
from heedful_server.bodies import body_of
from heedful_server.problems import (
    ERROR_THROTTLE,
    RETRY_SOON_HEADERS,
    ErrorBody,
    Problem,
    answer,
)
from heedful_server.routes import routes_of
from heedful_server.setup import (
    MAX_HEAVY_CALLS,
    MAX_REMEMBERED_CALLERS,
    Metrics,
    RequestLimits,
    Setup,
)

log = logging.getLogger("heedful.http")


class RateLimit:
    """A token bucket for each caller: `burst` at once, refilled at `rate` a second."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        # Caller -> when its bucket is full again. A token lacks for each part
        # `1 / rate` of the time until then.
        self._full: OrderedDict[str, float] = OrderedDict()

    def take(self, caller: str, now: float) -> None:
        """Count a request. Raises Problem 429 if the bucket of the caller is empty."""
        if not self._rate:
            return

        full = max(now, self._full.pop(caller, now))
        excess_seconds = full + 1 / self._rate - now - self._burst / self._rate
        wait_seconds = ceil(round(excess_seconds, 6))
        if wait_seconds <= 0:
            full += 1 / self._rate

        self._full[caller] = full
        if len(self._full) > MAX_REMEMBERED_CALLERS:
            self._full.popitem(last=False)

        if wait_seconds > 0:
            raise Problem(
                429,
                "too_many_requests",
                detail=(
                    f"this key may send {self._rate:g} requests a second; "
                    f"try again in {wait_seconds} s"
                ),
                headers={"Retry-After": str(wait_seconds)},
            )


class Admission:
    """The rates and the turns of the callers of a service, for API and pages."""

    def __init__(self, limits: RequestLimits) -> None:
        self._rate = RateLimit(limits.rate, limits.burst)
        self._turns = Turns(MAX_HEAVY_CALLS)

    @contextmanager
    def caller(self, caller: Caller) -> Iterator[None]:
        """Count a request of a caller, which may take a turn while the block runs.

        Raises Problem 429 if the caller sends too many.
        """
        self._rate.take(caller.key.id, time.monotonic())
        with self._turns.call(caller.key.id):
            yield


IDEMPOTENCY_HEADER = "Idempotency-Key"
# The texts in these answers are not stored. A repeated call makes its answer again,
# from its stored effects.
UNSTORED_ANSWER_PATHS = ("/v1/recall", "/v1/trials/offers")


async def answer_once(
    app: ASGIApp,
    caller: Caller,
    scope: Scope,
    body: bytes,
    receive: Receive,
    send: Send,
) -> None:
    """Answer a call; a call that repeats an idempotency key gets the stored answer.

    Each write of the call is stored together with its result. If a process stops before
    it has stored the answer, a repeated call continues after these writes. If several
    processes answer the same call, only one of them takes effect; the others answer the
    same, or that the call is being answered. Raises Problem 409 or 422, LeaseLost,
    StoreError.
    """
    call_key = Headers(scope=scope).get(IDEMPOTENCY_HEADER)
    if call_key is None or scope["method"] != "POST":
        with Effects(actor=caller.actor):
            await app(scope, receive, send)
        return

    call = _idempotent_call(call_key, caller, scope, body)
    store = caller.setup.store
    earlier = await _recorded_call(store, call)
    stored_answer = earlier.answer
    if stored_answer is None:
        effects = Effects(call, earlier.effects, caller.actor, key=call_key)
        stored_answer = await _first_answer(
            app, call, store=store, effects=effects, scope=scope, receive=receive
        )

    headers = dict(stored_answer["headers"])
    if earlier.digest:
        headers["idempotent-replayed"] = "true"

    content = stored_answer["body"].encode("latin-1")
    response = Response(content, stored_answer["status"], headers)
    await response(scope, receive, send)


async def _recorded_call(store: Store, call: IdempotentCall) -> RecordedCall:
    """Return what is stored of a call.

    Raises Problem 422 if it is another call's, and 409 if its answer was removed.
    """
    recorded_call = await store.read(Place(call.tenant), read_call, call)
    if recorded_call.digest not in ("", call.digest):
        raise Problem(
            422,
            "idempotency_key_reused",
            detail=(
                f"this {IDEMPOTENCY_HEADER} was already used for another request; "
                "use a new key"
            ),
        )
    if recorded_call.answer == REMOVED_ANSWER:
        raise Problem(
            409,
            "answer_removed",
            detail=(
                "this call has taken effect, but its answer was removed when somebody "
                "revoked a source or forgot texts; a new "
                f"{IDEMPOTENCY_HEADER} would run it once more"
            ),
        )
    return recorded_call


async def _first_answer(
    app: ASGIApp,
    call: IdempotentCall,
    store: Store,
    effects: Effects,
    scope: Scope,
    receive: Receive,
) -> Fields:
    """Run a call, store its answer, and return it.

    Returns the answer of another process if that was faster. The answer of a call that
    failed or has stored no effect is not stored, nor that of a path in
    `UNSTORED_ANSWER_PATHS`: a repeat of the call runs again. Raises LeaseLost if
    another process is answering the call, Problem 422 if it is another call, and
    Problem 409 if its answer was removed.
    """
    try:
        with effects:
            start, content = await collect(app, scope, receive)

        own_answer = {
            "status": start["status"],
            "headers": Headers(raw=start["headers"]).items(),
            "body": content.decode("latin-1"),
        }

        # A call without effects only reads: nothing can be done twice.
        has_effects = effects.stored_count > 0
        is_stored = has_effects and scope["path"] not in UNSTORED_ANSWER_PATHS
        if is_stored and own_answer["status"] < 300:
            own_answer = _without_secrets(own_answer)
            await store.write(
                Place(call.tenant),
                keep_answer,
                call,
                answer=own_answer,
                effect_count=effects.stored_count,
            )
        return own_answer
    except Exception:
        # What another process did for this call may be the reason: a lesson that it has
        # released, for example, can no longer be released.
        recorded_call = await _recorded_call(store, call)
        if recorded_call.answer is not None:
            return recorded_call.answer
        recorded_call.check_effects(effects.stored_count)
        raise


def _idempotent_call(
    call_key: str, caller: Caller, scope: Scope, body: bytes
) -> IdempotentCall:
    """Return the call that this key names. Raises Problem 422 for an unusable key."""
    length_fits = 0 < len(call_key) <= MAX_KEY_CHARS
    if not (length_fits and call_key.isascii() and call_key.isprintable()):
        raise Problem(
            422,
            "idempotency_key_invalid",
            detail=(
                f"{IDEMPOTENCY_HEADER} must be 1 to {MAX_KEY_CHARS} "
                "printable ASCII characters"
            ),
        )

    request = [scope["method"], scope["path"], scope["query_string"].decode("latin-1")]
    return IdempotentCall(
        tenant=caller.key.tenant,
        caller=caller.key.id,
        once=hex_digest(call_key),
        digest=hashlib.sha256(json.dumps(request).encode() + body).hexdigest(),
    )


def _without_secrets(stored_answer: Document) -> Document:
    """Return an answer with redacted secrets, if it is JSON, else as it is."""
    headers = dict(stored_answer["headers"])
    if not headers.get("content-type", "").startswith("application/json"):
        return stored_answer

    data = json.loads(stored_answer["body"].encode("latin-1"))
    redacted = redact_data(data)
    if redacted == data:
        return stored_answer

    body = json.dumps(redacted, ensure_ascii=False).encode()
    headers["content-length"] = str(len(body))
    return {
        **stored_answer,
        "headers": [*headers.items()],
        "body": body.decode("latin-1"),
    }


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
# Without a key, only programs on this machine may call, and only a person at it may use
# the pages. A proxy on this machine that forwards requests adds a header that begins
# like one of these. A foreign web page in a browser sends another host name or an
# origin.
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
FORWARDING_HEADERS = ("forwarded", "via", "x-forwarded-", "x-real-ip")
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
    """ASGI middleware that admits requests, and answers every error as a problem."""

    def __init__(
        self,
        app: ASGIApp,
        setup: Setup,
        callers: Callers,
        admission: Admission,
        error_bodies: Mapping[str, ErrorBody],
    ) -> None:
        self._app = app
        self._setup = setup
        self._callers = callers
        self._admission = admission
        self._answer = partial(answer, bodies=error_bodies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        response = _Response(scope, send)
        began = time.perf_counter()
        deadline = asyncio.timeout(self._setup.limits.answer)
        metrics = self._setup.metrics
        metrics.running += 1

        try:
            async with deadline:
                await self._admit(scope, receive, response.send)
        except ClientDisconnect:
            pass
        except (Exception, asyncio.CancelledError) as error:
            # If part of the answer is already sent, it cannot become a problem.
            if response.status:
                raise
            # The pages answer a browser with a page. No name here is bound to the
            # failure: it would keep itself, and the body in its traceback, in memory.
            answer_error = scope["state"].get("answer", self._answer)
            problem = answer_error(self._failure_of(error, deadline), scope)
            await problem(scope, receive, response.send)
        finally:
            metrics.running -= 1
            response.log(metrics, time.perf_counter() - began)

    def _failure_of(
        self, error: BaseException, deadline: asyncio.Timeout
    ) -> BaseException:
        """Return what to answer: the error, or the problem of a request cut short."""
        if isinstance(error, asyncio.CancelledError):
            return Problem(
                503,
                "stopping",
                detail="the service stopped before it had an answer; try again",
                headers=RETRY_SOON_HEADERS,
            )
        if isinstance(error, TimeoutError) and deadline.expired():
            seconds = self._setup.limits.answer
            return Problem(
                504,
                "took_too_long",
                detail=f"the request took more than {seconds:g} s",
            )
        return error

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or refuse it. Raises Problem."""
        headers = Headers(scope=scope)
        # A proxy before the service may read such a request with the other length, and
        # so pass on another request in its body. Parsers refuse all other ambiguities.
        if "content-length" in headers and "transfer-encoding" in headers:
            raise Problem(
                400,
                "bad_request",
                detail="the length of the request is ambiguous",
                headers={"Connection": "close"},
            )

        # The pages admit their own visitors. A request that a page or a tool makes has
        # its caller already.
        path = scope["path"]
        is_public = path in PUBLIC_PATHS or path.startswith(PAGES_PATH)
        if is_public or "caller" in scope["state"]:
            await self._app(scope, receive, send)
            return

        caller = await self._callers.identified(headers.get("authorization"))
        if not caller.key.id:
            check_local(headers)
        scope["state"]["caller"] = caller

        with self._admission.caller(caller):
            body = await body_of(scope, receive, self._setup.limits)
            # These describe the body before it was decompressed.
            sent_headers = MutableHeaders(scope=scope)
            del sent_headers["content-encoding"]
            del sent_headers["content-length"]
            await answer_once(
                self._app,
                caller,
                scope=scope,
                body=body,
                receive=receive_of(body, receive),
                send=send,
            )


def check_local(headers: Headers, *, with_origin: bool = False) -> None:
    """Refuse a request without a key that is not from this machine. Raises Problem.

    With `with_origin`, it may name the page that sent it, as browsers do; the pages
    compare it themselves.
    """
    is_forwarded = any(name.startswith(FORWARDING_HEADERS) for name in headers)
    is_from_page = "origin" in headers and not with_origin
    host = headers.get("host", "").lower()
    if not host.endswith("]"):  # a port follows the brackets of an IPv6 address
        host = host.rpartition(":")[0] or host
    if is_forwarded or is_from_page or host not in LOOPBACK_HOSTS:
        raise Problem(
            421,
            "misdirected_request",
            detail="without a key, the service answers only requests to localhost",
        )


class _Response:
    """Sends an answer with the common headers, and logs the request."""

    def __init__(self, scope: Scope, send: Send) -> None:
        scope.setdefault("state", {})
        self._id = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
        is_id = _REQUEST_ID_PATTERN.fullmatch(self._id)
        # The log has the id, and is to have no secret.
        if not is_id or redact(self._id) != self._id:
            self._id = random.randbytes(8).hex()
        scope["state"]["request_id"] = self._id
        self._scope = scope
        self._send = send
        self._replayed = False
        self._is_stream = False
        self.status = 0

    async def send(self, message: Message) -> None:
        """Send a message of the answer; add the common headers to the first."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            self._replayed = "Idempotent-Replayed" in headers
            content_type = headers.get("content-type", "")
            self._is_stream = content_type.startswith("text/event-stream")
            # The pages have some of their own.
            page_headers = self._scope["state"].get("headers", {})
            for name, value in {**SAFETY_HEADERS, **page_headers}.items():
                headers.setdefault(name, value)
            headers[REQUEST_ID_HEADER] = self._id
        await self._send(message)

    @property
    def route(self) -> str:
        """Return the template of the path, such as `/v1/loops/{id}`.

        It is "(again)" for a stored answer, and "(none)" if there is no such route.
        """
        if self._replayed:
            return "(again)"
        route = self._scope.get("route") or self._missed_route()
        template: str = getattr(route, "path", "").replace(":path}", "}")
        return template or "(none)"

    def _missed_route(self) -> Route | None:
        """Return the route of a request that was refused before it was found."""
        for route in routes_of(self._scope["app"]):
            if route.matches(self._scope)[0] == Match.FULL:
                return route
        return None

    def log(self, metrics: Metrics, seconds: float) -> None:
        """Count and log the request, without its path, which may have private data."""
        route = self.route
        method = self._scope["method"]
        if method not in telemetry.HTTP_METHODS:
            method = "(any)"
        metrics.requests.labels(method, route, str(self.status)).inc()
        if not self._is_stream:  # a page stays open as long as somebody looks at it
            metrics.seconds.labels(method, route).observe(seconds)

        caller = self._scope["state"].get("caller")
        if caller is None:  # the key may be refused; its id is no secret
            headers = Headers(scope=self._scope)
            key_id = sent_id(headers.get("authorization", "")) or "-"
        else:
            key_id = caller.key.id or "-"
        # Equal requests of unknown callers are logged rarely, so that nobody without a
        # key can fill the disk.
        line = f"{method} {route} {self.status}"
        if self.status in (401, 403):
            line = metrics.refuse(route, self.status, key_id)
        if caller is None and not ERROR_THROTTLE.allows(line):
            return

        log.info(
            "%s %s %d %.1f ms key=%s id=%s",
            method,
            route,
            self.status,
            seconds * 1000,
            key_id,
            self._id,
        )


PREFIX_HEADER = "X-Forwarded-Prefix"
# Segments of a path, but none of dots.
_PREFIX_PATTERN = re.compile(r"(?:/(?!\.\.?(?:/|$))[\w.~-]+)+", re.ASCII)
# Templates escape quotes, so that no word of others looks like a link.
_LINK_PATTERN = re.compile(rb'( (?:href|src|action|formaction|data-live)=")(?=/)')


class SubPath:
    """ASGI middleware that serves below a path of a proxy: https://example.com/heedful/.

    The routes and pages know nothing of it. The answer has it in the addresses that a
    browser follows: in `Location`, in the path of a cookie, and in the links and forms
    of a page. A proxy names it in `X-Forwarded-Prefix` and removes it from a request;
    `root_path` is that of a proxy that may leave it there.

    Anybody may send the header: it changes only the addresses in the sender's own
    answer, and not which route answers.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app = app
        self._root_path = root_path.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        root = self._root_path
        if root and scope["path"].startswith(f"{root}/"):
            path = scope["path"].removeprefix(root)
            raw_path = scope["raw_path"].removeprefix(root.encode())
            scope = {**scope, "path": path, "raw_path": raw_path}

        prefix = Headers(scope=scope).get(PREFIX_HEADER, root).rstrip("/")
        if not _PREFIX_PATTERN.fullmatch(prefix):
            await self._app(scope, receive, send)
            return

        page: Message = {}  # the head of a page, until its text is there

        async def send_below(message: Message) -> None:
            """Send a part of the answer with the path in its addresses."""
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                _add_prefix(headers, prefix)
                if headers.get("content-type", "").startswith("text/html"):
                    page.update(message)
                    return
            elif page:
                body = _LINK_PATTERN.sub(rb"\1" + prefix.encode(), message["body"])
                MutableHeaders(scope=page)["content-length"] = str(len(body))
                await send({**page})
                page.clear()
                message = {**message, "body": body}
            await send(message)

        await self._app(scope, receive, send_below)


def _add_prefix(headers: MutableHeaders, prefix: str) -> None:
    """Add the path of the proxy to the addresses in the headers of an answer."""
    location = headers.get("location", "")
    if location.startswith("/"):
        headers["location"] = f"{prefix}{location}"
    cookie = headers.get("set-cookie", "")
    if cookie:
        headers["set-cookie"] = cookie.replace("Path=/", f"Path={prefix}/")

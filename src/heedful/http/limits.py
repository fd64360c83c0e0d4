"""What one request may be, and how many of them: size, form, rate, and how many at a time."""

from __future__ import annotations

import asyncio
import json
import re
import time
import zlib
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from typing import Any, NoReturn

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from heedful.http.problems import SOON, Problem
from heedful.http.setup import Limits

TRACES = "/v1/traces"
PROTOBUF = "application/x-protobuf"
# Keys whose rate is known at a time; who was not heard of for longest has a full bucket again.
KNOWN = 10_000
_JSON = re.compile(r"application/(?:[\w.-]+\+)?json")
# Of so many bytes that a body may have, one may begin a list or an object: each takes 50 times its
# size in memory, and to read a million of them a second.
DENSE = 8
# A body of more than so many bytes is at most so many times as large as it came.
SMALL, DENSEST = 2**20, 100
# What JSON allows and no text of ours may have, or what only Python takes for JSON.
_DOUBTFUL = re.compile(rb"NaN|Infinity|\\u[dD][89a-fA-F]|\0")


class Rates:
    """A bucket of `burst` requests for each caller, filled with `rate` of them a second."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, now: float | None = None) -> None:
        """Take one request out of the caller's bucket. Raises Problem 429 where it is empty."""
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
            detail = f"this key may ask {self._rate:g} times a second; ask again in {wait} s"
            raise Problem(429, "too_many_requests", detail, {"Retry-After": str(wait)})


class Room:
    """So many requests at a time, of one tenant all but an eighth: the others get their answers."""

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, 0
        self._share = most - most // 8
        self._of: Counter[str] = Counter()

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place, for as long as the request lasts. Raises Problem 503 where none is free."""
        if self._taken >= self._most:
            detail = f"{self._most} requests are worked on just now; ask again"
            raise Problem(503, "busy", detail, {"Retry-After": SOON})
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1

    @contextmanager
    def share(self, tenant: str) -> Iterator[None]:
        """One of the places of a tenant. Raises Problem 429 where it has none left."""
        if self._of[tenant] >= self._share:
            detail = f"{self._share} requests of this tenant are worked on just now; ask again"
            raise Problem(429, "too_many_requests", detail, {"Retry-After": SOON})
        self._of[tenant] += 1
        try:
            yield
        finally:
            self._of[tenant] -= 1
            if not self._of[tenant]:
                del self._of[tenant]


async def body_of(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """The whole body, decompressed, in a form that the route can read.

    Raises Problem 400, 408, 413 and 415; ClientDisconnect where nobody sends any more.
    """
    headers = Headers(scope=scope)
    most = limits.traces if scope["path"] == TRACES else limits.body
    if headers.get("content-length", "").isdigit() and int(headers["content-length"]) > most:
        _too_large(most)
    unpacked = _Unpacked(headers.get("content-encoding", ""))
    parts: list[bytes] = []
    size = came = 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in _parts(receive):
                parts.append(unpacked.part(part, most - size + 1))
                size += len(parts[-1])
                came += len(part)
                if size > most or size > max(SMALL, DENSEST * came):
                    _too_large(most)
    except TimeoutError:
        detail = f"the body did not arrive within {limits.seconds:g} s"
        raise Problem(408, "request_timeout", detail, {"Connection": "close"}) from None
    unpacked.end()
    body = b"".join(parts)
    if body:
        _form(body, scope["path"], headers.get("content-type", ""), most)
    return body


async def _parts(receive: Receive) -> Any:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        yield message.get("body", b"")
        more = message.get("more_body", False)


class _Unpacked:
    """The body as it was before it was compressed. Raises Problem 400, 415."""

    def __init__(self, encoding: str) -> None:
        if encoding.lower() not in ("", "identity", "gzip"):
            detail = f"send the body as it is or with gzip, not with {encoding!r}"
            raise Problem(415, "unsupported_media_type", detail, {"Accept-Encoding": "gzip"})
        packed = encoding.lower() == "gzip"
        self._gzip = zlib.decompressobj(16 + zlib.MAX_WBITS) if packed else None

    def part(self, part: bytes, most: int) -> bytes:
        """At most so many bytes of that part."""
        if self._gzip is None:
            return part
        try:
            return self._gzip.decompress(part, most)
        except zlib.error as error:
            raise Problem(400, "bad_request", f"the body is not gzip: {error}") from error

    def end(self) -> None:
        """Nothing, where it was whole."""
        if self._gzip is not None and (not self._gzip.eof or self._gzip.unused_data):
            raise Problem(400, "bad_request", "the body is not one whole piece of gzip")


def _too_large(most: int) -> NoReturn:
    detail = f"a body has at most {most} bytes here, decompressed, and {DENSEST} times what is sent"
    raise Problem(413, "body_too_large", detail)


def _form(body: bytes, path: str, kind: str, most: int) -> None:
    """Nothing, where a route can read the body. Raises Problem 413, 415, 400."""
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
        raise Problem(400, "bad_request", "the body has half of a surrogate pair") from error
    except ValueError as error:
        raise Problem(400, "bad_request", f"the body is not JSON: {error}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")

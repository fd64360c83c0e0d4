"""Read the body of a request: its size, its form, its turn and its pace.

A body above 1 MiB needs the turn of its call before the rest of it is received and
decompressed. So a request that waits holds 1 MiB and what arrived with it, however
large its body is, and its client cannot send more.
"""

import asyncio
import json
import re
import time
import zlib
from collections.abc import Iterator
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from heedful.store.offload import MAX_INLINE_CHARS, count_waiting, offload, take_turn
from heedful.validation import MAX_READ_BYTES
from heedful_server.problems import (
    RETRY_SOON_HEADERS,
    Problem,
    bad_request,
    of_unreadable_json,
)
from heedful_server.setup import RequestLimits

TRACES_PATH = "/v1/traces"
PROTOBUF_TYPE = "application/x-protobuf"
# `application/json`, or a kind of it such as `application/merge-patch+json`.
_JSON_TYPE_PATTERN = re.compile(r"application/(?:[\w.-]+\+)?json")
# If a body may have n bytes, it may have n / BODY_BYTES_PER_CONTAINER brackets that
# open. A list or an object needs 50 times its size in memory, and others wait while it
# is parsed. An attribute in OTLP has two objects in at least 40 bytes.
BODY_BYTES_PER_CONTAINER = 20
# Signs of what JSON or heedful does not allow: NaN or Infinity, which only Python
# accepts, half of a surrogate pair such as `\ud83d`, or a null character.
_DOUBTFUL_JSON_PATTERN = re.compile(rb"NaN|Infinity|\\u[dD][89a-fA-F]|\0")
# Bodies of a key that may wait for their turn. Each holds memory until then, even if
# its client has gone: the service does not notice that before it receives more.
MAX_WAITING_BODIES = 64
# A body that has its turn must arrive at this pace, because others wait for it.
MAX_SECONDS_PER_MIB = 10.0


async def body_of(scope: Scope, receive: Receive, limits: RequestLimits) -> bytes:
    """Return the whole request body, decompressed and checked.

    Raises Problem 400, 408, 413, 415 or 429, and ClientDisconnect if the client goes
    away.
    """
    headers = Headers(scope=scope)
    is_trace = scope["path"] == TRACES_PATH
    max_bytes = limits.traces if is_trace else limits.body
    body = await read_body(scope, receive, max_bytes)

    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if not body or (is_trace and media_type == PROTOBUF_TYPE):
        return body

    max_containers = max_bytes // BODY_BYTES_PER_CONTAINER
    if len(body) > MAX_INLINE_CHARS:
        await offload(_check_form, body, media_type, max_containers)
    else:
        _check_form(body, media_type, max_containers)
    return body


async def read_body(scope: Scope, receive: Receive, max_bytes: int) -> bytes:
    """Return the decompressed body, which may wait for the turn of its call.

    Raises Problem 400, 408, 413, 415 or 429, and ClientDisconnect if the client goes
    away.
    """
    gzip = _gzip_of(scope)
    sender = _Sender(receive)
    body = bytearray()
    async for part in Request(scope, sender.receive).stream():
        for piece in _decompress(gzip, part):
            body += piece
            if len(body) > max_bytes:
                raise Problem(
                    413,
                    "body_too_large",
                    detail=f"a body may have at most {max_bytes} bytes",
                )
            if len(body) > MAX_READ_BYTES:
                await sender.take_turn()
            if len(body) > MAX_INLINE_CHARS:
                await asyncio.sleep(0)  # others go on between two pieces

    if gzip is not None and not gzip.eof:
        raise bad_request("the body is not a complete gzip stream")
    return bytes(body)


def _gzip_of(scope: Scope) -> Any:
    """Return what decompresses the body; None if it is sent as it is.

    Raises Problem 415.
    """
    encoding = Headers(scope=scope).get("content-encoding", "").lower()
    if encoding in ("", "identity"):
        return None
    if encoding == "gzip":
        # 16 more than the window's size means a gzip header and trailer.
        return zlib.decompressobj(16 + zlib.MAX_WBITS)
    raise Problem(
        415,
        "unsupported_media_type",
        detail=f"send the body uncompressed or with gzip, not with {encoding!r}",
        headers={"Accept-Encoding": "gzip"},
    )


def _decompress(gzip: Any, part: bytes) -> Iterator[bytes]:
    """Yield a part of a body, decompressed, in pieces of `MAX_INLINE_CHARS`.

    Raises Problem 400.
    """
    if gzip is None:
        yield part
        return

    try:
        while part:
            yield gzip.decompress(part, MAX_INLINE_CHARS)
            part = gzip.unconsumed_tail
    except zlib.error as error:
        raise bad_request("the body is not valid gzip") from error
    if gzip.unused_data:
        raise bad_request("the body must be one gzip stream, and ends after it")


class _Sender:
    """The client that sends a body; it has to be fast when its call has the turn."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._has_turn = False
        self._free_seconds = MAX_SECONDS_PER_MIB

    async def take_turn(self) -> None:
        """Wait for the turn of the call. Raises Problem 429 if too many wait."""
        if self._has_turn:
            return

        if count_waiting("call") >= MAX_WAITING_BODIES:
            raise Problem(
                429,
                "too_many_requests",
                detail=(
                    f"{MAX_WAITING_BODIES} requests of this key with large bodies wait "
                    "already; send fewer of them at a time"
                ),
                headers=RETRY_SOON_HEADERS,
            )
        await take_turn("call")
        self._has_turn = True

    async def receive(self) -> Message:
        """Return what the client sends next. Raises Problem 408 if it is slow."""
        if not self._has_turn:
            return await self._receive()

        began = time.monotonic()
        try:
            async with asyncio.timeout(self._free_seconds):
                message = await self._receive()
        except TimeoutError as error:
            raise Problem(
                408,
                "body_too_slow",
                detail=(
                    "the rest of a body above 1 MiB must arrive at "
                    f"{MAX_SECONDS_PER_MIB:g} s a MiB"
                ),
                headers={"Connection": "close"},
            ) from error

        mebibytes = len(message.get("body", b"")) / MAX_READ_BYTES
        self._free_seconds += mebibytes * MAX_SECONDS_PER_MIB
        self._free_seconds -= time.monotonic() - began
        return message


def _check_form(body: bytes, media_type: str, max_containers: int) -> None:
    """Check that the body is JSON with at most `max_containers` lists and objects.

    Raises Problem 400, 413 or 415.
    """
    if not _JSON_TYPE_PATTERN.fullmatch(media_type):
        sent = media_type or "nothing"
        raise Problem(
            415,
            "unsupported_media_type",
            detail=f"send JSON as Content-Type: application/json, not as {sent}",
            headers={"Accept": "application/json"},
        )

    containers = body.count(b"[") + body.count(b"{")
    if containers > max_containers:
        raise Problem(
            413,
            "body_too_large",
            detail=(
                f"a body may have at most {max_containers} brackets of lists and "
                f"objects, not {containers}"
            ),
        )

    if not _DOUBTFUL_JSON_PATTERN.search(body):
        return

    try:
        # `dumps` refuses NaN and Infinity, which only Python reads as JSON.
        data = json.loads(body.decode())
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise bad_request("the body has an unpaired surrogate") from error
    except ValueError as error:
        raise of_unreadable_json(error) from error

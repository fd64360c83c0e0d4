"""Calls of the service: the key, tries again that do no harm, and refusals as our own errors."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit
from weakref import WeakKeyDictionary

from heedful import telemetry
from heedful.client.refusals import refused
from heedful.errors import InvalidInput, PackageMissing, Refused, Unreachable

if TYPE_CHECKING:
    import httpx

# Seconds between tries: by chance, up to a bound that doubles, so that many clients do not come
# back at once; and the longest pause that a service may ask for by Retry-After.
FIRST, LONGEST, OBEYED = 0.2, 10.0, 60.0


class Calls:
    """The way to one service: `url`, a key, and how long and how often a call is tried.

    Connections belong to the event loop that they were opened on, so that any may call. Raises
    InvalidInput, and PackageMissing without httpx.
    """

    def __init__(
        self,
        url: str,
        key: str,
        timeout: float,
        retries: int,
        insecure: bool,
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise PackageMissing("heedful.Client", "httpx", "client") from error
        _usable(url, key, insecure)
        if not timeout > 0:
            raise InvalidInput("timeout", timeout, "a number of seconds above 0")
        if retries < 0:
            raise InvalidInput("retries", retries, "an integer of at least 0")
        self.url: str = url.rstrip("/")
        self._key, self._retries, self._transport = key, retries, transport
        self._timeout = httpx.Timeout(timeout)
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            WeakKeyDictionary()
        )

    async def ask(
        self,
        method: str,
        *path: str | int,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """What the service answers, as plain data; None where it has nothing to say.

        A POST has an Idempotency-Key, the same at each try: what was done already is not done
        again. Raises Unreachable, and the error that the service had.
        """
        once = {"idempotency-key": secrets.token_hex(16)} if method == "POST" else {}
        request = self._pool().build_request(
            method,
            f"{self.url}/{'/'.join(quote(str(part), safe='') for part in path)}",
            params={name: value for name, value in (query or {}).items() if value},
            headers={**telemetry.carried(), **once, **(headers or {})},
            content=None if body is None else _json(body),
        )
        answer = await self._final(request)
        if not answer.is_success:
            raise refused(answer.status_code, answer.headers, answer.text)
        try:
            return answer.json() if answer.content else None
        except ValueError as error:
            raise Refused(answer.status_code, "", f"no JSON: {answer.text[:100]!r}") from error

    async def _final(self, request: httpx.Request) -> httpx.Response:
        """The answer after which no other is to be hoped for, or the last one."""
        import httpx

        tries = 0
        while True:
            pause = random.uniform(0, min(LONGEST, FIRST * 2**tries))
            try:
                answer = await self._pool().send(request)
            except httpx.TransportError as error:
                if tries >= self._retries:
                    raise Unreachable(self.url, type(error).__name__, str(error)) from error
            else:
                asked = _asked(answer.headers.get("retry-after", ""))
                if tries >= self._retries or not _again(answer.status_code, asked):
                    return answer
                pause += asked or 0.0
            tries += 1
            await asyncio.sleep(pause)

    async def close(self) -> None:
        """Close the connections of this event loop; calls open others."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.aclose()

    def _pool(self) -> httpx.AsyncClient:
        import httpx

        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            auth = {"authorization": f"Bearer {self._key}"} if self._key else {}
            self._pools[loop] = httpx.AsyncClient(
                headers={"content-type": "application/json", "accept": "application/json", **auth},
                timeout=self._timeout,
                transport=self._transport,
                trust_env=False,  # the library reads no environment variable
            )
        return self._pools[loop]


def _again(status: int, asked: float | None) -> bool:
    """Whether a try more may come to something: the service is busy, or was wrong itself."""
    if asked is not None:
        return asked <= OBEYED and (status in (409, 429) or status >= 500)
    return status == 429 or status >= 500


def _asked(retry_after: str) -> float | None:
    """The seconds that a Retry-After asks for, as a number or a date; None without one."""
    if not retry_after:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None


def _json(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("body", body, f"JSON data ({error})") from error


def _usable(url: str, key: str, insecure: bool) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput("url", url, "an address as in https://heedful.example.com")
    if parts.username or parts.password or parts.query or parts.fragment:
        allowed = "a scheme, a host and a path: the key is an argument of its own"
        raise InvalidInput("url", f"{parts.scheme}://{parts.hostname}/…", allowed)
    if key != key.strip() or not key.isascii() or not key.isprintable():
        raise InvalidInput("key", "…", "as `heedful key create` printed it")
    if key and parts.scheme == "http" and not insecure and not _loopback(parts.hostname):
        allowed = "https where a key is sent to another machine (or say insecure=True)"
        raise InvalidInput("url", url, allowed)


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

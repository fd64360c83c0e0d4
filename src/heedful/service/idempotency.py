"""A call repeated with its Idempotency-Key has its effect once and gets the same answer."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.lessons.lesson import Scope as Place
from heedful.redact import redact_data
from heedful.service.problems import SOON, Problem
from heedful.store.store import Call, Effects, Store, keep_answer, read_call, write_effect

HEADER = "Idempotency-Key"
LONGEST = 255


class Idempotency:
    """Makes calls idempotent; refuses a call that this process is already answering."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._under_way: set[tuple[str, str, str]] = set()

    async def call(
        self, store: Store, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Answer the call. Raises Problem 409, 422; LeaseLost; StoreError."""
        once = Headers(scope=scope).get(HEADER)
        if once is None or scope["method"] != "POST":
            with Effects():
                await self._app(scope, receive, send)
            return
        call = _call(scope, once, body)
        place = call.tenant, call.caller, call.once
        if place in self._under_way:
            detail = "the same call is being answered right now; try again"
            raise Problem(409, "at_work", detail, {"Retry-After": SOON})
        self._under_way.add(place)
        try:
            await self._call_once(store, call, scope, receive, send)
        finally:
            self._under_way.discard(place)

    async def _call_once(
        self, store: Store, call: Call, scope: Scope, receive: Receive, send: Send
    ) -> None:
        before = await store.read(Place(call.tenant), read_call, call)
        if before.digest not in ("", call.digest):
            detail = f"this {HEADER} was already used for another request; use a new key"
            raise Problem(422, "idempotency_key_reused", detail)
        answer = before.answer
        if answer is None:
            recorder = _Recorder()
            record = Effects(
                lambda db, n, one: write_effect(db, call, n, one), before.effects, before.next
            )
            with record:
                await self._app(scope, receive, recorder.send)
            answer = recorder.answer
            # A failed call had no effect, or a repeat continues it. A secret is shown once.
            if answer["status"] < 300 and not scope["state"].get("secret"):
                answer = _without_secrets(answer)
                await store.write(Place(call.tenant), keep_answer, call, answer)
        await _send(answer, send, replayed=bool(before.digest))


class _Recorder:
    """Holds the answer of an application back until its effect is stored."""

    def __init__(self) -> None:
        self._status = 500
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = b""

    async def send(self, message: Message) -> None:
        """Store a part of the answer."""
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], list(message["headers"])
        else:
            self._body += message.get("body", b"")

    @property
    def answer(self) -> dict[str, Any]:
        """Return the whole answer as plain data."""
        headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in self._headers]
        return {"status": self._status, "headers": headers, "body": self._body.decode("latin-1")}


def _without_secrets(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer without secrets, which the request may have contained."""
    headers = dict(answer["headers"])
    if not headers.get("content-type", "").startswith("application/json"):
        return answer
    plain = json.loads(answer["body"].encode("latin-1"))
    clean = redact_data(plain)
    if clean == plain:
        return answer
    body = json.dumps(clean, ensure_ascii=False).encode().decode("latin-1")
    headers["content-length"] = str(len(body))
    return {**answer, "headers": [*headers.items()], "body": body}


async def _send(answer: Any, send: Send, replayed: bool) -> None:
    body = answer["body"].encode("latin-1")
    start: Message = {"type": "http.response.start", "status": answer["status"], "headers": []}
    headers = MutableHeaders(scope=start)
    for name, value in answer["headers"]:
        headers.append(name, value)
    if replayed:
        headers["Idempotent-Replayed"] = "true"
    await send(start)
    await send({"type": "http.response.body", "body": body})


def _call(scope: Scope, once: str, body: bytes) -> Call:
    if not (0 < len(once) <= LONGEST and once.isascii() and once.isprintable()):
        detail = f"{HEADER} must be 1 to {LONGEST} printable ASCII characters"
        raise Problem(422, "idempotency_key_invalid", detail)
    caller = scope["state"]["caller"]
    request = [scope["method"], scope["path"], scope["query_string"].decode("latin-1")]
    digest = hashlib.sha256(json.dumps(request).encode() + body).hexdigest()
    return Call(caller.tenant, caller.key, once, digest)

"""The bounds every model keeps: of a request, of time, and of an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from math import isfinite
from typing import Any

from errata.errors import InvalidInput, MalformedAnswer, ModelTimeout
from errata.protocols import Answer, Message

MOST_ANSWER_BYTES = 1_000_000


def check_request(messages: Sequence[Message], max_tokens: int, temperature: float) -> None:
    """Raise InvalidInput for a request that no model can answer."""
    if not messages:
        raise InvalidInput("messages", [], "at least one message")
    if max_tokens < 1:
        raise InvalidInput("max_tokens", max_tokens, "an integer of at least 1")
    if not (isfinite(temperature) and temperature >= 0):
        raise InvalidInput("temperature", temperature, "a finite number of at least 0")


def check_timeout(timeout: float | None) -> None:
    """Raise InvalidInput unless `timeout` is None or finite seconds above 0."""
    if timeout is not None and not 0 < timeout < float("inf"):
        raise InvalidInput("timeout", timeout, "seconds above 0, or None for no limit")


@asynccontextmanager
async def within(seconds: float | None, name: str) -> AsyncIterator[None]:
    """Cancel the body after `seconds` and raise ModelTimeout; None is no limit."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise ModelTimeout(
            f"model {name!r} gave no answer within {seconds:g} s; "
            "give it more time (timeout) or ask for less (max_tokens)"
        ) from error


def checked(name: str, answer: Answer, schema: Mapping[str, Any] | None) -> Answer:
    """`answer`, if its size is bounded and, where a schema was given, its text is JSON.

    Raises MalformedAnswer. Whether the JSON fits the schema is for the caller's check.
    """
    text = answer.text
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MOST_ANSWER_BYTES:
        raise MalformedAnswer(
            f"model {name!r} answered {size} bytes, at most {MOST_ANSWER_BYTES} are taken", text
        )
    if schema is None:
        return answer
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        cut = " (cut off by max_tokens: raise it)" if answer.finish == "length" else ""
        what = f"model {name!r} was asked for JSON and its answer is not JSON{cut}: {error}"
        raise MalformedAnswer(what, text) from error
    return answer

"""What every call keeps: the bounds of request, time and answer, and an event loop that is free."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from math import isfinite
from typing import Any, TypeVar

from heedful.errors import InvalidInput, MalformedAnswer, ModelTimeout
from heedful.protocols import Answer, Message

T = TypeVar("T")
MOST_ANSWER_BYTES = 1_000_000


def check_request(
    messages: Sequence[Message],
    schema: Mapping[str, Any] | None,
    max_tokens: int,
    temperature: float,
) -> None:
    """Raise InvalidInput for a request that no model can answer."""
    if not messages:
        raise InvalidInput("messages", [], "at least one message")
    if max_tokens < 1:
        raise InvalidInput("max_tokens", max_tokens, "an integer of at least 1")
    if not (isfinite(temperature) and temperature >= 0):
        raise InvalidInput("temperature", temperature, "a finite number of at least 0")
    try:
        json.dumps(None if schema is None else dict(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("schema", schema, "plain data that JSON can hold") from error


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


def printable(text: str) -> str:
    """The text with lone surrogates replaced, which no tokenizer and no wire takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


async def in_thread(call: Callable[[], T]) -> T:
    """What `call()` returns or raises, from a thread of its own; cancelling returns at once.

    Not asyncio's own executor: `asyncio.run` waits for that one, so a call that hangs would hold up
    Ctrl-C. This thread dies with the process.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # raised again where the result is awaited
            future.set_exception(error)

    threading.Thread(target=work, name="heedful-model-call", daemon=True).start()
    return await asyncio.wrap_future(future)

"""What every call keeps: the bounds of request, time and answer, and an event loop that is free.

A model asked for JSON, twice at most.
"""

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
from heedful.loop.record import NOTHING, Usage
from heedful.models.contract import Answer, Message, Model

pass

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
async def time_limit(seconds: float | None, name: str) -> AsyncIterator[None]:
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


def check_answer(name: str, answer: Answer, schema: Mapping[str, Any] | None) -> Answer:
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


def replace_surrogates(text: str) -> str:
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


WARMER = 0.5  # added to the temperature when asked again: at 0 a model repeats its answer


async def ask_for_json(
    model: Model,
    messages: Callable[[str], list[Message]],
    read: Callable[[str], T],
    schema: Mapping[str, Any],
    *,
    who: str,
    max_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
) -> tuple[T, Usage]:
    """What `read` makes of the model's answer, and what it cost; asked once more where malformed.

    `messages` is given what was wrong with the last answer, `read` raises InvalidInput. Raises
    MalformedAnswer, ModelError.
    """
    usage, told, why, text = NOTHING, "", "", ""
    for again in (0, 1):
        try:
            answer = await complete(
                model,
                messages(told),
                schema=schema,
                max_tokens=max_tokens,
                temperature=temperature + again * WARMER,
                seed=seed + again,
            )
        except MalformedAnswer as error:  # what it cost is not told: it counts as one call
            why, text = str(error).rpartition("; it began: ")[0], error.answer
            usage, told = usage + Usage(1), "it was not the JSON object asked for"
            continue
        usage, text = usage + answer.usage, answer.text
        try:
            return read(text), usage
        except InvalidInput as error:
            # Without the value: what is shown may have had a hand in that.
            told, why = f"{error.field} must be {error.allowed}", str(error)
        if answer.finish == "length":
            why += f"; it was cut off by max_tokens ({max_tokens}): raise that"
    spent = f"asked {usage.calls} times, {usage.tokens} tokens"
    named = f"{who} of model {model.name!r}"
    raise MalformedAnswer(f"{named} gave no judgement ({spent}): {why}", text, usage)

"""Functions for calls of a model, used by adapters and by callers.

Adapters use `check_request`, `time_limit`, `in_thread` (for blocking work) and
`check_answer`. Callers use `complete`, which adds a telemetry span.
"""

import asyncio
import contextvars
import json
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar, Unpack

from heedful import telemetry
from heedful.errors import InvalidInput, MalformedAnswer, ModelTimeout
from heedful.models.contract import Answer, Message, Model, Options
from heedful.validation import (
    MAX_READ_BYTES,
    Document,
    Fields,
    check_integer,
    check_number,
    require,
)

T = TypeVar("T")
DEFAULT_CALL_OPTIONS: Document = {
    "schema": None,
    "max_tokens": None,
    "temperature": 0.0,
    "seed": 0,
}
# Added to the temperature of a retry: at 0 a model repeats its answer.
RETRY_TEMPERATURE_STEP = 0.5


async def in_own_task(work: Coroutine[Any, Any, T]) -> T:
    """Await the work of other code in a task of its own; return its result.

    What that code leaves on its task ends with it: in Python 3.11 and 3.12, a TaskGroup
    whose failure is caught leaves the task marked as cancelled. So only somebody
    outside can cancel the task of the caller. Raises CancelledError then, even if the
    work swallows it: some clients catch every exception of a request and try again, or
    raise another one, and the caller would go on with its next call.
    """
    caller = asyncio.current_task()
    assert caller is not None  # a coroutine that waits runs in a task
    cancels_before = caller.cancelling()
    try:
        return await asyncio.create_task(work)
    finally:
        if caller.cancelling() > cancels_before:
            raise asyncio.CancelledError


async def complete(
    model: Model, messages: Sequence[Message], **options: Unpack[Options]
) -> Answer:
    """Return the answer of the model; the call has a telemetry span.

    Raises ModelError.
    """
    settings = {**DEFAULT_CALL_OPTIONS, **options}
    turns = [(message.role, message.content) for message in messages]
    span_settings = {name: settings[name] for name in settings if name != "schema"}

    with telemetry.chat(model.name, turns, span_settings) as end_span:
        answer = await in_own_task(model.complete(messages, **settings))
        used = answer.usage
        end_span(answer.text, answer.finish, used.prompt_tokens, used.completion_tokens)
        return answer


def text_schema(max_chars: int) -> Document:
    """Return the JSON Schema of a text of at most `max_chars` characters."""
    return {"type": "string", "maxLength": max_chars}


def closed_object(keys: Fields) -> Document:
    """Return the JSON Schema of an object with all of the `keys` and no other key."""
    return {
        "type": "object",
        "properties": dict(keys),
        "required": list(keys),
        "additionalProperties": False,
    }


def check_request(messages: Sequence[Message], options: Options) -> Document:
    """Return all options of the request.

    Raises InvalidInput if no model could answer it.
    """
    require(messages, "messages", [], "at least one message")
    settings = {**DEFAULT_CALL_OPTIONS, **options}
    if settings["max_tokens"] is not None:
        check_integer("max_tokens", settings["max_tokens"])
    check_number("temperature", settings["temperature"], low=0, high=1e300)

    # The schema becomes plain data, so that adapters can send and change it.
    schema = settings["schema"]
    try:
        plain_schema = dict(schema) if schema else schema
        settings["schema"] = json.loads(json.dumps(plain_schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("schema", schema, "plain data that JSON can hold") from error

    return settings


def check_timeout(timeout: float | None) -> None:
    """Raise InvalidInput unless `timeout` is None or finite seconds above 0."""
    if timeout is not None and not 0 < timeout < float("inf"):
        raise InvalidInput("timeout", timeout, "seconds above 0, or None for no limit")


def check_answer(name: str, answer: Answer) -> Answer:
    """Return `answer` if it is not too long. Raises MalformedAnswer.

    The caller reads the JSON in the answer to a request with a schema.
    """
    size = len(answer.text.encode("utf-8", "surrogatepass"))
    if size > MAX_READ_BYTES:
        message = f"model {name!r} answered {size} bytes; the limit is {MAX_READ_BYTES}"
        raise MalformedAnswer(message, answer.text, answer.usage)
    return answer


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates by `?`, because tokenizers and HTTP refuse them."""
    return text.encode("utf-8", "replace").decode("utf-8")


@asynccontextmanager
async def time_limit(seconds: float | None, name: str) -> AsyncIterator[None]:
    """Cancel the body of `async with` after `seconds` and raise ModelTimeout.

    `name` is the name of the model. None means no limit.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():  # a time-out of the body itself
            raise
        raise ModelTimeout(
            f"model {name!r} gave no answer within {seconds:g} s; raise the timeout or "
            "lower max_tokens"
        ) from error


def settle(future: Future[T], call: Callable[[], T]) -> Future[T]:
    """Return `future` with the result of `call()` or the exception that it raises."""
    try:
        future.set_result(call())
    except BaseException as error:  # it is raised where the result is read
        future.set_exception(error)
    return future


async def in_thread(call: Callable[[], T]) -> T:
    """Run `call()` in a new daemon thread and return its result.

    Cancelling returns at once. `asyncio.run` waits for the threads of its executor;
    there a hanging call would block Ctrl-C.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    call_in_context = partial(contextvars.copy_context().run, call)
    thread = threading.Thread(
        target=settle,
        name="heedful-call",
        args=(future, call_in_context),
        daemon=True,
    )
    thread.start()
    return await asyncio.wrap_future(future)

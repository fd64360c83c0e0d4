"""Functions for calls of a model, used by adapters and by callers.

Adapters use `check_request`, `time_limit`, `in_thread` (for blocking work) and
`check_answer`. Callers use `complete`, which adds a telemetry span, or `ask_for_json`,
which may ask twice.
"""

import asyncio
import contextvars
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar, Unpack

from heedful import telemetry
from heedful.errors import InvalidInput, MalformedAnswer, ModelError, ModelTimeout
from heedful.loop.record import NO_USAGE, Usage
from heedful.models.contract import Answer, Message, Model, Options
from heedful.validation import check_integer, check_number, require

T = TypeVar("T")
MAX_ANSWER_BYTES = 1_000_000
DEFAULT_CALL_OPTIONS: dict[str, Any] = {
    "schema": None,
    "max_tokens": None,
    "temperature": 0.0,
    "seed": 0,
}
# A fence of code that is all of an answer; its first line may name a language.
_FENCE_PATTERN = re.compile(r"```[\w-]*\n(.*)\n```", re.DOTALL)
# Added to the temperature of a retry: at 0 a model repeats its answer.
RETRY_TEMPERATURE_STEP = 0.5


async def complete(
    model: Model, messages: Sequence[Message], **options: Unpack[Options]
) -> Answer:
    """Return the answer of the model; the call has a telemetry span.

    Raises ModelError.
    """
    settings = {**DEFAULT_CALL_OPTIONS, **options}
    turns = [(message.role, message.content) for message in messages]
    span_settings = dict(settings)
    del span_settings["schema"]

    with telemetry.chat(model.name, turns, span_settings) as end_span:
        answer = await model.complete(messages, **settings)
        used = answer.usage
        end_span(answer.text, answer.finish, used.prompt_tokens, used.completion_tokens)
        return answer


async def ask_for_json(
    model: Model,
    rules: str,
    parts: Sequence[str],
    read: Callable[[dict[str, Any]], T],
    schema: Mapping[str, Any],
    *,
    who: str,
    max_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
) -> tuple[T, Usage]:
    """Ask for a JSON object, at most twice; return `read(object)` and the usage.

    The usage is that of all calls. The system message is `rules`. The user message
    consists of `parts`; the last part is the instruction. `read` raises InvalidInput to
    refuse an answer. `who` names the asker in errors. Raises MalformedAnswer,
    ModelError.
    """
    usage = NO_USAGE
    complaint = ""
    reason = ""
    text = ""

    for number in range(2):
        turn_parts = list(parts)
        if number > 0:
            correction = f"Your last answer could not be used: {complaint}. Be brief."
            turn_parts.insert(-1, correction)

        messages = [
            Message("system", rules),
            Message("user", "\n\n".join(turn_parts)),
        ]

        try:
            answer = await complete(
                model,
                messages,
                schema=schema,
                max_tokens=max_tokens,
                temperature=temperature + number * RETRY_TEMPERATURE_STEP,
                seed=seed + number,
            )
        except MalformedAnswer as error:
            # If the cost is unknown, it counts as one call.
            usage = usage + (error.usage or Usage(1))
            complaint = "it was not the JSON object asked for"
            reason = str(error).rpartition("; it began: ")[0]
            text = error.answer
            continue
        except ModelError as error:
            error.usage = usage + Usage(1)
            raise

        usage = usage + answer.usage
        text = answer.text
        try:
            return read(_parse_object(text)), usage
        except InvalidInput as error:
            # The complaint leaves out the value, because the candidate may have
            # dictated it.
            complaint = f"{error.field} must be {error.allowed}"
            reason = str(error)

        if answer.finish == "length":
            reason += f"; it was cut off by max_tokens ({max_tokens}): raise that"

    cost = f"asked {usage.calls} times, {usage.tokens} tokens"
    message = f"{who} of model {model.name!r} gave no judgement ({cost}): {reason}"
    raise MalformedAnswer(message, text, usage)


def without_fence(text: str) -> str:
    """Return the content of a fence around the whole text, or else the text itself.

    Chat models write JSON between "```json" and "```".
    """
    fenced = _FENCE_PATTERN.fullmatch(text.strip())
    return fenced[1] if fenced else text


def _parse_object(text: str) -> dict[str, Any]:
    """Return the JSON object in an answer. Raises InvalidInput for any other text."""
    with suppress(ValueError, RecursionError):
        answer = json.loads(without_fence(text))
        if isinstance(answer, dict):
            return answer

    raise InvalidInput("the answer", text, "one JSON object and nothing else")


def text_schema(max_chars: int) -> dict[str, Any]:
    """Return the JSON Schema of a text of at most `max_chars` characters."""
    return {"type": "string", "maxLength": max_chars}


def closed_object(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object with all of the `keys` and no other key."""
    return {
        "type": "object",
        "properties": dict(keys),
        "required": list(keys),
        "additionalProperties": False,
    }


def check_request(messages: Sequence[Message], options: Options) -> dict[str, Any]:
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


def check_answer(name: str, answer: Answer, schema: Mapping[str, Any] | None) -> Answer:
    """Return `answer` if it is not too long and, with a `schema`, JSON.

    An answer that is not whole need not be JSON. Raises MalformedAnswer. The caller
    must check whether the JSON fits the schema.
    """
    size = len(answer.text.encode("utf-8", "surrogatepass"))
    if size > MAX_ANSWER_BYTES:
        message = (
            f"model {name!r} answered {size} bytes; the limit is {MAX_ANSWER_BYTES}"
        )
        raise MalformedAnswer(message, answer.text, answer.usage)

    if schema is None or answer.finish != "stop":
        return answer

    try:
        json.loads(without_fence(answer.text))
    except (ValueError, RecursionError) as error:
        message = (
            f"model {name!r} was asked for JSON and its answer is not JSON: {error}"
        )
        raise MalformedAnswer(message, answer.text, answer.usage) from error
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

    def store_error(kind: object, error: BaseException | None, trace: object) -> bool:
        """Do what `__exit__` does; True keeps the exception from being raised."""
        if error is not None:
            future.set_exception(error)
        return True

    with ExitStack() as stack:
        stack.push(store_error)
        future.set_result(call())

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
        name="heedful-model-call",
        args=(future, call_in_context),
        daemon=True,
    )
    thread.start()
    return await asyncio.wrap_future(future)

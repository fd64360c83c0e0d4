"""Use a Python function as a model; its name is `module:function`."""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pkgutil import resolve_name
from typing import Any, Unpack

from heedful.errors import (
    MalformedAnswer,
    ModelError,
    UsageError,
    UserCode,
)
from heedful.models import call as calls
from heedful.models.answers import answer_of
from heedful.models.contract import Answer, Message, Options
from heedful.validation import Fields, require


class Function:
    """A model whose answers come from a function.

    `call` is the function `(messages) -> str | Answer`, async or not, or its name. It
    gets `schema`, `max_tokens`, `temperature` and `seed` by keyword if its signature
    has them. A function that is not async runs in a thread. `timeout` limits each call,
    in seconds; heedful does not wait for a thread that takes longer. Raises
    InvalidInput, and ModelError if the module raises.
    """

    def __init__(
        self, call: str | Callable[..., Any], *, timeout: float | None = None
    ) -> None:
        calls.check_timeout(timeout)

        self._timeout = timeout
        if isinstance(call, str):
            self.name: str = call
            self._call = _look_up(call)
        else:
            module = getattr(call, "__module__", "?")
            self.name = f"{module}:{getattr(call, '__qualname__', repr(call))}"
            self._call = call

        self._parameters: Mapping[str, inspect.Parameter] = {}
        with suppress(TypeError, ValueError):  # some builtins have no signature
            self._parameters = inspect.signature(self._call).parameters

    async def complete(
        self, messages: Sequence[Message], **options: Unpack[Options]
    ) -> Answer:
        """Call the function and return its answer.

        An answer of type str has the usage of one call. Raises ModelError if the
        function raises, ModelTimeout, InvalidInput, and MalformedAnswer for a result of
        another type.
        """
        settings = calls.check_request(messages, options)
        kinds = {parameter.kind for parameter in self._parameters.values()}
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            settings = {
                name: value
                for name, value in settings.items()
                if name in self._parameters
            }

        start = time.monotonic()
        async with calls.time_limit(self._timeout, self.name):
            with UserCode(partial(_failure_of, f"model {self.name!r}")):
                result = await self._call_function(messages, settings)
        seconds = time.monotonic() - start

        answer = Answer(result) if isinstance(result, str) else answer_of(result)
        if answer is None or not isinstance(answer.text, str):
            message = (
                f"model {self.name!r} returned {type(result).__name__}, "
                "not str or Answer"
            )
            raise MalformedAnswer(message, repr(result))

        if not answer.usage.seconds:
            answer = replace(answer, usage=answer.usage.lasting(seconds))
        return calls.check_answer(self.name, answer)

    async def _call_function(
        self, messages: Sequence[Message], settings: Fields
    ) -> Any:
        """Return what the function returns; one that is not async runs in a thread."""
        function = partial(self._call, list(messages), **settings)
        if inspect.iscoroutinefunction(self._call):
            return await function()

        # A future can hold a StopIteration; an awaited thread cannot raise it.
        future = await calls.in_thread(partial(calls.settle, Future(), function))
        result = future.result()
        return await result if inspect.isawaitable(result) else result

    async def close(self) -> None:
        """Do nothing: a function has no resources."""


def _failure_of(action: str, error: BaseException) -> ModelError:
    """Return the error for an exception of the user's code; `action` is its subject."""
    return ModelError(f"{action} raised {type(error).__name__}: {error}")


def _look_up(name: str) -> Callable[..., Any]:
    """Return the function called `module:function`.

    Raises UsageError if it cannot be imported, InvalidInput, ModelError.
    """
    allowed = "a function, as in module:function"
    with UserCode(partial(_failure_of, f"importing model {name!r}")):
        try:
            function: Callable[..., Any] = resolve_name(name)
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"model {name!r}: {error}; it must be {allowed}"
            ) from error

    require(callable(function), "model", name, allowed)
    return function

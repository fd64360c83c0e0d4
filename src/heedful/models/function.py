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

from heedful.errors import InvalidInput, MalformedAnswer, ModelError, UserCode
from heedful.models import call as calls
from heedful.models.contract import Answer, Message, Options, answer_of
from heedful.validation import require


class Function:
    """A model whose answers come from a function `call(messages) -> str | Answer`,
    async or not.

    `call` is the function or its name. It gets `schema`, `max_tokens`, `temperature`
    and `seed` by keyword if its signature has them. A function that is not async runs
    in a thread. `timeout` limits each call, in seconds; heedful does not wait for a
    thread that takes longer. Raises InvalidInput, and ModelError if the module raises.
    """

    def __init__(
        self, call: str | Callable[..., Any], *, timeout: float | None = None
    ) -> None:
        calls.check_timeout(timeout)
        named = f"{getattr(call, '__module__', '?')}:{getattr(call, '__qualname__', repr(call))}"
        self.name: str = call if isinstance(call, str) else named
        self._call = _look_up(call) if isinstance(call, str) else call
        self._timeout = timeout
        self._takes: Mapping[str, inspect.Parameter] = {}
        with suppress(TypeError, ValueError):  # some builtins have no signature
            self._takes = inspect.signature(self._call).parameters

    async def complete(
        self, messages: Sequence[Message], **options: Unpack[Options]
    ) -> Answer:
        """Call the function and return its answer; an answer of type str has the usage
        of one call.

        Raises ModelError if the function raises, ModelTimeout, InvalidInput, and
        MalformedAnswer for a result of another type or, with a schema, for text that is
        not JSON.
        """
        given = calls.check_request(messages, options)
        schema = given["schema"]
        if not any(p.kind is p.VAR_KEYWORD for p in self._takes.values()):
            given = {
                name: value for name, value in given.items() if name in self._takes
            }
        asked = partial(self._call, list(messages), **given)
        begun = time.monotonic()
        async with calls.time_limit(self._timeout, self.name):
            with UserCode(partial(_raised, f"model {self.name!r}")):
                if inspect.iscoroutinefunction(self._call):
                    said = await asked()
                else:
                    # A future can hold a StopIteration; an awaited thread cannot raise
                    # it.
                    said = (
                        await calls.in_thread(partial(calls.settle, Future(), asked))
                    ).result()
                    said = await said if inspect.isawaitable(said) else said
        seconds = time.monotonic() - begun
        answer = Answer(said) if isinstance(said, str) else answer_of(said)
        if answer is None or not isinstance(answer.text, str):
            what = (
                f"model {self.name!r} returned {type(said).__name__}, not str or Answer"
            )
            raise MalformedAnswer(what, repr(said))
        usage = answer.usage if answer.usage.seconds else answer.usage.lasting(seconds)
        return calls.check_answer(self.name, replace(answer, usage=usage), schema)

    async def close(self) -> None:
        """Do nothing: a function has no resources."""


def _raised(what: str, error: BaseException) -> ModelError:
    return ModelError(f"{what} raised {type(error).__name__}: {error}")


def _look_up(name: str) -> Callable[..., Any]:
    allowed = "a function, as in module:function"
    with UserCode(partial(_raised, f"importing model {name!r}")):
        try:
            found: Callable[..., Any] = resolve_name(name)
        except (ImportError, AttributeError) as error:
            raise InvalidInput("model", name, f"{allowed} ({error})") from error
    require(callable(found), "model", name, allowed)
    return found

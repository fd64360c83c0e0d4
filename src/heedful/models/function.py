"""Any Python callable as a model, named `module:function`."""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from heedful.errors import MalformedAnswer, ModelError, UnknownName
from heedful.models.call import check_answer, check_request, check_timeout, in_thread, time_limit
from heedful.models.contract import Answer, Message


class Function:
    """The model `module:function`: a `call(messages) -> str | Answer`, synchronous or not.

    It gets `schema`, `max_tokens`, `temperature` and `seed` by keyword if its signature has them. A
    synchronous callable runs in a thread of its own. `timeout` is in seconds for each call; a
    thread that does not return in time is abandoned. Raises UnknownName, ModelError (importing the
    module raised).
    """

    def __init__(self, call: str | Callable[..., Any], *, timeout: float | None = None) -> None:
        check_timeout(timeout)
        named = f"{getattr(call, '__module__', '?')}:{getattr(call, '__qualname__', repr(call))}"
        self.name: str = call if isinstance(call, str) else named
        self._call = _look_up(call) if isinstance(call, str) else call
        self._timeout = timeout
        self._takes: Mapping[str, inspect.Parameter] = {}
        with suppress(TypeError, ValueError):  # a builtin does not tell
            self._takes = inspect.signature(self._call).parameters

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any] | None = None,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> Answer:
        """Return what the callable answers; without usage of its own it counts as one call.

        Raises ModelError with the callable's exception as its cause, ModelTimeout, MalformedAnswer
        (neither str nor Answer, or no JSON where a schema was given), InvalidInput.
        """
        check_request(messages, schema, max_tokens, temperature)
        given: dict[str, Any] = {"schema": schema, "max_tokens": max_tokens}
        given |= {"temperature": temperature, "seed": seed}
        if not any(p.kind is p.VAR_KEYWORD for p in self._takes.values()):
            given = {name: value for name, value in given.items() if name in self._takes}
        begun = time.monotonic()
        async with time_limit(self._timeout, self.name):
            said = await self._ask(partial(self._call, list(messages), **given))
        seconds = time.monotonic() - begun
        if isinstance(said, str):
            said = Answer(said)
        if not isinstance(said, Answer):
            what = f"model {self.name!r} returned {type(said).__name__}, not str or Answer"
            raise MalformedAnswer(what, repr(said))
        usage = said.usage if said.usage.seconds else said.usage.lasting(seconds)
        return check_answer(self.name, replace(said, usage=usage), schema)

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    async def _ask(self, call: Callable[[], Any]) -> Any:
        def run() -> Any:
            with _typed(f"model {self.name!r}"):
                return call()

        said = run() if inspect.iscoroutinefunction(self._call) else await in_thread(run)
        with _typed(f"model {self.name!r}"):
            return await said if inspect.isawaitable(said) else said


@contextmanager
def _typed(what: str) -> Iterator[None]:
    """Turn whatever the user's code raises into a ModelError."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # user code
        raise ModelError(f"{what} raised {type(error).__name__}: {error}") from error


def _look_up(name: str) -> Callable[..., Any]:
    module_name, _, path = name.partition(":")
    try:
        with _typed(f"importing {module_name} for model {name!r}"):
            module = importlib.import_module(module_name)
    except ModelError as error:
        why = error.__cause__
        if isinstance(why, ModuleNotFoundError) and f"{module_name}.".startswith(f"{why.name}."):
            raise UnknownName("model", name, [f"none: no module {why.name!r}"]) from why
        raise
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, None)
    if callable(found):
        call: Callable[..., Any] = found
        return call
    public = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
    known = [f"{module_name}:{n}" for n in public]
    raise UnknownName("model", name, known or ["no callable in that module"])

"""`@self_correcting`: the same loop around a function of the user's."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar, cast

from heedful.drive import Run
from heedful.errors import InvalidInput, NotPassed
from heedful.portal import run_sync
from heedful.result import Result
from heedful.store import open_store

P = ParamSpec("P")
T = TypeVar("T")


def self_correcting(
    *, on_exhausted: Literal["raise", "best"] = "raise", **options: Any
) -> Callable[[Callable[P, T]], Callable[..., T]]:
    """Run the decorated `generate(task, hint, …)` until what it returns passes.

    Options as of `run`. The function keeps its colour: an async one is awaited, a plain one is
    called. Callers give the task and whatever follows the hint, which comes from the loop, and get
    the accepted candidate. Where there is none, NotPassed is raised with the result, or with
    `on_exhausted="best"` the best candidate is returned. A method, whose first parameter is `self`
    or `cls`, is called with it.
    """
    if on_exhausted not in ("raise", "best"):
        raise InvalidInput("on_exhausted", on_exhausted, "raise or best")
    if options.get("memory") == ":memory:":  # one for all calls
        options["memory"] = open_store(":memory:")

    def decorate(function: Callable[P, T]) -> Callable[..., T]:
        parameters = list(inspect.signature(function).parameters)
        own = 1 if parameters[:1] in (["self"], ["cls"]) else 0

        async def drive(*given: Any, **named: Any) -> Any:
            bound, (task, *rest) = given[:own], given[own:]

            def generate(task: Any, hint: str) -> Any:
                return function(*bound, task, hint, *rest, **named)  # type: ignore[arg-type]

            generate.is_async = inspect.iscoroutinefunction(function)  # type: ignore[attr-defined]
            result = await Run[Any](task, generate=generate, **options).finish()
            return _candidate(result, on_exhausted)

        @functools.wraps(function)
        async def awaited(*given: Any, **named: Any) -> Any:
            return await drive(*_placed(given, named, parameters[own:], own), **named)

        @functools.wraps(function)
        def called(*given: Any, **named: Any) -> Any:
            return run_sync(drive(*_placed(given, named, parameters[own:], own), **named))

        corrected = awaited if inspect.iscoroutinefunction(function) else called
        return cast("Callable[..., T]", corrected)

    return decorate


def _placed(
    given: tuple[Any, ...], named: dict[str, Any], parameters: list[str], own: int
) -> tuple[Any, ...]:
    """What was given, with a task that was given by its name in its place. Raises TypeError."""
    if len(given) > own:
        return given
    if not parameters or parameters[0] not in named:
        raise TypeError("the task is missing: give it as the first argument")
    return (*given, named.pop(parameters[0]))


def _candidate(result: Result[Any], on_exhausted: str) -> Any:
    if not result.passed and (on_exhausted == "raise" or result.best is None):
        raise NotPassed(result)
    return result.candidate

"""For callers without an event loop: one background loop for the whole process.

`@self_correcting`: the same loop around a function of the user's.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from typing import Any, Literal, ParamSpec, TypeVar, cast

from heedful.drive.drive import Result, Run
from heedful.errors import InvalidInput, NotPassed, UsageError
from heedful.store import open_store

T = TypeVar("T")
# Plain functions run in threads, and one that calls `run_sync` keeps its thread while it waits for
# another: too few of them would wait for each other. Threads are started as they are needed.
THREADS = 512


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS, "heedful-call"))
    threading.Thread(target=_forever, args=(loop,), name="heedful-portal", daemon=True).start()
    return loop


def _forever(loop: asyncio.AbstractEventLoop) -> None:
    while not loop.is_closed():
        try:
            loop.run_forever()
        except (KeyboardInterrupt, SystemExit):
            continue  # the task holds it, and its caller raises it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loop.cache_clear)


def _must_be_run(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Nothing, where a coroutine can be run here. Raises UsageError."""
    if not asyncio.iscoroutine(coroutine):
        raise UsageError(
            f"run_sync was given a {type(coroutine).__name__}, which is no coroutine; what is read "
            "by `async for` is read in an async function, whose call is given"
        )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    coroutine.close()
    raise UsageError("run_sync was called inside an event loop; write `await` there instead")


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns, for callers that have no event loop.

    An interrupt (Ctrl-C) cancels the coroutine, waits until it has cleaned up, and is raised; a
    second one does not wait. Raises UsageError when called from a running event loop, which would
    wait for itself, and for what is no coroutine, as an async iterator.
    """
    _must_be_run(coroutine)
    loop, ended = _loop(), threading.Event()
    tasks: list[asyncio.Task[T]] = []

    def begin() -> None:
        tasks.append(loop.create_task(coroutine))
        tasks[0].add_done_callback(over)

    def over(task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # asked for, so that nobody reports it as forgotten
        ended.set()

    def give_up() -> None:
        if tasks:
            tasks[0].cancel()
        else:  # interrupted before it began
            coroutine.close()
            ended.set()

    with ExitStack() as interrupted:
        interrupted.callback(ended.wait)
        interrupted.callback(loop.call_soon_threadsafe, give_up)
        loop.call_soon_threadsafe(begin)
        ended.wait()
        interrupted.pop_all()
    return tasks[0].result()


P = ParamSpec("P")


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

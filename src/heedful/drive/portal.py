"""Call heedful from code without an event loop; one background loop serves the whole process."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any, Literal, ParamSpec, TypeVar, cast

from heedful.drive.drive import Run
from heedful.drive.journal import key_of
from heedful.errors import InvalidInput, NotPassed, UsageError
from heedful.store import open_store

P = ParamSpec("P")
T = TypeVar("T")
# A plain function keeps its thread while it waits in `run_sync`, so with too few threads such
# functions would wait for each other. Threads start when they are needed.
THREADS = 512


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS, "heedful-call"))

    def forever() -> None:
        while not loop.is_closed():
            with suppress(KeyboardInterrupt, SystemExit):  # the task passes it to the caller
                loop.run_forever()

    threading.Thread(target=forever, name="heedful-portal", daemon=True).start()
    return loop


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loop.cache_clear)


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result, for callers without an event loop.

    An interrupt (Ctrl-C) cancels the coroutine, waits until it has cleaned up, and is raised again.
    A second interrupt does not wait. Raises UsageError inside a running event loop, which would
    wait for itself, and for an argument that is not a coroutine.
    """
    if not asyncio.iscoroutine(coroutine):
        raise UsageError(
            f"run_sync got a {type(coroutine).__name__}, not a coroutine; to read an async "
            "iterator, use `async for` in an async function, and pass a call of the function"
        )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        loop = _loop()
    else:
        coroutine.close()
        raise UsageError("run_sync was called inside an event loop; write `await` there instead")
    tasks: list[asyncio.Task[T]] = []
    ended = threading.Event()

    def over(task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # otherwise asyncio reports it as never retrieved
        ended.set()

    def begin() -> None:
        tasks.append(loop.create_task(coroutine))
        tasks[0].add_done_callback(over)

    def give_up() -> None:
        if tasks:
            tasks[0].cancel()
        else:  # interrupted before it began
            coroutine.close()
            ended.set()

    try:
        loop.call_soon_threadsafe(begin)
        ended.wait()
    finally:
        if not ended.is_set():  # interrupted
            loop.call_soon_threadsafe(give_up)
            ended.wait()
    return tasks[0].result()


def self_correcting(
    *, on_exhausted: Literal["raise", "best"] = "raise", **options: Any
) -> Callable[[Callable[P, T]], Callable[..., T]]:
    """Decorate `generate(task, hint, …)`: each call runs a loop and returns the best candidate.

    Takes the options of `run`. The decorated function is async if the original function is. Callers
    pass the task and the arguments that follow the hint, but no hint. If no candidate passes,
    raises NotPassed with the result, or with `on_exhausted="best"` returns the best candidate. If
    no candidate was evaluated, always raises NotPassed. Methods (first parameter `self` or `cls`)
    work too.
    """
    if on_exhausted not in ("raise", "best"):
        raise InvalidInput("on_exhausted", on_exhausted, "raise or best")
    if options.get("memory") == ":memory:":  # all calls share it
        options["memory"] = open_store(":memory:")

    def decorate(function: Callable[P, T]) -> Callable[..., T]:
        key = options.get("memory_key")
        known = {**options, "memory_key": key_of(function) if key is None else key}
        parameters = [*inspect.signature(function).parameters, "", ""]
        own = 1 if parameters[0] in ("self", "cls") else 0

        @functools.wraps(function)
        async def drive(*args: Any, **named: Any) -> Any:
            bound, given = args[:own], args[own:]
            if not given and parameters[own] not in named:
                raise TypeError("the task is missing: give it as the first argument")
            task, *rest = given or (named.pop(parameters[own]),)

            def generate(task: Any, hint: str) -> Any:
                return function(*bound, task, hint, *rest, **named)  # type: ignore[arg-type]

            generate.is_async = inspect.iscoroutinefunction(function)  # type: ignore[attr-defined]
            result = await Run[Any](task, generate=generate, **known).finish()
            if not result.passed and (on_exhausted == "raise" or result.best is None):
                raise NotPassed(result)
            return result.candidate

        @functools.wraps(function)
        def called(*args: Any, **named: Any) -> Any:
            return run_sync(drive(*args, **named))

        corrected = drive if inspect.iscoroutinefunction(function) else called
        return cast("Callable[..., T]", corrected)

    return decorate

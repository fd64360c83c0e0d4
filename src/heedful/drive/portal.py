"""Call heedful from code without an event loop; one background loop serves the whole
process.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import fields
from functools import cache
from typing import Any, Literal, ParamSpec, TypeVar, cast, overload

from heedful.drive.drive import Run
from heedful.drive.generate import declared
from heedful.drive.journal import key_of
from heedful.errors import NotPassed, UsageError
from heedful.memory.memory import Memory
from heedful.validation import check_options, require

P = ParamSpec("P")
T = TypeVar("T")
# A plain function keeps its thread while it waits in `run_sync`, so with too few
# threads such functions would wait for each other. Threads start when they are needed.
MAX_PORTAL_THREADS = 512
# A plain function that is called inside the background loop blocks it until it ends,
# and so runs in a second background loop; everything that the function calls waits in
# that loop, too.
_level: ContextVar[int] = ContextVar("heedful_level", default=0)


@cache
def _loop(level: int) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(MAX_PORTAL_THREADS, "heedful-call"))

    def forever() -> None:
        while not loop.is_closed():
            with suppress(
                KeyboardInterrupt, SystemExit
            ):  # the task passes it to the caller
                loop.run_forever()

    threading.Thread(target=forever, name="heedful-portal", daemon=True).start()
    return loop


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loop.cache_clear)


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result, for callers without an event loop.

    An interrupt (Ctrl-C) cancels the coroutine, waits until it has cleaned up, and is
    raised again. A second interrupt does not wait. Raises UsageError inside a running
    event loop, which would wait for itself, and for an argument that is not a
    coroutine.
    """
    if not asyncio.iscoroutine(coroutine):
        raise UsageError(
            f"run_sync got a {type(coroutine).__name__}, not a coroutine; to read an "
            "async "
            "iterator, use `async for` in an async function, and pass a call of the "
            "function"
        )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _wait(coroutine, _level.get())
    coroutine.close()
    raise UsageError(
        "run_sync was called inside an event loop; write `await` there instead"
    )


def _wait(coroutine: Coroutine[Any, Any, T], level: int) -> T:
    """Run a coroutine in the background loop `level`, and block this thread until it
    has ended.
    """
    loop = _loop(level)
    context = copy_context()
    context.run(_level.set, level)
    tasks: list[asyncio.Task[T]] = []
    ended = threading.Event()

    def over(task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # otherwise asyncio reports it as never retrieved
        ended.set()

    def begin() -> None:
        tasks.append(loop.create_task(coroutine, context=context))
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


@overload
def self_correcting(function: Callable[P, T], /) -> Callable[..., T]: ...
@overload
def self_correcting(
    function: None = None,
    /,
    *,
    on_exhausted: Literal["raise", "best"] = "raise",
    **options: Any,
) -> Callable[[Callable[P, T]], Callable[..., T]]: ...
def self_correcting(
    function: Any = None,
    /,
    *,
    on_exhausted: Literal["raise", "best"] = "raise",
    **options: Any,
) -> Any:
    """Decorate `generate(task, hint, …)`: each call runs a loop and returns an accepted
    candidate.

    Takes the options of `run`. The decorated function is async if the original function
    is. The parameter called `hint` (or `feedback`) gets the feedback; callers do not
    pass it. A function without such a parameter gets no hint; it may read
    `heedful.context().hint`. If no candidate passes, raises NotPassed with the result,
    or with `on_exhausted="best"` returns the best candidate. If no candidate was
    evaluated, always raises NotPassed. Methods (first parameter `self` or `cls`) work
    too. Raises InvalidInput, and UnknownName for an unknown option.
    """
    require(
        on_exhausted in ("raise", "best"), "on_exhausted", on_exhausted, "raise or best"
    )
    known = [field.name for field in fields(Run) if field.init][
        2:
    ]  # without task and generate
    check_options("self_correcting", options, [*known, "on_exhausted"])
    Run(
        None, **{"generate": len, **options, "memory": None, "store": None}
    )  # checks the others
    if options.get("memory") == ":memory:":  # all calls share it
        options["memory"] = Memory.of(":memory:", options.get("scope"))

    def decorate(function: Callable[P, T]) -> Callable[..., T]:
        key = options.get("memory_key")
        settings = {**options, "memory_key": key_of(function) if key is None else key}
        fine = callable(function) and not isinstance(function, type)
        returned = declared(function)
        signature = inspect.signature(function) if fine else inspect.Signature()
        takes = signature.parameters
        names = [name for name in takes if name not in ("hint", "feedback")]
        outer = signature.replace(parameters=[takes[name] for name in names])
        first = next((name for name in names if name not in ("self", "cls")), "")
        require(first, "function", function, "a function of the task; name checks=[…]")

        @functools.wraps(function)
        async def drive(*args: Any, **named: Any) -> Any:
            try:
                bound = outer.bind(*args, **named)
            except TypeError as error:
                raise TypeError(
                    f"{error}; call it as {outer}, the loop passes the hint"
                ) from None
            bound.apply_defaults()
            given = bound.arguments

            def generate(task: Any, hint: str) -> Any:
                whole = {
                    **dict.fromkeys(takes.keys() - names, hint),
                    **given,
                    first: task,
                }
                call = inspect.BoundArguments(signature, whole)
                return function(*call.args, **call.kwargs)

            generate.__annotations__["return"] = returned
            generate.is_async = inspect.iscoroutinefunction(function)  # type: ignore[attr-defined]
            result = await Run[Any](
                given[first], generate=generate, **settings
            ).finish()
            if not result.passed and (on_exhausted == "raise" or result.best is None):
                raise NotPassed(result)
            return result.candidate

        @functools.wraps(function)
        def called(*args: Any, **named: Any) -> Any:
            level = _level.get()
            with suppress(RuntimeError):
                level += asyncio.get_running_loop() is _loop(level)
            return _wait(drive(*args, **named), level)

        return cast(
            "Callable[..., T]",
            drive if inspect.iscoroutinefunction(function) else called,
        )

    return decorate if function is None else decorate(function)

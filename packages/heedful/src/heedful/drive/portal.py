"""Call heedful from plain functions and notebooks, through one loop in the background.

`run_sync` runs one coroutine; `self_correcting` makes a function that runs a loop each
time it is called. The background loop serves the whole process.
"""

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, ParamSpec, TypeVar, cast, overload

from heedful.checks.evaluate import blocking, key_of
from heedful.checks.output import declared_output, returned_type
from heedful.drive.generate import HINT_PARAMETERS
from heedful.drive.options import RUN_OPTIONS, LoopSettings
from heedful.drive.run_loop import Run
from heedful.errors import HeedfulError, NotPassed, UsageError
from heedful.memory.memory import open_memory
from heedful.validation import Document, Fields, check_options, require

P = ParamSpec("P")
T = TypeVar("T")
# A plain function that waits inside the background loop blocks it until it ends, and so
# runs in a second background loop; everything that the function calls waits in that
# loop, too.
_level: ContextVar[int] = ContextVar("heedful_level", default=0)


@cache
def _loop(level: int) -> asyncio.AbstractEventLoop:
    """Return the background loop of a level; the first call starts it in a thread."""
    loop = asyncio.new_event_loop()

    def run_forever() -> None:
        """Run the event loop until it is closed."""
        while not loop.is_closed():
            # The task that raised it passes it to its caller; other tasks go on.
            with suppress(KeyboardInterrupt, SystemExit):
                loop.run_forever()

    threading.Thread(target=run_forever, name="heedful-portal", daemon=True).start()
    return loop


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loop.cache_clear)


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result, for callers that do not `await`.

    It also works where an event loop runs, as in a notebook: that loop stands still
    until the coroutine has ended, so in an async function `await` it instead. An
    interrupt (Ctrl-C) cancels the coroutine, waits until it has cleaned up, and is
    raised again. A second interrupt does not wait. Raises UsageError for an argument
    that is not a coroutine.
    """
    if not asyncio.iscoroutine(coroutine):
        raise UsageError(
            f"run_sync got a value of type {type(coroutine).__name__}, not a "
            "coroutine; pass a call of an async function, as in "
            "run_sync(heedful.run(…)); a function that is not async needs no run_sync"
        )

    return _wait(coroutine)


def _free_level() -> int:
    """Return the level of the background loop that this thread may wait for.

    Inside a background loop it is the next one, because the thread blocks its own.
    """
    level = _level.get()
    with suppress(RuntimeError):
        if asyncio.get_running_loop() is _loop(level):
            level += 1
    return level


def _wait(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a background loop; block this thread until it ends.

    Any exception that interrupts the wait, such as KeyboardInterrupt, cancels the
    coroutine and is raised again when the coroutine has ended.
    """
    level = _free_level()
    loop = _loop(level)
    context = copy_context()
    context.run(_level.set, level)
    tasks: list[asyncio.Task[T]] = []  # the task, once it has begun
    ended = threading.Event()

    def begin() -> None:
        """Begin the task; called in the event loop."""
        task = loop.create_task(coroutine, context=context)
        tasks.append(task)
        task.add_done_callback(finish)

    def finish(task: asyncio.Task[T]) -> None:
        """Say that the task has ended."""
        if not task.cancelled():
            task.exception()  # otherwise asyncio reports it as never retrieved
        ended.set()

    def give_up() -> None:
        """Cancel the task; called in the event loop."""
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

    try:
        return tasks[0].result()
    except HeedfulError as error:
        # Its message says what to do, and a cause has the lines of the user's code;
        # those of heedful tell nothing.
        raise error.with_traceback(None) from error.__cause__


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
    """Decorate `generate(task, hint, …)`: each call of it runs a whole loop.

    A call returns the candidate that was accepted. Takes the options of `run`. The
    decorated function is async if the original function is. The parameter called `hint`
    (or `feedback`) gets the feedback; callers do not pass it. A function without such a
    parameter gets no hint; it may read `heedful.context().hint`. If no candidate
    passes, raises NotPassed with the result, or with `on_exhausted="best"` returns the
    best candidate. Without one, as when no answer fits the `output`, always raises
    NotPassed. Methods (first parameter `self` or `cls`) work too. Raises InvalidInput,
    and UnknownName for an unknown option.
    """
    is_choice = on_exhausted in ("raise", "best")
    require(is_choice, "on_exhausted", on_exhausted, "raise or best")
    check_options("self_correcting", options, [*RUN_OPTIONS, "on_exhausted"])
    LoopSettings[Any](**options)  # checks them
    options["output"] = declared_output(options.get("output"))
    # All calls of the function share one memory.
    if options.get("memory") == ":memory:":
        options["memory"] = open_memory(":memory:", options.get("scope"))

    def decorate(function: Callable[P, T]) -> Callable[..., T]:
        """Return the function whose calls run loops; async if `function` is."""
        call = _TaskFunction.of(function)
        settings = dict(options)
        if settings.get("memory_key") is None:
            settings["memory_key"] = key_of(function)

        @functools.wraps(function)
        async def drive(*args: Any, **named: Any) -> Any:
            """Call the function until its result passes. Raises NotPassed."""
            arguments = call.bind(args, named)
            result = await Run[Any](
                arguments[call.task],
                generate=call.generator(arguments),
                **settings,
            ).finish()

            has_best = on_exhausted == "best" and result.candidate is not None
            if not result.passed and not has_best:
                raise NotPassed(result) from result.refused_by
            return result.candidate

        @functools.wraps(function)
        def drive_in_background(*args: Any, **named: Any) -> Any:
            """Do what `drive` does, and block the caller until it ends."""
            return _wait(drive(*args, **named))

        wrapper = drive_in_background if blocking(function) else drive
        return cast("Callable[..., T]", wrapper)

    return decorate if function is None else decorate(function)


@dataclass(frozen=True, kw_only=True)
class _TaskFunction:
    """A decorated function: how callers call it, and how a loop does.

    `task` is its first parameter other than `self` or `cls`. `hints` are the parameters
    that get the feedback; `call_signature` is the signature without them, which callers
    use.
    """

    function: Callable[..., Any]
    signature: inspect.Signature
    call_signature: inspect.Signature
    task: str
    hints: tuple[str, ...]
    returns: Any

    @classmethod
    def of(cls, function: Any) -> "_TaskFunction":
        """Return the description of `function`. Raises InvalidInput."""
        signature = inspect.Signature()
        if callable(function) and not isinstance(function, type):
            signature = inspect.signature(function)

        parameters = signature.parameters
        hints = [name for name in parameters if name in HINT_PARAMETERS]
        names = [name for name in parameters if name not in hints]
        task = next((name for name in names if name not in ("self", "cls")), "")
        require(task, "function", function, "a function of the task; name checks=[…]")

        return cls(
            function=function,
            signature=signature,
            call_signature=signature.replace(
                parameters=[parameters[name] for name in names]
            ),
            task=task,
            hints=tuple(hints),
            returns=returned_type(function),
        )

    def bind(self, args: Sequence[Any], named: Fields) -> Document:
        """Return the arguments of a call by name, with defaults. Raises TypeError."""
        try:
            bound = self.call_signature.bind(*args, **named)
        except TypeError as error:
            raise TypeError(
                f"{error}; call it as {self.call_signature}, the loop passes the hint "
                "to the parameter named hint"
            ) from None
        bound.apply_defaults()
        return bound.arguments

    def generator(self, arguments: Fields) -> Callable[[Any, str], Any]:
        """Return the function of task and hint that makes candidates in a loop."""

        def generate(task: Any, hint: str) -> Any:
            """Call the function with its arguments, this task and this hint."""
            hints = dict.fromkeys(self.hints, hint)
            values = {**hints, **arguments, self.task: task}
            call = inspect.BoundArguments(self.signature, values)
            return self.function(*call.args, **call.kwargs)

        generate.__annotations__["return"] = self.returns
        generate.is_async = not blocking(self.function)  # type: ignore[attr-defined]
        label = key_of(self.function) or getattr(self.function, "__qualname__", "")
        generate.label = label  # type: ignore[attr-defined]
        generate.hears = bool(self.hints)  # type: ignore[attr-defined]

        return generate

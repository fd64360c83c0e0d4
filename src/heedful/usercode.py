"""The one place that calls code of the user's, and turns whatever it raises into a typed error."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from heedful.errors import HeedfulError, UserCodeError
from heedful.protocols import Context

_context: ContextVar[Context] = ContextVar("heedful_context")


def context() -> Context:
    """Where the attempt stands that this code is called for. Raises LookupError outside of one."""
    return _context.get()


async def call(
    failed: Callable[[BaseException], UserCodeError],
    function: Callable[..., Any],
    *arguments: Any,
    at: Context,
    thread: bool = False,
) -> Any:
    """What `function` returns, awaited where it is awaitable.

    `failed` makes the error for an exception of the function's; errors of heedful pass as they are.
    With `thread` it runs in a worker thread, so that a blocking function holds up nobody. An
    iterator, as of a generator function, is read to its end here, where its errors are caught.
    """
    token = _context.set(at)
    try:
        if thread:
            value = await threaded(_called, function, *arguments)
        else:
            value = _called(function, *arguments)
        if hasattr(value, "__await__"):
            value = _read(await value)
    except HeedfulError:
        raise
    except Exception as error:  # user code
        raise failed(error) from error
    finally:
        _context.reset(token)
    return value


async def threaded(function: Callable[..., Any], *arguments: Any) -> Any:
    """What it returns, called in a thread; a coroutine that nobody waits for any more is closed."""
    asked = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        asked.add_done_callback(_let_go)
        raise


def _let_go(asked: asyncio.Future[Any]) -> None:
    if not asked.cancelled() and asked.exception() is None and inspect.iscoroutine(asked.result()):
        asked.result().close()


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return _read(function(*arguments))
    except StopIteration as error:  # no future can hold one: who waits for it would wait forever
        raise RuntimeError("StopIteration") from error


def _read(value: Any) -> Any:
    return list(value) if isinstance(value, Iterator) else value


def blocking(function: Callable[..., Any]) -> bool:
    """Whether calling it would hold up the event loop: a plain function does."""
    target = function if inspect.isroutine(function) else type(function).__call__
    asynchronous = any(map(inspect.iscoroutinefunction, (function, target)))
    return not (asynchronous or getattr(function, "is_async", False))

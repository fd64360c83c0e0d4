"""Run long computations in one thread, and let calls that need much memory take turns.

Python runs one thread at a time. A process has a single thread for long computations,
because an event loop would wait longer for its turn among several.

A call that reads much data holds it in memory until it ends. So a service lets few such
calls run at a time: `Turns` says whose turn it is, and a `Store` asks for a turn before
a large read.
"""

import asyncio
import contextvars
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import Literal, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
# "read" for a read that is declared as bulk, "call" for a large body or loop.
TurnKind = Literal["read", "call"]
OFFLOAD_THREAD_NAME = "heedful-long"
# A computation that reads or makes more characters than this is long.
MAX_INLINE_CHARS = 64 * 1024


async def offload(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the value of a call that takes long, and raise its errors."""
    context = contextvars.copy_context()
    job = partial(context.run, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_executor(os.getpid()), job)


@cache
def _executor(process: int) -> ThreadPoolExecutor:
    """Return the thread of this process; a forked child needs one of its own."""
    return ThreadPoolExecutor(1, OFFLOAD_THREAD_NAME)


class Turns:
    """Turns to use much memory, `most` at a time.

    Reads that are short have turns of their own, so that they do not wait for a large
    report that a model judges.
    """

    def __init__(self, most: int) -> None:
        self.semaphores: dict[TurnKind, asyncio.Semaphore] = {
            "read": asyncio.Semaphore(most),
            "call": asyncio.Semaphore(most),
        }

    @contextmanager
    def call(self) -> Iterator[None]:
        """Let a call take a turn while the block runs; it ends with the block."""
        turn = _Turn(self)
        token = _current.set(turn)
        try:
            yield
        finally:
            _current.reset(token)
            turn.end()


class _Turn:
    """The turn of one call, which holds a semaphore from `take` to `end`.

    A call has one turn, of the kind that it asked for first. If it could wait for
    another kind, two calls could wait for each other. A part of a call that outlives it
    gets no turn, because nobody would end that.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._ended = False
        self._held: asyncio.Semaphore | None = None
        self._lock = asyncio.Lock()  # parts of a call may run at the same time

    async def take(self, kind: TurnKind) -> None:
        """Wait until it is the turn of the call, unless it has one."""
        async with self._lock:
            if self._held is not None:
                return
            semaphore = self._turns.semaphores[kind]
            await semaphore.acquire()
            self._held = semaphore
            if self._ended:
                self.end()

    def end(self) -> None:
        """Let the next call have its turn."""
        self._ended = True
        if self._held is not None:
            self._held.release()
            self._held = None


_current: contextvars.ContextVar[_Turn | None] = contextvars.ContextVar(
    "heedful_turn", default=None
)


async def take_turn(kind: TurnKind) -> None:
    """Wait for the turn of the current call; do not wait outside of calls."""
    turn = _current.get()
    if turn is not None:
        await turn.take(kind)
